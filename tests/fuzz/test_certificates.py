"""Certificates that were changed anywhere: `verify` says wrong or unusable, and never holds, raises or takes long."""

from __future__ import annotations

import base64
import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.evidence import verify
from expunge.training.learners import LookupTableLearner

COUNT = 400
ODD = (None, True, -1, 0, 2**63, 10**400, 1e308, 0.1, "", "x", "\ud800", "\u0000", [], {}, [[]], "2020-01-01T00:00:00Z")


@pytest.fixture(scope="module")
def signed(tmp_path_factory: pytest.TempPathFactory) -> list[bytes]:
    """Certificates of two requests and of the deployment."""
    home = tmp_path_factory.mktemp("signed") / "churn"
    with expunge.create(home, LookupTableLearner(), np.eye(6), [0, 1] * 3, n_shards=2) as deployment:
        gone, came = deployment.delete([3]), deployment.add(np.ones((1, 6)), [1], [77])
        return [deployment.certificate(one).to_json() for one in (None, gone.request, came.request)]


def nodes(tree: Any) -> list[tuple[Any, Any]]:
    """Every place in a tree: its container and its key."""
    found, waiting = [], [tree]
    while waiting:
        here = waiting.pop()
        for key in list(here) if isinstance(here, dict) else range(len(here)) if isinstance(here, list) else ():
            found.append((here, key))
            waiting.append(here[key])
    return found


def changed_tree(tree: Any, rng: np.random.Generator) -> None:
    """Replace, remove, exchange, double or rename something."""
    places = nodes(tree)
    here, key = places[rng.integers(len(places))]
    there, other = places[rng.integers(len(places))]
    match rng.integers(6):
        case 0:
            here[key] = ODD[rng.integers(len(ODD))]
        case 1:
            del here[key]
        case 2 if here is not there or key != other:
            here[key], there[other] = json.loads(json.dumps((there[other], here[key])))
        case 3 if isinstance(here, dict):
            here[f"{key}{'x' * int(rng.integers(2))}"] = here.pop(key)
        case 4 if isinstance(here, list):
            here.append(json.loads(json.dumps(here[key])))
        case _ if isinstance(here[key], str) and here[key]:
            at = rng.integers(len(here[key]))
            here[key] = here[key][:at] + chr(rng.integers(32, 127)) + here[key][at + 1 :]
        case _:
            here[key] = [here[key]]


def changed(data: bytes, rng: np.random.Generator) -> bytes:
    """Changed bytes, a changed envelope, or a changed payload inside of the envelope."""
    kind = rng.integers(4)
    if kind == 0:
        raw = bytearray(data)
        for _ in range(rng.integers(1, 4)):
            raw[rng.integers(len(raw))] ^= 1 << rng.integers(8)
        return bytes(raw)
    if kind == 1:
        start, end = sorted(rng.integers(len(data) + 1, size=2))
        return data[:start] + data[end:] if rng.integers(2) else data[:end] + data[start:]
    tree = json.loads(data)
    if kind == 2 or "payload" not in tree:
        changed_tree(tree, rng)
    else:
        payload = json.loads(base64.b64decode(tree["payload"]))
        changed_tree(payload, rng)
        tree["payload"] = base64.b64encode(json.dumps(payload).encode()).decode()
    return json.dumps(tree).encode()


def test_no_changed_certificate_is_accepted(signed: list[bytes], draws: Any) -> None:
    originals = [verify(data) for data in signed]
    assert all(found.outcome == "holds" for found in originals)
    met: Counter[str] = Counter()
    for seed, rng in draws(COUNT):
        which = int(rng.integers(len(signed)))
        found = verify(changed(signed[which], rng))
        met[found.outcome] += 1
        if found.outcome == "holds":  # spaces between words, for example
            assert found.certificate == originals[which].certificate, seed
        else:
            assert found.wrong, seed
            assert all(line and "\n" not in line for line in found.wrong), (seed, found.wrong)
    assert met["holds"] < 0.2 * met.total()
    print(dict(met))


def test_the_program_answers_1_or_2(signed: list[bytes], draws: Any, tmp_path: Path, run: Any) -> None:
    for seed, rng in draws(15):
        which = int(rng.integers(len(signed)))
        data = changed(signed[which], rng)
        (tmp_path / "certificate.json").write_bytes(data)
        done = run("verify", tmp_path / "certificate.json")
        assert done.code in ((0,) if verify(data).outcome == "holds" else (1, 2)), (seed, done)
