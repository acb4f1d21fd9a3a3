"""Options in words become samplers, publishers and fronts; what is impossible is refused with one line."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from expunge import Guarantee, IndependentSampler, PartitionSampler, PrivacyBudget, Randomness, Records
from expunge.core.errors import FormatError, ParameterError
from expunge.folder.configuration import dump_settings, load_settings
from expunge.privacy.accounting.accountants import BestAccountant
from expunge.privacy.mechanisms import MECHANISM_NAMES, mechanism
from expunge.serving.publishing import ConsensusPublisher, DirectFront, NoisyPublisher, RouterFront, StudentFront
from expunge.serving.settings import Settings, as_budget
from expunge.training.fallback import NearestNeighbours, RidgeFallback
from expunge.training.learners import LookupTableLearner

RECORDS = Records.build(np.arange(400.0).reshape(200, 2), np.arange(200) % 2)
RNG = Randomness.from_seed(0)
STUDENT = LookupTableLearner()


def test_sizes_are_taken_or_asked_of_the_planner() -> None:
    assert Settings().sizes(RECORDS) == (10, None)
    assert Settings(n_shards=np.int64(7), inclusion_probability=0.5).sizes(RECORDS) == (7, 0.5)  # type: ignore[arg-type]
    auto, probability = Settings(n_shards="auto", target=Guarantee(20.0, 0.4, 0.4)).sizes(RECORDS)
    assert auto >= 1
    assert probability is not None
    assert 0 < probability <= 1
    assert Settings(n_shards="auto", inclusion_probability=0.25).sizes(RECORDS)[1] == 0.25


@pytest.mark.parametrize("wrong", [0, -3, True, 2.5, "many", None])
def test_sizes_that_are_none(wrong: Any) -> None:
    with pytest.raises(ParameterError, match="n_shards must be a whole number of at least 1 or 'auto'"):
        Settings(n_shards=wrong).sizes(RECORDS)


def test_samplers() -> None:
    assert Settings().make_sampler(0.2) == IndependentSampler(0.2)
    assert Settings(sampling="partition").make_sampler(None) == PartitionSampler(equal_sizes=True)
    assert Settings(sampling="random_partition").make_sampler(None) == PartitionSampler(equal_sizes=False)
    own = IndependentSampler(0.7)
    assert Settings(sampling=own).make_sampler(None) is own
    for sampling in ("partition", own):
        with pytest.raises(ParameterError, match="inclusion_probability needs sampling='independent'"):
            Settings(sampling=sampling, inclusion_probability=0.5).make_sampler(0.5)
    for wrong in ("sideways", 3, IndependentSampler):
        with pytest.raises(ParameterError, match="sampling must be one of independent, partition, random_partition"):
            Settings(sampling=wrong).make_sampler(None)  # type: ignore[arg-type]


def test_publishers() -> None:
    assert isinstance(Settings().make_publisher(5, 2, RNG), ConsensusPublisher)
    noisy = Settings(mechanism="laplace", budget=(2.0, 1e-6)).make_publisher(50, 2, RNG)
    assert isinstance(noisy, NoisyPublisher)
    assert noisy.capacity > 0
    assert math.isinf(Settings(mechanism="laplace").make_publisher(50, 2, RNG).capacity)
    assert Settings(mechanism="laplace", max_predictions=9).make_publisher(50, 2, RNG).capacity == 9
    target = Settings(mechanism="laplace", target=Guarantee(8.0, 0.05, 0.05)).make_publisher(1000, 2, RNG)
    both = Settings(mechanism="laplace", target=Guarantee(8.0, 0.05, 0.05), max_predictions=2)
    assert both.make_publisher(1000, 2, RNG).capacity == min(2, target.capacity)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"target": (1.0, 0.1, 0.1)}, "target must be a Guarantee"),
        ({"target": Guarantee(8.0, 0.05, 0.05, form="transcript")}, "in the paper's form, got one in transcript form"),
        (
            {"mechanism": "laplace", "target": Guarantee(8.0, 0.05, 0.05, form="transcript")},
            "in the paper's form, got one in transcript form",
        ),
        ({"budget": (1.0, 1e-6)}, "budget is for noisy mechanisms"),
        ({"mechanism": "nonsense"}, "mechanism must be one of consensus"),
        ({"mechanism": 7}, "mechanism must be one of consensus"),
        ({"mechanism": "laplace", "budget": 3}, "budget must be a PrivacyBudget or a pair"),
        ({"mechanism": "laplace", "budget": (1, 2, 3)}, "budget must be a PrivacyBudget or a pair"),
        ({"mechanism": "laplace", "accountant": "nobody"}, "accountant must be one of"),
        ({"mechanism": "laplace", "on_exhausted": "shrug"}, "on_exhausted must be one of"),
        ({"max_predictions": 0}, "max_predictions must be an integer >= 1"),
        ({"on_exhausted": "refuse"}, "consensus answers every query"),
    ],
)
def test_publishers_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words) as caught:
        Settings(**options).make_publisher(50, 2, RNG)
    assert "\n" not in str(caught.value)


def test_budgets() -> None:
    assert as_budget(None) is None
    assert as_budget((1.0, 1e-6)) == PrivacyBudget(1.0, 1e-6)
    budget = PrivacyBudget(2.0, 0.0)
    assert as_budget(budget) is budget


def test_fronts() -> None:
    assert Settings().make_front(STUDENT) == DirectFront()
    assert Settings(publish="router").make_front(STUDENT) == RouterFront()
    assert Settings(publish="router", fallback=NearestNeighbours()).make_front(STUDENT) == RouterFront(
        NearestNeighbours()
    )
    pool = np.ones((2, 2))
    taught = Settings(publish="student", pool=pool).make_front(STUDENT)
    assert isinstance(taught, StudentFront)
    assert taught.pool is pool
    assert taught.student is STUDENT
    own = RouterFront(RidgeFallback(), threshold=1.0)
    assert Settings(publish=own).make_front(STUDENT) is own


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"publish": "aloud"}, "publish must be direct, router, student or a Front"),
        ({"publish": 3}, "publish must be direct, router, student or a Front"),
        ({"publish": "student"}, "needs a pool of public points"),
        ({"publish": "router", "fallback": "ridge"}, "fallback must be one of"),
    ],
)
def test_fronts_that_cannot_be(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        Settings(**options).make_front(STUDENT)


# Written down with a folder.


def dumped(**options: Any) -> dict[str, Any]:
    return dump_settings(Settings(**options), num_shards=50, probability=0.5, num_classes=3)


@pytest.mark.parametrize("name", MECHANISM_NAMES)
def test_a_mechanism_is_written_down_with_its_numbers(name: str) -> None:
    made = Settings(mechanism=name).make_mechanism(50, 3)
    found = load_settings(dumped(mechanism=name))
    assert found.mechanism == made
    assert found.make_mechanism(50, 3) == made
    assert load_settings(dumped(mechanism=made)).mechanism == made


def test_all_that_was_found_is_written_down() -> None:
    settings = Settings(
        n_shards="auto",
        mechanism="laplace",
        target=Guarantee(3.0, 0.1, 0.2, note="words are not kept"),
        max_predictions=np.int32(8),  # type: ignore[arg-type]
        budget=(np.float64(1.0), 1e-6),
        accountant="zcdp",
        on_exhausted="refuse",
        max_generations=np.int64(9),  # type: ignore[arg-type]
    )
    import json

    data = dump_settings(settings, num_shards=50, probability=0.5, num_classes=3)
    found = load_settings(json.loads(json.dumps(data)))
    assert (found.n_shards, found.inclusion_probability, found.sampling) == (50, 0.5, "independent")
    assert found.target == Guarantee(3.0, 0.1, 0.2)
    assert found.budget == PrivacyBudget(1.0, 1e-6)
    assert (found.max_predictions, found.max_generations) == (8, 9)
    assert (found.accountant, found.on_exhausted) == ("zcdp", "refuse")
    assert dump_settings(found, num_shards=50, probability=0.5, num_classes=3) == data


class Own:
    name = "own"


class BetterThanBest(BestAccountant):
    """Goes by a known name, under which another one would be read."""


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"sampling": IndependentSampler(0.5)}, "takes sampling by its name"),
        ({"accountant": Own()}, "takes an accountant by its name"),
        ({"accountant": BetterThanBest()}, "takes an accountant by its name"),
        ({"max_generations": 1.5}, "max_generations must be an integer >= 1"),
        ({"max_generations": True}, "max_generations must be an integer >= 1"),
        ({"max_predictions": "9"}, "max_predictions must be a whole number"),
    ],
)
def test_what_has_no_name_is_not_written_down(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ParameterError, match=words):
        dumped(**options)


@pytest.mark.parametrize(
    "damage", [{"strange": 1}, {"mechanism": ["nonsense", {}]}, {"mechanism": ["laplace", {"x": 1}]}, {"target": [-1]}]
)
def test_damaged_settings(damage: dict[str, Any]) -> None:
    with pytest.raises(FormatError, match="settings are damaged"):
        load_settings({**dumped(), **damage})
    with pytest.raises(FormatError, match="settings are damaged"):
        load_settings(damage)


def test_partitions_have_no_probability() -> None:
    assert dumped(sampling="partition")["inclusion_probability"] is None
    assert dumped(mechanism=mechanism("majority"))["mechanism"] == ["majority", {}]
