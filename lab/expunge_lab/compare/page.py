"""The page of the comparison: tables from the figures that are kept, and a picture for each dataset."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from expunge.core.errors import InputError
from expunge_lab.bench.page import QUICK_WARNING, format_quantity
from expunge_lab.compare.methods import methods_for
from expunge_lab.compare.tables import DATASETS

FORMAT = 1
_POINT = 0.01  # of accuracy

PROMISES: dict[str, tuple[str, str, str, str]] = {
    "refitted": (
        "one model, fitted again",
        "the model never saw the record",
        "itself: it is the training from scratch",
        "everybody; nothing is kept from before",
    ),
    "bagging": (
        "bagging, fitted again",
        "the same",
        "itself",
        "everybody",
    ),
    "sisa": (
        "SISA: shards, slices, votes",
        "the models are those of retraining with the same shards",
        "retraining with the same partition",
        "people whose requests do not follow from what they saw. For others the comparison with a fresh partition "
        "fails (Theorem 5.1 of the paper). Here it runs on this package's code, so the exact promise holds too",
    ),
    "exact": (
        'this package, `promise="exact"`',
        "the models are, bit for bit, those of the recipe on the records that are left (T6)",
        "the same recipe, its key included",
        "everybody, whatever they saw; answers, probabilities and models may be published",
    ),
    "consensus": (
        'this package, `promise="consensus"`',
        "the exact promise, and (α,β,γ) = (5, 0.001, 0.001) (T4)",
        "retraining with fresh secret randomness",
        "everybody who sees answers alone; a consensus that fails costs a full retraining",
    ),
    "incremental": (
        "this package, learners that unlearn exactly, one model",
        "the exact promise; nothing is retrained",
        "training from scratch: there is no partition",
        "everybody",
    ),
}

ELSEWHERE = (
    ("DaRE, 100 trees", "0.957", "–", "86 ms", "208 ms", "808 ms", "1.7 GB"),
    ("DynFrs, 100 trees", "0.940", "–", "0.3 to 0.5 ms (wall)", "–", "–", "–"),
)

INTRODUCTION = """\
What a user would pick to honour deletions, side by side: one model fitted again, bagging fitted again, SISA with
slices, this package with any number of shards under the exact promise, under an (α,β,γ) promise, and its models that
unlearn without training. Everything on this page is made by

    expunge compare --kept lab/results/comparison --out docs/comparison.md

which measures each way in a process of its own, keeps the figures of each dataset in a file, and draws the pictures.

- **Times** are processor time with one thread of linear algebra (networks use all cores, and their times add them
  up), on a machine with other work. Networks on a GPU are timed on the wall, and a line says which GPU. Compiling is
  not counted. A deletion or addition is one request in memory, through `UnlearningClassifier`; *in a folder* it is on
  the disk, and what it replaced is erased, when it returns.
- **Latencies** are of up to 200 random requests, as many as 4 seconds allow; the table says how many. With few of
  them the 99th percentile is the slowest.
- **AUC** of several classes is the mean of each against the others. *Lowest recall* is that of the class that is
  found least.
- **Memory** is the highest beyond the loaded data, from fitting to the last deletion. **Disk** is what is needed to
  go on: the folder of a deployment, or the rows and the pickled model.
- The settings are the defaults of each learner; none was tuned for this page."""

NOT_COMPARABLE = """\
## What is not comparable

- *Promises differ.* The table above says with what each compares. Under (α,β,γ) only labels are published, so there
  is no AUC; its deletions are cheap as long as no consensus failed, and then one retrains everything.
- *One deletion is not a hundred.* A refit costs the same for any batch. Shards cost the touched ones: with k shards a
  batch of a few k touches nearly all, and a refit of one model is then cheaper and usually better.
- *SISA's figures* are of its authors' data, networks and machines. Here are data of the same shape (Purchase-like) or
  others (MNIST for SVHN), and the ratio within one run.
- *DaRE and DynFrs* promise the law of retraining, not its bits, for requests that do not follow from what the forest
  showed. Their figures were measured with their own code on another day, on a table of the same kind, and not by this
  command.
- *Learners differ.* A model that unlearns without training is another model than a network. Accuracy says what that
  costs.
