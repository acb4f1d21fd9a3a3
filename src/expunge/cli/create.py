"""`expunge create`, and the words that say which guarantee a deployment has, or how to get one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from expunge.cli.app import app
from expunge.cli.costs import TrainingClock, costs_of, keep_costs, tell_costs
from expunge.cli.folders import (
    make_fallback,
    nonce_source,
    read_columns,
    read_large,
    read_records,
    replacing,
    split_url,
)
from expunge.cli.output import (
    AsJson,
    ClassWeight,
    Data,
    Engine,
    Folder,
    Jobs,
    Threshold,
    Trust,
    complain,
    console,
    progress,
    say,
    show_json,
)
from expunge.cli.report import DEFAULT_MINUTES, kinds_of, measure_report, tell_figures, tell_report
from expunge.core.errors import ParameterError

if TYPE_CHECKING:
    from expunge.core.guarantee import Guarantee
    from expunge.core.randomness import Randomness
    from expunge.core.streams import RecordStream
    from expunge.folder import DurableDeployment, DurableStatus
    from expunge.serving.promises import Promise, Statement
    from expunge.tables import Labelled, Schema


def tell_promise(promise: Sequence[Statement], guarantee: Guarantee, *, provenance: dict[str, Any]) -> None:
    """Print the promises, each by itself: what it says, and with what it compares; or that it is not claimed, and why.

    The exact promise is told in three lines; `--json` and certificates have the whole statement. The numbers of
    (α,β,γ) are told in one sentence each.
    """
    for each in promise:
        if each.name == "exact":
            console.print(f"\n[bold]exact: {'promised' if each.is_claimed else 'not claimed'}.[/bold]")
            for line in each.in_short if each.is_claimed else (f"Why: {each.reason}.", _TRAIN_AGAIN):
                say(line)
        elif each.is_claimed:
            _tell_closeness(each, guarantee, provenance)
        elif provenance.get("wanted", {}).get("promise") == "exact":
            console.print(
                f"\n[bold]{each.name}: not claimed.[/bold] It compares with new secrets, and has its price: see "
                "`expunge plan`."
            )
        else:
            console.print(f"\n[bold]{each.name}: not claimed.[/bold]")
            say(f"Why: {each.reason}.")
            advice = advice_for(guarantee, provenance)
            if advice:
                say(f"What would change that: {advice}")


_TRAIN_AGAIN = (
    "What would change that: `expunge rekey` trains everything again, and `expunge audit recompute --shards all` "
    "then shows that it did."
)


def _tell_closeness(promised: Statement, guarantee: Guarantee, provenance: dict[str, Any]) -> None:
    from expunge.theory.planning.planner import explain_target

    console.print(f"\n[bold]{promised.name}: promised.[/bold]")
    say(promised.statement)
    say(f"It compares with {promised.compares_with}.")
    if promised.limits:
        say(promised.limits)
    generations = provenance.get("wanted", {}).get("max_generations", guarantee.parameters.get("generations", 1))
    for sentence in explain_target(guarantee, int(generations)):
        say(sentence)


def advice_for(guarantee: Guarantee, provenance: dict[str, Any]) -> str:
    """How to get a guarantee that is not vacuous, for a deployment made by `expunge create`; empty if not wanted."""
    wanted = provenance.get("wanted")
    if wanted is None or not guarantee.is_vacuous or wanted["promise"] == "exact":
        return ""
    plan = (
        f"`expunge plan --records {wanted['num_records']} --shards {wanted['num_shards']} "
        f"--classes {wanted['num_classes']}` weighs all the ways."
    )
    if wanted["sampling"] == "partition":
        return f"--sampling independent. {plan}"
    if wanted["promise"] in ("noise", "unguarded"):
        return f"--promise consensus, or noise with a --max-predictions that the noise can cover. {plan}"
    return f"{_more_shards(wanted)} {plan}"


def _more_shards(wanted: dict[str, Any]) -> str:
    from expunge.core.errors import GuaranteeError, ParameterError
    from expunge.core.guarantee import Guarantee
    from expunge.theory.planning.advice import recommend_shards, shards_for_consensus

    target, queries = Guarantee(*wanted["target"]), wanted["max_predictions"]
    try:
        shards_for_consensus(target=target, num_generations=wanted["max_generations"], max_predictions=queries)
    except (GuaranteeError, ParameterError) as error:
        return f"a weaker target (--alpha, --beta, --gamma); as it is, {error}."
    advice = recommend_shards(
        num_records=wanted["num_records"],
        num_classes=wanted["num_classes"],
        target=target,
        num_generations=wanted["max_generations"],
        max_predictions=queries,
    )
    return (
        f"about {advice.num_shards:,} shards (--shards {advice.num_shards} --probability "
        f"{advice.inclusion_probability:.3g}), or a smaller --max-predictions or --generations."
    )


# Spelled out, so that completing a word does not load the training code.
LEARNERS = (
    *("logistic", "linear-svm", "ridge", "sgd", "naive-bayes", "neighbours"),
    *("tree", "forest", "extra-trees", "boosting", "mlp", "svm", "xgboost", "lightgbm", "catboost"),
    *("ridge-exact", "naive-bayes-exact", "neighbours-exact", "forest-exact"),
)
REGRESSORS = (
    *("linear-regression", "ridge-regression", "forest-regression", "boosting-regression", "sgd-regression"),
    *("linear-svm-regression", "svm-regression", "neighbours-regression", "tree-regression"),
    *("extra-trees-regression", "mlp-regression"),
    *("xgboost-regression", "lightgbm-regression", "catboost-regression"),
    "forest-exact-regression",
)
_UNLEARN_EXACTLY = (*LEARNERS[-4:], REGRESSORS[-1])
PROMISES = ("exact", "consensus", "router", "student", "noise", "unguarded")
FALLBACKS = ("ridge", "naive-bayes", "neighbours")
MECHANISMS = ("exponential", "permute-and-flip", "laplace", "gaussian", "confident")


def _learners(incomplete: str) -> list[str]:
    return [name for name in (*LEARNERS, *REGRESSORS) if name.startswith(incomplete)]


def _promises(incomplete: str) -> list[str]:
    return [name for name in PROMISES if name.startswith(incomplete)]


def _mechanisms(incomplete: str) -> list[str]:
    return [name for name in MECHANISMS if name.startswith(incomplete)]


@app.command()
def create(
    folder: Folder,
    data: Data,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What to predict.  [default: y of an NPZ file with an X]")
    ] = None,
    id: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The id of a record.  [default: its place, from 0]")
    ] = None,
    subject: Annotated[str | None, typer.Option(metavar="COLUMN", help="Whose record it is.")] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="How much the record counts.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column not to learn from; repeatable.")
    ] = None,
    text: Annotated[
        list[str] | None,
        typer.Option(
            metavar="COLUMN",
            help="A column of text to read word by word; repeatable.  [default: long and mostly unique]",
        ),
    ] = None,
    category: Annotated[
        list[str] | None,
        typer.Option(metavar="COLUMN", help="A column of numbers that are names, such as postcodes; repeatable."),
    ] = None,
    classes: Annotated[
        list[str] | None,
        typer.Option("--class", metavar="LABEL", help="A class; repeatable.  [default: the labels in the file]"),
    ] = None,
    learner: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help=f"One of {', '.join(LEARNERS)} (those in -exact delete without training); for numbers "
            f"{', '.join(REGRESSORS)}; or package.module:factory.",
            autocompletion=_learners,
        ),
    ] = "logistic",
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the learner, such as C=0.1; repeatable."),
    ] = None,
    class_weight: ClassWeight = None,
    slices: Annotated[int, typer.Option(min=1, help="How many slices a shard's training can resume from.")] = 1,
    allow_missing: Annotated[
        bool,
        typer.Option("--allow-missing", help="Let later rows have missing numbers even if no row of FILE has."),
    ] = False,
    float32: Annotated[bool, typer.Option("--float32", help="Keep numbers in 4 bytes instead of 8.")] = False,
    shards: Annotated[
        str | None,
        typer.Option(
            metavar="N",
            help="How many shards, with a model each; or auto: chosen from the data, or for a target by the planner.  "
            "[default: auto for exact; 1 for a learner in -exact; else 10]",
        ),
    ] = None,
    minutes: Annotated[
        float,
        typer.Option(min=0, help="How long to measure on throw-away models, about; 0: not at all, and 10 shards."),
    ] = DEFAULT_MINUTES,
    promise: Annotated[
        str,
        typer.Option(help=f"What is promised about deleted records: {', '.join(PROMISES)}.", autocompletion=_promises),
    ] = "exact",
    threshold: Threshold = None,
    combine: Annotated[
        str | None, typer.Option(help="For numbers: mean or median of the shards' values.  [default: mean]")
    ] = None,
    probability: Annotated[
        float | None, typer.Option(help="The chance that a record is in a shard, if independent.  [default: 1/shards]")
    ] = None,
    sampling: Annotated[
        str | None, typer.Option(help="independent, or partition.  [default: partition for exact, else independent]")
    ] = None,
    mechanism: Annotated[
        str | None,
        typer.Option(help=f"The noise: {', '.join(MECHANISMS)}.  [default: exponential]", autocompletion=_mechanisms),
    ] = None,
    pool: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Public rows that a student learns from, with the same columns.")
    ] = None,
    fallback: Annotated[
        str | None,
        typer.Option(help=f"What a router answers hard queries with: {', '.join(FALLBACKS)}.  [default: ridge]"),
    ] = None,
    alpha: Annotated[float | None, typer.Option(help="Wanted alpha.  [default: 5]")] = None,
    beta: Annotated[float | None, typer.Option(help="Wanted beta.  [default: 0.001]")] = None,
    gamma: Annotated[float | None, typer.Option(help="Wanted gamma.  [default: 0.001]")] = None,
    max_predictions: Annotated[
        int | None, typer.Option(min=0, help="Answers in a generation, at most.  [default: 1000000 by consensus]")
    ] = None,
    generations: Annotated[
        int | None, typer.Option(min=1, help="Full trainings that the guarantee is good for.  [default: 100]")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Privacy budget of a generation, for noise.")] = None,
    delta: Annotated[float | None, typer.Option(help="Its delta.  [default: 0]")] = None,
    accountant: Annotated[str | None, typer.Option(help="How privacy losses are added up.  [default: best]")] = None,
    on_exhausted: Annotated[
        str | None, typer.Option(help="Noise: retrain_on_update, retrain_now or refuse.  [default: retrain_on_update]")
    ] = None,
    on_failure: Annotated[
        str, typer.Option(help="raise; or abstain: a shard that cannot be trained votes for nothing.")
    ] = "raise",
    numerics: Annotated[
        str,
        typer.Option(
            help="What a later update trains again if libraries, processor or device have changed: strict, everything; "
            "or lenient, what it touches (the promise then holds up to rounding)."
        ),
    ] = "strict",
    encrypt: Annotated[
        bool,
        typer.Option("--encrypt", help="Keep records and models under a key each: deleting one overwrites its key."),
    ] = False,
    records: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Keep the records as Parquet in s3://bucket/prefix or another folder. (A URL in place of FOLDER does "
            "that too; the folder then gets its last name.)",
        ),
    ] = None,
    apply: Annotated[
        str, typer.Option(metavar="WHEN", help="When requests are applied: now, 'every 3600s', 'at 100' or manual.")
    ] = "now",
    clock: Annotated[
        int, typer.Option(metavar="SECONDS", min=1, help="The tick to which certificates date the end of work.")
    ] = 60,
    seed: Annotated[
        int | None,
        typer.Option(
            metavar="N", min=0, help="For tests and experiments: derive the recipe key from N, so that runs repeat."
        ),
    ] = None,
    witness: Annotated[
        str | None,
        typer.Option(
            metavar="URL", help="Have a witness take part in the recipe key, so that you cannot pick it among many."
        ),
    ] = None,
    witness_key: Annotated[
        Path | None, typer.Option(metavar="FILE", help="The witness's key: its file `witness.key`.")
    ] = None,
    jobs: Jobs = None,
    executor: Engine = None,
    trust: Trust = None,
    force: Annotated[bool, typer.Option("--force", help="Replace the deployment that is in the folder.")] = False,
    as_json: AsJson = False,
) -> None:
    """Train an ensemble on a file of records and keep it in a folder that honours deletion requests.

    Without --shards their number is chosen from this file, by throw-away trainings: it is then part of the recipe, and
    fixed. At the end it says what is promised, how good the answers are, and what a deletion costs.

    Example: `expunge create churn/ --data train.csv --label churned --id customer_id --subject household
    --learner logistic`
    """
    import numpy as np

    import expunge
    from expunge.cli.folders import (
        as_threshold,
        make_learner,
        predicts_numbers,
        read_settings,
        read_threshold,
        with_class_weight,
    )
    from expunge.folder import ApplyPolicy
    from expunge.tables import parse_classes

    policy, source = ApplyPolicy.parse(apply), nonce_source(witness, witness_key)
    folder, records_at = split_url(folder, records)
    if (pool is not None) != (promise == "student"):
        raise ParameterError(f"--pool and --promise student need each other, got --promise {promise}")
    if fallback not in (None, *FALLBACKS):
        raise ParameterError(f"--fallback must be one of {', '.join(FALLBACKS)}, got {fallback!r}")
    cut = read_threshold(threshold)
    options: dict[str, Any] = {
        "combine": combine,
        "threshold": cut,
        "fallback": fallback,
        "mechanism": mechanism,
        "target": _target(alpha, beta, gamma),
        "max_predictions": max_predictions,
        "max_generations": generations,
        "budget": _budget(epsilon, delta),
        "accountant": accountant,
        "on_exhausted": on_exhausted,
    }
    given = {name: value for name, value in options.items() if value is not None}
    columns = {
        **{"label": label, "id": id, "subject": subject, "weight": weight, "ignored": tuple(ignore or ())},
        "declared": dict.fromkeys(text or (), "text") | dict.fromkeys(category or (), "category"),
    }
    learner_options = with_class_weight(read_settings(settings or ()), class_weight)
    with replacing(folder, force=force) as place:
        is_regression = predicts_numbers(learner, learner_options)
        if combine is not None and not is_regression:
            raise ParameterError(f"--combine is for numbers, and learner {learner!r} predicts classes")
        if is_regression and (classes or promise != "exact" or cut is not None):
            what = "--class" if classes else "--threshold" if cut is not None else f"--promise {promise}"
            raise ParameterError(f"{what} is for classes, and learner {learner!r} predicts numbers")
        reading: dict[str, Any] = {"one_class": bool(classes), "float32": float32, "is_regression": is_regression}
        stream: RecordStream | None = None
        if records_at is None:
            schema, labelled = read_records(data, columns, **reading)
        else:
            schema, labelled, stream = read_large(data, columns, **reading)
        num_records, found_labels = len(labelled.labels), np.unique(labelled.labels)
        if stream is not None:
            num_records, found_labels = len(stream), stream.classes
        known = parse_classes(classes, found_labels) if classes else found_labels
        known = known[:0] if is_regression else known
        made, takes_missing = make_learner(
            learner,
            options=learner_options,
            schema=schema,
            features=labelled.features,
            slices=slices,
            allow_missing=allow_missing,
            on_failure=on_failure,
        )
        if pool is not None:
            given["pool"] = schema.unlabelled(read_columns(pool, schema))
        if promise == "router":
            given["fallback"] = make_fallback(fallback or FALLBACKS[0], kinds_of(schema))
        if cut is not None and promise == "exact":
            given["threshold"] = as_threshold(cut, known)
        promised = _promised(promise, given)
        if probability is not None and not 0 < probability <= 1:
            raise ParameterError(f"--probability must be above 0 and at most 1, got {probability:g}")
        if probability is not None and sampling == "partition":
            raise ParameterError("--probability is for --sampling independent: in a partition it is 1/shards")
        sampler = promised.sampling_name(sampling, probability)  # type: ignore[arg-type]
        wanted = _wanted(promised, sampler, num_records=num_records, num_classes=len(known))
        known_shards, chance = _sizes(_shards(shards, learner, promise, minutes), probability, wanted)
        measured = partial(
            _report,
            made,
            labelled,
            classes=known if classes else None,
            takes_missing=takes_missing,
            sampler=promised.make_sampler(sampler, chance),
            promise=promised,
            minutes=minutes,
            kinds=kinds_of(schema),
        )
        if stream is not None and known_shards is None:
            raise ParameterError(f"--shards: {num_records:,} records are too many to choose it from; give a number")
        report: dict[str, Any] | None = None
        if stream is not None:
            report = _unmeasured(known_shards or 0, by_votes=not promised.is_exact)
        elif known_shards is None:
            report = measured(num_shards=None)
        wanted["num_shards"] = shards_made = known_shards or (report or {})["num_shards"]
        with progress("training", shards_made) as advance:
            clock_of_training = TrainingClock(advance)
            columns_given = (
                {}
                if stream is not None
                else {
                    **{"y": labelled.labels, "ids": labelled.ids, "subjects": labelled.subjects},
                    "weights": labelled.weights,
                }
            )
            deployment = expunge.create(
                place,
                made,
                labelled.features if stream is None else stream,
                **columns_given,
                classes=known if classes else None,
                allow_missing=takes_missing,
                n_shards=shards_made,
                promise=promised,
                sampling=sampler,
                inclusion_probability=chance,
                numerics=numerics,  # type: ignore[arg-type]
                apply=policy,
                clock_seconds=clock,
                trust=tuple(trust or ()),
                n_jobs=jobs,
                executor=executor,
                encrypt=encrypt,
                records_at=records_at,
                rng=_randomness(seed),
                witness=source,
                provenance={
                    "columns": schema.to_dict(),
                    "learner": learner,
                    "options": learner_options,
                    "slices": slices,
                    "wanted": wanted,
                    "taken": [
                        *(["shards"] if (report is not None and stream is None) or shards == "auto" else []),
                        *(["gaps"] if takes_missing and not allow_missing else []),
                    ],
                },
                advance=clock_of_training.advance,
            )
        with deployment:
            report = report or measured(num_shards=known_shards)
            deployment.add_provenance({"report": report})
            with progress("measuring what a deletion costs", 1):
                keep_costs(deployment, clock_of_training.seconds, report)
            found = _facts(deployment, schema, folder, declared=bool(classes))
    _show(found, as_json=as_json)


def _randomness(seed: int | None) -> Randomness | None:
    """The source of randomness; None for the operating system's."""
    from expunge.core.randomness import Randomness

    if seed is None:
        return None
    complain(f"the recipe key follows from --seed {seed}: use it for tests and experiments, not for people's data")
    return Randomness.from_seed(seed)


