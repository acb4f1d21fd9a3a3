"""Audits: point an attack at an unlearning scheme, and see whether it does what full retraining would have done."""

from expunge.audit.analysis import analyse
from expunge.audit.campaign import audit, run_trials
from expunge.audit.catalogue import SCHEME_NAMES, SkippingLearner, make_scheme
from expunge.audit.deployments import DeploymentCopy, copy_deployment
from expunge.audit.evidence import (
    Event,
    SignTest,
    alpha_lower_bound,
    clopper_pearson,
    lower_limit,
    sign_test,
    upper_limit,
)
from expunge.audit.page import to_html
from expunge.audit.report import ArmCount, AuditReport, RunTime
from expunge.audit.request import SCENARIO_NAMES, AuditRequest
from expunge.audit.requesters import (
    AddUntilCorrect,
    DeleteCorrect,
    DeleteMostShards,
    DeleteRandomCorrect,
    DeleteTargeted,
    DeleteThese,
)
from expunge.audit.scenario import Play, Scenario, Statistic, Task
from expunge.audit.scenarios import (
    label_only_scenario,
    lookup_scenario,
    membership_scenario,
    slow_down_scenario,
    white_box_scenario,
)
from expunge.audit.scenarios.lookup import LookupResult, attack_lookup, in_the_event, make_pairs
from expunge.audit.scenarios.membership import LikelihoodRatio, fit_likelihood_ratio
from expunge.audit.schemes import (
    AnyScheme,
    DeploymentScheme,
    EnsembleScheme,
    PublishedModels,
    PublishVotes,
    RetrainScheme,
    Scheme,
)
from expunge.audit.tasks import (
    Digits,
    Neighbourhood,
    NumberedTableLearner,
    built_in_learner,
    digits_task,
    load_digits,
    small_zeros_and_ones_task,
    zeros_and_ones_task,
)
from expunge.audit.trials import Trial

__all__ = [
    "SCENARIO_NAMES",
    "SCHEME_NAMES",
    "AddUntilCorrect",
    "AnyScheme",
    "ArmCount",
    "AuditReport",
    "AuditRequest",
    "DeleteCorrect",
    "DeleteMostShards",
    "DeleteRandomCorrect",
    "DeleteTargeted",
    "DeleteThese",
    "DeploymentCopy",
    "DeploymentScheme",
    "Digits",
    "EnsembleScheme",
    "Event",
    "LikelihoodRatio",
    "LookupResult",
    "Neighbourhood",
    "NumberedTableLearner",
    "Play",
    "PublishVotes",
    "PublishedModels",
    "RetrainScheme",
    "RunTime",
    "Scenario",
    "Scheme",
    "SignTest",
    "SkippingLearner",
    "Statistic",
    "Task",
    "Trial",
    "alpha_lower_bound",
    "analyse",
    "attack_lookup",
    "audit",
    "built_in_learner",
    "clopper_pearson",
    "copy_deployment",
    "digits_task",
    "fit_likelihood_ratio",
    "in_the_event",
    "label_only_scenario",
    "load_digits",
    "lookup_scenario",
    "lower_limit",
    "make_pairs",
    "make_scheme",
    "membership_scenario",
    "run_trials",
    "sign_test",
    "slow_down_scenario",
    "small_zeros_and_ones_task",
    "to_html",
    "upper_limit",
    "white_box_scenario",
    "zeros_and_ones_task",
]
