"""What the exact forest costs, and what it is worth: accuracy, deletions, batches, memory, slow-down requesters.

    python lab/experiments/forest.py                          docs/figures/forest.svg and the tables; some minutes
    python lab/experiments/forest.py --rows 5000 --quick      a few seconds, writes nothing

50,000 x 20 rows of make_classification with 8 informative columns, and 10,000 to test on; for the default options also
with 5 informative columns. All times are processor time of one thread, compiling not counted; ratios are of one run.
Deletions are timed one by one: of the bare forest, through a deployment in memory, and through one in a folder.

A slow-down requester knows the key and sees the forest. At each step it tries out records: those with the smallest or
largest value of a column, those next to the splits of roots on both sides, and others at random. It deletes the one
that costs most. Another one deletes the dearest record, adds it again, and so on.

Expected: the default forest is more accurate than boosting, and loses a record in less than a millisecond (median).
"""

from __future__ import annotations

import argparse
import gc
import json
import resource
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.datasets import make_classification
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier

import expunge
from expunge.training.forest.draws import ForestOptions, key_of
from expunge.training.forest.nodes import KeptForest, prepare
from expunge.training.learners import UnlearningForest

FIGURE = Path(__file__).parents[2] / "docs" / "figures" / "forest"
KEPT = Path(__file__).parents[1] / "results" / "forest.json"
KEY = key_of(0)
GRID = [(100, share, candidates) for share in (0.1, 0.2, 0.4) for candidates in (5, 10, 20)]
GRID += [(trees, 1.0, 20) for trees in (10, 20, 30, 40, 100)]
REFITTED = {
    "boosting": lambda: HistGradientBoostingClassifier(random_state=0),
    "extra trees": lambda: ExtraTreesClassifier(100, random_state=0),
    "random forest": lambda: RandomForestClassifier(100, random_state=0),
}


