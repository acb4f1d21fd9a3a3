import dataclasses
import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.core.guarantee import Guarantee
from expunge.theory import LARGEST_COUNT, adaptive_quantile, oblivious_quantile
from expunge.theory.planning.question import Question
from expunge.theory.planning.work import (
    alternatives,
    batch_share,
    deletion_cost,
    predictions_needed,
    schedule,
    updates_per_generation,
)

BASE = Question(
    num_records=10**6,
    num_shards=1000,
    inclusion_probability=1e-3,
    num_classes=2,
    unanimous_accuracy=0.99,
    majority_accuracy=None,
    target=Guarantee(1, 1e-3, 1e-3),
    num_generations=100,
    predictions_per_day=100,
    deletions_per_day=10,
    batches_per_day=10,
    failure=1e-6,
)


def ask(**options):
    return dataclasses.replace(BASE, **options)


def test_costs_are_the_formulas():
    question = ask(inclusion_probability=0.004, deletions_per_day=500, batches_per_day=5)
    cost = deletion_cost(question)
    assert cost.expected_shards == pytest.approx(4)
    assert cost.passes_per_training == pytest.approx(4)
    assert cost.passes_per_deletion == pytest.approx(4 * 0.004)
    assert cost.batch_share == pytest.approx(1 - 0.996**100)
    assert cost.passes_per_batch == pytest.approx(4 * (1 - 0.996**100))
    assert cost.batch_shards == pytest.approx(1000 * (1 - 0.996**100))
    assert alternatives(question).one_model_passes_per_day == 5
    assert alternatives(question).ensemble_passes_per_day == pytest.approx(20)
    assert alternatives(question).cheapest == 5


def test_a_batch_of_one_over_p_touches_63_percent():
    assert batch_share(ask(deletions_per_day=1000, batches_per_day=1)) == pytest.approx(1 - 1 / math.e, abs=1e-3)
    assert batch_share(ask(num_shards=1, inclusion_probability=1)) == 1
    tiny = ask(num_shards=10**9, inclusion_probability=1e-9, deletions_per_day=1)
    assert batch_share(tiny) == pytest.approx(1e-9, rel=1e-12)


def test_a_simulated_batch_costs_that_much():
    question = ask(num_shards=50, inclusion_probability=0.05, deletions_per_day=20, batches_per_day=1)
    rng = np.random.default_rng(5)
    touched = (rng.random((4000, 50, 20)) < 0.05).any(axis=2).sum(axis=1)
    # 200,000 independent shards: five standard deviations of the mean, false alarm below 1e-6.
    share = batch_share(question)
    assert touched.mean() / 50 == pytest.approx(share, abs=5 * math.sqrt(share * (1 - share) / 200_000))


def test_worst_cases_are_the_exact_quantiles():
    cost = deletion_cost(BASE)
    shared = {"num_shards": 1000, "inclusion_probability": 1e-3, "failure": 1e-6}
    assert cost.oblivious_shards == oblivious_quantile(**shared) == 9
    assert cost.adaptive_shards == adaptive_quantile(**shared, num_records=2 * 10**6, num_generations=100)
    assert cost.expected_shards < cost.oblivious_shards < cost.adaptive_shards


def simulated_retrainings(question, predictions, days):
    """Play it: equally spaced updates; one that finds more published than allowed is a full retraining."""
    published, full = 0.0, 0
    updates = round(days * question.updates_per_day)
    for _ in range(updates):
        published += question.predictions_per_day / question.updates_per_day
        if published > predictions + 1e-9:
            full, published = full + 1, 0.0
    return full / days


@pytest.mark.parametrize("predictions", [0, 1, 9, 10, 11, 35, 1000])
def test_the_schedule_is_what_a_simulation_does(predictions):
    found = schedule(BASE, predictions=predictions, pays_gamma=True)
    days = updates_per_generation(BASE, predictions) * 3
    assert found.full_retrainings_per_day == pytest.approx(simulated_retrainings(BASE, predictions, days))
    assert found.generation_days == predictions / 100
    partial = 10 - found.full_retrainings_per_day
    assert found.passes_per_day == pytest.approx(found.full_retrainings_per_day + partial * 1e-3)
    assert found.covered_days == pytest.approx(100 * updates_per_generation(BASE, predictions) / 10)


def test_a_theorem_that_cannot_fail_and_a_generation_without_end_have_no_horizon():
    assert schedule(BASE, predictions=5, pays_gamma=False).covered_days is None
    endless = schedule(BASE, predictions=LARGEST_COUNT, pays_gamma=True)
    assert (endless.generation_days, endless.covered_days, endless.full_retrainings_per_day) == (None, None, 0)


questions = st.builds(
    ask,
    num_shards=st.integers(1, 10**6),
    inclusion_probability=st.floats(1e-7, 1),
    predictions_per_day=st.floats(0.01, 1e9),
    deletions_per_day=st.floats(0.01, 1e6),
    batches_per_day=st.floats(0.01, 1e4),
)


@settings(max_examples=200, deadline=None)
@given(questions, st.integers(0, 10**9), st.floats(1, 1e3))
def test_more_traffic_never_means_fewer_retrainings_nor_less_work(question, predictions, factor):
    busier = dataclasses.replace(question, predictions_per_day=question.predictions_per_day * factor)
    quiet = schedule(question, predictions=predictions, pays_gamma=True)
    busy = schedule(busier, predictions=predictions, pays_gamma=True)
    assert busy.full_retrainings_per_day >= quiet.full_retrainings_per_day
    assert busy.passes_per_day >= quiet.passes_per_day * (1 - 1e-12)
    more = schedule(question, predictions=2 * predictions + 1, pays_gamma=True)
    assert more.full_retrainings_per_day <= quiet.full_retrainings_per_day


@settings(max_examples=300, deadline=None)
@given(questions)
def test_the_needed_predictions_are_where_updating_becomes_cheaper(question):
    needed = predictions_needed(question)
    scratch = alternatives(question).cheapest
    if needed is None:
        assert question.copies * batch_share(question) >= min(1, question.copies)
        return
    enough = schedule(question, predictions=needed, pays_gamma=False).passes_per_day
    assert enough < scratch * (1 + 1e-9)
    if needed > 1:
        short = schedule(question, predictions=needed - 1, pays_gamma=False).passes_per_day
        assert short >= scratch * (1 - 1e-9)
