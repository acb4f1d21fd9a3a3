from __future__ import annotations

import json
import math
import threading
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from expunge.core.errors import BudgetExhaustedError, ParameterError, UnknownEventError
from expunge.privacy.accounting import (
    ACCOUNTANT_NAMES,
    ApproximateDP,
    BoundedRange,
    ConcentratedDP,
    GaussianDP,
    Ledger,
    NonPrivate,
    PrivacyBudget,
    PureDP,
    accountant,
)

BUDGET = PrivacyBudget(0.5, 1e-6)
EVENT = BoundedRange(0.01)


@pytest.mark.parametrize(("name", "count"), [("paper", 22), ("basic", 50), ("advanced", 87), ("zcdp", 531)])
def test_exactly_the_allowed_number_of_predictions_can_be_charged(name, count):
    ledger = Ledger(BUDGET, accountant=name)
    for done in range(count):
        assert ledger.predictions_left(EVENT) == count - done
        ledger.charge(EVENT)
    assert not ledger.can_afford(EVENT)
    with pytest.raises(BudgetExhaustedError, match="does not allow 1 more"):
        ledger.charge(EVENT)
    assert ledger.events == {EVENT: count}
    assert not ledger.is_exhausted
    assert 0 <= ledger.left < 0.5
    assert ledger.spent <= 0.5


def test_a_refused_batch_changes_nothing():
    ledger = Ledger(BUDGET, accountant="basic")
    ledger.charge(EVENT, 45)
    before = ledger.snapshot()
    with pytest.raises(BudgetExhaustedError):
        ledger.charge(EVENT, 6)
    assert ledger.snapshot() == before
    ledger.charge(EVENT, 5)
    assert ledger.left == pytest.approx(0.0)


def test_without_enforcement_the_ledger_records_and_marks():
    ledger = Ledger(BUDGET, accountant="basic")
    ledger.charge(EVENT, 50, enforce=False)
    assert not ledger.is_exhausted
    ledger.charge(EVENT, enforce=False)
    assert ledger.is_exhausted
    assert ledger.events == {EVENT: 51}
    assert ledger.spent == pytest.approx(0.51)
    assert ledger.left == 0
    assert ledger.predictions_left(EVENT) == 0
    assert not ledger.can_afford(PureDP(0.0))


def test_unknown_events_are_refused_and_not_recorded():
    ledger = Ledger(BUDGET, accountant="pld")
    for enforce in (True, False):
        with pytest.raises(UnknownEventError):
            ledger.charge(ConcentratedDP(0.1), enforce=enforce)
    with pytest.raises(UnknownEventError):
        ledger.charge("majority", enforce=False)
    with pytest.raises(UnknownEventError):
        Ledger(None).charge("majority")
    with pytest.raises(ParameterError):
        ledger.charge(EVENT, -1)
    assert ledger.events == {}


def test_without_a_budget_everything_fits_and_is_reported():
    ledger = Ledger(None, accountant="zcdp", report_delta=1e-5)
    ledger.charge(EVENT, 10**9)
    assert ledger.predictions_left(EVENT) == ledger.left == math.inf
    assert not ledger.is_exhausted
    assert ledger.spent == accountant("zcdp").epsilon({EVENT: 10**9}, 1e-5)
    assert ledger.epsilon(1e-9) > ledger.spent
    ledger.charge(NonPrivate())
    assert ledger.spent == math.inf


def test_a_release_without_privacy_exhausts_any_budget():
    ledger = Ledger(BUDGET)
    with pytest.raises(BudgetExhaustedError):
        ledger.charge(NonPrivate())
    ledger.charge(NonPrivate(), enforce=False)
    assert ledger.is_exhausted


def test_the_view_of_events_cannot_be_used_to_change_the_books():
    ledger = Ledger(BUDGET)
    view = ledger.events
    with pytest.raises(TypeError):
        view[EVENT] = 3
    ledger.charge(EVENT)
    assert view == {}


@settings(max_examples=60, deadline=None)
@given(
    name=st.sampled_from(["paper", "basic", "advanced", "zcdp"]),
    charges=st.lists(st.tuples(st.sampled_from([PureDP(0.003), BoundedRange(0.02)]), st.integers(1, 9)), max_size=80),
)
def test_the_remembered_corner_never_changes_an_answer(name, charges):
    """Every charge is accepted exactly when the accountant itself says that the new counts fit."""
    ledger, rule, counts = Ledger(BUDGET, accountant=name), accountant(name), {}
    for event, count in charges:
        wanted = {**counts, event: counts.get(event, 0) + count}
        fits = rule.affords(wanted, BUDGET)
        assert ledger.can_afford(event, count) == fits
        if fits:
            ledger.charge(event, count)
            counts = wanted
        else:
            with pytest.raises(BudgetExhaustedError):
                ledger.charge(event, count)
        assert ledger.events == counts


