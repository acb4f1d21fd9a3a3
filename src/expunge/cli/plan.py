"""`expunge plan`: measured on data, or computed from numbers alone."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from expunge.cli.app import app
from expunge.cli.folders import read_settings, read_threshold, with_class_weight
from expunge.cli.output import ClassWeight, Threshold, console, say, show_json, show_table
from expunge.cli.trial import Table, Wishes, plan_on_data
from expunge.core.errors import ParameterError

if TYPE_CHECKING:
    from expunge.theory.planning import Offer, Plan

# A column for each theorem: its title, and how the theorem's name starts.
_THEOREMS = {
    "T1": "T1",
    "T2": "T2",
    "T3": "T3",
    "mutual inf.": "mutual information",
    "descr. length": "description length",
    "Rogers": "paper's count",
    "paper*": "paper's statement",
}
_CAPTION = (
    "descr. length: valid, but no deployment certifies by it, so it does not count. "
    "Rogers: the paper's count through the theorem it cites, with explicit constants: valid, weaker. "
    "paper*: every constant in O(·) set to 1: illustrative, not a bound."
)


@app.command()
def plan(
    data: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Measure on these records: CSV, Parquet or NPZ.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="What to predict.  [default: y of an NPZ file with an X]")
    ] = None,
    id: Annotated[str | None, typer.Option(metavar="COLUMN", help="The id of a record.")] = None,
    subject: Annotated[str | None, typer.Option(metavar="COLUMN", help="Whose record it is.")] = None,
    ignore: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column not to learn from; repeatable.")
    ] = None,
    text: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of text to read word by word; repeatable.")
    ] = None,
    category: Annotated[
        list[str] | None, typer.Option(metavar="COLUMN", help="A column of numbers that are names; repeatable.")
    ] = None,
    settings: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="NAME=VALUE", help="An option of the learner, such as C=0.1; repeatable."),
    ] = None,
    class_weight: ClassWeight = None,
    threshold: Threshold = None,
    learner: Annotated[
        str, typer.Option(metavar="NAME", help="With --data: a learner, as for `expunge create`.")
    ] = "logistic",
    promise: Annotated[
        str, typer.Option(help="With --data: exact, consensus, router or student: what is to be measured.")
    ] = "exact",
    minutes: Annotated[float, typer.Option(min=0.01, help="With --data: how long to measure, about.")] = 1.5,
    tolerance: Annotated[
        float,
        typer.Option(min=0.0001, help="With --data: what may be lost against one model, in accuracy, AUC or R²."),
    ] = 0.01,
    records: Annotated[int | None, typer.Option(help="Without --data: how many records there are (n).")] = None,
    shards: Annotated[
        int | None,
        typer.Option(help="How many shards, with a model each (k); with --data only this number is measured."),
    ] = None,
    probability: Annotated[
        float | None, typer.Option(help="The chance that a record is in a shard (p).  [default: 1/shards]")
    ] = None,
    classes: Annotated[int, typer.Option(help="How many classes there are.")] = 2,
    accuracy: Annotated[
        float | None,
        typer.Option(help="Wanted chance of the right answer when all shards agree.  [default: 0.99 if alone]"),
    ] = None,
    accuracy_80: Annotated[
        float | None, typer.Option("--accuracy-80", help="The same when 80% of the shards agree.")
    ] = None,
    alpha: Annotated[float, typer.Option(help="Wanted alpha; the output says what it means.")] = 5.0,
    beta: Annotated[float, typer.Option(help="Wanted beta.")] = 1e-3,
    gamma: Annotated[float, typer.Option(help="Wanted gamma.")] = 1e-3,
    generations: Annotated[
        int, typer.Option(help="How many full trainings the guarantee should be good for (G).")
    ] = 100,
    predictions_per_day: Annotated[float, typer.Option(help="Different questions answered a day.")] = 1000,
    deletions_per_day: Annotated[float, typer.Option(help="Deletion requests a day.")] = 10,
    batches_per_day: Annotated[float, typer.Option(help="How often a day requests are applied, at most.")] = 24,
    max_predictions: Annotated[
        int, typer.Option(help="Consensus: answers of the ensemble in a generation, at most.")
    ] = 10**6,
    pool: Annotated[
        int, typer.Option(help="Public points that a student can learn from; 0 if there are none.")
    ] = 10_000,
    shares: Annotated[
        Path | None,
        typer.Option(help="A file of observed top-vote shares (0 to 1), to predict how often consensus fails."),
    ] = None,
    ensemble_share: Annotated[
        float | None, typer.Option(help="The share of the queries that a router sends to the ensemble.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the plan as JSON.")] = False,
    plot: Annotated[
        Path | None,
        typer.Option(help="Draw it into a .png or .svg file: work against accuracy, or alpha against predictions."),
    ] = None,
) -> None:
    """Say how many shards to use, or what can be promised; what it costs; and whether plain retraining is cheaper.

    With --data it measures on your records, with throw-away models: how good the answers are, and what deletions cost.
    Without, it computes from numbers what each way of publishing can promise.

    Example: `expunge plan --data train.csv --label churned --id customer_id --learner boosting --plot choice.png`

    Example: `expunge plan --records 1000000 --shards 1000 --predictions-per-day 500 --plot bounds.png`
    """
    from expunge.core.guarantee import Guarantee

    if data is not None:
        if records is not None:
            raise ParameterError("--records is for a plan without --data, which counts them")
        plan_on_data(
            Table(
                data=data,
                label=label,
                id=id,
                subject=subject,
                ignored=tuple(ignore or ()),
                declared=dict.fromkeys(text or (), "text") | dict.fromkeys(category or (), "category"),
                learner=learner,
                options=with_class_weight(read_settings(settings or ()), class_weight),
                threshold=read_threshold(threshold),
            ),
            Wishes(
                promise=promise,
                num_shards=shards,
                probability=probability,
                target=Guarantee(alpha, beta, gamma),
                generations=generations,
                max_predictions=max_predictions,
                predictions_per_day=predictions_per_day,
                deletions_per_day=deletions_per_day,
                batches_per_day=batches_per_day,
                tolerance=tolerance,
                minutes=minutes,
            ),
            plot=plot,
            as_json=as_json,
        )
        return
    if records is None or shards is None:
        raise ParameterError("give --data FILE to measure on, or --records and --shards to compute with")
    from expunge.theory.planning import plan as make_plan
    from expunge.theory.planning import plot_plan, read_vote_shares

    made = make_plan(
        num_records=records,
        num_shards=shards,
        inclusion_probability=probability,
        num_classes=classes,
        unanimous_accuracy=accuracy,
        majority_accuracy=accuracy_80,
        target=Guarantee(alpha, beta, gamma),
        num_generations=generations,
        predictions_per_day=predictions_per_day,
        deletions_per_day=deletions_per_day,
        batches_per_day=batches_per_day,
        max_predictions=max_predictions,
        pool_size=pool,
        vote_shares=None if shares is None else read_vote_shares(shares),
        ensemble_share=ensemble_share,
    )
    # Draw before printing, so that a failure prints nothing but its message.
    drawn = plot_plan(plot, made) if plot is not None else None
    if as_json:
        show_json(made.to_dict())
    else:
        _tell(made)
        if drawn is not None:
            console.print(f"\nThe bounds are drawn in {drawn}.", markup=False)


def _tell(made: Plan) -> None:
    _tell_question(made)
    _paragraph("Verdict", [made.verdict.words])
    for show in (_show_promises, _show_theorems, _show_consensus, _show_work):
        console.print()
        show(made)
    _tell_deletion(made)
    _paragraph("Recommended for this data and traffic", [made.recommended.words])
    if made.changes:
        needed = "" if made.predictions_needed is None else f" ({made.predictions_needed:,} predictions per generation)"
        _paragraph(
            f"What would make updating the cheaper way{needed}, one change at a time",
            [change.words for change in made.changes],
        )
    if made.remarks:
        _paragraph("Note", made.remarks)


def _tell_question(made: Plan) -> None:
    from expunge.theory.planning.words import count

    question, target = made.question, made.question.target
    console.print(
        f"[bold]{count(question.num_records)} records in {count(question.num_shards)} shards[/bold] of "
        f"{count(question.records_per_shard)} records on average, {count(question.num_classes)} classes; a day: "
        f"{count(question.predictions_per_day)} predictions, {count(question.deletions_per_day)} deletions in "
        f"{count(question.updates_per_day)} batches."
    )
    _paragraph(f"Target: ({target.alpha:g}, {target.beta:g}, {target.gamma:g})-unlearning", made.meaning)


def _show_promises(made: Plan) -> None:
    show_table(
        "What each way of publishing promises, at the wanted accuracy",
        ["publishing", "noise", "all agree", "80% agree", "predictions", "certified by"],
        [
            (
                offer.name,
                offer.noise,
                _optional(offer.unanimous_accuracy),
                _optional(offer.majority_accuracy),
                "∞" if offer.is_unlimited else f"{offer.predictions:,}",
                offer.best.theorem.removesuffix(" (paper form)") if offer.best else "nothing",
            )
            for offer in made.offers
        ],
        caption="agree: the chance of the right answer when all (80%) of the shards agree on it. predictions: the most "
        "in a generation, from one full training to the next, within the target; ∞: no limit.",
    )


def _show_theorems(made: Plan) -> None:
    def cell(offer: Offer, prefix: str) -> str:
        limit = offer.limit(prefix)
        return "–" if limit is None else f"{limit.predictions:,}"

    show_table(
        "Noise: predictions per generation within the target, by theorem",
        ["publishing", *_THEOREMS],
        [
            (offer.name, *(cell(offer, prefix) for prefix in _THEOREMS.values()))
            for offer in made.offers
            if offer.mechanism
        ],
        caption=_CAPTION,
    )


def _show_consensus(made: Plan) -> None:
    from expunge.theory.planning.words import count, percent

    ways = [(offer, offer.consensus) for offer in made.offers if offer.consensus is not None]
    rows = [
        (
            offer.name,
            _optional(terms.sure_release_share),
            _optional(terms.ensemble_share),
            "–" if terms.forecast is None else percent(terms.forecast.below_sure),
            "–" if terms.forecast is None else percent(terms.forecast.dirty_generations),
            "–" if terms.passes_per_update is None else count(terms.passes_per_update),
        )
        for offer, terms in ways
        if offer.predictions
    ]
    if rows:
        show_table(
            "Consensus: agreeing answers are free, a failed consensus means a full retraining",
            ["publishing", "share needed", "to ensemble", "below it", "dirty", "extra"],
            rows,
            caption="share needed: of the shards behind the top answer, for it to be surely free. to ensemble: the "
            "part of the queries that it answers. below it: the part of these, in the sample, with a lower share. "
            "dirty: generations that a failed consensus ends, by that sample. extra: passes per update, beside "
            "retraining shards.",
        )
    for offer, terms in ways:
        if not offer.predictions:
            console.print(f"{offer.name}: {terms.reason}.", markup=False)


def _optional(value: float | None) -> str:
    from expunge.theory.planning.words import percent

    return "–" if value is None else percent(value)


def _show_work(made: Plan) -> None:
    from expunge.theory.planning.words import count, duration

    exact = made.exact
    updates = count(made.question.updates_per_day)
    rows = [
        (
            offer.name,
            duration(offer.schedule.generation_days) if offer.predictions else "–",
            count(offer.schedule.full_retrainings_per_day),
            count(offer.schedule.passes_per_day),
        )
        for offer in made.offers
    ]
    rows.append(("one model from scratch", "–", updates, count(exact.one_model_passes_per_day)))
    rows.append(("ensemble from scratch", "–", updates, count(exact.ensemble_passes_per_day)))
    show_table(
        "Work at this traffic",
        ["publishing", "a generation lasts", "full retrainings a day", "passes a day"],
        rows,
        caption="passes: over all records, by learners whose time grows linearly with their data. A generation that is "
        "used up makes the next update a full retraining.",
    )


def _tell_deletion(made: Plan) -> None:
    from expunge.theory.planning.words import chance, count, passes, percent

    cost, question = made.deletion, made.question
    _paragraph(
        "One deletion",
        [
            f"retrains {count(cost.expected_shards)} of {count(question.num_shards)} shards on average; at most "
            f"{count(cost.oblivious_shards)} if chosen in advance and {count(cost.adaptive_shards)} however chosen, "
            f"except with a chance of {chance(question.failure)}; all of them when the generation is used up.",
            f"A batch of {count(question.batch_size)} retrains {percent(cost.batch_share)} of the shards: "
            f"{passes(cost.passes_per_batch)} over all records. Training the ensemble: "
            f"{passes(cost.passes_per_training)}; one model: 1 pass.",
        ],
    )


def _paragraph(title: str, sentences: tuple[str, ...] | list[str]) -> None:
    console.print(f"\n[bold]{title}[/bold]")
    for sentence in sentences:
        say(sentence)