def _target(alpha: float | None, beta: float | None, gamma: float | None) -> Guarantee | None:
    from expunge.core.guarantee import Guarantee
    from expunge.serving.publishing import DEFAULT_TARGET

    if alpha is None and beta is None and gamma is None:
        return None
    return Guarantee(
        DEFAULT_TARGET.alpha if alpha is None else alpha,
        DEFAULT_TARGET.beta if beta is None else beta,
        DEFAULT_TARGET.gamma if gamma is None else gamma,
    )


def _budget(epsilon: float | None, delta: float | None) -> tuple[float, float] | None:
    if epsilon is None:
        if delta is not None:
            raise ParameterError("--delta needs --epsilon")
        return None
    return epsilon, delta or 0.0


def _promised(name: str, given: dict[str, Any]) -> Promise:
    """The promise, with the options that were given for it; an error for options that it does not have."""
    from dataclasses import fields

    from expunge.serving import promises

    if name not in PROMISES:
        raise ParameterError(f"--promise must be one of {', '.join(PROMISES)}, got {name!r}")
    kind: Any = promises.Student if name == "student" else type(promises.as_promise(name))
    known = {each.name for each in fields(kind)}
    strange = [option for option in given if option not in known]
    if strange:
        words = {
            "target": "--alpha, --beta and --gamma are",
            "budget": "--epsilon is",
            "max_generations": "--generations is",
        }
        what = words.get(strange[0], f"--{strange[0].replace('_', '-')} is")
        raise ParameterError(f"{what} not for --promise {name}: that promise has no such option")
    made: Promise = kind(**given)
    return made


