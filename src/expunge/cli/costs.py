"""What a deletion costs: measured by `expunge create`, and told again by `expunge status`."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from expunge.cli.output import say
from expunge.core.words import spell_time

if TYPE_CHECKING:
    from expunge.folder import DurableDeployment
    from expunge.training.costs import Costs


class TrainingClock:
    """The processor time from its making to the last call of `advance`, which it passes on."""

    def __init__(self, advance: Any) -> None:
        self._advance = advance
        self._started = time.process_time()
        self.seconds = 0.0

    def advance(self, steps: int) -> None:
        """Models were trained."""
        self.seconds = time.process_time() - self._started
        self._advance(steps)


def keep_costs(deployment: DurableDeployment, seconds_to_train: float, report: dict[str, Any]) -> None:
    """Measure what a deletion costs, and keep the answer in the folder. It is for the operator, as all times are.

    What the report already measured of one model is not measured again.
    """
    from expunge.training.costs import measure_costs

    candidates = (report["measured"] or {}).get("candidates", ())
    one = next((each["training"] for each in candidates if each["num_shards"] == 1 and not each["learner"]), None)
    found = measure_costs(deployment.inside.state, seconds_to_train=seconds_to_train, refit=one)
    if found is not None:
        deployment.add_provenance({"costs": found.to_dict()})


def costs_of(provenance: dict[str, Any]) -> Costs | None:
    """The costs that were measured when the deployment was created; None if Python code created it."""
    from expunge.training.costs import Costs

    found = provenance.get("costs")
    return None if found is None else Costs(**found)


def tell_costs(costs: Costs, *, num_shards: int, promise: str) -> None:
    """Print what a deletion costs against retraining one model, and whether plain retraining would be better."""
    for sentence in explain_costs(costs, num_shards=num_shards, promise=promise):
        say(sentence)


def explain_costs(costs: Costs, *, num_shards: int, promise: str) -> list[str]:
    """What a deletion costs, in sentences.

    Parameters
    ----------
    costs
        The measurements.
    num_shards
        k.
    promise
        Its name. Under "exact" any number of shards will do; "exact" and "unguarded" use no generation up.
    """
    deletion = spell_time(costs.deletion)
    if costs.models_retrained == 0:
        about = "" if deletion.startswith("less") else "about "
        return [f"A deletion retrains nothing: the model is updated exactly, in {about}{deletion}."]
    if num_shards == 1:
        told = [f"A deletion retrains the one model: about {deletion} of processor time."]
        if costs.deletion > _NOTICEABLE:
            told.append(
                "With more shards (--shards 10) a deletion would retrain one small model of several, which are usually "
                "less accurate together."
            )
        return told
    models = "1" if costs.models_retrained == 1 else f"about {costs.models_retrained:.2g}"
    about = "about " if not costs.is_estimated else "an estimated "
    told = [
        f"A deletion retrains {models} of {num_shards:,} models: about {deletion} of processor time, against "
        f"{about}{spell_time(costs.refit)} for training one model on everything."
    ]
    if promise not in ("exact", "unguarded"):
        everything = spell_time(costs.deletion / costs.models_retrained * num_shards)
        told.append(
            f"Once a generation is used up, the next update retrains all of them: about {everything}. Keep these times "
            "from requesters: they depend on secrets."
        )
    if promise == "exact" and (costs.refit < _NOTICEABLE or costs.savings < _WORTH):
        told.append(
            f"Plain retraining (--shards 1) would take {spell_time(costs.refit)} a deletion and is usually more "
            "accurate: consider it."
        )
    return told


_NOTICEABLE = 0.2  # seconds: what takes less a deletion need not be made cheaper
_WORTH = 2.0  # times cheaper than plain retraining, from which on shards are worth their loss of accuracy