- Covertype-like and Purchase-like data are drawn by the program, because the originals have to be downloaded."""


def write_kept(found: Mapping[str, Any], folder: Path) -> Path:
    """Into the file of the dataset, in place of what was measured before of these ways; other ways stay."""
    path = folder / f"{found['dataset']}.json"
    every = {each["name"]: {"environment": found["environment"], **each} for each in found["methods"]}
    if path.exists():
        before = _read(path)
        if before["quick"] == found["quick"] and before["records"] == found["records"]:
            others = ({"environment": before["environment"], **each} for each in before["methods"])
            every = {each["name"]: each for each in others} | every
    order = [each.name for each in methods_for(found["dataset"], found["records"], quick=found["quick"])]
    methods = sorted((every[name] for name in every if name in order), key=lambda each: order.index(each["name"]))
    common = Counter(json.dumps(each["environment"]) for each in methods).most_common(1)[0][0]
    for each in methods:  # told once, where most were measured
        if json.dumps(each["environment"]) == common:
            del each["environment"]
    data = {**found, "environment": json.loads(common), "methods": methods}
    text = json.dumps({"format": FORMAT, **data}, indent=1, ensure_ascii=False)
    path.write_text(text + "\n", encoding="utf-8")
    return path


def read_kept(folder: Path) -> list[dict[str, Any]]:
    """What is kept, in the order of the datasets."""
    found = [_read(path) for path in folder.glob("*.json")]
    return sorted(found, key=lambda data: [*DATASETS].index(data["dataset"]))


def _read(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        if data["format"] != FORMAT or data["dataset"] not in DATASETS or not data["methods"]:
            raise ValueError("of another kind")
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"{path.name} is no file of the comparison: {error}") from error
    return dict(data)


def to_page(kept: Sequence[Mapping[str, Any]], *, pictures: str | None) -> str:
    """The page; `pictures` is the folder of the pictures as the page names it."""
    parts = ["# Compared with what you would pick instead", INTRODUCTION]
    if any(data["quick"] for data in kept):
        parts.insert(1, f"**{QUICK_WARNING}**")
    missing = [DATASETS[name].title for name in DATASETS if name not in {data["dataset"] for data in kept}]
    if missing:
        parts.append(f"The command also compares on these, of which no figures are kept: {', '.join(missing)}.")
    parts += ["## What each promises", _promises()]
    for data in kept:
        parts += _dataset(data, pictures)
    parts += _against_sisa(kept)
    return "\n\n".join([*parts, NOT_COMPARABLE]) + "\n"


def _promises() -> str:
    columns = ("way", "after a deletion", "compared with", "against whom")
    return table(columns, [PROMISES[kind] for kind in PROMISES])


def _dataset(data: Mapping[str, Any], pictures: str | None) -> list[str]:
    dataset, about = DATASETS[data["dataset"]], data["environment"]
    measured = (
        f"{dataset.about} {data['records']:,} records to train on, {data['asked']:,} to ask about. Measured on "
        f"{about['date']}: Python {about['python']}, scikit-learn {about['scikit_learn']}, {about['num_cores']} cores."
    )
    parts = [f"## {dataset.title}", measured, _verdict(data)]
    if pictures is not None:
        parts.append(f"![Accuracy against the cost of a deletion: {dataset.title}]({pictures}/{picture_name(data)})")
    batches = [name for name in data["methods"][0]["batches"] if name not in ("100", "1%")]
    columns = ["way", "accuracy", "AUC", "lowest recall", "delete 1: median", "mean", "99%", "requests"]
    columns += [*(f"delete {name}" for name in batches), "delete 100", "delete 1%"]
    rows = [_row(each, batches) for each in data["methods"]]
    if data["dataset"] == "table":
        blank = ["–"] * (len(columns) - 7)
        rows += [[f"{name} (elsewhere)", *found[:2], "–", *found[2:-1], *blank] for name, *found in ELSEWHERE]
    parts.append(table(columns, rows))
    columns = ["way", "fit", "add 1", "delete 1 in a folder", "predict 1 row", "1,000 rows", "disk", "memory"]
    parts.append(table(columns, [_costs(each) for each in data["methods"]]))
    return [*parts, *_notes(data)]


def _verdict(data: Mapping[str, Any]) -> str:
    """Which deletions are cheapest among the ways that are as accurate as the best, but for a point."""
    best = max(data["methods"], key=lambda each: each["accuracy"])
    near = [each for each in data["methods"] if each["accuracy"] >= best["accuracy"] - _POINT]
    cheap = min(near, key=lambda each: each["deletion"]["median"])
    words = f"The most accurate: {_name(best)}, {best['accuracy']:.3f}, {_time(best['deletion']['median'])} a deletion."
    if cheap is best:
        return words
    return (
        f"{words} Within a point of it: {_name(cheap)}, {cheap['accuracy']:.3f}, {_time(cheap['deletion']['median'])}."
    )


def _row(each: Mapping[str, Any], batches: Sequence[str]) -> list[str]:
    deletion, least = each["deletion"], min(each["recalls"], key=each["recalls"].get)
    return [
        _name(each),
        f"{each['accuracy']:.3f}",
        "–" if each["auc"] is None else f"{each['auc']:.3f}",
        f"{each['recalls'][least]:.2f} (class {least})",
        *(_time(deletion[name]) for name in ("median", "mean", "p99")),
        str(deletion["count"]),
        *(_time(each["batches"].get(name)) for name in (*batches, "100", "1%")),
    ]


def _costs(each: Mapping[str, Any]) -> list[str]:
    return [
        _name(each),
        _time(each["fit"]),
        _time(each["addition"]["median"]),
        _time(each["folder_deletion"]),
        _time(each["one_row"]),
        _time(each["thousand_rows"]),
        _size(each["disk"]),
        _size(each["memory"]),
    ]


def _notes(data: Mapping[str, Any]) -> list[str]:
    elsewhere: dict[str, list[str]] = {}
    for each in data["methods"]:
        about = {**data["environment"], **each.get("environment", {})}
        words = f"with Python {about['python']}, scikit-learn {about['scikit_learn']} and {about['num_cores']} cores"
        elsewhere.setdefault(words, []).append(_name(each))
    own = max(elsewhere, key=lambda words: len(elsewhere[words]))
    del elsewhere[own]
    others = [f"{', '.join(names)}: measured on another machine, {words}." for words, names in elsewhere.items()]
    devices = sorted({each["device"] for each in data["methods"]} - {"CPU"})
    found = others + [f"Networks ran on one {each}, and their times are on the wall." for each in devices]
    for each in data["methods"]:
        for what, seconds in each["extra"].items():
            found.append(f"{_name(each)}, {each['num_shards']:,} shards: a {what} takes {_time(seconds)}.")
    if data["dataset"] == "rare":
        found.append(
            "*thresholds*: class-aware thresholds, learned inside shards; *5 a record*: overlapping shards, a record "
            "in 5 of them on average ([rare classes](shards.md#rare-classes))."
        )
    if data["dataset"] == "table":
        found.append("*elsewhere*: measured with their own code, not by this command; DaRE took 1.7 GB of memory.")
    return [" ".join(found)] if found else []


def _against_sisa(kept: Sequence[Mapping[str, Any]]) -> list[str]:
    """Batches of SISA's sizes against fitting one model on everything again, in the same run."""
    rows = []
    for data in kept:
        batches = DATASETS[data["dataset"]].batches
        one = next((each for each in data["methods"] if each["kind"] == "refitted"), None)
        for each in data["methods"] if batches and one else ():
            seconds = each["batches"].get(str(batches[0]))
            if seconds is not None and each["device"] == one["device"]:  # type: ignore[index]
                times = f"{one['fit'] / seconds:,.2f}×"  # type: ignore[index]
                name = DATASETS[data["dataset"]].title
                rows.append([name, _name(each), str(batches[0]), f"{each['accuracy']:.3f}", _time(seconds), times])
    if not rows:
        return []
    words = (
        "SISA's authors report that 20 shards of 50 slices unlearn a batch 4.63 times as fast as one model is trained "
        "again on Purchase, and 2.45 times on SVHN. Here are batches of 8 and 18 requests against fitting one "
        "model again, in one run and on one device. Comparable are the numbers of shards and slices and the ratio, and "
        "for Purchase-like data the shape. Not comparable: MNIST and Fashion-MNIST are smaller than SVHN, with a "
        "smaller network. On a GPU such a network waits for calls more than for arithmetic: slices, which are many "
        "short trainings, then cost more than they save."
    )
    columns = ("data", "way", "batch", "accuracy", "time", "times as fast as fitting one model again")
    return ["## SISA's speed-ups", words, table(columns, rows)]


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """In Markdown."""
    return "\n".join(f"| {' | '.join(row)} |" for row in [columns, ["---"] * len(columns), *rows])