def _wanted(promise: Promise, sampling: str, *, num_records: int, num_classes: int) -> dict[str, Any]:
    """The options with the defaults filled in, as plain data that is kept with the deployment."""
    from expunge.serving.publishing import DEFAULT_MAX_PREDICTIONS, DEFAULT_TARGET

    target = promise.target or DEFAULT_TARGET
    most = promise.max_predictions
    return {
        "num_records": num_records,
        "num_classes": num_classes,
        "sampling": sampling,
        "promise": promise.name,
        "target": [target.alpha, target.beta, target.gamma],
        "max_predictions": DEFAULT_MAX_PREDICTIONS if most is None else most,
        "max_generations": promise.max_generations,
    }


def _shards(given: str | None, learner: str, promise: str, minutes: float) -> str:
    """The number of shards that was given, or the default; a learner that unlearns exactly needs one."""
    if learner not in _UNLEARN_EXACTLY or promise != "exact":
        default = "auto" if promise == "exact" and minutes else "10"
        return default if given is None else given
    if given not in (None, "1", "auto"):
        raise ParameterError(
            f"--learner {learner} deletes without training, so shards gain nothing: leave out --shards {given}"
        )
    return "1"


def _report(
    learner: Any,
    records: Labelled,
    *,
    classes: Any,
    takes_missing: bool,
    num_shards: int | None,
    sampler: Any,
    promise: Promise,
    minutes: float,
    kinds: dict[str, str],
) -> dict[str, Any]:
    """Measure on throw-away models, and choose the number of shards if it is None."""
    from expunge.core.records import Records
    from expunge.training.learners.protocol import predicts_values

    built = Records.build(
        records.features,
        records.labels,
        ids=records.ids,
        subjects=records.subjects,
        weights=records.weights,
        classes=classes,
        is_regression=predicts_values(learner),
        allow_missing=takes_missing,
        copy=False,
    )
    return measure_report(
        built,
        learner,
        records.features,
        records.labels,
        kinds=kinds,
        num_shards=num_shards,
        sampler=sampler,
        by_votes=not promise.is_exact,
        combination=getattr(promise, "combine", "mean"),
        threshold=getattr(promise, "threshold", None),
        minutes=minutes or DEFAULT_MINUTES if num_shards is None else minutes,
    )


