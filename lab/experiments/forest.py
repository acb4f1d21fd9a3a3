"""What the exact forest costs, and what it is worth: accuracy, deletions, batches, memory, slow-down requesters.

    python lab/experiments/forest.py                          docs/figures/forest.svg and the tables; minutes
    python lab/experiments/forest.py --rows 5000 --quick      half a minute, writes nothing

50,000 x 20 rows of make_classification (5 informative), and 12,500 to test on. All times are processor time of one
thread, compiling not counted; ratios are of one run. Deletions are timed one by one: of the bare forest, through a
deployment in memory, and through one in a folder. A slow-down requester knows the key and sees the forest: at each step
it tries out 80 records (the smallest and largest of every feature, and others at random) and deletes the one that costs
most.

Expected: 40 trees that see half of the records are as accurate as scikit-learn's extremely randomised trees or better,
and lose a record in about a millisecond.
"""

from __future__ import annotations

import argparse
import gc
import json
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier

import expunge
from expunge.training.forest.draws import ForestOptions, key_of
from expunge.training.forest.nodes import KeptForest, prepare
from expunge.training.learners import UnlearningForest

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "forest"
KEPT = Path(__file__).parents[1] / "results" / "forest.json"
KEY = key_of(0)
GRID = [(trees, 0.2, 20) for trees in (25, 50, 100)]
GRID += [(trees, 0.5, 20) for trees in (20, 40, 80)]
GRID += [(trees, 1.0, 20) for trees in (10, 20, 40)]
GRID += [(40, 0.5, candidates) for candidates in (10, 40)]


