"""Files of genotypes: VCF, PLINK's .bed with .bim and .fam, and haplotypes packed to bits in an .npz."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np

from onesided.arrays import Array
from onesided.datasets.genotypes import MISSING, Blocks, Sites, check_options, doses, haplotype_ids
from onesided.datasets.readings import Account, Reading
from onesided.datasets.sources import Source, Stream
from onesided.errors import InputError, counted, examples
from onesided.panels.table_files import Progress

_FIXED = 9  # fields of a line of VCF before the genotypes
_BED = b"\x6c\x1b\x01"  # of a .bed with a site after the other
_DOSES = np.array([2, MISSING, 1, 0], dtype=np.int8)  # of the first allele in .bim, by the two bits of a genotype
_REPORT_SITES = 1000  # from one report of progress to the next
_AGAIN = "the file was cut or edited: download it again"


def genotype_files(path: Path) -> list[Path]:
    """The files that are read with ``path``: of PLINK's three, all.

    >>> [file.name for file in genotype_files(Path("chr22.vcf.gz"))]
    ['chr22.vcf.gz']
    """
    if path.suffix not in (".bed", ".bim", ".fam"):
        return [path]
    files = [path.with_suffix(suffix) for suffix in (".bed", ".bim", ".fam")]
    for file in files:
        if not file.is_file():
            raise InputError(f"there is no file {file}; PLINK's .bed, .bim and .fam are read together: put it beside")
    return files


def read_genotypes(
    path: Path,
    *,
    verify: bool,
    progress: Progress | None,
    columns: str | None = None,
    sites: int | None = None,
    coding: str | None = None,
) -> Reading:
    """The sites of a file, the first ``sites`` of them where that is said; see ``genotypes`` for the values.

    ``columns`` is "haplotypes" or "individuals"; where it is not said, haplotypes, or individuals for PLINK, whose
    files have no phase. A row is named chromosome:position:first allele:second allele; in an .npz, which has no
    chromosome, from the position on. In PLINK's files the second allele is the first of .bim, the one counted.

    >>> from tempfile import TemporaryDirectory
    >>> header = "#CHROM POS ID REF ALT QUAL FILTER INFO FORMAT HG00096".replace(" ", "\\t")
    >>> site = "22 16050075 . A G 100 PASS . GT 0|1".replace(" ", "\\t")
    >>> with TemporaryDirectory() as folder:
    ...     path = Path(folder, "chr22.vcf")
    ...     _ = path.write_text(f"{header}\\n{site}\\n")
    ...     reading = read_genotypes(path, verify=True, progress=None)
    ...     ((ids, indptr, columns, values),) = reading.blocks
    >>> reading.column_ids, ids, values.tolist()
    (array(['HG00096:1', 'HG00096:2'], dtype=object), array(['22:16050075:A:G'], dtype=object), [0.0, 1.0])
    """
    check_options(columns, sites, coding)
    account = Account()
    files = genotype_files(path)
    if len(files) == 3:
        if columns == "haplotypes":
            raise InputError(f'{path} has no phase: PLINK does not keep it; pass columns="individuals"')
        ids, sites_of_file = _read_plink(files, progress)
        columns = "individuals"
    elif path.suffix == ".npz":
        ids, sites_of_file = _read_bits(path)
    else:
        ids, sites_of_file = _read_vcf(Source(path), account, columns != "individuals", verify, progress)
    paired, individuals = len(files) == 1, columns == "individuals"
    values = doses if paired and individuals else np.asarray
    ids = haplotype_ids(ids) if paired and not individuals else ids
    blocks = Blocks(str(path), sites_of_file, values, account, most=sites, shift=float(coding == "paper"))
    return Reading(ids, blocks, account)


def _read_vcf(
    source: Source, account: Account, phased: bool, verify: bool, progress: Progress | None
) -> tuple[Array, Sites]:
    with source.opened() as stream:
        samples = _samples(source, stream)

    def sites() -> Sites:
        number = more_alleles = 0
        with source.opened(progress) as stream:
            try:
                while line := stream.readline():
                    number += 1
                    if line.startswith(b"#"):
                        continue
                    account.lines += 1
                    fields = line.rstrip(b"\r\n").split(b"\t", _FIXED)
                    if len(fields) != _FIXED + 1 or not fields[8].startswith(b"GT"):
                        shown = line[:60].decode("latin1")
                        raise InputError(f"line {number} of {source} is {shown!r}…, without genotypes (GT); {_AGAIN}")
                    if b"," in fields[4]:
                        more_alleles += 1
                        continue
                    where = f"line {number} of {source}"
                    alleles = _alleles(fields[9], len(samples), fields[8] == b"GT", phased, where)
                    yield b":".join((fields[0], fields[1], fields[3], fields[4])).decode("latin1"), alleles
                if verify:
                    stream.check_end(source)
            finally:  # also where no more sites are wanted
                if more_alleles:
                    account.notes.append(f"{counted(more_alleles, 'site')} with more than two alleles left out")

    return samples, sites()


def _samples(source: Source, stream: Stream) -> Array:
    """The individuals, as the last line of the header names them."""
    while (line := stream.readline()).startswith(b"##"):
        pass
    fields = line.decode("latin1").rstrip("\r\n").split("\t")
    if fields[0] != "#CHROM" or len(fields) <= _FIXED:
        shown = line[:60].decode("latin1")
        raise InputError(
            f"{source} is not a VCF with genotypes: where the line #CHROM is expected, with the individuals, there "
            f"is {shown!r}; give a VCF (gzipped or not), PLINK's .bed, or an .npz of packed haplotypes"
        )
    return np.array(fields[_FIXED:], dtype=object)


def _alleles(text: bytes, samples: int, plain: bool, phased: bool, where: str) -> Array:
    """The alleles of both haplotypes of all individuals on a line."""
    if not plain or len(text) != 4 * samples - 1:
        genotypes = [field.split(b":", 1)[0] for field in text.split(b"\t")]
        if len(genotypes) != samples:
            raise InputError(f"{where} has {counted(len(genotypes), 'genotype')}, expected {samples:,}; {_AGAIN}")
        genotypes = [b"./." if genotype == b"." else genotype for genotype in genotypes]
        odd = [genotype.decode("latin1") for genotype in genotypes if len(genotype) != 3]
        if "" in odd:
            raise InputError(f"{where} has an empty genotype; {_AGAIN}")
        if odd:
            raise InputError(
                f"{where} has {counted(len(odd), 'genotype')} of not two alleles (0 or 1), for example {odd[0]!r}; "
                "keep diploid chromosomes only"
            )
        text = b"\t".join(genotypes)
    characters = np.frombuffer(text + b"\t", dtype=np.uint8).reshape(samples, 4)
    letters = characters[:, ::2].reshape(-1)
    legal = (letters == ord("0")) | (letters == ord("1")) | (letters == ord("."))
    alleles = np.where(letters == ord("."), MISSING, letters.astype(np.int8) - np.int8(ord("0"))).astype(np.int8)
    slashes = characters[:, 1] == ord("/")
    whole = (slashes | (characters[:, 1] == ord("|"))) & (characters[:, 3] == ord("\t"))
    if not whole.all() or not legal.all():
        raise InputError(f"{where} has genotypes other than 0|1 or 0/1 and the like; {_AGAIN}")
    unphased = slashes & (alleles.reshape(-1, 2) >= 0).any(axis=1)
    if phased and unphased.any():
        raise InputError(
            f"{where} has {counted(int(unphased.sum()), 'unphased genotype')} (written with '/'), and haplotypes need "
            'phase; phase it first, or pass columns="individuals"'
        )
    return alleles


def _read_plink(files: list[Path], progress: Progress | None) -> tuple[Array, Sites]:
    bed, bim, fam = files
    markers, people = _fields(bim), _fields(fam)
    ids = np.array([person[1] for person in people], dtype=object)
    if len(set(ids)) < len(ids):  # individuals are named within families
        ids = np.array([f"{person[0]}:{person[1]}" for person in people], dtype=object)
    names = [f"{marker[0]}:{marker[3]}:{marker[5]}:{marker[4]}" for marker in markers]
    width = -(-len(ids) // 4)
    size, expected = bed.stat().st_size, 3 + width * len(names)
    with bed.open("rb") as file:
        start = file.read(3)
    if start != _BED:
        raise InputError(f"{bed} is not a PLINK .bed with a site after the other; write it again with plink --make-bed")
    if size != expected:
        raise InputError(
            f"{bed} has {size:,} bytes, expected {expected:,} for {counted(len(names), 'site')} of {bim.name} and "
            f"{counted(len(ids), 'individual')} of {fam.name}; it was cut, or is not of these two: download it again"
        )

    def sites() -> Sites:
        with bed.open("rb") as file:
            file.seek(3)
            for number, name in enumerate(names, 1):
                packed = np.frombuffer(file.read(width), dtype=np.uint8)
                pairs = (packed[:, None] >> np.array([0, 2, 4, 6], dtype=np.uint8)) & 3
                yield name, _DOSES[pairs.reshape(-1)[: len(ids)]]
                if progress and number % _REPORT_SITES == 0:
                    progress(3 + width * number, size)

    return ids, sites()


def _fields(path: Path) -> list[list[str]]:
    lines = [line.split() for line in path.read_text(encoding="latin1").splitlines() if line.strip()]
    for number, line in enumerate(lines, 1):
        if len(line) != 6:
            raise InputError(f"line {number} of {path} has {counted(len(line), 'field')}, expected 6; {_AGAIN}")
    return lines


def _read_bits(path: Path) -> tuple[Array, Sites]:
    needed = ("hap_packed", "shape", "pos", "ref_alt", "sample")
    try:
        with path.open("rb") as raw, np.load(raw) as file:
            if absent := ", ".join(name for name in needed if name not in file.files):
                raise InputError(f"{path} has no {absent}, only {examples(file.files, 8)}; give another file")
            packed, shape, positions, alleles, samples = (file[name] for name in needed)
    except (zipfile.BadZipFile, ValueError, EOFError, OSError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is cut short or corrupt ({error}); download it again") from error
    n, d = map(int, shape)
    if packed.shape != (n, -(-d // 8)) or len(positions) != n or len(alleles) != n or 2 * len(samples) != d:
        raise InputError(
            f"{path} does not fit together: {packed.shape} packed bytes, {len(positions):,} positions and "
            f"{len(samples):,} individuals for {n:,} sites of {d:,} haplotypes; {_AGAIN}"
        )

    def sites() -> Sites:
        for line, position, pair in zip(packed, positions, alleles, strict=True):
            yield f"{position}:{str(pair).replace(',', ':')}", np.unpackbits(line, count=d).astype(np.int8)

    return samples.astype(object), sites()
