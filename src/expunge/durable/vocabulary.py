"""The list of labels, as a folder keeps it: a label goes with the last record that bears it.

The classes of a deployment are public if they were declared. If they were taken from the data, a label is somebody's
until nobody bears it any more; then its name is erased like the rest of the record, and a keyed hash stays in its
place, so that the label is recognised when somebody brings it back. Its code stays what it was. Models trained slice by
slice with `partial_fit` are told the whole list beforehand and keep it; declare the classes there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.records import Add, AddMany, Records, Update
from expunge.store import RequestBook, Store, dump_classes, load_classes

_FACT = "classes"
_ERASED = "erased label "
_PLACEHOLDER = re.compile(f"{_ERASED}[0-9a-f]{{32}}")


class Vocabulary:
    """The labels of one deployment, by class code."""

    def __init__(self, store: Store, book: RequestBook) -> None:
        self._store = store
        self._book = book
        self._is_declared = bool(store.fact("classes_declared"))
        self.names: NDArray[Any] = load_classes(store.fact(_FACT))

    @property
    def _can_go(self) -> bool:
        """Numbers say nothing that their codes would not."""
        return not self._is_declared and self.names.dtype.kind in "UO"

    def recognise(self, updates: Iterable[Update]) -> bool:
        """Give erased labels their names back where an addition brings them; whether any was."""
        names = self.recognised(updates)
        is_changed, self.names = names is not self.names, names
        return is_changed

    def recognised(self, updates: Iterable[Update]) -> NDArray[Any]:
        """The labels, with the names that these updates bring in place of erased ones."""
        erased = {str(name): code for code, name in enumerate(self.names.tolist()) if _is_erased(name)}
        if not erased:
            return self.names
        found = {}
        for label in {label for update in updates for label in _labels(update)}:
            code = erased.get(self._placeholder(label))
            if code is not None:
                found[code] = label
        return _with(self.names, found) if found else self.names

    def recalls(self, label: str) -> bool:
        """Whether a label of this name was erased."""
        return self._placeholder(label) in self.names.tolist()

    def write(self, datasets: Iterable[Records]) -> None:
        """Have exactly the labels on the disk that some record of these datasets bears; inside a transaction."""
        if not self._can_go:
            return
        counts = np.sum([records.class_counts() for records in datasets], axis=0)
        bare = [code for code, name in enumerate(self.names.tolist()) if not counts[code] and not _is_erased(name)]
        kept = _with(self.names, {code: self._placeholder(self.names[code]) for code in bare})
        data = dump_classes(kept)
        if data != self._store.fact(_FACT):
            self._store.state_fact(_FACT, data)

    def _placeholder(self, label: Any) -> str:
        return _ERASED + self._book.hash_of("label", str(label)).hex()[:32]


def _is_erased(name: Any) -> bool:
    return isinstance(name, str) and _PLACEHOLDER.fullmatch(name) is not None


def _with(names: NDArray[Any], changes: dict[int, Any]) -> NDArray[Any]:
    values = [changes.get(code, name) for code, name in enumerate(names.tolist())]
    return np.array(values, dtype=object) if names.dtype == object else np.array(values)


def _labels(update: Update) -> set[Any]:
    match update:
        case Add(label=label):
            return {label} if isinstance(label, str) else set()
        case AddMany(labels=labels):
            column = np.asarray(labels)
            return (
                {label for label in column.tolist() if isinstance(label, str)} if column.dtype.kind in "UO" else set()
            )
    return set()
