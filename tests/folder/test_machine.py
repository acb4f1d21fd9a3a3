"""A hundred operations on a deployment in a folder, crashes among them, against a model that fits on a page."""

from __future__ import annotations

import json
import math
import shutil
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from sklearn.dummy import DummyClassifier

import expunge
from expunge import Add, AddMany, Delete, DeleteSubject, Randomness
from expunge.core.errors import (
    BudgetExhaustedError,
    DuplicateRecordError,
    ExpungeError,
    RecordError,
    RequestError,
    UnknownRecordError,
)
from expunge.core.features import plain_form, standard_types
from expunge.core.prf import RecipeKey
from expunge.evidence import Tree, hash_leaf, verify
from expunge.folder import DurableDeployment, open_view
from expunge.folder.store import steps
from expunge.serving.promises import Consensus, Noise
from expunge.training.learners import as_learner
from expunge.training.learners.lookup import LookupTableLearner

CLASSES = ["no", "yes"]
SUBJECTS = ["ann", "bob", 7]
MAX_GENERATIONS = 4
CAPACITY = 15
BEFORE_SWITCH = ("apply.trained", "stage.records", "stage.model", "stage.done", "switch.open")
AFTER_SWITCH = ("switch.done", "erase.slots", "erase.files", "erase.checkpoint", "applied.open", "applied.done")


def table_of(kind: str, numbers: list[int]) -> Any:
    """Rows that are a function of a number each, with all that a kind of table may hold."""
    odd = np.array([0.0, -0.0, np.nan, 1e-45, 3.4e38], dtype=np.float32)
    if kind == "array":
        return np.array([[n, -n / 3, odd[n % 5]] for n in numbers], dtype=np.float32).reshape(-1, 3)
    if kind == "texts":
        return np.array([*(f"text é {n}" * (1 + n % 3) for n in numbers), None], dtype=object)[:-1]
    if kind == "sparse":
        dense = np.array([[n % 3, 0, n / 7, 0] for n in numbers], dtype=np.float64).reshape(-1, 4)
        return scipy.sparse.csr_matrix(dense)
    return pd.DataFrame(
        {
            "number": np.array([odd[n % 5] for n in numbers], dtype=np.float32),
            "whole": np.array(numbers, dtype=np.int16),
            "text": pd.Series([None if n % 4 == 0 else f"a {n}" for n in numbers], dtype="str"),
            "sort": pd.Categorical([("x", "y", None)[n % 3] for n in numbers], categories=["x", "y", "z"]),
            "flag": np.array([n % 2 == 0 for n in numbers], dtype=bool),
            "count": pd.Series([pd.NA if n % 5 == 0 else n for n in numbers], dtype="Int64"),
            "thing": pd.Series([(None, math.nan, "q", 4, True)[n % 5] for n in numbers], dtype="object"),
        }
    )


def same_rows(found: Any, expected: Any) -> bool:
    if isinstance(expected, pd.DataFrame):
        pd.testing.assert_frame_equal(found.reset_index(drop=True), expected, check_exact=True, check_column_type=False)
        return [type(v) for v in found["thing"]] == [type(v) for v in expected["thing"]]
    if expected.dtype == object:
        return bool(found.tolist() == expected.tolist())
    if scipy.sparse.issparse(expected):
        found, expected = found.toarray(), expected.toarray()
    return bool(found.dtype == expected.dtype and found.tobytes() == expected.tobytes())


@dataclass(frozen=True)
class Row:
    number: int
    subject: Any
    weight: float

    @property
    def label(self) -> str:
        return CLASSES[self.number % 2]


