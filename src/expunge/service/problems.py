"""What goes wrong, as answers: problem details (RFC 9457) that name the field and the row.

No answer quotes votes, shards, or anything else that depends on ζ. An error that is not foreseen is told to the
operator's log, and to the caller as "internal", with the id of the request.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

from expunge.core.errors import (
    BudgetExhaustedError,
    DuplicateRecordError,
    ExpungeError,
    InputError,
    NotPublishedError,
    ParameterError,
    RecordError,
    RequestError,
    StoreError,
    TrainingError,
    UnknownRecordError,
)

_PLACE: Final = re.compile(r"rows? ([\d,]+)(?: of)?(?: column '(.*?)'(?= of| is|$))?")
_COLUMN: Final = re.compile(r"column '(.*?)'(?= of| is| does|, which|$)")

#: The kinds of problems, each with its title. The kind is the end of the problem's type.
KINDS: Final = {
    "unauthorized": "No valid key or token",
    "forbidden": "This key may not do that",
    "not-found": "There is no such thing",
    "method-not-allowed": "Another method is needed",
    "misdirected": "Another process answers this",
    "not-acceptable": "No such form of answer",
    "unsupported-media-type": "No such form of body",
    "too-large": "The body or batch is too large",
    "too-many-requests": "Too many requests",
    "invalid": "The request is wrong",
    "unknown-record": "A record or subject is not there",
    "duplicate-record": "A record is there already",
    "conflict": "The request does not fit the present state",
    "idempotency": "The idempotency key was used for another request",
    "not-published": "The promise does not allow this",
    "budget-exhausted": "The budget of predictions is used up",
    "unavailable": "The service cannot do this now",
    "timeout": "The body came too slowly",
    "internal": "Something went wrong inside",
}


class Problem(Exception):
    """An answer that says what is wrong.

    Parameters
    ----------
    status
        The HTTP status.
    kind
        One of `KINDS`.
    detail
        What is wrong, in a sentence.
    errors
        What is wrong where: each with a "message", and "row" (from 1) and "field" where they are known.
    headers
        More headers of the answer.
    """

    def __init__(
        self,
        status: int,
        kind: str,
        detail: str,
        *,
        errors: Sequence[dict[str, Any]] = (),
        headers: Sequence[tuple[str, str]] = (),
    ) -> None:
        super().__init__(detail)
        self.status, self.kind, self.detail = status, kind, detail
        self.errors, self.headers = list(errors), list(headers)

    def to_dict(self, request_id: str) -> dict[str, Any]:
        """The members of the problem."""
        return {
            "type": f"urn:expunge:problem:{self.kind}",
            "title": KINDS[self.kind],
            "status": self.status,
            "detail": self.detail,
            "request_id": request_id,
            **({"errors": self.errors} if self.errors else {}),
        }


def invalid(message: str, *, row: int | None = None, field: str | None = None) -> Problem:
    """A request that is wrong, at this row (from 1) and field."""
    where: dict[str, Any] = {"message": message}
    if row is not None:
        where["row"] = row
    if field is not None:
        where["field"] = field
    return Problem(400, "invalid", message, errors=[where] if len(where) > 1 else [])


def problem_of(error: Exception) -> Problem | None:
    """The problem that an error of the package is told as; None for one that is told as "internal"."""
    match error:
        case Problem():
            return error
        case UnknownRecordError():
            return Problem(409, "unknown-record", str(error), errors=_at(error))
        case DuplicateRecordError():
            return Problem(409, "duplicate-record", str(error), errors=_at(error))
        case NotPublishedError():
            return Problem(409, "not-published", str(error))
        case BudgetExhaustedError():
            return Problem(409, "budget-exhausted", str(error))
        case RequestError() if "idempotency key" in str(error):
            return Problem(422, "idempotency", str(error))
        case RequestError():
            return Problem(409, "conflict", str(error))
        case TrainingError() | StoreError():
            return None
        case InputError() | ParameterError():
            return Problem(400, "invalid", str(error), errors=_at(error))
        case ExpungeError():
            return Problem(400, "invalid", str(error))
        case _:
            return None


def _at(error: Exception) -> list[dict[str, Any]]:
    """Where the message of an error says that it is."""
    message, found = str(error), dict[str, Any]()
    if isinstance(error, RecordError):
        found["record"] = error.record if isinstance(error.record, int | str) else str(error.record)
    if place := _PLACE.search(message):
        found["row"] = int(place[1].replace(",", ""))
    if column := _COLUMN.search(message):
        found["field"] = column[1]
    return [{"message": message, **found}] if found else []
