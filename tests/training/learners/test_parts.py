"""A model is taken apart for storing, and made from its parts again."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from expunge.core.errors import ModelFormatError
from expunge.training.fallback import GaussianNaiveBayes, RidgeFallback
from expunge.training.learners import Abstainer, ConstantModel, ScikitLearner
from expunge.training.learners.exact import ExactLearner
from expunge.training.learners.parts import model_of, parts_of

Y = np.arange(30) % 2
X = np.random.default_rng(0).normal(size=(30, 2)) + Y[:, np.newaxis]
LEARNERS = [ScikitLearner(LogisticRegression()), ExactLearner(GaussianNaiveBayes()), ExactLearner(RidgeFallback())]


@pytest.mark.parametrize("learner", LEARNERS, ids=["scikit", "bayes", "ridge"])
def test_a_model_made_again_answers_as_before(learner):
    learner = learner.for_classes(np.array(["no", "yes"])) if hasattr(learner, "for_classes") else learner
    for model in (learner.fit(X, Y, 0), Abstainer(), ConstantModel(1)):
        found = model_of(learner, parts_of(learner, model))
        np.testing.assert_array_equal(found.predict(X), model.predict(X))


def test_the_names_of_the_classes_come_from_the_learner():
    learner = ScikitLearner(LogisticRegression()).for_classes(np.array(["no", "yes"]))
    parts = parts_of(learner, learner.fit(X, Y, 0))
    assert parts.classes is None
    assert model_of(learner, parts).classes.tolist() == ["no", "yes"]


@pytest.mark.parametrize("parts", [3, None, (1, 2), {"weights": 1}])
def test_what_is_no_model_is_refused(parts):
    for learner in LEARNERS:
        with pytest.raises(ModelFormatError):
            model_of(learner, parts)
