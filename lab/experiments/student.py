"""The distilled student on MNIST and Fashion-MNIST, on a CPU.

1,000 overlapping shards of ridge classifiers on fixed features, a pool of 10,000 training images kept out of D as the
public one, and a kernel ridge student (Nyström, 1,000 landmarks) that answers everything. Then rounds of deletions.

    python lab/experiments/student.py                         10 minutes on one core; needs both datasets (EXPUNGE_DATA)
    python lab/experiments/student.py --only mnist --rounds 5
    python lab/experiments/student.py --quick                 half a minute, on digits; the figures mean little

Expected at (5, 1e-3, 1e-3): MNIST, p = .02: plain majority .975, nine tenths of the pool kept, student .983, .985 with
self-training. Fashion-MNIST, p = .04: plain majority .871, four fifths kept, student .85; self-training harms it. The
generation stays clean throughout (20 rounds of 20 deletions on MNIST, 6 on Fashion-MNIST), so one is enough; the
selection differs in every round, so the student is taught anew in every one.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from pictures import describe, shift
from sklearn.datasets import load_digits
from sklearn.kernel_approximation import Nystroem
from sklearn.linear_model import RidgeClassifier
from sklearn.pipeline import make_pipeline

from expunge import UnlearningClassifier
from expunge.core.randomness import Randomness
from expunge.serving.promises import Student
from expunge.serving.publishing import ConsensusPublisher, RoundContext, StudentFront, StudentRound
from expunge.training.execution import Serial
from expunge.training.learners import ScikitLearner
from expunge_lab.datasets import load_fashion_mnist, load_mnist
from results import accuracy, add_options, chosen_folder, save

SEED = 0


@dataclass(frozen=True)
class Data:
    """Features to learn from, to distil with and to test with; `move` changes pool rows without changing labels."""

    X: Any
    y: Any
    pool: Any
    X_test: Any
    y_test: Any
    move: Callable[[Any, np.random.Generator], Any] | None


@dataclass(frozen=True)
class Sizes:
    """How large everything is."""

    inclusion_probability: float
    rounds: int
    num_shards: int = 1000
    num_throw_away: int = 300
    pool: int = 10_000
    deletions: int = 20
    landmarks: int = 1000


def split_pictures(load: Callable[[], Any], sizes: Sizes) -> Data:
    """Described images; the pool is drawn from the training images, which then are no records."""
    images = load()
    order = np.random.default_rng(SEED).permutation(len(images.X))
    pool, kept = images.X[order[: sizes.pool]], order[sizes.pool :]
    rows = describe(pool)
    places = {row.tobytes(): place for place, row in enumerate(rows)}

    def move(described: Any, rng: np.random.Generator) -> Any:
        """Features of the shifted images: the pool is public, so the images behind its rows are at hand."""
        return describe(shift(pool[[places[row.tobytes()] for row in described]], rng))

    return Data(describe(images.X[kept]), images.y[kept], rows, describe(images.X_test), images.y_test, move=move)


def split_digits(sizes: Sizes) -> Data:
    """scikit-learn's digits, for trying the code."""
    X, y = load_digits(return_X_y=True)
    X = X[np.random.default_rng(SEED).permutation(len(X))] / 16
    y = y[np.random.default_rng(SEED).permutation(len(y))]
    test = 300
    return Data(X[test + sizes.pool :], y[test + sizes.pool :], X[test : test + sizes.pool], X[:test], y[:test], None)


def make_student(pool: Any, landmarks: int) -> ScikitLearner:
    """Kernel ridge on Nyström features, classes balanced because hard classes are rare among the released labels.

    The width of the kernel comes from the pool, which is public.
    """
    some = pool[:300].astype(np.float64)
    width = np.median(((some[:, None] - some[None]) ** 2).sum(axis=2))
    kernel = Nystroem(gamma=0.5 / width, n_components=landmarks)
    return ScikitLearner(make_pipeline(kernel, RidgeClassifier(alpha=0.03, class_weight="balanced")))


def run(name: str, data: Data, sizes: Sizes) -> dict[str, Any]:
    """One dataset: the first round, the ways of teaching, the rounds of deletions."""
    started = time.perf_counter()
    student = make_student(data.pool, sizes.landmarks)
    promise = Student(data.pool, student=student, num_throw_away=sizes.num_throw_away, max_predictions=10**6)
    base = RidgeClassifier(alpha=3.0)
    model = UnlearningClassifier(
        base,
        n_shards=sizes.num_shards,
        inclusion_probability=sizes.inclusion_probability,
        promise=promise,
        random_state=SEED,
    ).fit(data.X, data.y)
    fitted = time.perf_counter() - started
    found = first_round(model, data, base)
    print(name, found, flush=True)
    found["students"] = compare_teaching(model, data, promise.make_front(base))
    print(name, found["students"], flush=True)
    found["deletions"] = delete_in_rounds(model, data, sizes)
    target = model.guarantee()
    return {
        "dataset": name,
        "records": len(data.y),
        "pool": len(data.pool),
        "num_shards": sizes.num_shards,
        "inclusion_probability": sizes.inclusion_probability,
        "num_throw_away": sizes.num_throw_away,
        "guarantee": {"alpha": target.alpha, "beta": target.beta, "gamma": target.gamma, "theorem": target.theorem},
        "vacuous": bool(np.isinf(target.alpha)),
        "fit_seconds": round(fitted, 1),
        **found,
        "seconds": round(time.perf_counter() - started),
    }


