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
from expunge.core.errors import FormatError, StoreError
from expunge.core.place import Place
from expunge.folder.store import slabs
from expunge.folder.store.columns import Form
from expunge.folder.store.slabs import RecordFolder, _joined, _runs


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
    return RecordFolder.write(Place.hold(path.parent) / path.name, Form.of(block), [block])


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
    assert numbers_in(folder.read(4, [1, 3], [1, 3])) == [1, -1, 3, -1]
    for path in folder.path.iterdir():
        content = path.read_bytes()
        for trace in (b"id 7", b"subject 7", b"text 7", np.float32(7).tobytes(), np.float64(11).tobytes(), b"id 11"):
            assert trace not in content, path.name
    folder.erase(np.array([3, 1]))  # repeated after a crash, in any order
    assert numbers_in(folder.read(4, [1, 3])) == [1, -1, 3, -1]


def test_rows_that_lie_together_are_erased_by_few_reads_and_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A subject's records lie in few runs: neither the rows of each nor its neighbours are written or read singly."""
    folder = folder_of(tmp_path / "records", list(range(400)), texts=True)
    written, read = [], []
    write, spans = slabs.write_all, RecordFolder._spans
    monkeypatch.setattr(slabs, "write_all", lambda *words: written.append(words) or write(*words))
    monkeypatch.setattr(
        RecordFolder,
        "_spans",
        lambda self, column, low, high: read.append(high - low) or spans(self, column, low, high),
    )
    slots = [*range(10, 110), *range(200, 300)]
    folder.erase(np.array(slots))
    heaps = sum(column.dtype is None for column in folder.form.columns)
    assert heaps == 3
    assert len(written) <= 2 * heaps + 2 * len(folder.form.columns) + 2  # one a run in a heap, and few in the slabs
    assert sum(read) <= heaps * (len(slots) + 2 * 2 * 16)
    assert numbers_in(folder.read(400, slots, slots)) == [-1 if n in slots else n for n in range(400)]


def test_cutting_after_the_last_rows_were_erased_keeps_the_others(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", [1, 2, 3])
    folder.erase(np.array([2]))
    folder.cut(3)
    folder.append(block_of([4], start=3))
    assert numbers_in(folder.read(4, [2], [2])) == [1, 2, -1, 4]


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
    folder = RecordFolder.write(Place.hold(tmp_path) / "a", Form.of(block), [block])
    folder.cut(shape[0])
    found = folder.read(shape[0])
    assert found.features.shape == shape
    assert np.array_equal(found.features, features)
    assert found.ids is not None
    assert found.ids.tolist() == list(range(shape[0]))


def test_spans_that_follow_one_another_are_one() -> None:
    assert _joined(np.array([[0, 3], [3, 4], [7, 0], [9, 2], [11, 1]])) == [(0, 7), (9, 12)]
    assert _joined(np.empty((0, 2), dtype=np.int64)) == []


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
        erased = [slot for slot, number in enumerate(expected) if number < 0]
        assert numbers_in(folder.read(len(expected), erased, erased)) == expected
        assert not list(folder.verify(len(expected), erased, erased))
        assert folder.total(len(expected)) == folder.total(len(expected), erased)


def test_a_damaged_place_in_a_heap_has_nobody_else_overwritten(tmp_path: Path) -> None:
    """Rows lie in the order of their slots. The row to be erased says that it lies where another one does."""
    folder = folder_of(tmp_path / "a", [1, 2, 3, 4, 5])
    folder.erase(np.array([1]))
    slab, heap = folder.path / "ids.slab", folder.path / "ids.heap"
    sound, content = slab.read_bytes(), heap.read_bytes()
    for place in (2, 4):
        spans = np.frombuffer(sound, dtype="<i8").reshape(-1, 2)
        for wrong in (spans[0], spans[3] + 1, [0, 1000], [-4, 4], [4, -4], [2**62, 2**62], [spans[place, 0], 30]):
            changed = spans.copy()
            changed[place] = wrong
            changed.tofile(slab)
            with pytest.raises(FormatError, match=r"ids\.slab is damaged near row"):
                folder.erase(np.array([place]))
            assert heap.read_bytes() == content
    slab.write_bytes(sound)


def test_nothing_is_cut_off_by_the_word_of_a_damaged_row(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", [1, 2, 3])
    folder.append(block_of([4], start=3))  # of an update that failed
    slab, heap = folder.path / "ids.slab", folder.path / "ids.heap"
    content, spans = heap.read_bytes(), np.fromfile(slab, dtype="<i8").reshape(-1, 2)
    spans[2, 1] -= 2
    spans.tofile(slab)
    with pytest.raises(FormatError, match="the record in row 2 is not what was written"):
        folder.cut(3)
    assert heap.read_bytes() == content


def test_what_was_erased_is_not_gathered(tmp_path: Path) -> None:
    folder = folder_of(tmp_path / "a", [1, 2, 3])
    block = folder.read(3)
    assert block.take(np.array([0, 2])).tolist() == [[1, 1, 1], [3, 3, 3]]
    folder.erase(np.array([1]))
    with pytest.raises(StoreError, match="row 1 was erased while it was read"):
        block.take(np.array([0, 1]))
    assert block.take(np.array([2])).tolist() == [[3, 3, 3]]
