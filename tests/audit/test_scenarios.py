"""What audits must show: who is rejected, who is not, and that no bound contradicts a certificate."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from expunge.audit import (
    SCHEME_NAMES,
    audit,
    digits_task,
    label_only_scenario,
    lookup_scenario,
    make_scheme,
    membership_scenario,
    slow_down_scenario,
    small_zeros_and_ones_task,
    white_box_scenario,
)
from expunge.audit.tasks import built_in_learner
from expunge.audit.trials import run_trials
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee

SMALL_DIGITS = digits_task(num_records=60, learner=built_in_learner("nearest"))
SCENARIOS = {
    "lookup": lookup_scenario(num_pairs=15),
    "label-only": label_only_scenario(small_zeros_and_ones_task(num_records=60)),
    "white-box": white_box_scenario(SMALL_DIGITS),
    "membership": membership_scenario(SMALL_DIGITS, num_targets=12, num_shadows=3),
    "slow-down": slow_down_scenario(num_records=40, num_rounds=2, setting="labels"),
}
NOISY = ("exponential", "permute-and-flip", "laplace", "gaussian", "confident")
CERTIFIED = (*NOISY, "consensus", "student", "retrain")
TIGHT = Guarantee(0.2, 1e-3, 1e-3)  # so tight that a few dozen trials could contradict it
HOLDERS = "shards that the next deletion would retrain"


def scheme_for(name, scenario):
    """With as few shards as the attacks allow; overlapping ones, so that the broken scheme shows in a small system."""
    options = {}
    if name in (*NOISY, "majority", "broken"):
        overlap = {"slow-down": None, "membership": 0.8}.get(scenario.name, 0.4)
        options = {"num_shards": 12, "inclusion_probability": overlap}
    return make_scheme(name, scenario, target=TIGHT, **options)


def num_trials(name):
    return 6 if name in ("consensus", "student") else 60  # 300 shards each: slow, and no few trials contradict α = 5


MATRIX = [(scenario, scheme) for scenario in SCENARIOS for scheme in SCHEME_NAMES if scheme != "broken"]
# Every bound is above the true α with probability at most 1e-6 / len(MATRIX), so all of these tests together raise a
# false alarm with probability at most 1e-6 (and 1e-6 more for the tests that perfect schemes pass).
SURE = 1 - 1e-6 / len(MATRIX)


@pytest.mark.parametrize(("scenario", "scheme"), MATRIX)
def test_no_bound_contradicts_a_certificate(scenario, scheme):
    attack = SCENARIOS[scenario]
    quick = scheme in ("sisa", "majority") or scenario == "white-box"  # nothing is certified there but for `retrain`
    report = audit(
        attack,
        scheme_for(scheme, attack),
        num_trials=12 if quick else num_trials(scheme),
        seed=11,
        confidence=SURE,
        significance=1e-6 / len(MATRIX),
    )
    assert not report.alarm
    assert report.alpha_lower <= report.alpha_certified
    if scheme in CERTIFIED and scenario != "white-box":
        assert report.alpha_certified <= 5
        assert not report.rejected
    if scheme == "retrain":
        assert report.alpha_certified == 0
        assert not report.rejected


@pytest.mark.parametrize("scenario", ["lookup", "membership"])
def test_the_matrix_can_fail(scenario):
    """Positive control: with the broken unlearner the same audit, at the same sizes, contradicts its certificate."""
    attack = SCENARIOS[scenario]
    report = audit(attack, scheme_for("broken", attack), num_trials=60, seed=11, confidence=SURE)
    assert report.alpha_certified <= 0.2
    assert report.alpha_lower > report.alpha_certified
    assert report.alarm
    assert report.verdict.startswith("ALARM")


def test_sisa_is_rejected_with_overwhelming_evidence():
    """All 60 trials differ in the same direction: p = 3·2⁻⁵⁹."""
    attack = lookup_scenario(num_pairs=30)
    report = audit(attack, make_scheme("sisa", attack), num_trials=60, seed=1)
    assert report.rejected
    assert report.p_value < 1e-15
    assert report.alpha_lower > 1.5
    assert report.unlearned.count == report.unlearned.trials
    assert not report.alarm  # nothing was promised


def test_plain_majority_of_independent_shards_is_rejected_too():
    attack = lookup_scenario(num_pairs=50)
    report = audit(attack, make_scheme("majority", attack), num_trials=40, seed=1)
    assert report.p_value < 1e-6


def test_adaptive_additions_catch_sisa():
    attack = lookup_scenario(num_pairs=40, requester="add")
    report = audit(attack, make_scheme("sisa", attack), num_trials=30, seed=1)
    assert report.p_value < 1e-6
    assert report.decisive.statistic == "accuracy on surviving records"
    assert report.decisive.unlearned_larger == 30


@pytest.mark.parametrize("requester", ["random", "one-by-one", "random-correct"])
def test_other_requesters_of_the_lookup_attack(requester):
    """An oblivious requester learns nothing from SISA (false alarm 1e-6); adaptive ones do."""
    attack = lookup_scenario(num_pairs=40 if requester == "random-correct" else 15, requester=requester)
    report = audit(attack, make_scheme("sisa", attack), num_trials=60, seed=2, significance=1e-6)
    assert report.rejected == (requester != "random")


@pytest.mark.parametrize("scenario", ["lookup", pytest.param("membership", marks=pytest.mark.long)])
def test_over_twenty_seeds_the_broken_unlearner_is_caught_and_the_correct_one_is_not(scenario):
    """Each audit rejects a perfect scheme with probability at most 1.25e-8; 2 × 20 of them: 5e-7."""
    attack, level = SCENARIOS[scenario], 1.25e-8
    rejected = {
        name: [audit(attack, scheme, num_trials=33, seed=seed, significance=level).rejected for seed in range(20)]
        for name, scheme in ((name, scheme_for(name, attack)) for name in ("broken", "exponential"))
    }
    assert all(rejected["broken"])
    assert not any(rejected["exponential"])


def test_the_label_only_attack_finds_the_broken_one_as_well():
    """Tables of small reach know hardly anything but their own records, so a shard that was not retrained shows."""
    attack = label_only_scenario(small_zeros_and_ones_task(num_records=60, tau=0.7), num_deletions=30)
    report = audit(attack, scheme_for("broken", attack), num_trials=40, seed=1)
    assert report.p_value < 1e-6
    assert report.decisive.statistic == "shards that know a deleted record"


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_control_arm_sits_at_its_null(scenario):
    """Against full retraining both arms are the same: over 4 seeds either is the larger equally often.

    Exact binomial test of every statistic at 1e-7: with at most 10 statistics in all, a false alarm of 1e-6.
    """
    attack = SCENARIOS[scenario]
    sides: dict[str, list[int]] = {}
    for seed in range(4):
        report = audit(attack, make_scheme("retrain", attack), num_trials=40, seed=seed)
        for test in report.tests:
            up, down = sides.get(test.statistic, (0, 0))
            sides[test.statistic] = [up + test.unlearned_larger, down + test.retrained_larger]
    for up, down in sides.values():
        assert up + down == 0 or stats.binomtest(up, up + down).pvalue > 1e-7


def test_the_white_box_indicator_is_at_one_half_before_and_after_retraining():
    """Exact binomial tests at 2.5e-7 each, four of them: false alarm 1e-6. The attacked arm is far off."""
    attack = SCENARIOS["white-box"]
    for name in ("sisa", "majority"):
        report = audit(attack, make_scheme(name, attack), num_trials=150, seed=5)
        for arm in (report.before, report.retrained):
            assert stats.binomtest(arm.count, arm.trials, 0.5).pvalue > 2.5e-7
        assert report.known_null.control_p_value == pytest.approx(
            stats.binomtest(report.retrained.count, 150, 0.5).pvalue
        )
        assert report.known_null.unlearned_p_value < 1e-6
        assert report.rejected
        assert report.num_choosing == 0
        assert np.isinf(report.alpha_certified)


def test_the_retrained_lookup_tables_have_their_known_law():
    """A surviving pair is known to one shard of three with probability 1/3, else to two: exact test at 1e-6."""
    attack = lookup_scenario(num_pairs=30)
    trials = run_trials(attack, make_scheme("sisa", attack), num_trials=60, seed=8)
    pairs = sum(trial.num_survivors // 2 for trial in trials)
    name = "shards that know a surviving record"
    extra = sum(round((3 * t.retrained[name] - 1) * (t.num_survivors // 2)) for t in trials if t.num_survivors)
    assert stats.binomtest(extra, pairs, 2 / 3).pvalue > 1e-6
    assert all(t.unlearned[name] == pytest.approx(1 / 3) for t in trials if t.num_survivors)


def test_the_slow_down_attack_gains_and_stays_below_the_bound():
    attack = slow_down_scenario(num_records=100, num_rounds=2)
    report = audit(attack, make_scheme("majority", attack), num_trials=60, seed=3)
    assert report.p_value < 1e-6
    found = report.run_time
    assert found.largest > 2  # beyond the mean of 1
    assert found.largest <= found.adaptive  # exceeded with probability 1e-3 a trial at most: false alarm below 0.06
    assert not found.alarm
    assert found.oblivious <= found.adaptive
    law = stats.binom(20, 1 / 20)
    control = np.array([trial.retrained[HOLDERS] for trial in report.trials])
    # The control arm's count is Bin(20, 1/20): exact test at 1e-6.
    assert stats.binomtest(int((control >= 2).sum()), 60, law.sf(1)).pvalue > 1e-6


def test_a_partition_has_no_run_time_bound_and_needs_none():
    attack = slow_down_scenario(num_records=30, num_rounds=2)
    report = audit(attack, make_scheme("sisa", attack), num_trials=6, seed=3)
    assert report.run_time is None
    assert {trial.unlearned[HOLDERS] for trial in report.trials} == {1.0}


def test_shadows_tell_members_from_others():
    """Before deletion the likelihood ratio says "trained with", after it "without", in every trial."""
    attack = SCENARIOS["membership"]
    trials = run_trials(attack, make_scheme("sisa", attack, num_shards=3), num_trials=20, seed=2)
    name = "likelihood ratio of the deleted records"
    assert min(trial.before[name] for trial in trials) > 0
    assert max(trial.unlearned[name] for trial in trials) < 0
    assert max(trial.retrained[name] for trial in trials) < 0


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: lookup_scenario(num_pairs=1), "num_pairs"),
        (lambda: lookup_scenario(requester="everything"), "requester must be one of"),
        (lambda: label_only_scenario(SMALL_DIGITS, num_deletions=0), "num_deletions"),
        (lambda: membership_scenario(SMALL_DIGITS, num_targets=60), "num_targets"),
        (lambda: slow_down_scenario(num_records=10, num_rounds=10), "num_rounds"),
        (lambda: slow_down_scenario(setting="votes"), "setting 'votes'"),
        (lambda: digits_task(num_records=10**6), "num_records"),
        (lambda: built_in_learner("forest"), "learner must be one of"),
    ],
)
def test_impossible_scenarios_are_refused(make, message):
    with pytest.raises(ParameterError, match=message):
        make()


def test_the_report_says_whether_the_deleted_records_had_wrong_labels():
    planted, plain = (
        membership_scenario(SMALL_DIGITS, num_targets=5, num_shadows=2, mislabelled=mislabelled)
        for mislabelled in (True, False)
    )
    assert "5 records with wrong labels are deleted" in planted.about
    assert "5 records are deleted" in plain.about