def test_single_charges_stay_quick_under_the_slowest_rule(monkeypatch):
    ledger = Ledger(PrivacyBudget(1.0, 1e-6), accountant="pld")
    asked = []
    rule = type(ledger.accountant)
    original = rule.epsilon
    monkeypatch.setattr(rule, "epsilon", lambda self, *given: asked.append(1) or original(self, *given))
    start = time.process_time()
    for _ in range(200_000):
        ledger.charge(PureDP(1e-4))
    for _ in range(100_000):
        ledger.charge(PureDP(1e-4))
        ledger.charge(GaussianDP(1e4))
    assert len(asked) < 120
    assert time.process_time() - start < 30


def test_kinds_charged_in_turn_fill_the_budget_exactly():
    budget = PrivacyBudget(0.2, 1e-6)
    ledger, rule, kinds = Ledger(budget, accountant="pld"), accountant("pld"), (PureDP(0.01), GaussianDP(150.0))
    turn = 0
    while ledger.can_afford(kinds[turn % 2]):
        ledger.charge(kinds[turn % 2])
        turn += 1
    full, refused = dict(ledger.events), kinds[turn % 2]
    assert turn > 20
    assert rule.affords(full, budget)
    assert not rule.affords({**full, refused: full[refused] + 1}, budget)


def test_threads_never_charge_more_than_the_budget():
    ledger = Ledger(BUDGET, accountant="zcdp")
    refused = []

    def work() -> None:
        for _ in range(100):
            try:
                ledger.charge(EVENT)
            except BudgetExhaustedError:
                refused.append(1)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert ledger.events == {EVENT: 531}
    assert len(refused) == 800 - 531


@pytest.mark.parametrize("budget", [BUDGET, None])
@pytest.mark.parametrize("name", ACCOUNTANT_NAMES)
def test_a_snapshot_survives_json(name, budget):
    ledger = Ledger(budget, accountant=name, report_delta=1e-4)
    ledger.charge(PureDP(0.01), 2)
    ledger.charge(BoundedRange(1e-3), 10)
    copy = Ledger.from_snapshot(json.loads(json.dumps(ledger.snapshot())))
    assert copy.snapshot() == ledger.snapshot()
    assert copy.budget == ledger.budget
    assert copy.events == ledger.events
    assert copy.spent == ledger.spent
    assert copy.accountant is ledger.accountant


def test_a_snapshot_carries_every_kind_of_event_and_exhaustion():
    ledger = Ledger(BUDGET)
    kinds = [
        PureDP(0.1),
        BoundedRange(0.1),
        GaussianDP(9.0),
        ConcentratedDP(0.1),
        ApproximateDP(0.1, 1e-9),
        NonPrivate(),
    ]
    for kind in kinds:
        ledger.charge(kind, 3, enforce=False)
    data = ledger.snapshot()
    assert Ledger.from_snapshot(data).is_exhausted
    assert Ledger.from_snapshot(data).events == dict.fromkeys(kinds, 3)
    # A forged "not exhausted" is found out; a true "exhausted" of a ledger whose counts fit is believed.
    assert Ledger.from_snapshot({**data, "exhausted": False}).is_exhausted
    assert Ledger.from_snapshot({**Ledger(BUDGET).snapshot(), "exhausted": True}).is_exhausted


@pytest.mark.parametrize(
    "change",
    [
        {"format": 2},
        {"format": None},
        {"accountant": "renyi"},
        {"budget": {"epsilon": 1.0}},
        {"budget": {"epsilon": -1.0, "delta": 0.1}},
        {"budget": 3},
        {"events": {"kind": "pure"}},
        {"events": [{"kind": ["pure"], "epsilon": 0.1, "count": 1}]},
        {"events": [{"kind": "exponential", "count": 1}]},
        {"events": [{"kind": "pure", "epsilon": 0.1}]},
        {"events": [{"kind": "pure", "epsilon": 0.1, "count": -1}]},
        {"events": [{"kind": "pure", "epsilon": -0.1, "count": 1}]},
        {"events": [{"kind": "pure", "rho": 0.1, "count": 1}]},
        {"events": [{"kind": "pure", "epsilon": "a", "count": 1}]},
    ],
)
def test_a_malformed_snapshot_is_refused(change):
    with pytest.raises(ParameterError):
        Ledger.from_snapshot(Ledger(BUDGET).snapshot() | change)


@pytest.mark.parametrize("field", ["budget", "accountant", "report_delta", "events", "exhausted"])
def test_an_incomplete_snapshot_is_refused(field):
    data = Ledger(BUDGET).snapshot()
    del data[field]
    with pytest.raises(ParameterError, match=field):
        Ledger.from_snapshot(data)