def _unmeasured(num_shards: int, *, by_votes: bool) -> dict[str, Any]:
    """The report of records that were not all in memory at once."""
    reason = "the records are too many to be measured at creation"
    found: dict[str, Any] = {"num_shards": num_shards, "by_votes": by_votes, "choice": None, "measured": None}
    return found | {"not_measured": reason, "findings": []}


def _sizes(shards: str, probability: float | None, wanted: dict[str, Any]) -> tuple[int | None, float | None]:
    """The number of shards and the inclusion probability.

    For "auto" the planner chooses them if there is a target; otherwise the number is None, and is to be measured.
    """
    if shards == "auto":
        if wanted["promise"] in ("exact", "unguarded"):
            return None, probability
        from expunge.core.guarantee import Guarantee
        from expunge.theory.planning import recommend_shards

        advice = recommend_shards(
            num_records=wanted["num_records"],
            num_classes=wanted["num_classes"],
            target=Guarantee(*wanted["target"]),
            num_generations=wanted["max_generations"],
            max_predictions=wanted["max_predictions"],
        )
        return advice.num_shards, advice.inclusion_probability if probability is None else probability
    from expunge.serving.promises import MOST_SHARDS

    if not (shards.isascii() and shards.isdigit() and len(shards) <= 12 and 1 <= int(shards) <= MOST_SHARDS):
        raise ParameterError(f"--shards must be a whole number from 1 to {MOST_SHARDS:,}, or auto, got {shards!r}")
    return int(shards), probability


