"""What must not leave the trust boundary: shards, trainings and budgets. For the operator alone.

Under the exact promise an auditor may see all of it too, by a bundle; over HTTP it stays with the operator in any case.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from expunge.core.errors import ExpungeError
from expunge.core.words import utc
from expunge.privacy.accounting import Event
from expunge.service.exchange import NO_STORE, Answer, Request, Route, as_json
from expunge.service.planning import OPERATOR
from expunge.serving.keeper import RoundState
from expunge.serving.publishing import NoisyPublisher
from expunge.theory import all_bounds
from expunge.training.learners import Abstainer

if TYPE_CHECKING:
    from expunge.service.application import Service

_ROUNDS_KEPT: Final = 200
_LOOK_SECONDS: Final = 0.25
_MOST_ANSWERS: Final = 200_000  # of all models together, for their accuracy
_MOST_ROWS, _FEWEST_ROWS = 500, 50
_ACCURACY_SECONDS: Final = 2.0  # of processor time
_CURVE_POINTS: Final = 40
_SEED: Final = 71


class _Mark(NamedTuple):
    """What is kept of a round."""

    generation: int
    round: int
    models_trained: int

    @classmethod
    def of(cls, present: RoundState) -> _Mark:
        return cls(present.generation, present.round, present.models_trained)


class Rounds:
    """The rounds that this service has seen put in service, with what their trainings took.

    It keeps numbers only: a round that was replaced holds records and models that must go.
    """

    def __init__(self, present: RoundState) -> None:
        self._last = _Mark.of(present)
        self._measured: tuple[_Mark, dict[str, Any] | None] | None = None
        self.seen: deque[dict[str, Any]] = deque(maxlen=_ROUNDS_KEPT)

    async def follow(self, service: Service) -> None:
        """Look for new rounds until the end."""
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            self.note(service.deployment.inside)

    def note(self, present: RoundState) -> None:
        """Note a round that was not there the last time. Rounds that came between two looks count as one."""
        before, self._last = self._last, _Mark.of(present)
        if (before.generation, before.round) == (present.generation, present.round):
            return
        self.seen.append(
            {
                "round": present.round,
                "generation": present.generation,
                "at": utc(time.time()),
                "rounds": present.round - before.round,
                "models": present.models_trained - before.models_trained,
                "seconds": present.seconds,
                "everything": present.generation != before.generation,
            }
        )

    def accuracies(self, present: RoundState) -> dict[str, Any] | None:
        """How often each model is right about records that it did not learn from; R² for numbers."""
        mark = _Mark.of(present)
        if self._measured is None or self._measured[0] != mark:
            self._measured = mark, _measure(present)
        return self._measured[1]


def routes(service: Service) -> list[Route]:
    """The routes of this module."""

    async def inside(request: Request) -> Answer:
        return as_json(await asyncio.to_thread(_inside, service), headers=[NO_STORE])

    described = {"summary": "What must not leave the trust boundary: shards, trainings, budgets"}
    return [Route("GET", "/v1/inside", OPERATOR, inside, described)]


def _inside(service: Service) -> dict[str, Any]:
    found, deployment = service.deployment.inside, service.deployment
    state, publisher = found.state, found.publisher
    sizes = [len(each) for each in state.members]
    k, by_updates = state.num_shards, found.models_trained - state.num_shards
    return {
        "generation": found.generation,
        "round": found.round,
        "shards": k,
        "sizes": sizes,
        "empty": sizes.count(0),
        "failed": _num_abstaining(found) - sizes.count(0),
        "accuracy": service.rounds.accuracies(found),
        "models_trained": found.models_trained,
        "models_by_updates": by_updates,
        "models_if_everything": k * found.round,
        "rounds": list(service.rounds.seen),
        "trainer": service.trainer.to_dict(),
        "costs": deployment.provenance.get("costs"),
        "replicas": deployment.replicas,
        "budget": {name: _finite(each) for name, each in asdict(found.budget).items()},
        "publishes": deployment.promise_name,
        "must_retrain": publisher.must_retrain,
        "capacity": _finite(publisher.capacity),
        "alpha": _alpha(found, deployment.guarantee().beta, deployment.guarantee().gamma),
    }


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _num_abstaining(found: RoundState) -> int:
    return sum(isinstance(model, Abstainer) for model in found.state.models)


def _measure(found: RoundState) -> dict[str, Any] | None:
    state = found.state
    slots = state.records.live_slots()
    if state.num_shards < 2 or len(slots) < 2:
        return None
    size = max(_FEWEST_ROWS, min(_MOST_ROWS, _MOST_ANSWERS // state.num_shards))
    chosen = np.sort(np.random.default_rng(_SEED).choice(slots, min(size, len(slots)), replace=False))
    X, truth, _ = state.records.gather(chosen)
    ends, values = time.thread_time() + _ACCURACY_SECONDS, list[float | None]()
    for members, model in zip(state.members, state.models, strict=True):
        value = None
        if time.thread_time() < ends and not isinstance(model, Abstainer):
            others = ~np.isin(chosen, members)
            with suppress(ExpungeError, ValueError, TypeError):
                value = _score(np.asarray(model.predict(X)), truth, others, state.records.is_regression)
        values.append(value)
    return {"values": values, "rows": len(chosen), "measure": "R²" if state.records.is_regression else "accuracy"}


def _score(answers: Any, truth: Any, others: Any, is_regression: bool) -> float | None:
    if not others.any():
        return None
    if not is_regression:
        return float(np.mean(answers[others] == truth[others]))
    answers, truth = answers[others].reshape(others.sum(), -1), truth[others].reshape(others.sum(), -1)
    spread = float(np.sum((truth - truth.mean(axis=0)) ** 2))
    return 1 - float(np.sum((truth - answers) ** 2)) / spread if spread else None


def _alpha(found: RoundState, beta: float, gamma: float) -> dict[str, Any] | None:
    """α against the number of predictions in a generation, by each theorem; None where α does not grow with them."""
    publisher = found.publisher
    if not isinstance(publisher, NoisyPublisher) or not math.isfinite(publisher.capacity):
        return None
    most = max(10, 2 * int(publisher.capacity))
    curves = _curves(publisher.mechanism.event, found.state.num_shards, beta, gamma, most)
    return {
        "curves": curves,
        "predictions": publisher.status.predictions,
        "capacity": int(publisher.capacity),
        "beta": beta,
        "gamma": gamma,
    }


@lru_cache(maxsize=8)
def _curves(event: Event, num_shards: int, beta: float, gamma: float, most: int) -> list[dict[str, Any]]:
    counts = sorted({int(each) for each in np.geomspace(1, most, _CURVE_POINTS)})
    points: dict[str, list[list[float]]] = {}
    for count in counts:
        for bound in all_bounds({event: count}, num_shards=num_shards, beta=beta, gamma=gamma):
            if 0 < bound.alpha < math.inf:
                points.setdefault(bound.theorem, []).append([count, bound.alpha])
    return [{"theorem": theorem, "points": each} for theorem, each in points.items()]
