"""Designed consensus gates: exact laws of the votes, extremes, monotonicity, the cache."""

from __future__ import annotations

import dataclasses
import itertools
import json
import math
import time

import numpy as np
import pytest
from scipy.stats import binom

from expunge.core.errors import GuaranteeError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.theory.consensus import certify_design, design_consensus
from expunge.theory.consensus_certificate import certify_consensus
from expunge.theory.consensus_design import default_cache_folder

BASE = {"num_shards": 300, "max_queries": 10**4, "generations": 1, "alpha": 5.0, "beta": 1e-3, "gamma": 1e-3}

STEEPER = (2, 6)


def share(**changes):
    return design_consensus(**{**BASE, **changes}).sure_release_share


def dissent_laws(k):
    """Laws of D = max over queries of the dissent: one to many independent queries, shards alike or of two kinds."""
    depths = np.arange(k + 1)
    for q in np.geomspace(2e-3, 0.5, 30):
        single = binom.cdf(depths, k, q)
        mixed = np.cumsum(
            np.convolve(binom.pmf(np.arange(k // 2 + 1), k // 2, q), binom.pmf(depths, k - k // 2, q / 3))
        )
        for queries in (1, 2, 30, 10**4):
            yield np.diff(single**queries, prepend=0.0)
            yield np.diff(np.minimum(mixed[: k + 1], 1.0) ** queries, prepend=0.0)


def worst_excess(design, table):
    """The largest p with H > β (transcript form) or p·(H − β1) (paper form) over these laws, with H summed exactly."""
    target = design.target
    survival = np.append(table, np.zeros(target.num_shards - design.max_dissent))
    most = 0.0
    for law in dissent_laws(target.num_shards):
        p = float(law @ survival)
        if p <= 0:
            continue
        excess = float(law @ np.maximum(survival / p - math.exp(target.alpha), 0))
        if target.form == "transcript":
            most = max(most, p if excess > target.beta else 0.0)
        else:
            most = max(most, p * (excess - design.certificate.beta1))
    return most


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"form": "transcript"},
        {"form": "transcript", "num_shards": 1000, "alpha": 1.0},
        {"num_shards": 1000, "generations": 100},
        {"num_shards": 3000, "alpha": 1.0},
        {"alpha": 1.0, "beta": 0.2, "gamma": 0.2},
        {"form": "transcript", "alpha": 8.0},
    ],
)
def test_no_law_of_the_votes_exceeds_what_was_designed_for(changes):
    design = design_consensus(**{**BASE, **changes})
    assert worst_excess(design, design.survival) <= design.certificate.excess
    if not design.is_noiseless:
        # The laws can tell: they refute a table that is far too steep.
        refuted = [worst_excess(design, design.survival**power) for power in STEEPER]
        assert max(refuted) > design.certificate.excess


@pytest.mark.parametrize(("form", "two_sided"), [("paper", False), ("transcript", False), ("transcript", True)])
def test_designs_are_survival_tables_that_certify_again(form, two_sided):
    design = design_consensus(**{**BASE, "num_shards": 1500}, form=form, two_sided=two_sided)
    tables = [design.survival] + ([design.abstain_survival] if two_sided else [])
    for table in tables:
        assert table[0] <= 1
        assert table[-1] > 0
        assert (np.diff(table) <= 0).all()
        assert not table.flags.writeable
    assert design.survival[design.sure_dissent] == 1 > design.survival[design.sure_dissent + 1]
    assert certify_design(design) == design.certificate
    assert design.certificate.gamma <= design.target.gamma
    assert (design.max_abstention is None) is not two_sided
    assert (design.sure_abstain_share is None) is not two_sided
    assert design.guarantee.gamma == 1e-3
    said = [each for each in design.guarantee.assumptions if "is used up" in each or "operator only" in each]
    assert len(said) == 1
    assert ("operator only" in said[0]) == (form == "paper")
    assert not design.guarantee.is_vacuous


def test_two_sided_trades_release_for_abstention():
    terms = {**BASE, "num_shards": 3000, "form": "transcript"}
    low, high = (design_consensus(**terms, two_sided=True, design_point=q) for q in (0.5, 0.7))
    assert high.sure_abstain_share > low.sure_abstain_share
    assert high.sure_release_share > low.sure_release_share > share(num_shards=3000, form="transcript")
    assert high.max_dissent + high.max_abstention < 3000


def test_a_two_sided_gate_with_noise_is_refused_in_the_papers_form():
    with pytest.raises(GuaranteeError, match="two-sided gate needs thresholds without noise") as caught:
        design_consensus(**{**BASE, "num_shards": 3000}, two_sided=True)
    assert "\n" not in str(caught.value)
    # Where no noise is needed there is nothing to reveal.
    without = design_consensus(**{**BASE, "alpha": 14.0}, two_sided=True)
    assert without.is_noiseless
    assert certify_design(without).gamma <= 1e-3


