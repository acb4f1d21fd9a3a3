"""`docs/reproduction.md`: the paper's table with ours beside it, the figures, and the other experiments."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from textwrap import wrap

from expunge.core.errors import InputError
from expunge.core.files import write_whole
from expunge_lab.reproduction.figures import DRAWN, draw_figure1
from expunge_lab.reproduction.report import Report, interval_words, markdown_table
from expunge_lab.reproduction.results import RowResults, Run
from expunge_lab.reproduction.rows import Spread
from expunge_lab.reproduction.trials import Accuracy
from expunge_lab.reproduction.verdicts import (
    DEFAULT_ACCURACY,
    NUM_TESTS,
    SIGNIFICANCE,
    Balance,
    RowVerdict,
    Verdict,
    judge,
)

REPORTS = ("figure2", "theorem-5.1", "runtime", "budget")
NOTES = "notes.md"
_WANTED_ROWS = 22
_WHOSE: dict[Accuracy, str] = {
    "voted": "the ensemble's majority vote (the lowest class among equals)",
    "averaged": "the class with the highest mean probability over the ensemble's models",
    "models": "the ensemble's models, on average",
}

_HEAD = """# The paper's experiments, repeated

Made by `{command}` from the files in `{results}`; the commands that made those are below.

## The white-box table (Section 5.2)

{state}

Every trial draws a fresh partition, except where a column says "released partition". (The paper's released code draws
one for all trials, so that its indicator is off ½ before anything is deleted.) The control arm is full retraining on
the survivors with fresh randomness; its indicator must be at ½. Accuracies and shard prediction accuracy are mean ± 2
standard deviations over trials, indicators exact 95% intervals. The p-values, of the exact test against ½, leave out
ties (trials in which both halves are exactly as accurate), which the indicators count as 0. A verdict says whether our
estimate lies in the paper's interval, otherwise how far above or below it, and `apart` if even the two intervals have
nothing in common.
"""


@dataclass(frozen=True)
class TablePage:
    """The rows done so far, and all results that they come from.

    `released` holds results of the same rows with the partition and the keys of the paper's released code, as far as
    they were run.
    """

    results: Sequence[RowResults]
    num_trials: int
    accuracy: Accuracy = DEFAULT_ACCURACY
    released: Sequence[RowResults] = ()

    @property
    def verdicts(self) -> list[RowVerdict]:
        """Verdicts on the rows that have at least two trials, in the order of the table."""
        return self._judge(self.results)

    @property
    def released_verdicts(self) -> dict[str, RowVerdict]:
        """The same with the released code's partition and keys, by the row's name."""
        return {verdict.row.name: verdict for verdict in self._judge(self.released)}

    def _judge(self, results: Sequence[RowResults]) -> list[RowVerdict]:
        found = ((one.row, one.first(self.num_trials)) for one in results)
        return [
            judge(row, trials, accuracy=self.accuracy)
            for row, trials in found
            if trials is not None and len(trials) > 1
        ]

    @property
    def is_complete(self) -> bool:
        """All trials of all rows."""
        return not any(results.missing(self.num_trials) for results in self.results)

    @property
    def runs(self) -> list[tuple[str, Run]]:
        """Every row's runs."""
        return [(results.row.name, run) for results in (*self.results, *self.released) for run in results.runs]


def write_page(
    path: Path, table: TablePage, reports: Sequence[Report], *, notes: str, command: str, results: str
) -> list[Path]:
    """The page and its figures, which go into the folder `figures` beside it."""
    if not path.absolute().parent.is_dir():
        raise InputError(f"there is no folder {str(path.parent)!r} to write the page to")
    verdicts = table.verdicts
    if not verdicts and any(results.num_trials for results in table.results):
        raise InputError(f"no row has two of its first {table.num_trials} trials, so there is no table to show")
    if not verdicts and not reports:
        raise InputError(f"there are no results in {results!r} to make a page of")
    figures = path.parent / "figures"
    written = [path]
    if verdicts:
        written += draw_figure1(verdicts, figures)
    for report in reports:
        if report.name in DRAWN:
            written += DRAWN[report.name](report, figures)
    write_whole(path, to_markdown(table, reports, notes=notes, command=command, results=results).encode())
    return written


