"""A batch of updates as plain data and one block of records, so that it can wait on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain, groupby
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.core.blocks import Block, join_blocks, pick_rows
from expunge.core.index import NOWHERE
from expunge.core.records import (
    Add,
    AddMany,
    DeleteMany,
    DeleteSubject,
    RecordId,
    Records,
    Update,
    deleted_ids,
    is_deletion,
)

Name = tuple[Literal["record", "subject"], RecordId]
Part = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """What a request asks for.

    `content` lists, in order, runs of {"ids": deleted records}, {"subject": a deleted subject, "holds": its records at
    the time, also those that came in the same batch} and {"rows": [first, how many]} of `block`.
    """

    content: list[Part]
    block: Block | None

    @classmethod
    def dump(cls, updates: Sequence[Update], records: Records) -> Batch:
        """Updates that `records.apply` takes, with the records they bring checked and in its number types."""
        content: list[Part] = []
        blocks: list[Block] = []
        num_rows = 0
        for deletes, run in groupby(updates, key=is_deletion):
            if deletes:
                ids = [_plain(record) for record in deleted_ids(run)]
                content += [{"ids": ids}] if ids else []
                continue
            for update in run:
                match update:
                    case DeleteSubject(subject=subject):
                        content.append({"subject": _plain(subject)})
                    case Add() | AddMany():
                        blocks.append(records.check_addition(update))
                        content.append({"rows": [num_rows, len(blocks[-1])]})
                        num_rows += len(blocks[-1])
        return cls(content, join_blocks(blocks, start=0) if blocks else None).found_in(records)

    def found_in(self, records: Records) -> Batch:
        """The same batch, with the records that its subjects have when it meets this dataset."""
        if not self.names_subjects:
            return self
        here, content = _Arrivals(self.block), list[Part]()
        for part in self.content:
            if "subject" not in part:
                here.pass_by(part)
                content.append(part)
                continue
            subject = part["subject"]
            before = [slot for slot in records.subjects.find(subject) if not records.index.is_gone(slot)]
            held = [*(records.id_of(slot) for slot in before), *here.leave(subject)]
            content.append({"subject": subject, "holds": list(dict.fromkeys(held))})
        return replace(self, content=content)

    def updates(self, classes: NDArray[Any]) -> list[Update]:
        """The updates again."""
        updates: list[Update] = []
        block = self.block
        for part in self.content:
            if "ids" in part:
                updates.append(DeleteMany(part["ids"]))
            elif "subject" in part:
                updates.append(DeleteSubject(part["subject"]))
            else:
                assert block is not None
                first, count = part["rows"]
                updates.append(_addition(pick_rows(block, np.arange(first, first + count)), classes))
        return updates

    @property
    def names_subjects(self) -> bool:
        """Whether all records of somebody go."""
        return any("subject" in part for part in self.content)

    @property
    def num_deleted(self) -> int:
        """How many records go, each counted once; those of a subject as it had them when the request came."""
        return len(self._leaving)

    @property
    def num_added(self) -> int:
        """How many records come."""
        return 0 if self.block is None else len(self.block)

    @property
    def kind(self) -> str:
        """deletion, addition or mixed."""
        if self.block is None:
            return "deletion"
        return "addition" if all("rows" in part for part in self.content) else "mixed"

    @property
    def deleted(self) -> list[Name]:
        """What goes: every record, also those of a subject, and every subject."""
        records: list[Name] = [("record", record) for record in self._leaving]
        return records + [("subject", part["subject"]) for part in self.content if "subject" in part]

    @property
    def added(self) -> list[Name]:
        """The records that come, and the subjects they belong to."""
        if self.block is None or self.block.ids is None:
            return []
        subjects = [] if self.block.subjects is None else self.block.subjects.tolist()
        records: list[Name] = [("record", record) for record in self.block.ids.tolist()]
        return records + [("subject", subject) for subject in dict.fromkeys(subjects) if subject is not None]

    @property
    def returning(self) -> list[Name]:
        """What comes without having been deleted in the same batch: a correction is no return."""
        coming = self.added
        corrected = set(self.deleted) if coming else set()
        return [name for name in coming if name not in corrected]

    @property
    def records(self) -> list[RecordId]:
        """Every record that the request is about, by id."""
        coming = [] if self.block is None or self.block.ids is None else self.block.ids.tolist()
        return [*self._leaving, *coming]

    @cached_property
    def _leaving(self) -> list[RecordId]:
        named = (part.get(name, ()) for part in self.content for name in ("ids", "holds"))
        return list(dict.fromkeys(chain.from_iterable(named)))


class _Arrivals:
    """The records that have come so far in a batch and not gone again, by subject."""

    def __init__(self, block: Block | None) -> None:
        self._ids = [] if block is None or block.ids is None else block.ids.tolist()
        self._subjects = [] if block is None or block.subjects is None else block.subjects.tolist()
        self._owner: dict[RecordId, RecordId] = {}
        self._held: dict[RecordId, dict[RecordId, None]] = {}

    def pass_by(self, part: Part) -> None:
        """A run of deletions or additions."""
        for record in part.get("ids", []):
            self._held.get(self._owner.pop(record, ""), {}).pop(record, None)
        first, count = part.get("rows", (0, 0))
        rows = slice(first, first + count)
        for record, subject in zip(self._ids[rows], self._subjects[rows], strict=False):  # no subjects: nobody's
            if subject is not None:
                self._owner[record] = subject
                self._held.setdefault(subject, {})[record] = None

    def leave(self, subject: RecordId) -> list[RecordId]:
        """A subject goes, with these."""
        gone = list(self._held.pop(subject, {}))
        for record in gone:
            del self._owner[record]
        return gone


def _addition(block: Block, classes: NDArray[Any]) -> AddMany:
    assert block.ids is not None
    return AddMany(
        ids=block.ids,
        features=block.features,
        labels=classes[block.labels],
        subjects=None if block.subjects is None else block.subjects.tolist(),
        weights=block.weights,
    )


def _plain(name: RecordId) -> RecordId:
    value: RecordId = name.item() if isinstance(name, np.generic) else name
    return value


def lasting_names(batches: list[Batch], before: Records, after: Records) -> tuple[list[Name], list[Name]]:
    """What a round takes out for good, and what it brings in.

    Of a subject, the records that it really has when its turn comes: another request may have been cancelled since.
    """
    batches = _found(batches, before)
    back = [name for batch in batches for name in batch.added]
    asked: list[Name] = list(dict.fromkeys(chain.from_iterable(batch.deleted for batch in batches)))
    if not back:
        return asked, back
    records = [name for what, name in asked if what == "record"]
    is_there = after.index.find_all(records) != NOWHERE
    gone: list[Name] = [("record", name) for name, there in zip(records, is_there.tolist(), strict=True) if not there]
    gone += [(what, name) for what, name in asked if what == "subject" and not _has_records(after, name)]
    return gone, back


def _found(batches: list[Batch], records: Records) -> list[Batch]:
    """Every batch as it meets the dataset that those before it leave."""
    last = max((place for place, batch in enumerate(batches) if batch.names_subjects), default=-1)
    found = []
    for place, batch in enumerate(batches):
        found.append(batch.found_in(records))
        if place < last:
            records, _ = records.apply(batch.updates(records.classes))
    return found


def _has_records(records: Records, subject: RecordId) -> bool:
    return any(not records.index.is_gone(slot) for slot in records.subjects.find(subject))
