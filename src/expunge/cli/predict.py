"""`expunge predict`."""

from __future__ import annotations

import sys
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.folders import (
    as_threshold,
    opened,
    read_columns,
    read_threshold,
    refuse_inside,
    refuse_same,
    schema_of,
)
from expunge.cli.output import Engine, Folder, Jobs, Threshold, Trust, complain, console, is_seen, progress
from expunge.cli.status import end_of_generation
from expunge.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd

    from expunge.folder import DurableDeployment
    from expunge.tables import Schema, Table


@app.command()
def predict(
    folder: Folder,
    data: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The questions: CSV, Parquet, Arrow or NPZ; -: CSV from standard input."),
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Where the answers go, by its ending.  [default: CSV to standard output]"),
    ] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Add a column for each class; under the exact promise only.")
    ] = False,
    threshold: Threshold = None,
    inside: Annotated[
        bool,
        typer.Option("--inside", help="Say also in a pipe if these answers ended a generation: for operators only."),
    ] = False,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
) -> None:
    """Answer every row of a file with a label, or with a number. The id column is copied if the file has it.

    Under the exact promise answers cost nothing. Under the others they cost budget; equal rows are charged once in a
    command. A declined answer is empty. If --out cannot be written, nothing is charged. If the answers make the next
    update a full retraining, standard error says so; under a consensus, which must not get out, on a terminal only.

    Example: `expunge predict churn/ --data new.csv --out answers.csv`
    """
    from expunge.core.files import Draft
    from expunge.tables import encode_answers, table_format

    wanted = read_threshold(threshold)
    target = None if out is None or str(out) == "-" else out
    form = "csv" if target is None else table_format(target)
    if target is None and sys.__stdout__ is None:
        raise InputError("standard output is closed: give --out")
    refuse_inside(folder, target)
    refuse_same(data, target)
    with (
        nullcontext() if target is None else Draft(target, overwrites=True) as draft,
        opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment,
    ):
        schema = schema_of(deployment, folder)
        if probabilities and not deployment.is_exact:
            raise InputError(f"--probabilities: {folder} publishes labels only; probabilities need --promise exact")
        if wanted is not None and (not deployment.is_exact or not len(deployment.classes)):
            raise InputError(f"--threshold: {folder} has no probabilities; they need --promise exact, and classes")
        cut = as_threshold(wanted, deployment.classes)
        table = read_columns(data, schema)
        features = schema.unlabelled(table)
        with progress("predicting", 1) as advance:
            more = _probabilities(deployment, features) if probabilities else None  # refused before anything is charged
            was_used_up = deployment.inside.budget.exhausted
            answers = deployment.predict(features) if cut is None else _decided(deployment, features, cut)
            is_used_up = deployment.inside.budget.exhausted and not was_used_up
            advance(1)
        content = encode_answers(answers, format=form, probabilities=more, **_ids(schema, table))
        if draft is None:
            sys.stdout.buffer.write(content)
            sys.stdout.flush()
        else:
            draft.finish(content)
            declined = sum(answer is None for answer in answers.tolist())
            words = f"Wrote {len(answers):,} answers to {target}" + (f"; {declined:,} declined." if declined else ".")
            console.print(words, markup=False, soft_wrap=True)
        if is_used_up:
            _tell_end(deployment, inside=inside)
        deployment.wait()  # answers may have used up the budget, so that a retraining runs


_NEXT = "the next update retrains everything"


def _tell_end(deployment: DurableDeployment, *, inside: bool) -> None:
    """Say that the next update retrains everything. Whether a consensus failed is for the operator alone."""
    publisher = deployment.inside.publisher
    if publisher.shows_budget:
        when = "everything is retrained now" if publisher.on_exhausted == "retrain_now" else _NEXT
        complain(f"{end_of_generation(publisher)}: {when}")
    elif inside or is_seen():
        complain(
            f"inside, for operators only: {end_of_generation(publisher)}, so {_NEXT}; "
            "showing this to a requester voids the (α,β,γ) guarantee"
        )


def _decided(deployment: DurableDeployment, features: Any, threshold: tuple[Any, float]) -> Any:
    """The labels by another threshold than that of the deployment."""
    import numpy as np

    from expunge.training.learners.protocol import cut_of, likeliest

    codes = likeliest(deployment.predict_proba(features), cut_of(threshold, deployment.classes))
    labels = deployment.classes[np.maximum(codes, 0)]
    if (codes < 0).any():
        labels = labels.astype(object)
        labels[codes < 0] = None
    return labels


def _probabilities(deployment: DurableDeployment, features: Any) -> dict[str, Any]:
    """The probability of each class, by the name of its column."""
    found = deployment.predict_proba(features)
    return {f"probability_{label}": found[:, place] for place, label in enumerate(deployment.classes.tolist())}


def _ids(schema: Schema, table: Table) -> dict[str, Any]:
    """The id column as it is in the file."""
    if schema.id is None:
        return {}
    name = schema.name_in(table, "id")
    column: pd.Series[Any] | None = table.column(name) if name in table else None
    return {"ids": column, "id_name": name}