class Data:
    """Rows, labels and names; those after the first `size` are for tests, and to be added."""

    def __init__(self, size: int) -> None:
        self.size = size
        X, y = make_classification(size * 5 // 4, 20, n_informative=5, random_state=0)
        self.X, self.y = np.ascontiguousarray(X), y.astype(np.int64)
        ids = np.arange(len(y), dtype=np.uint64)
        self.names = np.stack([np.ones_like(ids), ids], axis=1)

    def part(self, rows: Any) -> Any:
        """Some records, as a forest takes them."""
        rows = np.asarray(rows, dtype=np.int64)
        return self.X[rows], self.y[rows], self.names[rows]

    def accuracy(self, predict: Callable[[Any], Any]) -> float:
        """On the rows for tests."""
        return float((predict(self.X[self.size :]) == self.y[self.size :]).mean())


def seconds(task: Callable[[], Any]) -> tuple[float, Any]:
    """Processor time of a task, and its result."""
    gc.collect()
    start = time.process_time()
    done = task()
    return time.process_time() - start, done


def spread(times: list[float]) -> dict[str, float]:
    """Median, mean, 99th percentile and largest, in milliseconds."""
    found = 1e3 * np.array(times)
    return {
        "median": float(np.median(found)),
        "mean": float(found.mean()),
        "p99": float(np.quantile(found, 0.99)),
        "largest": float(found.max()),
    }


def one_by_one(delete: Callable[[int], Any], rows: Any) -> dict[str, float]:
    """What deletions cost, each by itself."""
    times = []
    for row in rows:
        start = time.process_time()
        delete(int(row))
        times.append(time.process_time() - start)
    return spread(times)


class Changing:
    """A forest that is replaced by the next one at each change."""

    def __init__(self, data: Data, forest: KeptForest) -> None:
        self.data, self.forest, self.most = data, forest, forest.num_bytes

    def change(self, going: Any, coming: Any = ()) -> None:
        """Go on with the forest after records go and come."""
        changed = self.forest.changed(self.data.part(going), self.data.part(coming))
        assert changed is not None
        self.forest, self.most = changed, max(self.most, changed.num_bytes)


def grown(data: Data, options: ForestOptions) -> KeptForest:
    """The forest of all records but those for tests."""
    return KeptForest.grown(KEY, *data.part(np.arange(data.size)), options, 2)


def trade(data: Data, settings: tuple[int, float, int], deletions: Any) -> dict[str, Any]:
    """One point of the trade."""
    fit, forest = seconds(lambda: grown(data, ForestOptions(*settings)))
    accuracy = data.accuracy(lambda X: forest.probabilities(X).argmax(axis=1))
    kept = Changing(data, forest)
    cost = one_by_one(lambda row: kept.change([row]), deletions)
    names = dict(zip(("trees", "share", "candidates"), settings, strict=True))
    return {**names, "fit": fit, "accuracy": accuracy, **cost, "megabytes": kept.most / 2**20}


def slow_down(data: Data, forest: KeptForest, steps: int) -> dict[str, float]:
    """What deletions cost that a requester chooses who tries them out first."""
    rng, kept, there, times = np.random.default_rng(1), Changing(data, forest), np.ones(data.size, bool), []
    for _ in range(steps):
        rows = np.flatnonzero(there)
        own = data.X[rows]
        pool = np.unique(np.concatenate([rows[own.argmin(0)], rows[own.argmax(0)], rng.choice(rows, 40)]))
        tried = [seconds_of(kept.forest, data, row) for row in pool]
        row = int(pool[int(np.argmax(tried))])
        there[row] = False
        start = time.process_time()
        kept.change([row])
        times.append(time.process_time() - start)
    return spread(times)


def seconds_of(forest: KeptForest, data: Data, row: Any) -> float:
    """What it would cost to delete a record."""
    start = time.process_time()
    forest.changed(data.part([row]), data.part([]))
    return time.process_time() - start


def deployments(data: Data, deletions: Any) -> dict[str, Any]:
    """The same through a deployment in memory, and in a folder."""
    X, y, ids = data.X[: data.size], data.y[: data.size], list(range(data.size))
    model = expunge.UnlearningClassifier(UnlearningForest(), n_shards=1, random_state=0).fit(X, y, ids=ids)
    found: dict[str, Any] = {"memory": one_by_one(lambda row: model.delete([row]), deletions)}
    left = np.setdiff1d(np.arange(data.size), deletions)[: data.size // 100].tolist()
    found["memory, 1%"] = 1e3 * seconds(lambda: model.delete(left))[0]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "d"
        with expunge.create(folder, UnlearningForest(), X, y, ids=ids, n_shards=1) as made:
            few = deletions[: max(5, len(deletions) // 10)]
            start = time.perf_counter()
            found["folder"] = one_by_one(lambda row: made.delete([row]), few)
            found["folder, wall"] = 1e3 * (time.perf_counter() - start) / len(few)
            found["folder, 1%"] = 1e3 * seconds(lambda: made.delete(left))[0]
        found["folder, megabytes"] = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) / 2**20
        again, opened = seconds(lambda: expunge.open(folder))
        with opened:
            found["folder, open and delete"] = 1e3 * (again + seconds(lambda: opened.delete([int(deletions[-1])]))[0])
    return found


def measure(size: int, *, quick: bool) -> dict[str, Any]:
    """All measurements, as plain values."""
    prepare()
    data, rng = Data(size), np.random.default_rng(0)
    deletions = rng.permutation(data.size)[: 40 if quick else 300]
    X, y = data.X[: data.size], data.y[: data.size]
    found: dict[str, Any] = {"rows": size}
    for name, model in (
        ("boosting", HistGradientBoostingClassifier(random_state=0)),
        ("extra trees", ExtraTreesClassifier(100, random_state=0)),
    ):
        fit, _ = seconds(lambda model=model: model.fit(X, y))
        found[name] = {"fit": fit, "accuracy": data.accuracy(model.predict)}
    found["trade"] = [trade(data, settings, deletions) for settings in (GRID[:1] if quick else GRID)]
    default = UnlearningForest().options
    kept = Changing(data, grown(data, default))
    for name, going, coming in (
        ("100 deletions", deletions[:100], []),
        ("1% deletions", rng.permutation(np.setdiff1d(np.arange(data.size), deletions[:100]))[: size // 100], []),
    ):
        found[name] = 1e3 * seconds(lambda going=going, coming=coming: kept.change(going, coming))[0]
    added = np.arange(data.size, len(data.y))[: 10 if quick else 300]
    found["additions"] = one_by_one(lambda row: kept.change([], [row]), added)
    found["slow-down"] = slow_down(data, grown(data, default), 5 if quick else 40)
    found["deployments"] = deployments(data, deletions)
    return found


def draw(found: dict[str, Any]) -> None:
    """Accuracy against the mean cost of a deletion."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "forest"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for share, mark in ((0.2, "o"), (0.5, "s"), (1.0, "^")):
        points = [each for each in found["trade"] if each["share"] == share and each["candidates"] == 20]
        axes.plot(
            [each["mean"] for each in points],
            [each["accuracy"] for each in points],
            mark + "-",
            label=f"{share:.0%} of records, 20 candidates",
        )
        for each in points:
            axes.annotate(str(each["trees"]), (each["mean"], each["accuracy"]), (4, -10), textcoords="offset points")
    others = [each for each in found["trade"] if each["share"] == 0.5 and each["trees"] == 40]
    others.sort(key=lambda each: each["candidates"])
    axes.plot(
        [e["mean"] for e in others],
        [e["accuracy"] for e in others],
        "x--",
        label="50%, 40 trees: 10, 20, 40 candidates",
    )
    for name, style in (("boosting", ":"), ("extra trees", "-.")):
        axes.axhline(found[name]["accuracy"], color="grey", linestyle=style, label=f"{name}, refitted")
    axes.set(xscale="log", xlabel="mean processor time of a deletion, ms", ylabel="accuracy")
    axes.legend(fontsize=8)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE.with_suffix(".svg"), metadata={"Date": None})


def tell(found: dict[str, Any]) -> None:
    """The tables of docs/forest.md."""
    boosting, trees = found["boosting"], found["extra trees"]
    print("| trees | share | candidates | accuracy | fit, s | median, ms | mean | p99 | largest | MB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for e in found["trade"]:
        print(
            f"| {e['trees']} | {e['share']} | {e['candidates']} | {e['accuracy']:.4f} | {e['fit']:.1f} | "
            f"{e['median']:.2f} | {e['mean']:.2f} | {e['p99']:.1f} | {e['largest']:.0f} | {e['megabytes']:.0f} |"
        )
    print(f"\nboosting: accuracy {boosting['accuracy']:.4f}, fit {boosting['fit']:.2f} s")
    print(f"extra trees: accuracy {trees['accuracy']:.4f}, fit {trees['fit']:.2f} s\n")
    print(json.dumps({name: each for name, each in found.items() if name != "trade"}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=50_000)
    parser.add_argument("--quick", action="store_true", help="few deletions and one setting; nothing is written")
    options = parser.parse_args()
    result = measure(options.rows, quick=options.quick)
    tell(result)
    if not options.quick:
        KEPT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
        draw(result)