def _name(each: Mapping[str, Any]) -> str:
    prefix = {"sisa": "SISA: ", "consensus": "(α,β,γ): "}.get(each["kind"], "")
    return f"{prefix}{each['name']}"


def _time(seconds: float | None) -> str:
    return "–" if seconds is None else format_quantity(seconds, "s")


def _size(size: float | None) -> str:
    if size is None:
        return "–"
    for name, unit in (("GB", 1e9), ("MB", 1e6)):
        if size >= unit:
            return f"{size / unit:.3g} {name}"
    return f"{size / 1e3:.3g} kB"


def picture_name(data: Mapping[str, Any]) -> str:
    """The file of a dataset's picture."""
    return f"comparison-{data['dataset']}.svg"


_MARKS = {"refitted": "s", "bagging": "D", "sisa": "^", "exact": "o", "consensus": "v", "incremental": "*"}
_COLOURS = {
    "refitted": "#8C8C8C",
    "bagging": "#B0A990",
    "sisa": "#C44E52",
    "exact": "#4C72B0",
    "consensus": "#8172B2",
    "incremental": "#0B6E4F",
}


def draw(data: Mapping[str, Any], folder: Path) -> Path:
    """Accuracy (of a rare class also the mean recall) against the median cost of a deletion, with the best front."""
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "comparison"
    import matplotlib.pyplot as plt

    heights: dict[str, Any] = {"accuracy": lambda each: each["accuracy"]}
    if data["dataset"] in ("rare", "cover"):
        heights["mean recall of the classes"] = lambda each: sum(each["recalls"].values()) / len(each["recalls"])
    figure, panels = plt.subplots(
        1, len(heights), figsize=(7.5 * len(heights), 4.8), layout="constrained", squeeze=False
    )
    for axes, (words, height) in zip(panels[0], heights.items(), strict=True):
        points = [(1e3 * each["deletion"]["median"], height(each), each) for each in data["methods"]]
        for kind, mark in _MARKS.items():
            own = [(x, y) for x, y, each in points if each["kind"] == kind]
            if own:
                axes.scatter(
                    *zip(*own, strict=True),
                    marker=mark,
                    s=60,
                    color=_COLOURS[kind],
                    label=PROMISES[kind][0].replace("`", ""),
                    zorder=3,
                )
        front = [(x, y) for x, y, _ in points if not any(a <= x and b >= y and (a, b) != (x, y) for a, b, _ in points)]
        axes.plot(*zip(*sorted(front), strict=True), color="#0B6E4F", linewidth=1, alpha=0.6, zorder=1)
        axes.set(xscale="log", xlabel="median processor time of a deletion, ms (less is better)", ylabel=words)
        low, high = axes.get_xlim()
        axes.set_xlim(low, high * 3)  # room for names
        axes.grid(color="#DDDDDD", linewidth=0.5)
        figure.canvas.draw()
        _name_points(axes, sorted(points, key=lambda point: (point[:2] not in front, -point[1])))
    figure.legend(*panels[0][0].get_legend_handles_labels(), fontsize=8, loc="outside lower center", ncols=3)
    figure.suptitle(DATASETS[data["dataset"]].title)
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / picture_name(data)
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
    return path


def _name_points(axes: Any, points: Sequence[tuple[float, float, Mapping[str, Any]]]) -> None:
    """Names beside points, the more important first; none where it would lie on another or on a point."""
    taken = [axes.transData.transform((x, y)) for x, y, _ in points]
    boxes: list[Any] = []
    for x, y, each in points:
        for place, side in (((6, 3), "left"), ((6, -9), "left"), ((-6, 3), "right"), ((-6, -9), "right")):
            text = axes.annotate(
                each["name"], (x, y), place, textcoords="offset points", fontsize=7, ha=side, va="bottom"
            )
            box = text.get_window_extent().padded(1)
            is_free = not any(box.overlaps(other) for other in boxes)
            is_free = is_free and axes.bbox.containsx(box.x0) and axes.bbox.containsx(box.x1)
            if is_free and not any(box.contains(*point) for point in taken):
                boxes.append(box)
                break
            text.remove()
