"""`expunge rekey`, and `expunge retrain` by another recipe."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import Interrupted, app
from expunge.cli.folders import (
    make_learner,
    nonce_source,
    opened,
    read_settings,
    schema_of,
    what_is_left,
    with_class_weight,
)
from expunge.cli.output import AsJson, ClassWeight, Engine, Folder, Jobs, Trust, console, progress, show_json
from expunge.cli.report import DEFAULT_MINUTES, kinds_of, measure_report, tell_report
from expunge.core.errors import InputError
from expunge.core.words import plural, read_period

if TYPE_CHECKING:
    from expunge.evidence import KeyDraw
    from expunge.folder import DurableDeployment


@app.command()
def rekey(
    folder: Folder,
    if_older_than: Annotated[
        str | None,
        typer.Option(
            "--if-older-than",
            metavar="TIME",
            help="Do nothing unless the key in force is older than this: 90d, 12h, 30m or 3600s. For a timer.",
        ),
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(metavar="URL", help="Have a witness take part, so that you cannot pick the key among many."),
    ] = None,
    witness_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The witness's key: its file `witness.key`.")
    ] = None,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Draw a new recipe key and train everything again with it. The log and every certificate say so.

    Without --if-older-than the renewal counts as one by hand: the operator chose the moment. Requests that are pending
    stay so. With --witness the log commits to a secret of yours, the witness answers, and the key follows from both.

    Example: `expunge rekey churn/ --if-older-than 90d`
    """
    if if_older_than is not None:
        read_period("--if-older-than", if_older_than)
    source = nonce_source(witness, witness_key)
    before = None
    try:
        with opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment:
            before = deployment.inside_key
            with progress("training everything again", deployment.status.num_shards) as advance:
                renewed = deployment.rekey(if_older_than=if_older_than, witness=source, advance=advance)
            status, key = deployment.status, deployment.inside_key
    except Interrupted:
        raise Interrupted(what_is_left(folder, before)) from None
    if as_json:
        found: dict[str, Any] = {"renewed": renewed, "reason": key.reason, "key_since": key.at}
        found["witness"] = key.witness
        show_json(found | {"commitment": key.commitment, "generation": status.generation, "round": status.round})
    elif not renewed:
        _tell(f"Nothing was done: the key in force is that of {key.at}, and not older than {if_older_than}.")
    elif status.generation is None:
        _tell(f"Trained {status.num_shards:,} models again with a new key, {key.reason} ({key.at}).")
        _tell(f"Under a consensus the log does not say when a key is renewed{_committed(key)}")
    else:
        _tell(f"Trained {status.num_shards:,} models again with a new key: generation {status.generation:,}.")
        _tell(f"The log says that it was renewed {key.reason} ({key.at}){_committed(key)}")
        if source is not None:
            _tell("A witness had a part in it: `expunge audit recompute` checks that.")


