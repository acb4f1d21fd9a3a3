import dataclasses
import itertools
import math

import numpy as np
import pytest

from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting import BoundedRange, GaussianDP, NonPrivate, PureDP
from expunge.privacy.mechanisms import MECHANISM_NAMES, ConfidentGaussianNoisyMax, calibrated_mechanism
from expunge.serving.publishing import NoisyPublisher
from expunge.theory import LARGEST_COUNT, max_predictions, paper_predictions, t1, t2_zcdp
from expunge.theory.ceiling import paper_illustration
from expunge.theory.planning import plan
from expunge.theory.planning.ways import PAPER, ROGERS, calibrate, illustrative_predictions, theorem_limits
from expunge.theory.solve import largest_count

TARGET = Guarantee(1.0, 1e-3, 1e-3)


def limits(event, *, num_shards=100, target=TARGET, num_generations=1, num_outcomes=2):
    found = theorem_limits(
        event,
        num_shards=num_shards,
        target=target,
        num_generations=num_generations,
        num_outcomes=num_outcomes,
    )
    return {limit.theorem: limit for limit in found}


def test_each_theorem_has_its_own_limit():
    found = limits(BoundedRange(0.001))
    assert found["T1 (pure DP)"].predictions == 68
    assert found["T2 (zCDP)"].predictions >= 306
    count = found["T2 (zCDP)"].predictions
    assert t2_zcdp(num_shards=100, rho=count * 1e-6 / 8, beta=1e-3, gamma=1e-3).alpha <= 1
    assert t2_zcdp(num_shards=100, rho=(count + 1) * 1e-6 / 8, beta=1e-3, gamma=1e-3).alpha > 1
    assert t1(num_shards=100, epsilon=0.068, beta=1e-3).alpha <= 1 < t1(num_shards=100, epsilon=0.069, beta=1e-3).alpha


@pytest.mark.parametrize(
    ("event", "target", "num_generations", "num_outcomes"),
    [
        (BoundedRange(0.001), TARGET, 1, 2),
        (BoundedRange(0.001), TARGET, 100, 10),
        (PureDP(0.003), Guarantee(5, 1e-2, 1e-2), 1, 2),
        (GaussianDP(2000.0), Guarantee(5, 1e-2, 1e-2), 10, 3),
        (NonPrivate(), Guarantee(12, 0, 1e-3), 1, 2),
        (BoundedRange(0.5), Guarantee(12, 1e-3, 1e-3), 1, 2),
    ],
)
def test_the_best_theorem_is_what_the_solver_finds(event, target, num_generations, num_outcomes):
    found = limits(event, target=target, num_generations=num_generations, num_outcomes=num_outcomes)
    for best, known in (
        (max(limit.predictions for limit in found.values() if limit.standing == "certified"), None),
        (max(limit.predictions for limit in found.values() if limit.theorem not in (ROGERS, PAPER)), num_outcomes),
    ):
        assert best == max_predictions(
            target, event=event, num_shards=100, num_generations=num_generations, num_outcomes=known
        )
    assert best > 0


def test_a_theorem_that_cannot_fail_pays_nothing_for_generations():
    few, many = limits(BoundedRange(0.001)), limits(BoundedRange(0.001), num_generations=1000)
    assert few["T1 (pure DP)"] == many["T1 (pure DP)"]
    assert not many["T1 (pure DP)"].pays_gamma
    assert many["T2 (zCDP)"].predictions < few["T2 (zCDP)"].predictions
    assert many["T2 (zCDP)"].pays_gamma


def test_description_length_is_the_only_bound_without_privacy():
    found = limits(NonPrivate(), target=Guarantee(12, 0, 1e-3))
    # ln(2^l/γ) ≤ 12
    assert found["description length"].standing == "comparison"
    assert found["description length"].predictions == math.floor((12 - math.log(1e3)) / math.log(2))
    assert found["T1 (pure DP)"].predictions == 0
    assert not {ROGERS, PAPER} & set(found)


def test_what_the_literature_states_never_counts_as_certified():
    found = limits(BoundedRange(0.0001), target=Guarantee(20, 1e-3, 1e-3))
    assert found[ROGERS].standing == "comparison"
    assert found[PAPER].standing == "illustrative"
    assert found[ROGERS].predictions == paper_predictions(num_shards=100, epsilon=1e-4, alpha=20, beta=1e-3, gamma=1e-3)


@pytest.mark.parametrize(("num_shards", "epsilon", "alpha"), [(1000, 1e-4, 20.0), (10**5, 1e-6, 14.5), (60, 0.002, 60)])
def test_the_illustrative_count_is_the_papers_formula(num_shards, epsilon, alpha):
    target = Guarantee(alpha, 1e-3, 1e-3)
    found = illustrative_predictions(num_shards=num_shards, epsilon=epsilon, target=target)
    largest = min(0.5, math.sqrt(alpha / num_shards))
    best = 0.0
    for whole, log_delta in itertools.product(np.linspace(0.2, 1, 300) * largest, np.linspace(5, 90, 300)):
        delta = math.exp(-log_delta)
        if delta < whole:
            bound = paper_illustration(num_shards=num_shards, epsilon=whole, delta=delta)
            if bound.alpha <= alpha and bound.beta <= 1e-3:
                best = max(best, whole**2 / (8 * epsilon**2 * log_delta))
    assert best > 10
    assert best - 1 <= found <= 1.03 * best + 1


