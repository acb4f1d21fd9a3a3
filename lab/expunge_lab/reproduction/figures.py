"""The pictures: Figure 1 (six panels), Figure 2, N^t against its bounds, and α against predictions; PNG and SVG each.

Drawn without pyplot and without dates, so that the same results give the same files.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from expunge.core.errors import ParameterError
from expunge.core.files import write_whole
from expunge_lab.reproduction.files import make_folder
from expunge_lab.reproduction.report import Report
from expunge_lab.reproduction.rows import EXPERIMENTS, QUICK_EXPERIMENTS, Experiment
from expunge_lab.reproduction.verdicts import RowVerdict

_OURS, _PAPER, _CONTROL = "#0072B2", "#999999", "#D55E00"
# Okabe and Ito's palette, which colour-blind readers can tell apart.
_LINES = ("#0072B2", "#D55E00", "#009E73", "#E69F00", "#56B4E9", "#CC79A7", "#000000", "#666666")
# The order of the panels (a) to (f): k = 6 above, k = 2 below.
_PANELS = (EXPERIMENTS[0], EXPERIMENTS[2], EXPERIMENTS[4], EXPERIMENTS[1], EXPERIMENTS[3], EXPERIMENTS[5])


def draw_figure1(verdicts: Sequence[RowVerdict], folder: Path) -> list[Path]:
    """Accuracy after deletion against the indicator's expectation, ours over the paper's, a panel an experiment."""
    found = {verdict.row.experiment for verdict in verdicts}
    panels = [QUICK_EXPERIMENTS[0], QUICK_EXPERIMENTS[1]] if found <= set(QUICK_EXPERIMENTS) else list(_PANELS)
    rows, columns = (1, 2) if len(panels) == 2 else (2, 3)
    figure = _figure(width=4.4 * columns, height=3.8 * rows)
    for place, experiment in enumerate(panels):
        axes = figure.add_subplot(rows, columns, place + 1)
        _draw_panel(axes, experiment, [one for one in verdicts if one.row.experiment == experiment])
        axes.set_title(f"({'abcdef'[place]}) {experiment.title}", fontsize=11)
    drawn = next((axes for axes in figure.axes if axes.get_legend_handles_labels()[0]), None)
    if drawn is not None:
        drawn.legend(loc="best", frameon=False, fontsize=8)
    return _save(figure, folder, "figure1")


def _draw_panel(axes: Any, experiment: Experiment, verdicts: Sequence[RowVerdict]) -> None:
    axes.axvline(0.5, color="#444444", linewidth=0.8, linestyle="--")
    for place, verdict in enumerate(verdicts):
        paper = verdict.row.paper
        if paper is not None:
            middle = sum(paper.indicator) / 2
            _cross(axes, middle, paper.indicator, paper.after.mean, paper.after.interval, _PAPER, place, "paper")
        ours = verdict.indicator
        _cross(axes, ours.ours, ours.interval, verdict.after.ours, verdict.after.interval, _OURS, place, "ours")
        control, spread = verdict.control, verdict.control_accuracy
        label = "ours, full retraining"
        _cross(axes, control.rate, control.interval, spread.mean, spread.interval, _CONTROL, place, label, marker="s")
        axes.annotate(
            f"{verdict.row.noise_multiplier:g}",
            (ours.ours, verdict.after.ours),
            textcoords="offset points",
            xytext=(6, 6),
            fontsize=9,
            color=_OURS,
        )
    axes.set(xlabel="E[indicator]", ylabel="accuracy after deletion", xlim=(0.35, 1.02))
    _bare(axes)


def _cross(
    axes: Any,
    x: float,
    x_interval: Sequence[float],
    y: float,
    y_interval: Sequence[float],
    colour: str,
    place: int,
    label: str,
    marker: str = "o",
) -> None:
    """A point with intervals along both axes; named once a panel."""
    axes.errorbar(
        [x],
        [y],
        xerr=_reach(x, x_interval),
        yerr=_reach(y, y_interval),
        fmt=marker,
        markersize=4,
        linewidth=1,
        capsize=2,
        color=colour,
        label=label if place == 0 else None,
    )


def draw_figure2(report: Report, folder: Path) -> list[Path]:
    """Both arms' probability of the event against the number of deletions."""
    rows = report.data["rows"]
    figure = _figure(width=6.4, height=4.2)
    axes = figure.add_subplot()
    for arm, colour, label, shift in (
        ("unlearned", "#c0392b", "after the adaptive deletions", 0.97),
        ("retrained", "#2166ac", "after full retraining", 1.03),
    ):
        for place, row in enumerate(rows):
            rate, interval = row[arm]["rate"], row[arm]["interval"]
            axes.errorbar(
                [row["deletions"] * shift],
                [rate],
                yerr=_reach(rate, interval),
                fmt="o",
                capsize=4,
                color=colour,
                label=label if place == 0 else None,
            )
    axes.set_xscale("log", base=2)
    ticks = [row["deletions"] for row in rows]
    axes.set_xticks(ticks, [str(tick) for tick in ticks])
    axes.set(xlabel="deleted points", ylabel="probability of the event", ylim=(0, 1))
    axes.legend(frameon=False)
    _bare(axes)
    return _save(figure, folder, "figure2")


