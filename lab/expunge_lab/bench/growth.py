"""How deleting, fitting and predicting grow with the number of records n and the number of shards k."""

from __future__ import annotations

from dataclasses import dataclass

from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from expunge_lab.bench import delete, fit, predict
from expunge_lab.bench.measurement import Advance, Line, Progress


@dataclass(frozen=True, slots=True)
class Size:
    """The grid, and how much to measure at each of its points."""

    records: tuple[int, ...]
    shards: tuple[int, ...]
    voters: tuple[int, ...]
    num_rows: int
    deletions: int
    repeats: int

    @property
    def steps(self) -> int:
        """How often progress advances."""
        return self.repeats * (5 * len(self.records) * len(self.shards) + 4 * len(self.voters))


FULL = Size(
    records=(20_000, 60_000, 180_000),
    shards=(30, 100, 300),
    voters=(30, 100, 300, 1_000),
    num_rows=10_000,
    deletions=40,
    repeats=3,
)
QUICK = Size(records=(500, 1_000), shards=(3, 6), voters=(3, 6), num_rows=20, deletions=4, repeats=2)


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    with progress("growth", size.steps) as advance:
        return [*_deleting(size, advance), *_fitting(size, advance), *_predicting(size, advance)]


def _deleting(size: Size, advance: Advance) -> list[Line]:
    points = [delete.Size(n, k, size.deletions, size.repeats) for n in size.records for k in size.shards]
    return [line for point in points for line in delete.measure(point, advance=advance)]


def _fitting(size: Size, advance: Advance) -> list[Line]:
    base = make_pipeline(StandardScaler(), LogisticRegression())
    return [
        fit.measure(
            "StandardScaler + LogisticRegression",
            base,
            num_records=n,
            num_shards=k,
            repeats=size.repeats,
            advance=advance,
        )
        for n in size.records
        for k in size.shards
    ]


def _predicting(size: Size, advance: Advance) -> list[Line]:
    points = [predict.Size(size.records[0], k, size.num_rows, size.repeats) for k in size.voters]
    return [line for point in points for line in predict.measure(point, advance=advance)]
