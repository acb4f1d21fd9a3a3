"""What a deletion costs, measured: the processor time of training a shard against training one model on everything.

The shards are trained again by the code that trained them, and the results are thrown away. So the state is not
touched, nothing is drawn, and memory is needed for one more training only.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import numpy as np

from expunge.core.errors import TrainingError
from expunge.training.ensemble import EnsembleState, refit_without, retrain
from expunge.training.sampling import PartitionSampler

_MOST_SECONDS = 10.0  # of training one model on everything, and of a training that is believed without another
_LONGEST = 60.0  # of measuring one model, however long the training took
_TRIAL_SECONDS = 2.0  # of trying shards
_STEPS = (4, 2)  # how many times more rows are tried next
_SHARDS_TRIED = 3
_MOST_ROWS = 1_000_000  # of a training that is only measured, so that it does not need much memory
_MOST_FETCHED = 250_000  # the same, where every row has to be fetched from elsewhere
_MOST_GROWTH = 3.0  # the exponent of a learner whose time grows faster than its rows


@dataclass(frozen=True)
class Costs:
    """Seconds of processor time, and the number of models that a deletion of one unit retrains.

    Parameters
    ----------
    deletion
        Of the training that a deletion causes, or of changing a model that unlearns exactly.
    models_retrained
        How many models a deletion retrains on average; 0 if the learner unlearns exactly.
    refit
        Of training one model on all records, which is what a deletion costs with one shard.
    is_estimated
        Whether `refit` was computed from trainings on fewer records, because it would have taken long to measure.

    Examples
    --------
    >>> Costs(deletion=0.1, models_retrained=1.0, refit=2.0, is_estimated=False).savings
    20.0
    """

    deletion: float
    models_retrained: float
    refit: float
    is_estimated: bool

    @property
    def savings(self) -> float:
        """How many deletions cost as much as one training on everything."""
        return self.refit / self.deletion if self.deletion else math.inf

    def to_dict(self) -> dict[str, Any]:
        """The costs as plain data, for `Costs(**data)`."""
        return asdict(self)


def measure_costs(state: EnsembleState, *, seconds_to_train: float = 0.0, refit: float | None = None) -> Costs | None:
    """Measure what a deletion costs, and what retraining one model on everything would cost.

    Under (α,β,γ) the times depend on the secret key: they are for the operator.

    Parameters
    ----------
    state
        The state after training.
    seconds_to_train
        How long the training of all shards took, or longer. If there is one shard and this is long, it is taken as
        its time, and nothing is measured. If there are several, one model on everything may be tried for as long.
    refit
        Seconds of processor time to train one model on everything, if that was measured before.

    Returns
    -------
    Costs or None
        The costs; None if there are no records.

    Examples
    --------
    >>> from sklearn.linear_model import LogisticRegression
    >>> from expunge import Recipe, RecipeKey, Records, learn
    >>> from expunge.training.learners import ScikitLearner
    >>> records = Records.build([[0.0], [1.0], [8.0], [9.0]], [0, 0, 1, 1])
    >>> recipe = Recipe(ScikitLearner(LogisticRegression()), 1, key=RecipeKey.from_seed(0))
    >>> costs = measure_costs(learn(records, recipe))
    >>> costs.models_retrained, costs.deletion == costs.refit
    (1.0, True)
    """
    sizes = np.array([len(slots) for slots in state.members])
    typical = [int(shard) for shard in np.argsort(sizes, kind="stable") if sizes[shard]]
    if not typical:
        return None
    middle = len(typical) // 2
    typical = typical[max(0, middle - _SHARDS_TRIED // 2) :][:_SHARDS_TRIED]
    spent = _seconds(lambda: refit_without(state, typical[0]))
    if spent is not None:
        return Costs(spent, 0.0, 0.0, is_estimated=False)
    touched = max(1.0, state.num_shards * state.sampler.inclusion_probability(state.num_shards))
    if state.num_shards == 1 and seconds_to_train > _MOST_SECONDS:
        return Costs(seconds_to_train, 1.0, seconds_to_train, is_estimated=False)
    one = _time_shards(state, typical)
    if state.num_shards == 1:
        return Costs(one, 1.0, one, is_estimated=False)
    if refit is not None:
        return Costs(one * touched, touched, refit, is_estimated=False)
    found, is_estimated = _time_everything(
        state, typical[len(typical) // 2], one, left=min(max(_MOST_SECONDS, seconds_to_train), _LONGEST)
    )
    return Costs(one * touched, touched, found, is_estimated)


def _time_shards(state: EnsembleState, shards: list[int]) -> float:
    """The median time of training these shards; fewer of them if they take long."""
    found: list[float] = []
    for shard in shards:
        found.append(_seconds(lambda shard=shard: retrain(state, [shard])) or 0.0)  # type: ignore[misc]
        if sum(found) > _TRIAL_SECONDS / 2:
            break
    return float(np.median(found))


def _time_everything(state: EnsembleState, shard: int, seconds: float, *, left: float) -> tuple[float, bool]:
    """The time of training on all records; computed from ever larger trainings if it would take too long.

    Fixed costs are a large part of a small training, so one training alone says little about a much larger one.
    """
    live = state.records.live_slots()
    found = [(len(state.members[shard]), seconds)]
    is_fetched = (
        state.records.is_elsewhere
    )  # then rows come from as few parts as possible: their order is one by chance
    most = _MOST_FETCHED if is_fetched else _MOST_ROWS
    while (size := _next_size(found, len(live), left, most)) > found[-1][0]:
        spent = _time_rows(state, live[:: 1 if is_fetched else len(live) // size][:size])
        if spent is None:
            break
        found.append((size, spent))
        left -= spent
    return expected_seconds(found, len(live)), found[-1][0] < len(live)


def _next_size(found: list[tuple[int, float]], most: int, left: float, limit: int) -> int:
    """How many rows to try next; as many as before if no larger training is expected to end in time."""
    rows = found[-1][0]
    for times in _STEPS:
        size = most if most < 2 * times * rows else times * rows
        if size <= limit and expected_seconds(found, size) <= left:
            return size
    return rows


def expected_seconds(found: Sequence[tuple[float, float]], size: float) -> float:
    """The time of a training, from smaller ones: by a line or a power through the last two, the longer of them.

    Parameters
    ----------
    found
        Numbers of rows, ascending, and the seconds that training on them took; at least one. One alone is scaled up.
    size
        The number of rows.

    Returns
    -------
    float
        The seconds.

    Examples
    --------
    >>> expected_seconds([(100, 2.0), (200, 2.5)], 1000), expected_seconds([(100, 1.0)], 1000)
    (6.5, 10.0)
    """
    rows, seconds = found[-1]
    if len(found) == 1 or size == rows:
        return seconds * size / rows
    fewer, before = found[-2]
    line = seconds + (size - rows) * (seconds - before) / (rows - fewer)
    growth = math.log(max(seconds, 1e-9) / max(before, 1e-9)) / math.log(rows / fewer)
    power: float = seconds * (size / rows) ** min(max(growth, 0.0), _MOST_GROWTH)
    return max(line, power)


def _time_rows(state: EnsembleState, slots: Any) -> float | None:
    """The time of training one model on these records; None if it cannot be trained."""
    recipe = replace(state.recipe, num_shards=1, sampler=PartitionSampler())
    whole = replace(state, recipe=recipe, members=(slots.astype(np.uint32),), models=())
    try:
        return _seconds(lambda: retrain(whole, [0]))
    except TrainingError:
        return None


def _seconds(action: Callable[[], Any]) -> float | None:
    """The processor time of an action; None if the action returns None."""
    started = time.process_time()
    return None if action() is None else time.process_time() - started