def test_the_models_are_covered_where_models_and_threshold_are_not():
    """(1, 1e-3, 1e-3), k = 3000, all dissent from one query: why the flag is for the operator only.

    T lives through deletions. The design covers what the models say, with much room. But given that the generation is
    clean, which happens with probability .19, models and threshold together are far from a fresh draw of both.
    """
    k, alpha = 3000, 1.0
    design = design_consensus(**{**BASE, "num_shards": k, "alpha": alpha})
    survival = np.append(design.survival, np.zeros(k - design.max_dissent))
    depths = np.arange(k + 1)
    low, high = 1e-3, 0.5
    while high - low > 1e-12:  # the dissent rate at which the generation stays clean with probability .19
        rate = (low + high) / 2
        low, high = (rate, high) if binom.pmf(depths, k, rate) @ survival > 0.19 else (low, rate)
    law = binom.pmf(depths, k, rate)
    p = float(law @ survival)
    assert p == pytest.approx(0.19)
    models = float(law @ np.maximum(survival / p - math.exp(alpha), 0))
    # Given clean, (D, T) has the law of a fresh pair, conditioned on D ≤ T: each pair is 1/p times as likely.
    fresh = law[:, None] * -np.diff(np.append(design.survival, 0.0))
    clean = depths[:, None] <= np.arange(design.survival.size)
    together = float((fresh * clean * (1 / p - math.exp(alpha))).sum())
    print(f"p = {p:.3f}: H(models) = {models:.2g}, H(models, T) = {together:.3f}")
    assert models < 1e-3 < 0.4 < together
    assert together == pytest.approx(1 - math.exp(alpha) * p)


def test_theorem_0_needs_no_noise():
    design = design_consensus(**{**BASE, "alpha": 7.0}, form="transcript")
    assert design.is_noiseless
    assert (design.survival == 1).all()
    assert "Theorem 0" in design.guarantee.theorem
    assert not design_consensus(**{**BASE, "alpha": 6.5}, form="transcript").is_noiseless
    # The next larger constant would break the budget.
    assert 2 * 10**4 * binom.cdf(design.max_dissent + 1, 300, 0.5) > 1e-3 - math.exp(-7.0)


def test_paper_form_without_noise():
    assert design_consensus(**{**BASE, "alpha": 14.0}).is_noiseless
    assert not design_consensus(**{**BASE, "alpha": 11.0}).is_noiseless


@pytest.mark.parametrize(
    ("name", "values", "better"),
    [
        ("alpha", (3.0, 3.5, 5.0, 5.1, 8.0, 12.0, 13.0, 20.0, 800.0), "down"),
        ("beta", (1e-4, 1e-3, 2e-3, 1e-2, 0.1, 0.5), "down"),
        ("gamma", (1e-4, 1e-3, 2e-3, 1e-2, 0.1, 0.5), "down"),
        ("num_shards", (300, 320, 400, 700, 1500, 4000), "down"),
        ("max_queries", (1, 10, 10**4, 10**6, 10**9), "up"),
        ("generations", (1, 2, 10, 50, 80), "up"),
    ],
)
@pytest.mark.parametrize("form", ["paper", "transcript"])
def test_share_is_monotone_up_to_rounding_to_shards(name, values, better, form):
    shares = [share(**{"num_shards": 400, name: value}, form=form) for value in values]
    ordered = shares if better == "up" else shares[::-1]
    for value, (before, after) in zip(values, itertools.pairwise(ordered), strict=False):
        assert after >= before - 1.5 / 300, (name, value, shares)


@pytest.mark.parametrize(
    "changes",
    [
        {"num_shards": 10**5, "max_queries": 10**9, "generations": 100, "alpha": 1.0},
        {"num_shards": 10**4, "max_queries": 10**9, "generations": 10**6, "beta": 1e-9, "gamma": 1e-9},
        {"num_shards": 10**4, "alpha": 1e-8, "beta": 0.9, "gamma": 0.9},
        {"num_shards": 10**4, "alpha": 1e4},
        {"num_shards": 12, "max_queries": 1, "alpha": 3.0, "beta": 0.5, "gamma": 0.5},
    ],
)
@pytest.mark.filterwarnings("error")
def test_extremes_certify_without_warnings(changes):
    design = design_consensus(**{**BASE, **changes})
    assert 0.5 < design.sure_release_share <= 1
    assert design.certificate.gamma <= design.target.gamma


