"""The columns of a deployment: bodies in JSON, CSV, Arrow and NPY become rows of features, or records to add.

What does not fit is refused by its row (from 1) and field. All of this is plain data, so that another process can read
large bodies while this one answers.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, fields
from functools import cached_property
from operator import attrgetter
from typing import Any, Final, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError
from expunge.core.features import Features, is_frame, missing_rows
from expunge.folder import DurableDeployment, Replica
from expunge.service.problems import Problem, invalid
from expunge.tables import Schema, Table
from expunge.tables.formats import arrow_columns, read_csv
from expunge.tables.schema import as_feature, place

Form = Literal["json", "csv", "arrow", "npy"]
#: Media types of bodies, and the form that each stands for.
FORMS: Final[dict[str, Form]] = {
    "application/json": "json",
    "text/csv": "csv",
    "application/vnd.apache.arrow.stream": "arrow",
    "application/vnd.apache.arrow.file": "arrow",
    "application/x-npy": "npy",
}
BODY: Final = "the body"
Kind = Literal["number", "boolean", "date", "time", "category", "text", "any"]

_TYPES: Final[dict[Kind, Any]] = {
    "number": float,
    "boolean": bool | int | str,
    "date": str,
    "time": str,
    "category": str | float | int | bool,
    "text": str,
    "any": str | float | int | bool,
}
_PATH: Final = re.compile(r"^(?P<what>.*?)(?: - at `\$(?P<path>.*)`)?$", re.DOTALL)
_ROW: Final = re.compile(r"\.rows\[(\d+)\](?:\.(.+)|\[(\d+)\])?$")
_PLAIN_NAME: Final = re.compile(r'[^"\\\x00-\x1f]+')
_NPY: Final = b"\x93NUMPY"
_MOST_HEADER: Final = 10_000

Row = Sequence[Any]


@dataclass(frozen=True)
class Columns:
    """What the rows of a deployment look like.

    Parameters
    ----------
    schema
        The columns as `expunge create` found them; None for a deployment that was made in Python.
    names
        The names of the columns; None if rows are arrays alone.
    kinds
        What each column holds.
    shape
        The shape of one row of an array; None if the features are a data frame.
    numbers
        The type of the numbers of an array, such as "float64"; "object" if it holds texts.
    allow_missing
        Whether values may be missing.
    """

    schema: Schema | None
    names: tuple[str, ...] | None
    kinds: tuple[Kind, ...]
    shape: tuple[int, ...] | None
    numbers: str
    allow_missing: bool

    @classmethod
    def of(cls, deployment: DurableDeployment | Replica) -> Columns:
        """The columns of a deployment."""
        records = deployment.records
        allow_missing = bool(records.allow_missing)
        stored = (deployment.provenance or {}).get("columns")
        if stored is not None:
            schema = Schema.from_dict(stored)
            if schema.shape is None:
                names = tuple(each.name for each in schema.features)
                kinds: tuple[Kind, ...] = tuple(each.kind for each in schema.features)
                is_array = all(kind == "number" for kind in kinds)
                return cls(schema, names, kinds, (len(names),) if is_array else None, schema.numbers, allow_missing)
            return cls(schema, None, (), schema.shape, schema.numbers, allow_missing)
        kind, columns = records.layout
        pattern = records.blocks[0].features
        if kind == "data frame":
            found = tuple(_kind_of(each) for each in pattern.dtypes)
            return cls(None, tuple(map(str, columns)), found, None, "object", allow_missing)
        return cls(None, None, (), tuple(columns), str(pattern.dtype), allow_missing)

    def __getstate__(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self)}  # what is derived is derived again

    @property
    def is_flat(self) -> bool:
        """Whether a row is one list of numbers."""
        return self.shape is not None and len(self.shape) == 1 and self.numbers != "object"

    @property
    def width(self) -> int | None:
        """How many values a row has; None if a row is no list."""
        if self.names is not None:
            return len(self.names)
        return self.shape[0] if self.shape else None

    @cached_property
    def _value(self) -> Any:
        """The type of a value in a row that is a list."""
        kinds: set[Kind] = set(self.kinds) or ({"number"} if self.numbers != "object" else {"any"})
        found: Any = None
        for kind in kinds:
            found = _TYPES[kind] if found is None else found | _TYPES[kind]
        return found | None if self.allow_missing or kinds - {"number"} else found

    @cached_property
    def listed(self) -> Any:
        """The type of a row that is a list."""
        if self.shape is None or len(self.shape) == 1:
            return list[self._value]  # type: ignore[name-defined]
        if not self.shape:  # a row is one text
            return self._value
        nested: Any = self._value
        for _ in self.shape:
            nested = list[nested]
        return nested

    @cached_property
    def named(self) -> Any:
        """The type of a row that is an object; None if columns have no names."""
        if self.names is None:
            return None
        return struct("Row", self.fields())

    def fields(self) -> dict[str, Any]:
        """The columns by name, each with the type of its values in JSON."""
        return {name: self._field(kind) for name, kind in zip(self.names or (), self.kinds, strict=False)}

    def _field(self, kind: Kind) -> Any:
        return _TYPES[kind] | None if self.allow_missing or kind != "number" else _TYPES[kind]

    @cached_property
    def _questions(self) -> msgspec.json.Decoder[Any]:
        row = self.listed if self.named is None else self.named | self.listed
        rows: Any = list[row]  # type: ignore[valid-type]
        return msgspec.json.Decoder(msgspec.defstruct("Questions", [("rows", rows)], forbid_unknown_fields=True))

    @cached_property
    def _get(self) -> Callable[[Any], Row]:
        """The values of a row that was an object, in the order of the columns."""
        assert self.names is not None
        if len(self.names) == 1:
            return lambda row: (row.c0,)
        return attrgetter(*[f"c{place}" for place in range(len(self.names))])

    def rows(self, body: bytes) -> list[Row]:
        """The rows of a JSON body `{"rows": […]}`, each a list of values in the order of the columns.

        Raises
        ------
        Problem
            If the body is no such JSON. It names the row and the field.
        """
        try:
            found = self._questions.decode(body).rows
        except msgspec.ValidationError as error:
            raise where_of(error, self.names) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise invalid(f"the body is no JSON: {error}") from None
        if not found:
            raise invalid("there are no rows", field="rows")
        return self.listed_rows(found)

    def listed_rows(self, rows: list[Any]) -> list[Row]:
        """Rows that were lists or objects, as sequences of values."""
        if self.named is not None:
            get, width = self._get, self.width
            rows = [row if type(row) is list else get(row) for row in rows]
            if {*map(len, rows)} != {width}:
                for number, row in enumerate(rows, 1):
                    if len(row) != width:
                        raise invalid(f"row {number:,} has {len(row):,} values, expected {width:,}", row=number)
        return rows

    def features(self, rows: Sequence[Row]) -> Features:
        """Rows from `rows` as features.

        Raises
        ------
        InputError, Problem
            If a value does not fit its column, or a row has another shape.
        """
        if self.is_flat:
            try:
                table = np.array(rows, dtype=np.float64)
            except ValueError:
                table = np.empty((0, 0))
            if table.shape != (len(rows), self.width):
                for number, row in enumerate(rows, 1):
                    if len(row) != self.width:
                        raise invalid(f"row {number:,} has {len(row):,} values, expected {self.width:,}", row=number)
            return self._cast(table)
        if self.shape is not None:
            return self._array(rows)
        import pandas as pd

        assert self.names is not None
        columns = {name: [row[place] for row in rows] for place, name in enumerate(self.names)}
        frame = pd.DataFrame({name: pd.Series(values, dtype=object) for name, values in columns.items()})
        return self.of_table(Table(BODY, "json", frame))

    def _cast(self, table: NDArray[Any]) -> NDArray[Any]:
        """Numbers in their type, each finite, or a gap where gaps may be."""
        with np.errstate(over="ignore"):
            found = table.astype(self.numbers, copy=False) if self.numbers in ("float32", "float64") else table
        self.check(found)
        return found

    def check(self, features: Features) -> Features:
        """The same features; an error that names the row and the field of a number that is none, or is infinite."""
        if is_frame(features):
            if not self.allow_missing and len(missing := missing_rows(features)):
                raise invalid(f"row {missing[0] + 1:,} has a gap or an infinite number", row=int(missing[0]) + 1)
            return features
        if features.dtype.kind != "f":
            return features
        with np.errstate(all="ignore"):
            if np.isfinite(features.sum()):
                return features
        bad = np.isinf(features) if self.allow_missing else ~np.isfinite(features)
        for cell in np.argwhere(bad)[:1]:
            row, at = int(cell[0]) + 1, int(cell[1]) if len(cell) > 1 else 0
            field = self.names[at] if self.names is not None else str(at + 1)
            raise invalid(f"row {row:,}, field {field!r}: expected a finite number", row=row, field=field)
        return features

    def _array(self, rows: Sequence[Any]) -> NDArray[Any]:
        """Rows of another shape than one list of numbers, or of texts."""
        assert self.shape is not None
        if self.numbers == "object":
            table = np.empty((len(rows), *self.shape), dtype=object)
            for number, row in enumerate(rows, 1):
                if self.shape and len(row) != self.shape[0]:
                    raise invalid(f"row {number:,} has {len(row):,} values, expected {self.shape[0]:,}", row=number)
                table[number - 1] = row
            return table
        found = np.empty((len(rows), *self.shape), dtype=np.float64)
        for number, row in enumerate(rows, 1):
            try:
                one = np.array(row, dtype=np.float64)
            except ValueError:
                one = np.empty(0)
            if one.shape != self.shape:
                raise invalid(f"row {number:,} has another shape than {self.shape}", row=number)
            found[number - 1] = one
        return self._cast(found)

    def read(self, form: Form, body: bytes) -> Features:
        """The rows of a whole body.

        Parameters
        ----------
        form
            What the body is.
        body
            Its bytes.

        Returns
        -------
        array or data frame
            The features, one row or more.

        Raises
        ------
        InputError, Problem
            If the body cannot be read, or a value does not fit.
        """
        if form == "json":
            return self.features(self.rows(body))
        if form == "npy":
            return self._of_npy(body)
        if form == "arrow" and self.is_flat and (numbers := self._of_arrow(body)) is not None:
            return numbers
        table = self.table(form, body)
        if not len(table):
            raise invalid("there are no rows")
        return self.of_table(table)

    def table(self, form: Form, body: bytes, *, exact: Sequence[str] = ()) -> Table:
        """A CSV or Arrow body as a table; columns in `exact` are read letter by letter."""
        texts = {name for name, kind in zip(self.names or (), self.kinds, strict=False) if kind not in _NUMBERS}
        if form == "csv":
            if not body.strip():
                raise invalid("the body is empty; its first row must name the columns")
            frame = read_csv(
                io.BytesIO(body), BODY, as_text=frozenset(exact), text_features=frozenset(texts), numbers="float64"
            )
            return Table(BODY, "csv", frame)
        if form == "arrow":
            found = arrow_columns(_open_arrow(body), BODY, numbers="float64", exact=frozenset(exact))
            return Table(BODY, "arrow", found)
        raise Problem(415, "unsupported-media-type", "this takes JSON, CSV or Arrow")

    def of_table(self, table: Table) -> Features:
        """The features of a table with named columns, in any order."""
        if self.schema is not None and self.schema.shape is None:
            return self.check(self.schema.unlabelled(table))
        names = [str(name) for name in table.frame.columns]
        wanted: Sequence[str] = names if self.names is None else self.names
        kinds: Sequence[Kind] = self.kinds if self.names is not None else ["number" for _ in names]
        if self.names is None and (len(names) != self.width or not self.is_flat):
            raise InputError(f"{BODY} has {len(names):,} columns; rows of shape {self.shape} are needed")
        for name in wanted:
            if name not in names:
                raise InputError(f"{BODY} lacks column {name!r}")
        for name in names:
            if name not in wanted:
                raise InputError(f"{BODY} has column {name!r}, which this deployment does not know")
        columns: dict[str, Any] = {}
        for name, kind in zip(wanted, kinds, strict=True):
            values = table.frame[name]
            columns[name] = values if kind == "any" else as_feature(values, kind, "float64", place(table, name))
        if self.shape is not None:
            return self._cast(np.column_stack(list(columns.values())))
        import pandas as pd

        return self.check(pd.DataFrame(columns))

    def _of_arrow(self, body: bytes) -> NDArray[Any] | None:
        """A table of Arrow that holds these columns as plain numbers, and nothing else; None for any other."""
        table = _open_arrow(body)
        names = table.column_names
        known = len(names) == self.width if self.names is None else sorted(names) == sorted(self.names)
        if not known or not len(table) or len(set(names)) < len(names):
            return None
        columns = [table.column(name) for name in self.names or names]
        if any(each.null_count or str(each.type) not in _PLAIN_TYPES for each in columns):
            return None
        found = np.empty((len(table), len(columns)))
        for at, each in enumerate(columns):
            found[:, at] = each.to_numpy()
        return self._cast(found)

    def _of_npy(self, body: bytes) -> NDArray[Any]:
        """An NPY array, read without a copy. Its size is checked before it is believed."""
        array = read_npy(body)
        shape = self.shape if self.shape is not None else (len(self.names or ()),)
        if array.dtype.kind not in "fiub" or self.numbers == "object":
            raise invalid(f"the array holds {array.dtype}; numbers are needed, for columns that are all numbers")
        if self.shape is None:
            raise invalid("an array is for columns that are all numbers; send JSON, CSV or Arrow")
        if array.shape[1:] != shape:
            raise invalid(f"the array has rows of shape {array.shape[1:]}, expected {shape}")
        if not len(array):
            raise invalid("there are no rows")
        return self._cast(np.asarray(array, dtype=np.float64) if array.dtype.kind != "f" else array)

    def described(self) -> dict[str, Any]:
        """The columns, as plain data for `GET /v1/schema`."""
        return {
            "features": None
            if self.names is None
            else [{"name": name, "kind": kind} for name, kind in zip(self.names, self.kinds, strict=True)],
            "shape": None if self.shape is None else list(self.shape),
            "allow_missing": self.allow_missing,
        }

    def json_schema(self) -> dict[str, Any]:
        """The JSON Schema of one row."""
        forms: list[dict[str, Any]] = []
        if self.names is not None:
            fields = {name: self._schema_of(kind) for name, kind in zip(self.names, self.kinds, strict=True)}
            forms.append(
                {"type": "object", "properties": fields, "required": list(self.names), "additionalProperties": False}
            )
        value: dict[str, Any] = {"type": "number"} if self.numbers != "object" else {}
        if self.names is not None:
            columns = [self._schema_of(kind) for kind in self.kinds]
            forms.append({"type": "array", "prefixItems": columns, "minItems": len(columns), "maxItems": len(columns)})
        elif self.shape == ():
            forms.append({"type": "string"})
        else:
            for size in reversed(self.shape or ()):
                value = {"type": "array", "items": value, "minItems": size, "maxItems": size}
            forms.append(value)
        return forms[0] if len(forms) == 1 else {"anyOf": forms}

    def _schema_of(self, kind: Kind) -> dict[str, Any]:
        types = {
            "number": ["number"],
            "boolean": ["boolean"],
            "date": ["string"],
            "time": ["string"],
            "text": ["string"],
        }
        found = types.get(kind, ["string", "number", "boolean"])
        if self.allow_missing or kind != "number":
            found = [*found, "null"]
        return {"type": found[0] if len(found) == 1 else found, **({"format": "date"} if kind == "date" else {})}


_NUMBERS: Final = frozenset({"number", "boolean"})
_PLAIN_TYPES: Final = frozenset({"double", "float", *(f"int{size}" for size in (8, 16, 32, 64))})


def _kind_of(dtype: Any) -> Kind:
    kind = getattr(dtype, "kind", "O")
    return "number" if kind in "iuf" else "boolean" if kind == "b" else "any"


def struct(name: str, fields: dict[str, Any], *, optional: Collection[str] = ()) -> Any:
    """A type for objects with exactly these fields, which become c0, c1, …; optional ones are None if left out."""
    strange = [each for each in fields if not _PLAIN_NAME.fullmatch(each)]
    if strange:
        raise InputError(f"column {strange[0]!r:.80} cannot be a field of JSON: rename it")
    rename = {f"c{place}": each for place, each in enumerate(fields)}
    typed: list[Any] = [
        (f"c{place}", kind, None) if each in optional else (f"c{place}", kind)
        for place, (each, kind) in enumerate(fields.items())
    ]
    return msgspec.defstruct(name, typed, rename=rename, forbid_unknown_fields=True, gc=False)


def where_of(error: msgspec.ValidationError, names: Sequence[str] | None) -> Problem:
    """What the decoder did not accept, with its row and field. `names` are those of the columns, if they have any."""
    found = _PATH.match(str(error))
    assert found is not None
    what, path = found["what"], found["path"] or ""
    at, unknown = _ROW.search(path), re.search(r"(?:unknown|required) field `(.*)`", what)
    if at is None:
        field = unknown[1] if unknown else path.removeprefix(".") or None
        return invalid(_words(what) if unknown or field is None else f"{field}: {_words(what)}", field=field)
    row, field = int(at[1]) + 1, unknown[1] if unknown else at[2]
    if at[3] is not None:
        field = str(int(at[3]) + 1) if names is None else dict(enumerate(names)).get(int(at[3]))
    where = f"row {row:,}" + ("" if field is None else f", field {field!r:.80}")
    return invalid(f"{where}: {_words(what)}", row=row, field=field)


def _words(what: str) -> str:
    """The decoder's message as people write it."""
    return what[:1].lower() + what[1:].replace("`", "'")


