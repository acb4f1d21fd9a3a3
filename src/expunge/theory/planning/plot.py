"""A picture of the bounds: α against the number of predictions in a generation, one line for each theorem."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import Any, Final

import numpy as np

from expunge.core.errors import ParameterError
from expunge.core.guarantee import SMALLEST_EVENT, Guarantee
from expunge.privacy.accounting import Event
from expunge.theory import all_bounds, max_predictions
from expunge.theory.planning.offer import Standing, TheoremLimit
from expunge.theory.planning.planner import Plan
from expunge.theory.planning.ways import (
    DESCRIPTION_LENGTH,
    PAPER,
    ROGERS,
    count_outcomes,
    published_limits,
    theorem_limits,
)
from expunge.theory.planning.words import count

_NUM_POINTS: Final = 60
_NUM_LEVELS: Final = 200
_HIGHEST_LEVEL: Final = 1e3
_LOWEST_LEVEL: Final = 1e-4


@dataclass(frozen=True, slots=True)
class Curve:
    """α by one theorem at increasing numbers of predictions; `limit` is how many are within the target.

    `standing` is that of the theorem itself: "certified" for all that are proved here, used by deployments or not.
    """

    theorem: str
    standing: Standing
    limit: int
    predictions: tuple[int, ...]
    alphas: tuple[float, ...]


@dataclass(frozen=True, kw_only=True)
class Bounds:
    """What is drawn: predictions of one kind at one target."""

    event: Event
    num_shards: int
    target: Guarantee
    num_generations: int
    num_outcomes: int

    @property
    def vacuous_alpha(self) -> float:
        """The α from which on a guarantee with the target's β is vacuous."""
        return math.log1p(-self.target.beta) - math.log(SMALLEST_EVENT)

    def curves(self) -> list[Curve]:
        """One curve for each theorem that has a finite α; mutual information has none (its α is 0, its β grows)."""
        limits = theorem_limits(
            self.event,
            num_shards=self.num_shards,
            target=self.target,
            num_generations=self.num_generations,
            num_outcomes=self.num_outcomes,
        )
        published = [limit for limit in limits if limit.theorem in (ROGERS, PAPER)]
        proved = [replace(limit, standing="certified") for limit in limits if limit not in published]
        found = [self._proved(proved), self._published(published)]
        return [curve for curves in found for curve in curves if curve.predictions]

    @cached_property
    def widest(self) -> int:
        """A number of predictions well beyond the last one that can be certified."""
        loosest = Guarantee(max(self.vacuous_alpha, self.target.alpha), self.target.beta, self.target.gamma)
        last = max_predictions(
            loosest,
            event=self.event,
            num_shards=self.num_shards,
            num_generations=self.num_generations,
            num_outcomes=self.num_outcomes,
        )
        return int(min(max(100, 10 ** math.ceil(math.log10(5 * last + 1))), 10**12))

    def _proved(self, limits: list[TheoremLimit]) -> list[Curve]:
        counts = sorted({int(count) for count in np.geomspace(1, self.widest, _NUM_POINTS)})
        points: dict[str, list[tuple[int, float]]] = {}
        for size in counts:
            for bound in all_bounds(
                {self.event: size},
                num_shards=self.num_shards,
                beta=self.target.beta,
                gamma=self.target.gamma,
                num_generations=self.num_generations,
                num_outcomes=self.num_outcomes,
            ):
                if 0 < bound.alpha < math.inf:
                    points.setdefault(bound.theorem, []).append((size, bound.alpha))
        return [_curve(limit, points.get(limit.theorem, [])) for limit in limits]

    def _published(self, limits: list[TheoremLimit]) -> list[Curve]:
        """The curves of the literature's statements, from the most predictions at each α."""
        points: dict[str, list[tuple[int, float]]] = {}
        for alpha in np.geomspace(_LOWEST_LEVEL, _HIGHEST_LEVEL, _NUM_LEVELS):
            target = Guarantee(float(alpha), self.target.beta, self.target.gamma)
            for limit in published_limits(
                self.event, num_shards=self.num_shards, target=target, num_generations=self.num_generations
            ):
                if limit.predictions > 0:
                    # What is within reach at this α includes all smaller numbers; each number at its smallest α.
                    so_far = points.setdefault(limit.theorem, [(1, target.alpha)])
                    if limit.predictions > so_far[-1][0]:
                        so_far.append((limit.predictions, target.alpha))
        return [_curve(limit, points.get(limit.theorem, [])) for limit in limits]


