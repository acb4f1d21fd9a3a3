"""`expunge reproduce theory`, `consensus` and `looseness`: the tables of the theory, computed afresh."""

from __future__ import annotations

from dataclasses import asdict

from expunge.cli.output import progress, show_json, show_table
from expunge_lab.cli.reproduce.group import AsJson, reproduce


@reproduce.command()
def theory(as_json: AsJson = False) -> None:
    """How many predictions each theorem certifies per generation at (1, 1e-3, 1e-3), with noise.

    `paper` is the paper's statement with Rogers-style constants, `best` the best of all theorems here, `ceiling` a
    number that a concrete system shows cannot be certified by anyone one query later.

    Example: `expunge reproduce theory --json`
    """
    from expunge_lab.theory_table import theory_table, unanimous_table

    with progress("searching", 1) as advance:
        rows = [dict(row) for row in theory_table()]
        unanimous = [dict(row) for row in unanimous_table()]
        advance(1)
    if as_json:
        show_json(rows)
        return
    columns = ["k", "epsilon0", "paper", "t1", "best", "ceiling"]
    show_table("Predictions per generation with certified α ≤ 1 at β = γ = 1e-3", columns, _cells(rows, columns))
    show_table(
        "The same with ε0 such that a unanimous binary vote is answered rightly 99 times in 100",
        columns,
        _cells(unanimous, columns),
    )


@reproduce.command()
def consensus(as_json: AsJson = False) -> None:
    """The lowest share of agreeing shards that consensus publishing releases for sure, at many targets (T4).

    Example: `expunge reproduce consensus --json`
    """
    from expunge.theory import consensus_table

    with progress("designing and certifying", 1) as advance:
        rows = [asdict(row) for row in consensus_table()]
        advance(1)
    if as_json:
        show_json(rows)
        return
    columns = ["k", "alpha", "beta", "gamma", "form", "generations", "l_max", "share"]
    show_table("Top-vote share that is always released clean, one-sided", columns, _cells(rows, columns))
    _show_two_sided()


def _show_two_sided() -> None:
    """Theorem E: the gate also abstains, cleanly, where the shards hardly agree."""
    from expunge.theory import design_consensus

    rows = []
    for num_shards in (1000, 3000, 10_000):
        design = design_consensus(
            num_shards=num_shards,
            max_queries=10_000,
            generations=1,
            alpha=5.0,
            beta=1e-3,
            gamma=1e-3,
            form="transcript",
            two_sided=True,
        )
        low = design.sure_abstain_share
        rows.append([num_shards, f"{design.sure_release_share:.4f}", "–" if low is None else f"{low:.4f}"])
    show_table(
        "Two-sided at (5, 1e-3, 1e-3) in transcript form, 10,000 queries, one generation, certified",
        ["k", "always released from", "always declined up to"],
        rows,
    )


@reproduce.command()
def looseness(as_json: AsJson = False) -> None:
    """How much α a small system really needs, by enumerating everything, against what is certified for it.

    Example: `expunge reproduce looseness`
    """
    from expunge_lab.looseness import looseness_table

    with progress("enumerating", 1) as advance:
        rows = [dict(row) for row in looseness_table()]
        advance(1)
    if as_json:
        show_json(rows)
        return
    columns = list(rows[0])
    show_table("Certified and needed α on small systems", columns, _cells(rows, columns))


def _cells(rows: list[dict[str, object]], columns: list[str]) -> list[list[str]]:
    return [["–" if row.get(name) is None else _short(row[name]) for name in columns] for row in rows]


def _short(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)
