"""Audits: play attacks against an unlearning scheme, and train shards of a deployment again to compare bits.

`audit(scenario, scheme)` plays a scenario against a scheme. A scenario has data, a requester that sees what is
published and asks for deletions, and statistics of the models. `make_scheme` and the functions named `…_scenario` make
the built-in ones. To write your own, read `Scheme`, `UserScheme` and `Scenario`, whose examples are complete.
`recompute(folder)` checks the exact promise of a deployment: are its models what the recipe gives on its records?

>>> scenario = lookup_scenario(num_pairs=10)
>>> report = audit(scenario, make_scheme("sisa", scenario), num_trials=20, seed=1)
>>> report.rejected, report.p_value < 0.001
(True, True)
"""

from expunge.audit.analysis import audit
from expunge.audit.deployments import copy_deployment
from expunge.audit.inference import Event, alpha_lower_bound, clopper_pearson, sign_test
from expunge.audit.page import to_html
from expunge.audit.recompute import Recomputation, choose_shards, recompute
from expunge.audit.report import AuditReport
from expunge.audit.request import AuditRequest
from expunge.audit.requesters import (
    AddUntilCorrect,
    DeleteCorrect,
    DeleteMostShards,
    DeleteRandomCorrect,
    DeleteTargeted,
    DeleteThese,
)
from expunge.audit.scenario import History, PublishedModels, Scenario, Scheme, Setting, Statistic, Task
from expunge.audit.scenarios import (
    DeploymentAttack,
    LookupResult,
    attack_deployment,
    attack_lookup,
    label_only_scenario,
    lookup_scenario,
    make_pairs,
    membership_scenario,
    slow_down_scenario,
    white_box_scenario,
)
from expunge.audit.schemes import (
    SCHEME_NAMES,
    DeploymentScheme,
    EnsembleScheme,
    PublishVotes,
    RetrainScheme,
    UserScheme,
    make_scheme,
)
from expunge.audit.tasks import Digits, digits_task, load_digits, small_zeros_and_ones_task, zeros_and_ones_task
from expunge.audit.trials import Trial

__all__ = [
    "SCHEME_NAMES",
    "AddUntilCorrect",
    "AuditReport",
    "AuditRequest",
    "DeleteCorrect",
    "DeleteMostShards",
    "DeleteRandomCorrect",
    "DeleteTargeted",
    "DeleteThese",
    "DeploymentAttack",
    "DeploymentScheme",
    "Digits",
    "EnsembleScheme",
    "Event",
    "History",
    "LookupResult",
    "PublishVotes",
    "PublishedModels",
    "Recomputation",
    "RetrainScheme",
    "Scenario",
    "Scheme",
    "Setting",
    "Statistic",
    "Task",
    "Trial",
    "UserScheme",
    "alpha_lower_bound",
    "attack_deployment",
    "attack_lookup",
    "audit",
    "choose_shards",
    "clopper_pearson",
    "copy_deployment",
    "digits_task",
    "label_only_scenario",
    "load_digits",
    "lookup_scenario",
    "make_pairs",
    "make_scheme",
    "membership_scenario",
    "recompute",
    "sign_test",
    "slow_down_scenario",
    "small_zeros_and_ones_task",
    "to_html",
    "white_box_scenario",
    "zeros_and_ones_task",
]
