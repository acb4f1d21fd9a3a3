"""Settings, books and generations of a deployment in a folder: the same after every opening."""

from __future__ import annotations

import json
import re
import threading
import time
from dataclasses import asdict, fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
import expunge.training.ensemble
from expunge import Guarantee, Randomness
from expunge.audit import recompute
from expunge.core.errors import BudgetExhaustedError, StoreError
from expunge.evidence import verify
from expunge.folder import DurableDeployment
from expunge.folder.store.store import DirtyFlag
from expunge.privacy.accounting import ACCOUNTANT_NAMES
from expunge.privacy.mechanisms import mechanism
from expunge.privacy.mechanisms.consensus import ConsensusGate
from expunge.serving.promises import NOISE_NAMES, Consensus, Exact, Router, Unguarded
from expunge.training.fallback import RidgeFallback

X = np.arange(60, dtype=np.float32).reshape(30, 2)
Y = np.arange(30) % 3
WEAK = Guarantee(8.0, 0.05, 0.05)  # within reach of 100 shards
GATE: dict[str, Any] = {"n_shards": 100, "inclusion_probability": 1.0, "target": WEAK, "max_generations": 3}


# Settings come back as they were.


@pytest.mark.parametrize(
    "options",
    [
        *({"mechanism": name, "max_predictions": 50} for name in NOISE_NAMES),
        *({"kind": kind} for kind in (Exact, Unguarded, Router)),
        {"kind": Exact, "inclusion_probability": 0.5},
        {"kind": Router, "fallback": RidgeFallback(penalty=3.0), "max_predictions": 9},
        *({"budget": (3.0, 1e-6), "accountant": name} for name in ACCOUNTANT_NAMES),
        *({"sampling": name} for name in ("partition", "independent")),
        *({"on_exhausted": how, "max_predictions": 5} for how in ("retrain_on_update", "retrain_now", "refuse")),
        {"mechanism": mechanism("gaussian", sigma=3.0)},
        {"inclusion_probability": 0.3, "max_generations": 7, "budget": (np.float32(2.0), 1e-5)},
        {"n_shards": "auto", "target": Guarantee(20.0, 0.4, 0.4), "max_predictions": np.int64(3)},
        {"kind": Consensus, "max_predictions": 7},
        {**GATE, "kind": Consensus, "max_predictions": 30},
    ],
    ids=str,
)
def test_every_setting_survives_reopening(folders: Any, options: dict[str, Any]) -> None:
    deployment = folders.make(**options)
    before = (
        deployment.guarantee(),
        deployment.status,
        deployment._deployment._max_generations,
        deployment.inside.state.sampler,
    )
    publisher = deployment.inside.publisher
    deployment = folders.reopen(deployment)
    assert (
        deployment.guarantee(),
        deployment.status,
        deployment._deployment._max_generations,
        deployment.inside.state.sampler,
    ) == before
    found = deployment.inside.publisher
    assert type(found) is type(publisher)
    assert found.capacity == publisher.capacity
    assert found.on_exhausted == publisher.on_exhausted
    assert getattr(found, "mechanism", None) == getattr(publisher, "mechanism", None)
    assert found.snapshot() == publisher.snapshot()
    assert found.secret == publisher.secret
    assert deployment.delete([3]).state == "applied"
    assert verify(deployment.certificate().to_json()).wrong == ()
    deployment.close()


def test_a_guarantee_is_the_same_from_a_seed_and_after_reopening(folders: Any) -> None:
    deployment = folders.make(rng=Randomness.from_seed(3), max_predictions=5)
    before = deployment.guarantee()
    assert sum("seed" in assumption for assumption in before.assumptions) == 1
    deployment = folders.reopen(deployment)
    assert deployment.guarantee() == before
    deployment.close()


# The books.


def test_predictions_without_a_limit_are_counted(folders: Any) -> None:
    deployment = folders.make(mechanism="laplace")
    for row in range(5):
        deployment.predict(X[row : row + 1])
    assert folders.reopen(deployment).status.budget.predictions == 5


def test_a_crash_forfeits_the_rest_of_a_block_and_an_orderly_end_does_not(folders: Any) -> None:
    deployment = folders.make(max_predictions=6400)
    deployment.predict(X[:3])
    with expunge.open(folders.copy(deployment, "crashed")) as crashed:
        assert crashed.status.budget.predictions == 3 + 100 - 1
    assert folders.reopen(deployment).status.budget.predictions == 3


def test_a_refused_question_costs_nothing(folders: Any) -> None:
    deployment = folders.make(max_predictions=4, on_exhausted="refuse")
    deployment.predict(X[:3])
    with pytest.raises(BudgetExhaustedError):
        deployment.predict(X[10:12])
    deployment = folders.reopen(deployment)
    assert deployment.inside.budget.predictions == 3
    deployment.predict(X[10:11])
    with pytest.raises(BudgetExhaustedError):
        deployment.predict(X[12:13])
    deployment.delete([1])
    assert (deployment.inside.generation, deployment.inside.budget.predictions) == (2, 0)
    deployment.close()


