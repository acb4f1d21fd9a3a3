"""Every suite runs, in tiny sizes, through the real code; nothing here asserts how long anything took."""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from sklearn.ensemble import BaggingClassifier
from sklearn.linear_model import LogisticRegression

from expunge.core.errors import ParameterError
from expunge.privacy.mechanisms import MECHANISM_NAMES
from expunge.training.learners import ScikitModel
from expunge_lab.bench import SUITES, Target, run_suites
from expunge_lab.bench.predict import majority_of
from expunge_lab.bench.sampling import draw, many_records, peak_bytes, toss_coins
from expunge_lab.bench.workload import fit_table_voters, fit_voters, make_queries, make_records, make_table

# JAX is loaded by the first suite that needs it; here compiling is all that its programs cost.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0 --xla_cpu_use_fusion_emitters=false")


class Bars:
    """Remembers every progress bar: how long it was to be, and how far it came."""

    def __init__(self) -> None:
        self.totals: dict[str, int] = {}
        self.done: dict[str, int] = {}

    @contextmanager
    def __call__(self, description: str, total: int) -> Iterator[Callable[[int], None]]:
        self.totals[description] = total
        self.done[description] = 0

        def advance(steps: int) -> None:
            self.done[description] += steps

        yield advance


AT_LEAST, AT_MOST, SECONDS = Target.ratio_at_least, Target.ratio_at_most, Target.ours_at_most
TARGETS = {
    "engines": {AT_MOST(1.15)},
    "delete": {AT_LEAST(50), AT_LEAST(10)},
    "fit": {AT_MOST(1.1)},
    "predict": {AT_LEAST(50), AT_LEAST(4), None},
    "growth": {None},
    "sampling": {SECONDS(10), SECONDS(16), None},
    "mechanisms": {SECONDS(1)},
    "guarantee": {SECONDS(0.1)},
    "consensus": {AT_MOST(1.1)},
    "deep": {AT_LEAST(3), AT_MOST(0.012), None},
    "day": {AT_LEAST(5), None},
    "plan": {SECONDS(120), AT_MOST(1.5)},
    "durable": {AT_LEAST(0.8), AT_MOST(1.3), SECONDS(2), SECONDS(0.01), None},
    "lake": {AT_MOST(2), AT_MOST(3), SECONDS(1.5 * 2**30)},
    "program": {SECONDS(0.4), None},
    "shards": {AT_MOST(3), AT_LEAST(5), None},
    "exact": {AT_LEAST(5), AT_LEAST(0.8), AT_MOST(1.5), AT_MOST(3), None},
    "service": {AT_LEAST(0.5), AT_MOST(3), SECONDS(1 / 300_000)},
}


LONG = {"engines", "plan"}  # what they measure is tested elsewhere


@pytest.mark.parametrize("name", [pytest.param(name, marks=[pytest.mark.long] * (name in LONG)) for name in SUITES])
def test_every_suite_yields_positive_finite_figures_and_finishes_its_progress_bar(name: str) -> None:
    """In one test, because the suites take seconds."""
    bars = Bars()
    lines = SUITES[name].run(quick=True, progress=bars)
    assert lines
    assert bars.done == bars.totals
    for line in lines:
        spreads = [spread for spread in (line.ours, line.other, line.ratio) if spread is not None]
        assert len(spreads) in (1, 3)
        for spread in spreads:
            assert all(math.isfinite(value) and value > 0 for value in (spread.low, spread.median, spread.high))
            assert spread.low <= spread.median <= spread.high
    assert {line.target for line in lines} == TARGETS[name]
    if name == "mechanisms":
        assert {line.what.rpartition(": ")[2] for line in lines} == set(MECHANISM_NAMES)


def test_a_quick_run_judges_nothing() -> None:
    report = run_suites(["guarantee"], quick=True, progress=Bars())
    assert all(line.target is None and line.met is None for line in report.lines["guarantee"])
    assert report.missed == []


def test_suites_run_once_each_in_the_order_asked_for() -> None:
    report = run_suites(["sampling", "guarantee", "sampling"], quick=True, progress=Bars())
    assert list(report.lines) == ["sampling", "guarantee"]


def test_an_unknown_suite_runs_nothing() -> None:
    bars = Bars()
    with pytest.raises(ParameterError, match="no benchmark 'fast'"):
        run_suites(["delete", "fast"], quick=True, progress=bars)
    assert bars.totals == {}


@pytest.mark.parametrize("num_classes", [2, 5])
def test_both_sides_of_the_prediction_race_give_the_same_answers(num_classes: int) -> None:
    model = fit_voters(2_000, 11, num_classes=num_classes)
    X = make_queries(200)
    models = [each.estimator for each in model.deployment_.inside.state.models]
    assert np.array_equal(majority_of(models, X, num_classes), model.predict(X))


def test_bagging_trains_on_as_much_data() -> None:
    X, y = make_records(1_000)
    bagging = BaggingClassifier(LogisticRegression(), n_estimators=10, max_samples=1 / 10).fit(X, y)
    assert {len(rows) for rows in bagging.estimators_samples_} == {100}


def test_both_ways_of_sampling_draw_the_same_number_of_records() -> None:
    """Each is a sum of 10^5 trials of variance p(1-p); 12 standard deviations of the difference, P < 1e-30."""
    n, k = 2_000, 50
    ours = sum(len(slots) for slots in draw(many_records(n), k))
    coins = sum(len(slots) for slots in toss_coins(n, k))
    assert abs(ours - coins) < 12 * math.sqrt(2 * n)


def test_peak_memory_counts_the_result_at_least() -> None:
    n, k = 50_000, 20
    records = many_records(n)
    held = sum(slots.nbytes for slots in draw(records, k))
    assert held / 2 < peak_bytes(records, k) < 1000 * held


def test_the_data_is_the_same_at_every_call_and_has_every_class() -> None:
    X, y = make_records(500, num_classes=10)
    again, _ = make_records(500, num_classes=10)
    assert np.array_equal(X, again)
    assert set(y.tolist()) == set(range(10))


def test_both_sides_of_the_race_over_a_table_give_the_same_answers() -> None:
    model = fit_table_voters(2_000, 7)
    models = [each.estimator for each in model.deployment_.inside.state.models if isinstance(each, ScikitModel)]
    frame, _ = make_table(300)
    assert len(models) == 7
    assert np.array_equal(majority_of(models, frame, 2), model.predict(frame))


def test_without_jax_the_rest_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    """And who names `deep` is told so before anything is measured."""
    monkeypatch.setattr("expunge_lab.bench.suites.SUITES", {"sampling": SUITES["sampling"], "deep": SUITES["deep"]})

    def missing() -> None:
        raise ImportError("the JAX learner needs jax, which is not installed")

    monkeypatch.setattr("expunge_lab.bench.deep.require_extra", missing)
    assert list(run_suites([], quick=True, progress=Bars()).lines) == ["sampling"]
    bars = Bars()
    with pytest.raises(ImportError, match="needs jax, which is not installed"):
        run_suites(["sampling", "deep"], quick=True, progress=bars)
    assert bars.totals == {}