def draw_runtime(report: Report, folder: Path) -> list[Path]:
    """How many shards a deletion retrains, a panel a case, with the bounds as lines."""
    rows = report.data["rows"]
    figure = _figure(width=6.8, height=2.3 * len(rows))
    for place, row in enumerate(rows):
        axes = figure.add_subplot(len(rows), 1, place + 1)
        for arm, colour, shift in (("oblivious", _PAPER, -0.2), ("adaptive", _OURS, 0.2)):
            counts = row[arm]
            heights = [count / sum(counts) for count in counts]
            label = "chosen in advance" if arm == "oblivious" else "adaptive"
            axes.bar([value + shift for value in range(len(counts))], heights, width=0.4, color=colour, label=label)
        for name, colour, style in (
            ("oblivious, exact", _PAPER, "-"),
            ("adaptive, exact", _OURS, "-"),
            ("adaptive, as printed", _CONTROL, ":"),
        ):
            label = f"{name} (no bound)" if name.endswith("printed") else f"bound: {name}"
            axes.axvline(row["bounds"][name], color=colour, linestyle=style, label=label)
        axes.set_title(row["case"], fontsize=10, loc="left")
        axes.xaxis.get_major_locator().set_params(integer=True)
        axes.set_ylabel("share of trials")
        _bare(axes)
        if place == 0:
            axes.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.01, 0.5))
    axes.set_xlabel("shards that one deletion retrains")
    return _save(figure, folder, "runtime")


def draw_budget(report: Report, folder: Path) -> list[Path]:
    """α against the number of predictions, a panel a mechanism, a line a theorem."""
    cases = report.data["cases"]
    columns = 2
    rows = -(-len(cases) // columns)
    names = list(dict.fromkeys(curve["theorem"] for case in cases for curve in case["curves"]))
    figure = _figure(width=5.6 * columns, height=3.6 * rows)
    for place, case in enumerate(cases):
        axes = figure.add_subplot(rows, columns, place + 1)
        for curve in case["curves"]:
            style = "-" if curve["standing"] == "certified" else "--" if curve["standing"] == "comparison" else ":"
            colour = _LINES[names.index(curve["theorem"]) % len(_LINES)]
            marker = "o" if len(case["curves"]) == 1 else None
            axes.plot(curve["predictions"], curve["alphas"], style, color=colour, marker=marker, label=curve["theorem"])
        axes.axhline(1, color="#444444", linewidth=0.8, linestyle="--")
        axes.set_xscale("log")
        axes.set_yscale("log")
        axes.set(xlabel="predictions in a generation", ylabel="α", ylim=(1e-3, 1e3), title=case["title"])
        axes.legend(frameon=False, fontsize=7)
        _bare(axes)
    return _save(figure, folder, "budget")


DRAWN: dict[str, Callable[[Report, Path], list[Path]]] = {
    "figure2": draw_figure2,
    "runtime": draw_runtime,
    "budget": draw_budget,
}


def _reach(middle: float, interval: Sequence[float]) -> list[list[float]]:
    """Distances to both ends, as matplotlib wants them."""
    return [[max(0.0, middle - interval[0])], [max(0.0, interval[1] - middle)]]


def _bare(axes: Any) -> None:
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    axes.grid(True, color="#EEEEEE", linewidth=0.6)
    axes.set_axisbelow(True)


def _figure(*, width: float, height: float) -> Any:
    """Matplotlib's Figure, without pyplot: no global state and no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError("figures need matplotlib, which is not installed: pip install 'expunge[plot]'") from None
    return Figure(figsize=(width, height), dpi=150, layout="constrained")


def _save(figure: Any, folder: Path, name: str) -> list[Path]:
    import matplotlib

    drawn = {"png": io.BytesIO(), "svg": io.BytesIO()}
    # Neither a date nor random ids: equal pictures are equal files.
    with matplotlib.rc_context({"svg.hashsalt": "expunge"}):
        figure.savefig(drawn["png"], format="png", metadata={"Software": None})
        figure.savefig(drawn["svg"], format="svg", metadata={"Date": None})
    make_folder(folder)
    return [write_whole(folder / f"{name}.{ending}", picture.getvalue()) for ending, picture in drawn.items()]
