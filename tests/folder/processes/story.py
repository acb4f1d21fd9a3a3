"""One process's life with a folder: random requests, predictions, cancellations, retrainings, closing and reopening.

Everything that the process is told, it tells at once (`tell`), and before it asks for something it says so: what was
told and then killed is what the outside world knows.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
from people import NUM_PEOPLE, Person, table_of
from scenarios import Scenario

import expunge
from expunge import AddMany, Delete, DeleteSubject
from expunge.core.corrections import Correct
from expunge.core.errors import BudgetExhaustedError, RequestError
from expunge.training.learners import NearestTableLearner

Tell = Callable[..., None]
_ACTS = ["delete", "predict", "add", "predict", "correct", "delete subject", "cancel", "predict", "retrain", "return"]


def updates_of(asked: dict[str, Any], scenario: Scenario) -> Any:
    """The updates that a plain description (numbers, versions) stands for."""
    if asked.get("correct"):
        changed = [Person(*pair) for pair in asked["add"]]
        return Correct(
            ids=[person.name(scenario.ids) for person in changed],
            features=table_of(changed, scenario.table),
            labels=[person.label for person in changed],
        )
    batch: list[Any] = [Delete(Person(number).name(scenario.ids)) for number in asked.get("delete", [])]
    batch += [DeleteSubject(subject) for subject in asked.get("subjects", [])]
    people = [Person(*pair) for pair in asked.get("add", [])]
    if people:
        batch.append(
            AddMany(
                ids=[person.name(scenario.ids) for person in people],
                features=table_of(people, scenario.table),
                labels=[person.label for person in people],
                subjects=[person.subject for person in people],
            )
        )
    return batch


class Story:
    """A plot drawn from a seed, acted out on a folder."""

    def __init__(self, scenario: Scenario, folder: Path, seed: int, tell: Tell) -> None:
        self.scenario, self.folder, self.tell = scenario, folder, tell
        self.random = random.Random(seed)
        self.versions = dict.fromkeys(range(NUM_PEOPLE), 0)  # of each person, once all accepted requests are applied
        self.gone: dict[int, int] = {}
        self.next = NUM_PEOPLE
        self.keys = 0
        self.pending: list[str] = []
        self.queries = np.random.default_rng(seed)

    def act(self, acts: Sequence[str] | None = None) -> None:
        """Open, do everything (in an order drawn by chance if none is given), close."""
        self.deployment = expunge.open(self.folder)
        self.tell("opened")
        first, second = self.random.sample(_ACTS, len(_ACTS)), self.random.sample(["delete", "predict", "add"], 3)
        for act in [*([*first, "reopen", *second] if acts is None else acts), "close"]:
            getattr(self, f"_{act.replace(' ', '_')}")()

    def _some(self) -> list[int]:
        return self.random.sample(sorted(self.versions), self.random.randint(1, 3))

    def _delete(self) -> None:
        self._ask({"delete": self._some()})

    def _delete_subject(self) -> None:
        self._ask({"subjects": [Person(self._some()[0]).subject]})

    def _add(self) -> None:
        count = self.random.randint(1, 3)
        self._ask({"add": [(self.next + place, 0) for place in range(count)], "readmit": True})
        self.next += count

    def _correct(self) -> None:
        numbers = self._some()
        asked = {"delete": numbers, "add": [(number, self.versions[number] + 1) for number in numbers]}
        self._ask(asked | ({"correct": True} if self.keys % 2 else {}))  # or by a deletion and an addition

    def _return(self) -> None:
        if self.gone:
            number = self.random.choice(sorted(self.gone))
            self._ask({"add": [(number, self.gone[number] + 1)], "readmit": True})

    def _ask(self, asked: dict[str, Any]) -> None:
        self._tell_asking(asked)
        batch, options = updates_of(asked, self.scenario), {"key": asked["key"], "readmit": "readmit" in asked}
        if self.random.random() < 0.5:
            receipt = self.deployment.update(batch, **options)
            self.tell("accepted", key=asked["key"], request=receipt.request)
        else:
            receipt = self.deployment.submit(batch, **options)
            self.tell("accepted", key=asked["key"], request=receipt.request)
            if self.deployment.is_due:
                self.deployment.apply()
        self._expect(asked)
        self.pending.append(receipt.request)
        self._tell_applied()

    def _tell_asking(self, asked: dict[str, Any]) -> None:
        self.keys += 1
        asked["key"] = f"key of {self.keys}"
        self.tell("asking", **asked)

    def _expect(self, asked: dict[str, Any]) -> None:
        households = set(asked.get("subjects", []))
        leaving = set(asked.get("delete", [])) | {n for n in self.versions if Person(n).subject in households}
        for number in leaving:
            self.gone[number] = self.versions.pop(number)
        for number, version in asked.get("add", []):
            self.versions[number] = version
            self.gone.pop(number, None)

    def _tell_applied(self) -> None:
        states = {one.request: one.public_state for one in self.deployment.requests()}
        for request in self.pending:
            if states[request] == "applied":
                self.tell("applied", request=request)
        self.pending = [request for request in self.pending if states[request] == "pending"]

    def _predict(self) -> None:
        rows = self.queries.normal(size=(self.random.randint(1, 4), 4)) * 3
        self._tell_dirty()
        generation = self.deployment.inside.generation
        try:
            released = self.deployment.predict(table_of_rows(rows, self.scenario.table))
        except BudgetExhaustedError:
            return
        if self.deployment.inside.generation == generation:  # else a retraining in the background came between
            self.tell("released", count=len(released), generation=generation)
        self._tell_dirty()

    def _tell_dirty(self) -> None:
        inside = self.deployment.inside
        if inside.budget.exhausted:
            self.tell("exhausted", generation=inside.generation)

    def _cancel(self) -> None:
        asked: dict[str, Any] = {"add": [(self.next, 0)], "readmit": True}
        self._tell_asking(asked)
        request = self.deployment.submit(updates_of(asked, self.scenario), key=asked["key"], readmit=True).request
        self.tell("accepted", key=asked["key"], request=request)
        self.next += 1
        self.tell("cancelling", request=request)
        try:
            self.deployment.cancel(request)
        except RequestError:  # the clock applied it in the meantime
            assert self.scenario.is_busy
            self._expect(asked)
        else:
            self.tell("cancelled", request=request)

    def _retrain(self) -> None:
        self.deployment.rekey()
        self.tell("retrained", generation=self.deployment.inside.generation)

    def _another_recipe(self) -> None:
        num_shards = 4 if self.deployment.status.num_shards == 6 else 6
        self.deployment.redeclare(n_shards=num_shards, learner=NearestTableLearner(50.0))
        self.tell("retrained", generation=self.deployment.inside.generation)

    def _reopen(self) -> None:
        self._close()
        self.deployment = expunge.open(self.folder)
        self.tell("opened")
        self._tell_applied()

    def _close(self) -> None:
        self.deployment.close()
        self.tell("closed")


def table_of_rows(rows: np.ndarray, kind: str) -> Any:
    """Queries in the form of the records."""
    if kind == "sparse":
        return scipy.sparse.csr_matrix(rows)
    return rows.astype(object) if kind == "objects" else rows
