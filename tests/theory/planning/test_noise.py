import dataclasses
import math

import pytest

from expunge.privacy.mechanisms import MECHANISM_NAMES, ConfidentGaussianNoisyMax, calibrated_mechanism
from expunge.serving.publishing import NoisyPublisher
from expunge.theory import Guarantee, max_predictions
from expunge.theory.planning import plan
from expunge.theory.planning.ways import calibrate

TARGET = Guarantee(1, 1e-3, 1e-3)


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
