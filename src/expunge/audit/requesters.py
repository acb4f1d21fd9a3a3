"""Update requesters (UpdReq, Definition 2.2): they see what is published and decide what to delete or add.

In the label-only setting a requester is shown an array of labels, one for each record it knows, in the order of its
`ids`. In the full-model setting (Section 5.2) it is shown every shard's model. It is shown nothing else. A requester's
random numbers are drawn beforehand and given to it, so that asking twice gives the same answer.

A requester of your own is any object with the method `next_batch`. A scenario takes a function that makes one for each
trial, from the task and the trial's randomness:

>>> from expunge.audit import audit, lookup_scenario, make_scheme
>>> class DeleteOneWrong:
...     def __init__(self, task, rng):
...         self.ids, _, self.codes = task.columns
...         self.order = rng.permutation(len(self.ids))
...
...     def next_batch(self, published, asked):
...         if asked:
...             return None  # no more rounds
...         wrong = [place for place in self.order if published[0][place] != self.codes[place]]
...         return [Delete(self.ids[wrong[0]])] if wrong else None
>>> scenario = lookup_scenario(num_pairs=10, requester=DeleteOneWrong)
>>> report = audit(scenario, make_scheme("sisa", scenario), num_trials=10, seed=1)
>>> {trial.num_survivors for trial in report.trials}
{19}
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.audit.scenario import PublishedModels, Task
from expunge.core.checks import require_choice, require_count
from expunge.core.features import Features, num_rows, take
from expunge.core.randomness import Randomness
from expunge.core.records import AddMany, Delete, RecordId
from expunge.serving.interaction import Batch, Requester
from expunge.training.learners import Model, ScikitModel

Probabilities = NDArray[np.float64]
Labels = NDArray[np.integer[Any]]


def class_probabilities(model: Model, points: Features, num_classes: int) -> Probabilities:
    """Class probabilities of one model, of shape (rows, classes).

    A model without probabilities gives its vote probability 1. Where it answers ⊥, every class has probability 0.
    """
    if isinstance(model, ScikitModel) and hasattr(model.estimator, "predict_proba"):
        own = np.asarray(model.estimator.classes_)
        codes = own if model.classes is None else np.searchsorted(model.classes, own)
        return _spread(np.asarray(model.estimator.predict_proba(points)), codes, num_classes)
    if hasattr(model, "predict_proba"):
        return np.asarray(model.predict_proba(points), dtype=np.float64)
    votes = np.asarray(model.predict(points), dtype=np.int64)
    certain = np.zeros((len(votes), num_classes))
    voting = np.flatnonzero(votes >= 0)
    certain[voting, votes[voting]] = 1.0
    return certain


def own_label_confidence(models: Sequence[Model], points: Features, codes: Any, num_classes: int) -> Probabilities:
    """How confident each model is in each point's own label, of shape (models, rows)."""
    rows = np.arange(num_rows(points))
    return np.stack([class_probabilities(model, points, num_classes)[rows, codes] for model in models])


def _spread(given: NDArray[Any], codes: NDArray[Any], num_classes: int) -> Probabilities:
    """Move the columns of a model that has not seen every class to the codes of its classes."""
    if given.shape[1] == num_classes:
        return given.astype(np.float64, copy=False)
    full = np.zeros((len(given), num_classes))
    full[:, codes.astype(np.int64)] = given
    return full


@dataclass(frozen=True)
class DeleteThese:
    """Delete records that were chosen in advance: an oblivious requester, which ignores what is published.

    Parameters
    ----------
    ids
        The records to delete.
    at_once
        Whether to delete all of them in the first round, or one a round.

    Examples
    --------
    >>> requester = DeleteThese(["anna", "ben"], at_once=False)
    >>> first = requester.next_batch(published=[None], asked=[])
    >>> first
    [Delete(id='anna')]
    >>> requester.next_batch(published=[None, None], asked=[first])
    [Delete(id='ben')]
    """

    ids: Sequence[RecordId]
    at_once: bool = True

    @classmethod
    def random(cls, ids: Sequence[RecordId], size: int, *, rng: Randomness, at_once: bool = True) -> DeleteThese:
        """Delete a uniformly random subset of `ids` with `size` records."""
        _require_size(size, len(ids))
        return cls([ids[place] for place in rng.permutation(len(ids))[:size].tolist()], at_once)

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """All deletions in the first round, or one a round; None when there are no more."""
        return _deletions(self.ids, asked, at_once=self.at_once)


