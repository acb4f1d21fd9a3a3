"""What two habits of the paper's released code do to the indicator with two shards.

    python lab/experiments/released.py --row mnist-k2-1.3 --trials 20 --keep FILE      new trials, added to FILE
    python lab/experiments/released.py --row mnist-k2-1.3 --trials 20 --keep FILE --images first --before
    python lab/experiments/released.py FILE...                                         what they say, in a table

*Images.* All trials there share one partition, of images drawn from the whole training set; the trials of our table
draw a partition of the first images in every trial.

*Keys.* There, keys are split in a chain, and with two shards (not with six) the chain of the retraining meets that of
the first training: the second model, which is not targeted, is retrained with the key of its first training, hence with
the same noise (its batches are others, as its shard is smaller). The noise that chose what is deleted is not fresh.

Every trial trains both models, deletes, retrains the first model with a fresh key, and the second twice: with a fresh
key (`after`) and with its old one (`again`), so that both are compared on the same deletions. `--before` leaves the
deletions out. On a CPU a trial is 5 trainings of a minute or so on one core. Lines are added to FILE as trials end.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest, norm

from expunge.core.errors import InputError
from expunge_lab.reproduction import Pictures, Row, load_pictures, table_rows
from expunge_lab.reproduction.trials import count_right
from expunge_lab.reproduction.white_box import Engine
from expunge_lab.reproduction.white_box.batch import guess_shards
from expunge_lab.reproduction.white_box.partitions import draw_keys, first_partition, trial_generators, without
from expunge_lab.reproduction.white_box.runner import make_engine

SEED = 51  # of trials that no table uses
Line = dict[str, Any]


def play(row: Row, engine: Engine, pictures: Pictures, number: int, *, images: str, has_deletions: bool) -> Line:
    """One trial, as counts of right answers on held-out images."""
    generators = trial_generators(SEED, [number])
    order = np.arange(len(pictures.y), dtype=np.int32)[np.newaxis]
    if images == "first":
        order = generators[0].permutation(order, axis=1)
    start, first, fresh = (draw_keys(generators, row.num_shards) for _ in range(3))
    whole = first_partition(row, order)

    def train(shards: Any, keys: NDArray[np.uint32], models: slice = slice(None)) -> Any:
        begin = engine.initial(start[models])
        noise = row.noise_multiplier
        return engine.train(begin, shards.rows[models], shards.sizes[models], keys[models], noise_multiplier=noise)

    weights = train(whole, first)
    scores = engine.test_scores(weights)
    found: Line = {"row": row.name, "images": images, "trial": number, **counts(scores, pictures)}
    if has_deletions:
        guesses = guess_shards(engine, weights, order, row.num_shards)
        doomed = guesses < row.num_shards // 2
        left = without(row, order, doomed)
        home = np.arange(order.shape[1]) // row.points_per_shard
        found |= {"deleted": int(doomed.sum()), "hits": int((doomed & (guesses == home)).sum())}
        after = engine.test_scores(train(left, fresh))
        again = engine.test_scores(train(left, first, slice(1, 2)))
        found |= {"after": right(after, pictures), "again": [right(after[:1], pictures)[0], right(again, pictures)[0]]}
    return found


def right(scores: NDArray[np.float32], pictures: Pictures) -> list[int]:
    """Right answers of every model."""
    return [int(own) for own in (scores.argmax(axis=2) == pictures.y_test).sum(axis=1)]


def counts(scores: NDArray[np.float32], pictures: Pictures) -> Line:
    """Before any deletion: of the models and of their vote."""
    found = count_right("before", scores[np.newaxis], pictures.y_test)
    return {"before": found["before"][0].tolist(), "voted_before": int(found["voted_before"][0])}


def read(paths: Sequence[Path]) -> list[Line]:
    """All trials of all files, each once."""
    found: dict[tuple[Any, ...], Line] = {}
    for path in paths:
        try:
            lines = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
            for line in lines:
                key = line["row"], line["images"], line["trial"]
                found[key] = {**found.get(key, {}), **line}
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}") from None
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{path} is not a file of trials") from None
    return list(found.values())


def tell(lines: Sequence[Line]) -> Iterator[str]:
    """A table of leads and indicators, and the comparison of the two ways to retrain the second model."""
    yield "| row | images | when | trials | vote's right answers | lead | in its deviations | indicator |"
    yield "| --- | --- | --- | --- | --- | --- | --- | --- |"
    for row, images in sorted({(line["row"], line["images"]) for line in lines}):
        own = [line for line in lines if (line["row"], line["images"]) == (row, images)]
        for when in ("before", "after", "again"):
            leads = np.array([line[when][1] - line[when][0] for line in own if when in line], np.float64)
            if len(leads) > 1:
                votes = spread(np.array([line["voted_before"] for line in own])) if when == "before" else "–"
                yield f"| {row} | {images} | {when} | {len(leads)} | {votes} | {spread(leads)} | {shares(leads)} |"
    pairs = [(line["after"][1], line["again"][1]) for line in lines if "again" in line]
    if len(pairs) > 1:
        change = np.array([old - new for new, old in pairs], np.float64)
        worse, better = int((change < 0).sum()), int((change > 0).sum())
        p_value = binomtest(worse, worse + better).pvalue if worse + better else 1.0
        yield ""
        yield (
            f"The second model, retrained with its old key instead of a fresh one: {spread(change)} right answers, "
            f"worse in {worse} and better in {better} of {len(pairs)} trials, p = {p_value:.2g} (exact sign test)"
        )


def spread(values: NDArray[Any]) -> str:
    """The mean ± twice its standard error."""
    return f"{values.mean():+.1f} ± {2 * values.std(ddof=1) / len(values) ** 0.5:.1f}".removeprefix("+")


def shares(leads: NDArray[np.float64]) -> str:
    """The mean lead in standard deviations, with twice its standard error; how often there is one, with an interval."""
    ahead, deviation, words = int((leads > 0).sum()), float(leads.std(ddof=1)), "–"
    if deviation > 0:
        unit = float(leads.mean()) / deviation
        error = (1 / len(leads) + unit**2 / (2 * (len(leads) - 1))) ** 0.5
        words = f"{unit:+.2f} ± {2 * error:.2f} (Φ = {norm.cdf(unit):.2f})"
    low, high = binomtest(ahead, len(leads)).proportion_ci(0.95, method="exact")
    return f"{words} | {ahead / len(leads):.3f} [{low:.3f}, {high:.3f}]"


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    rows = {row.name: row for row in table_rows() if row.num_shards == 2}
    parser.add_argument("files", nargs="*", type=Path, help="trials to make a table of, instead of new ones")
    parser.add_argument("--row", choices=rows, metavar="ROW", default="mnist-k2-1.3", help=", ".join(rows))
    parser.add_argument("--images", choices=("released", "first"), default="released")
    parser.add_argument("--before", action="store_true", help="delete nothing, and train only the first models")
    parser.add_argument("--first", type=int, default=0, help="the number of the first trial")
    parser.add_argument("--trials", type=int, default=20)
    parser.add_argument("--keep", type=Path, help="add a line a trial to this file")
    options = parser.parse_args()
    try:
        if options.files:
            print(*tell(read(options.files)), sep="\n")
            return
        row = rows[options.row]
        pictures = load_pictures(row.experiment, has_released_order=options.images == "released")
        engine = make_engine(row.experiment, pictures)
        for number in range(options.first, options.first + options.trials):
            found = play(row, engine, pictures, number, images=options.images, has_deletions=not options.before)
            line = json.dumps(found)
            print(line, flush=True)
            if options.keep is not None:
                with options.keep.open("a", encoding="utf-8") as file:
                    file.write(line + "\n")
    except InputError as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
