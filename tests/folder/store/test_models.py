"""Models on disk: each is read when it is first asked for, once, and stays where it is when others change."""

from __future__ import annotations

import copy
import hashlib
import pickle
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expunge.core.errors import FormatError
from expunge.folder.codec import encode_model
from expunge.folder.store import models as models_module
from expunge.folder.store.models import ModelFile, StoredModels
from expunge.folder.store.packs import SALT_BYTES
from expunge.training.learners import ConstantModel, LookupTableLearner

LEARNER = LookupTableLearner()
MODELS = [LEARNER.fit(np.array([[float(n)], [9.0]]), np.array([0, 1]), n) for n in range(5)]


@pytest.fixture
def files(tmp_path: Path) -> list[ModelFile]:
    (tmp_path / "models").mkdir()
    made = []
    for number, model in enumerate(MODELS):
        encoded = encode_model(LEARNER, model)
        content = encoded.data + bytes([number]) * SALT_BYTES
        (tmp_path / "models" / f"m{number}").write_bytes(content)
        made.append((f"m{number}", encoded.format, hashlib.sha256(content).digest()))
    return made


def found(tmp_path: Path, files: list[ModelFile]) -> StoredModels:
    return StoredModels.find(tmp_path, files, LEARNER, trusted=())


def test_nothing_is_read_before_it_is_asked_for(tmp_path: Path, files: list[ModelFile]) -> None:
    models = found(tmp_path, files)
    assert (len(models), models.num_read) == (5, 0)
    assert models[2] == MODELS[2]
    assert models[-1] == MODELS[4]
    assert models.num_read == 2
    assert models[2] is models[2]
    assert models[1:3] == (MODELS[1], MODELS[2])
    assert models == MODELS == list(models)
    assert tuple(MODELS) == models
    assert models != MODELS[:4]
    with pytest.raises(IndexError):
        models[5]


def test_others_stay_on_the_disk_when_some_change(tmp_path: Path, files: list[ModelFile]) -> None:
    before = found(tmp_path, files)
    one = before[1]
    after = before.with_changed({3: ConstantModel(1)})
    assert (before.num_read, after.num_read) == (1, 2)
    assert after[1] is one
    assert after[0] is before[0]  # read once, for both
    assert after[3] == ConstantModel(1)
    assert before[3] == MODELS[3]


def test_a_model_that_is_kept_outlives_its_file(tmp_path: Path, files: list[ModelFile]) -> None:
    models = found(tmp_path, files)
    (tmp_path / "models" / "m4").write_bytes(b"damaged")
    models.keep([0, 4])
    for name in ("m0", "m1", "m4"):
        (tmp_path / "models" / name).unlink()
    assert models[0] == MODELS[0]
    for shard in (1, 4):
        with pytest.raises(FormatError, match=f"m{shard} is missing"):
            models[shard]


def test_a_file_that_is_missing_is_named_without_reading_any(tmp_path: Path, files: list[ModelFile]) -> None:
    (tmp_path / "models" / "m3").unlink()
    with pytest.raises(FormatError, match=r"models/m3 is missing"):
        found(tmp_path, files)


def test_every_changed_bit_is_found_when_the_file_is_read(tmp_path: Path, files: list[ModelFile]) -> None:
    path = tmp_path / "models" / "m0"
    sound = path.read_bytes()
    for bit in range(0, 8 * len(sound), 97):
        damaged = bytearray(sound)
        damaged[bit // 8] ^= 1 << bit % 8
        path.write_bytes(damaged)
        with pytest.raises(FormatError, match="m0 is not what was written"):
            found(tmp_path, files)[0]


@pytest.mark.parametrize("name", ["../secret", "/etc/passwd", "a/b", "..", ""])
def test_a_name_that_leads_elsewhere_is_refused(tmp_path: Path, files: list[ModelFile], name: str) -> None:
    (tmp_path / "secret").write_bytes(b"")
    with pytest.raises(FormatError, match=r"damaged|missing"):
        found(tmp_path, [(name, *files[0][1:])])


def test_threads_that_ask_at_once_get_one_object(
    tmp_path: Path, files: list[ModelFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    models, decoded, gate, got = found(tmp_path, files), [], threading.Barrier(6), []

    def counted(*args: Any, decode: Any = models_module.decode_model, **options: Any) -> Any:
        decoded.append(1)
        return decode(*args, **options)

    monkeypatch.setattr(models_module, "decode_model", counted)

    def ask() -> None:
        gate.wait()
        got.append(models[0])

    threads = [threading.Thread(target=ask) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(decoded) == 1
    assert all(model is got[0] for model in got)


def test_pickled_and_copied_they_need_no_files(tmp_path: Path, files: list[ModelFile]) -> None:
    models = found(tmp_path, files)
    raw, twin = pickle.dumps(models), copy.deepcopy(models)
    for path in (tmp_path / "models").iterdir():
        path.unlink()
    assert pickle.loads(raw) == tuple(MODELS) == twin
