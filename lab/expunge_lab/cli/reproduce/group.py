"""What the commands of `expunge reproduce` share: the group, common options, and how a command is written down."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import typer

from expunge.core.checks import require_count
from expunge.core.errors import InputError

reproduce = typer.Typer(
    no_args_is_help=True, help="Repeat the experiments of the paper, and compute its tables afresh."
)

RESULTS = Path("lab") / "results" / "paper"

AsJson = Annotated[bool, typer.Option("--json", help="Print the rows as JSON.")]
Quick = Annotated[bool, typer.Option("--quick", help="On a CPU, in a minute or two: small sizes and stand-in data.")]
Results = Annotated[
    Path | None,
    typer.Option(help=f"The folder of results.  [default: {RESULTS.as_posix()}; with --quick nothing is kept]"),
]
Out = Annotated[Path | None, typer.Option(help="Draw the figure into this folder, as PNG and SVG.")]
Trials = Annotated[int, typer.Option(help="Trials a row.")]
Whose = Annotated[
    str,
    typer.Option(
        "--accuracy", help="Whose accuracy is compared: voted (by majority), averaged (by mean probability), or models."
    ),
]
Seed = Annotated[int, typer.Option(help="Repeat an experiment exactly.")]
Replace = Annotated[bool, typer.Option("--replace", help="Also in the place of kept results that have more trials.")]
Download = Annotated[
    bool, typer.Option("--download", help="Fetch missing datasets into the cache, and check their checksums.")
]


@reproduce.callback()
def _about() -> None:
    """Repeat the experiments of the paper, and compute its tables afresh."""


def this_command() -> str:
    """What was typed; of files elsewhere only their names, for results are published."""
    return shlex.join(["expunge", *(_shortened(word) for word in sys.argv[1:])])


def check_trials(trials: int) -> None:
    """Refuse fewer than two trials: a row is judged by at least two."""
    require_count("trials", trials, least=2)


@contextmanager
def advising_on_data() -> Iterator[None]:
    """Where a dataset is missing, say what else these commands can do."""
    from expunge_lab.datasets import MissingDataError

    try:
        yield
    except MissingDataError as error:
        raise InputError(f"{error}, or have it fetched with --download; --quick needs no such data") from None


def _shortened(word: str) -> str:
    return Path(word).name if word.startswith(("/", "../")) else word
