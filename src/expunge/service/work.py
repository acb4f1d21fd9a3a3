"""Long work in a process of its own, which `expunge.service.jobs` starts: recomputations, audits and measurements.

It reads the deployment's folder and never writes into it. It gives way to the service: its priority is the lowest, and
it takes one core. It ends with the service, also if that is killed: its standard input is then closed.

One line of JSON comes in: {"work": name, "folder": path, "trust": names, "options": {…}}. Lines of JSON go out:
{"total": steps}, {"steps": done since the last line}, and at the end {"result": …} or {"error": sentence}.
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from expunge.folder import Contents

Advance = Callable[[int], None]
_FAILED: Final = "it failed inside; the service's log says more"


class _Told:
    """What has been done, as lines on the standard output."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._out = os.fdopen(os.dup(sys.stdout.fileno()), "w", encoding="utf-8")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # what others print is no line of ours

    def tell(self, **line: Any) -> None:
        with self._lock:
            self._out.write(json.dumps(_plain(line)) + "\n")
            self._out.flush()

    def advance(self, steps: int) -> None:
        self.tell(steps=steps)

    @contextmanager
    def progress(self, what: str, total: int) -> Iterator[Advance]:
        """As a progress bar on a terminal."""
        self.tell(total=total, what=what)
        yield self.advance


def _plain(data: Any) -> Any:
    """The same data in the types of JSON; None for a number that is not finite."""
    match data:
        case Mapping():
            return {str(name): _plain(each) for name, each in data.items()}
        case list() | tuple():
            return [_plain(each) for each in data]
        case np.generic():
            return _plain(data.item())
        case float():
            return data if math.isfinite(data) else None
        case _:
            return data


def recompute(folder: str, trust: Sequence[str], told: _Told, *, shards: int | str, seed: str | None) -> dict[str, Any]:
    """Train shards again, and compare bits."""
    from expunge.audit import recompute as run
    from expunge.folder.disclosure import count_shards

    num_shards = count_shards(folder)
    told.tell(total=num_shards if shards == "all" else min(int(shards), num_shards), what="training shards again")
    wanted: Any = shards
    return run(folder, shards=wanted, seed=seed, trust=trust, advance=told.advance).to_dict()


def audit(
    folder: str, trust: Sequence[str], told: _Told, *, scenario: str, trials: int, records: int | None
) -> dict[str, Any]:
    """Attack a copy of the deployment, with fresh randomness, in two arms. `lookup` attacks plain SISA instead."""
    from expunge.audit import AuditRequest, copy_deployment, to_html
    from expunge.audit import audit as run

    own = scenario != "lookup"
    copied = copy_deployment(folder, trust=trust, num_records=records) if own else None
    built, scheme = AuditRequest(scenario=scenario, copy=copied).build()
    report = run(built, scheme, num_trials=trials, progress=told.progress)
    return {"report": report.to_dict(), "page": to_html(report)}


def measure(folder: str, trust: Sequence[str], told: _Told, *, promise: str, **options: Any) -> dict[str, Any]:
    """Compare numbers of shards on the deployment's records, or rehearse a consensus on them.

    The models are thrown away, and public coins give them.
    """
    from expunge.folder import contents

    with contents(folder, trust=trust) as found:
        if promise == "exact":
            return _compare(found, told, **options)
        from expunge.service import rehearsals

        return rehearsals.run(found.records, found.learner, progress=told.progress, **options)


def _compare(found: Contents, told: _Told, *, seconds: float) -> dict[str, Any]:
    from expunge.training.comparison import CANDIDATES, compare

    told.tell(total=int(seconds), what="measuring, in seconds")
    own, is_exact = found.settings.n_shards, found.settings.promise.is_exact
    units = len(found.records) // _FEWEST_A_SHARD
    wanted = sorted({1, own, *(each for each in CANDIDATES if each <= units)})
    made = compare(
        found.records,
        found.learner,
        num_shards=wanted,
        by_votes=not is_exact,
        seconds=seconds,
        advance=told.advance,
    )
    return asdict(made)


_FEWEST_A_SHARD: Final = 20
WORK: Final[dict[str, Callable[..., dict[str, Any]]]] = {"recompute": recompute, "audit": audit, "measure": measure}


def main() -> None:
    """Do what the line on the standard input asks for."""
    from expunge.core.errors import ExpungeError

    os.nice(19)
    told = _Told()
    asked = json.loads(sys.stdin.readline())
    threading.Thread(target=_end_with_the_service, daemon=True).start()
    if asked["trust"] and "" not in sys.path:
        sys.path.insert(0, "")
    try:
        told.tell(result=WORK[asked["work"]](asked["folder"], asked["trust"], told, **asked["options"]))
    except ExpungeError as error:
        told.tell(error=str(error))
    except MemoryError:
        told.tell(error="there is too little memory for it")
    except Exception:
        told.tell(error=_FAILED)
        raise


def _end_with_the_service() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    main()