@dataclass(frozen=True)
class Asked:
    """A request in the model: ids to delete, a subject to delete, rows to add, in this order."""

    ids: tuple[Any, ...] = ()
    subject: Any = None
    rows: tuple[tuple[Any, Row], ...] = ()

    def updates(self, kind: str) -> list[Any]:
        batch: list[Any] = [*map(Delete, self.ids)]
        if self.subject is not None:
            batch.append(DeleteSubject(self.subject))
        rows = [row for _, row in self.rows]
        if len(rows) == 1 and kind == "array":
            features = table_of(kind, [rows[0].number])[0]
            one = {"subject": rows[0].subject, "weight": rows[0].weight}
            batch.append(Add(id=self.rows[0][0], features=features, label=rows[0].label, **one))
        elif rows:
            has_weights = any(row.weight != 1 for row in rows)
            batch.append(
                AddMany(
                    ids=[record for record, _ in self.rows],
                    features=table_of(kind, [row.number for row in rows]),
                    labels=[row.label for row in rows],
                    subjects=[row.subject for row in rows] if any(row.subject is not None for row in rows) else None,
                    weights=[row.weight for row in rows] if has_weights else None,
                )
            )
        return batch

    def applied(self, before: dict[Any, Row]) -> dict[Any, Row]:
        after = dict(before)
        for record in self.ids:
            if record not in after:
                raise UnknownRecordError("", record)
            del after[record]
        if self.subject is not None:
            # Also the records that the batch itself has deleted say that there is such a person.
            if self.subject not in [row.subject for row in before.values()]:
                raise UnknownRecordError("", self.subject)
            after = {record: row for record, row in after.items() if row.subject != self.subject}
        for record, row in self.rows:
            if record in after:
                raise DuplicateRecordError("", record)
            after[record] = row
        return after

    def deleted(self, before: dict[Any, Row]) -> set[tuple[str, Any]]:
        if self.subject is None:
            return {("record", record) for record in self.ids}
        held = {("record", record) for record, row in before.items() if row.subject == self.subject}
        return {("record", record) for record in self.ids} | held | {("subject", self.subject)}

    @property
    def added(self) -> set[tuple[str, Any]]:
        subjects = {("subject", row.subject) for _, row in self.rows if row.subject is not None}
        return {("record", record) for record, _ in self.rows} | subjects


@dataclass
class Model:
    """What a deployment is, without models, files or secrets."""

    live: dict[Any, Row]
    refuses: bool
    capacity: float
    pending: list[tuple[str, Asked]] = field(default_factory=list)
    done: dict[str, str] = field(default_factory=dict)
    forgotten: set[tuple[str, Any]] = field(default_factory=set)
    asked_before: set[int] = field(default_factory=set)
    is_exact: bool = False  # then nothing is counted
    predictions: int = 0
    generation: int = 1
    round: int = 0

    def walk(self, requests: list[tuple[str, Asked]]) -> tuple[dict[Any, Row], set[tuple[str, Any]]]:
        data, leaving = self.live, set()
        for _, asked in requests:
            leaving |= asked.deleted(data)
            data = asked.applied(data)
        return data, leaving

    def fault(self, asked: Asked, *, readmit: bool) -> type[ExpungeError] | None:
        """The error that a request must meet."""
        expected, leaving = self.walk(self.pending)
        try:
            asked.applied(expected)
        except RecordError as error:
            return type(error)
        returning = asked.added - asked.deleted(expected)
        if not readmit and returning & leaving:
            return RequestError
        return RecordError if not readmit and returning & self.forgotten else None

    @property
    def is_spent(self) -> bool:
        return self.predictions >= self.capacity if self.refuses else self.predictions > self.capacity

    def apply(self) -> None:
        if not self.pending:
            return
        after, gone = self.walk(self.pending)
        back = {name for _, asked in self.pending for name in asked.added}
        subjects = {row.subject for row in after.values()}
        gone = {(what, name) for what, name in gone if name not in (after if what == "record" else subjects)}
        self.forgotten = (self.forgotten - back) | gone
        self.live, self.round, self.asked_before = after, self.round + 1, set()
        self.done.update(dict.fromkeys((request for request, _ in self.pending), "applied"))
        self.pending = []
        if not self.is_exact and (self.is_spent or self.generation > MAX_GENERATIONS):
            self.start_generation()

    def start_generation(self) -> None:
        self.generation, self.predictions, self.asked_before = self.generation + 1, 0, set()


