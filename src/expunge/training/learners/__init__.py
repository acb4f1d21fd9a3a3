"""Learners: what trains one shard. Any object with `fit(X, y, seed)` is a learner; these are ready to use."""

from expunge.training.learners.abstaining import AbstainingLearner, as_learner
from expunge.training.learners.batched import BatchLearner
from expunge.training.learners.boosting import BoostedClassifier, BoostedRegressor
from expunge.training.learners.exact import ExactLearner, ExactModel
from expunge.training.learners.forest import UnlearningForest
from expunge.training.learners.lookup import LookupTable, LookupTableLearner, NearestTable, NearestTableLearner
from expunge.training.learners.multioutput import MultiOutputLearner, MultiOutputModel
from expunge.training.learners.protocol import (
    ABSTAIN,
    Abstainer,
    Learner,
    Model,
    ShardData,
    SlicedLearner,
    Voter,
)
from expunge.training.learners.scikit import ConstantModel, ScikitLearner, ScikitModel, ScikitRegression
from expunge.training.learners.slices import SlicedModel, SlicedScikitLearner
from expunge.training.learners.table_fallback import TableFallback
from expunge.training.learners.thresholds import ThresholdLearner, ThresholdModel

__all__ = [
    "ABSTAIN",
    "Abstainer",
    "AbstainingLearner",
    "BatchLearner",
    "BoostedClassifier",
    "BoostedRegressor",
    "ConstantModel",
    "ExactLearner",
    "ExactModel",
    "Learner",
    "LookupTable",
    "LookupTableLearner",
    "Model",
    "MultiOutputLearner",
    "MultiOutputModel",
    "NearestTable",
    "NearestTableLearner",
    "ScikitLearner",
    "ScikitModel",
    "ScikitRegression",
    "ShardData",
    "SlicedLearner",
    "SlicedModel",
    "SlicedScikitLearner",
    "TableFallback",
    "ThresholdLearner",
    "ThresholdModel",
    "UnlearningForest",
    "Voter",
    "as_learner",
]