def to_markdown(table: TablePage, reports: Sequence[Report], *, notes: str, command: str, results: str) -> str:
    """The page's text."""
    verdicts = table.verdicts
    parts = [_HEAD.format(command=command, results=results, state=describe(table))]
    if verdicts:
        parts += [f"\n### Accuracies\n\nOf {_WHOSE[table.accuracy]}.\n\n", accuracy_table(verdicts)]
        released = table.released_verdicts
        parts += ["\n### Indicators\n\n", indicator_table(verdicts, released)]
        if released:
            parts += ["\n", compare_released(verdicts, released)]
        parts += ["\n### Figure 1\n\n", "![the six panels](figures/figure1.svg)\n"]
        parts += [disagreements(verdicts)]
    if notes:
        parts += ["\n### Notes\n\n", notes.strip(), "\n"]
    parts += [_report(report) for report in reports]
    if table.runs:
        parts += ["\n## Runs of the table\n\n", _runs(table)]
    return "".join(parts)


def describe(table: TablePage) -> str:
    """How far the table is, and how it compares, in sentences."""
    verdicts = table.verdicts
    done = sum(not results.missing(table.num_trials) for results in table.results)
    trials = f"{done} of {len(table.results)} rows are done, with {table.num_trials} trials each"
    if begun := sum(verdict.trials < table.num_trials for verdict in verdicts):
        trials += f", and {begun} {'has' if begun == 1 else 'have'} fewer"
    if earlier := sum(not results.is_current for results in table.results):
        trials += f"; {earlier} were run with an earlier form of the attack and have to be run again"
    if not verdicts:
        return f"{trials}."
    shown = f"{len(verdicts)} rows" if done == len(table.results) else f"the {len(verdicts)} rows that have trials"
    even = sum(verdict.control.is_consistent for verdict in verdicts)
    num_tests = verdicts[0].control.num_tests
    seconds = sum(results.seconds for results in table.results)
    return (
        f"{trials}. {_compare(verdicts, shown)}The control arm's indicator is consistent with ½ in {even} of {shown} "
        f"(exact two-sided test without ties, at {SIGNIFICANCE:g}/{num_tests} a row, for a table of {num_tests} rows). "
        f"Time for both arms of all rows: {seconds / 60:.1f} minutes, the sum of the batches' times (compilation "
        "included; starting and loading the data not)."
    )


def _compare(verdicts: Sequence[RowVerdict], shown: str) -> str:
    """A sentence about rows that the paper has; none for stand-ins."""
    if any(verdict.row.paper is None for verdict in verdicts):
        return ""
    good = sum(verdict.has_accuracies for verdict in verdicts)
    indicators = sum(verdict.indicator.is_inside for verdict in verdicts)
    return (
        f"In {good} of {shown} accuracy before, accuracy after and shard prediction accuracy are all "
        f"inside the paper's intervals (wanted: {_WANTED_ROWS} of {NUM_TESTS}); the indicator is in {indicators}. "
    )


def accuracy_table(verdicts: Sequence[RowVerdict]) -> str:
    """Accuracy before and after, and shard prediction accuracy."""
    columns = ["row", "trials"]
    for name in ("before", "after", "shard pred."):
        columns += [f"{name}: paper", "ours", "verdict"]
    columns += ["control arm"]
    rows = []
    for one in verdicts:
        paper = one.row.paper
        cells = [one.row.title, str(one.trials)]
        printed = (None, None, None) if paper is None else (paper.before, paper.after, paper.shard)
        for theirs, ours in zip(printed, (one.before, one.after, one.shard), strict=True):
            cells += ["–" if theirs is None else _spread(theirs), _ours(ours), ours.words]
        rows.append([*cells, _spread(one.control_accuracy)])
    return markdown_table(columns, rows)


def indicator_table(verdicts: Sequence[RowVerdict], released: Mapping[str, RowVerdict] | None = None) -> str:
    """The indicator after the attack, before any deletion, and after full retraining.

    Parameters
    ----------
    verdicts
        The rows, with a fresh partition in every trial.
    released
        Verdicts with the released code's partition and keys, by the row's name. They get columns of their own, unless
        there are none.

    Returns
    -------
    str
        A Markdown table.
    """
    columns = ["row", "paper", "ours", "verdict"]
    if released:
        columns += ["ours, released partition", "verdict"]
    columns += ["before any deletion", "p", "full retraining (control)", "p", "at ½"]
    rows = []
    for one in verdicts:
        cells = [one.row.title, "–" if one.row.paper is None else interval_words(one.row.paper.indicator)]
        cells += _indicator(one)
        if released:
            cells += _indicator(released[one.row.name]) if one.row.name in released else ["not run", "–"]
        cells += [*_balance(one.indicator_before), *_balance(one.control), "yes" if one.control.is_consistent else "NO"]
        rows.append(cells)
    return markdown_table(columns, rows)