@dataclass(frozen=True)
class DeleteCorrect:
    """Delete exactly the records whose first published label is correct (Section 5.1).

    It sees labels only: `published[0]` must be the labels of the records `ids`, in that order.

    Parameters
    ----------
    ids
        The records that the requester knows.
    codes
        Their true class codes.
    at_once
        Whether to delete all of them in the first round, or one a round.

    Examples
    --------
    >>> import numpy as np
    >>> requester = DeleteCorrect(["anna", "ben", "cleo"], np.array([0, 1, 1]))
    >>> requester.next_batch(published=[np.array([0, -1, 1])], asked=[])
    [Delete(id='anna'), Delete(id='cleo')]
    """

    ids: Sequence[RecordId]
    codes: Labels
    at_once: bool = True

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The correctly labelled records that are not deleted yet."""
        right = np.flatnonzero(np.asarray(published[0]) == self.codes).tolist()
        return _deletions([self.ids[place] for place in right], asked, at_once=self.at_once)


@dataclass(frozen=True)
class DeleteRandomCorrect:
    """Delete a uniformly random subset of the correctly labelled records (Appendix C.2).

    The first `size` correct records in a uniformly random order of all records are a uniformly random subset of the
    correct ones. If fewer are correct, fewer are deleted.

    Parameters
    ----------
    ids
        The records that the requester knows.
    codes
        Their true class codes.
    size
        How many records to delete.
    order
        A uniformly random order of the records, drawn beforehand. Use `draw` to draw one.
    at_once
        Whether to delete all of them in the first round, or one a round.

    Examples
    --------
    >>> import numpy as np
    >>> from expunge.core.randomness import Randomness
    >>> ids, codes = ["anna", "ben", "cleo"], np.array([0, 1, 1])
    >>> requester = DeleteRandomCorrect.draw(ids, codes, 1, rng=Randomness.from_seed(1))
    >>> [chosen] = requester.next_batch(published=[np.array([0, -1, 1])], asked=[])
    >>> chosen.id in ("anna", "cleo")
    True
    """

    ids: Sequence[RecordId]
    codes: Labels
    size: int
    order: NDArray[np.int64]
    at_once: bool = True

    @classmethod
    def draw(cls, ids: Sequence[RecordId], codes: Labels, size: int, *, rng: Randomness) -> DeleteRandomCorrect:
        """Make a requester with a fresh random order."""
        _require_size(size, len(ids))
        return cls(ids, codes, size, rng.permutation(len(ids)))

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The chosen records that are not deleted yet."""
        right = np.asarray(published[0]) == self.codes
        chosen = self.order[right[self.order]][: self.size].tolist()
        return _deletions([self.ids[place] for place in chosen], asked, at_once=self.at_once)


@dataclass(frozen=True)
class AddUntilCorrect:
    """Add, in every round, one more copy of every point that is still labelled wrongly: adaptive additions.

    Against a partition of lookup tables this collects, for every point, exactly as many copies as its shards needed.
    Full retraining on the same records would place them anew.

    Parameters
    ----------
    ids, features, labels
        The records that the requester knows.
    codes
        Their true class codes.

    Examples
    --------
    >>> import numpy as np
    >>> points = np.array([[1.0], [2.0]])
    >>> requester = AddUntilCorrect(["anna", "ben"], points, np.array(["no", "yes"]), np.array([0, 1]))
    >>> [added] = requester.next_batch(published=[np.array([0, -1])], asked=[])
    >>> added.ids, added.labels.tolist()
    (['copy 1 of ben'], ['yes'])
    """

    ids: Sequence[RecordId]
    features: Features
    labels: NDArray[Any]
    codes: Labels

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """Copies of the points that the latest labels got wrong; None once all are right."""
        wrong = np.flatnonzero(np.asarray(published[-1]) != self.codes)
        if len(wrong) == 0:
            return None
        copies = [f"copy {len(asked) + 1} of {self.ids[place]}" for place in wrong.tolist()]
        return [AddMany(ids=copies, features=take(self.features, wrong), labels=self.labels[wrong])]


def _deletions(ids: Sequence[RecordId], asked: Sequence[Batch], *, at_once: bool) -> Batch | None:
    if at_once:
        return [Delete(i) for i in ids] if len(ids) and not asked else None
    return [Delete(ids[len(asked)])] if len(asked) < len(ids) else None


def _require_size(size: int, available: int) -> None:
    require_count("the number of deletions", size, most=available)


