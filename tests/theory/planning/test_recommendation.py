import dataclasses

import pytest

from expunge.theory import Guarantee
from expunge.theory.planning import plan
from expunge.theory.planning.advice import recommend, recommend_shards

BASE = {"num_records": 10**6, "num_shards": 1000}


def test_it_is_the_plan_at_the_advised_shards():
    made = plan(**BASE)
    found = made.recommended
    advice = recommend_shards(
        num_records=10**6, num_classes=2, target=made.question.target, num_generations=100, max_predictions=10**6
    )
    assert (found.num_shards, found.inclusion_probability) == (advice.num_shards, advice.inclusion_probability)
    followed = plan(num_records=10**6, num_shards=found.num_shards, inclusion_probability=found.inclusion_probability)
    assert found.way == followed.best.name == "consensus+student"
    assert found.passes_per_day == followed.best.schedule.passes_per_day < found.one_model_passes_per_day == 10
    assert found.sure_release_share == followed.offer("consensus").consensus.sure_release_share <= 0.9
    assert "677 shards" in found.words
    assert "student" in found.words


def test_it_does_not_depend_on_the_shards_asked_about():
    assert plan(num_records=10**6, num_shards=50, inclusion_probability=0.3).recommended == plan(**BASE).recommended


@pytest.mark.parametrize(
    ("options", "way"),
    [
        ({"vote_shares": [0.999] * 1000}, "consensus"),
        ({"vote_shares": [0.999] * 75 + [0.7] * 25}, "consensus+student"),
        ({"vote_shares": [0.999] * 75 + [0.7] * 25, "pool_size": 0}, "consensus+router"),
        ({"pool_size": 0}, "consensus"),
        ({"vote_shares": [0.52], "pool_size": 0}, "retrain_one_model"),
        ({"num_records": 2000}, "retrain_one_model"),
        ({"deletions_per_day": 10**6, "batches_per_day": 1}, "retrain_one_model"),
    ],
)
def test_the_way_follows_the_costs(options, way):
    found = plan(**{**BASE, **options}).recommended
    assert found.way == way
    assert found.passes_per_day <= found.one_model_passes_per_day
    assert found.words.startswith("Retrain one model from scratch instead") == (way == "retrain_one_model")


def test_what_is_supposed_is_said():
    assert "This supposes that" in plan(**BASE, pool_size=0).recommended.words
    assert "This supposes that" not in plan(**BASE, vote_shares=[0.999] * 1000).recommended.words


def test_no_number_of_shards_is_said_too():
    found = recommend(dataclasses.replace(plan(**BASE).question, target=Guarantee(0.01, 1e-3, 1e-3)))
    assert found.way == "retrain_one_model"
    assert found.sure_release_share is None
    assert "No number of shards will do" in found.words
