"""The router (T4, "keeping generations clean"): easy queries go to the ensemble, a fallback answers the others.

Which queries are easy depends on D^t and the query only: a fallback model that unlearns exactly says how easy one is,
and the threshold is calibrated afresh in every round with a throw-away ensemble. One query in the grey zone makes the
generation dirty; the threshold is set so that, over the stated traffic, that is unlikely. A wrong prediction here costs
a full retraining and nothing else: no guarantee rests on it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaincc, expit

from expunge.core.errors import ParameterError
from expunge.core.features import Features, take
from expunge.core.prf import id_names
from expunge.core.records import Delete
from expunge.serving.publishing.consensus import ConsensusPublisher
from expunge.serving.publishing.front import Opening, throw_away_shares
from expunge.training.fallback import Fallback, FallbackModel, RidgeFallback
from expunge.training.recipe import PUBLIC_KEY

_FALLBACK_ONLY = np.inf
_CAUTION = 2.0  # standard errors by which the fitted chances of a failed consensus are raised
_FEWEST_POINTS = 20  # fewer above a threshold say nothing about it
_RIDGE = 1e-4  # keeps the fit finite where margins separate failures from the rest


@dataclass(frozen=True)
class Calibration:
    """A threshold on the fallback's margin, and what is predicted of it."""

    threshold: float
    ensemble_share: float
    dirty_chance: float


@dataclass
class Traffic:
    """How many queries went where, in this round."""

    ensemble: int = 0
    fallback: int = 0

    @property
    def ensemble_share(self) -> float:
        """The share that the ensemble answered."""
        total = self.ensemble + self.fallback
        return self.ensemble / total if total else 0.0


