"""A batch of updates as plain data and one block of records, so that it can wait on the disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from expunge._blocks import Block, join_blocks, pick_rows
from expunge.records import Add, AddMany, Delete, DeleteSubject, RecordId, Records, Update

Name = tuple[Literal["record", "subject"], RecordId]
Part = dict[str, Any]


@dataclass(frozen=True)
class Batch:
    """What a request asks for.

    `content` lists, in order, runs of {"ids": deleted records}, {"subject": a deleted subject, "holds": its records at
    the time} and {"rows": [first, how many]} of `block`.
    """

    content: list[Part]
    block: Block | None

    @classmethod
    def dump(cls, updates: Sequence[Update], records: Records) -> Batch:
        """Updates that `records.apply` takes, with the records they bring checked and in its number types."""
        content: list[Part] = []
        blocks: list[Block] = []
        num_rows = 0
        for update in updates:
            match update:
                case Delete(id=record):
                    if not content or "ids" not in content[-1]:
                        content.append({"ids": []})
                    content[-1]["ids"].append(_plain(record))
                case DeleteSubject(subject=subject):
                    held = [slot for slot in records.subjects.find(subject) if not records.index.is_gone(slot)]
                    content.append({"subject": _plain(subject), "holds": [records.id_of(slot) for slot in held]})
                case Add() | AddMany():
                    blocks.append(records.checked(update))
                    content.append({"rows": [num_rows, len(blocks[-1])]})
                    num_rows += len(blocks[-1])
        return cls(content, join_blocks(blocks, start=0) if blocks else None)

    def updates(self, classes: NDArray[Any]) -> list[Update]:
        """The updates again."""
        updates: list[Update] = []
        block = self.block
        for part in self.content:
            if "ids" in part:
                updates += [Delete(record) for record in part["ids"]]
            elif "subject" in part:
                updates.append(DeleteSubject(part["subject"]))
            else:
                assert block is not None
                first, count = part["rows"]
                updates.append(_addition(pick_rows(block, np.arange(first, first + count)), classes))
        return updates

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
        corrected = set(self.deleted)
        return [name for name in self.added if name not in corrected]

    @property
    def records(self) -> list[RecordId]:
        """Every record that the request is about, by id."""
        coming = [] if self.block is None or self.block.ids is None else self.block.ids.tolist()
        return [*self._leaving, *coming]

    @property
    def _leaving(self) -> list[RecordId]:
        named = (record for part in self.content for name in ("ids", "holds") for record in part.get(name, []))
        return list(dict.fromkeys(named))


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


def lasting_names(batches: list[Batch], after: Records) -> tuple[list[Name], list[Name]]:
    """What a round takes out for good, and what it brings in."""
    asked: list[Name] = [name for batch in batches for name in batch.deleted]
    gone = [(what, name) for what, name in dict.fromkeys(asked) if what == "subject" or name not in after]
    alive = {name for what, name in gone if what == "subject" and _has_records(after, name)}
    back = [name for batch in batches for name in batch.added]
    return [(what, name) for what, name in gone if what == "record" or name not in alive], back


def _has_records(records: Records, subject: RecordId) -> bool:
    return any(not records.index.is_gone(slot) for slot in records.subjects.find(subject))
