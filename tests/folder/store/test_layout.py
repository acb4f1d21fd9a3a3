"""Where records lie on disk: in the recipe's order after every rewrite, so that the bytes tell of no history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
import expunge.training.ensemble
from expunge.core.randomness import Randomness
from expunge.folder.store.slabs import RecordFolder
from expunge.training.learners import ConstantModel, LookupTableLearner

SIZE = 60
X = np.random.default_rng(0).normal(size=(SIZE, 3)).astype(np.float32)


def make(folder: Path, numbers: Any, *, sampling: str = "partition", texts: bool = False) -> Any:
    table: Any = X[numbers]
    if texts:
        table = np.array([f"text {number}" * (number % 5) for number in numbers], dtype=object)
    return expunge.create(
        folder,
        LookupTableLearner(),
        table,
        np.array(numbers) % 2,
        classes=[0, 1],
        ids=[f"p{number}" if texts else int(number) for number in numbers],
        subjects=[f"s{number // 3}" for number in numbers] if texts else None,
        n_shards=5,
        promise="unguarded",
        sampling=sampling,
        rng=Randomness.from_seed(3),
    )


def stored(folder: Path) -> dict[str, bytes]:
    (epoch,) = (folder / "records").iterdir()
    return {path.name: path.read_bytes() for path in epoch.iterdir()}


@pytest.mark.parametrize("texts", [False, True])
@pytest.mark.parametrize("sampling", ["partition", "independent"])
def test_the_bytes_after_a_rewrite_are_those_of_a_new_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, sampling: str, texts: bool
) -> None:
    how: dict[str, Any] = {"sampling": sampling, "texts": texts}
    monkeypatch.setattr(LookupTableLearner, "fit", fit_anything)  # texts too
    left = [number for number in range(SIZE) if number % 4]
    make(tmp_path / "new", left, **how).close()
    make(tmp_path / "shuffled", np.random.default_rng(1).permutation(left), **how).close()
    assert stored(tmp_path / "new") == stored(tmp_path / "shuffled")
    monkeypatch.setattr(expunge.training.ensemble, "_DEAD_SLOTS_ALLOWED", -10)
    with make(tmp_path / "old", np.arange(SIZE)[::-1], **how) as deployment:
        deployment.delete([f"p{number}" if texts else number for number in range(0, SIZE, 4)])
    assert (tmp_path / "old" / "records" / "000002").exists()
    assert stored(tmp_path / "old") == stored(tmp_path / "new")


def fit_anything(self: Any, rows: Any, y: Any, seed: int, *, weights: Any = None) -> Any:
    return ConstantModel(int(y[0]))


def runs(deployment: Any) -> int:
    return sum(1 + int((np.diff(slots) != 1).sum()) for slots in deployment.inside.state.members if len(slots))


def test_a_shard_is_one_run_of_rows_and_again_under_a_new_key(tmp_path: Path) -> None:
    with make(tmp_path / "a", range(SIZE)) as deployment:
        assert runs(deployment) == 5
        key = deployment.inside.state.key
        deployment.add(X[:4] + 1, [0, 1, 0, 1], [100, 101, 102, 103])
        assert runs(deployment) > 5  # appended
        deployment.rekey()
        assert deployment.inside.state.key != key
        assert runs(deployment) == 5
    with expunge.open(tmp_path / "a") as found:
        assert runs(found) == 5
        assert len(found.records) == SIZE + 4


def test_records_are_written_in_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    make(tmp_path / "whole", range(SIZE), texts=False).close()
    sizes = []
    really_append = RecordFolder.append

    def append(self: RecordFolder, block: Any, **options: Any) -> int:
        sizes.append(len(block))
        return really_append(self, block, **options)

    monkeypatch.setattr(RecordFolder, "append", append)
    monkeypatch.setattr("expunge.folder.store.ensembles._MOST_ROWS", 7)
    make(tmp_path / "pieces", range(SIZE), texts=False).close()
    assert sizes == [7] * 8 + [4]
    assert stored(tmp_path / "whole") == stored(tmp_path / "pieces")


def test_a_deleted_record_leaves_no_column_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It alone had a subject, and an id that is text."""
    monkeypatch.setattr(expunge.training.ensemble, "_DEAD_SLOTS_ALLOWED", -10)
    with make(tmp_path / "a", range(SIZE)) as deployment:
        before = {*stored(tmp_path / "a")}
        deployment.add(X[:1], [1], ["a text"], subjects=["somebody"])
        assert {*stored(tmp_path / "a")} - before == {"ids.heap", "subjects.heap", "subjects.slab"}
        deployment.delete(["a text", *range(10)])
        assert {*stored(tmp_path / "a")} == before
