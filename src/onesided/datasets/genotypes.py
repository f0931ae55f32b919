"""Genotypes as a panel: sites in rows, haplotypes or individuals in columns, block by block.

A haplotype has 0 where it carries the first allele of a site and 1 where it carries the second; an individual the sum
of its two, 0 to 2. With ``coding="paper"`` one is added to every value, as the paper does so that 0 can mean missing
(0/1 becomes 1/2); a panel has no need of that, and a genotype that is missing is no entry in either coding.

The paper's panel has 100,000 sites and 2,504 individuals in its columns, each with 0 or 1; how one was made of an
individual's two it does not say. ``sites=100_000`` keeps as many, the first of the file.

Rules, each reported with its count: a site with more than two alleles is left out; a site whose id was there before is
kept under its id and ``#2``, ``#3``, …. Refused: an unphased genotype where haplotypes are asked for, and one that has
not two alleles.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

import numpy as np

from onesided.arrays import Array
from onesided.datasets.readings import Account
from onesided.errors import InputError, check_choice, counted
from onesided.panels.packed.format import RowBlock

Site = tuple[str, Array]  # its id, and the alleles of all haplotypes: int8, -1 where missing
Sites = Generator[Site, None, None]

MISSING = -1
BLOCK_ENTRIES = 1 << 22


def check_options(columns: str | None, sites: int | None, coding: str | None) -> None:
    """Refuse what is not an option."""
    if columns is not None:
        check_choice("columns", columns, ("haplotypes", "individuals"))
    if coding is not None:
        check_choice("coding", coding, ("paper",))
    if sites is not None and (type(sites) is not int or sites < 1):
        raise InputError(
            f"sites={sites!r} is not an option; give how many sites to keep, the first ones, or None for all"
        )


def haplotype_ids(samples: Iterable[str]) -> Array:
    """Two columns for each individual.

    >>> haplotype_ids(["HG00096"])
    array(['HG00096:1', 'HG00096:2'], dtype=object)
    """
    return np.array([f"{sample}:{k}" for sample in samples for k in (1, 2)], dtype=object)


def doses(alleles: Array) -> Array:
    """The second alleles of each individual, of the alleles of its two haplotypes; missing if either is.

    >>> doses(np.array([[0, 1, 1, 1, -1, 1]], dtype=np.int8))
    array([[ 1,  2, -1]], dtype=int8)
    """
    first, second = alleles[:, ::2], alleles[:, 1::2]
    return np.where((first < 0) | (second < 0), np.int8(MISSING), first + second)


@dataclass
class Blocks:
    """Sites as blocks of whole rows, numbered and counted as they pass.

    ``where`` names the file. ``values`` makes the values of a block out of what sites bring, one line for each;
    negative ones are missing.
    """

    where: str
    sites: Sites
    values: Callable[[Array], Array]
    account: Account
    most: int | None = None
    shift: float = 0.0
    _seen: Counter[str] = field(default_factory=Counter)

    def __iter__(self) -> Iterator[RowBlock]:
        ids: list[str] = []
        lines: list[Array] = []
        number = 0
        with closing(self.sites) as sites:
            for number, (name, line) in enumerate(sites, 1):
                self._seen[name] += 1
                ids.append(name if self._seen[name] == 1 else f"{name}#{self._seen[name]}")
                lines.append(line)
                if len(ids) * len(line) >= BLOCK_ENTRIES:
                    yield self._block(ids, lines)
                    ids, lines = [], []
                if number == self.most:
                    break
        if ids:
            yield self._block(ids, lines)
        if not number:
            raise InputError(f"{self.where} holds no sites with two alleles; it was cut, or is of something else")
        repeated = number - len(self._seen)
        if repeated:
            self.account.notes.append(f"{counted(repeated, 'site')} with the id of an earlier one, told apart by #2, …")

    def _block(self, ids: list[str], lines: list[Array]) -> RowBlock:
        dense = self.values(np.array(lines))
        observed = dense >= 0
        indptr = np.concatenate([[0], np.cumsum(observed.sum(axis=1))])
        columns = np.broadcast_to(np.arange(dense.shape[1], dtype=np.int32), dense.shape)[observed]
        return np.array(ids, dtype=object), indptr, columns, dense[observed].astype(np.float32) + np.float32(self.shift)
