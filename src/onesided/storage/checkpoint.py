"""Fits that can be taken up again: what was found so far, and where the work under way stands, in a folder.

A fit is made of pieces of work, each with a name: a setting scored on a fold, the blend, the final fit. What a piece
found is kept in one file; where its solver stands is written after every pass, the solver's history included, and
removed when the piece is done. Files are written beside and renamed, so a process that is killed loses the pass that
was under way and nothing else. As a fit is the same whenever it is made with the same seed, one that goes on from here
ends where it would have ended.

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
import shutil
from collections.abc import Callable
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from onesided.errors import InputError

State = dict[str, Any]  # arrays, and what JSON can carry

IDENTITY = "fit.json"
ENDING, UNFINISHED = ".safetensors", ".part"
FOUND = "found"


class Work:
    """A piece of work: load and save where it stands, under a kind of one's choice; nowhere where it has no place."""

    def __init__(self, place: Path | None = None) -> None:
        self._place = place

    @property
    def kept(self) -> bool:
        """Whether there is a place for it."""
        return self._place is not None

    def load(self, kind: str) -> State | None:
        """What was saved last; None where nothing was."""
        from safetensors import SafetensorError, safe_open

        if self._place is None or not self._path(kind).exists():
            return None
        try:
            with safe_open(self._path(kind), framework="numpy") as file:
                arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118  not a dict
                rest: State = json.loads(file.metadata()["rest"])
                return arrays | rest
        except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
            folder = self._place.parent
            message = f"{self._path(kind)} is damaged ({error}); remove the folder {folder} to begin anew"
            raise InputError(message) from error

    def save(self, kind: str, state: State) -> None:
        """Keep where the work stands, in place of what was kept before."""
        from safetensors.numpy import save_file

        if self._place is None:
            return
        arrays = {name: np.ascontiguousarray(one) for name, one in state.items() if isinstance(one, np.ndarray)}
        rest = {name: one for name, one in state.items() if name not in arrays}
        unfinished = self._path(kind).with_suffix(UNFINISHED)  # a folder: safetensors has a temporary file of its own
        _remove(unfinished)
        try:
            unfinished.mkdir()
            save_file(arrays, unfinished / kind, metadata={"rest": json.dumps(rest)})
            os.replace(unfinished / kind, self._path(kind))
            unfinished.rmdir()
        except OSError as error:
            raise InputError(f"cannot write the checkpoint {self._path(kind)}: {error}") from error

    def done(self, compute: Callable[[], State]) -> State:
        """What the work found: at once if it was finished before, else by doing it."""
        found = self.load(FOUND)
        if found is None:
            found = compute()
            self.save(FOUND, found)
            if self._place is not None:
                for path in self._place.parent.glob(f"{self._place.name}.*{ENDING}"):
                    if path != self._path(FOUND):
                        path.unlink()
        return found

    def _path(self, kind: str) -> Path:
        assert self._place is not None
        return self._place.with_name(f"{self._place.name}.{kind}{ENDING}")


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
        checkpoint._claim(fingerprint() | {name: _plain(given) for name, given in sorted(parameters.items())})
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
                _remove(path)
        if not any(self._folder.iterdir()):
            self._folder.rmdir()

    def _claim(self, identity: dict[str, Any]) -> None:
        assert self._folder is not None
        path = self._folder / IDENTITY
        try:
            self._folder.mkdir(exist_ok=True)
            if not path.exists():
                temporary = path.with_suffix(UNFINISHED)
                if any(other != temporary for other in self._folder.iterdir()):  # that one may be left of a kill
                    raise InputError(f"{self._folder} holds other files than a checkpoint's; name a new folder")
                temporary.write_text(json.dumps(identity, indent=1))
                os.replace(temporary, path)
                return
            before = json.loads(path.read_text())
        except FileExistsError:
            raise InputError(f"{self._folder} is a file; name a folder for the checkpoint") from None
        except OSError as error:
            raise InputError(f"cannot write the checkpoint {self._folder}: {error.strerror}") from error
        except ValueError as error:
            raise InputError(f"{path} is damaged ({error}); remove the folder to begin anew") from error
        for name, now in identity.items():
            if before.get(name) != now:
                raise InputError(
                    f"{self._folder} is the checkpoint of another fit: {name} was {before.get(name)}, is {now}; "
                    "name another folder, or remove this one"
                )


def _remove(path: Path) -> None:
    """A file or a folder, if it is there."""
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _plain(parameter: Any) -> Any:
    """A parameter as JSON gives it back."""
    return json.loads(json.dumps(parameter, default=lambda one: np.asarray(one).tolist()))