def compare_released(verdicts: Sequence[RowVerdict], released: Mapping[str, RowVerdict]) -> str:
    """Sentences about the rows that were also run with the released code's partition and keys.

    Parameters
    ----------
    verdicts
        The rows, with a fresh partition in every trial.
    released
        The rows with the released partition, by name.

    Returns
    -------
    str
        One paragraph.
    """
    rows = list(released.values())
    accurate = sum(one.has_accuracies for one in rows)
    inside = sum(one.indicator.is_inside for one in rows)
    even = sum(one.control.is_consistent for one in rows)
    uneven = sum(one.indicator_before.p_value < SIGNIFICANCE for one in rows)
    trials = sorted({one.trials for one in rows})
    each = f"{trials[0]}" if len(trials) == 1 else f"{trials[0]} to {trials[-1]}"
    text = (
        f"*Released partition*: all trials of a row use the partition and the keys of the paper's released code "
        f"(`--fixed-partition`). {len(rows)} of {len(verdicts)} rows were run that way, with {each} trials each. "
        "Accuracy before, accuracy after and shard prediction accuracy are all inside the paper's intervals in "
        f"{accurate} of {len(rows)}; the indicator is in {inside} of {len(rows)}"
    )
    distances = sorted(abs(one.indicator.distance) for one in rows if not one.indicator.is_inside)
    if distances:
        text += f" (the others are outside by {distances[0]:.3f} to {distances[-1]:.3f})"
    text += (
        f". The control arm's indicator is consistent with ½ in {even} of {len(rows)}. Before any deletion the "
        f"indicator is off ½ at p < {SIGNIFICANCE:g} in {uneven} of {len(rows)}."
    )
    apart = [one for one in verdicts if one.indicator.lies_apart and one.row.name in released]
    if apart:
        now = [released[one.row.name] for one in apart]
        settled = [one for one in now if one.indicator.is_inside]
        listed = "; ".join(f"{one.row.title}: {one.indicator.ours:.3f}" for one in settled)
        text += (
            f" Of the {len(apart)} rows whose indicator is `apart` with fresh partitions, {len(settled)} are inside "
            f"with the released one{f' ({listed})' if listed else ''}."
        )
    return "\n".join(wrap(text, 120, break_long_words=False, break_on_hyphens=False)) + "\n"


def disagreements(verdicts: Sequence[RowVerdict]) -> str:
    """Rows that disagree beyond both intervals."""
    lines = [f"- {one.row.title}: {', '.join(one.disagreements)}\n" for one in verdicts if one.disagreements]
    if not lines:
        return "\nNo row disagrees with the paper beyond both intervals.\n"
    return "\nRows that disagree with the paper beyond both intervals:\n\n" + "".join(lines)


def _report(report: Report) -> str:
    picture = f"\n![{report.title}](figures/{report.name}.svg)\n" if report.name in DRAWN else ""
    made = f"\nMade by `{report.command}` on {report.date}, in {report.seconds:.0f} s.\n"
    return f"\n## {report.title}\n\n{report.about}\n\n{report.to_markdown()}{picture}{made}"


def _runs(table: TablePage) -> str:
    rows = [
        [name, run.started, str(run.num_trials), f"{run.seconds:.0f}", run.device, f"`{run.command}`", run.versions]
        for name, run in table.runs
    ]
    return markdown_table(["row", "started", "trials", "seconds", "device", "command", "versions"], rows)


def _indicator(one: RowVerdict) -> list[str]:
    return [f"{one.indicator.ours:.3f} {interval_words(one.indicator.interval)}", one.indicator.words]


def _ours(verdict: Verdict) -> str:
    return _spread(Spread(verdict.ours, verdict.interval[1] - verdict.ours))


def _spread(spread: Spread) -> str:
    return f"{spread.mean:.3f} ± {spread.two_deviations:.3f}"


def _balance(balance: Balance) -> list[str]:
    return [f"{balance.rate:.3f} {interval_words(balance.interval)}", f"{balance.p_value:.2g}"]
