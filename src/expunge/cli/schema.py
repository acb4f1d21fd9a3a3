"""`expunge schema`: what the recipe fixes, and declaring it anew."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.markup import escape

from expunge.cli.app import Interrupted, app
from expunge.cli.folders import make_learner, opened, schema_of, settle, what_is_left
from expunge.cli.output import AsJson, Engine, Folder, Jobs, Trust, console, progress, say, show_json
from expunge.core.errors import InputError
from expunge.core.words import plural

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from expunge.folder import DurableDeployment, Schema, SchemaFact


@app.command()
def schema(
    folder: Folder,
    add_class: Annotated[
        list[str] | None, typer.Option("--add-class", metavar="LABEL", help="A class that may occur; repeatable.")
    ] = None,
    drop_class: Annotated[
        list[str] | None,
        typer.Option("--drop-class", metavar="LABEL", help="A class that no record has any more; repeatable."),
    ] = None,
    allow_missing: Annotated[
        bool, typer.Option("--allow-missing", help="Let rows have missing numbers from now on.")
    ] = False,
    weight: Annotated[
        str | None,
        typer.Option(
            metavar="COLUMN", help="A column of later files: how much a record counts. Those that are there count 1."
        ),
    ] = None,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Show what is fixed in a deployment: columns, classes, shards, learner, promise, and what the first data decided.

    With an option the schema is declared anew. That is a full retraining with a new key, on the records that are there,
    and the log says so. It needs the exact promise.

    Example: `expunge schema churn/ --add-class unknown`
    """
    from expunge.folder import open_view

    settle(folder)
    if add_class or drop_class or allow_missing or weight is not None:
        before = None
        try:
            with opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment:
                before = deployment.inside_key
                _redeclare(
                    deployment, folder, add_class or [], drop_class or [], allow_missing=allow_missing, weight=weight
                )
                found = deployment.schema
        except Interrupted:
            raise Interrupted(what_is_left(folder, before)) from None
    else:
        with open_view(folder) as view:
            found = view.schema(trust=tuple(trust or ()))
    if as_json:
        show_json({"folder": str(folder)} | found.to_dict())
    else:
        _tell(found, folder)


def _redeclare(
    deployment: DurableDeployment,
    folder: Path,
    added: list[str],
    dropped: list[str],
    *,
    allow_missing: bool,
    weight: str | None,
) -> None:
    columns = None if weight is None else schema_of(deployment, folder).weighted_by(weight).to_dict()
    learner = _filling_gaps(deployment, folder) if allow_missing else None
    with progress("training", deployment.status.num_shards) as advance:
        deployment.redeclare(
            add_classes=_labels(added, deployment.classes),
            drop_classes=_labels(dropped, deployment.classes),
            allow_missing=allow_missing,
            allow_weights=weight is not None,
            learner=learner,
            provenance=None if columns is None else {"columns": columns},
            advance=advance,
        )


def _labels(texts: list[str], classes: NDArray[np.generic]) -> list[Any]:
    """The labels in the type of the classes."""
    import numpy as np

    from expunge.tables import parse_classes

    is_text = all(isinstance(each, str) for each in classes.tolist())
    return parse_classes(texts, np.array([""]) if is_text else classes).tolist() if texts else []


def _filling_gaps(deployment: DurableDeployment, folder: Path) -> Any:
    """A learner with a short name that fills gaps; None for a learner that was given otherwise."""
    name = deployment.provenance.get("learner")
    if name is None or ":" in name:
        return None
    if deployment.schema["gaps"].value:
        raise InputError(f"{folder} lets numbers be missing already")
    from expunge.training.learners import AbstainingLearner

    abstains = isinstance(deployment.inside.state.learner, AbstainingLearner)
    return make_learner(
        name,
        options=deployment.provenance["options"],
        schema=schema_of(deployment, folder),
        features=None,
        slices=deployment.provenance["slices"],
        allow_missing=True,
        on_failure="abstain" if abstains else "raise",
    )[0]


def _tell(found: Schema, folder: Path) -> None:
    console.print(f"[bold]{escape(str(folder))}[/bold]: public and fixed", soft_wrap=True)
    for fact in found.facts:
        say(f"{fact.name}: {fact.words}{_origin(fact)}")
    console.print(
        f"First data: {plural(found.num_records, 'record')}, {found.created_at}. What was taken from it stays when its "
        "records are deleted. All the rest was declared.",
        markup=False,
    )


def _origin(fact: SchemaFact) -> str:
    if fact.redeclared_at is not None:
        return f" (declared anew, {fact.redeclared_at})"
    return " (taken from the first data)" if fact.origin == "first data" else ""
