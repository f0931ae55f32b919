"""Fits that can be taken up again: finished pieces of work, and how far the one under way is, in a folder.

A fit is made of pieces of work, each with a name: a setting scored on a fold, the blend, the final fit. What a piece
found is kept in one file; the state of its solver is written after every pass, the solver's history included, and
removed when the piece is done and no other goes on from it. Files are written beside and renamed, so a process that is
killed loses the pass that was under way and nothing else. As a fit with a seed is always the same, one that goes on
from here ends where it would have ended.

What is refused:

=====================================================  ========================================================
found                                                  message
=====================================================  ========================================================
a folder that holds the work of another fit            … is the checkpoint of another fit: entries was 90, is 95
a folder with other files, or a file in its place      … holds other files than a checkpoint's
a file that is damaged                                 … is damaged …; remove the folder …
``random_state`` that is not a whole number            a fit can be taken up again only if it has a seed …
=====================================================  ========================================================
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from onesided.errors import InputError
from onesided.storage.atomic import remove

State = dict[str, Any]  # arrays, and what JSON can carry

IDENTITY = "fit.json"
ENDING, UNFINISHED = ".safetensors", ".part"
FOUND = "found"


class Work:
    """A piece of work, which loads and saves its state under a kind of the caller's choice; without a path, nowhere."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = path

    @property
    def kept(self) -> bool:
        """Whether its state is kept."""
        return self._path is not None

    def load(self, kind: str) -> State | None:
        """What was saved last; None where nothing was."""
        from safetensors import SafetensorError, safe_open

        if self._path is None or not self._file(kind).exists():
            return None
        try:
            with safe_open(self._file(kind), framework="numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
                rest: State = json.loads(file.metadata()["rest"])
                return arrays | rest
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            remedy = f"remove the folder {self._path.parent} to begin anew"
            raise InputError(f"{self._file(kind)} is damaged ({error}); {remedy}") from error

    def save(self, kind: str, state: State) -> None:
        """Keep the state, in place of the one kept before."""
        from safetensors.numpy import save_file

        if self._path is None:
            return
        arrays = {name: np.ascontiguousarray(item) for name, item in state.items() if isinstance(item, np.ndarray)}
        rest = {name: item for name, item in state.items() if name not in arrays}
        unfinished = self._file(kind).with_suffix(UNFINISHED)  # a folder: safetensors has a temporary file of its own
        remove(unfinished)
        try:
            unfinished.mkdir()
            save_file(arrays, unfinished / kind, metadata={"rest": json.dumps(rest)})
            os.replace(unfinished / kind, self._file(kind))
            unfinished.rmdir()
        except OSError as error:
            raise InputError(f"cannot write the checkpoint {self._file(kind)}: {error}") from error

    def done(self, compute: Callable[[], State], keep: bool = False) -> State:
        """What the work found: at once if finished before, else by doing it; ``keep`` keeps its state as well."""
        result = self.load(FOUND)
        if result is None:
            result = compute()
            self.save(FOUND, result)
            if not keep:
                self.forget()
        return result

    def forget(self) -> None:
        """Remove its state, but not what it found."""
        if self._path is not None:
            for path in self._path.parent.glob(f"{self._path.name}.*{ENDING}"):
                if path != self._file(FOUND):
                    path.unlink()

    def _file(self, kind: str) -> Path:
        assert self._path is not None
        return self._path.with_name(f"{self._path.name}.{kind}{ENDING}")


NOWHERE = Work()


class Checkpoint:
    """The folder of a fit; without one, nothing is kept.

    >>> Checkpoint().work("rank 2").load("solve") is None
    True
    """

    def __init__(self, folder: str | PathLike[str] | None = None) -> None:
        self._folder = None if folder is None else Path(folder)

    @classmethod
    def of(
        cls, folder: str | PathLike[str] | None, fingerprint: Callable[[], State], parameters: dict[str, Any]
    ) -> Checkpoint:
        """The checkpoint of a fit to data with a fingerprint, with some parameters; one of another fit is refused."""
        if folder is None:
            return cls()
        if not isinstance(parameters["random_state"], (int, np.integer)):
            raise InputError(
                "a fit can be taken up again only if it has a seed; pass a whole number as random_state, not "
                f"{parameters['random_state']!r}"
            )
        checkpoint = cls(folder)
        checkpoint._claim(fingerprint() | {name: _plain(value) for name, value in sorted(parameters.items())})
        return checkpoint

    @property
    def begun(self) -> bool:
        """Whether there is work that can be taken up."""
        return self._folder is not None and (self._folder / IDENTITY).exists()

    def work(self, name: str) -> Work:
        """A piece of work by its name."""
        return Work() if self._folder is None else Work(self._folder / re.sub(r"[^a-z0-9]+", "-", name.lower()))

    def remove(self) -> None:
        """Once the model is safe elsewhere: its own files, and the folder if nothing else is in it."""
        if self._folder is None:
            return
        for pattern in (f"*{ENDING}", f"*{UNFINISHED}", IDENTITY):
            for path in self._folder.glob(pattern):
                remove(path)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _claim(self, identity: dict[str, Any]) -> None:
        """Write what the fit is made of to a new folder; refuse a folder that has other files or another fit's."""
        assert self._folder is not None
        path = self._folder / IDENTITY
        temporary = path.with_suffix(UNFINISHED)  # may be left of a kill
        before = identity
        try:
            self._folder.mkdir(exist_ok=True)
            if path.exists():
                before = json.loads(path.read_text())
            elif any(other != temporary for other in self._folder.iterdir()):
                raise InputError(f"{self._folder} holds other files than a checkpoint's; name a new folder")
            else:
                temporary.write_text(json.dumps(identity, indent=1))
                os.replace(temporary, path)
        except FileExistsError:
            raise InputError(f"{self._folder} is a file; name a folder for the checkpoint") from None
        except OSError as error:
            raise InputError(f"cannot write the checkpoint {self._folder}: {error.strerror}") from error
        except (json.JSONDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path} is damaged ({error}); remove the folder to begin anew") from error
        for name, now in identity.items():
            if before.get(name) != now:
                raise InputError(
                    f"{self._folder} is the checkpoint of another fit: {name} was {before.get(name)}, is {now}; "
                    "name another folder, or remove this one"
                )


def _plain(parameter: Any) -> Any:
    """A parameter as JSON gives it back."""
    return json.loads(json.dumps(parameter, default=lambda item: np.asarray(item).tolist()))
