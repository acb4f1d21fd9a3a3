"""The suites by name, and running some of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Protocol

from expunge.core.errors import ParameterError
from expunge_lab.bench import (
    consensus,
    day,
    deep,
    delete,
    durable,
    engines,
    exact,
    fit,
    growth,
    guarantee,
    lake,
    mechanisms,
    plan,
    predict,
    program,
    sampling,
    service,
    shards,
)
from expunge_lab.bench.environment import Environment
from expunge_lab.bench.measurement import Line, Progress, one_thread


class Run(Protocol):
    """Measures a suite."""

    def __call__(self, *, quick: bool, progress: Progress) -> list[Line]:
        """`quick` is for trying the code: its sizes are too small for the figures to mean anything."""


@dataclass(frozen=True, slots=True)
class Suite:
    """A group of measurements: what it is about, in a sentence, and how to run it."""

    about: str
    run: Run


SUITES: dict[str, Suite] = {
    "delete": Suite(
        "Deleting one record of 20 features, averaged over many, with scikit-learn's logistic regression and p = 1/k.",
        delete.run,
    ),
    "fit": Suite(
        "Training the ensemble against `BaggingClassifier(base, n_estimators=k, max_samples=1/k)`. Bagging trains a "
        "base that takes sample weights on all rows, with weight zero for those not drawn, and any other base (such as "
        "a pipeline) on the drawn rows alone.",
        fit.run,
    ),
    "day": Suite(
        "Deleting one customer from a folder, on a table with categories and gaps, against fitting one pipeline on "
        "everything. Boosting is a learner whose fit dominates; logistic regression is not, and `expunge create` then "
        "advises plain retraining. `docs/ordinary_day.py` is the whole day.",
        day.run,
    ),
    "plan": Suite(
        "`expunge plan --data` on a table of customers (`expunge_lab.datasets.churn`: gaps, categories, one in ten "
        "leaves), with a minute to measure; and the processor time of a deletion that it says, against that of updates "
        "on 200 days with a deletion each (20 for one model).",
        plan.run,
    ),
    "durable": Suite(
        "A deployment in a folder, every step on the disk, against the same work in memory. The folder lies where "
        "temporary files do; `TMPDIR` names another disk.",
        durable.run,
    ),
    "lake": Suite(
        "Records outside the folder, as Parquet partitioned by shard, in another folder (`docs/lake.md`): making the "
        "table from Parquet files, up to where training begins, in processor time; the memory of all of it; and the "
        "bytes that a deletion reads and writes, the overwriting of the old file and the state included.",
        lake.run,
    ),
    "predict": Suite(
        "Plain majority of linear models, against asking one model after another and counting.", predict.run
    ),
    "shards": Suite(
        "Many small shards of 20 features: training them together, and, with models that are not linear, the mean of "
        "their probabilities, against scikit-learn, one model after another; and voting against the same without the "
        "checks of scikit-learn.",
        shards.run,
    ),
    "exact": Suite(
        "Exact unlearning where it was slow: before and after, with few records and shards and with many, and how much "
        "is found of a rare class. All is processor time; deletions are requests, one by one unless said, and figures "
        "are for one request.",
        exact.run,
    ),
    "engines": Suite(
        "Training the shards of a folder, each of which keeps a processor busy for so long, on every engine that is "
        "installed, against `Parallel(n_jobs=2)` of joblib on arrays in memory. Engines have been started before.",
        engines.run,
    ),
    "service": Suite(
        "The service over HTTP on this machine, with logistic regression on 10 features: processor time of the server, "
        "and how long the slowest of 100 single rows took.",
        service.run,
    ),
    "program": Suite("The processor time until the program's first words, the start of Python included.", program.run),
    "growth": Suite("How each of these grows with n and k.", growth.run),
    "sampling": Suite("Drawing independent shards with p = 1/k, both directions of the index included.", sampling.run),
    "mechanisms": Suite("Releasing answers from given vote counts, with noise from the system.", mechanisms.run),
    "guarantee": Suite("The best of all theorems for l predictions by k shards in one generation.", guarantee.run),
    "consensus": Suite(
        "What the consensus gate adds to a request for a plain majority of linear models, votes and checks included.",
        consensus.run,
    ),
    "deep": Suite(
        "Networks on JAX (the extra `jax`): training many shards, retraining one of them, and on a GPU the fused "
        "kernel of the paper's network.",
        deep.run,
    ),
}


@dataclass(frozen=True, slots=True)
class Report:
    """What was measured, with what."""

    quick: bool
    environment: Environment
    lines: dict[str, list[Line]]

    @property
    def missed(self) -> list[Line]:
        """The lines that do not meet their target."""
        return [line for lines in self.lines.values() for line in lines if line.met is False]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, for JSON."""
        suites = [
            {"name": name, "about": SUITES[name].about, "lines": [line.to_dict() for line in lines]}
            for name, lines in self.lines.items()
        ]
        return {"quick": self.quick, "environment": asdict(self.environment), "suites": suites}


def run_suites(names: Sequence[str], *, quick: bool = False, progress: Progress) -> Report:
    """Run the named suites, or all of them if none is named, in this process and on one thread."""
    unknown = [name for name in names if name not in SUITES]
    if unknown:
        raise ParameterError(f"there is no benchmark {unknown[0]!r}; there are {', '.join(SUITES)}")
    wanted = list(dict.fromkeys(names)) or list(SUITES)
    # It needs an extra: refuse before measuring, or leave it out if it was not asked for.
    if "deep" in wanted:
        try:
            deep.require_extra()
        except ImportError:
            if names:
                raise
            wanted.remove("deep")
    with one_thread():
        lines = {name: SUITES[name].run(quick=quick, progress=progress) for name in wanted}
    if quick:  # the targets are about the full sizes
        lines = {name: [replace(line, target=None) for line in found] for name, found in lines.items()}
    return Report(quick, Environment.current(), lines)
