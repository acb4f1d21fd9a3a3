"""Encrypted folders: everything works as in others, nothing is in the clear, and a deletion destroys keys."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse

import expunge
from expunge.core.errors import FormatError
from expunge.folder import contents, open_view
from expunge.folder.checkup import check
from expunge.training.learners import LookupTableLearner

COUNT = 40
ROWS = np.random.default_rng(0).normal(size=(COUNT, 3))
TABLES: dict[str, Any] = {
    "float64": ROWS,
    "float32": ROWS.astype(np.float32),
    "truths": ROWS > 0,
    "frame": pd.DataFrame({"x": ROWS[:, 0], "town": ["Rome", "Bern"] * 20, "n": np.arange(COUNT, dtype=np.int8)}),
    "sparse": scipy.sparse.csr_matrix(ROWS * (ROWS > 0)),
}


class Numbered(LookupTableLearner):
    """Learns how many rows there are: any table will do."""

    def fit(self, X: Any, y: Any, seed: int, *, weights: Any = None) -> Any:
        return super().fit(np.arange(float(X.shape[0]))[:, np.newaxis], y, seed, weights=weights)


TRUST = (f"{__name__}:Numbered",)


def create(folder: Path, table: Any, **options: Any) -> Any:
    return expunge.create(
        folder,
        Numbered(),
        table,
        np.arange(COUNT) % 2,
        ids=[f"person-{number}" for number in range(COUNT)],
        subjects=[f"household-{number // 3}" for number in range(COUNT)],
        n_shards=3,
        apply="manual",
        trust=TRUST,
        encrypt=True,
        **options,
    )


def plain(features: Any) -> list[Any]:
    if isinstance(features, pd.DataFrame):
        return list(features.to_dict("list").values())
    return list((features.toarray() if scipy.sparse.issparse(features) else np.asarray(features)).tolist())


def first(table: Any, count: int) -> Any:
    return table.iloc[:count] if isinstance(table, pd.DataFrame) else table[:count]


@pytest.mark.parametrize("promise", ["exact", "noise"])
@pytest.mark.parametrize("table", TABLES.values(), ids=list(TABLES))
def test_a_life_in_an_encrypted_folder(folder: Path, table: Any, promise: str) -> None:
    """Nothing of a person is ever in the clear, and there are as many keys as records, models and pending requests."""
    chosen = promise if promise == "exact" else expunge.Noise("laplace", max_predictions=10**6)
    with create(folder, table, promise=chosen) as deployment:
        keys = deployment._store.keys
        assert keys.num_keys == COUNT + 3
        deployment.add(first(table, 2), [0, 1], ["new-0", "new-1"])
        cancelled = deployment.delete(["person-9"]).request
        deployment.delete(["person-3"])
        deployment.delete(subjects=["household-4"])
        assert keys.num_keys == COUNT + 3 + 4
        deployment.cancel(cancelled)
        assert keys.num_keys == COUNT + 3 + 3
        deployment.apply()
        assert keys.num_keys == len(deployment.records) + 3 == 41
        deployment.add(first(table, 2), [0, 1], ["late-0", "late-1"])
    with expunge.open(folder, trust=TRUST) as deployment:
        assert deployment.apply() == 2
        deployment.delete(["late-0"], apply=True)
        deployment.rekey()
        records = deployment.records
        live = records.live_slots()
        found, labels, _ = records.gather(live)
        names = records.ids_of(live).tolist()
        expected = {f"person-{number}": number for number in range(COUNT)} | {"new-0": 0, "new-1": 1, "late-1": 1}
        places = [expected[name] for name in names]
        wanted = table.iloc[places] if isinstance(table, pd.DataFrame) else table[places]
        assert plain(found) == plain(wanted)
        assert labels.tolist() == [place % 2 for place in places]
        assert deployment._store.keys.num_keys == len(records) + 3
    assert check(folder).is_sound
    with contents(folder, trust=TRUST) as seen:
        assert len(seen.records) == len(names)
    assert open_view(folder).status.num_records == len(names)
    everything = b"".join(path.read_bytes() for path in folder.rglob("*") if path.is_file())
    for pattern in (b"person-", b"household-", b"late-", b"Rome", *(row.tobytes() for row in ROWS)):
        assert pattern not in everything


def test_a_lost_or_damaged_key_file_is_one_line_and_nothing_is_changed(folder: Path) -> None:
    create(folder, ROWS).close()
    path = folder / "keys" / "erasure.key"
    sound = path.read_bytes()
    path.unlink()
    with pytest.raises(FormatError, match=r"erasure.key is missing: without it nobody can read"):
        expunge.open(folder, trust=TRUST)
    assert not check(folder).is_sound
    for damaged in (sound[:64] + bytes(32) + sound[96:], sound[:70] + b"?" + sound[71:], b"?" + sound[1:], sound[:80]):
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match=r"erasure\.key"):
            expunge.open(folder, trust=TRUST)
        assert path.read_bytes() == damaged
    path.write_bytes(sound)
    expunge.open(folder, trust=TRUST).close()


def test_what_is_written_again_has_another_key(folder: Path) -> None:
    with create(folder, ROWS) as deployment:
        path = folder / "keys" / "erasure.key"
        before = path.read_bytes()[64:]
        deployment.rekey()
        after = path.read_bytes()
        assert not [at for at in range(0, len(before), 32) if before[at : at + 32] in after]