class Data:
    """Rows, labels and names; those after the first `size` are for tests, and to be added."""

    def __init__(self, size: int, informative: int = 8, state: int = 1) -> None:
        self.size = size
        X, y = make_classification(size * 6 // 5, 20, n_informative=informative, random_state=state)
        self.X, self.y = np.ascontiguousarray(X), y.astype(np.int64)
        ids = np.arange(len(y), dtype=np.uint64)
        self.names = np.stack([np.ones_like(ids), ids], axis=1)

    def part(self, rows: Any) -> Any:
        """Some records, as a forest takes them."""
        rows = np.asarray(rows, dtype=np.int64)
        return self.X[rows], self.y[rows], self.names[rows]

    @property
    def tests(self) -> Any:
        """The rows for tests."""
        return self.X[self.size :]

    def accuracy(self, predict: Callable[[Any], Any]) -> float:
        """On the rows for tests."""
        return float((predict(self.tests) == self.y[self.size :]).mean())


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
    fit, kept = seconds(lambda: Changing(data, grown(data, ForestOptions(*settings))))
    accuracy = data.accuracy(lambda X: kept.forest.probabilities(X).argmax(axis=1))
    cost = one_by_one(lambda row: kept.change([row]), deletions)
    names = dict(zip(("trees", "share", "candidates"), settings, strict=True))
    return {**names, "fit": fit, "accuracy": accuracy, **cost, "megabytes": kept.most / 2**20}


def refitted(data: Data, name: str) -> dict[str, float]:
    """What a user would fit anew at each deletion."""
    model = REFITTED[name]()
    fit, _ = seconds(lambda: model.fit(data.X[: data.size], data.y[: data.size]))
    answering, _ = seconds(lambda: model.predict_proba(data.tests))
    return {"fit": fit, "accuracy": data.accuracy(model.predict), "answers": 1e3 * answering}


def slow_down(data: Data, kept: Changing, steps: int) -> dict[str, Any]:
    """What deletions cost that a requester chooses who tries them out first."""
    rng, there, times = np.random.default_rng(1), np.ones(data.size, bool), list[float]()
    for _ in range(steps):
        rows = np.flatnonzero(there)
        own = data.X[rows]
        trees = kept.forest.trees()
        starts = np.cumsum(trees.sizes) - trees.sizes
        splits = [(int(trees.features[at]), trees.thresholds[at]) for at in rng.choice(starts, 10)]
        near = [rows[np.argsort(np.abs(own[:, feature] - at))[:4]] for feature, at in splits if feature >= 0]
        pool = np.unique(np.concatenate([rows[own.argmin(0)], rows[own.argmax(0)], *near, rng.choice(rows, 40)]))
        tried = [seconds_of(kept.forest, data, row) for row in pool]
        row = int(pool[int(np.argmax(tried))])
        there[row] = False
        times += timed(lambda row=row: kept.change([row]))
    again = []
    kept.change([], [row])
    for _ in range(steps):
        again += timed(lambda: kept.change([row]))
        again += timed(lambda: kept.change([], [row]))
    return {"chosen": spread(times), "deleted and added again": spread(again)}


def timed(task: Callable[[], Any]) -> list[float]:
    """Processor time of a task, without collecting garbage before."""
    start = time.process_time()
    task()
    return [time.process_time() - start]


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
            found["folder"] = one_by_one(lambda row: made.delete([row]), deletions)
            found["folder, 1%"] = 1e3 * seconds(lambda: made.delete(left))[0]
        found["folder, megabytes"] = sum(each.stat().st_size for each in folder.rglob("*") if each.is_file()) / 2**20
        models = (folder / "models").iterdir()
        found["folder, megabytes of the model"] = sum(each.stat().st_size for each in models) / 2**20
        more = np.setdiff1d(np.arange(data.size), [*deletions, *left])[:2].tolist()
        again, opened = seconds(lambda: expunge.open(folder))
        with opened:
            found["folder, open and delete"] = 1e3 * (again + seconds(lambda: opened.delete(more[:1]))[0])
            found["folder, delete again"] = 1e3 * seconds(lambda: opened.delete(more[1:]))[0]
    return found


def batches(data: Data, kept: Changing, size: int, rows: Any) -> float:
    """The median cost of some batches of this size, in milliseconds."""
    parts = [rows[at : at + size] for at in range(0, len(rows) - size + 1, size)]
    return 1e3 * float(np.median([seconds(lambda part=part: kept.change(part))[0] for part in parts]))


def default(data: Data, deletions: Any, steps: int) -> dict[str, Any]:
    """What the forest of the default options does."""
    rng, options = np.random.default_rng(2), UnlearningForest().options
    before = memory()
    kept = Changing(data, grown(data, options))
    found: dict[str, Any] = {"answers": 1e3 * seconds(lambda: kept.forest.probabilities(data.tests))[0]}
    added = np.arange(data.size, len(data.y))[: len(deletions)]
    found["additions"] = one_by_one(lambda row: kept.change([], [row]), added)
    rows = rng.permutation(data.size)
    found["100 deletions"] = batches(data, kept, 100, rows[:500])
    one_percent = data.size // 100
    found["1% deletions"] = batches(data, kept, one_percent, rows[500 : 500 + 5 * one_percent])
    found["megabytes"], found["megabytes of the process"] = kept.most / 2**20, (memory() - before) / 2**20
    found["slow-down"] = slow_down(data, Changing(data, grown(data, options)), steps)
    return found


def memory() -> int:
    """The bytes of memory that the process has."""
    return int(Path("/proc/self/statm").read_text(encoding="ascii").split()[1]) * resource.getpagesize()


def measure(size: int, *, quick: bool) -> dict[str, Any]:
    """All measurements, as plain values."""
    prepare()
    data, number = Data(size), 40 if quick else 1000
    deletions = np.random.default_rng(0).permutation(size)[:number]
    own = UnlearningForest().options
    settings = (own.num_trees, own.share, own.num_candidates)
    found: dict[str, Any] = {"rows": size, "default": list(settings)}
    found["8 informative"] = {name: refitted(data, name) for name in REFITTED}
    found["trade"] = [trade(data, each, deletions) for each in (GRID[:1] if quick else GRID)]
    found["measured"] = default(data, deletions, 3 if quick else 20)
    found["deployments"] = deployments(data, deletions[:300])
    data = Data(size, 5)
    found["5 informative"] = {name: refitted(data, name) for name in REFITTED}
    found["5 informative"]["ours"] = trade(data, settings, deletions)
    return found


def draw(found: dict[str, Any]) -> None:
    """Accuracy against the mean cost of a deletion."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "forest"
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.2), layout="constrained")
    for share, mark in ((0.1, "v"), (0.2, "o"), (0.4, "s")):
        points = [each for each in found["trade"] if each["share"] == share]
        line(axes, points, mark, f"100 trees, each sees {share:.0%}: 5, 10, 20 candidates", "candidates")
    points = [each for each in found["trade"] if each["share"] == 1]
    line(axes, points, "^", "each tree sees all, 20 candidates: 10 to 100 trees", "trees")
    for name, style in (("boosting", ":"), ("extra trees", "-."), ("random forest", "--")):
        each = found["8 informative"][name]
        words = f"{name}, refitted: {1e3 * each['fit']:,.0f} ms"
        axes.axhline(each["accuracy"], color="grey", linestyle=style, linewidth=1, label=words)
    axes.set(xscale="log", xlabel="mean processor time of a deletion, ms", ylabel="accuracy")
    axes.set_xticks(ticks := [0.5, 1, 2, 5], list(map(str, ticks)))
    axes.set_xticks([], minor=True)
    axes.legend(fontsize=7)
    FIGURE.parent.mkdir(exist_ok=True)
    figure.savefig(FIGURE.with_suffix(".svg"), metadata={"Date": None})


def line(axes: Any, points: list[dict[str, Any]], mark: str, label: str, name: str) -> None:
    """Some points of the trade, with the option that makes the difference beside each."""
    axes.plot([each["mean"] for each in points], [each["accuracy"] for each in points], mark + "-", label=label)
    for each in points:
        place = (each["mean"], each["accuracy"])
        axes.annotate(str(each[name]), place, (4, -9), textcoords="offset points", fontsize=7)


def tell(found: dict[str, Any]) -> None:
    """The tables of docs/forest.md."""
    print("| trees | share | candidates | accuracy | fit, s | median, ms | mean | p99 | largest | MB |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for e in [*found["trade"], found["5 informative"]["ours"]]:
        print(
            f"| {e['trees']} | {e['share']} | {e['candidates']} | {e['accuracy']:.4f} | {e['fit']:.1f} | "
            f"{e['median']:.2f} | {e['mean']:.2f} | {e['p99']:.1f} | {e['largest']:.0f} | {e['megabytes']:.0f} |"
        )
    for table in ("8 informative", "5 informative"):
        for name in REFITTED:
            each = found[table][name]
            print(f"{table}, {name}: accuracy {each['accuracy']:.4f}, fit {each['fit']:.2f} s")
    print(json.dumps({name: found[name] for name in ("8 informative", "measured", "deployments")}, indent=1))


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