def _curve(limit: TheoremLimit, points: list[tuple[int, float]]) -> Curve:
    predictions = tuple(count for count, _ in points)
    alphas = tuple(alpha for _, alpha in points)
    return Curve(limit.theorem, limit.standing, limit.predictions, predictions, alphas)


_SUFFIXES: Final = (".png", ".svg")
_OTHER: Final = ("#000000", "-")
# A palette that colour-blind readers can tell apart (Okabe and Ito): a theorem has the same colour in every picture.
_STYLES: Final = {
    "T1 (pure DP)": ("#0072B2", "-"),
    "T2 (zCDP)": ("#D55E00", "-"),
    "T2 (Gaussian DP)": ("#CC79A7", "-"),
    "T3 (zCDP, few shards)": ("#009E73", "-"),
    DESCRIPTION_LENGTH: ("#E69F00", "-"),
    ROGERS: ("#56B4E9", "--"),
    PAPER: ("#777777", ":"),
}
_REMARKS: Final = {
    PAPER: "\n(illustrative, not a bound)",
    DESCRIPTION_LENGTH: "\n(not what a deployment certifies)",
}


def plot_plan(path: str | PathLike[str], plan: Plan) -> Path:
    """Draw `plot_bounds` for the mechanism that a plan prefers, or for its first one if it prefers none.

    Parameters
    ----------
    path
        The file to write: PNG or SVG, by its suffix.
    plan
        The plan.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ParameterError
        If the suffix is another one, matplotlib is missing, or the file cannot be written.
    """
    offers = [offer for offer in (plan.best, *plan.offers) if offer is not None]
    offer, mechanism = next((offer, offer.mechanism) for offer in offers if offer.mechanism is not None)
    question = plan.question
    return plot_bounds(
        path,
        event=mechanism.event,
        num_shards=question.num_shards,
        target=question.target,
        num_generations=question.num_generations,
        num_outcomes=count_outcomes(mechanism, question),
        subject=f"{offer.name}, {offer.noise}",
    )


def plot_bounds(
    path: str | PathLike[str],
    *,
    event: Event,
    num_shards: int,
    target: Guarantee,
    num_generations: int = 1,
    num_outcomes: int = 2,
    subject: str = "",
) -> Path:
    """Draw α against the number of predictions, for each theorem at the target's β and γ.

    Needs matplotlib (the extra `expunge[plot]`). Mutual information is left out: its α is always 0 and its β grows
    instead.

    Parameters
    ----------
    path
        The file to write: PNG or SVG, by its suffix.
    event
        What one prediction costs.
    num_shards
        k, the number of shards.
    target, num_generations
        The wanted (α,β,γ) over G generations.
    num_outcomes
        How many answers are possible.
    subject
        What the predictions are, for the title.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ParameterError
        If the suffix is another one, matplotlib is missing, or the file cannot be written.
    """
    require_picture(path)
    bounds = Bounds(
        event=event,
        num_shards=num_shards,
        target=target,
        num_generations=num_generations,
        num_outcomes=num_outcomes,
    )
    return save_picture(path, lambda axes: _draw(axes, bounds, subject))


def require_picture(path: str | PathLike[str]) -> None:
    """Refuse a picture that could not be drawn or written, before the work for it is done.

    Parameters
    ----------
    path
        The file to write.

    Raises
    ------
    ParameterError
        If the suffix is neither .png nor .svg, there is no such folder, or matplotlib is missing.
    """
    file = Path(path)
    if file.suffix.lower() not in _SUFFIXES:
        raise ParameterError(f"a plot must be a .png or .svg file, got {str(path)!r}")
    if not file.absolute().parent.is_dir():
        raise ParameterError(f"the plot cannot be written to {str(path)!r}: there is no such folder")
    _figure_class()