@app.command()
def retrain(
    folder: Folder,
    learner: Annotated[
        str | None, typer.Option(metavar="NAME", help="What trains a shard's model from now on, as for `create`.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the learner, such as C=0.1; repeatable."),
    ] = None,
    class_weight: ClassWeight = None,
    slices: Annotated[
        int | None, typer.Option(min=1, help="How many slices a shard's training can resume from.  [default: 1]")
    ] = None,
    shards: Annotated[int | None, typer.Option(min=1, metavar="N", help="How many shards from now on.")] = None,
    minutes: Annotated[
        float, typer.Option(min=0, help="How long to measure on throw-away models, about; 0: not at all.")
    ] = DEFAULT_MINUTES,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    as_json: AsJson = False,
) -> None:
    """Train everything again by another recipe: another learner, other options, or another number of shards.

    The records, the requests, the log and the keyed hashes of what was deleted stay. The log tells the new recipe, and
    every certificate from then on compares with it. It draws a new key, and needs the exact promise; no request may be
    pending. At the end it says how good the answers are now, and what a deletion costs.

    Example: `expunge retrain churn/ --learner boosting --shards 5`
    """
    from expunge.cli.costs import TrainingClock, costs_of, keep_costs, tell_costs

    if learner is None and shards is None and not settings and slices is None and class_weight is None:
        raise InputError("say what to change: --learner, --set, --class-weight, --slices or --shards")
    before = None
    try:
        with opened(folder, trust=trust, jobs=jobs, executor=executor) as deployment:
            before = deployment.inside_key
            chosen = with_class_weight(read_settings(settings or []), class_weight)
            made, kept = _another_learner(deployment, folder, learner, chosen, slices)
            with progress("training everything again", shards or deployment.status.num_shards) as advance:
                clock = TrainingClock(advance)
                deployment.redeclare(learner=made, n_shards=shards, provenance=kept, advance=clock.advance)
            report = _measured_again(deployment, folder, minutes)
            deployment.add_provenance({"report": report})
            with progress("measuring what a deletion costs", 1):
                keep_costs(deployment, clock.seconds, report)
            found, key = deployment.schema, deployment.inside_key
            name, costs = deployment.provenance.get("learner"), costs_of(deployment.provenance)
    except Interrupted:
        raise Interrupted(what_is_left(folder, before)) from None
    told = {"learner": found["learner"].words, "shards": found["shards"].value, "key_since": key.at}
    if as_json:
        show_json(told | {"commitment": key.commitment, "report": report})
    else:
        _tell(f"Trained everything again: {name or told['learner']}, {plural(told['shards'], 'shard')}.")
        _tell(f"The log tells the new recipe and its key ({key.at}){_committed(key)}")
        tell_report(report, as_of=", measured on throw-away models")
        if costs is not None:
            console.print("\n[bold]What a deletion costs[/bold]")
            tell_costs(costs, num_shards=told["shards"], promise="exact")


def _measured_again(deployment: DurableDeployment, folder: Path, minutes: float) -> dict[str, Any]:
    """The report about the records and the recipe in force."""
    state = deployment.inside.state
    features, codes, _ = state.records.gather(state.records.live_slots())
    is_regression = state.records.is_regression
    return measure_report(
        state.records,
        state.learner,
        features,
        codes if is_regression else state.records.classes[codes],
        kinds=kinds_of(schema_of(deployment, folder)) if deployment.provenance.get("columns") else None,
        num_shards=state.num_shards,
        sampler=state.sampler,
        by_votes=False,
        combination=getattr(deployment.inside.serving, "combine", "mean"),
        threshold=getattr(deployment.front, "threshold", None),
        minutes=minutes,
    )


def _another_learner(
    deployment: DurableDeployment, folder: Path, name: str | None, options: dict[str, Any], slices: int | None
) -> tuple[Any, dict[str, Any]]:
    """The new learner, or None, and what is kept with the deployment about it."""
    kept: dict[str, Any] = {"report": None, "costs": None}  # they were measured with the recipe before
    before = deployment.provenance
    if name is None and not options and slices is None:
        return None, kept
    name = name or before.get("learner")
    if name is None:
        raise InputError(f"{folder} was created from Python: name the learner with --learner")
    options = options if options or name != before.get("learner") else before.get("options", {})
    from expunge.training.learners import AbstainingLearner

    number = slices or (before.get("slices", 1) if name == before.get("learner") else 1)
    abstains = isinstance(deployment.inside.state.learner, AbstainingLearner)
    made, _ = make_learner(
        name,
        options=options,
        schema=schema_of(deployment, folder),
        features=None,
        slices=number,
        allow_missing=deployment.schema["gaps"].value,
        on_failure="abstain" if abstains else "raise",
    )
    return made, kept | {"learner": name, "options": options, "slices": number}


def _tell(line: str) -> None:
    console.print(line, markup=False, soft_wrap=True)


def _committed(key: KeyDraw) -> str:
    return "." if key.commitment is None else f", and commits to it: {key.commitment}"