@dataclass(frozen=True)
class _Made:
    """The facts that are printed about a new deployment."""

    folder: Path
    status: DurableStatus
    classes: list[Any]
    classes_declared: bool
    schema: Schema
    promise: tuple[Statement, ...]
    guarantee: Guarantee
    provenance: dict[str, Any]
    figures: dict[str, Any]
    records_at: str | None


def _facts(deployment: DurableDeployment, schema: Schema, folder: Path, *, declared: bool) -> _Made:
    classes: list[Any] = deployment.classes.tolist()
    made, promise, figures = deployment.provenance, deployment.promise, deployment.inside.serving.figures
    guarantee, at = deployment.guarantee(), deployment.records_at
    return _Made(folder, deployment.status, classes, declared, schema, promise, guarantee, made, figures, at)


def _show(made: _Made, *, as_json: bool) -> None:
    status, schema = made.status, made.schema
    if as_json:
        show_json(
            {
                "folder": str(made.folder),
                "records_at": made.records_at,
                "records": status.num_records,
                "shards": status.num_shards,
                "classes": made.classes,
                "classes_declared": made.classes_declared,
                "columns": schema.to_dict(),
                "promise": [each.to_dict() for each in made.promise],
                "guarantee": made.guarantee.to_dict(),
                "advice": advice_for(made.guarantee, made.provenance),
                "costs": made.provenance.get("costs"),
                "report": made.provenance.get("report"),
                **made.figures,
            }
        )
        return
    known = _shortened([str(label) for label in made.classes])
    origin = "declared" if made.classes_declared else "taken from this file"
    what = f"classes {known} ({origin}; public, and fixed from now on)" if made.classes else "numbers to predict"
    console.print(
        f"Created {made.folder}: {status.num_records:,} records, {count_shards(status.num_shards)}, {what}.",
        markup=False,
    )
    if made.records_at is not None:
        console.print(
            f"The records are in {made.records_at}; the folder is what other commands are given.", markup=False
        )
    if schema.features:
        console.print(f"Learns from {_columns_in_words(schema)}.", markup=False)
    report = made.provenance["report"]
    if report["choice"] is not None:
        console.print(report["choice"]["words"], markup=False)
        console.print("k was chosen from the first data: it is part of the recipe and is fixed.", markup=False)
    tell_promise(made.promise, made.guarantee, provenance=made.provenance)
    tell_report(report, as_of=", measured on throw-away models")
    tell_figures(made.figures)
    costs = costs_of(made.provenance)
    if costs is not None:
        console.print("\n[bold]What a deletion costs[/bold]")
        tell_costs(costs, num_shards=status.num_shards, promise=made.provenance["wanted"]["promise"])


def _columns_in_words(schema: Schema) -> str:
    """What kinds of columns there are, and the names of those that hold no numbers."""
    names: dict[str, list[str]] = {}
    for feature in schema.features:
        names.setdefault({"boolean": "number", "time": "date"}.get(feature.kind, feature.kind), []).append(feature.name)
    words = {"date": "dates in", "category": "categories in", "text": "the words of"}
    found = [f"{words[kind]} {_shortened(names[kind])}" for kind in words if kind in names]
    numbers = len(names.get("number", ()))
    if numbers or not found:
        found.insert(0, f"{numbers:,} column{'' if numbers == 1 else 's'} of numbers")
    return found[0] if len(found) == 1 else f"{', '.join(found[:-1])} and {found[-1]}"


def count_shards(count: int) -> str:
    """How many shards, in words."""
    return "1 shard" if count == 1 else f"{count:,} shards"


def _shortened(names: list[str], most: int = 10) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most:,} more" if len(names) > most else "")
