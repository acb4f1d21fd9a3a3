"""Bodies of `POST /v1/updates` as updates: what to delete, to add and to correct."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from expunge.core.corrections import Correct
from expunge.core.errors import InputError
from expunge.core.records import AddMany, Delete, DeleteSubject, RecordId, Update
from expunge.service.columns import BODY, Columns, Form, struct, where_of
from expunge.service.problems import Problem, invalid
from expunge.tables import Schema, Table, match_key, match_keys
from expunge.tables.keys import match_labels
from expunge.tables.schema import Labelled

Operation = Literal["add", "delete", "correct"]
_Label = str | float | int | bool | list[float]
_Scalar = str | float | int | bool | None
_ID, _LABELS = "ids", "labels"


class Deletion(msgspec.Struct, forbid_unknown_fields=True):
    """Records by id, and all records of subjects."""

    ids: list[str | int] = []
    subjects: list[str | int] = []


@dataclass(frozen=True)
class Wanted:
    """What a request asks for.

    Parameters
    ----------
    updates
        The updates, as `DurableDeployment.submit` takes them.
    readmit
        Whether records may come back that were deleted on request.
    """

    updates: list[Update] | Correct
    readmit: bool


class Changes:
    """Reads bodies for one deployment.

    Parameters
    ----------
    columns
        Its columns.
    classes
        Its classes; empty if it predicts numbers.
    """

    def __init__(self, columns: Columns, classes: NDArray[Any]) -> None:
        self._columns, self._classes = columns, classes

    @cached_property
    def _decoder(self) -> msgspec.json.Decoder[Any]:
        """Reads {"delete": …, "add": …, "correct": …, "readmit": …}."""
        rows: Any = self._columns.listed
        if self._schema is not None and self._columns.named is not None:
            roles = {name: self._role_type(role) for role, name in self._schema.roles.items()}
            named = struct("Record", {**self._columns.fields(), **roles}, optional=self._optional(roles))
            rows = named | rows
        lists = {
            "ids": list[str | int],
            "labels": list[_Label],
            "subjects": list[str | int | None],
            "weights": list[float],
        }
        beside = [(name, kind | None, None) for name, kind in lists.items()]
        corrected: Any = dict[str, _Scalar] | self._columns.listed
        addition = _struct("Addition", [("rows", _list_of(rows)), *beside])
        correction = _struct("Correction", [("rows", _list_of(corrected) | None, None), *beside])
        parts = {"delete": Deletion, "add": addition, "correct": correction}
        body = _struct("Body", [*((name, kind | None, None) for name, kind in parts.items()), ("readmit", bool, False)])
        return msgspec.json.Decoder(body)

    @property
    def _schema(self) -> Schema | None:
        return self._columns.schema

    def _role_type(self, role: str) -> Any:
        return {"label": str | float | int | bool, "id": str | int, "subject": str | int | None, "weight": float}[role]

    def _optional(self, roles: dict[str, Any]) -> set[str]:
        """Fields that may be left out: the subject of a record that has none."""
        return {self._schema.subject} if self._schema is not None and self._schema.subject is not None else set()

    def read(self, form: Form, body: bytes, *, operation: Operation | None, readmit: bool, most: int) -> Wanted:
        """The updates that a body asks for.

        Parameters
        ----------
        form, body
            The body.
        operation
            What is to be done with the rows of a table; None for JSON, which says so itself.
        readmit
            Whether records may come back that were deleted on request.
        most
            The most rows and names.

        Returns
        -------
        Wanted
            The updates.

        Raises
        ------
        InputError, Problem
            If the body cannot be read, or does not fit. The row and the field are named.
        """
        if form == "json":
            if operation is not None:
                raise invalid("operation is for CSV and Arrow; JSON says what is to be done itself", field="operation")
            return self._of_json(body, readmit, most)
        if operation is None:
            said = "say what is to be done with the rows: ?operation=add, delete or correct"
            raise invalid(said, field="operation")
        if self._schema is None:
            raise Problem(415, "unsupported-media-type", "this deployment has no column names: send JSON")
        roles = list(self._schema.roles.values())
        table = self._columns.table(form, body, exact=roles)
        _require_few(len(table), most)
        if not len(table):
            raise invalid("there are no rows")
        if operation == "delete":
            return Wanted(self._deletions_of(table, self._schema), readmit)
        if operation == "correct":
            return Wanted(Correct(**self._schema.corrections(table, self._classes)), readmit)
        return Wanted([self._addition_of(self._schema.labelled(table, self._classes), None)], readmit)

    def _of_json(self, body: bytes, readmit: bool, most: int) -> Wanted:
        try:
            found = self._decoder.decode(body)
        except msgspec.ValidationError as error:
            raise where_of(error, self._columns.names) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"the body is no JSON: {error}") from None
        updates = list[Update]()
        if found.delete is not None:
            _require_few(len(found.delete.ids) + len(found.delete.subjects), most)
            updates += self._deletions(found.delete)
        if found.add is not None:
            _require_few(len(found.add.rows), most)
            updates.append(self._addition(found.add))
        readmit = readmit or found.readmit
        if found.correct is None:
            if not updates:
                raise invalid("say what to delete, to add or to correct")
            return Wanted(updates, readmit)
        if updates:
            raise invalid("send a correction as a request of its own", field="correct")
        _require_few(len(found.correct.ids or found.correct.rows or ()), most)
        return Wanted(self._correction(found.correct), readmit)

    def _deletions(self, asked: Deletion) -> list[Update]:
        if asked.subjects and self._schema is not None and self._schema.subject is None:
            raise invalid("the records of this deployment have no subjects", field="subjects")
        ids: list[Update] = [Delete(each) for each in dict.fromkeys(self._keys(asked.ids, "id"))]
        return ids + [DeleteSubject(each) for each in dict.fromkeys(self._keys(asked.subjects, "subject"))]

    def _keys(self, names: Sequence[str | int | None], role: Literal["id", "subject"]) -> list[Any]:
        """Names as the kind of names that the deployment has."""
        schema = self._schema
        if schema is None:
            return list(names)
        kind = schema.id_kind if role == "id" else schema.subject_kind
        own = schema.roles.get(role)
        whose = f"the {role}s (column {own!r})" if own is not None else f"the {role}s"
        found = list[Any]()
        for number, name in enumerate(names, 1):
            if not isinstance(name, str):
                found.append(str(name) if kind == "str" and name is not None else name)
                continue
            try:
                found.append(match_key(name, kind=kind, what=f"{role}s", whose=whose))
            except InputError as error:
                raise invalid(str(error), row=number, field=f"{role}s") from None
        return found

    def _deletions_of(self, table: Table, schema: Schema) -> list[Update]:
        """The names in a table: ids in the column of the ids, subjects in that of the subjects."""
        known = {name: role for role, name in schema.roles.items() if role in ("id", "subject")}
        strange = [str(name) for name in table.frame.columns if name not in known]
        if strange or not known:
            there = " and ".join(repr(name) for name in known) or "none"
            raise InputError(f"{BODY} has column {strange[0]!r}, which is none of names; here these are {there}")
        updates = list[Update]()
        for name, role in known.items():
            if name not in table:
                continue
            kind = schema.id_kind if role == "id" else schema.subject_kind
            keys = match_keys(table.column(name), f"column {name!r} of {BODY}", kind=kind, missing=True).tolist()
            made: Any = Delete if role == "id" else DeleteSubject
            updates += [made(each) for each in dict.fromkeys(keys) if each is not None]
        return updates

    def _addition(self, asked: Any) -> AddMany:
        """The records that are to be added, as objects or as lists."""
        rows, schema = asked.rows, self._schema
        if not rows:
            raise invalid("there are no rows", field="rows")
        for name in ("ids", "labels", "subjects", "weights"):
            given = getattr(asked, name)
            if given is not None and len(given) != len(rows):
                raise invalid(f"{name} has {len(given):,} values for {len(rows):,} rows", field=name)
        if schema is None or self._columns.named is None or any(isinstance(row, list | str) for row in rows):
            return self._listed_addition(asked)
        import pandas as pd

        names = [*self._columns.fields(), *schema.roles.values()]
        columns = {name: [getattr(row, f"c{at}") for row in rows] for at, name in enumerate(names)}
        for role, name in schema.roles.items():
            if getattr(asked, _LISTS[role]) is not None:
                raise invalid(f"{_LISTS[role]} are in the rows here, as {name!r}", field=_LISTS[role])
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
        records = schema.labelled(Table(BODY, "json", frame), self._classes)
        ids = None if asked.ids is None else self._keys(asked.ids, "id")
        return self._addition_of(records, ids)

    def _listed_addition(self, asked: Any) -> AddMany:
        """Rows as lists of features, with ids, labels, subjects and weights beside them."""
        for name in (_ID, _LABELS):
            if getattr(asked, name) is None:
                raise invalid(f"rows that are lists need {name!r} beside them", field=name)
        rows = self._columns.listed_rows(asked.rows)
        if any(not isinstance(row, list | tuple | str) for row in rows):
            raise invalid("rows are objects or lists, not both", field="rows")
        return AddMany(
            ids=self._keys(asked.ids, "id"),
            features=self._columns.features(rows),
            labels=self._labels(asked.labels),
            subjects=None if asked.subjects is None else self._keys(asked.subjects, "subject"),
            weights=None if asked.weights is None else np.array(asked.weights, dtype=np.float64),
        )

    def _labels(self, labels: list[Any]) -> NDArray[Any]:
        """Labels in the type of the classes; numbers if there are none."""
        if not len(self._classes):
            return _numbers(labels)
        import pandas as pd

        return match_labels(pd.Series(labels, dtype=object), f"column 'labels' of {BODY}", self._classes)

    def _addition_of(self, records: Labelled, ids: list[RecordId] | None) -> AddMany:
        own = records.ids.tolist() if records.ids is not None else ids
        if own is None:
            raise invalid("the deployment has no column of ids: send them as a list, 'ids'", field="ids")
        return AddMany(
            ids=own,
            features=records.features,
            labels=records.labels,
            subjects=None if records.subjects is None else records.subjects.tolist(),
            weights=records.weights,
        )

    def _correction(self, asked: Any) -> Correct:
        """What records say from now on: objects with the id and the columns that change, or lists with ids beside."""
        rows, schema = asked.rows, self._schema
        if rows is not None and any(isinstance(row, dict) for row in rows):
            if schema is None or schema.id is None:
                raise invalid("send rows as lists, with 'ids' beside them", field="rows")
            return Correct(**schema.corrections(self._table_of(rows), self._classes))
        if asked.ids is None:
            raise invalid("say which records: 'ids'", field="ids")
        found: dict[str, Any] = {"ids": self._keys(asked.ids, "id")}
        if rows is not None:
            found["features"] = self._columns.features(self._columns.listed_rows(rows))
        if asked.labels is not None:
            found["labels"] = self._labels(asked.labels)
        if asked.subjects is not None:
            found["subjects"] = self._keys(asked.subjects, "subject")
        if asked.weights is not None:
            found["weights"] = np.array(asked.weights, dtype=np.float64)
        if len(found) == 1:
            raise invalid("say what to correct: rows, labels, subjects or weights")
        for name, values in found.items():
            if len(values) != len(found["ids"]):
                raise invalid(f"{name} has {len(values):,} values for {len(found['ids']):,} ids", field=name)
        return Correct(**found)

    def _table_of(self, rows: list[Any]) -> Table:
        import pandas as pd

        first = rows[0].keys() if isinstance(rows[0], dict) else set()
        for number, row in enumerate(rows, 1):
            if not isinstance(row, dict) or row.keys() != first:
                raise invalid(f"row {number:,} has other columns than row 1: send it as another request", row=number)
        frame = pd.DataFrame({name: pd.Series([row[name] for row in rows], dtype=object) for name in first})
        return Table(BODY, "json", frame)


def _struct(name: str, fields: list[Any]) -> Any:
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)


def _list_of(kind: Any) -> Any:
    return list[kind]


_LISTS: Final = {"id": "ids", "label": "labels", "subject": "subjects", "weight": "weights"}


def _numbers(values: list[Any]) -> NDArray[np.float64]:
    try:
        found = np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise invalid("labels must be numbers here, as many in each row", field="labels") from None
    if not np.isfinite(found).all():
        raise invalid("labels must be finite numbers", field="labels")
    return found


def _require_few(count: int, most: int) -> None:
    if count > most:
        raise Problem(413, "too-large", f"a request has at most {most:,} rows here, got {count:,}")
