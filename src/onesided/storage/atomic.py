"""Files that are whole or not there: written beside their final name, then renamed."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from onesided.errors import InputError


@contextmanager
def written_beside(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A temporary path in the same folder, renamed to ``path`` on success and removed otherwise."""
    temporary = _temporary_beside(Path(path))
    try:
        yield temporary
        with open(temporary, "r+b") as finished:
            os.fsync(finished.fileno())
        os.chmod(temporary, 0o666 & ~_umask())  # mkstemp makes files private
        os.replace(temporary, path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def write_text(path: str | os.PathLike[str], text: str) -> None:
    """Write a text file, whole or not at all."""
    with written_beside(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def remove(path: Path) -> None:
    """Remove a file or a folder with all that is in it, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def check_output(
    path: str | os.PathLike[str], endings: tuple[str, ...] = (), *, inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Refuse, before any work is done, a path that is an input, has none of the endings or cannot be written."""
    path = Path(path)
    for given in map(Path, inputs):
        if path.exists() and given.exists() and path.samefile(given):
            raise InputError(f"the output {path} is the input {given}, which it would replace; name another file")
    if endings and path.suffix.lower() not in endings:
        listed = f"{', '.join(endings[:-1])} or {endings[-1]}"
        raise InputError(f"cannot tell the format of {path} from its name; name it {listed}")
    _temporary_beside(path).unlink()


def _temporary_beside(path: Path) -> Path:
    if not path.parent.is_dir():
        raise InputError(f"cannot write {path}: the folder {path.parent} does not exist")
    if path.exists() and not path.is_file():  # renaming would replace a device such as /dev/null
        raise InputError(f"cannot write {path}: it is not a regular file")
    try:
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.", suffix=".part")
    except OSError as error:
        raise InputError(f"cannot write {path}: {error.strerror}") from error
    os.close(handle)
    return Path(name)


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current