@dataclass(frozen=True)
class DeleteTargeted:
    """Delete the records that seem to be in the first half of the shards (Section 5.2).

    A record is guessed to be in the shard whose model is most confident in its correct label (the first of equals).
    Records guessed to be in one of the first ⌊k/2⌋ shards (at least one) are deleted. The requester must be shown
    `PublishedModels`.

    Parameters
    ----------
    ids, points
        The records that the requester knows.
    codes
        Their true class codes.

    Examples
    --------
    >>> import numpy as np
    >>> from expunge.audit import PublishedModels
    >>> from expunge.training.learners import LookupTableLearner
    >>> points, codes = np.array([[1.0], [2.0]]), np.array([0, 1])
    >>> models = tuple(LookupTableLearner().fit(points[[row]], codes[[row]], 0) for row in range(2))
    >>> requester = DeleteTargeted(["anna", "ben"], points, codes)
    >>> requester.next_batch(published=[PublishedModels(models, num_classes=2)], asked=[])
    [Delete(id='anna')]
    """

    ids: Sequence[RecordId]
    points: Features
    codes: Labels

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """All targeted records in the first round; then None."""
        shown: PublishedModels = published[0]
        if asked:
            return None
        confidence = own_label_confidence(shown.models, self.points, self.codes, shown.num_classes)
        targeted = np.flatnonzero(confidence.argmax(axis=0) < num_targeted(len(shown.models)))
        return [Delete(self.ids[place]) for place in targeted.tolist()] or None


@dataclass(frozen=True)
class DeleteMostShards:
    """Delete, in every round, the record that seems to be in the most shards: the slow-down attack (Theorem 4.2).

    If models are published, a record seems to be in a shard to the degree that its model is confident in the record's
    label; lookup tables give the exact number. If only labels are published, the requester can only prefer records that
    are labelled correctly. Among equals it takes the first.

    Parameters
    ----------
    ids, points
        The records that the requester knows.
    codes
        Their true class codes.

    Examples
    --------
    >>> import numpy as np
    >>> from expunge.audit import PublishedModels
    >>> from expunge.training.learners import LookupTableLearner
    >>> points, codes = np.array([[1.0], [2.0]]), np.array([0, 1])
    >>> models = tuple(LookupTableLearner().fit(points[rows], codes[rows], 0) for rows in ([0, 1], [1], [1]))
    >>> requester = DeleteMostShards(["anna", "ben"], points, codes)
    >>> requester.next_batch(published=[PublishedModels(models, num_classes=2)], asked=[])
    [Delete(id='ben')]
    """

    ids: Sequence[RecordId]
    points: Features
    codes: Labels

    def next_batch(self, published: Sequence[Any], asked: Sequence[Batch]) -> Batch | None:
        """The record, of those not deleted yet, that seems to be in the most shards; None if all are deleted."""
        gone = {update.id for batch in asked for update in batch if isinstance(update, Delete)}
        here = np.array([place for place, record in enumerate(self.ids) if record not in gone], dtype=np.int64)
        if len(here) == 0:
            return None
        belief = self._belief(published[-1], here)
        return [Delete(self.ids[int(here[int(belief.argmax())])])]

    def _belief(self, shown: Any, here: NDArray[np.int64]) -> Probabilities:
        if isinstance(shown, PublishedModels):
            sure = own_label_confidence(shown.models, take(self.points, here), self.codes[here], shown.num_classes)
            return np.asarray(sure.sum(axis=0))
        return np.asarray(np.asarray(shown)[here] == self.codes[here], dtype=np.float64)


def num_targeted(num_models: int) -> int:
    """How many models `DeleteTargeted` aims at: half of them, rounded down, at least one."""
    return max(1, num_models // 2)


LABEL_REQUESTERS = ("correct", "one-by-one", "random-correct", "random", "add")


@dataclass(frozen=True)
class NamedRequester:
    """Make a built-in label-only requester for the records of a task.

    random: `size` records chosen in advance. correct: all that are labelled correctly. one-by-one: the same, one a
    round. random-correct: `size` of them. add: copies of what is labelled wrongly.
    """

    name: str
    size: int

    def __post_init__(self) -> None:
        require_choice("requester", self.name, LABEL_REQUESTERS)

    def __call__(self, task: Task, rng: Randomness) -> Requester:
        """Make the requester for one trial."""
        ids, points, codes = task.columns
        match self.name:
            case "random":
                return DeleteThese.random(ids, self.size, rng=rng)
            case "correct" | "one-by-one":
                return DeleteCorrect(ids, codes, at_once=self.name == "correct")
            case "random-correct":
                return DeleteRandomCorrect.draw(ids, codes, self.size, rng=rng)
            case _:
                return AddUntilCorrect(ids, points, task.records.classes[codes], codes)
