"""A rehearsal of consensus on a deployment's records: run in a process of its own, and told for any traffic.

The throw-away models have public coins, as those of a measurement. So nothing in it depends on ζ.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import asdict, replace
from functools import lru_cache
from typing import Any, Final

import msgspec
import numpy as np

from expunge.core.guarantee import Guarantee
from expunge.core.records import Records
from expunge.serving.promises import Consensus
from expunge.serving.rehearsal import SHARE_FOR_ONE, Rehearsal, rehearse
from expunge.theory import ConsensusDesign, design_consensus
from expunge.theory.planning import recommend_shards
from expunge.training.comparison import Comparison, compare
from expunge.training.learners import Learner, SlicedLearner
from expunge.training.scores import Score, Scores

_TARGET: Final = ("alpha", "beta", "gamma")
Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


def run(
    records: Records,
    learner: Learner | SlicedLearner,
    *,
    seconds: float,
    shards: int | None,
    copies: float | None,
    alpha: float,
    beta: float,
    gamma: float,
    max_predictions: int,
    max_generations: int,
    progress: Progress,
) -> dict[str, Any]:
    """Measure one model, and then how well throw-away shards agree; as plain data, for `tell`."""
    target = Guarantee(alpha, beta, gamma)
    if shards is None:
        advice = recommend_shards(
            num_records=len(records),
            num_classes=records.num_classes,
            target=target,
            num_generations=max_generations,
            max_predictions=max_predictions,
        )
        shards, usual = advice.num_shards, advice.inclusion_probability
    else:
        usual = 1 / shards
    chance = usual if copies is None else min(1.0, copies / shards)
    with progress("measuring one model, in seconds", max(1, int(seconds * SHARE_FOR_ONE))) as advance:
        one = compare(records, learner, num_shards=[1], seconds=seconds * SHARE_FOR_ONE, advance=advance)
    with progress("training throw-away shards", shards) as advance:
        found = rehearse(
            records,
            learner,
            Consensus(target=target, max_predictions=max_predictions, max_generations=max_generations),
            num_shards=shards,
            inclusion_probability=chance,
            seconds=seconds * (1 - SHARE_FOR_ONE),
            advance=advance,
        )
    values, rows = np.unique(np.array(found.vote_shares), return_counts=True)
    plain = asdict(replace(found, design=None, vote_shares=()))
    return {"one": asdict(one), "rehearsal": plain, "vote_shares": values.tolist(), "rows": rows.tolist()}


def tell(result: Mapping[str, Any], options: Mapping[str, Any], traffic: Mapping[str, Any]) -> dict[str, Any]:
    """What `run` found, for this traffic: predictions, deletions and batches a day."""
    one, found = msgspec.convert(result["one"], Comparison), _rebuilt(result, options)
    copies = found.num_shards * found.inclusion_probability
    updates = min(traffic["deletions_per_day"], traffic["batches_per_day"])
    is_promised = found.design is not None
    return {
        **{name: options[name] for name in (*_TARGET, "max_predictions", "max_generations")},
        "shards": found.num_shards,
        "copies": copies,
        "models": found.models,
        "tested": len(found.vote_shares),
        "words": found.verdict(one, how=f", with each record in about {copies:,.3g} of them", **traffic),
        "promised": is_promised,
        "agreement": float(np.mean(found.vote_shares)),
        "needed": None if found.design is None else found.design.sure_release_share,
        "sure": found.sure if is_promised else None,
        "predictions": found.predictions if is_promised else None,
        "generation_days": found.predictions / traffic["predictions_per_day"] if is_promised else None,
        "accuracy": _interval(found.scores.main),
        "deletion": found.deletion,
        "training": found.training,
        "day": found.day(**traffic) if is_promised else None,
        "one_accuracy": _interval(one.candidates[0].scores.main),
        "one_refit": one.refit,
        "one_day": one.refit * updates,
    }


def _interval(score: Score) -> list[float | None]:
    return [score.value, score.low, score.high]


def _rebuilt(result: Mapping[str, Any], options: Mapping[str, Any]) -> Rehearsal:
    plain = dict(result["rehearsal"])
    design = None
    if not plain["reason"]:
        limits = (options["max_predictions"], options["max_generations"])
        design = _designed(plain["num_shards"], *limits, *(options[name] for name in _TARGET))
    shares = tuple(np.repeat(result["vote_shares"], result["rows"]).tolist())
    return Rehearsal(**plain | {"design": design, "scores": Scores.from_dict(plain["scores"]), "vote_shares": shares})


@lru_cache(maxsize=16)
def _designed(shards: int, predictions: int, generations: int, *target: float) -> ConsensusDesign:
    alpha, beta, gamma = target
    return design_consensus(
        num_shards=shards, max_queries=predictions, generations=generations, alpha=alpha, beta=beta, gamma=gamma
    )
