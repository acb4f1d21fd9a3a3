from __future__ import annotations

import pytest

from expunge_lab.bench import Line, Spread, Target


def test_a_spread_is_the_median_between_the_extremes() -> None:
    assert Spread.of([5.0, 1.0, 3.0]) == Spread(median=3.0, low=1.0, high=5.0)


def test_ratios_are_taken_within_each_repeat() -> None:
    """Noise that slows a repeat down slows both sides: here everything takes ten times as long once."""
    ours, other = [1.0, 10.0, 1.0], [4.0, 40.0, 4.0]
    assert Line.faster("x", ours, "y", other).ratio == Spread(4.0, 4.0, 4.0)
    assert Line.cost("x", ours, "y", other).ratio == Spread(0.25, 0.25, 0.25)


@pytest.mark.parametrize(("seconds", "met"), [(0.9, True), (1.0, True), (1.1, False)])
def test_a_target_for_our_own_figure(seconds: float, met: bool) -> None:
    target = Target.ours_at_most(1.0)
    assert Line.alone("x", [seconds], target=target).met is met
    assert Line.cost("x", [seconds], "y", [1e-6], target=target).met is met


@pytest.mark.parametrize(("other", "met"), [(49.0, False), (50.0, True), (51.0, True)])
def test_a_target_for_how_much_faster(other: float, met: bool) -> None:
    assert Line.faster("x", [1.0], "y", [other], target=Target.ratio_at_least(50)).met is met


@pytest.mark.parametrize(("ours", "met"), [(1.05, True), (1.2, False)])
def test_a_target_for_the_cost(ours: float, met: bool) -> None:
    assert Line.cost("x", [ours], "y", [1.0], target=Target.ratio_at_most(1.1)).met is met


def test_without_a_target_nothing_is_judged() -> None:
    assert Line.alone("x", [1.0]).met is None
