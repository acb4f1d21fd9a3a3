"""The router (T4, "keeping generations clean"): easy queries go to the ensemble, a fallback answers the others.

Which queries are easy depends on D^t and the query only. A fallback model that unlearns exactly says how easy a query
is. The threshold is calibrated in every round with a throw-away ensemble. One query in the grey zone makes the
generation dirty; the threshold is set so that this is unlikely over the stated traffic. If that prediction is wrong, it
costs a full retraining and nothing else: no guarantee depends on it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import betaincc, expit

from expunge.core.blocks import Block
from expunge.core.checks import require_count, require_number
from expunge.core.features import Features, describe, take
from expunge.core.prf import id_names
from expunge.core.records import Delete, Records
from expunge.serving.publishing.consensus import ConsensusPublisher
from expunge.serving.publishing.front import RoundContext, ThrowAway, throw_away_votes
from expunge.training.ensemble import EnsembleState
from expunge.training.fallback import Fallback, FallbackModel
from expunge.training.learners.table_fallback import TableFallback
from expunge.training.recipe import PUBLIC_KEY
from expunge.training.surroundings import voting

_FALLBACK_ONLY = np.inf
_CAUTION = 2.0  # standard errors by which the fitted chances of a failed consensus are raised
_FEWEST_POINTS = 20  # fewer above a threshold say nothing about it
_RIDGE = 1e-4  # keeps the fit finite where margins separate failures from the rest


@dataclass(frozen=True)
class Calibration:
    """A threshold on the fallback's margin, and what is predicted for it.

    Attributes
    ----------
    threshold
        Queries with this margin or a larger one go to the ensemble.
    ensemble_share
        The share of the queries that are predicted to go there.
    dirty_chance
        The predicted chance that one of them makes the generation dirty.
    """

    threshold: float
    ensemble_share: float
    dirty_chance: float


@dataclass
class Traffic:
    """How many queries the ensemble and the fallback answered in this round.

    Attributes
    ----------
    ensemble, fallback
        The number of queries that each answered.
    """

    ensemble: int = 0
    fallback: int = 0

    @property
    def ensemble_share(self) -> float:
        """The share that the ensemble answered."""
        total = self.ensemble + self.fallback
        return self.ensemble / total if total else 0.0


class Considered(NamedTuple):
    """What the fallback and the ensemble said about rows. The votes are secret until they are released."""

    codes: NDArray[np.int64]
    easy: NDArray[np.intp]
    votes: NDArray[np.int64] | None


@dataclass(frozen=True)
class RoutedRound:
    """The router in one round.

    Parameters
    ----------
    opening
        The ensemble and its publisher.
    fallback
        The kind of fallback, from which the model can be made again.
    calibration
        The threshold on its margin.
    traffic
        The queries that were answered so far.
    fitted
        The fallback's model of D^t; None if it has yet to be fitted.
    throw_away
        The ensemble that the threshold was calibrated with, for the next round; None with a fixed threshold.
    """

    opening: RoundContext
    fallback: Fallback
    calibration: Calibration
    traffic: Traffic = field(default_factory=Traffic)
    fitted: FallbackModel | None = None
    throw_away: ThrowAway | None = field(default=None, repr=False, compare=False)

    @cached_property
    def model(self) -> FallbackModel:
        """The fallback's model of D^t, fitted when it is first needed."""
        return self.fallback.fit_records(self.opening.state.records) if self.fitted is None else self.fitted

    @property
    def is_repeatable(self) -> bool:
        """As the publisher's. Answers of the fallback are always repeatable."""
        return self.opening.publisher.is_repeatable

    @property
    def figures(self) -> dict[str, Any]:
        """The share of the queries that is predicted to go to the ensemble; None if the threshold is fixed."""
        share = self.calibration.ensemble_share
        return {"router": {"ensemble_share": None if np.isnan(share) else share, "fallback": str(self.fallback)}}

    def is_easy(self, rows: Features) -> NDArray[np.bool_]:
        """Whether each row goes to the ensemble: a function of D^t and the row alone."""
        return self.model.margin(rows) >= self.calibration.threshold

    def consider(self, rows: Features) -> Considered:
        """Ask the fallback about every row, and the ensemble about the easy ones."""
        with voting():
            assessed = self.model.assess(rows)
        easy = np.flatnonzero(assessed.margins >= self.calibration.threshold)
        return Considered(assessed.codes, easy, self.opening.state.count_votes(take(rows, easy)) if len(easy) else None)

    def release(self, considered: Considered) -> NDArray[np.int64]:
        """Answer easy rows through the publisher, and the others from the fallback."""
        codes, easy = considered.codes.copy(), considered.easy
        if considered.votes is not None:
            codes[easy] = self.opening.publisher.release(considered.votes, self.opening.rng)
        self.traffic.ensemble += len(easy)
        self.traffic.fallback += len(codes) - len(easy)
        return codes

    def answer(self, rows: Features) -> NDArray[np.int64]:
        """Answer easy rows through the publisher, and the others from the fallback."""
        return self.release(self.consider(rows))

    def moved(self, state: EnsembleState) -> Self:
        """The same round with this state; the fallback is fitted again, for it may know records by their slots."""
        fitted = self.fallback.fit_records(state.records)
        return replace(self, opening=replace(self.opening, state=state), fitted=fitted)

    def __getstate__(self) -> dict[str, Any]:
        """Leave out the models, which are derived: their memory may still hold rows that were deleted."""
        kept = {name: value for name, value in self.__dict__.items() if name != "model"}
        return kept | {"fitted": None, "throw_away": None}


