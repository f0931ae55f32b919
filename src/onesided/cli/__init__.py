"""The command line: one file per command; parse, call, print.

Results go to stdout, progress to stderr. Bad input ends with exit code 2 and a message, never a traceback.
"""

from __future__ import annotations

from typing import Any

import click

from onesided import __version__
from onesided.cli.demo import demo
from onesided.cli.doctor import doctor
from onesided.cli.fit import fit
from onesided.cli.impute import impute
from onesided.errors import InputError


class _Refusal(click.ClickException):
    exit_code = 2


class _Group(click.Group):
    def invoke(self, ctx: click.Context) -> Any:
        try:
            return super().invoke(ctx)
        except InputError as error:
            raise _Refusal(str(error)) from error
        except OSError as error:
            raise click.ClickException(str(error)) from error


@click.group(cls=_Group, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="onesided")
def main() -> None:
    """Panels so sparse that no row can be completed: recover the row space first, then impute.

    A panel is a table with one line per observed entry: a row id, a column id and a value (who, what, how much).
    """


for command in (demo, doctor, fit, impute):
    main.add_command(command)
