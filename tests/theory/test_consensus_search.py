"""The accountant the other way round, and the T4 table."""

from __future__ import annotations

import pytest

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.theory.consensus import design_consensus
from expunge.theory.consensus_search import best_alpha, consensus_table, fewest_shards

TERMS = {"max_queries": 10**4, "generations": 1, "beta": 1e-2, "gamma": 1e-2}

# β = γ, α, k: transcript G=1 l=1e4 / 1e6, paper G=1 l=1e4 / 1e6, paper G=100 l=1e4 (T4, "What it buys").
PUBLISHED = {
    (1e-3, 1, 1000): (0.957, 0.962, None, None, None),
    (1e-3, 1, 3000): (0.803, 0.809, 0.919, 0.922, 0.981),
    (1e-3, 1, 10_000): (0.674, 0.677, 0.757, 0.759, 0.822),
    (1e-3, 5, 300): (0.833, 0.847, 0.953, 0.963, 1.00),
    (1e-3, 5, 1000): (0.688, 0.700, 0.779, 0.787, 0.838),
    (1e-3, 5, 10_000): (0.560, 0.564, 0.592, 0.595, 0.614),
    (1e-2, 1, 1000): (0.825, 0.834, 0.939, 0.944, 1.00),
    (1e-2, 1, 10_000): (0.609, 0.613, 0.663, 0.666, 0.721),
    (1e-2, 5, 300): (0.660, 0.680, 0.850, 0.867, 0.937),
    (1e-2, 5, 1000): (0.587, 0.599, 0.700, 0.711, 0.764),
}


def test_the_published_table_is_reached(tmp_path):
    rows = consensus_table(cache_folder=tmp_path)
    assert len(rows) == 50
    found = {(row.beta, row.alpha, row.k): [] for row in rows}
    for row in rows:
        assert row.gamma == row.beta
        found[row.beta, row.alpha, row.k].append(row)
    assert set(found) == set(PUBLISHED)
    columns = [("transcript", 1, 10**4), ("transcript", 1, 10**6), ("paper", 1, 10**4), ("paper", 1, 10**6)]
    for key, shares in PUBLISHED.items():
        assert [(r.form, r.generations, r.l_max) for r in found[key]] == [*columns, ("paper", 100, 10**4)]
        for row, share in zip(found[key], shares, strict=True):
            if share is None:
                assert row.share is None, row
            else:
                assert row.share is not None, row
                assert row.share <= share + 0.002, row


@pytest.mark.parametrize("form", ["paper", "transcript"])
def test_best_alpha_is_best(form):
    design = best_alpha(num_shards=400, share=0.9, form=form, **TERMS)
    assert design.sure_release_share <= 0.9
    stronger = design_consensus(**TERMS, num_shards=400, form=form, alpha=design.target.alpha / 1.05)
    assert stronger.sure_release_share > 0.9


def test_best_alpha_says_when_there_is_none():
    with pytest.raises(GuaranteeError, match="num_shards=20 cannot surely release"):
        best_alpha(num_shards=20, share=0.6, **TERMS)


@pytest.mark.parametrize("form", ["paper", "transcript"])
def test_fewest_shards_are_fewest_up_to_rounding(form):
    design = fewest_shards(share=0.9, alpha=5.0, form=form, **TERMS)
    k = design.target.num_shards
    assert design.sure_release_share <= 0.9
    assert design_consensus(**TERMS, num_shards=k - 15, alpha=5.0, form=form).sure_release_share > 0.9


def test_fewest_shards_says_when_there_are_none():
    with pytest.raises(GuaranteeError, match="up to 100 shards"):
        fewest_shards(share=0.9, alpha=1.0, most=100, **TERMS)


@pytest.mark.parametrize("share", [0.5, 1.1, float("nan")])
def test_shares_are_checked(share):
    with pytest.raises(ParameterError, match="share"):
        best_alpha(num_shards=400, share=share, **TERMS)
    with pytest.raises(ParameterError, match="share"):
        fewest_shards(share=share, alpha=5.0, **TERMS)
