"""The label-only attack of Appendix C.2: delete a random subset of what is predicted correctly."""

from __future__ import annotations

from expunge.audit.scenario import Scenario, Task
from expunge.audit.scenarios.shared import Bound, MakeRequester, NamedRequester, Ready, requester_name
from expunge.audit.statistics import DeletedSupport, SurvivorAccuracy
from expunge.core.errors import ParameterError


def label_only_scenario(
    task: Task, *, num_deletions: int | None = None, requester: str | MakeRequester = "random-correct"
) -> Scenario:
    """`num_deletions` (a fifth of the records if None) of the correctly predicted records; training accuracy after."""
    size = len(task.records) // 5 if num_deletions is None else num_deletions
    if not 1 <= size <= len(task.records):
        raise ParameterError(f"num_deletions must be between 1 and {len(task.records)}, got {size!r}")
    make = NamedRequester(requester, size=size) if isinstance(requester, str) else requester
    return Scenario(
        name="label-only",
        about=task.name if requester == "correct" else f"{task.name}; at most {size} records are deleted",
        task=task,
        points=task.columns[1],
        make_requester=Bound(make, task),
        prepare=Ready(
            {
                "accuracy on surviving records": SurvivorAccuracy(),
                "shards that know a deleted record": DeletedSupport(),
            }
        ),
        max_rounds=size if requester == "one-by-one" else 1,
        parameters={
            "task": task.name,
            "num_records": len(task.records),
            "num_deletions": size,
            "requester": requester_name(requester),
        },
    )
