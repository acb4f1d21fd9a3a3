"""A trial on the user's own data: what `expunge plan --data` measures, told verdict first and tables after."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.markup import escape

from expunge.cli.folders import as_threshold, make_fallback, make_learner, predicts_numbers, read_records
from expunge.cli.output import console, progress, say, show_json, show_table
from expunge.cli.report import about_answers, ended, kinds_of, show_scores, tell_method, tell_recalls
from expunge.core.errors import ExpungeError, ParameterError
from expunge.core.words import plural, spell_time

if TYPE_CHECKING:
    from expunge.core.guarantee import Guarantee
    from expunge.core.records import Records
    from expunge.serving.rehearsal import Rehearsal
    from expunge.tables import Labelled, Schema
    from expunge.training.choice import Choice
    from expunge.training.comparison import Candidate, Comparison

PROMISES = ("exact", "consensus", "router", "student")
_EXACT_LEARNERS = ("ridge-exact", "naive-bayes-exact")  # that answer quickly, too


@dataclass(frozen=True, slots=True)
class Table:
    """The records: a file, its columns with a use of their own, and what is to learn from it."""

    data: Path
    label: str | None
    id: str | None
    subject: str | None
    ignored: tuple[str, ...]
    declared: dict[str, str]
    learner: str
    options: dict[str, Any]
    threshold: tuple[str, float] | None

    @property
    def columns(self) -> dict[str, Any]:
        """The columns by role, and those whose kind is declared."""
        roles = {"label": self.label, "id": self.id, "subject": self.subject, "ignored": self.ignored}
        return {**roles, "declared": self.declared}


@dataclass(frozen=True, kw_only=True)
class Wishes:
    """What is wanted, and the traffic: the options of `expunge plan`."""

    promise: str
    num_shards: int | None
    probability: float | None
    target: Guarantee
    generations: int
    max_predictions: int
    predictions_per_day: float
    deletions_per_day: float
    batches_per_day: float
    tolerance: float
    minutes: float

    @property
    def updates_per_day(self) -> float:
        """Batches that have something to apply."""
        return min(self.deletions_per_day, self.batches_per_day)


def plan_on_data(table: Table, wishes: Wishes, *, plot: Path | None, as_json: bool) -> None:
    """Measure on the records, and print what to do and why."""
    from expunge.core.checks import require_number
    from expunge.theory.planning.plot import require_picture

    if wishes.promise not in PROMISES:
        raise ParameterError(f"--promise must be one of {', '.join(PROMISES)} with --data, got {wishes.promise!r}")
    for name in ("deletions_per_day", "batches_per_day", "predictions_per_day"):
        require_number(name, getattr(wishes, name), above=0)
    if plot is not None:
        if wishes.promise != "exact":
            raise ParameterError("--plot draws numbers of shards, which are compared for --promise exact")
        require_picture(plot)
    is_regression = predicts_numbers(table.learner, table.options)
    if table.threshold is not None and (is_regression or wishes.promise != "exact"):
        what = f"learner {table.learner!r} predicts numbers" if is_regression else "only labels are published here"
        raise ParameterError(f"--threshold is for classes and --promise exact, and {what}")
    if is_regression and wishes.promise != "exact":
        raise ParameterError(
            f"--promise {wishes.promise} is for classes, and learner {table.learner!r} predicts numbers"
        )
    schema, labelled = read_records(
        table.data, table.columns, one_class=False, float32=False, is_regression=is_regression
    )
    learner, takes_gaps = _make(table.learner, table.options, schema, labelled)
    records = _build(labelled, is_regression=is_regression, allow_missing=takes_gaps)
    kinds = kinds_of(schema)
    if wishes.promise == "exact":
        others, refused = _others(table, schema, labelled)
        _plan_exact(table, wishes, records, learner, others, refused, labelled, kinds, plot, as_json=as_json)
    else:
        _plan_consensus(wishes, records, learner, labelled, kinds, as_json=as_json)


def _make(name: str, options: dict[str, Any], schema: Schema, labelled: Labelled) -> tuple[Any, bool]:
    return make_learner(
        name,
        options=options,
        schema=schema,
        features=labelled.features,
        slices=1,
        allow_missing=False,
        on_failure="raise",
    )


def _build(labelled: Labelled, *, is_regression: bool, allow_missing: bool) -> Records:
    from expunge.core.records import Records

    return Records.build(
        labelled.features,
        labelled.labels,
        ids=labelled.ids,
        subjects=labelled.subjects,
        is_regression=is_regression,
        allow_missing=allow_missing,
        copy=False,
    )


def _others(table: Table, schema: Schema, labelled: Labelled) -> tuple[dict[str, Any], tuple[str, ...]]:
    """The learners that unlearn exactly and take this table; and why others do not."""
    found: dict[str, Any] = {}
    refused: list[str] = []
    for name in () if predicts_numbers(table.learner, table.options) else _EXACT_LEARNERS:
        if name == table.learner:
            continue
        try:
            found[name] = _make(name, {}, schema, labelled)[0]
        except ExpungeError as error:
            refused.append(f"{name}: {str(error).rstrip('.')}")
    return found, tuple(refused)


def _measured(wishes: Wishes, share: float, what: str, work: Any) -> Any:
    """Do work that is told the seconds it may take, with a progress bar in seconds."""
    seconds = 60 * wishes.minutes * share
    with progress(what, max(1, int(seconds))) as advance:
        return work(seconds, advance)


def _findings(kinds: dict[str, str], labelled: Labelled, num_shards: int, *, is_regression: bool) -> tuple[str, ...]:
    from expunge.training.findings import inspect_data

    return inspect_data(
        labelled.features, labelled.labels, num_shards=num_shards, kinds=kinds, is_regression=is_regression
    )


def _plan_exact(
    table: Table,
    wishes: Wishes,
    records: Records,
    learner: Any,
    others: dict[str, Any],
    refused: tuple[str, ...],
    labelled: Labelled,
    kinds: dict[str, str],
    plot: Path | None,
    *,
    as_json: bool,
) -> None:
    from expunge.training.choice import about_rare, choose
    from expunge.training.comparison import compare

    found = _measured(
        wishes,
        1.0,
        "measuring, in seconds",
        lambda seconds, advance: compare(
            records,
            learner,
            num_shards=None if wishes.num_shards is None else [1, wishes.num_shards],
            threshold=as_threshold(table.threshold, records.classes),
            others=others,
            helps_rare=True,
            seconds=seconds,
            advance=advance,
        ),
    )
    found = replace(found, skipped=(*found.skipped, *refused))
    choice = choose(
        found,
        deletions_per_day=wishes.deletions_per_day,
        batches_per_day=wishes.batches_per_day,
        tolerance=wishes.tolerance,
    )
    findings = _findings(kinds, labelled, wishes.num_shards or choice.num_shards, is_regression=records.is_regression)
    findings = (*findings, *about_answers(found, choice.num_shards))
    if plot is not None:
        _draw(plot, found, wishes, choice)
    if as_json:
        days = [each.day(wishes.deletions_per_day, wishes.batches_per_day) for each in found.candidates]
        show_json(
            {"recommendation": choice.to_dict(), "measured": found.to_dict(), "days": days, "findings": list(findings)}
        )
        return
    console.print(f"[bold]{choice.words}[/bold]")
    rare = about_rare(found)
    if rare:
        console.print("\n[bold]A rare class[/bold]")
        for sentence in rare:
            say(sentence)
    _tell_comparison(found, wishes, table.learner, choice.num_shards)
    _tell_findings(findings)
    if plot is not None:
        console.print(f"\nWork against accuracy is drawn in {plot}.", markup=False)


def _tell_comparison(found: Comparison, wishes: Wishes, learner: str, num_shards: int) -> None:
    console.print(f"\n[bold]How good the answers are[/bold] ({escape(learner)}, {plural(found.num_records, 'record')})")
    show_scores(found, found.candidates)
    tell_method(found)
    if (chosen := found.find(num_shards)) is not None:
        tell_recalls(chosen)
    console.print("\n[bold]What deletions cost[/bold], in processor time of training")
    show_table(
        None,
        [
            "answers by",
            "against one model",
            "train all",
            "a deletion",
            f"{wishes.deletions_per_day:,.10g} a day",
            "models",
        ],
        [_work(each, wishes) for each in found.candidates],
    )
    is_part = any(each.measured < each.num_shards for each in found.candidates)
    say(
        "against one model: accuracy (or R²), in points, on the same records. a day: deletions that are applied "
        f"together retrain a shard once; at most {wishes.batches_per_day:,.10g} times a day. A folder adds a few "
        "milliseconds."
    )
    if is_part:
        say("models: where only some of the shards were trained, for lack of time, all of them answer a little better.")
    if found.one is None:
        about = "an estimated " if found.is_estimated else ""
        say(f"One model on everything would take {about}{spell_time(found.refit)} to train.")
    for skipped in found.skipped:
        say(f"Not measured: {skipped}.")


def _work(each: Candidate, wishes: Wishes) -> list[str]:
    gap = each.against_one
    return [
        each.name,
        "–" if gap is None else f"{100 * gap.value:+.2f} ({100 * gap.low:+.2f} to {100 * gap.high:+.2f})",
        spell_time(each.training),
        spell_time(each.deletion),
        spell_time(each.day(wishes.deletions_per_day, wishes.batches_per_day)),
        f"{each.measured:,}" if each.measured == each.num_shards else f"{each.measured:,} of {each.num_shards:,}",
    ]


def _tell_findings(findings: Sequence[str]) -> None:
    if findings:
        console.print("\n[bold]Look at this[/bold]")
        for finding in findings:
            say(ended(f"{finding[0].upper()}{finding[1:]}"))


def _draw(path: Path, found: Comparison, wishes: Wishes, choice: Choice) -> None:
    """Draw the work of a day against accuracy, with intervals, and mark what is recommended."""
    from expunge.theory.planning.plot import save_picture
    from expunge.training.choice import options_for

    is_classes = bool(found.baseline.recalls)

    def draw(axes: Any) -> None:
        names: list[tuple[str, float, float]] = []
        for each in found.candidates:
            work = max(each.day(wishes.deletions_per_day, wishes.batches_per_day), 1e-4)
            score = each.scores.main
            is_chosen = (each.num_shards, each.learner) == (choice.num_shards, choice.learner)
            is_chosen = is_chosen and options_for(each) == choice.options
            colour = "#0B6E4F" if is_chosen else "#4C72B0" if not each.learner else "#8C8C8C"
            ends = [[score.value - score.low], [score.high - score.value]]
            axes.errorbar(
                [work], [score.value], yerr=ends, fmt="o", color=colour, capsize=3, markersize=8 if is_chosen else 5
            )
            name = f"k = {each.num_shards:,}" + f", {each.overlap} a record" * (each.overlap > 1)
            name += ", thresholds" * each.has_thresholds
            names.append((each.learner or name, work, score.high))
        axes.axhline(found.baseline.main.value, color="#999999", linewidth=1, linestyle=(0, (4, 3)))
        always = f"always {found.most_frequent}" if is_classes else "always the mean"
        place = (0.99, found.baseline.main.value)
        behind = {"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1}
        axes.annotate(
            always, place, xycoords=("axes fraction", "data"), fontsize=9, ha="right", va="bottom", bbox=behind
        )
        axes.set_xscale("log")
        low, high = axes.get_ylim()
        axes.set_ylim(low, high + 0.25 * (high - low))  # room for the names above the intervals
        _name_points(axes, names)
        axes.set_xlabel(
            f"seconds of processor time for {wishes.deletions_per_day:,.10g} deletions a day (less is better)"
        )
        axes.set_ylabel("accuracy, with 95% intervals" if is_classes else "R², with 95% intervals")
        axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
        for side in ("top", "right"):
            axes.spines[side].set_visible(False)
        axes.set_title(choice.words, loc="left", fontsize=10, wrap=True)

    save_picture(path, draw)


def _name_points(axes: Any, names: list[tuple[str, float, float]]) -> None:
    """Write a name above each point, upright; names of points that are close stand beside each other."""
    apart = _POINTS_APART * axes.figure.dpi / 72
    last = -apart
    for name, x, y in sorted(names, key=lambda each: each[1]):
        across = float(axes.transData.transform((x, y))[0])
        last = max(across, last + apart)
        axes.annotate(
            name,
            (x, y),
            xytext=((last - across) * 72 / axes.figure.dpi, 4),
            textcoords="offset points",
            fontsize=9,
            rotation=90,
            ha="center",
            va="bottom",
        )


_POINTS_APART = 12  # of two names


def _plan_consensus(
    wishes: Wishes, records: Records, learner: Any, labelled: Labelled, kinds: dict[str, str], *, as_json: bool
) -> None:
    from expunge.serving.promises import Consensus, Router
    from expunge.serving.rehearsal import SHARE_FOR_ONE, rehearse
    from expunge.training.comparison import compare

    limits: Any = {
        "target": wishes.target,
        "max_predictions": wishes.max_predictions,
        "max_generations": wishes.generations,
    }
    asks_router = wishes.promise == "router"
    promise = Router(fallback=make_fallback("ridge", kinds), **limits) if asks_router else Consensus(**limits)
    num_shards, chance = _sizes(wishes, records)
    one = _measured(
        wishes,
        SHARE_FOR_ONE,
        "measuring one model, in seconds",
        lambda seconds, advance: compare(records, learner, num_shards=[1], seconds=seconds, advance=advance),
    )
    with progress("training throw-away shards", num_shards) as advance:
        found = rehearse(
            records,
            learner,
            promise,
            num_shards=num_shards,
            inclusion_probability=chance,
            tries_student=wishes.promise == "student",
            seconds=60 * wishes.minutes * (1 - SHARE_FOR_ONE),
            advance=advance,
        )
    words = _judge(found, one, wishes)
    findings = _findings(kinds, labelled, 1, is_regression=False)
    if as_json:
        data = {"words": words, "rehearsal": found.to_dict(), "one_model": one.to_dict(), "findings": list(findings)}
        show_json(data)
        return
    console.print(f"[bold]{words[0]}[/bold]")
    for sentence in words[1:]:
        say(sentence)
    _tell_rehearsal(found, one, wishes)
    _tell_findings(findings)


def _sizes(wishes: Wishes, records: Records) -> tuple[int, float | None]:
    """k and p: as given, or as the planner advises for the target."""
    from expunge.theory.planning import recommend_shards

    if wishes.num_shards is not None:
        return wishes.num_shards, wishes.probability
    advice = recommend_shards(
        num_records=len(records),
        num_classes=records.num_classes,
        target=wishes.target,
        num_generations=wishes.generations,
        max_predictions=wishes.max_predictions,
    )
    return advice.num_shards, advice.inclusion_probability if wishes.probability is None else wishes.probability


_NAMES = {"consensus": "consensus", "router": "a router", "student": "a student"}


def _judge(found: Rehearsal, one: Comparison, wishes: Wishes) -> list[str]:
    """What to do, in one sentence, and then why."""
    words = found.verdict(
        one,
        predictions_per_day=wishes.predictions_per_day,
        deletions_per_day=wishes.deletions_per_day,
        batches_per_day=wishes.batches_per_day,
        tolerance=wishes.tolerance,
        name=_NAMES[wishes.promise],
        how=f" (--shards {found.num_shards} --probability {found.inclusion_probability:.3g})",
    )
    return [*words, *_told_router(found), *_told_student(found)]


def _told_router(found: Rehearsal) -> list[str]:
    router = found.router
    if router is None:
        return []
    if router.ensemble_share == 0:
        return [
            "A router would answer everything from its fallback, and ask the ensemble nothing. Then `--learner "
            "ridge-exact` gives the same answers without shards."
        ]
    return [
        f"A router would keep {1 - router.ensemble_share:.1%} of the queries to itself, and send the others to the "
        f"ensemble; {router.dirty_chance:.1%} of the generations would end before their time."
    ]


def _told_student(found: Rehearsal) -> list[str]:
    student = found.student
    if student is None:
        return []
    kept = ", ".join(f"{share:.0%} of {label}" for label, share in student.kept_of.items())
    told = [
        f"A student would learn from {student.kept:.1%} of a pool like these records ({kept}, by the ensemble's "
        f"answers), and answer like the ensemble {student.agreement:.1%} of the time."
    ]
    if student.scores.is_constant:
        label = max(student.scores.answered, key=lambda each: student.scores.answered[each])
        told.append(f"It would answer {label!r} to everything.")
    return told


def _tell_rehearsal(found: Rehearsal, one: Comparison, wishes: Wishes) -> None:
    """A table of scores, and how it was measured."""

    single = one.candidates[0]

    def row(name: str, scores: Any) -> Candidate:
        return replace(single, learner=name, scores=scores, num_shards=found.num_shards)

    rows = [row(f"{found.num_shards:,} shards, by vote", found.scores)]
    if found.router is not None:
        rows += [row("router", found.router.scores), row("its fallback alone", found.router.fallback)]
    if found.student is not None:
        rows.append(row("student", found.student.scores))
    console.print(f"\n[bold]How good the answers are[/bold] ({plural(len(found.vote_shares), 'held-out record')})")
    show_scores(one, [single, *rows])
    part = (
        ""
        if found.models == found.num_shards
        else f" {found.models:,} of {found.num_shards:,} shards voted, for lack of time."
    )
    say(
        "Throw-away shards were drawn with public coins: this says nothing about a deployment's key. In brackets: 95% "
        f"intervals.{part} One model and always {one.most_frequent} were asked about {one.tested:,} records."
    )
