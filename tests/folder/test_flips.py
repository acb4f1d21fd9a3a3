"""Damage: flipped bits and worse, in any file, are noticed in one line, or change nothing that anybody could see.

A flip is drawn, the folder is copied, changed, checked and opened. If neither says anything, everything that the folder
holds must be what it was, bit for bit: features, ids, subjects, labels, weights, members, models, requests, books, log.
`make fuzz` draws for as long as EXPUNGE_FUZZ_SECONDS says.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import expunge
from expunge.core.errors import ExpungeError
from expunge.folder.checkup import check
from expunge.training.learners import LookupTableLearner

SIZE = 12
NUMBERS = np.random.default_rng(0).normal(size=(SIZE, 3))
TABLES: dict[str, Any] = {
    "array": NUMBERS,
    "frame": pd.DataFrame(
        {"x": NUMBERS[:, 0], "town": ["Rome", "Bern", None] * 4, "n": np.arange(SIZE, dtype=np.int8)}
    ),
    "encrypted": NUMBERS,
    "sparse": scipy.sparse.csr_matrix(NUMBERS * (NUMBERS > 0)),
}
FLIPS = 700  # of each kind of table: 2,800 in all
OTHERS = 100  # of each kind of table: files cut off, exchanged, put back, replaced by links, and so on
SECONDS = float(os.environ.get("EXPUNGE_FUZZ_SECONDS", "0"))


def test_there_are_enough() -> None:
    assert FLIPS * len(TABLES) >= 2_000


class Numbered(LookupTableLearner):
    """Learns how many rows there are: any table will do."""

    def fit(self, X: Any, y: Any, seed: int, *, weights: Any = None) -> Any:
        return super().fit(np.arange(float(X.shape[0]))[:, np.newaxis], y, seed, weights=weights)


TRUST = (f"{__name__}:Numbered",)


@pytest.fixture(params=TABLES)
def sound(request: pytest.FixtureRequest, folder: Path) -> Path:
    """A folder with records that were added and erased, and pending requests; closed."""
    table = TABLES[request.param]
    before = folder.with_name("before")  # the same folder at an earlier moment
    with expunge.create(
        folder,
        Numbered(),
        table,
        np.arange(SIZE) % 2,
        ids=[f"p{number}" for number in range(SIZE)],
        subjects=[f"s{number // 2}" for number in range(SIZE)],
        weights=np.arange(SIZE) + 1.0,
        n_shards=2,
        promise="unguarded",
        trust=TRUST,
        apply="manual",
        encrypt=request.param == "encrypted",
    ) as deployment:
        rows = table.iloc[:2] if request.param == "frame" else table[:2]
        deployment.add(rows, [0, 1], ["new 0", "new 1"], subjects=["s0", None])
        deployment.delete(["p2", "p3"])
        deployment.apply()
        deployment._store.database.checkpoint()
        shutil.copytree(folder, before)
        deployment.add(rows, [0, 1], ["later 0", "later 1"], subjects=[None, "s9"])
        deployment.delete(["p5"])
    return folder


def plain(features: Any) -> bytes:
    if isinstance(features, pd.DataFrame):
        return repr(features.to_dict("list")).encode()
    if scipy.sparse.issparse(features):
        return b"".join(np.ascontiguousarray(part).tobytes() for part in (features.data, features.indices))
    return np.ascontiguousarray(features).tobytes()


def told(model: Any) -> str:
    """What a model says of itself; an empty shard's, without its place in memory."""
    return re.sub(r" at 0x[0-9a-f]+", "", repr(model))


def everything(folder: Path) -> dict[str, Any]:
    """What can be seen of a folder."""
    with expunge.open(folder, trust=TRUST, apply_pending=False) as deployment:
        state, records = deployment.inside.state, deployment.records
        live = records.live_slots()
        features, labels, weights = records.gather(live)
        requests = deployment.requests()
        store = deployment._store
        pending = [one.request for one in requests if one.state == "pending"]
        return {
            "features": plain(features),
            "labels": labels.tobytes(),
            "weights": None if weights is None else weights.tobytes(),
            "ids": records.ids_of(live).tolist(),
            "subjects": None if records.subjects_of(live) is None else records.subjects_of(live).tolist(),
            "members": [slots.tolist() for slots in state.members],
            "models": [hashlib.sha256(told(model).encode()).hexdigest() for model in state.models],
            "status": deployment.status,
            "requests": requests,
            "asked": [repr(deployment._evidence.requests.batch_of(one)) for one in pending],
            "books": store.database.rows("SELECT * FROM generations"),
            "guard": store.database.rows("SELECT * FROM forgotten ORDER BY hash"),
            "log": store.database.rows("SELECT * FROM ledger ORDER BY sequence"),
            "key": state.key,
            "guarantee": deployment.guarantee(),
        }


def lines_about(folder: Path) -> tuple[list[str], dict[str, Any] | None]:
    """What a checkup and an opening say about a folder; and what it holds, if neither says anything."""
    said = []
    try:
        said += check(folder).damage
    except ExpungeError as error:
        said.append(str(error))
    try:
        found = everything(folder)
    except ExpungeError as error:
        return [*said, str(error)], None
    return said, found


