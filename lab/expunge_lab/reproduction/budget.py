"""Theorem 4.1 and its relatives: α against the number of predictions in a generation, for every theorem.

At β = γ = 1e-3: the exponential mechanism at ε0 a prediction (T1, T2, T3, description length, and for comparison the
paper's own forms), the Gaussian mechanism, and consensus publishing (T4), whose α hardly depends on how much is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from expunge.core.errors import GuaranteeError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting import BoundedRange, Event, GaussianDP
from expunge.theory import all_bounds, best_alpha
from expunge.theory.planning.plot import Bounds, Curve
from expunge_lab.reproduction.report import Report

NAME = "budget"
TARGET = Guarantee(1.0, 1e-3, 1e-3)
SHARE = 0.9
NUM_OUTCOMES = 10
_COUNTS = (1, 10, 100, 1000, 10_000, 100_000)
_QUERIES = (1000, 10_000, 100_000)
_LARGEST_SHOWN = 1e3


@dataclass(frozen=True)
class Case:
    """Predictions of one kind from k shards."""

    title: str
    event: Event
    num_shards: int


CASES = (
    Case("exponential, ε0 = 0.001, k = 100", BoundedRange(0.001), 100),
    Case("exponential, ε0 = 0.001, k = 1,000", BoundedRange(0.001), 1000),
    Case("exponential, ε0 = 0.01, k = 1,000", BoundedRange(0.01), 1000),
    Case("Gaussian, σ = 1,000, k = 1,000", GaussianDP(1000.0), 1000),
)
_CONSENSUS_SHARDS = (1000, 3000)


def run_budget(*, quick: bool = False) -> Report:
    """All cases and consensus; quick: the first case, and consensus at one number of queries."""
    chosen, shards = _chosen(quick=quick)
    cases = [_case(case) for case in chosen]
    queries = _QUERIES[1:2] if quick else _QUERIES
    consensus = [_consensus(num_shards, queries) for num_shards in shards]
    return Report(
        name=NAME,
        title="α against the number of predictions, theorem by theorem",
        about=(
            f"At β = γ = {TARGET.beta:g}, one generation. `l ≤` is the largest number of predictions with α ≤ 1. "
            "Illustrative forms have constants set to one where the paper leaves them open, and are no bounds. "
            f"Consensus publishing surely answers where {SHARE:.0%} of the shards agree; its α is for that many "
            "queries in all, answered or not."
        ),
        columns=("predictions", "theorem", "standing", *(f"α at l = {count:,}" for count in _COUNTS), "l ≤"),
        rows=[line for part in (*cases, *consensus) for line in _cells(part)],
        data={"cases": [*cases, *consensus]},
    )


def num_cases(*, quick: bool) -> int:
    """Parts of the table, a panel each."""
    return sum(len(part) for part in _chosen(quick=quick))


def _chosen(*, quick: bool) -> tuple[tuple[Case, ...], tuple[int, ...]]:
    return (CASES[:1], _CONSENSUS_SHARDS[:1]) if quick else (CASES, _CONSENSUS_SHARDS)


def _case(case: Case) -> dict[str, Any]:
    bounds = Bounds(
        event=case.event, num_shards=case.num_shards, target=TARGET, num_generations=1, num_outcomes=NUM_OUTCOMES
    )
    return {"title": case.title, "curves": [_curve(case, curve) for curve in bounds.curves()]}


def _curve(case: Case, curve: Curve) -> dict[str, Any]:
    certified = curve.standing == "certified"
    return {
        "theorem": curve.theorem,
        "standing": curve.standing,
        "limit": curve.limit,
        "predictions": list(curve.predictions),
        "alphas": list(curve.alphas),
        "table": [_alpha(case, curve.theorem, count) if certified else _read_off(curve, count) for count in _COUNTS],
    }


def _alpha(case: Case, theorem: str, count: int) -> float | None:
    """What the theorem certifies for so many predictions; None where that says nothing."""
    found = all_bounds(
        {case.event: count},
        num_shards=case.num_shards,
        beta=TARGET.beta,
        gamma=TARGET.gamma,
        num_outcomes=NUM_OUTCOMES,
    )
    alpha = next(bound.alpha for bound in found if bound.theorem == theorem)
    return alpha if alpha <= _LARGEST_SHOWN else None


def _read_off(curve: Curve, count: int) -> float | None:
    """The smallest α of the curve that reaches so many predictions."""
    return next((alpha for l, alpha in zip(curve.predictions, curve.alphas, strict=True) if l >= count), None)


def _consensus(num_shards: int, queries: tuple[int, ...]) -> dict[str, Any]:
    alphas = {count: _consensus_alpha(num_shards, count) for count in queries}
    known = {count: alpha for count, alpha in alphas.items() if alpha is not None}
    curve = {
        "theorem": "T4 (consensus)",
        "standing": "certified",
        "limit": max((count for count, alpha in known.items() if alpha <= TARGET.alpha), default=0),
        "predictions": list(known),
        "alphas": list(known.values()),
        "table": [alphas.get(count) for count in _COUNTS],
    }
    return {"title": f"consensus, share {SHARE:.0%}, k = {num_shards:,}", "curves": [curve]}


def _consensus_alpha(num_shards: int, count: int) -> float | None:
    try:
        design = best_alpha(
            num_shards=num_shards,
            share=SHARE,
            max_queries=count,
            generations=1,
            beta=TARGET.beta,
            gamma=TARGET.gamma,
            tolerance=0.02,
        )
    except GuaranteeError:
        return None
    return float(design.target.alpha)


def _cells(case: dict[str, Any]) -> list[list[str]]:
    return [
        [
            case["title"],
            curve["theorem"],
            curve["standing"],
            *("–" if alpha is None else f"{alpha:.3g}" for alpha in curve["table"]),
            f"{curve['limit']:,}",
        ]
        for curve in case["curves"]
    ]
