"""Files that are whole or not there: written beside their final name, then renamed."""

from __future__ import annotations

import os
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


def check_output(
    path: str | os.PathLike[str], endings: tuple[str, ...] = (), *, inputs: Iterable[str | os.PathLike[str]] = ()
) -> None:
    """Refuse, before any work is done, a path that is an input, has none of the endings or cannot be written."""
    path = Path(path)
    for one in map(Path, inputs):
        if path.exists() and one.exists() and path.samefile(one):
            raise InputError(f"the output {path} is the input {one}, which it would replace; name another file")
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