@pytest.mark.parametrize(
    "changes",
    [
        {"num_shards": 1},
        {"num_shards": 2, "form": "transcript"},
        {"num_shards": 20},
        {"num_shards": 1000, "alpha": 1.0},
        {"num_shards": 300, "alpha": 1e-9},
        {"num_shards": 300, "alpha": 1e-9, "form": "transcript"},
        {"num_shards": 300, "beta": 1e-30, "gamma": 1e-29},
        {"num_shards": 50, "two_sided": True, "design_point": 0.9, "form": "transcript"},
    ],
)
@pytest.mark.filterwarnings("error")
def test_infeasible_targets_say_so_in_one_line(changes):
    with pytest.raises(GuaranteeError, match=f"num_shards={changes['num_shards']} is too few") as caught:
        design_consensus(**{**BASE, **changes})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("num_shards", 0),
        ("num_shards", 2.5),
        ("max_queries", 0),
        ("generations", 0),
        ("alpha", 0.0),
        ("alpha", math.inf),
        ("alpha", math.nan),
        ("beta", 0.0),
        ("beta", 1.0),
        ("gamma", -1.0),
        ("gamma", 1.0),
        ("gamma", 1e-80),
        ("form", "essay"),
    ],
)
def test_bad_parameters_are_named(name, value):
    with pytest.raises(ParameterError, match=name):
        design_consensus(**{**BASE, name: value})


def test_bad_design_point_is_named():
    with pytest.raises(ParameterError, match="design_point"):
        design_consensus(**BASE, two_sided=True, design_point=0.4)


@pytest.mark.parametrize("form", ["paper", "transcript"])
def test_ten_thousand_shards_take_under_two_seconds(form):
    begin = time.process_time()
    design_consensus(**{**BASE, "num_shards": 10**4, "max_queries": 10**9, "generations": 100}, form=form)
    assert time.process_time() - begin < 2


def test_cache_gives_the_same_design(tmp_path):
    made = design_consensus(**BASE, cache_folder=tmp_path / "new" / "folder")
    (kept,) = (tmp_path / "new" / "folder").iterdir()
    before = kept.stat().st_mtime_ns
    read = design_consensus(**BASE, cache_folder=tmp_path / "new" / "folder")
    assert (read.survival == made.survival).all()
    assert read.target == made.target
    assert read.certificate == made.certificate
    assert kept.stat().st_mtime_ns == before
    design_consensus(**{**BASE, "alpha": 5.0000001}, cache_folder=kept.parent)
    assert len(list(kept.parent.iterdir())) == 2


def _steeper(content):
    # Still a survival table, but one that loses far more than the target allows.
    content["survival"] = [(float.fromhex(value) ** 2).hex() for value in content["survival"]]
    return json.dumps(content)


def test_a_design_in_transcript_form_does_not_pass_for_the_papers():
    terms = {"max_queries": 10**4, "generations": 1, "alpha": 1.0, "beta": 1e-3}
    design = design_consensus(num_shards=1000, gamma=1e-3, form="transcript", **terms)
    target = Guarantee(1, 1e-3, 1e-3)
    assert not design.guarantee.covers(target)
    assert design.guarantee.covers(dataclasses.replace(target, form="transcript"))
    # The same table has a much larger γ in the paper's form.
    assert certify_consensus(design.survival, num_shards=1000, **terms).gamma > 0.1
    assert design_consensus(**{**BASE, "num_shards": 1500}).guarantee.form == "paper"


@pytest.mark.parametrize(
    "damage",
    [
        lambda content: "",
        lambda content: "[]",
        lambda content: "null",
        lambda content: json.dumps(content)[:-40],
        lambda content: json.dumps({**content, "version": 0}),
        lambda content: json.dumps({**content, "survival": []}),
        lambda content: json.dumps({**content, "survival": ["0x1p0", "nan"]}),
        lambda content: json.dumps({**content, "survival": ["0x1p0", "0x1p99999"]}),
        lambda content: json.dumps({**content, "survival": 3}),
        lambda content: json.dumps({**content, "survival": content["survival"][::-1]}),
        lambda content: json.dumps({**content, "survival": [*content["survival"], *["0x1p-40"] * 40]}),
        lambda content: json.dumps({**content, "abstain_survival": content["survival"]}),
        _steeper,
    ],
)
def test_a_damaged_cache_is_never_trusted(tmp_path, damage):
    made = design_consensus(**BASE, cache_folder=tmp_path)
    (kept,) = tmp_path.iterdir()
    whole = kept.read_text()
    kept.write_text(damage(json.loads(whole)))
    again = design_consensus(**BASE, cache_folder=tmp_path)
    assert (again.survival == made.survival).all()
    assert kept.read_text() == whole
    assert len(list(tmp_path.iterdir())) == 1


def test_a_cache_that_cannot_be_written_is_no_obstacle(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    assert design_consensus(**BASE, cache_folder=blocked).sure_dissent > 0


def test_default_cache_folder(monkeypatch, tmp_path):
    monkeypatch.setenv("EXPUNGE_CACHE", str(tmp_path / "a"))
    assert default_cache_folder() == tmp_path / "a"
    monkeypatch.delenv("EXPUNGE_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache_folder() == tmp_path / "expunge"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert default_cache_folder().parts[-2:] == (".cache", "expunge")
