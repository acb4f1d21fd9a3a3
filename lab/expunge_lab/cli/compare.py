"""`expunge compare`."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from expunge.cli.output import console, page_can_be_written, progress, say, show_json
from expunge.core.errors import InputError


def compare(
    datasets: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATASET]...",
            help="digits, table, rare, cover, million, purchase, mnist, fashion-mnist.  [default: all of them]",
        ),
    ] = None,
    quick: Annotated[bool, typer.Option("--quick", help="Tiny sizes, to try it: figures without meaning.")] = False,
    only: Annotated[str, typer.Option(metavar="TEXT", help="Only ways with this in their names.")] = "",
    kept: Annotated[
        Path | None,
        typer.Option(help="Keep the figures in this folder, a file a dataset; ways not measured now stay in it."),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Write a Markdown page of all that is kept, and pictures into the folder figures beside it."),
    ] = None,
    measures: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Or only write the page anew from what is kept.")
    ] = True,
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False,
) -> None:
    """Compare ways to honour deletions: refitting, bagging, SISA, shards, (α,β,γ), and models that unlearn exactly.

    Each is measured in a process of its own: accuracy, AUC, recall of each class, latencies of deletions one by one and
    in batches, additions, predictions, disk and memory. All datasets together take about an hour. MNIST and
    Fashion-MNIST must be in the folder that `EXPUNGE_DATA` names; networks need the extra jax, and run on a GPU where
    JAX has one; the exact forest is left out without the extra forest.

    Example: `expunge compare digits table --kept lab/results/comparison --out docs/comparison.md`
    """
    from expunge_lab.compare import DATASETS, measure_dataset, read_kept, to_page, write_kept
    from expunge_lab.compare.page import draw

    names = list(dict.fromkeys(datasets or DATASETS))
    for unknown in [name for name in names if name not in DATASETS]:
        raise InputError(f"there is no dataset {unknown!r}; there are {', '.join(DATASETS)}")
    if out is not None:
        page_can_be_written(out)
    if kept is not None and not kept.is_dir():
        raise InputError(f"there is no folder {str(kept)!r} to keep the figures in")
    if not measures and kept is None:
        raise InputError("--no-measure needs --kept: the page is written from what is kept")
    if kept is not None:
        read_kept(kept)  # a damaged file is said before anything is measured
    found = []
    for name in names if measures else ():
        keep = None if kept is None else partial(write_kept, folder=kept)
        found.append(measure_dataset(name, quick=quick, progress=progress, only=only, keep=keep))
        if not found[-1]["methods"]:
            raise InputError(f"no way has {only!r} in its name")
    shown = found if kept is None else read_kept(kept)
    if out is not None:
        for data in shown:
            draw(data, out.parent / "figures")
        out.write_text(to_page(shown, pictures="figures"), encoding="utf-8")
    if as_json:
        show_json(found)
        return
    if out is None:
        console.print(to_page(shown, pictures=None), markup=False, soft_wrap=True)
    else:
        say(f"Written: {out.name}, from {len(shown)} dataset{'s' * (len(shown) != 1)}.")
