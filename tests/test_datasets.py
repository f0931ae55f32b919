"""Files as published become verified panels, and are read once; what is wrong with a file is named."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import re
import warnings
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from onesided import InputError, Panel, datasets
from onesided.datasets import CATALOGUE, Release, catalogue, find, genotypes, loading
from onesided.datasets.genotype_files import genotype_files
from onesided.panels.packed.format import load_packed, write_packed

MOVIES = [(1, 31, 2.5), (1, 50, 4.0), (2, 31, 3.0), (7, 50, 0.5)]
DENSE = np.array([[2.5, 4.0], [3.0, np.nan], [np.nan, 0.5]])
PACKERS: dict[str, Callable[[bytes], bytes]] = {"": bytes, ".gz": gzip.compress, ".xz": lzma.compress}


def movies(name: str) -> bytes:
    """Four ratings as a file of MovieLens writes them."""
    form = CATALOGUE[name].lines
    assert form is not None
    head = form.separator.join(form.fields) + "\n" if form.header else ""
    return (head + "".join(form.separator.join(map(str, (*one, 1260759144))) + "\n" for one in MOVIES)).encode()


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that no other test has seen."""
    monkeypatch.setenv("ONESIDED_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache"


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    def write(name: str, content: bytes | str, packing: str = "") -> Path:
        path = tmp_path / f"{name}{packing}"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(PACKERS[packing](content.encode() if isinstance(content, str) else content))
        return path

    return write


@pytest.fixture
def specify(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Change the specification of a dataset, so that small files can be whole."""

    def specify(name: str, **changes: Any) -> None:
        known = {**catalogue.CATALOGUE, name: replace(catalogue.CATALOGUE[name], **changes)}
        monkeypatch.setattr(catalogue, "CATALOGUE", known)

    return specify


def load(name: str, path: Path, **options: Any) -> Panel:
    """The panel of a small file, with what is said about it kept quiet."""
    return datasets.load(name, path, **{"verify": False, "note": lambda sentence: None, **options})


def archive(path: Path, **members: bytes) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return path


def refused(message: str, name: str, path: Path, **options: Any) -> None:
    with pytest.raises(InputError, match=message):
        load(name, path, **options)


# Layouts


@pytest.mark.parametrize("name", [one for one in CATALOGUE if one.startswith("movielens")])
def test_movielens_as_published(name: str, tmp_path: Path, write: Callable[..., Path]) -> None:
    member = CATALOGUE[name].member
    assert member is not None
    text, file = movies(name), Path(member).name
    paths = [
        archive(tmp_path / "published.zip", **{member: text, "README": b""}),
        write(f"unpacked/{file}", text).parent,
    ]
    paths += [write(f"bare-{file}", text, packing) for packing in PACKERS]
    for path in paths:
        panel = load(name, path)
        np.testing.assert_array_equal(panel.to_dense(), DENSE)
        assert (panel.row_ids.tolist(), panel.column_ids.tolist()) == ([1, 2, 7], [31, 50])


def test_a_bare_file_that_is_not_bare_by_name(write: Callable[..., Path]) -> None:
    """What a file is, is read from its bytes."""
    path = write("ratings.dat", gzip.compress(movies("movielens-1m")))
    assert load("movielens-1m", path).shape == (3, 2)


def test_goodbooks_averages_duplicates_in_either_order_of_fields(write: Callable[..., Path]) -> None:
    first = write("first.csv", "book_id,user_id,rating\n1,314,5\n1,314,2\n2,9,4\n")
    later = write("later.csv", "user_id,book_id,rating\n314,1,5\n314,1,2\n9,2,4\n", ".xz")
    for path in (first, later):
        said: list[str] = []
        panel = load("goodbooks", path, note=said.append)
        np.testing.assert_array_equal(panel.to_dense(), [[np.nan, 4.0], [3.5, np.nan]])
        assert said == ["1 line averaged with an earlier one of the same row and column"]


BOOKS = b'"User-ID";"ISBN";"Book-Rating"\r\n"7";"034545104X";"0"\r\n"7";"3-\xe9";"5"\r\n"8";"3-\xe9";"10"\r\n'


def test_book_crossing_in_latin_1(tmp_path: Path, write: Callable[..., Path]) -> None:
    zipped = archive(tmp_path / "BX-CSV-Dump.zip", **{"BX-Book-Ratings.csv": BOOKS, "BX-Users.csv": b""})
    for path in (zipped, write("bare.csv", BOOKS, ".xz")):
        panel = load("book-crossing", path)
        assert (panel.shape, panel.column_ids.tolist()) == ((2, 1), ["3-é"])
        assert load("book-crossing", path, implicit="keep").to_dense()[0].tolist() == [0.0, 5.0]
    refused("implicit='no' is not an option", "book-crossing", zipped, implicit="no")


REVIEWS = (
    '{"fit": "fit", "user_id": "42", "item_id": "7", "rating": "10", "review_text": "a \\"b\\""}\n'
    '{"user_id": "42", "item_id": "7", "rating": "8"}\n{"user_id": "43", "item_id": "9", "rating": null}\n'
    '{"user_id": "43", "item_id": "7", "rating": "6"}\n'
)


def test_renttherunway_as_json_and_as_csv(write: Callable[..., Path]) -> None:
    table = 'user_id,item_id,rating,review_date\n42,7,10.0,"April 20, 2016"\n42,7,8.0,x\n43,9,,x\n43,7,6.0,x\n'
    for path in (write("all.json", REVIEWS, ".gz"), write("plain.json", REVIEWS), write("all.csv", table, ".xz")):
        said: list[str] = []
        panel = load("renttherunway", path, note=said.append)
        assert (panel.row_ids.tolist(), panel.values.tolist()) == ([42, 43], [9.0, 6.0])
        assert said[0] == "1 line without a rating left out"
        assert said[1].startswith("1 line averaged")


def joke_lines(*ratings: dict[int, float]) -> str:
    lines = ""
    for one in ratings:
        lines += ",".join([str(len(one)), *(f"{one.get(j, 99):g}" for j in range(1, 101))]) + "\n"
    return lines


def test_jester_numbers_rows_and_columns(write: Callable[..., Path]) -> None:
    for packing in PACKERS:
        panel = load("jester", write("jester-1.csv", joke_lines({1: -7.82, 100: 0.0}, {2: 10.0}), packing))
        assert (panel.shape, panel.column_ids[-1], panel.row_ids.tolist()) == ((2, 100), 100, [1, 2])
        assert (panel.columns.tolist(), panel.values.tolist()) == ([0, 99, 1], [-7.82, 0.0, 10.0])


def test_jester_counts_must_agree(write: Callable[..., Path]) -> None:
    lines = joke_lines({1: 3.0}, {2: 4.0, 3: 5.0})
    refused("line 2 of .* says 3 ratings and has 2", "jester", write("a.csv", lines.replace("\n2,", "\n3,")))
    refused("line 1 of .* has 30; expected a rating of -10 to 10", "jester", write("b.csv", joke_lines({1: 30.0})))
    refused("line 2 of .* expected 101 numbers", "jester", write("c.csv", lines[:-40]))
    refused("holds no ratings: it is empty", "jester", write("d.csv", "", ".gz"))


AMAZON = "user_id,parent_asin,rating,timestamp\nann,B1,5.0,1\nann,B2,4.0,2\nbob,B1,3.0,3\nbob,B1,1.0,4\ncid,B3,2.0,5\n"


def test_amazon_is_cut_to_the_most_rated(write: Callable[..., Path]) -> None:
    path = write("Automotive.csv", AMAZON, ".gz")
    said: list[str] = []
    assert load("amazon-reviews-2023", path, cut=None).shape == (3, 3)
    panel = load("amazon-reviews-2023", path, cut=(2, 1), note=said.append)
    assert (panel.row_ids.tolist(), panel.column_ids.tolist()) == (["ann", "bob"], ["B1"])
    assert panel.values.tolist() == [5.0, 2.0]
    assert said[-1] == "cut to the most rated 2 rows × 1 columns"
    assert load("amazon-reviews-2023", path, cut=(9, 1)).shape == (2, 1)  # rows without an entry are not kept
    assert load("amazon-reviews-2023", path).shape == (3, 3)  # there is less than the paper keeps
    refused("give the rows and columns to keep, or None", "amazon-reviews-2023", path, cut=5)


def test_any_table(write: Callable[..., Path]) -> None:
    path = write("mine.csv", "who,what,mark\na,x,1\na,x,3\nb,y,2\n")
    names = {"row": "who", "column": "what", "value": "mark"}
    assert load("table", path, **names, duplicates="mean").values.tolist() == [2.0, 2.0]
    refused("entry repeats an earlier", "table", path, **names)
    refused("there is no file .*give the path of a file of entries", "table", path.parent)


# Genotypes

VCF = (
    "##fileformat=VCFv4.2\n#CHROM\tPOS\tID\tREF\tALT\tQUAL\tFILTER\tINFO\tFORMAT\tHG1\tHG2\n"
    "22\t10\trs1\tA\tG\t.\tPASS\t.\tGT\t0|1\t1|1\n22\t20\t.\tC\tT,G\t.\tPASS\t.\tGT\t0|2\t0|0\n"
    "22\t30\t.\tC\tT\t.\tPASS\t.\tGT:DP\t.|1:7\t.:3\n22\t10\trs1\tA\tG\t.\tPASS\t.\tGT\t0|0\t0|1\n"
)


@pytest.mark.parametrize("block", [1, 1 << 20])
def test_phased_vcf(block: int, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """How sites are cut into blocks does not change the panel."""
    monkeypatch.setattr(genotypes, "BLOCK_ENTRIES", block)
    said: list[str] = []
    path = write("chr22.vcf", VCF, ".gz")
    panel = load("genomes", path, note=said.append)
    assert panel.row_ids.tolist() == ["22:10:A:G", "22:30:C:T", "22:10:A:G#2"]
    assert panel.column_ids.tolist() == ["HG1:1", "HG1:2", "HG2:1", "HG2:2"]
    expected = [[0, 1, 1, 1], [np.nan, 1, np.nan, np.nan], [0, 0, 0, 1]]
    np.testing.assert_array_equal(panel.to_dense(), expected)
    assert panel.values.dtype == np.float32
    assert said == [
        "1 site with more than two alleles left out",
        "1 site with the id of an earlier one, told apart by #2, …",
    ]
    np.testing.assert_array_equal(load("genomes", path, coding="paper").to_dense(), np.array(expected) + 1)
    by_person = load("genomes", path, columns="individuals")
    np.testing.assert_array_equal(by_person.to_dense(), [[1, 2], [np.nan, np.nan], [0, 1]])
    first: list[str] = []
    assert load("genomes", path, sites=2, note=first.append).row_ids.tolist() == ["22:10:A:G", "22:30:C:T"]
    assert first == ["1 site with more than two alleles left out"]


def test_vcf_that_cannot_be_haplotypes(write: Callable[..., Path]) -> None:
    unphased = write("unphased.vcf", VCF.replace("0|1\t1|1", "0/1\t1|1"))
    refused('line 3 of .* has 1 unphased genotype .*columns="individuals"', "genomes", unphased)
    assert load("genomes", unphased, columns="individuals").to_dense()[0].tolist() == [1.0, 2.0]
    refused(
        "has 1 genotype of not two alleles .*'1'", "genomes", write("haploid.vcf", VCF.replace("0|1\t1|1", "0|1\t1"))
    )
    refused(r"genotypes other than 0\|1", "genomes", write("odd.vcf", VCF.replace("0|1\t1|1", "0|3\t1|1")))
    refused(r"genotypes other than 0\|1", "genomes", write("shifted.vcf", VCF.replace("0|1\t1|1", "0|11\t|1")))
    refused("holds no sites with two alleles", "genomes", write("none.vcf", "".join(VCF.splitlines(True)[:2])))
    refused("has 1 genotype, expected 2", "genomes", write("short.vcf", VCF.replace("0|1\t1|1", "0|1")))
    refused("without genotypes", "genomes", write("cut.vcf", VCF[:-12]))
    refused("is not a VCF with genotypes", "genomes", write("no.vcf", "a,b,c\n"))
    refused("is cut short: its last line has no end", "genomes", write("cut2.vcf", VCF[:-1]), verify=True)
    for option, message in (
        ({"columns": "people"}, "columns='people' is not an option"),
        ({"coding": "old"}, "coding='old' is not an option"),
        ({"sites": 0}, "sites=0 is not an option"),
    ):
        refused(message, "genomes", unphased, **option)


@pytest.fixture
def plink(write: Callable[..., Path]) -> Path:
    """Two sites of five individuals: doses 2, missing, 1, 0, 0 and 0, 0, 0, 1, 2."""
    write("cohort.bim", "22\trs1\t0\t10\tG\tA\n22\trs2\t0\t30\tT\tC\n")
    write("cohort.fam", "".join(f"family{k} P{k} 0 0 1 -9\n" for k in range(5)))
    return write("cohort.bed", b"\x6c\x1b\x01" + bytes([0b11_10_01_00, 0b11, 0b10_11_11_11, 0b00]))


def test_plink(plink: Path) -> None:
    panel = load("genomes", plink)
    np.testing.assert_array_equal(panel.to_dense(), [[2, np.nan, 1, 0, 0], [0, 0, 0, 1, 2]])
    assert (panel.row_ids.tolist(), panel.column_ids[0]) == (["22:10:A:G", "22:30:C:T"], "P0")
    assert genotype_files(plink) == [plink.with_suffix(one) for one in (".bed", ".bim", ".fam")]
    refused('has no phase: PLINK does not keep it; pass columns="individuals"', "genomes", plink, columns="haplotypes")


def test_plink_that_was_cut(plink: Path) -> None:
    whole = plink.read_bytes()
    plink.write_bytes(whole[:-1])
    refused("has 6 bytes, expected 7 for 2 sites of cohort.bim and 5 individuals", "genomes", plink)
    plink.write_bytes(b"abc" + whole[3:])
    refused("is not a PLINK .bed", "genomes", plink)
    plink.with_suffix(".fam").write_text("family0 P0 0\n")
    refused("line 1 of .*cohort.fam has 3 fields, expected 6", "genomes", plink)
    plink.with_suffix(".fam").unlink()
    refused("there is no file .*cohort.fam; PLINK's .bed, .bim and .fam are read together", "genomes", plink)


def test_packed_haplotypes(tmp_path: Path) -> None:
    path = tmp_path / "1kg-chr22.npz"
    bits = np.array([[0, 1, 1, 1], [1, 0, 0, 0]], dtype=np.uint8)
    arrays = {"shape": [2, 4], "pos": [10, 20], "ref_alt": ["A,G", "C,T"], "sample": ["HG1", "HG2"]}
    np.savez(path, hap_packed=np.packbits(bits, axis=1), **arrays)
    panel = load("genomes", path)
    np.testing.assert_array_equal(panel.to_dense(), bits)
    assert (panel.row_ids.tolist(), panel.column_ids[1]) == (["10:A:G", "20:C:T"], "HG1:2")
    assert load("genomes", path, columns="individuals").to_dense().tolist() == [[1.0, 2.0], [1.0, 0.0]]
    whole = path.read_bytes()
    path.write_bytes(whole[:-30])
    refused("is cut short or corrupt", "genomes", path)
    np.savez(path, hap_packed=np.packbits(bits, axis=1), **{**arrays, "shape": [3, 4]})
    refused("does not fit together", "genomes", path)
    np.savez(path, shape=[2, 4])
    refused("has no hap_packed, pos, ref_alt, sample, only 'shape'", "genomes", path)


# Verification, and files that are not whole


def test_a_whole_file_is_verified_and_quiet(write: Callable[..., Path], specify: Callable[..., None]) -> None:
    specify("movielens-1m", releases=(Release(4, 3, 2, 4),))
    specify(
        "book-crossing", releases=(Release(3, 2, 1, 2, {"implicit": "drop"}), Release(3, 2, 2, 3, {"implicit": "keep"}))
    )
    assert datasets.load("movielens-1m", write("ratings.dat", movies("movielens-1m"))).n_entries == 4
    path = write("books.csv", BOOKS)
    assert datasets.load("book-crossing", path).n_entries == 2  # what was left out is what it is known for
    assert datasets.load("book-crossing", path, implicit="keep").n_entries == 3
    with pytest.warns(UserWarning, match="Book-Crossing: 1 rating of zero left out as implicit"):
        datasets.load("book-crossing", path, verify=False)


def test_counts_that_are_not_those_of_the_dataset(write: Callable[..., Path], specify: Callable[..., None]) -> None:
    path = write("ratings.dat", movies("movielens-1m"))
    refused(
        r"has 4 lines, MovieLens 1M has 1,000,209: it is cut short, or filtered; download ml-1m.zip \(5.9 MB\) from "
        r".*licence: GroupLens.*onesided data get movielens-1m; or pass verify=False",
        "movielens-1m",
        path,
        verify=True,
    )
    specify("movielens-1m", releases=(Release(3, 3, 2, 3),))
    refused("has 4 lines, MovieLens 1M has 3: it is of something else", "movielens-1m", path, verify=True)
    specify("movielens-1m", releases=(Release(4, 3, 3, 4),))
    refused(
        "makes 3 rows × 2 columns with 4 entries, MovieLens 1M makes 3 rows × 3 columns",
        "movielens-1m",
        path,
        verify=True,
    )
    specify("movielens-1m", releases=(Release(4, 3, 3, 4, called="b"), Release(40, 3, 2, 4, called="a")))
    refused("MovieLens 1M, b, makes", "movielens-1m", path, verify=True)


@pytest.mark.parametrize(
    ("name", "text"),
    [(one, movies(one)) for one in ("movielens-100k", "movielens-1m", "movielens-20m")]
    + [
        ("book-crossing", BOOKS),
        ("renttherunway", REVIEWS.encode()),
        ("jester", joke_lines({1: 3.0}, {2: 1.0}).encode()),
    ]
    + [("amazon-reviews-2023", AMAZON.encode()), ("genomes", VCF.encode())],
)
def test_truncated_files_are_named_as_that(
    name: str, text: bytes, write: Callable[..., Path], specify: Callable[..., None]
) -> None:
    specify(name, releases=())
    for packing in PACKERS:
        path = write("whole", text, packing)
        assert load(name, path, verify=True).n_entries > 0
        if packing:
            cut = path.with_name(f"cut{packing}")
            cut.write_bytes(path.read_bytes()[:-9])
            refused(r"cut.* is cut short or corrupt .*; download it again", name, cut)
        refused("(is|was) cut( short)?", name, write("less", text[:-4], packing), verify=True)
    refused("cut short: its last line has no end", name, write("no-end", text[:-1].rstrip(b"\r")), verify=True)


def test_a_line_with_missing_or_wrong_fields(write: Callable[..., Path]) -> None:
    text = movies("movielens-1m").decode()
    ends = "the file was cut or edited: download it again"
    refused(f"line 5 of .* is '9::3'.*{ends}", "movielens-1m", write("a", text + "9::3\n"))
    refused(
        f"line 5 of .* has 'x' where a number is expected .*{ends}", "movielens-1m", write("b", text + "9::x::1::2\n")
    )
    refused(f"line 5 of .* has no rating; {ends}", "movielens-1m", write("c", text + "9::3::::2\n"))
    refused(f"line 5 of .* has no movieId; {ends}", "movielens-1m", write("d", text + "9::::2::2\n"))
    refused("line 6 of .* has no parent_asin", "amazon-reviews-2023", write("e", AMAZON.replace("B3", "")))
    refused(
        "line 2 of .* expected an object with user_id", "renttherunway", write("f", REVIEWS.replace("43", "", 1)[:120])
    )
    empty = "user_id,item_id,rating,review_date\n"
    refused("holds no ratings", "renttherunway", write("g", empty))
    refused("holds no ratings, in 1 line", "renttherunway", write("h", empty + "1,2,,x\n"))


def test_another_file_or_separator(write: Callable[..., Path]) -> None:
    refused(
        r"line 1 of .* is '1::31::2.5::1260759144', with fields between '::'; expected userId\\tmovieId",
        "movielens-100k",
        write("a", movies("movielens-1m")),
    )
    refused("with 1 field; expected userId::movieId", "movielens-1m", write("b", "hello\n"))
    refused(
        "expected the header userId,movieId,rating,timestamp: this is another file, or it lost its header",
        "movielens-20m",
        write("c", movies("movielens-20m").split(b"\n", 1)[1]),
    )


def test_archives_that_are_not_whole_or_not_the_ones(tmp_path: Path, write: Callable[..., Path]) -> None:
    whole = archive(tmp_path / "ml-1m.zip", **{"ml-1m/ratings.dat": movies("movielens-1m")})
    data = whole.read_bytes()
    refused(
        r"half.zip is a ZIP archive cut short or corrupt \(.*\); download it again",
        "movielens-1m",
        write("half.zip", data[:-20]),
    )
    damaged = data.replace(data[60:64], b"\0\0\0\0", 1)
    refused("ratings.dat in .*damaged.zip is cut short or corrupt", "movielens-1m", write("damaged.zip", damaged))
    locked = bytearray(data)
    for flags in (6, data.rindex(b"PK\x01\x02") + 8):  # of the member, and in the list of members
        locked[flags] |= 1
    refused("locked.zip is cut short or corrupt .*encrypted", "movielens-1m", write("locked.zip", bytes(locked)))
    other = archive(tmp_path / "other.zip", **{"ml-25m/movies.csv": b"", "README": b""})
    refused(
        "has no files named ratings.dat, expected one; it holds 'ml-25m/movies.csv', 'README'. This is not the archive",
        "movielens-1m",
        other,
    )
    refused("is not a ZIP archive, despite its name", "movielens-1m", write("text.zip", movies("movielens-1m")))
    refused(
        "is a web page, saved in the place of MovieLens 1M", "movielens-1m", write("page.zip", "<!DOCTYPE html><html>")
    )
    refused("is a ZIP archive, from which Jester.* is not read; .*save it as CSV", "jester", whole)
    refused("is empty; download ml-1m.zip", "movielens-1m", write("empty.zip", ""))
    moved = archive(tmp_path / "moved.zip", **{"mine/ratings.dat": movies("movielens-1m"), "__MACOSX/ratings.dat": b""})
    assert load("movielens-1m", moved).n_entries == 4


def test_what_is_missing_is_told_in_full(tmp_path: Path) -> None:
    refused(
        r"there is no file .*ml-1m.zip; download ml-1m.zip \(5.9 MB\) from https://grouplens.org/datasets/movielens/1m/"
        r" \(licence: .*\), or have it done: onesided data get movielens-1m",
        "movielens-1m",
        tmp_path / "ml-1m.zip",
    )
    refused("there is no file of Jester.* in .*: download jester_dataset_1_1.zip", "jester", tmp_path)
    with pytest.raises(InputError, match="there is no dataset 'netflix'; choose one of movielens-100k"):
        datasets.load("netflix", tmp_path)
    refused("book-crossing has no option 'cut'; it has implicit='drop'", "book-crossing", tmp_path, cut=None)
    refused("jester has no option 'cut'; it has none", "jester", tmp_path, cut=None)


# Cache


def folders(home: Path) -> list[Path]:
    return sorted(home.iterdir())


def test_a_second_load_does_not_read_the_file(
    home: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write("ratings.dat", movies("movielens-1m"))
    first = load("movielens-1m", path)
    monkeypatch.setattr(loading, "_read", lambda *given: pytest.fail("the file was read again"))
    second = load("movielens-1m", path)
    np.testing.assert_array_equal(second.to_dense(), first.to_dense())
    (folder,) = folders(home)
    assert load_packed(folder).n_entries == 4
    assert not list(home.rglob("*.part"))


def test_notes_are_told_again(write: Callable[..., Path]) -> None:
    path = write("goodbooks.csv", "book_id,user_id,rating\n1,314,5\n1,314,2\n")
    for _ in range(2):
        with pytest.warns(UserWarning, match="goodbooks-10k: 1 line averaged"):
            datasets.load("goodbooks", path, verify=False)


def test_a_file_that_changed_is_read_again_and_takes_the_place(home: Path, write: Callable[..., Path]) -> None:
    path = write("ratings.dat", movies("movielens-1m"))
    load("movielens-1m", path)
    path.write_bytes(movies("movielens-1m") + b"9::31::1::0\n")
    assert load("movielens-1m", path).n_entries == 5
    os.utime(path, ns=(0, 0))
    before = load("movielens-1m", path)
    assert before.n_entries == 5
    assert len(folders(home)) == 1


def test_options_and_verification_have_panels_of_their_own(home: Path, write: Callable[..., Path]) -> None:
    path = write("books.csv", BOOKS)
    assert load("book-crossing", path).n_entries != load("book-crossing", path, implicit="keep").n_entries
    refused("has 3 lines, Book-Crossing has 1,149,780", "book-crossing", path, verify=True)
    assert len(folders(home)) == 2


@pytest.mark.parametrize("damage", ["header", "array", "note", "file"])
def test_a_broken_cache_is_made_anew(damage: str, home: Path, write: Callable[..., Path]) -> None:
    path = write("ratings.dat", movies("movielens-1m"))
    load("movielens-1m", path)
    (folder,) = folders(home)
    header = folder / "panel.json"
    if damage == "header":
        header.write_text("{")
    elif damage == "array":
        next(folder.glob("data-*/values.npy")).write_bytes(b"")
    elif damage == "note":
        header.write_text(json.dumps({**json.loads(header.read_text()), "source": "?"}))
    else:
        for one in sorted(folder.rglob("*"), reverse=True):
            one.unlink() if one.is_file() else one.rmdir()
        folder.rmdir()
        folder.write_text("")
    np.testing.assert_array_equal(load("movielens-1m", path).to_dense(), DENSE)
    assert folders(home) == [folder]
    assert len(list(folder.glob("data-*"))) == 1


def test_nothing_is_left_of_a_file_that_is_refused_or_interrupted(home: Path, write: Callable[..., Path]) -> None:
    path = write("ratings.dat", movies("movielens-1m"))
    refused("has 4 lines", "movielens-1m", path, verify=True)

    def stop(done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        load("movielens-1m", path, progress=stop)
    assert folders(home) == []


def test_where_panels_are_kept(tmp_path: Path, write: Callable[..., Path], monkeypatch: pytest.MonkeyPatch) -> None:
    path = write("ratings.dat", movies("movielens-1m"))
    load("movielens-1m", path, cache=tmp_path / "mine")
    monkeypatch.delenv("ONESIDED_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    load("movielens-1m", path)
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "user"))
    load("movielens-1m", path)
    for folder in ("mine", "xdg/onesided", "user/.cache/onesided"):
        assert len(folders(tmp_path / folder)) == 1
    with pytest.raises(InputError, match=r"cannot keep panels in .*ratings.dat .*ONESIDED_CACHE, or with cache="):
        load("movielens-1m", path, cache=path)

    def denied(*given: Any, **how: Any) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(loading, "write_packed", denied)
    with pytest.raises(InputError, match=r"cannot keep panels in .*read-only \(Permission denied\)"):
        load("movielens-1m", path, cache=tmp_path / "read-only")


def test_progress_runs_to_the_size_of_the_file(write: Callable[..., Path]) -> None:
    path = write("ratings.dat", movies("movielens-1m"), ".gz")
    seen: list[tuple[int, int]] = []
    load("movielens-1m", path, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (path.stat().st_size, path.stat().st_size)
    assert seen == sorted(seen)


def test_a_panel_without_rows_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="there are no rows to write"):
        write_packed(tmp_path / "none.panel", np.arange(2), [])
    assert list(tmp_path.iterdir()) == []


# Finding


@pytest.mark.parametrize(
    ("name", "file"),
    [
        ("movielens-1m", "ml-1m.zip"),
        ("movielens-1m", "ml-1m/ratings.dat"),
        ("movielens-1m", "ml-1m.ratings.dat.xz"),
        ("movielens-10m", "ml-10M100K/ratings.dat"),
        ("movielens-100k", "ml-100k/u.data"),
        ("movielens-25m", "ml-25m.ratings.csv.gz"),
        ("goodbooks", "goodbooks-10k.csv.xz"),
        ("goodbooks", "goodbooks-10k/ratings.csv"),
        ("jester", "jester-1.csv.xz"),
        ("book-crossing", "book-crossing.csv.xz"),
        ("book-crossing", "BX-Book-Ratings.csv"),
        ("renttherunway", "renttherunway.csv.xz"),
        ("renttherunway", "renttherunway_final_data.json.gz"),
        ("genomes", "1kg-chr22-haplotypes.npz"),
        ("amazon-reviews-2023", "Automotive.csv.gz"),
    ],
)
def test_find(name: str, file: str, tmp_path: Path, write: Callable[..., Path]) -> None:
    assert find(name, tmp_path) is None
    write("amazon-instant-video.pattern.csv.xz", "x")
    path = write(file, "x")
    assert find(name, tmp_path) == path
    assert [one for one in CATALOGUE if find(one, tmp_path)] == [name]


def test_find_in_the_folder_of_the_dataset(tmp_path: Path, write: Callable[..., Path]) -> None:
    path = write("ml-1m/ratings.dat", "x")
    assert find("movielens-1m", path.parent) == path
    assert find("movielens-10m", path.parent) is None  # it could be of any
    with pytest.raises(InputError, match="there is no dataset"):
        find("netflix", tmp_path)


# The files themselves, where they are


@pytest.mark.data
@pytest.mark.parametrize("name", [one for one in CATALOGUE if CATALOGUE[one].page])
def test_real_files_amount_to_what_is_specified(name: str) -> None:
    folder = os.environ.get("ONESIDED_DATA")
    path = find(name, folder) if folder else None
    if path is None:
        pytest.skip(f"no file of {name}: put it in the folder that ONESIDED_DATA names")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        panel = datasets.load(name, path)
    expected = [(one.rows, one.columns, one.entries) for one in CATALOGUE[name].releases]
    assert not expected or (*panel.shape, panel.n_entries) in expected


def test_the_catalogue_is_of_one_piece() -> None:
    for name, spec in CATALOGUE.items():
        assert spec.name == name
        assert spec.md5 is None or re.fullmatch("[0-9a-f]{32}", spec.md5)
        assert bool(spec.page) == bool(spec.licence) == bool(spec.file)
        assert not spec.page or bool(spec.url) != bool(spec.how)
