"""The command line: one file per command; parse, call, print.

Results go to stdout, progress to stderr. Bad input ends with exit code 2 and a message, never a traceback.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from threading import current_thread, main_thread
from typing import Any

import click

from onesided import __version__
from onesided.cli.data import data
from onesided.cli.demo import demo
from onesided.cli.doctor import doctor
from onesided.cli.fit import fit
from onesided.cli.impute import impute
from onesided.cli.inspect import inspect
from onesided.cli.pack import pack
from onesided.cli.privacy import privacy
from onesided.cli.project import project
from onesided.cli.recommend import recommend
from onesided.cli.report import report
from onesided.cli.reproduce import reproduce
from onesided.cli.similar import similar
from onesided.errors import InputError


class _Refusal(click.ClickException):
    """A message of the library, with its keywords as the options of the same names."""

    exit_code = 2

    def __init__(self, error: InputError) -> None:
        text = re.sub(r'(?:(?<= )|^)([a-z_]+)=((?:(?:, | or )?"\w+")+|$)', _as_option, str(error))
        text = text.replace("columns=[…]", "--columns FILE")
        super().__init__(re.sub(r"(?<= )([a-z_]+)=True", lambda flag: f"--{flag[1].replace('_', '-')}", text))


def _as_option(keyword: re.Match[str]) -> str:
    option, choices = keyword[1].replace("_", "-"), keyword[2].replace('"', "")
    return f"--{option} {choices or 'NAME'}"


@contextmanager
def _asked_to_end() -> Iterator[None]:
    """Where the system asks the process to end, what is half written is removed first, as after Ctrl-C."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    asked = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]
    if current_thread() is not main_thread():
        asked = []
    before = {one: signal.signal(one, end) for one in asked if signal.getsignal(one) is signal.SIG_DFL}
    try:
        yield
    finally:
        for one, handler in before.items():
            signal.signal(one, handler)


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _asked_to_end():
                return super().invoke(ctx)
        except InputError as error:
            raise _Refusal(error) from error
        except BrokenPipeError:  # whoever reads has read enough: click ends without a word
            raise
        except OSError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onesided")
def main() -> None:
    """Recover what rows have in common when no row can be completed, and fill in what can be filled in.

    A panel is a large matrix of which little was observed. It comes as a table with one line per observed entry:
    a row id, a column id and a value (who, what, how much). Its row space is the few directions, combinations of
    columns, along which its rows differ.

    \b
    Example:
        onesided fit ratings.csv -o movies.onesided
        onesided impute movies.onesided new-rows.csv -o filled.csv
    """


for command in (
    data,
    demo,
    doctor,
    fit,
    impute,
    inspect,
    pack,
    privacy,
    project,
    recommend,
    report,
    reproduce,
    similar,
):
    main.add_command(command)
