"""Learners: what trains one shard. Anything with `fit(X, y, seed)` will do; these are ready to use."""

from expunge.learners.abstaining import AbstainingLearner
from expunge.learners.adapting import as_learner
from expunge.learners.protocol import (
    ABSTAIN,
    Abstainer,
    Learner,
    Model,
    ShardData,
    SlicedLearner,
    Voter,
)
from expunge.learners.scikit import ConstantModel, ScikitLearner, ScikitModel
from expunge.learners.slices import SlicedModel, SlicedScikitLearner
from expunge.learners.tables import LookupTable, LookupTableLearner, NearestTable, NearestTableLearner

__all__ = [
    "ABSTAIN",
    "Abstainer",
    "AbstainingLearner",
    "ConstantModel",
    "Learner",
    "LookupTable",
    "LookupTableLearner",
    "Model",
    "NearestTable",
    "NearestTableLearner",
    "ScikitLearner",
    "ScikitModel",
    "ShardData",
    "SlicedLearner",
    "SlicedModel",
    "SlicedScikitLearner",
    "Voter",
    "as_learner",
]