@pytest.mark.parametrize("closes", [True, False])
def test_an_exhausted_generation_stays_so_after_reopening(folders: Any, closes: bool) -> None:
    deployment = folders.make(max_predictions=4)
    deployment.predict(X[:5])
    deployment = folders.reopen(deployment) if closes else expunge.open(folders.copy(deployment, "crashed"))
    assert deployment.inside.budget.exhausted
    key = deployment.inside.state.key
    deployment.delete([1])
    assert deployment.inside.generation == 2
    assert not deployment.inside.budget.exhausted
    new = deployment.inside.state.key
    assert new != key
    entries = [json.loads(entry) for (entry,) in deployment._store.database.rows("SELECT entry FROM ledger")]
    told = [one["facts"]["key_commitment"] for one in entries if one["event"] in ("created", "generation")]
    assert told == [key.commitment, new.commitment]
    [(stored,)] = deployment._store.database.rows("SELECT secret FROM recipe")
    assert stored == new.secret  # and the old key is gone: no other row can hold it
    deployment.close()


def test_generations_past_the_last_one_retrain_at_every_update(folders: Any) -> None:
    deployment = folders.make(max_generations=2)
    deployment.rekey()
    deployment = folders.reopen(deployment)
    deployment.delete([0])
    assert deployment.inside.generation == 2
    deployment.rekey()
    for record in (1, 2, 3):
        deployment = folders.reopen(deployment)
        before = deployment.inside.generation
        deployment.delete([record])
        assert deployment.inside.generation == before + 1
    deployment.close()


def test_a_gates_threshold_is_drawn_once_a_generation_and_kept(folder: Path, folders: Any) -> None:
    deployment = folders.make(**GATE, kind=Consensus, max_predictions=1000, classes=[0, 1, 2])
    assert not deployment.guarantee().is_vacuous
    secret = deployment.inside.publisher.secret
    deployment.predict(X[:3])
    for record in (1, 2):
        deployment = folders.reopen(deployment)
        assert deployment.inside.publisher.secret == secret
        assert deployment.inside.publisher._gate.queries == deployment.inside.budget.predictions == 3
        deployment.delete([record])
        assert deployment.inside.publisher.secret == secret
    assert deployment.inside.generation == 1
    deployment.predict(X[:3] + 1000)  # rows that no model knows
    assert deployment.inside.budget.exhausted
    crashed = expunge.open(folders.copy(deployment, "crashed"))
    deployment.close()
    for found in (crashed, expunge.open(folder)):
        assert found.inside.publisher.secret == secret
        assert found.inside.budget.exhausted
        found.delete([4])
        assert (found.inside.generation, found.inside.budget.exhausted) == (2, False)
        rows = found._store.database.rows("SELECT generation, gate FROM generations ORDER BY generation")
        assert rows[0] == (1, "{}")  # the old one has served its time
        assert rows[1][1] != "{}"
        found.close()


def public_side(deployment: DurableDeployment, requests: list[str]) -> Any:
    """All that requesters are shown: status, certificates with their sentences, the log; without ids and hashes."""
    strange = ("request", "records", "commitment", "key_commitment", "fingerprint", "name")
    certificates = [deployment.certificate(request) for request in (None, *requests)]
    known = [(entry.event, entry.facts) for entry in deployment._evidence.ledger.entries()]
    known += [(each.entry.event, each.opening.facts) for one in certificates for each in one.log.shown if each.opening]
    log = [
        (event, {name: None if name in strange else value for name, value in facts.items()}) for event, facts in known
    ]
    told = [
        (
            asdict(one.publication),
            one.request and (one.request.state, one.request.generation, one.request.round),
            {
                each.name: re.sub(
                    r"\d{4}-\d\d-\d\dT[0-9:]+Z|[0-9a-f]{64}", "…", str(getattr(one.statements, each.name))
                )
                for each in fields(one.statements)
            },
        )
        for one in certificates
    ]
    assert all(verify(one.to_json()).wrong == () for one in certificates)
    shown = [replace(deployment.request(one), request="", accepted_at="", applied_by="") for one in requests]
    assert shown == [replace(one, request="", accepted_at="", applied_by="") for one in deployment.requests()]
    return replace(deployment.status, name=""), told, log, shown


