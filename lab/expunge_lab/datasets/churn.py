"""Customers of a company, some of whom leave: a mixed table with gaps, a date, free text and few positives.

`python -m expunge_lab.datasets.churn 50000 train.csv` writes one. Households have one to four members who resemble each
other; one customer in ten leaves. The same seed gives the same table.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    import pandas as pd

POSITIVES = 0.1
_PLANS = ("basic", "plus", "family", "business")
_WORDS = ("invoice", "slow", "router", "moved", "price", "thanks", "cancel", "upgrade", "outage", "question")


def make_churn(num_rows: int, *, seed: int = 0) -> pd.DataFrame:
    """Make the customers.

    Parameters
    ----------
    num_rows
        How many.
    seed
        The seed of everything that is drawn.

    Returns
    -------
    DataFrame
        One row a customer: customer_id, household, joined, age, income, spend, tickets, region, plan, newsletter, note
        and churned ("yes" or "no").
    """
    import pandas as pd

    rng = np.random.default_rng(seed)
    household = np.repeat(np.arange(num_rows), rng.integers(1, 5, num_rows))[:num_rows]
    shared = rng.normal(size=household[-1] + 1)[household]
    days = rng.integers(0, 3650, num_rows)
    age = rng.integers(18, 90, num_rows).astype(float)
    income = (np.exp(rng.normal(10.3, 0.4, num_rows) + 0.2 * shared)).round(0)
    spend = (20 + income / 1500 + rng.gamma(2, 8, num_rows)).round(2)
    tickets = rng.poisson(np.exp(0.3 * shared), num_rows)
    plan = rng.choice(_PLANS, num_rows, p=(0.5, 0.3, 0.15, 0.05))
    newsletter = rng.random(num_rows) < 0.4
    score = 0.9 * (tickets - 1) + 0.8 * shared - 0.0006 * days + 1.2 * (plan == "basic") - 0.8 * newsletter
    score += 0.00003 * (spend - 60) ** 2 * np.sign(spend - 60) + 0.6 * ((age < 30) & (plan == "family"))
    score += rng.logistic(size=num_rows)
    churned = score > np.quantile(score, 1 - POSITIVES)
    return pd.DataFrame(
        {
            "customer_id": [f"c-{number:07d}" for number in rng.permutation(num_rows)],
            "household": [f"h-{number}" for number in household],
            "joined": (np.datetime64("2016-01-01") + days).astype(str),
            "age": np.where(rng.random(num_rows) < 0.08, np.nan, age),
            "income": np.where(rng.random(num_rows) < 0.15, np.nan, income),
            "spend": spend,
            "tickets": tickets,
            "region": rng.choice([f"region {number}" for number in range(20)], num_rows),
            "plan": plan,
            "newsletter": newsletter,
            "note": _notes(rng, churned),
            "churned": np.where(churned, "yes", "no"),
        }
    )


def _notes(rng: np.random.Generator, churned: NDArray[np.bool_]) -> list[Any]:
    """Free text that nearly nobody else has; every third customer has none."""
    words = rng.choice(_WORDS, (len(churned), 6))
    numbers = rng.integers(10**6, size=len(churned))
    is_there = rng.random(len(churned)) < 2 / 3
    rows = zip(words.tolist(), numbers.tolist(), is_there.tolist(), strict=True)
    return [f"{' '.join(row)}, case {number}" if there else None for row, number, there in rows]


if __name__ == "__main__":
    make_churn(int(sys.argv[1])).to_csv(Path(sys.argv[2]), index=False)
