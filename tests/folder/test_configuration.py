"""A folder's promise is written down as plain data, and read as it was."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge import Guarantee, IndependentSampler, PartitionSampler, PrivacyBudget
from expunge.core.errors import FormatError, ParameterError
from expunge.folder.configuration import describe_learner, dump_settings, load_settings
from expunge.privacy.accounting.accountants import BestAccountant
from expunge.serving.promises import NOISE_NAMES, Consensus, Exact, Noise, Promise, Router, Student, Unguarded
from expunge.training.learners import AbstainingLearner, SlicedScikitLearner, as_learner
from expunge.training.learners.named import named_learner


def dumped(promise: Promise, sampling: Any = None, probability: float | None = 0.5) -> dict[str, Any]:
    return dump_settings(promise, sampling, num_shards=50, probability=probability, num_classes=3)


@pytest.mark.parametrize("name", NOISE_NAMES)
def test_a_mechanism_is_written_down_with_its_numbers(name: str) -> None:
    made = Noise(name).make_mechanism(50, 3)
    found = load_settings(dumped(Noise(name))).promise
    assert isinstance(found, Noise)
    assert found.mechanism == made
    assert found.make_mechanism(50, 3) == made
    assert load_settings(dumped(Noise(made))).promise == found


def test_all_that_was_found_is_written_down() -> None:
    promise = Noise(
        "laplace",
        target=Guarantee(3.0, 0.1, 0.2, note="words are not kept"),
        max_predictions=np.int32(8),  # type: ignore[arg-type]
        budget=(np.float64(1.0), 1e-6),
        accountant="zcdp",
        on_exhausted="refuse",
        max_generations=np.int64(9),  # type: ignore[arg-type]
    )
    data = dumped(promise)
    settings = load_settings(json.loads(json.dumps(data)))
    found = settings.promise
    assert isinstance(found, Noise)
    assert (settings.n_shards, settings.inclusion_probability, settings.sampling) == (50, 0.5, "independent")
    assert found.target == Guarantee(3.0, 0.1, 0.2)
    assert found.budget == PrivacyBudget(1.0, 1e-6)
    assert (found.max_predictions, found.max_generations) == (8, 9)
    assert (found.accountant, found.on_exhausted) == ("zcdp", "refuse")
    assert dumped(found) == data


@pytest.mark.parametrize(
    "promise",
    [
        Exact(),
        Exact("median"),
        Exact(threshold=("yes", 0.3)),
        Exact(threshold=(True, 1.0)),
        Unguarded(),
        Consensus(max_predictions=7, max_generations=3),
    ],
)
def test_other_promises_come_back(promise: Promise) -> None:
    settings = load_settings(json.loads(json.dumps(dumped(promise, probability=None))))
    assert (settings.promise, settings.name) == (promise, promise.name)
    assert settings.sampling == promise.default_sampling


@pytest.mark.parametrize("promise", [Router(max_predictions=7), Student(np.ones((2, 2)), max_predictions=7)])
def test_a_router_or_a_student_keeps_its_name_and_its_gate(promise: Promise) -> None:
    settings = load_settings(dumped(promise))
    assert (settings.promise, settings.name) == (Consensus(max_predictions=7), promise.name)


class Own:
    name = "own"


class BetterThanBest(BestAccountant):
    """Goes by a known name, under which another one would be read."""


class OwnPromise(Unguarded):
    """Goes by a known name."""


@pytest.mark.parametrize(
    ("promise", "sampling", "words"),
    [
        (Exact(), IndependentSampler(0.5), "takes sampling by its name"),
        (Exact(), PartitionSampler(), "takes sampling by its name"),
        (Noise(accountant=Own()), None, "takes an accountant by its name"),  # type: ignore[arg-type]
        (Noise(accountant=BetterThanBest()), None, "takes an accountant by its name"),
        (OwnPromise(), None, "takes the promises of this package"),
    ],
)
def test_what_has_no_name_is_not_written_down(promise: Promise, sampling: Any, words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        dumped(promise, sampling)


@pytest.mark.parametrize(
    "damage",
    [
        {"strange": 1},
        {"n_shards": 0},
        {"sampling": "sideways"},
        {"promise": {"name": "nonsense"}},
        {"promise": {"name": "exact", "target": None}},
        {"promise": {"name": "exact", "threshold": 3}},
        {"promise": {"name": "exact", "threshold": ["yes", "no"]}},
        {"promise": {"name": "noise", "mechanism": ["nonsense", {}]}},
        {"promise": {"name": "noise", "mechanism": ["laplace", {"x": 1}]}},
        {"promise": {"name": "consensus", "target": [-1]}},
        {"promise": 3},
    ],
)
def test_damaged_settings(damage: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="settings are damaged"):
        load_settings({**dumped(Noise("laplace")), **damage})
    with pytest.raises(FormatError, match="settings are damaged"):
        load_settings(damage)


def test_partitions_have_no_probability() -> None:
    assert dumped(Exact(), "partition", None)["inclusion_probability"] is None
    with pytest.raises(ParameterError, match="inclusion_probability"):
        dumped(Exact(), "partition", 0.5)


class Own:
    """A learner of somebody's own."""

    def fit(self, X: Any, y: Any, seed: int, *, weights: Any = None) -> Any:
        raise NotImplementedError


@pytest.mark.parametrize(
    ("learner", "words"),
    [
        (as_learner(LogisticRegression(C=3)), "LogisticRegression"),
        (as_learner(make_pipeline(StandardScaler(), LogisticRegression())), "a Pipeline of StandardScaler and "),
        (AbstainingLearner(LogisticRegression()), "LogisticRegression"),
        (SlicedScikitLearner(SGDClassifier(), num_slices=3), "SGDClassifier in 3 slices"),
        (named_learner("ridge-exact"), "RidgeFallback"),
        (named_learner("logistic"), "a Pipeline of StandardScaler and LogisticRegression"),
        (Pipeline([("a", "passthrough")]), "Pipeline"),
        (Pipeline([("a", None), ("b", SGDClassifier())]), "a Pipeline of SGDClassifier"),
        (Own(), "Own"),
    ],
)
def test_a_learner_is_described_in_words(learner: Any, words: str) -> None:
    assert describe_learner(learner).startswith(words)