def test_nothing_public_tells_that_a_consensus_failed(tmp_path: Path, folders: Any) -> None:
    """The same queries and updates with two draws of T: in one folder a consensus fails, in the other none does."""
    seen = []
    for name, threshold in (("clean", 49), ("dirty", -1)):
        options: dict[str, Any] = {**GATE, "max_predictions": 1000, "classes": [0, 1, 2]}
        deployment = type(folders)(tmp_path / name).make(kind=Consensus, **options)
        deployment.inside.publisher._gate.threshold = threshold
        requests = []
        for record in (1, 2):
            deployment.predict(X[10:13])
            requests.append(deployment.delete([record]).request)
        assert deployment.inside.generation == (1 if name == "clean" else 2)
        seen.append(public_side(deployment, requests))
        commitments = [
            json.loads(entry)["facts"]["key_commitment"]
            for (entry,) in deployment._store.database.rows("SELECT entry FROM ledger ORDER BY sequence")
            if json.loads(entry)["event"] in ("created", "round")
        ]
        assert len(set(commitments)) == 3  # one a round, each made for its round: keys cannot be compared
        assert commitments[-1] == deployment.inside.state.key.commitment_in(2)
        deployment.close()
        assert recompute(tmp_path / name, shards=2, seed=1).key == "matches"
    assert seen[0] == seen[1]


# Retraining outside of any request.


def test_retraining_leaves_no_files_of_the_generation_before(folder: Path, folders: Any) -> None:
    deployment = folders.make()
    before = {path.name for path in (folder / "models").iterdir()}
    deployment.rekey()
    after = {path.name for path in (folder / "models").iterdir()}
    assert len(before) == len(after) == 1
    assert before.isdisjoint(after)
    assert (deployment.inside.generation, deployment.status.round) == (2, 0)
    assert folders.reopen(deployment).status.generation == 2


def test_retraining_in_the_background(folder: Path, folders: Any) -> None:
    deployment = folders.make(max_predictions=4, on_exhausted="retrain_now")
    for generation in (2, 3):
        deployment.predict(X[:5] + generation)
        deployment.wait()
        assert deployment.inside.generation == generation
        assert deployment.inside.budget.predictions == 0
    assert len(list((folder / "models").iterdir())) == 1
    deployment.predict(X[:1])
    deployment = folders.reopen(deployment)
    assert (deployment.inside.generation, deployment.inside.budget.predictions) == (3, 1)
    assert verify(deployment.certificate().to_json()).wrong == ()
    deployment.close()


def test_an_exhausted_folder_retrains_at_the_first_question_after_opening(folders: Any) -> None:
    deployment = folders.make(max_predictions=4, on_exhausted="retrain_now")
    deployment._deployment._start_background_retraining = lambda _: None  # type: ignore[method-assign]
    deployment.predict(X[:5])
    deployment = folders.reopen(deployment)
    assert deployment.inside.budget.exhausted
    deployment.predict(X[5:6])
    deployment.wait()
    assert (deployment.inside.generation, deployment.inside.budget.exhausted) == (2, False)
    deployment.close()


# Interruptions.


def gated(folders: Any) -> DurableDeployment:
    return folders.make(**GATE, kind=Consensus, max_predictions=1000, classes=[0, 1, 2])


def test_no_publisher_is_in_service_without_its_books(folders: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C in the switch to a new generation, while a query waits that makes a generation dirty."""
    deployment = gated(folders)
    secret, answers, prepare = deployment.inside.publisher.secret, [], DirtyFlag.prepare
    asking = threading.Thread(target=lambda: answers.append(deployment.predict(X[:3] + 1000)))

    def interrupted(flag: DirtyFlag) -> None:
        monkeypatch.setattr(DirtyFlag, "prepare", prepare)
        asking.start()
        time.sleep(0.2)  # so that it waits for the switch
        raise KeyboardInterrupt

    monkeypatch.setattr(DirtyFlag, "prepare", interrupted)
    with pytest.raises(KeyboardInterrupt):
        deployment.rekey()
    asking.join(60)
    assert len(answers) == 1
    # The query was answered by the old generation, which has a budget of its own.
    assert (deployment.inside.publisher.secret, deployment.inside.publisher.must_retrain) == (secret, True)
    assert deployment.inside.publisher.journal is not None
    with pytest.raises(StoreError, match="open it again"):
        deployment.predict(X[:1])
    deployment = folders.reopen(deployment)
    assert (deployment.inside.generation, deployment.inside.budget.exhausted) == (2, False)
    deployment.close()


def test_a_failed_consensus_is_kept_if_ctrl_c_came_before_its_mark(
    folders: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No answer left, but the operator may have seen it."""
    deployment, observe = gated(folders), ConsensusGate.observe

    def interrupted(*given: Any) -> None:
        observe(*given)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ConsensusGate, "observe", interrupted)
        with pytest.raises(KeyboardInterrupt):
            deployment.predict(X[:3] + 1000)
    assert deployment.inside.budget.exhausted
    deployment = folders.reopen(deployment)
    assert deployment.inside.budget.exhausted
    deployment.delete([4])
    assert (deployment.inside.generation, deployment.inside.budget.exhausted) == (2, False)
    deployment.close()
