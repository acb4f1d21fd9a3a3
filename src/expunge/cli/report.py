"""The report: how good the answers are and what looks wrong in the data. `create` measures it, `status` repeats it.

It is measured on throw-away models with public coins, so it says nothing about the recipe key, and may be shown under
every promise. It is a function of the first records, and stays as it was measured at creation.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from expunge.cli.output import console, progress, say, show_table
from expunge.core.errors import ExpungeError
from expunge.core.words import plural

if TYPE_CHECKING:
    from expunge.core.records import Records
    from expunge.tables import Schema
    from expunge.training.choice import Choice
    from expunge.training.comparison import Candidate, Comparison
    from expunge.training.scores import Score, Scores

DEFAULT_MINUTES = 0.2
"""How long `create` measures, at most about."""
_MOST_CLASSES = 6  # with more, their recalls are no columns
_MOST_NAMED = 3  # classes of which hardly any are found
_LEAST_FOUND = 5  # classes, in a sentence
_FEWEST_RECALLED = 0.05  # below it a class is as good as never answered


def kinds_of(schema: Schema) -> dict[str, str]:
    """What each column that a learner gets was made of, by its name."""
    return {column: feature.kind for feature in schema.features for column in feature.columns}


def measure_report(
    records: Records,
    learner: Any,
    features: Any,
    labels: Any,
    *,
    kinds: dict[str, str] | None,
    num_shards: int | None,
    sampler: Any,
    by_votes: bool,
    combination: Any,
    threshold: tuple[Any, float] | None,
    minutes: float,
) -> dict[str, Any]:
    """Measure the report for a new deployment; choose the number of shards too if it is None.

    A measurement of given shards that fails, or is interrupted, is told in the report, and stops nothing.
    """
    from expunge.training.choice import choose_shards
    from expunge.training.comparison import compare
    from expunge.training.findings import inspect_data

    made: dict[str, Any] = {"sampler": sampler, "by_votes": by_votes, "combination": combination}
    made |= {"threshold": threshold, "seconds": 60 * minutes}
    choice: Choice | None = None
    found: Comparison | None = None
    reason = "" if minutes else "not wanted (--minutes 0)"
    steps = max(1, int(60 * minutes))
    if num_shards is None:
        with progress("choosing the number of shards, in seconds", steps) as advance:
            choice, found = choose_shards(records, learner, advance=advance, **made)
    elif minutes:
        try:
            with progress("measuring throw-away models, in seconds", steps) as advance:
                found = compare(records, learner, num_shards=[1, num_shards], advance=advance, **made)
        except ExpungeError as error:
            reason = str(error)
        except KeyboardInterrupt:
            reason = "interrupted"
    shards = choice.num_shards if choice is not None else num_shards or 1
    findings = inspect_data(features, labels, num_shards=shards, kinds=kinds, is_regression=records.is_regression)
    return {
        "num_shards": shards,
        "by_votes": by_votes,
        "choice": None if choice is None else choice.to_dict(),
        "measured": None if found is None else found.to_dict(),
        "not_measured": reason,
        "findings": [*findings, *(about_answers(found, shards) if found is not None else ())],
    }


def about_answers(found: Comparison, num_shards: int) -> Iterator[str]:
    """What looks wrong in the answers."""
    own, one = found.find(num_shards), found.one
    if own is None or not own.scores.recalls:
        return
    if own.scores.is_constant:
        label = max(own.scores.answered, key=lambda each: own.scores.answered[each])
        yield f"every answer is {label!r}: the model says nothing about the other classes"
        return
    poor = {label: score.value for label, score in own.scores.recalls.items() if score.value < _FEWEST_RECALLED}
    if len(poor) > _MOST_NAMED:
        names = ", ".join(map(repr, [*poor][:_MOST_NAMED]))
        yield f"of {len(poor):,} classes ({names}, …) fewer than {_FEWEST_RECALLED:.0%} are found"
        return
    for label, recall in poor.items():
        found_by_one = "" if one is None or one is own else f"; one model finds {one.scores.recalls[label].value:.1%}"
        share = f"only {recall:.1%}" if recall else "none"
        yield f"of class {label!r} {share} are found{found_by_one}"


def tell_report(report: dict[str, Any] | None, *, as_of: str = "") -> None:
    """Print the report: a table of scores, and the findings."""
    if report is None:
        return
    console.print(f"\n[bold]How good it is[/bold]{as_of}")
    if report["measured"] is None:
        say(f"not measured: {report['not_measured'] or 'there are too few records'}")
    else:
        found = read_comparison(report["measured"])
        own = found.find(report["num_shards"])
        others = [own] if own is not None else []
        if found.one is not None and found.one is not own:
            others.append(found.one)
        show_scores(found, others)
        tell_method(found)
        if others:
            tell_recalls(others[0])
        if report["by_votes"]:
            say("Answers are the plurality of votes: what noise, a router or a student changes was not measured.")
        for skipped in found.skipped if report["choice"] is None else ():
            say(f"not measured: {skipped}")
    for finding in report["findings"]:
        say(f"Look at this: {ended(finding)}")


_EXACT_LEARNERS = {
    "RidgeFallback": "ridge-exact",
    "GaussianNaiveBayes": "naive-bayes-exact",
    "NearestNeighbours": "neighbours-exact",
}


def tell_figures(figures: dict[str, Any]) -> None:
    """Print how the router or the student of this round turned out: it does not depend on the key."""
    if router := figures.get("router"):
        _tell_router(router)
    if student := figures.get("student"):
        _tell_student(student)


def _tell_router(router: dict[str, Any]) -> None:
    share = router["ensemble_share"]
    if share is None:
        return
    console.print("\n[bold]The router[/bold], as calibrated for this round")
    if share:
        say(
            f"About {share:.1%} of the queries go to the ensemble, if they are like the records; the fallback answers "
            "the others."
        )
        return
    learner = _EXACT_LEARNERS.get(router["fallback"], "ridge-exact")
    say(
        "The fallback answers everything: on no part of the queries do the shards agree surely enough. Then use "
        f"--learner {learner} with the exact promise: a model of the same kind, without shards and without limits."
    )


def _tell_student(student: dict[str, Any]) -> None:
    console.print("\n[bold]The student[/bold] of this round, on its pool")
    rows = [*zip(*(student[name] for name in ("classes", "pool", "kept", "answered")), strict=True)]
    given = ", ".join(f"{label} {kept:,} of {many:,}" for label, many, kept, _ in rows[:_MOST_CLASSES])
    more = f", and {len(rows) - _MOST_CLASSES:,} more classes" if len(rows) > _MOST_CLASSES else ""
    say(f"It learned from {student['share_kept']:.1%} of {student['size']:,} points ({given}{more}).")
    says = ", ".join(f"{label} {many / student['size']:.1%}" for label, _, _, many in rows[:_MOST_CLASSES])
    say(f"It agrees with the shards on {student['agreement']:.1%}, and answers {says}{more}.")
    if student["fault"]:
        say(f"Look at this: it is of no use now, because {student['fault']}.")


def ended(sentence: str) -> str:
    """A sentence with a mark at its end."""
    return sentence if sentence.endswith("?") else f"{sentence}."


def read_comparison(data: dict[str, Any]) -> Comparison:
    """The comparison from plain data."""
    from expunge.training.comparison import Candidate, Comparison
    from expunge.training.scores import Score, Scores

    def candidate(each: dict[str, Any]) -> Candidate:
        against = each["against_one"]
        scores = Scores.from_dict(each["scores"])
        return Candidate(**{**each, "scores": scores, "against_one": None if against is None else Score(**against)})

    return Comparison(
        **{
            **data,
            "candidates": tuple(map(candidate, data["candidates"])),
            "baseline": Scores.from_dict(data["baseline"]),
            "skipped": tuple(data["skipped"]),
        }
    )


def tell_method(found: Comparison) -> None:
    """Print how the scores were measured."""
    from expunge.training.folds import FOLDS

    parts = "one fifth" if found.folds == 1 else f"each of {found.folds} fifths in turn"
    asked = "" if found.tested > 0.9 * found.num_records * found.folds / FOLDS else ", some of those held out"
    say(
        f"Measured on {plural(found.tested, 'record')} that the throw-away models had not seen{asked}: {parts} is held "
        "out, with all records of a person together, and the models are trained on the other four."
    )
    mean = " F1 is the mean over the classes." if found.baseline.recalls else ""
    say(f"In brackets: 95% intervals.{mean}")


def tell_recalls(candidate: Candidate) -> None:
    """Print which classes are found least, if they are too many for the table."""
    recalls = candidate.scores.recalls
    if len(recalls) > _MOST_CLASSES:
        least = sorted(recalls, key=lambda label: recalls[label].value)[:_LEAST_FOUND]
        named = ", ".join(f"{label} {_cell(recalls[label], is_share=True)}" for label in least)
        say(f"The share that is found is least for these of the {len(recalls):,} classes: {named}.")


def show_scores(found: Comparison, candidates: Sequence[Candidate], *, more: Sequence[tuple[str, Any]] = ()) -> None:
    """A table with a row for each candidate and one for the baseline; `more` are columns, made from candidates."""
    first = found.baseline
    is_classes = bool(first.recalls)
    labels = list(first.recalls) if len(first.recalls) <= _MOST_CLASSES else []
    has_area = any(each.scores.auc for each in candidates)
    columns = ["answers by", "accuracy" if is_classes else "R²"]
    columns += ["AUC"] * has_area + ["F1"] * is_classes + [f"finds {label}" for label in labels]

    def cells(scores: Scores) -> list[str]:
        row = [_cell(scores.main, is_share=is_classes)]
        row += ["–" if scores.auc is None else _cell(scores.auc, is_share=False)] * has_area
        row += ["–" if scores.f1 is None else _cell(scores.f1, is_share=False)] * is_classes
        return row + [_cell(scores.recalls[label], is_share=True) for label in labels]

    always = f"always {found.most_frequent}" if is_classes else "always the mean"
    rows = [[each.name, *cells(each.scores), *(str(make(each)) for _, make in more)] for each in candidates]
    rows.append([always, *cells(first), *("–" for _ in more)])
    show_table(None, [*columns, *(name for name, _ in more)], rows)


def _cell(score: Score, *, is_share: bool) -> str:
    if is_share:
        return f"{100 * score.value:.1f}% ({100 * score.low:.1f}–{100 * score.high:.1f})"
    return f"{score.value:.3f} ({score.low:.3f}–{score.high:.3f})"