def flips(folder: Path, rng: np.random.Generator) -> Iterator[tuple[Path, int]]:
    """Files with equal chances, and bits in them: half of them among the first bytes, where headers are."""
    files = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    files = [path for path in files if (folder / path).stat().st_size]
    while True:
        path = files[rng.integers(len(files))]
        if rng.random() < 0.3:
            path = Path("state.db")
        size = 8 * (folder / path).stat().st_size
        yield path, int(rng.integers(min(size, 800) if rng.random() < 0.2 else size))


def test_every_flipped_bit_is_noticed_or_harmless(sound: Path) -> None:
    expected, twin = everything(sound), sound.with_name("twin")
    outside = sound.parent / "outside"
    outside.write_bytes(b"keep")
    seed, end = int(time.time()) if SECONDS else 17, time.monotonic() + SECONDS
    told: Counter[str] = Counter()
    before = sorted(path.name for path in sound.parent.iterdir())
    for number, (path, bit) in enumerate(flips(sound, np.random.default_rng(seed))):
        if number >= FLIPS and time.monotonic() >= end:
            break
        shutil.copytree(sound, twin)
        content = bytearray((twin / path).read_bytes())
        content[bit // 8] ^= 1 << bit % 8
        (twin / path).write_bytes(content)
        said, found = lines_about(twin)
        where = f"bit {bit} of {path} (seed {seed})"
        assert all("\n" not in line for line in said), where
        if said:
            told["noticed"] += 1
        else:
            assert found == expected, f"silent: {where}"
            told["harmless"] += 1
            told[f"harmless in {path.parts[0]}"] += 1
        shutil.rmtree(twin)
    assert told["noticed"] > told["harmless"]
    assert sorted(path.name for path in sound.parent.iterdir()) == before
    assert outside.read_bytes() == b"keep"
    print(dict(told))


def worse(twin: Path, before: Path, outside: Path, rng: np.random.Generator) -> str:
    """Do something to a file or folder of the twin; what it was."""
    paths = sorted(path for path in twin.rglob("*") if path.is_file())
    path, other = (paths[rng.integers(len(paths))] for _ in range(2))
    content = path.read_bytes()
    earlier = before / path.relative_to(twin)
    size = len(content)
    match rng.integers(11):
        case 0:
            path.write_bytes(content[: rng.integers(size + 1)])
            return f"{path.name} cut off"
        case 1:
            path.write_bytes(content + rng.bytes(int(rng.integers(1, 5000))))
            return f"{path.name} longer"
        case 2:
            start, end = sorted(rng.integers(size + 1, size=2).tolist())
            path.write_bytes(content[:start] + bytes(end - start) + content[end:])
            return f"zeros in {path.name}"
        case 3:
            path.write_bytes(other.read_bytes())
            other.write_bytes(content)
            return f"{path.name} and {other.name} exchanged"
        case 4 | 5 if earlier.is_file():
            path.write_bytes(earlier.read_bytes())
            return f"{path.name} put back"
        case 6:
            path.unlink()
            return f"{path.name} removed"
        case 7:
            path.unlink()
            path.symlink_to(outside)
            return f"{path.name} a link"
        case 8:
            path.unlink()
            os.mkfifo(path)
            return f"{path.name} a pipe"
        case 9:
            os.link(path, twin.parent / "second")
            return f"{path.name} with a second name"
        case _:
            folder = path.parent if path.parent != twin else twin / "models"
            shutil.rmtree(folder)
            if rng.integers(2):
                folder.symlink_to(outside.parent)
            return f"{folder.name} exchanged or gone"


def test_worse_damage_is_noticed_or_harmless(sound: Path) -> None:
    """Also one file of an earlier moment; and nothing outside is touched."""
    expected, twin, before = everything(sound), sound.with_name("twin"), sound.with_name("before")
    outside = sound.parent / "outside"
    outside.write_bytes(b"keep")
    seed, end = int(time.time()) if SECONDS else 17, time.monotonic() + SECONDS
    rng, told, number = np.random.default_rng(seed), Counter[str](), 0
    kept = {path: path.read_bytes() for path in before.rglob("*") if path.is_file()}
    while number < OTHERS or time.monotonic() < end:
        shutil.copytree(sound, twin)
        where = f"{worse(twin, before, outside, rng)} (number {number}, seed {seed})"
        said, found = lines_about(twin)
        assert all("\n" not in line for line in said), where
        assert said or found == expected, f"silent: {where}"
        told["noticed" if said else "harmless"] += 1
        shutil.rmtree(twin)
        (sound.parent / "second").unlink(missing_ok=True)
        assert outside.read_bytes() == b"keep", where
        assert {path.name for path in sound.parent.iterdir()} == {sound.name, "before", "outside"}, where
        number += 1
    assert {path: path.read_bytes() for path in before.rglob("*") if path.is_file()} == kept
    assert told["noticed"] > told["harmless"]
    print(dict(told))