@dataclass(frozen=True)
class RouterFront:
    """Put a fallback in front of the ensemble, so that generations stay clean.

    Parameters
    ----------
    fallback
        A model that unlearns exactly.
    num_queries
        The number of distinct queries that a generation is expected to see.
    dirty_chance
        The largest accepted chance that one of them makes the generation dirty.
    threshold
        A fixed margin; None calibrates it in every round.
    num_throw_away
        The number of shards of the throw-away ensemble.
    calibration_size
        The number of held-out records that it is asked about.

    Raises
    ------
    ParameterError
        If an option is out of range.
    """

    fallback: Fallback = field(default_factory=TableFallback)
    num_queries: int = 10_000
    dirty_chance: float = 0.05
    threshold: float | None = None
    num_throw_away: int = 100
    calibration_size: int = 2000

    def __post_init__(self) -> None:
        require_number("dirty_chance", self.dirty_chance, above=0, below=1)
        require_count("num_queries", self.num_queries)
        require_count("num_throw_away", self.num_throw_away)
        require_count("calibration_size", self.calibration_size)

    def open_round(self, opening: RoundContext) -> RoutedRound:
        """Fit the fallback to D^t, or update it, and find its threshold."""
        records, before = opening.state.records, opening.previous
        if isinstance(before, RoutedRound) and opening.change is not None:
            model = before.model.updated(before.opening.state.records, records, opening.change)
        else:
            model = self.fallback.fit_records(records)
        calibration, throw_away = Calibration(self.threshold or 0.0, np.nan, np.nan), None
        if self.threshold is None:
            calibration, throw_away = self._calibrate(opening)
        return RoutedRound(opening.settled(), self.fallback, calibration, fitted=model, throw_away=throw_away)

    def dump_round(self, serving: RoutedRound, state: EnsembleState) -> dict[str, Any]:
        """The calibration. The fallback is fitted again from the records, and the counts of the traffic start anew."""
        return asdict(serving.calibration)

    def load_round(self, opening: RoundContext, kept: Mapping[str, Any]) -> RoutedRound:
        """The round with the calibration that was kept. The fallback is fitted when it is first needed."""
        calibration = Calibration(kept["threshold"], kept["ensemble_share"], kept["dirty_chance"])
        return RoutedRound(opening.settled(), self.fallback, calibration)

    def refuse(self, block: Block, classes: NDArray[Any]) -> None:
        """Refuse records that the fallback cannot learn from."""
        layout = describe(block.features)
        records = Records.restored(block, dead=(), classes=classes, allow_missing=True, layout=layout)
        self.fallback.check(records)

    def _calibrate(self, opening: RoundContext) -> tuple[Calibration, ThrowAway | None]:
        """Hold some records out; compare how easy they look with how well a throw-away ensemble agrees on them."""
        records = opening.state.records
        publisher = opening.publisher
        if not isinstance(publisher, ConsensusPublisher) or publisher.design is None or len(records) < 4:
            return Calibration(-np.inf, 1.0, np.nan), None  # nothing to keep clean: the ensemble answers everything
        size = min(self.calibration_size, len(records) // 4)
        live = records.live_slots()
        slots = np.sort(live[PUBLIC_KEY.order(0, id_names(records.ids_of(live), PUBLIC_KEY))[:size]])
        points, _, _ = records.gather(slots)
        rest, _ = records.apply([Delete(records.id_of(int(slot))) for slot in slots])
        rest = rest.compacted()
        votes, throw_away = throw_away_votes(opening, rest, points, self.num_throw_away)
        margins = self.fallback.fit_records(rest).margin(points)
        found = choose_threshold(
            margins,
            votes.max(axis=1) / self.num_throw_away,
            sure_share=publisher.design.sure_release_share,
            num_votes=self.num_throw_away,
            num_queries=self.num_queries,
            dirty_chance=self.dirty_chance,
        )
        return found, throw_away


def choose_threshold(
    margins: NDArray[np.float64],
    shares: NDArray[np.float64],
    *,
    sure_share: float,
    num_votes: int,
    num_queries: int,
    dirty_chance: float,
) -> Calibration:
    """Find the lowest margin above which no query of the traffic is predicted to fall short of `sure_share`.

    A point on which d of `num_votes` throw-away shards dissent falls short with the posterior chance that a rate with
    law Beta(d + ½, num_votes − d + ½) exceeds 1 − sure_share. The log-odds of falling short are fitted as a line in the
    margin. The fit uses all points, because failures below the threshold show how fast they become rare. The line is
    raised by two standard errors. The traffic is assumed to look like the calibration points.
    """
    dissent = np.rint((1 - shares) * num_votes).astype(np.float64)
    fails = np.asarray(betaincc(dissent + 0.5, num_votes - dissent + 0.5, 1 - sure_share), dtype=np.float64)
    order = np.argsort(-margins, kind="stable")
    rates = _cautious_rates(margins, fails)[order]
    chances = -np.expm1(-num_queries * np.cumsum(rates) / len(order))
    ranked = margins[order]
    is_cut = np.append(ranked[1:] != ranked[:-1], True)  # equal margins go the same way
    short = np.maximum.accumulate(shares[order] < sure_share)  # keep out points that were seen to fall short
    fine = np.flatnonzero(is_cut & ~short & (chances <= dirty_chance))
    fine = fine[fine + 1 >= _FEWEST_POINTS]
    if len(fine) == 0:
        return Calibration(_FALLBACK_ONLY, 0.0, 0.0)
    last = int(fine[-1])
    return Calibration(float(ranked[last]), (last + 1) / len(order), float(chances[last]))


def _cautious_rates(margins: NDArray[np.float64], fails: NDArray[np.float64]) -> NDArray[np.float64]:
    """An upper bound of the failure rate at every point: logistic regression on the margin, with Laplace's method."""
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