def first_round(model: UnlearningClassifier, data: Data, base: RidgeClassifier) -> dict[str, Any]:
    """What was kept, how well the ensemble agrees on it, and the accuracy of each. Looks inside, as audits may."""
    state, student = model.deployment_.inside.state, model.deployment_.student
    counts = state.count_votes(data.X_test)
    on_pool = state.count_votes(data.pool[student.kept]).max(axis=1)
    sure = model.guarantee().parameters.get("sure_release_share")
    return {
        "sure_release_share": sure,
        "plain_majority": accuracy(counts.argmax(axis=1), data.y_test),
        "test_queries_below_sure_share": None
        if sure is None
        else float(np.mean(counts.max(axis=1) < sure * len(state.models))),
        "one_model_on_everything": accuracy(base.fit(data.X, data.y).predict(data.X_test), data.y_test),
        "pool_kept": len(student.kept) / len(data.pool),
        "lowest_share_kept": float(on_pool.min() / len(state.models)),
        "clean": not model.budget_.exhausted,
        "student": accuracy(model.predict(data.X_test), data.y_test),
    }


def compare_teaching(model: UnlearningClassifier, data: Data, front: StudentFront) -> dict[str, float]:
    """The same ensemble and the same selection, four ways to teach."""
    ways = {
        "released labels only": front,
        "with self-training": replace(front, self_training=2),
    }
    if data.move is not None:
        ways["with shifted copies"] = replace(front, augment=data.move)
        ways["with both"] = replace(front, self_training=2, augment=data.move)
    return {way: accuracy(taught(model, one).answer(data.X_test), data.y_test) for way, one in ways.items()}


def taught(model: UnlearningClassifier, front: StudentFront) -> StudentRound:
    """A round of `front` beside the deployment, for the comparison alone: same ensemble, same coins every time."""
    state, rng = model.deployment_.inside.state, Randomness.from_seed(SEED)
    publisher = ConsensusPublisher(num_shards=state.num_shards, rng=rng)
    return front.open_round(RoundContext(state, publisher, rng, Serial()))


def delete_in_rounds(model: UnlearningClassifier, data: Data, sizes: Sizes) -> dict[str, Any]:
    """Delete records at random, a batch a round; count trainings and generations."""
    order = np.random.default_rng(SEED + 1).permutation(len(data.y))
    trained = touched = changed = common = 0
    scores, started = [], time.perf_counter()
    for number in range(sizes.rounds):
        before = model.deployment_.student
        batch = order[number * sizes.deletions : (number + 1) * sizes.deletions]
        model.delete(batch)
        after = model.deployment_.student
        both, old, new = np.intersect1d(before.kept, after.kept, return_indices=True)
        common += len(both)
        changed += int((before.labels[old] != after.labels[new]).sum())
        trained += after.was_trained
        touched += model.deployment_.inside.last_report.num_retrained
        scores.append(accuracy(model.predict(data.X_test), data.y_test))
        print(
            f"  round {number + 1}: student {scores[-1]}, generation {model.deployment_.inside.generation}", flush=True
        )
    return {
        "rounds": sizes.rounds,
        "deletions_per_round": sizes.deletions,
        "shards_touched_per_round": round(touched / max(1, sizes.rounds), 1),
        "students_taught": trained,
        "generations": model.deployment_.inside.generation,
        "clean": not model.budget_.exhausted,
        "labels_compared": common,
        "labels_changed": changed,
        "student_lowest": min(scores, default=None),
        "student_last": scores[-1] if scores else None,
        "seconds_per_round": round((time.perf_counter() - started) / max(1, sizes.rounds), 1),
    }


def main() -> None:
    """Run what was asked for, saving after every dataset."""
    parser = argparse.ArgumentParser(description="The distilled student.")
    parser.add_argument("--only", choices=["mnist", "fashion-mnist"])
    parser.add_argument("--rounds", type=int)
    add_options(parser)
    options = parser.parse_args()
    folder = chosen_folder(options)
    if options.quick:
        sizes = Sizes(0.2, 3, num_throw_away=100, pool=500, deletions=5, landmarks=200)
        save(folder, "student-quick", "student.py --quick", run("digits", split_digits(sizes), sizes))
        return
    plans = {"mnist": (load_mnist, Sizes(0.02, 20)), "fashion-mnist": (load_fashion_mnist, Sizes(0.04, 10))}
    for name, (load, sizes) in plans.items():
        if options.only in (None, name):
            sizes = sizes if options.rounds is None else replace(sizes, rounds=options.rounds)
            command = f"student.py --only {name} --rounds {sizes.rounds}"
            save(folder, f"student-{name}", command, run(name, split_pictures(load, sizes), sizes))


if __name__ == "__main__":
    main()
