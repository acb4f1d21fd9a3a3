"""The white-box attack of Section 5.2, for any learner that exposes probabilities."""

from __future__ import annotations

from expunge.audit.evidence import Event
from expunge.audit.requesters import DeleteTargeted
from expunge.audit.scenario import Scenario, Task
from expunge.audit.scenarios.shared import Bound, MakeRequester, Ready, requester_name
from expunge.audit.statistics import TargetedWorse
from expunge.core.errors import ParameterError
from expunge.core.randomness import Randomness
from expunge.serving.interaction import Requester

_INDICATOR = "targeted shards are less accurate than the others"


def white_box_scenario(task: Task, *, requester: MakeRequester | None = None) -> Scenario:
    """The models are published; what points at the first half of the shards by confidence is deleted.

    The event is fixed in advance: the targeted models have the lower mean accuracy on held-out points. After full
    retraining it has probability ½ by symmetry, if the number of shards is even.
    """
    if task.test_points is None or task.test_codes is None:
        raise ParameterError("the white-box scenario needs held-out points, and the task has none")
    return Scenario(
        name="white-box",
        about=f"{task.name}; all models are published",
        task=task,
        points=task.columns[1],
        make_requester=Bound(requester or _targeted, task),
        prepare=Ready({_INDICATOR: TargetedWorse(task.test_points, task.test_codes)}),
        setting="models",
        settings=("models",),
        event=Event(_INDICATOR, "at least", 0.5),
        null_value=0.5,
        parameters={
            "task": task.name,
            "num_records": len(task.records),
            "learner": task.learner_name,
            "requester": requester_name(requester, "targeted"),
        },
    )


def _targeted(task: Task, rng: Randomness) -> Requester:
    return DeleteTargeted(*task.columns)
