"""The end of an update on the disk: what was replaced is erased, then the requests behind it count as applied."""

from __future__ import annotations

from expunge.durable.evidence import Evidence
from expunge.guarantees import Guarantee
from expunge.store import Store, erase
from expunge.store.steps import reach


def finish(store: Store, evidence: Evidence) -> None:
    """Erase what a switch replaced; then, and only then, the requests behind it count as applied."""
    switched = evidence.requests.in_state("switched")
    if not switched and store.database.row("SELECT 1 FROM dead WHERE erased = 0 LIMIT 1") is None:
        return
    erase(store)
    tick = evidence.clock.done()
    with store.database.transaction():
        reach("applied.open")
        store.database.execute("UPDATE dead SET erased = 1 WHERE erased = 0")
        for one in switched:
            evidence.requests.finish(one.request, applied_by=tick)
            evidence.ledger.write("applied", tick, request=one.request, generation=one.generation, round=one.round)
    reach("applied.done")


def write_guarantee(store: Store, found: Guarantee) -> None:
    """For those who only look at the folder."""
    numbers = {name: getattr(found, name) for name in ("alpha", "beta", "gamma", "theorem", "note")}
    form = {} if found.form == "paper" else {"form": found.form}
    known = {**numbers, **form, "parameters": dict(found.parameters), "assumptions": list(found.assumptions)}
    store.state_fact("guarantee", known)
