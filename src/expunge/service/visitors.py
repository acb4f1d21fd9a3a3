"""Made-up visitors of a demonstration: predictions now and then, and a deletion or an addition every few seconds.

They run in a process of their own, which ends with the service. One line of JSON comes in on the standard input: the
address, the key, and what the visitors know.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import random
import sys
import threading
import time
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Final

from expunge.core.errors import ExpungeError
from expunge.service.client import Client

_TICK: Final = 0.25  # seconds
_PERIOD: Final = 45.0  # seconds from one rush to the next
_MOST_ROWS: Final = 12
_BETWEEN_CHANGES: Final = (6.0, 14.0)  # seconds


@dataclass(frozen=True)
class Visit:
    """What the visitors know.

    Parameters
    ----------
    url, key
        The service, and an operator's key of it.
    rows
        Rows to ask about.
    ids
        Records that they may delete.
    labels
        The labels of the rows: with them some are added.
    """

    url: str
    key: str
    rows: list[list[float]]
    ids: list[int]
    labels: list[Any]

    def to_line(self) -> bytes:
        """The line that `main` reads."""
        return json.dumps(asdict(self)).encode() + b"\n"


def visit(known: Visit, chance: random.Random) -> None:
    """Visit the service until it is gone."""
    client, ids = Client(known.url, known.key), iter(chance.sample(known.ids, len(known.ids)))
    next_change, number = time.monotonic() + _BETWEEN_CHANGES[0], itertools.count(1)
    while True:
        rush = 1 + math.sin(2 * math.pi * time.monotonic() / _PERIOD)
        chosen = chance.choices(known.rows, k=1 + chance.randrange(1 + round(_MOST_ROWS * rush / 2)))
        with suppress(ExpungeError):  # a refusal is not shown on a page
            client._json("POST", "/v1/predictions", {"rows": chosen})
            if time.monotonic() > next_change:
                next_change = time.monotonic() + chance.uniform(*_BETWEEN_CHANGES)
                client._json("POST", "/v1/updates", _change(known, chance, next(ids, None), next(number)))
        time.sleep(_TICK * chance.uniform(0.5, 1.5))


def _change(known: Visit, chance: random.Random, record: int | None, number: int) -> dict[str, Any]:
    """Delete a record, or several; now and then, and when none is left, add some."""
    if record is not None and number % 4:
        return {"delete": {"ids": [record]}}
    places = chance.sample(range(len(known.rows)), min(3, len(known.rows)))
    added = {
        "rows": [known.rows[each] for each in places],
        "labels": [known.labels[each] for each in places],
        "ids": [f"visitor-{os.getpid()}-{number}-{each}" for each in places],
    }
    return {"add": added}


def main() -> None:
    """Read what the visitors know, and visit until the service ends."""
    known = Visit(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    with suppress(OSError):
        visit(known, random.Random())


def _end_with_the_service() -> None:
    sys.stdin.read()
    os._exit(0)


if __name__ == "__main__":
    main()
