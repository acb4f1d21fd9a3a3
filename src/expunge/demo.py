"""The demonstration: train on digits, delete, add, attack three schemes, recompute and certify, in under a minute.

It uses a real deployment folder, as a company would.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

from expunge.audit import (
    DeploymentAttack,
    Digits,
    LookupResult,
    attack_deployment,
    attack_lookup,
    load_digits,
    recompute,
)
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import AddMany, Delete, DeleteSubject, Update
from expunge.evidence import Certificate, verify
from expunge.folder import DurableDeployment, create
from expunge.privacy.accounting import PrivacyBudget
from expunge.privacy.mechanisms import calibrated_mechanism
from expunge.serving.promises import Statement
from expunge.serving.publishing import NoisyPublisher

NUM_SHARDS = 20
NUM_DELETIONS = 50
NUM_ADDITIONS = 20
NUM_PAIRS = 600
NUM_PAIRS_CONSENSUS = 2000  # few of them survive

Progress = Callable[[str, int], AbstractContextManager[Callable[[int], None]]]


@dataclass(frozen=True)
class Step:
    """One kind of request: how many rounds it took, and how many models were trained instead of all of them."""

    name: str
    rounds: int
    models_trained: int
    models_if_retrained: int
    seconds: float


@dataclass(frozen=True)
class DemoReport:
    """The measurements of the demonstration."""

    num_records: int
    num_shards: int
    seconds_to_train: float
    accuracy_before: float
    accuracy_after: float
    steps: tuple[Step, ...]
    untouched_models_are_the_same: bool
    promise: Statement
    num_recomputed: int
    recomputation_agrees: bool
    guarantee_noisy: Guarantee
    noisy_predictions: int
    attack_sisa: LookupResult
    attack_exact: LookupResult
    attack_consensus: DeploymentAttack
    traces_before: int
    traces_after: int
    certificate: Certificate
    certificate_holds: bool

    @property
    def work_saved(self) -> float:
        """The share of model trainings that is saved against retraining everything for every request."""
        done = sum(step.models_trained for step in self.steps)
        return 1 - done / sum(step.models_if_retrained for step in self.steps)


def run_demo(folder: Path, *, rng: Randomness, progress: Progress) -> DemoReport:
    """Run the demonstration in a new deployment folder, and measure it.

    Parameters
    ----------
    folder
        Where the deployment goes.
    rng
        The source of all randomness.
    progress
        `progress(description, total)` opens a progress bar.

    Returns
    -------
    DemoReport
        The measurements.
    """
    data = load_digits()
    started = time.perf_counter()
    with create_demo(folder, data, rng=rng, progress=progress) as deployment:
        return _tell(deployment, data, time.perf_counter() - started, rng, progress)


def create_demo(folder: Path, data: Digits, *, rng: Randomness, progress: Progress) -> DurableDeployment:
    """Create the demonstration's deployment: 20 shards on all digits but the last few, which can be added later.

    Parameters
    ----------
    folder
        Where the deployment goes.
    data
        The digits.
    rng
        The source of all randomness.
    progress
        `progress(description, total)` opens a progress bar.

    Returns
    -------
    DurableDeployment
        The deployment, open.
    """
    kept = slice(0, len(data.y) - NUM_ADDITIONS)
    with progress("training the shards", NUM_SHARDS) as advance:
        return create(
            folder,
            LogisticRegression(max_iter=200),
            data.X[kept],
            data.y[kept],
            subjects=data.subjects[kept],
            n_shards=NUM_SHARDS,
            rng=rng,
            advance=advance,
        )


def _tell(
    deployment: DurableDeployment, data: Digits, seconds_to_train: float, rng: Randomness, progress: Progress
) -> DemoReport:
    held_back = slice(len(data.y) - NUM_ADDITIONS, len(data.y))
    num_records = len(deployment.records)
    accuracy_before = _accuracy(deployment, data.X_test, data.y_test)
    models_before = deployment.inside.state.models
    deletions = rng.permutation(NUM_DELETIONS * 4)[:NUM_DELETIONS].tolist()
    subject = data.subjects[num_records // 2]
    addition = AddMany(
        ids=[f"new-{i}" for i in range(NUM_ADDITIONS)],
        features=data.X[held_back],
        labels=data.y[held_back],
        subjects=data.subjects[held_back],
    )
    script: list[tuple[str, list[list[Update]]]] = [
        (f"delete {NUM_DELETIONS} records, one request each", [[Delete(i)] for i in deletions]),
        (f"delete everything of {subject}", [[DeleteSubject(subject)]]),
        (f"add {NUM_ADDITIONS} records in one batch", [[addition]]),
    ]
    victim = np.ascontiguousarray(data.X[deletions[0]])
    traces_before = count_traces(deployment.path, victim.tobytes())
    touched: set[int] = set()
    steps = [_play(deployment, name, batches, touched, progress) for name, batches in script]
    models_after = deployment.inside.state.models
    same = all(models_after[i] is models_before[i] for i in range(NUM_SHARDS) if i not in touched)
    certificate = deployment.certificate(deployment.requests()[0].request)
    with progress("training every shard again, to compare", NUM_SHARDS) as advance:
        recomputed = recompute(deployment.path, shards="all", advance=advance)
    noisy, predictions = _noisy_guarantee()
    with progress("attacking three schemes", 3) as advance:
        sisa = attack_lookup(NUM_PAIRS, rng=rng)
        advance(1)
        exact = attack_lookup(NUM_PAIRS, rng=rng)
        advance(1)
        consensus = attack_deployment(NUM_PAIRS_CONSENSUS, rng=rng)
        advance(1)
    return DemoReport(
        num_records=num_records,
        num_shards=NUM_SHARDS,
        seconds_to_train=seconds_to_train,
        accuracy_before=accuracy_before,
        accuracy_after=_accuracy(deployment, data.X_test, data.y_test),
        steps=tuple(steps),
        untouched_models_are_the_same=same,
        promise=deployment.promise[0],
        num_recomputed=len(recomputed.checked),
        recomputation_agrees=recomputed.agrees,
        guarantee_noisy=noisy,
        noisy_predictions=predictions,
        attack_sisa=sisa,
        attack_exact=exact,
        attack_consensus=consensus,
        traces_before=traces_before,
        traces_after=count_traces(deployment.path, victim.tobytes()),
        certificate=certificate,
        certificate_holds=verify(certificate.to_json()).holds,
    )


def count_traces(folder: Path, pattern: bytes) -> int:
    """How often the bytes occur in all files of a folder."""
    return sum(path.read_bytes().count(pattern) for path in sorted(folder.rglob("*")) if path.is_file())


def _play(
    deployment: DurableDeployment, name: str, batches: list[list[Update]], touched: set[int], progress: Progress
) -> Step:
    started, before = time.perf_counter(), deployment.inside.models_trained
    with progress(name, len(batches)) as advance:
        for batch in batches:
            deployment.update(batch)
            report = deployment.inside.last_report
            touched.update(report.touched if report else ())
            advance(1)
    return Step(
        name=name,
        rounds=len(batches),
        models_trained=deployment.inside.models_trained - before,
        models_if_retrained=len(batches) * NUM_SHARDS,
        seconds=time.perf_counter() - started,
    )


def _noisy_guarantee() -> tuple[Guarantee, int]:
    """What the paper's noisy publishing could promise here: a small number of predictions."""
    mechanism = calibrated_mechanism("exponential", num_shards=NUM_SHARDS, num_classes=10)
    publisher = NoisyPublisher(mechanism, budget=PrivacyBudget(1.0, 1e-6))
    found = publisher.guarantee(num_shards=NUM_SHARDS, beta=1e-3, gamma=1e-3, num_generations=1)
    return found, int(publisher.capacity)


def _accuracy(deployment: DurableDeployment, X: Any, y: Any) -> float:
    return float(np.mean(deployment.predict(X) == y))