def _open_arrow(body: bytes) -> Any:
    import pyarrow as pa

    try:
        source = pa.BufferReader(body)
        table = (pa.ipc.open_file(source) if body[:6] == b"ARROW1" else pa.ipc.open_stream(source)).read_all()
        table.validate(full=True)
        return table
    except Exception as error:  # whatever a damaged body makes of it
        raise invalid(f"the body is no Arrow that can be read: {' '.join(str(error).split())[:200]}") from None


def read_npy(body: bytes) -> NDArray[Any]:
    """An array in NPY form, without a copy. Objects are refused, and so is a size that is not that of the body.

    Parameters
    ----------
    body
        The bytes of the file.

    Returns
    -------
    array
        The array, which cannot be written to.

    Raises
    ------
    Problem
        If it is no such array.

    Examples
    --------
    >>> stream = io.BytesIO()
    >>> np.save(stream, np.eye(2))
    >>> read_npy(stream.getvalue()).tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    stream = io.BytesIO(body)
    try:
        if body[:6] != _NPY:
            raise ValueError("it does not begin as one")
        version = np.lib.format.read_magic(stream)
        read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
        shape, is_fortran, dtype = read(stream, max_header_size=_MOST_HEADER)
        if dtype.hasobject or dtype.names is not None or dtype.subdtype is not None or not shape:
            raise ValueError("it must hold plain numbers, in rows")
        count, start = 1, stream.tell()
        for size in shape:
            count *= size
        if count * dtype.itemsize != len(body) - start:
            raise ValueError(f"its header says {count:,} values of {dtype}, which is not what follows")
        flat = np.frombuffer(body, dtype=dtype, offset=start, count=count) if count else np.empty(0, dtype)
        return flat.reshape(shape, order="F" if is_fortran else "C")
    except Exception as error:  # NumPy reads the header as a piece of Python, which may fail in any way
        raise invalid(f"the body is no NPY array that can be read: {' '.join(str(error).split())[:200]}") from None