def test_the_illustrative_count_is_zero_where_the_paper_says_nothing():
    # β = γ = 1e-3 needs e^{−ε²k} ≤ 1e-6, so α ≥ 13.8.
    assert illustrative_predictions(num_shards=1000, epsilon=1e-9, target=Guarantee(13.8, 1e-3, 1e-3)) == 0
    assert illustrative_predictions(num_shards=1000, epsilon=1e-9, target=Guarantee(50, 1e-3, 0)) == 0
    assert illustrative_predictions(num_shards=1, epsilon=1e-9, target=Guarantee(50, 1e-3, 1e-3)) == 0


@pytest.mark.parametrize("last", [0, 1, 2, 3, 1000, 2**40, LARGEST_COUNT, LARGEST_COUNT + 5])
def test_largest_count(last):
    for guess in (1, 2, 5, 1000, 2**39, 2**41, LARGEST_COUNT, 2 * LARGEST_COUNT):
        assert largest_count(lambda count: count <= last, guess=guess) == min(last, LARGEST_COUNT)


def test_a_good_guess_saves_work():
    tried = []

    def holds(count):
        tried.append(count)
        return count <= 10**9

    assert largest_count(holds, guess=10**9 + 10**7) == 10**9
    assert len(tried) < 30
    assert all(1 <= count <= LARGEST_COUNT for count in tried)


@pytest.fixture(scope="module")
def base_question():
    return plan(num_records=10**6, num_shards=1000).question


@pytest.mark.parametrize("name", [name for name in MECHANISM_NAMES if name != "majority"])
@pytest.mark.parametrize(
    "wanted",
    [{"unanimous_accuracy": 0.95}, {"majority_accuracy": 0.9}, {"unanimous_accuracy": 0.9, "majority_accuracy": 0.88}],
)
@pytest.mark.parametrize("num_classes", [2, 10])
def test_a_mechanism_is_as_noisy_as_the_wishes_bear(base_question, name, wanted, num_classes):
    wishes = {"unanimous_accuracy": None, "majority_accuracy": None, **wanted}
    question = dataclasses.replace(base_question, num_classes=num_classes, **wishes)
    made = calibrate(name, question)
    slack = [
        made.accuracy(share=share, num_shards=1000, num_classes=num_classes) - accuracy
        for share, accuracy in question.wanted.items()
    ]
    # Every wish is met, and one of them only just.
    assert min(slack) >= 0
    assert min(slack) < 1e-5


def test_calibration_is_the_mechanisms_own(base_question):
    question = dataclasses.replace(base_question, num_classes=10)
    for name in ("exponential", "permute-and-flip", "laplace", "gaussian"):
        assert calibrate(name, question) == calibrated_mechanism(
            name, num_shards=1000, num_classes=10, share=1.0, accuracy=0.99
        )


def test_the_confident_mechanism_wants_more_than_half_of_the_shards(base_question):
    made = calibrate("confident", base_question)
    assert isinstance(made, ConfidentGaussianNoisyMax)
    assert made.threshold == 500


def test_the_known_counts_at_99_percent():
    # ε0 = 2 ln 99 / k: 2, 7 and 223 predictions at k = 1000, 10⁴ and 10⁶.
    for num_shards, expected in ((1000, 2), (10_000, 7), (1_000_000, 223)):
        offer = plan(num_records=10**9, num_shards=num_shards, target=TARGET, num_generations=1).offer("exponential")
        assert offer.parameters["epsilon"] == pytest.approx(2 * math.log(99) / num_shards, rel=1e-5)
        assert offer.unanimous_accuracy == pytest.approx(0.99, abs=1e-6)
        assert offer.predictions == expected


@pytest.mark.parametrize("target", [TARGET, Guarantee(8, 1e-2, 1e-2)])
def test_every_offer_is_what_the_solver_finds(target):
    made = plan(num_records=10**6, num_shards=3000, num_classes=5, target=target, unanimous_accuracy=0.9)
    noisy = [offer for offer in made.offers if offer.mechanism is not None]
    assert [offer.name for offer in noisy] == list(MECHANISM_NAMES)
    for offer in noisy:
        solved = max_predictions(target, event=offer.mechanism.event, num_shards=3000, num_generations=100)
        assert offer.predictions == solved
        assert (offer.guarantee is None) == (solved == 0)
        if offer.guarantee is not None:
            assert offer.guarantee.covers(target)
            assert offer.guarantee.theorem == offer.best.theorem
    assert made.best is not None


@pytest.mark.parametrize("num_shards", [10, 100, 3000])
def test_what_is_promised_can_be_had_from_a_deployment(num_shards):
    """Description length allows 4 predictions at 10 shards; no deployment certifies by it, so it does not count."""
    target = Guarantee(10, 1e-3, 1e-3)
    made = plan(num_records=10**4, num_shards=num_shards, target=target, num_generations=1)
    for offer in made.offers:
        if offer.mechanism is None or not offer.predictions:
            continue
        publisher = NoisyPublisher(offer.mechanism, budget=None, max_predictions=offer.predictions)
        had = publisher.guarantee(num_shards=num_shards, beta=1e-3, gamma=1e-3, num_generations=1)
        assert had.covers(target)
        assert had.alpha <= offer.guarantee.alpha
    assert made.offer("majority").predictions == 0
    assert made.offer("majority").limit("description length").predictions == 4
    if num_shards == 10:
        assert made.offer("exponential").predictions == 1
