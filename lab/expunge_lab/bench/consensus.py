"""What the consensus gate adds to plain majority voting."""

from __future__ import annotations

from dataclasses import dataclass

from expunge.privacy.mechanisms.consensus import ConsensusGate
from expunge.serving.estimator import UnlearningClassifier
from expunge_lab.bench.measurement import Advance, Line, Progress, Target, Task, race
from expunge_lab.bench.workload import fit_voters, make_queries


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_records: int
    num_shards: int
    num_rows: int
    repeats: int


FULL = Size(num_records=50_000, num_shards=1_000, num_rows=10_000, repeats=31)
QUICK = Size(num_records=1_000, num_shards=10, num_rows=50, repeats=2)

_TARGET = Target.ratio_at_most(1.1)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite: one row and many, as a whole request through the estimator."""
    size = QUICK if quick else FULL
    model = fit_voters(size.num_records, size.num_shards)
    with progress("consensus", 4 * size.repeats) as advance:
        return [_measure(model, num_rows, size, advance) for num_rows in (1, size.num_rows)]


def _measure(model: UnlearningClassifier, num_rows: int, size: Size, advance: Advance) -> Line:
    X = make_queries(num_rows)
    counts = model.deployment_.inside.state.count_votes(X)
    gate = ConsensusGate(size.num_shards // 10, max_queries=2**62)

    def ask_and_observe() -> None:
        model.predict(X)
        gate.observe(counts, size.num_shards)

    tasks = [Task(ask_and_observe), Task(lambda: model.predict(X))]
    gated, plain = race(tasks, repeats=size.repeats, advance=advance)
    rows = "1 row" if num_rows == 1 else f"{num_rows:,} rows"
    what = f"predict {rows}, k={size.num_shards:,}, through the gate"
    return Line.cost(what, gated, "plain majority", plain, target=_TARGET)