def save_picture(path: str | PathLike[str], draw: Callable[[Any], None]) -> Path:
    """Draw a picture into a PNG or SVG file.

    Parameters
    ----------
    path
        The file to write.
    draw
        Draws on matplotlib's axes.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    ParameterError
        If it cannot be written.
    """
    file = Path(path)
    figure = _figure_class()(figsize=(9, 5.6), dpi=150, layout="constrained")
    draw(figure.add_subplot())
    try:
        # The date would make two equal pictures differ.
        figure.savefig(file, metadata={"Date": None} if file.suffix.lower() == ".svg" else None)
    except OSError as error:
        raise ParameterError(f"the plot cannot be written to {str(path)!r}: {error.strerror or error}") from None
    return file


def _figure_class() -> Any:
    """Matplotlib's Figure, without pyplot: no global state and no display."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ParameterError("a plot needs matplotlib, which is not installed: pip install 'expunge[plot]'") from None
    return Figure


def _draw(axes: Any, bounds: Bounds, subject: str) -> None:
    curves = bounds.curves()
    for curve in curves:
        _draw_curve(axes, curve)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xlim(1, bounds.widest)
    axes.set_ylim(_lowest(bounds, curves), 20 * bounds.vacuous_alpha)
    _draw_target(axes, bounds)
    axes.set_xlabel("predictions in a generation")
    axes.set_ylabel("α (smaller is better)")
    axes.grid(True, which="major", color="#DDDDDD", linewidth=0.6)
    for side in ("top", "right"):
        axes.spines[side].set_visible(False)
    target = bounds.target
    about = f"k = {count(bounds.num_shards)} shards, β = {target.beta:g}, γ = {target.gamma:g}"
    generations = f"{count(bounds.num_generations)} generation{'s' if bounds.num_generations > 1 else ''}"
    first = f"What each theorem certifies{f' ({subject})' if subject else ''}"
    axes.set_title(f"{first}\n{about} over {generations}", loc="left", fontsize=11)
    if not curves:
        return
    axes.legend(
        title="predictions within the target, by theorem",
        alignment="left",
        loc="center left",
        bbox_to_anchor=(1.01, 0.5),
        frameon=False,
        fontsize=9,
        title_fontsize=9,
    )


def _draw_curve(axes: Any, curve: Curve) -> None:
    colour, dash = _STYLES.get(curve.theorem, _OTHER)
    axes.plot(
        curve.predictions,
        curve.alphas,
        color=colour,
        linestyle=dash,
        linewidth=2 if curve.standing == "certified" else 1.6,
        label=f"{curve.theorem}: {count(curve.limit)}{_REMARKS.get(curve.theorem, '')}",
    )


def _draw_target(axes: Any, bounds: Bounds) -> None:
    """The target as a line, and the region in which a guarantee says nothing."""
    vacuous = bounds.vacuous_alpha
    axes.axhspan(vacuous, 1e9, color="#000000", alpha=0.06, linewidth=0)
    axes.annotate(
        "vacuous", (1, vacuous), xytext=(6, 5), textcoords="offset points", fontsize=9, color="#555555", va="bottom"
    )
    if bounds.target.alpha > 0:
        axes.axhline(bounds.target.alpha, color="#222222", linewidth=1.2, linestyle=(0, (6, 3)))
        axes.annotate(
            f"target α = {bounds.target.alpha:g}",
            (bounds.widest, bounds.target.alpha),
            xytext=(-4, 4),
            textcoords="offset points",
            fontsize=9,
            ha="right",
        )


def _lowest(bounds: Bounds, curves: list[Curve]) -> float:
    """The lower end of the α axis: below the first point of every curve and the target, but at least 1e-4."""
    starts = [curve.alphas[0] for curve in curves]
    if bounds.target.alpha > 0:
        starts.append(bounds.target.alpha)
    return max(1e-4, min([1.0, *starts]) / 2)
