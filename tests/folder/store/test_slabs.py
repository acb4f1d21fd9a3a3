"""Columns on disk: appended, cut back to what was committed, overwritten where a record is erased."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from expunge.core.blocks import Block, object_column
from expunge.core.errors import FormatError
from expunge.folder.store.columns import Form
from expunge.folder.store.slabs import RecordFolder, _runs


def block_of(numbers: list[int], *, start: int = 0, texts: bool = False) -> Block:
    """A record a number, with the number in every column."""
    features: Any = np.array(numbers, dtype=np.float32)[:, None] * np.ones((1, 3), dtype=np.float32)
    if texts:
        features = pd.DataFrame({"a": [f"text {n}" * (n % 4) for n in numbers], "b": np.array(numbers, dtype=float)})
    return Block(
        start,
        features,
        np.array(numbers, dtype=np.int32),
        object_column([f"id {n}" for n in numbers]),
        object_column([f"subject {n}" for n in numbers]),
        np.array(numbers, dtype=np.float64),
    )


def folder_of(path: Path, numbers: list[int], *, texts: bool = False) -> RecordFolder:
    block = block_of(numbers, texts=texts)
    return RecordFolder.write(path, Form.of(block), [block])


def numbers_in(block: Block) -> list[int]:
    """What `block_of` was given, with every column saying the same; -1 for an erased row."""
    found = []
    for row in range(len(block)):
        assert block.ids is not None
        assert block.subjects is not None
        assert block.weights is not None
        if block.ids[row] is None:
            assert block.subjects[row] is None
            assert block.weights[row] == block.labels[row] == 0
            found.append(-1)
            continue
        number = int(block.labels[row])
        assert block.ids[row] == f"id {number}"
        assert block.subjects[row] == f"subject {number}"
        assert block.weights[row] == number
        if isinstance(block.features, pd.DataFrame):
            assert block.features["a"].iloc[row] == f"text {number}" * (number % 4)
            assert block.features["b"].iloc[row] == number
        else:
            assert (block.features[row] == number).all()
        found.append(number)
    return found


@pytest.mark.parametrize("texts", [False, True])
def test_written_rows_are_read(tmp_path: Path, texts: bool) -> None:
    folder = folder_of(tmp_path / "a", [3, 1, 2], texts=texts)
    assert numbers_in(folder.read(3)) == [3, 1, 2]
    folder.append(block_of([9, 8], start=3, texts=texts))
    assert numbers_in(folder.read(5)) == [3, 1, 2, 9, 8]
    assert numbers_in(folder.read(3)) == [3, 1, 2]  # what is not committed does not count


def test_nobody_else_may_read_the_files(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", [1])
    assert (folder.path.stat().st_mode & 0o777) == 0o700
    assert {path.stat().st_mode & 0o777 for path in folder.path.iterdir()} == {0o600}


@pytest.mark.parametrize("texts", [False, True])
def test_rows_past_the_committed_ones_are_cut_off(tmp_path: Path, texts: bool) -> None:
    folder = folder_of(tmp_path / "a", [1, 2], texts=texts)
    before = {path.name: path.read_bytes() for path in folder.path.iterdir()}
    folder.append(block_of([7, 7, 7], start=2, texts=texts))
    folder.cut(2)
    assert {path.name: path.read_bytes() for path in folder.path.iterdir()} == before
    folder.append(block_of([5], start=2, texts=texts))
    assert numbers_in(folder.read(3)) == [1, 2, 5]


def test_a_slab_that_is_too_short_is_damaged(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", [1, 2])
    with pytest.raises(FormatError, match="expected"):
        folder.cut(3)


def test_a_heap_that_is_too_short_is_damaged(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", [1, 2])
    (folder.path / "ids.heap").write_bytes(b"")
    with pytest.raises(FormatError, match=r"ids\.heap"):
        folder.read(2)


@pytest.mark.parametrize("texts", [False, True])
def test_an_erased_row_leaves_no_byte_in_any_file(tmp_path: Path, texts: bool) -> None:
    folder = folder_of(tmp_path / "a", [1, 7, 3, 11], texts=texts)
    folder.erase(np.array([1, 3]))
    assert numbers_in(folder.read(4)) == [1, -1, 3, -1]
    for path in folder.path.iterdir():
        content = path.read_bytes()
        for trace in (b"id 7", b"subject 7", b"text 7", np.float32(7).tobytes(), np.float64(11).tobytes(), b"id 11"):
            assert trace not in content, path.name
    folder.erase(np.array([3, 1]))  # repeated after a crash, in any order
    assert numbers_in(folder.read(4)) == [1, -1, 3, -1]


def test_cutting_after_the_last_rows_were_erased_keeps_the_others(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", [1, 2, 3])
    folder.erase(np.array([2]))
    folder.cut(3)
    folder.append(block_of([4], start=3))
    assert numbers_in(folder.read(4)) == [1, 2, -1, 4]


def test_features_stay_on_the_disk(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", list(range(50)))
    features = folder.read(50).features
    assert isinstance(features.base, np.memmap)
    assert not features.flags.writeable
    assert Path(features.base.filename) == folder.path / "features.slab"
    folder.erase(np.array([5]))
    assert (features[5] == 0).all()  # the same bytes, not a copy of them


@pytest.mark.parametrize("shape", [(0, 3), (4, 0), (0, 0), (2, 3, 2), (3,)])
def test_shapes_at_the_edge(tmp_path: Path, shape: tuple[int, ...]) -> None:
    features = np.arange(np.prod(shape), dtype=np.float64).reshape(shape)
    block = Block(0, features, np.zeros(shape[0], dtype=np.int32), None, None, None)
    folder = RecordFolder.write(tmp_path / "a", Form.of(block), [block])
    folder.cut(shape[0])
    found = folder.read(shape[0])
    assert found.features.shape == shape
    assert np.array_equal(found.features, features)
    assert found.ids is not None
    assert found.ids.tolist() == list(range(shape[0]))


def test_runs() -> None:
    assert _runs(np.array([], dtype=np.int64)) == []
    assert _runs(np.array([2, 3, 4, 8, 10, 11])) == [(2, 3), (8, 1), (10, 2)]


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.sampled_from(["append", "erase", "cut", "fail"]), st.integers(0, 4)), max_size=12),
    st.booleans(),
)
def test_any_sequence_of_steps(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[str, int]], texts: bool
) -> None:
    folder = folder_of(tmp_path_factory.mktemp("slabs") / "a", [1, 2, 3], texts=texts)
    expected, fresh = [1, 2, 3], 10
    for step, size in steps:
        if step in ("append", "fail"):
            folder.cut(len(expected))
            numbers = list(range(fresh, fresh + size))
            fresh += size
            folder.append(block_of(numbers, start=len(expected), texts=texts))
            expected += numbers if step == "append" else []
        elif step == "erase":
            slots = list(range(0, len(expected), size + 1))
            folder.erase(np.array(slots))
            for slot in slots:
                expected[slot] = -1
        else:
            folder.cut(len(expected))
        assert numbers_in(folder.read(len(expected))) == expected
