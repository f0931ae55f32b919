"""The datasets that can be loaded by name: one table of specifications.

What is in a file, how its lines are written, what it must amount to, where it comes from and on which terms. Nothing
here reads or fetches anything. Counts are those of the ratings themselves: a column without ratings is not among the
entries, so MovieLens has fewer columns here than films.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from onesided.errors import InputError

_GROUPLENS = (
    "GroupLens usage licence: research only; acknowledge it in publications; no redistribution, and no commercial use "
    "without permission"
)
_UCSD = "https://mcauleylab.ucsd.edu/public_datasets/data"


@dataclass(frozen=True)
class Lines:
    """How the lines of a file of ratings are written.

    ``fields`` names those of a line, the row, the column and the value first; ``header`` says whether the file does so,
    in which case they may come in any order and with others. ``integers`` are those that hold whole numbers.

    >>> Lines("::", ("who", "what", "mark")).header
    False
    """

    separator: str
    fields: tuple[str, ...]
    header: bool = False
    integers: tuple[str, ...] = ()
    encoding: str = "utf8"
    may_lack_value: bool = False


@dataclass(frozen=True)
class Release:
    """What a whole file amounts to: its lines, and the panel that is made of them.

    ``options`` are those the counts depend on; ``called`` tells releases of one dataset apart.

    >>> CATALOGUE["goodbooks"].releases[1].lines
    981756
    """

    lines: int
    rows: int
    columns: int
    entries: int
    options: Mapping[str, Any] = field(default_factory=dict)
    called: str = ""


@dataclass(frozen=True)
class Specification:
    """A dataset: what its files hold, how they are found, what they must amount to, where they come from.

    ``file`` is the file as it is published, ``member`` the data in it where it is an archive, ``others`` are
    further names, possibly with ``*``, that the data goes by. ``url`` is None where no address serves the file; ``how``
    then says how to come by it. ``md5`` is that of ``file`` where its publisher tells it, ``size`` its bytes.
    ``options`` are those of ``load``, with their defaults.

    >>> CATALOGUE["movielens-1m"].member
    'ml-1m/ratings.dat'
    """

    name: str
    title: str
    kind: str  # which reader: lines, reviews, jester, genotypes, table
    page: str = ""
    licence: str = ""
    file: str = ""
    member: str | None = None
    others: tuple[str, ...] = ()
    lines: Lines | None = None
    releases: tuple[Release, ...] = ()
    url: str | None = None
    md5: str | None = None
    size: int | None = None
    how: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)


def specification(name: str) -> Specification:
    """The specification of a dataset by name; another name is refused.

    >>> specification("jester").title
    'Jester, dataset 1, part 1'
    """
    if name not in CATALOGUE:
        raise InputError(f"there is no dataset {name!r}; choose one of {', '.join(CATALOGUE)}")
    return CATALOGUE[name]


def chosen_options(spec: Specification, given: Mapping[str, Any]) -> dict[str, Any]:
    """The options of a dataset: those given, and defaults for the others.

    >>> chosen_options(specification("book-crossing"), {})
    {'implicit': 'drop'}
    """
    for option in given:
        if option not in spec.options:
            listed = ", ".join(f"{name}={default!r}" for name, default in spec.options.items())
            raise InputError(f"{spec.name} has no option {option!r}; {f'it has {listed}' if listed else 'it has none'}")
    return {**spec.options, **given}


def _movielens(
    called: str, separator: str, counts: tuple[int, int, int], md5: str, size: int, folder: str = ""
) -> Specification:
    short, fields = f"ml-{called}", ("userId", "movieId", "rating", "timestamp")
    file = {"\t": "u.data", "::": "ratings.dat", ",": "ratings.csv"}[separator]
    rows, columns, entries = counts
    return Specification(
        f"movielens-{called}",
        f"MovieLens {called.upper()}",
        "lines",
        page=f"https://grouplens.org/datasets/movielens/{called}/",
        licence=_GROUPLENS,
        file=f"{short}.zip",
        member=f"{folder or short}/{file}",
        others=(f"{short}.{file}", *([f"{short}.csv"] if file.endswith(".csv") else [])),
        lines=Lines(separator, fields, header=separator == ",", integers=fields[:2]),
        releases=(Release(entries, rows, columns, entries),),
        url=f"https://files.grouplens.org/datasets/movielens/{short}.zip",
        md5=md5,
        size=size,
    )


_TABLE = (
    _movielens("100k", "\t", (943, 1_682, 100_000), "0e33842e24a9c977be4e0107933c0723", 4_924_029),
    _movielens("1m", "::", (6_040, 3_706, 1_000_209), "c4d9eecfca2ab87c1945afe126590906", 5_917_549),
    _movielens("10m", "::", (69_878, 10_677, 10_000_054), "ce571fd55effeba0271552578f2648bd", 65_566_137, "ml-10M100K"),
    _movielens("20m", ",", (138_493, 26_744, 20_000_263), "cd245b17a1ae2cc31bb14903e1204af3", 198_702_078),
    _movielens("25m", ",", (162_541, 59_047, 25_000_095), "6b51fb2759a8657d3bfcbfc42b592ada", 261_978_986),
    _movielens("32m", ",", (200_948, 84_432, 32_000_204), "d472be332d4daa821edc399621853b57", 238_950_008),
    Specification(
        "amazon-reviews-2023",
        "Amazon Reviews 2023, the ratings of one category",
        "lines",
        page="https://amazon-reviews-2023.github.io/",
        licence="none is stated; cite Hou et al. (2024), arXiv:2403.03952",
        file="Automotive.csv.gz",
        others=("Automotive.csv", "amazon-reviews-2023*.csv", "amazon-reviews-2023*.csv.gz"),
        lines=Lines(",", ("user_id", "parent_asin", "rating", "timestamp"), header=True),
        url=f"{_UCSD}/amazon_2023/benchmark/0core/rating_only/Automotive.csv.gz",
        options={"cut": (100_000, 50_000)},
    ),
    Specification(
        "genomes",
        "1000 Genomes, phase 3, chromosome 22 (or any VCF or PLINK files)",
        "genotypes",
        page="https://www.internationalgenome.org/data-portal/data-collection/phase-3",
        licence="open data of the 1000 Genomes Project; cite Nature 526 (2015), 68-74",
        file="ALL.chr22.phase3_shapeit2_mvncall_integrated_v5b.20130502.genotypes.vcf.gz",
        others=("1kg-*.npz", "1kg-*.vcf", "1kg-*.vcf.gz", "1kg-*.bed", "ALL.chr*.vcf", "ALL.chr*.vcf.gz"),
        url="https://ftp.1000genomes.ebi.ac.uk/vol1/ftp/release/20130502/"
        "ALL.chr22.phase3_shapeit2_mvncall_integrated_v5b.20130502.genotypes.vcf.gz",
        options={"columns": None, "sites": None, "coding": None},
    ),
    Specification(
        "jester",
        "Jester, dataset 1, part 1",
        "jester",
        page="https://eigentaste.berkeley.edu/dataset/",
        licence="free for research that cites Goldberg et al., Information Retrieval 4 (2001), 133-151",
        file="jester-data-1.csv",
        others=("jester-1.csv",),
        releases=(Release(24_983, 24_983, 100, 1_810_455),),
        how="download jester_dataset_1_1.zip (4.2 MB) there, open the jester-data-1.xls in it with a spreadsheet, and "
        "save it as CSV",
    ),
    Specification(
        "goodbooks",
        "goodbooks-10k",
        "lines",
        page="https://github.com/zygmuntz/goodbooks-10k",
        licence="CC BY-SA 4.0",
        file="goodbooks-10k.zip",
        member="ratings.csv",
        others=("goodbooks-10k.ratings.csv", "goodbooks-10k.csv"),
        lines=Lines(",", ("user_id", "book_id", "rating"), header=True, integers=("user_id", "book_id")),
        releases=(
            Release(5_976_479, 53_424, 10_000, 5_976_479, called="release 1.0"),
            Release(981_756, 53_424, 10_000, 979_478, called="the first release"),
        ),
        url="https://github.com/zygmuntz/goodbooks-10k/releases/download/v1.0/goodbooks-10k.zip",
    ),
    Specification(
        "book-crossing",
        "Book-Crossing",
        "lines",
        page="http://www2.informatik.uni-freiburg.de/~cziegler/BX/",
        licence="none is stated; cite Ziegler et al. (2005), doi:10.1145/1060745.1060754",
        file="BX-CSV-Dump.zip",
        member="BX-Book-Ratings.csv",
        others=("BX-Book-Ratings.csv", "book-crossing.csv"),
        lines=Lines(";", ("User-ID", "ISBN", "Book-Rating"), header=True, integers=("User-ID",), encoding="latin1"),
        releases=(
            Release(1_149_780, 77_805, 185_973, 433_671, {"implicit": "drop"}),
            Release(1_149_780, 105_283, 340_556, 1_149_780, {"implicit": "keep"}),
        ),
        how="its page is out of reach at times; any copy of BX-CSV-Dump.zip will do",
        options={"implicit": "drop"},
    ),
    Specification(
        "renttherunway",
        "RentTheRunway",
        "reviews",
        page="https://cseweb.ucsd.edu/~jmcauley/datasets.html#clothing_fit",
        licence="none is stated; cite Misra, Wan and McAuley (2018), doi:10.1145/3240323.3240398",
        file="renttherunway_final_data.json.gz",
        others=("renttherunway_final_data.json", "renttherunway.csv"),
        lines=Lines(
            ",",
            ("user_id", "item_id", "rating", "review_date"),
            header=True,
            integers=("user_id", "item_id"),
            may_lack_value=True,
        ),
        releases=(Release(192_544, 105_508, 5_850, 192_198),),
        url=f"{_UCSD}/renttherunway/renttherunway_final_data.json.gz",
    ),
    Specification(
        "table",
        "any long table, as onesided fit reads it",
        "table",
        options={"row": None, "column": None, "value": None, "duplicates": "refuse", "non_finite": "refuse"},
    ),
)

CATALOGUE: Mapping[str, Specification] = MappingProxyType({spec.name: spec for spec in _TABLE})
