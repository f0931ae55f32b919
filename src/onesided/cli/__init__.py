"""The command line: one file per command, each of which parses, calls the library and prints.

What commands share is in ``options`` (declaring options, and refusals that spell them), ``reading`` (tables),
``column_names``, ``privacy_options`` and ``console`` (results on stdout, progress on stderr). Nothing is computed here:
what Python could want, too, belongs to the library. This room may import from all others, but inside the commands, so
that ``--help`` is quick. Bad input ends with exit code 2 and a message, never a traceback.
"""

from __future__ import annotations

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
from onesided.cli.options import Refusal
from onesided.cli.pack import pack
from onesided.cli.privacy import privacy
from onesided.cli.project import project
from onesided.cli.recommend import recommend
from onesided.cli.report import report
from onesided.cli.reproduce import reproduce
from onesided.cli.similar import similar
from onesided.errors import InputError


@contextmanager
def _ending_on_signals() -> Iterator[None]:
    """Where the system asks the process to end, what is half written is removed first, as after Ctrl-C."""

    def end(number: int, _: Any) -> None:
        raise SystemExit(128 + number)

    names = ("SIGTERM", "SIGHUP") if current_thread() is main_thread() else ()
    signals = [getattr(signal, name) for name in names if hasattr(signal, name)]
    before = {number: signal.signal(number, end) for number in signals if signal.getsignal(number) is signal.SIG_DFL}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            with _ending_on_signals():
                return super().invoke(ctx)
        except InputError as error:
            raise Refusal(error, self.commands[str(ctx.invoked_subcommand)]) from error
        except BrokenPipeError:  # whoever reads has read enough: click ends without a word
            raise
        except OSError as error:
            raise click.ClickException(str(error)) from error


COMMANDS = [data, demo, doctor, fit, impute, inspect, pack, privacy, project, recommend, report, reproduce, similar]


@click.group(
    cls=_Group, commands=COMMANDS, context_settings={"help_option_names": ["-h", "--help"], "show_default": True}
)
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
