"""Lives one life in a folder, and prints what must not be found afterwards on the disk below it, as hexadecimal digits.

The arguments are the folder, the scenario, options of `create` as JSON, and what is left out of the protocol, if
anything is. Records are added and deleted again, requests are cancelled, all records are written anew, and the folder
is replaced by another one.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import invariants
from people import NUM_PEOPLE, Person, name_patterns, patterns_of
from sabotage import SABOTAGE
from scenarios import SCENARIOS
from story import Story, updates_of

import expunge

ACTS = ["add", "delete", "correct", "cancel", "delete subject", "reopen", "delete", "return", "retrain"]


def keys_of(folder: Path) -> set[bytes]:
    """The keys of an encrypted folder."""
    path = folder / "keys" / "erasure.key"
    content = path.read_bytes()[64:] if path.exists() else b""
    return {content[at : at + 32] for at in range(0, len(content), 32)}


def live(folder: Path, name: str, options: dict[str, Any]) -> list[bytes]:
    """Return what the bytes of everybody look like who was there, or was to come, and is not there any more."""
    scenario = SCENARIOS[name]
    scenario = replace(scenario, options={**scenario.options, **options})
    scenario.create(folder).close()
    told: list[dict[str, Any]] = []
    story = Story(scenario, folder, 7, lambda say, **facts: told.append({"say": say, **facts}))
    keys = keys_of(folder)
    story.act(ACTS)
    with expunge.open(folder) as deployment:  # added, and deleted before it is applied
        coming = updates_of({"add": [(900, 0), (901, 0)]}, scenario)
        request = deployment.submit(coming)
        deployment.cancel(request.request)
        deployment.submit(updates_of({"add": [(902, 0)]}, scenario))
        deployment.submit(updates_of({"delete": [902]}, scenario))
        deployment.apply()
        there = set(deployment.records.ids())
    invariants.check_database(folder)
    everybody = [Person(number) for number in [*range(NUM_PEOPLE), 900, 901, 902]]
    everybody += [Person(*pair) for one in told for pair in one.get("add", [])]
    gone = [person for person in everybody if person.name(scenario.ids) not in there]
    assert len(gone) > 8
    found = [pattern for person in gone for pattern in patterns_of(person, scenario.table)]
    found += keys - keys_of(folder)
    return found + [pattern for person in gone for pattern in name_patterns(person.name(scenario.ids))]


if __name__ == "__main__":
    if len(sys.argv) > 4:
        SABOTAGE[sys.argv[4]]()
    print(json.dumps([pattern.hex() for pattern in live(Path(sys.argv[1]), sys.argv[2], json.loads(sys.argv[3]))]))
