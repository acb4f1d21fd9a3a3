"""Answers of a prediction in the form that was asked for: JSON, CSV, Arrow or NPY."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from expunge.service.columns import FORMS, Form
from expunge.service.exchange import NO_STORE, Answer, Request
from expunge.service.problems import Problem
from expunge.serving.deployment import Published

_AT_ONCE: Final = 4096  # rows that are written before other threads get their turn
_TYPES: Final[dict[Form, str]] = {
    "json": "application/json",
    "csv": "text/csv; charset=utf-8",
    "arrow": "application/vnd.apache.arrow.stream",
    "npy": "application/x-npy",
}
_encode: Final = msgspec.json.Encoder().encode


def form_of_body(request: Request) -> Form:
    """The form of the body: JSON if nothing is said."""
    said = request.headers.get("content-type")
    form = "json" if said is None else FORMS.get(said)
    if form is not None:
        return form
    kind, _, rest = said.partition(";")
    form = FORMS.get(kind.strip().lower())
    charset = rest.strip().lower().removeprefix("charset=").strip('"')
    if form is None or (rest.strip().lower().startswith("charset=") and charset not in ("utf-8", "utf8", "us-ascii")):
        raise Problem(415, "unsupported-media-type", f"send one of {', '.join(FORMS)}", headers=[_accepts()])
    return form


def _accepts() -> tuple[str, str]:
    return "accept-post", ", ".join(FORMS)


def form_of_answer(request: Request, body: Form) -> Form:
    """The form that is asked for; that of the body if the caller does not mind."""
    said = request.headers.get("accept")
    if said is None or said.strip() in ("", "*/*"):
        return body
    if said == "application/json":
        return "json"
    wanted = list[tuple[float, int, Form]]()
    for place, each in enumerate(said.split(",")):
        kind, *options = (part.strip().lower() for part in each.split(";"))
        quality = next((option[2:] for option in options if option.startswith("q=")), "1")
        try:
            weight = float(quality)
        except ValueError:
            weight = 0.0
        if weight <= 0:
            continue
        if kind in ("*/*", "application/*"):
            wanted.append((-weight, place, body))
        elif kind == "text/*":
            wanted.append((-weight, place, "csv"))
        elif kind in FORMS:
            wanted.append((-weight, place, FORMS[kind]))
    if not wanted:
        raise Problem(406, "not-acceptable", f"answers come as one of {', '.join(FORMS)}")
    return min(wanted)[2]


@dataclass(frozen=True)
class Labels:
    """The labels that a deployment answers with.

    Parameters
    ----------
    values
        The labels, in the order of their codes; empty if numbers are predicted.
    """

    values: tuple[Any, ...]

    @classmethod
    def of(cls, classes: NDArray[Any]) -> Labels:
        """The labels of a deployment."""
        return cls(tuple(classes.tolist()))

    @cached_property
    def encoded(self) -> tuple[bytes, ...]:
        """Each label in JSON; the last one stands for no answer."""
        return tuple(_encode(each) for each in (*self.values, None))

    def named(self, codes: NDArray[np.int64]) -> list[Any]:
        """The label of each code; None where there is no answer."""
        known = (*self.values, None)  # the code -1 is the last one
        return [known[code] for code in codes.tolist()]

    def array(self, codes: NDArray[np.int64]) -> NDArray[Any]:
        """The labels as an array without objects: no answer is an empty text, or no number."""
        values = np.array(self.values)
        if values.dtype.kind == "U":
            return np.concatenate([values, [""]])[codes]
        if (codes < 0).any():
            return np.concatenate([values.astype(np.float64), [np.nan]])[codes]
        return values[codes]

    def column(self, code: int) -> str:
        """The name of the column of a class's probabilities."""
        return f"probability_{self.values[code]}"


def write(found: Published, labels: Labels, form: Form) -> Answer:
    """The answer, in this form."""
    body = _WRITERS[form](found, labels)
    given = found.codes if found.codes is not None else found.values
    assert given is not None
    return Answer(body, _TYPES[form], 200, [NO_STORE, ("expunge-round", str(found.round))], rows=len(given))


def _pieces(size: int) -> Iterator[slice]:
    for first in range(0, size, _AT_ONCE):
        yield slice(first, first + _AT_ONCE)


def _listed(values: Sequence[Any]) -> bytes:
    """The items of a JSON list, without its brackets."""
    return _encode(values)[1:-1]


def _json(found: Published, labels: Labels) -> bytes:
    end = b',"round":%d}' % found.round
    if found.codes is None:
        assert found.values is not None
        values = found.values
        return b'{"values":[' + b",".join(_listed(values[part].tolist()) for part in _pieces(len(values))) + b"]" + end
    codes = found.codes
    if len(codes) == 1:
        told = b'{"labels":[%b]' % labels.encoded[codes[0]]
    else:
        told = b'{"labels":[' + b",".join(_listed(labels.named(codes[part])) for part in _pieces(len(codes))) + b"]"
    if found.probabilities is not None:
        rows = found.probabilities
        shares = b",".join(_listed(rows[part].tolist()) for part in _pieces(len(rows)))
        told += b',"classes":' + _encode(list(labels.values)) + b',"probabilities":[' + shares + b"]"
    return told + end


def _csv(found: Published, labels: Labels) -> bytes:
    import pandas as pd

    columns = _columns(found, labels)
    return pd.DataFrame(columns).to_csv(index=False, lineterminator="\n").encode()


def _columns(found: Published, labels: Labels) -> dict[str, Any]:
    """The answers as columns: "prediction", and one for each probability."""
    if found.codes is None:
        values = found.values
        assert values is not None
        if values.ndim == 1:
            return {"prediction": values}
        flat = values.reshape(len(values), -1)
        return {f"prediction_{place + 1}": flat[:, place] for place in range(flat.shape[1])}
    columns: dict[str, Any] = {"prediction": labels.named(found.codes)}
    if found.probabilities is not None:
        columns |= {labels.column(code): found.probabilities[:, code] for code in range(len(labels.values))}
    return columns


def _arrow(found: Published, labels: Labels) -> bytes:
    import pyarrow as pa

    columns = _columns(found, labels) if found.codes is None else {}
    if found.codes is not None:
        codes = pa.array(found.codes, mask=found.codes < 0)
        columns["prediction"] = pa.array(list(labels.values)).take(codes)
        if found.probabilities is not None:
            columns |= {
                labels.column(code): pa.array(np.ascontiguousarray(found.probabilities[:, code]), from_pandas=True)
                for code in range(len(labels.values))
            }
    table, stream = pa.table(columns), pa.BufferOutputStream()
    with pa.ipc.new_stream(stream, table.schema) as writer:
        writer.write_table(table)
    return bytes(stream.getvalue())


def _npy(found: Published, labels: Labels) -> bytes:
    if found.probabilities is not None:
        array: NDArray[Any] = found.probabilities
    elif found.codes is not None:
        array = labels.array(found.codes)
    else:
        assert found.values is not None
        array = found.values
    stream = io.BytesIO()
    np.lib.format.write_array(stream, np.ascontiguousarray(array), allow_pickle=False)
    return stream.getvalue()


_WRITERS: Final[dict[Form, Callable[[Published, Labels], bytes]]] = {
    "json": _json,
    "csv": _csv,
    "arrow": _arrow,
    "npy": _npy,
}
