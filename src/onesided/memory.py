"""How much memory is free, and what would not fit in it."""

from __future__ import annotations

import os

from onesided.errors import InputError


def check_room(size: int, what: str, instead: str) -> None:
    """Refuse what would take more bytes than are free.

    >>> check_room(10**18, "a dense T would take {size}", "ask for blocks")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    onesided.errors.InputError: a dense T would take 931,322,575 GiB, and ... of memory are free; ask for blocks
    """
    free = free_memory()
    if free is not None and size > free:
        needed = what.format(size=memory_in_words(size))
        raise InputError(f"{needed}, and {memory_in_words(free)} of memory are free; {instead}")


def free_memory() -> int | None:
    """Bytes that can be had without swapping; None where the system does not tell."""
    try:
        with open("/proc/meminfo", encoding="ascii") as lines:
            return next(1024 * int(line.split()[1]) for line in lines if line.startswith("MemAvailable:"))
    except (OSError, StopIteration):
        known = {"SC_AVPHYS_PAGES", "SC_PAGE_SIZE"} <= set(getattr(os, "sysconf_names", ()))
        return os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") if known else None


def memory_in_words(size: int) -> str:
    """An amount of memory, to two or three digits.

    >>> memory_in_words(171_000_000), memory_in_words(2**40)
    ('0.16 GiB', '1,024 GiB')
    """
    amount, units = float(size), ["bytes", "KiB", "MiB", "GiB"]
    while len(units) > 1 and amount >= (1000 if units[0] == "bytes" else 100):
        amount, units = amount / 1024, units[1:]
    return f"{amount:,.0f} {units[0]}" if amount >= 10 else f"{amount:.2g} {units[0]}"