@dataclass(frozen=True)
class RoutedRound:
    """One round's router."""

    opening: Opening
    fallback: Fallback
    model: FallbackModel
    calibration: Calibration
    traffic: Traffic = field(default_factory=Traffic)

    @property
    def is_repeatable(self) -> bool:
        """As the publisher says: what the fallback answers is repeatable anyway."""
        return self.opening.publisher.is_repeatable

    def is_easy(self, rows: Features) -> NDArray[np.bool_]:
        """Whether each row goes to the ensemble: a function of D^t and the row alone."""
        return self.model.margin(rows) >= self.calibration.threshold

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Easy rows through the publisher, the others from the fallback."""
        assessed = self.model.assess(rows)
        codes, easy = assessed.codes.copy(), np.flatnonzero(assessed.margins >= self.calibration.threshold)
        if len(easy):
            counts = self.opening.state.count_votes(take(rows, easy))
            codes[easy] = self.opening.publisher.release(counts, self.opening.rng)
        self.traffic.ensemble += len(easy)
        self.traffic.fallback += len(codes) - len(easy)
        return codes

    def __getstate__(self) -> dict[str, Any]:
        """Without the model, whose memory layout may still hold rows that were deleted."""
        return {name: value for name, value in self.__dict__.items() if name != "model"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self.__dict__["model"] = self.fallback.fit_records(self.opening.state.records)


@dataclass(frozen=True)
class RouterFront:
    """Put a fallback in front of the ensemble.

    fallback : an exactly unlearnable model.
    num_queries : how many distinct queries a generation is expected to see.
    dirty_chance : how likely at most one of them may make the generation dirty.
    threshold : a fixed margin instead of a calibrated one.
    num_throw_away, calibration_size : shards of the throw-away ensemble, and held-out records it is asked about.
    """

    fallback: Fallback = field(default_factory=RidgeFallback)
    num_queries: int = 10_000
    dirty_chance: float = 0.05
    threshold: float | None = None
    num_throw_away: int = 100
    calibration_size: int = 2000

    def __post_init__(self) -> None:
        if not 0 < self.dirty_chance < 1:
            raise ParameterError(f"dirty_chance must be in (0, 1), got {self.dirty_chance!r}")
        if self.num_queries < 1 or self.num_throw_away < 1 or self.calibration_size < 1:
            raise ParameterError("num_queries, num_throw_away and calibration_size must be at least 1")

    def open_round(self, opening: Opening) -> RoutedRound:
        """The fallback of D^t, and a threshold for it."""
        records, before = opening.state.records, opening.previous
        if isinstance(before, RoutedRound) and opening.change is not None:
            model = before.model.updated(before.opening.state.records, records, opening.change)
        else:
            model = self.fallback.fit_records(records)
        if self.threshold is not None:
            calibration = Calibration(self.threshold, np.nan, np.nan)
        else:
            calibration = self._calibrate(opening)
        return RoutedRound(opening.settled(), self.fallback, model, calibration)

    def _calibrate(self, opening: Opening) -> Calibration:
        """Hold some records out, see how easy they look and how well a throw-away ensemble agrees on them."""
        records = opening.state.records
        publisher = opening.publisher
        if not isinstance(publisher, ConsensusPublisher) or publisher.design is None or len(records) < 4:
            return Calibration(-np.inf, 1.0, np.nan)  # nothing to keep clean: the ensemble answers everything
        size = min(self.calibration_size, len(records) // 4)
        live = records.live_slots()
        slots = np.sort(live[PUBLIC_KEY.order(0, id_names(records.ids_of(live), PUBLIC_KEY))[:size]])
        points, _, _ = records.gather(slots)
        rest, _ = records.apply([Delete(records.id_of(int(slot))) for slot in slots])
        rest = rest.compacted()
        shares = throw_away_shares(opening, rest, points, self.num_throw_away)
        margins = self.fallback.fit_records(rest).margin(points)
        return choose_threshold(
            margins,
            shares,
            sure_share=publisher.design.sure_release_share,
            num_votes=self.num_throw_away,
            num_queries=self.num_queries,
            dirty_chance=self.dirty_chance,
        )


def choose_threshold(
    margins: NDArray[np.float64],
    shares: NDArray[np.float64],
    *,
    sure_share: float,
    num_votes: int,
    num_queries: int,
    dirty_chance: float,
) -> Calibration:
    """The lowest margin above which, it is predicted, no query of the traffic falls short of `sure_share`.

    A point on which d of `num_votes` throw-away shards dissent falls short with the posterior chance that a rate with
    law Beta(d + ½, num_votes − d + ½) exceeds 1 − sure_share. The log-odds of falling short are fitted as a line in the
    margin, over all points and not only those above a threshold: failures below it are what tells how fast they become
    rare. The line is raised by two standard errors. Traffic is taken to look like the calibration points.
    """
    dissent = np.rint((1 - shares) * num_votes).astype(np.float64)
    fails = np.asarray(betaincc(dissent + 0.5, num_votes - dissent + 0.5, 1 - sure_share), dtype=np.float64)
    order = np.argsort(-margins, kind="stable")
    rates = _cautious_rates(margins, fails)[order]
    chances = -np.expm1(-num_queries * np.cumsum(rates) / len(order))
    ranked = margins[order]
    is_cut = np.append(ranked[1:] != ranked[:-1], True)  # equal margins go the same way
    short = np.maximum.accumulate(shares[order] < sure_share)  # nothing that was seen to fall short is let through
    fine = np.flatnonzero(is_cut & ~short & (chances <= dirty_chance))
    fine = fine[fine + 1 >= _FEWEST_POINTS]
    if len(fine) == 0:
        return Calibration(_FALLBACK_ONLY, 0.0, 0.0)
    last = int(fine[-1])
    return Calibration(float(ranked[last]), (last + 1) / len(order), float(chances[last]))


def _cautious_rates(margins: NDArray[np.float64], fails: NDArray[np.float64]) -> NDArray[np.float64]:
    """Logistic regression of failing on the margin; at every point an upper bound of its rate (Laplace's method)."""
    design = np.column_stack([np.ones_like(margins), margins])

    def loss(line: NDArray[np.float64]) -> tuple[float, NDArray[np.float64]]:
        scores = design @ line
        value = np.sum(np.logaddexp(0, scores) - fails * scores) + _RIDGE * line @ line
        return float(value), design.T @ (expit(scores) - fails) + 2 * _RIDGE * line

    line = minimize(loss, np.zeros(2), jac=True, method="BFGS").x
    rates = expit(design @ line)
    information = (design * (rates * (1 - rates))[:, np.newaxis]).T @ design + 2 * _RIDGE * np.eye(2)
    spread = np.sqrt(np.einsum("ij,ji->i", design, np.linalg.solve(information, design.T)))
    bound: NDArray[np.float64] = expit(design @ line + _CAUTION * spread)
    return bound
