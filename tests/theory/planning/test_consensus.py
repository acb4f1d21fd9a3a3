from fractions import Fraction

import numpy as np
import pytest

from expunge.core.guarantee import Guarantee
from expunge.theory import best_alpha, design_consensus
from expunge.theory.planning import plan
from expunge.theory.planning.question import CleanLaw

TARGET = Guarantee(5, 1e-3, 1e-3)
BASE = {
    "num_records": 10**6,
    "num_shards": 1000,
    "target": TARGET,
    "predictions_per_day": 1000,
    "deletions_per_day": 10,
}


@pytest.fixture(scope="module")
def design():
    return design_consensus(num_shards=1000, max_queries=10**6, generations=100, alpha=5, beta=1e-3, gamma=1e-3)


@pytest.fixture(scope="module")
def made():
    return plan(**BASE)


def change_of(made, option, word):
    return next(change for change in made.changes if change.option == option and word in change.words)


def test_the_offers_are_the_certified_design(made, design):
    names = [offer.name for offer in made.offers if offer.consensus is not None]
    assert names == ["consensus", "consensus+router", "consensus+student"]
    for name in names:
        offer = made.offer(name)
        assert offer.consensus.sure_release_share == design.sure_release_share
        assert offer.consensus.max_dissent == design.max_dissent
        assert offer.guarantee == design.guarantee
        assert offer.guarantee.covers(TARGET)
    assert 0.83 < design.sure_release_share < 0.85
    assert made.offer("consensus").predictions == 10**6
    assert made.offer("consensus").best.theorem == "T4, Theorem D (paper form)"
    assert made.offer("consensus+student").is_unlimited


def test_fewer_predictions_per_generation_need_lower_shares(made):
    few = plan(**BASE, max_predictions=1000)
    assert few.offer("consensus").predictions == 1000
    assert few.offer("consensus").consensus.sure_release_share < made.offer("consensus").consensus.sure_release_share


def test_asked_directly_without_a_hard_query(made):
    offer = made.offer("consensus")
    # 10 updates a day, 100 queries between them: update 10,000 finds the million used up.
    assert offer.consensus.updates_per_generation == 10_000
    assert offer.schedule.full_retrainings_per_day == 10 / 10_000
    assert offer.schedule.generation_days == 1000
    assert offer.schedule.passes_per_day == pytest.approx(0.001 * 1 + 9.999 * 0.001)
    assert "84.2% of the shards" in offer.assumption


def test_the_students_cost_is_the_formula(made):
    offer = made.offer("consensus+student")
    # One deletion in a throw-away ensemble of 100 shards (k̃p·p), and 10,000 pool points of a million records.
    assert offer.consensus.passes_per_update == pytest.approx(100 * 0.001**2 + 0.01)
    # 10,000 pool points a round: at most 100 rounds; each is dirty with a chance of 1%.
    length = sum(0.99**j for j in range(100))
    assert offer.consensus.updates_per_generation == pytest.approx(length)
    full = 10 / length
    assert offer.schedule.full_retrainings_per_day == pytest.approx(full)
    assert offer.schedule.passes_per_day == pytest.approx(full + (10 - full) * 0.001 + 10 * 0.0101)
    assert offer.assumption == ""
    assert made.best is offer
    assert "Update: consensus+student serves unlimited predictions" in made.verdict.words
    assert made.verdict.words.startswith("This supposes that a student learns well from public points")
    # Its cost does not depend on the traffic.
    busy = plan(**{**BASE, "predictions_per_day": 10**9}).offer("consensus+student")
    assert busy.schedule == offer.schedule


def test_without_a_pool_there_is_no_student(made):
    alone = plan(**BASE, pool_size=0)
    assert [offer.name for offer in alone.offers if offer.consensus] == ["consensus", "consensus+router"]
    assert alone.best.name == "consensus"
    assert "This supposes that at least 84.2% of the shards agree on every query" in alone.verdict.words


def test_a_pool_beyond_the_limit_retrains_every_time():
    offer = plan(**BASE, max_predictions=5000, pool_size=10_000).offer("consensus+student")
    assert offer.schedule.full_retrainings_per_day == 10


def test_a_sample_of_queries_predicts_dirty_generations(design):
    shares = [0.99] * 2990 + [0.8] * 10
    made = plan(**BASE, vote_shares=np.array(shares))
    offer = made.offer("consensus")
    law = CleanLaw.from_sample(design, np.array(shares))
    assert offer.consensus.forecast.below_sure == pytest.approx(10 / 3000)
    assert offer.consensus.forecast.dirty_before_update == pytest.approx(1 - law.clean_chance(100))
    assert offer.consensus.updates_per_generation == pytest.approx(
        law.updates_per_generation(queries_per_update=Fraction(100), max_queries=10**6)
    )
    assert offer.assumption == ""
    assert offer.consensus.cautious.passes_per_day >= offer.schedule.passes_per_day
    assert any("0.333% of the 3,000 sampled queries" in remark for remark in made.remarks)


