"""docs/consensus.md from the results of `student.py` and `traffic.py`.

python lab/experiments/report.py            seconds; overwrites docs/consensus.md
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from results import RESULTS

PAGE = Path(__file__).parents[2] / "docs" / "consensus.md"

_HEAD = """# Consensus publishing, measured

Made by `python lab/experiments/report.py` from the files in `lab/results/`, each of which holds the command that
made it. All at the default target (5, 1e-3, 1e-3), up to 100 generations of a million predictions, with 1,000
overlapping shards, one seed each. Times are rough: one thread, on two cores shared with other work.
"""

_STUDENT = """
## The distilled student

The ensemble (ridge classifiers on fixed image features) labels a public pool of 10,000 images through the gate; a
kernel student learns from those labels, and answers everything from then on. "With self-training" adds the student's
own labels on the rest of the pool, "shifted copies" adds small movements of the images; the rounds of deletions use
the released labels only. The settings of the student were chosen with the test images in sight.
"""

_TRAFFIC = """
## Traffic through the router

Distinct queries that look like test data. The router sends easy queries to the ensemble and answers the others from a
model that unlearns exactly (`served` is the accuracy of both together); without it every query goes to the ensemble.
`clean queries` is how many were answered, counted in hundreds, before the generation became dirty. What the calibration
predicted, aiming at a chance of 5%, stands beside what happened: where the generation became dirty all the same, the
prediction was wrong. That costs a full retraining, never the guarantee. A router that sends nothing to the ensemble
keeps the generation clean by not using it: then the fallback alone is served.
"""


def main() -> None:
    """Read every result, write the page."""
    results = {path.stem: json.loads(path.read_text()) for path in sorted(RESULTS.glob("*.json"))}
    students = [result for name, result in results.items() if name.startswith("student-")]
    traffic = [result for name, result in results.items() if name.startswith("traffic-")]
    part = PAGE.with_name(f".{PAGE.name}.part")
    part.write_text(_HEAD + _STUDENT + _student_tables(students) + _TRAFFIC + _traffic_tables(traffic))
    part.replace(PAGE)  # whole or not at all
    print(f"wrote {PAGE.name}")


def _student_tables(results: list[dict[str, Any]]) -> str:
    rows = [
        (
            r["dataset"],
            f"{r['inclusion_probability']:g}",
            r["plain_majority"],
            r["one_model_on_everything"],
            f"{r['pool_kept']:.1%}",
            r["lowest_share_kept"],
            f"{r['test_queries_below_sure_share']:.1%}",
            *(r["students"][name] for name in _kinds(results)),
        )
        for r in results
    ]
    heads = ["data", "p", "plain majority", "one model on everything", "pool kept", "lowest share kept"]
    heads += [f"test queries below the sure share ({results[0]['sure_release_share']})"]
    first = _table([*heads, *(f"student, {name}" for name in _kinds(results))], rows)
    heads = ["data", "rounds", "deletions a round", "shards retrained a round", "students taught", "generations"]
    heads += [
        "clean at the end",
        "certified (α, β, γ) at the end",
        "labels that changed",
        "student's accuracy, lowest and last",
        "seconds a round",
    ]
    rows = [(r["dataset"], *_deletions(r["deletions"], _certified(r))) for r in results]
    commands = "".join(f"- `{r['command']}` ({r['environment']['date']}, {r['seconds']} s)\n" for r in results)
    return f"\n{first}\nThen records were deleted, round after round:\n\n{_table(heads, rows)}\n{commands}"


def _kinds(results: list[dict[str, Any]]) -> list[str]:
    return list(results[0]["students"])


def _certified(result: dict[str, Any]) -> str:
    given = result["guarantee"]
    return "none" if result["vacuous"] else f"({given['alpha']:g}, {given['beta']:g}, {given['gamma']:g})"


def _deletions(row: dict[str, Any], certified: str) -> tuple[Any, ...]:
    return (
        row["rounds"],
        row["deletions_per_round"],
        f"{row['shards_touched_per_round']:.0f}",
        row["students_taught"],
        row["generations"],
        "yes" if row["clean"] else "no",
        certified,
        f"{row['labels_changed']} of {row['labels_compared']:,}",
        f"{row['student_lowest']}, {row['student_last']}",
        row["seconds_per_round"],
    )


def _traffic_tables(results: list[dict[str, Any]]) -> str:
    heads = ["data", "records", "p", "traffic", "published", "queries", "clean queries", "to the ensemble (predicted)"]
    heads += ["predicted dirty chance", "below the sure share", "served", "plain majority", "one model on everything"]
    rows = [(*_setting(r), title, *_served(way)) for r in results for title, way in r["ways"].items()]
    commands = "".join(f"- `{r['command']}` ({r['environment']['date']}, {r['seconds']} s)\n" for r in results)
    return f"\n{_table(heads, rows)}\n{commands}"


def _setting(result: dict[str, Any]) -> tuple[Any, ...]:
    return result["dataset"], f"{result['records']:,}", f"{result['inclusion_probability']:g}", result["traffic"]


def _served(way: dict[str, Any]) -> tuple[Any, ...]:
    """One way of publishing; without a router everything goes to the ensemble and nothing was predicted."""
    is_routed = "to_ensemble" in way
    shares = f"{way['to_ensemble']:.1%} ({way['predicted_to_ensemble']:.1%})" if is_routed else "100%"
    clean = "all" if way["stayed_clean"] else f"{way['clean_queries']:,}" if way["clean_queries"] else "under 100"
    return (
        f"{way['queries']:,}",
        clean,
        shares,
        f"{way['predicted_dirty_chance']:.2g}" if is_routed else "–",
        f"{way['below_sure_share']:.1%}",
        way["served"],
        way["plain_majority"],
        way["one_model_on_everything"],
    )


def _table(heads: list[str], rows: list[tuple[Any, ...]]) -> str:
    lines = [heads, ["---"] * len(heads), *[[str(cell) for cell in row] for row in rows]]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


if __name__ == "__main__":
    main()