class Life(RuleBasedStateMachine):
    """The deployment and its model, side by side."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        shared = Path("/dev/shm")  # where flushing costs nothing
        self.base = Path(tempfile.mkdtemp(dir=shared if shared.is_dir() else None))
        self.fresh = 1000
        self.keys: list[tuple[str, Asked, str]] = []
        self.copies = 0

    @initialize(
        texts=st.booleans(),
        people=st.booleans(),
        kind=st.sampled_from(["consensus", "noise", "exact"]),
        refuses=st.booleans(),
        declared=st.booleans(),
        apply=st.sampled_from(["manual", "at 1000"]),
    )
    def create(self, texts: bool, people: bool, kind: str, refuses: bool, declared: bool, apply: str) -> None:
        refuses = refuses and kind == "noise"
        promise: Any = kind
        if kind == "consensus":
            promise = Consensus(max_generations=MAX_GENERATIONS)
        if kind == "noise":
            exhausted: Any = "refuse" if refuses else "retrain_on_update"
            promise = Noise(max_predictions=CAPACITY, on_exhausted=exhausted, max_generations=MAX_GENERATIONS)
        ids = [f"id {n}" for n in range(8)] if texts else list(range(8))
        rows = [Row(n, SUBJECTS[n % 3] if people and n % 4 else None, 1.0) for n in range(8)]
        self.learner = LookupTableLearner() if self.kind == "array" else DummyClassifier(strategy="most_frequent")
        self.deployment: DurableDeployment = expunge.create(
            self.base / "first",
            self.learner,
            table_of(self.kind, list(range(8))),
            [row.label for row in rows],
            ids=ids if texts else None,
            subjects=[row.subject for row in rows] if people else None,
            weights=[row.weight for row in rows],
            classes=CLASSES if declared else None,
            n_shards=3,
            apply=apply,
            clock_seconds=60,
            promise=promise,
            allow_missing=True,
        )
        self.repeats_are_free = kind == "noise"
        self.hides_generations = kind == "consensus"
        capacity = CAPACITY if kind == "noise" else math.inf
        self.model = Model(dict(zip(ids, rows, strict=True)), refuses, capacity, is_exact=kind == "exact")
        self.promise = self.deployment.guarantee()

    # What people ask for.

    def _draw(self, data: st.DataObject) -> Asked:
        expected, _ = self.model.walk(self.model.pending)
        what = data.draw(st.sampled_from(["delete", "subject", "add", "correct", "mixed"]))
        known = list(expected) + (["nobody", 99] if not expected or data.draw(st.integers(0, 9)) == 0 else [])
        some = tuple(data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True)))
        if what == "delete":
            return Asked(ids=some)
        if what == "subject":
            return Asked(subject=data.draw(st.sampled_from(SUBJECTS)))
        rows = tuple((record, self._row(data)) for record in self._names(data))
        if what == "add":
            return Asked(rows=rows)
        if what == "correct":
            return Asked(ids=some[:1], rows=((some[0], self._row(data)),))
        return Asked(ids=some[:1], rows=rows)

    def _names(self, data: st.DataObject) -> list[Any]:
        """Ids of both kinds, new ones and some that were there before."""
        used = sorted((name for what, name in self.model.forgotten if what == "record"), key=str)
        new = [self.fresh, f"new {self.fresh}", self.fresh + 1, 2**60 + self.fresh]
        self.fresh += 2
        return data.draw(
            st.lists(st.sampled_from(new + used[:4] + list(self.model.live)[:1]), min_size=1, max_size=3, unique=True)
        )

    def _row(self, data: st.DataObject) -> Row:
        self.fresh += 1
        subject = data.draw(st.sampled_from([None, None, *SUBJECTS]))
        return Row(self.fresh, subject, data.draw(st.sampled_from([1.0, 1.0, 1.0, 0.25])))

    def _submit(self, asked: Asked, *, readmit: bool, key: str | None = None) -> bool:
        batch, fault = asked.updates(self.kind), self.model.fault(asked, readmit=readmit)
        if fault is not None:
            with pytest.raises(fault) as caught:
                self.deployment.submit(batch, key=key, readmit=readmit)
            assert "\n" not in str(caught.value)
            return False
        request = self.deployment.submit(batch, key=key, readmit=readmit)
        assert request.state == "pending"
        self.model.pending.append((request.request, asked))
        if key is not None:
            self.keys.append((key, asked, request.request))
        return True

    @rule(data=st.data(), readmit=st.booleans())
    def submit(self, data: st.DataObject, readmit: bool) -> None:
        self._submit(self._draw(data), readmit=readmit)

    @rule(data=st.data(), readmit=st.booleans())
    def submit_with_a_key(self, data: st.DataObject, readmit: bool) -> None:
        self._submit(self._draw(data), readmit=readmit, key=f"key {len(self.keys)}")

    @rule(data=st.data())
    def update(self, data: st.DataObject) -> None:
        asked = self._draw(data)
        if self.model.fault(asked, readmit=True) is not None:
            return
        receipt = self.deployment.update(asked.updates(self.kind), readmit=True, apply=True)
        self.model.pending.append((receipt.request, asked))
        self.model.apply()
        assert (receipt.state, receipt.round) == ("applied", self.model.round)

    @rule(data=st.data())
    def repeat(self, data: st.DataObject) -> None:
        keys = [each for each in self.keys if self.model.done.get(each[2]) != "cancelled"]
        if not keys:
            return
        key, asked, request = data.draw(st.sampled_from(keys))
        assert self.deployment.update(asked.updates(self.kind), key=key, apply=False).request == request
        other = replace(asked, ids=(*asked.ids, "one more"))
        with pytest.raises(RequestError, match="used for another request"):
            self.deployment.submit(other.updates(self.kind), key=key)

    @rule()
    def apply(self) -> None:
        had = bool(self.model.pending)
        self.model.apply()
        assert self.deployment.apply() == (self.model.round if had else None)

    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        requests = [request for request, _ in self.model.pending] + list(self.model.done)[-1:]
        if not requests:
            return
        request = data.draw(st.sampled_from(requests))
        rest = [(other, asked) for other, asked in self.model.pending if other != request]
        try:
            self.model.walk(rest)
            is_free = True
        except RecordError:
            is_free = False
        if request in self.model.done or not is_free:
            with pytest.raises(RequestError):
                self.deployment.cancel(request)
            return
        self.deployment.cancel(request)
        self.model.pending = rest
        self.model.done[request] = "cancelled"

    # What is published.

    def _predict(self, numbers: list[int]) -> None:
        new = set(numbers) - self.model.asked_before if self.repeats_are_free else numbers
        charge = len(new) if self.model.live and not self.model.is_exact else 0
        rows = table_of(self.kind, numbers)
        if self.model.refuses and charge > max(0, self.model.capacity - self.model.predictions):
            with pytest.raises(BudgetExhaustedError):
                self.deployment.predict(rows)
            return
        answers = self.deployment.predict(rows)
        assert len(answers) == len(numbers)
        assert all(answer in (*CLASSES, None) for answer in answers.tolist())
        self.model.predictions += charge
        if charge:
            self.model.asked_before |= set(numbers)

    @rule(size=st.integers(1, 3))
    def predict(self, size: int) -> None:
        self.fresh += size
        self._predict(list(range(self.fresh - size, self.fresh)))

    @rule(data=st.data())
    def predict_again(self, data: st.DataObject) -> None:
        if self.model.asked_before:
            again = st.sampled_from(sorted(self.model.asked_before))
            self._predict(data.draw(st.lists(again, min_size=1, max_size=2, unique=True)))

    @rule()
    def exhaust(self) -> None:
        if not math.isinf(self.model.capacity) and self.model.live:
            while not self.model.is_spent:
                self.predict(1)
            assert self.deployment.inside.budget.exhausted

    @rule()
    def retrain(self) -> None:
        self.deployment.rekey()
        self.model.start_generation()

    @rule(data=st.data())
    def certificate(self, data: st.DataObject) -> None:
        requests = [request for request, _ in self.model.pending] + list(self.model.done)
        request = data.draw(st.sampled_from([None, *requests]))
        certificate = self.deployment.certificate(request)
        assert verify(certificate.to_json()).wrong == ()
        told = certificate.publication
        assert (told.generation, told.predictions_reserved) == (
            (None, None) if self.hides_generations else (self.model.generation, self.model.predictions)
        )
        if request is not None:
            assert certificate.request is not None
            assert certificate.request.state == self.model.done.get(request, "pending")

    @rule()
    def view(self) -> None:
        with open_view(self.deployment.path) as view:
            status = view.status
            if not self.hides_generations:
                assert status.budget.predictions >= self.model.predictions
            assert replace(status, budget=self.deployment.status.budget) == self.deployment.status
            assert view.requests() == self.deployment.requests()
            assert view.guarantee() == self.promise

    # What happens to processes.

    def _open(self, path: Path) -> None:
        self.deployment = expunge.open(path, apply_pending=False)
        self.model.asked_before = set()

    @rule()
    def restart(self) -> None:
        self.deployment.close()
        self._open(self.deployment.path)

    def _image(self) -> Path:
        """The folder as a process that died right now would leave it."""
        self.copies += 1
        return Path(shutil.copytree(self.deployment.path, self.base / f"copy {self.copies}"))

    def _go_on_with(self, image: Path) -> None:
        path = self.deployment.path
        abandon(self.deployment)
        shutil.rmtree(path)
        self._open(image)
        found = self.deployment.inside.budget.predictions
        block = 1 if self.repeats_are_free else 10_000  # of a limit of 15, and of a limit of a million
        assert self.model.predictions <= found <= self.model.predictions + block + 2
        self.model.predictions = found

    @rule()
    def crash(self) -> None:
        self._go_on_with(self._image())

    @rule(step=st.sampled_from(BEFORE_SWITCH + AFTER_SWITCH))
    def crash_while_applying(self, step: str) -> None:
        images: list[Path] = []
        with watching(lambda name: images.append(self._image()) if name == step and not images else None):
            self.deployment.apply()
        if not images:  # nothing to apply, or nothing trained
            self.model.apply()
            return
        if step in AFTER_SWITCH:
            self.model.apply()
        self._go_on_with(images[0])

    @rule(step=st.sampled_from(["reserve.open", "reserve.done"]))
    def crash_while_predicting(self, step: str) -> None:
        images: list[Path] = []
        before = replace(self.model)
        with watching(lambda name: images.append(self._image()) if name == step and not images else None):
            self.predict(2)
        if images:
            self.model = before  # the answers never left
            self._go_on_with(images[0])

    # What must be true at all times.

    @invariant()
    def records_are_those_of_the_model(self) -> None:
        records = self.deployment.records
        X, y, weights = records.gather(records.live_slots())
        assert {*records.ids()} == {*self.model.live}
        live = {record: self.model.live[record] for record in records.ids()}
        assert {(type(record), record) for record in live} == {(type(record), record) for record in self.model.live}
        assert same_rows(X, plain_form(standard_types(table_of(self.kind, [row.number for row in live.values()]))))
        assert [CLASSES[code] for code in y] == [row.label for row in live.values()]
        expected = [row.weight for row in live.values()]
        assert expected == (np.ones(len(live)) if weights is None else weights).tolist()
        for subject in SUBJECTS:
            own = [record for record, row in live.items() if row.subject == subject]
            found = [records.id_of(slot) for slot in records.slots_of_subject(subject)] if own else []
            assert found == own

    @invariant()
    def status_is_that_of_the_model(self) -> None:
        status, model = self.deployment.status, self.model
        inside, budget = self.deployment.inside, self.deployment.inside.budget
        assert (status.generation, status.budget) == (
            (None, None) if self.hides_generations else (inside.generation, budget)
        )
        assert (inside.generation, status.round) == (model.generation, model.round)
        assert (status.num_records, status.num_shards) == (len(model.live), 3)
        assert status.pending == len(model.pending)
        assert budget.predictions == model.predictions
        assert budget.exhausted == (model.is_spent and not math.isinf(model.capacity))
        assert self.deployment.guarantee() == self.promise

    @invariant()
    def requests_are_those_of_the_model(self) -> None:
        states = {one.request: one.state for one in self.deployment.requests()}
        assert states == {**self.model.done, **{request: "pending" for request, _ in self.model.pending}}
        assert any((self.deployment.path / "waiting").iterdir()) == bool(self.model.pending)

    @invariant()
    def models_are_those_of_their_shards(self) -> None:
        state = self.deployment.inside.state
        learner: Any = as_learner(self.learner)
        for shard, model in enumerate(state.models):
            X, y, _ = state.records.gather(state.members[shard])
            if isinstance(learner, LookupTableLearner) and len(y):
                assert model.labels == learner.fit(X, y, 0).labels
        files = {path.name for path in (self.deployment.path / "models").iterdir()}
        rows = self.deployment._store.database.rows("SELECT file FROM shards")
        assert files == {row[0] for row in rows}

    @invariant()
    def ledger_can_be_followed(self) -> None:
        store = self.deployment._store
        rows = store.database.rows("SELECT entry FROM ledger ORDER BY sequence")
        signed = self.deployment.checkpoint()
        assert (signed.size, signed.root) == (len(rows), Tree(hash_leaf(entry.encode()) for (entry,) in rows).root())
        events = [json.loads(entry)["event"] for (entry,) in rows]
        assert events.count("accepted") == len(self.model.pending) + len(self.model.done)
        assert events.count("applied") == list(self.model.done.values()).count("applied")
        assert events.count("cancelled") == list(self.model.done.values()).count("cancelled")
        if self.hides_generations:
            assert "generation" not in events
            assert events.count("round") >= self.model.round
        else:
            assert events.count("generation") == self.model.generation - 1

    def teardown(self) -> None:
        if hasattr(self, "deployment"):
            self.deployment.close()
        shutil.rmtree(self.base)


def abandon(deployment: DurableDeployment) -> None:
    """Close the files as the end of a process does: no budget is given back."""
    deployment._keeper.closed.set()
    deployment._store.database.close()
    deployment._store._lock.release()  # type: ignore[union-attr]


class watching:
    """Have a function told every step of the protocol."""

    def __init__(self, watch: Any) -> None:
        self.watch = watch

    def __enter__(self) -> None:
        self.before, steps.on_step = steps.on_step, self.watch

    def __exit__(self, *_: object) -> None:
        steps.on_step = self.before


@pytest.mark.parametrize("kind", ["array", "frame", "sparse", "texts"])
def test_a_hundred_operations(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def known_coins() -> Randomness:
        """In place of the system's, so that what hypothesis has seen happens again."""
        known_coins.number += 1  # type: ignore[attr-defined]
        return Randomness(np.random.default_rng(known_coins.number), is_system=True)  # type: ignore[attr-defined]

    def begin() -> Life:
        known_coins.number = 0  # type: ignore[attr-defined]
        return Life(kind)

    def known_key() -> RecipeKey:
        return RecipeKey(known_coins().generator.bytes(32))

    monkeypatch.setattr(Randomness, "from_system", staticmethod(known_coins))
    monkeypatch.setattr(RecipeKey, "from_system", staticmethod(known_key))
    run_state_machine_as_test(
        begin,
        settings=settings(
            max_examples=2 if kind == "frame" else 4,
            stateful_step_count=100,
            deadline=None,
            phases=[Phase.explicit, Phase.generate],
            suppress_health_check=list(HealthCheck),
            print_blob=True,
            database=None,
        ),
    )
