"""The choice among checks equals counting everything, and needs a small part of it."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.stats import norm

pytest.importorskip("jax")

from expunge_lab.reproduction.white_box import choose_checks


class Counter:
    """An examiner of known errors, (checks, models, images), that remembers how much was asked of it."""

    def __init__(self, wrong, *, block=128, orders=True):
        self.num_checks, self.num_models, self.num_images = wrong.shape
        self.block, self._wrong, self._sorts = block, wrong, orders
        self.evaluated, self.requests = 0, 0

    def study(self, checks):
        studied = self._wrong[checks]
        votes = studied.sum(axis=0)
        hardness = votes + votes.mean(axis=0) if self._sorts else np.zeros_like(votes)
        order = np.argsort(-hardness, axis=1, kind="stable")
        ordered = np.take_along_axis(self._wrong, order[np.newaxis], axis=2)
        padded = np.pad(ordered, ((0, 0), (0, 0), (0, -self.num_images % self.block)))
        self._blocks = padded.reshape(self.num_checks, self.num_models, -1, self.block).sum(axis=3)
        self.evaluated += studied.size
        self.requests += 1
        return studied.sum(axis=2)

    def count(self, check, model, number):
        self.evaluated += len(check) * self.block
        self.requests += 1
        assert len(set(zip(check.tolist(), model.tolist(), number.tolist(), strict=True))) == len(check)
        return self._blocks[check, model, number]


def best_by_counting(wrong):
    totals = wrong.sum(axis=2)
    return (len(totals) - 1 - totals[::-1].argmin(axis=0)).tolist()


def curves(seed, *, checks=125, models=8, images=5000, end=0.04):
    """Error sets as in training: hard images are hard for all, a model's errors last, the rate falls and wobbles."""
    rng = np.random.default_rng(seed)
    done = np.arange(1, checks + 1)[:, np.newaxis]
    rate = end * (1 + 0.8 / done) + 0.26 * np.exp(-done / 4)
    rate = np.minimum(rate * np.exp(0.04 * rng.normal(size=(checks, models))), 0.9)
    # How far an image is on the right side: of the image, of the image for a model, and of the moment.
    margin = 2 * rng.normal(size=images) + rng.normal(size=(models, images))
    passing = np.sqrt(0.1) * rng.normal(size=(checks, models, images)).astype(np.float32)
    return margin + passing < norm.ppf(rate, scale=np.sqrt(5.1))[..., np.newaxis]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("shape", [(1, 3, 100), (2, 3, 100), (7, 5, 1500), (30, 4, 640), (9, 1, 129)])
@pytest.mark.parametrize("rate", [0.0, 0.02, 0.5, 1.0])
def test_the_chosen_check_is_the_best_and_the_later_among_equals(seed, shape, rate):
    rng = np.random.default_rng(seed)
    checks, _, images = shape
    hardness = np.where(rng.random(images) < 4 * rate, 0.4, rate / 50) if rate < 1 else np.ones(images)
    wrong = rng.random(shape) < hardness * np.linspace(2, 1, checks)[:, None, None]
    assert choose_checks(Counter(wrong, block=64)).tolist() == best_by_counting(wrong)


@pytest.mark.parametrize("seed", range(200))
def test_ties_go_to_the_later_check(seed):
    """Few errors in few images: nearly every model has several best checks."""
    rng = np.random.default_rng(seed)
    wrong = rng.random((12, 20, 40)) < rng.choice([0.02, 0.1])
    totals = wrong.sum(axis=2)
    assert ((totals == totals.min(axis=0)).sum(axis=0) > 1).any()
    assert choose_checks(Counter(wrong, block=16)).tolist() == best_by_counting(wrong)


def test_any_order_of_the_images_gives_the_same_choice():
    wrong = curves(0, checks=40, models=3, images=1000)
    with_order, without = Counter(wrong), Counter(wrong, orders=False)
    assert choose_checks(with_order).tolist() == choose_checks(without).tolist() == best_by_counting(wrong)
    assert with_order.evaluated < without.evaluated


def test_an_early_check_can_win():
    wrong = curves(1, checks=30, models=4, images=600)
    wrong[2, 1] = wrong[:, 1].all(axis=0)
    wrong[0, 3] = False
    found = choose_checks(Counter(wrong))
    assert found.tolist() == best_by_counting(wrong)
    assert (found[1], found[3]) == (2, 0)


@pytest.mark.parametrize(("end", "share"), [(0.03, 0.15), (0.08, 0.2), (0.45, 0.75)])
def test_a_part_of_the_evaluations_suffices(end, share):
    """MNIST's error rates with little and much noise, and CIFAR-10's; on real trainings the shares are much the same.

    A check is out only when it has made more errors than the best, so that at a rate of 45% no less than 0.45 would do.
    """
    wrong = curves(2, end=end)
    counter = Counter(wrong)
    assert choose_checks(counter).tolist() == best_by_counting(wrong)
    assert counter.evaluated < share * wrong.size
    assert counter.requests < 40