def test_worse_agreement_never_costs_less():
    costs = [
        plan(**BASE, vote_shares=[0.99] * 99 + [share]).offer("consensus").schedule.passes_per_day
        for share in (0.99, 0.83, 0.8, 0.75, 0.5)
    ]
    assert costs == sorted(costs)
    # One hopeless query in a hundred: a round of 100 queries is clean with a chance of 0.99^100.
    assert costs[0] < costs[-1] == pytest.approx(10 * (1 - 0.99**100) * (1 - 0.001) + 10 * 0.001, rel=1e-6)


def test_the_router_lets_through_what_is_sure():
    shares = [0.99] * 90 + [0.6] * 10
    made = plan(**BASE, vote_shares=shares)
    direct, router = made.offer("consensus"), made.offer("consensus+router")
    assert router.consensus.ensemble_share == 0.9
    assert router.predictions == int(10**6 / 0.9)
    assert router.consensus.passes_per_update == pytest.approx(100 * 0.001**2)
    assert router.consensus.forecast.dirty_generations == 0
    assert direct.consensus.forecast.dirty_generations == 1
    assert router.assumption == "the router sends no hard query to the ensemble"
    # Nine tenths of the queries: the generation lasts the longer.
    assert router.consensus.updates_per_generation == 11_112


def test_a_router_that_was_measured():
    shares = [0.99] * 90 + [0.6] * 10
    good = plan(**BASE, vote_shares=shares, ensemble_share=0.5).offer("consensus+router")
    assert (good.assumption, good.consensus.forecast.below_sure) == ("", 0)
    assert good.predictions == 2 * 10**6
    lax = plan(**BASE, vote_shares=shares, ensemble_share=0.95).offer("consensus+router")
    assert lax.consensus.forecast.below_sure == pytest.approx(5 / 95)
    hopeless = plan(**BASE, vote_shares=[0.6]).offer("consensus+router")
    assert hopeless.predictions == 0
    assert "no query" in hopeless.consensus.reason


def test_the_best_way_follows_the_costs():
    agreeing = plan(**BASE, vote_shares=[0.99] * 5000)
    assert agreeing.best.name == "consensus"
    quarrelling = plan(**BASE, vote_shares=[0.99] * 75 + [0.52] * 25)
    assert quarrelling.best.name == "consensus+student"
    # Almost always a full retraining when asked directly: a router that was not measured is worth a try.
    assert plan(**BASE, vote_shares=[0.99] * 75 + [0.7] * 25, pool_size=0).best.name == "consensus+router"
    router = plan(**BASE, vote_shares=[0.99] * 75 + [0.52] * 25, ensemble_share=0.1)
    assert router.best.name == "consensus+router"
    small = plan(**{**BASE, "num_records": 2000}, vote_shares=[0.52])
    assert small.best.schedule.passes_per_day >= small.exact.cheapest
    assert small.verdict.recommendation == "retrain_one_model"
    assert "Retrain one model from scratch instead" in small.verdict.words


def test_too_few_shards_are_said_with_how_many_would_do():
    made = plan(**{**BASE, "num_shards": 100})
    offer = made.offer("consensus")
    assert (offer.predictions, offer.guarantee) == (0, None)
    assert "num_shards=100 is too few" in offer.consensus.reason
    shards = change_of(made, "num_shards", "More shards, for consensus").value
    assert shards == 677
    fixed = plan(**{**BASE, "num_shards": shards})
    assert fixed.offer("consensus").consensus.sure_release_share <= 0.9
    assert fixed.verdict.recommendation == "update"
    alpha = change_of(made, "alpha", "consensus")
    assert alpha.value is None
    assert "vacuous" in alpha.words


def test_a_larger_alpha_that_would_do_for_consensus():
    made = plan(**{**BASE, "target": Guarantee(1, 1e-3, 1e-3), "num_generations": 1, "max_predictions": 10})
    alpha = change_of(made, "alpha", "consensus").value
    terms = {"num_shards": 1000, "max_queries": 10, "generations": 1, "beta": 1e-3, "gamma": 1e-3}
    assert alpha == pytest.approx(best_alpha(share=0.9, **terms).target.alpha, abs=1.1e-3)
    assert design_consensus(alpha=alpha, **terms).sure_release_share <= 0.9


def test_what_makes_consensus_cheaper():
    quarrel = {"vote_shares": [0.52]}
    pool = change_of(plan(**BASE, **quarrel, pool_size=0), "pool_size", "public pool")
    assert pool.value == 10_000
    assert plan(**BASE, **quarrel, pool_size=pool.value).verdict.recommendation == "update"
    crowded = plan(**BASE, **quarrel, inclusion_probability=0.03)
    single = change_of(crowded, "inclusion_probability", "consensus")
    assert single.value == 1 / 1000
    assert plan(**BASE, **quarrel, inclusion_probability=single.value).verdict.recommendation == "update"


def test_more_shards_than_gates_are_designed_for():
    offer = plan(**{**BASE, "num_shards": 100_001}).offer("consensus")
    assert offer.predictions == 0
    assert "100,000" in offer.consensus.reason
