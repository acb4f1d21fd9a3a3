"""One trial of an audit: the adaptive interaction, then both arms, from randomness that nothing else uses."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from expunge.audit.scenario import Play, Scenario, Statistic
from expunge.audit.schemes import PublishedModels, Scheme
from expunge.core.errors import InputError
from expunge.core.randomness import Randomness
from expunge.core.records import Records
from expunge.serving.interaction import Batch, interact

# The streams of one trial. Their numbers are part of what a seed means.
_UNLEARNING, _RETRAINING, _REQUESTER, _COINS_BEFORE, _COINS_UNLEARNED, _COINS_RETRAINED = range(6)
_PREPARATION = 2**32 - 1

Values = Mapping[str, float]


@dataclass(frozen=True)
class Trial:
    """The statistics before any update, after unlearning, and after full retraining on the same survivors."""

    number: int
    before: Values
    unlearned: Values
    retrained: Values
    num_rounds: int
    num_survivors: int

    def to_dict(self) -> dict[str, Any]:
        """A JSON-able mapping; an undefined statistic is written as None."""
        return {
            "trial": self.number,
            "before": _finite(self.before),
            "unlearned": _finite(self.unlearned),
            "retrained": _finite(self.retrained),
            "rounds": self.num_rounds,
            "survivors": self.num_survivors,
        }

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Trial:
        """The trial that `to_dict` wrote."""
        try:
            return cls(
                number=int(data["trial"]),
                before=_restored(data["before"]),
                unlearned=_restored(data["unlearned"]),
                retrained=_restored(data["retrained"]),
                num_rounds=int(data["rounds"]),
                num_survivors=int(data["survivors"]),
            )
        except (KeyError, TypeError, ValueError, AttributeError):
            raise InputError("a line of the file of trials is not a trial") from None


def randomness(seed: int, number: int, stream: int) -> Randomness:
    """The stream of a trial: a function of the seed, the trial's number and the stream alone."""
    return Randomness.from_seed(np.random.SeedSequence(seed, spawn_key=(number, stream)))


def prepare(scenario: Scenario, scheme: Scheme[Any], seed: int) -> Mapping[str, Statistic]:
    """The scenario's statistics, with what they had to train for it."""
    return scenario.prepare(scheme, randomness(seed, _PREPARATION, 0))


def run_trial(
    scenario: Scenario, scheme: Scheme[Any], statistics: Mapping[str, Statistic], *, seed: int, number: int
) -> Trial:
    """Algorithm 1 with the scheme, and A on what is left.

    The requester is handed what is published and its own requests (`interact`), nothing else. D^t is computed from the
    requests here: a scheme that kept its records wrongly must not decide what it is compared with.
    """
    initial = scenario.task.records
    before: dict[str, float] = {}

    def publish(round_number: int, state: Any) -> Any:
        shown = _shown(scenario, scheme, state)
        if round_number == 0:
            coins = randomness(seed, number, _COINS_BEFORE)
            before.update(_measure(statistics, scheme, state, Play(initial, initial), coins))
        return shown

    requester = scenario.make_requester(randomness(seed, number, _REQUESTER))
    rng = randomness(seed, number, _UNLEARNING)
    played = interact(scheme, publish, requester, initial, rng=rng, max_rounds=scenario.max_rounds)
    named = requester.next_batch(played.published, played.asked) if scenario.looks_ahead else None
    play = Play(initial, _apply(initial, played.asked), played.asked, named)
    retrained = scheme.learn(play.survivors, randomness(seed, number, _RETRAINING))
    return Trial(
        number=number,
        before=before,
        unlearned=_measure(statistics, scheme, played.state, play, randomness(seed, number, _COINS_UNLEARNED)),
        retrained=_measure(statistics, scheme, retrained, play, randomness(seed, number, _COINS_RETRAINED)),
        num_rounds=len(played.asked),
        num_survivors=len(play.survivors),
    )


def _shown(scenario: Scenario, scheme: Scheme[Any], state: Any) -> Any:
    """What crosses the boundary in this setting."""
    if scenario.setting == "labels":
        return scheme.release(state, scenario.points)
    models = scheme.models(state)
    if not models:
        raise InputError(f"scheme {scheme.name!r} shows no models: give it a method `models`, or publish labels")
    return PublishedModels(models, scenario.task.records.num_classes)


def _apply(records: Records, batches: tuple[Batch, ...]) -> Records:
    for batch in batches:
        records = records.apply(batch)[0]
    return records


def _measure(
    statistics: Mapping[str, Statistic], scheme: Scheme[Any], state: Any, play: Play, coins: Randomness
) -> dict[str, float]:
    return {name: float(statistic(scheme, state, play, coins)) for name, statistic in statistics.items()}


def _finite(values: Values) -> dict[str, float | None]:
    return {name: value if math.isfinite(value) else None for name, value in values.items()}


def _restored(values: Mapping[str, float | None]) -> dict[str, float]:
    return {name: math.nan if value is None else float(value) for name, value in values.items()}
