"""Audit bundles: what an outside auditor gets, and what is refused."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.linear_model import LogisticRegression

import expunge
from expunge.audit import recompute
from expunge.core.errors import FormatError, ParameterError, StoreError
from expunge.evidence import SigningKey
from expunge.folder import ModelCommitment, disclose, disclosure, export_for_audit
from expunge.folder.codec import Encoded
from expunge.folder.store import Store
from expunge.folder.store.columns import Form
from expunge.folder.store.packs import parted
from expunge.folder.store.slabs import RecordFolder
from expunge.training.learners.named import named_learner

SIZE = 60
RNG = np.random.default_rng(0)
NUMBERS = RNG.normal(size=(SIZE, 3))
TABLE = pd.DataFrame(
    {"x": NUMBERS[:, 0], "colour": pd.Categorical(RNG.choice(["red", "blue"], SIZE)), "n": ["a"] * SIZE}
)
KINDS = {"x": "number", "colour": "category", "n": "category"}
LABELS = np.where(NUMBERS[:, 0] > 0, "yes", "no")


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundle of a deployment with text ids, subjects and weights, after deletions."""
    home = tmp_path_factory.mktemp("sound")
    options = {"ids": [f"p{i}" for i in range(SIZE)], "subjects": [f"h{i // 2}" for i in range(SIZE)]}
    make(home / "clinic", NUMBERS, weights=np.linspace(0, 1, SIZE), **options).close()
    with expunge.open(home / "clinic") as deployment:
        deployment.delete(["p4"])
        deployment.delete(subjects=["h9"])
    export_for_audit(home / "clinic", home / "bundle")
    return home / "bundle"


@pytest.fixture
def bundle(sound: Path, tmp_path: Path) -> Path:
    """A bundle to be changed at will, far from its deployment."""
    return Path(shutil.copytree(sound, tmp_path / "bundle"))


def make(path: Path, X: Any, learner: Any = None, **options: Any) -> Any:
    options = {"n_shards": 4, "promise": "unguarded", "sampling": "partition", **options}
    return expunge.create(path, learner or LogisticRegression(), X, LABELS, **options)


@pytest.mark.parametrize(
    ("X", "learner", "options"),
    [
        (NUMBERS, None, {}),
        (NUMBERS.astype(np.float32), None, {"sampling": "independent", "inclusion_probability": 0.3}),
        (scipy.sparse.csr_matrix(NUMBERS), None, {"ids": [f"ä{i}" for i in range(SIZE)]}),
        (TABLE, named_learner("tree", columns=KINDS), {"ids": [str(i) if i % 2 else i for i in range(SIZE)]}),  # type: ignore[arg-type]
        (TABLE, named_learner("logistic", columns=KINDS), {"classes": ["maybe", "no", "yes"]}),  # type: ignore[arg-type]
    ],
    ids=["array", "independent", "sparse", "frame", "classes"],
)
def test_a_bundle_serves_an_auditor_without_the_folder(X: Any, learner: Any, options: Any, tmp_path: Path) -> None:
    with make(tmp_path / "clinic", X, learner, **options) as deployment:
        deployment.delete(deployment.inside.state.records.ids()[3:6])
        export_for_audit(tmp_path / "clinic", tmp_path / "bundle")  # while it is being served
    shutil.rmtree(tmp_path / "clinic")
    found = recompute(tmp_path / "bundle", shards="all")
    assert found.agrees
    assert (found.source, found.key, found.num_records, found.round) == ("bundle", "matches", SIZE - 3, 1)


def test_a_bundle_says_what_the_folder_says(sound: Path) -> None:
    folder, bundle = disclose(sound.parent / "clinic"), disclose(sound)
    assert bundle.signed_by == SigningKey.load(sound.parent / "clinic/keys/signing.pem").public_key.fingerprint
    for name in ("name", "deployment", "generation", "round", "key", "commitment", "num_shards", "sampler", "learner"):
        assert getattr(folder, name) == getattr(bundle, name), name
    one, other = (found.records.extract(found.records.live_slots()) for found in (folder, bundle))
    for name in ("features", "labels", "ids", "subjects", "weights"):
        assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert folder.models == bundle.models
    assert folder.models_commitment == bundle.models_commitment
    assert len({model.salt for model in folder.models.values() if model is not None}) == 4


def test_a_stale_model_is_found_from_the_bundle(sound: Path, tmp_path: Path) -> None:
    clinic = Path(shutil.copytree(sound.parent / "clinic", tmp_path / "clinic"))
    (first,), (second,) = (list((clinic / "models").glob(f"0000{shard}-*")) for shard in (1, 2))
    first.write_bytes(second.read_bytes())
    export_for_audit(clinic, tmp_path / "bundle")
    assert recompute(tmp_path / "bundle", shards="all").different == (1,)


def test_a_bundle_holds_nothing_of_the_deleted(sound: Path) -> None:
    held = b"".join(path.read_bytes() for path in sound.rglob("*") if path.is_file())
    assert b'"p5"' in held
    assert b'"p4"' not in held
    assert b'"h9"' not in held
    assert NUMBERS[4].tobytes() not in held
    assert NUMBERS[5].tobytes() in held


def test_only_the_owner_reads_a_bundle(sound: Path) -> None:
    assert {path.stat().st_mode & 0o077 for path in [sound, *sound.rglob("*")]} == {0}


def flip(name: str) -> Callable[[Path], None]:
    def change(bundle: Path) -> None:
        content = bytearray((bundle / name).read_bytes())
        content[len(content) // 2] ^= 1
        (bundle / name).write_bytes(bytes(content))

    return change


def drop(name: str) -> Callable[[Path], None]:
    return lambda bundle: (bundle / name).unlink()


def signed(change: Callable[[dict[str, Any]], Any]) -> Callable[[Path], None]:
    """Change the manifest and sign it anew, as a stranger can."""

    def apply(bundle: Path) -> None:
        manifest = json.loads((bundle / "manifest.json").read_bytes())
        change(manifest)
        text = json.dumps(manifest).encode()
        key = SigningKey.generate()
        signature = key.sign(b"expunge audit bundle 1\x00" + text).hex()
        (bundle / "manifest.json").write_bytes(text)
        (bundle / "signature.json").write_text(
            json.dumps({"public_key": key.public_key.to_pem(), "signature": signature})
        )

    return apply


def link(bundle: Path) -> None:
    outside = bundle.parent / "outside"
    (bundle / "records/labels.slab").rename(outside)
    os.symlink(outside, bundle / "records/labels.slab")


def bad_label(bundle: Path) -> None:
    """Whoever signs can make the checksums fit too."""
    np.full(SIZE - 3, 7, dtype="<i4").tofile(bundle / "records/labels.slab")
    form = Form.from_json(json.loads((bundle / "manifest.json").read_text())["schema"]["form"])
    sums = RecordFolder(bundle / "records", form)._sums_on_disk(np.arange(SIZE - 3))
    sums.tofile(bundle / "records/checksums.slab")
    names = ["records/labels.slab", "records/checksums.slab"]
    digests = {name: hashlib.sha256((bundle / name).read_bytes()).hexdigest() for name in names}
    signed(lambda found: found["files"].update(digests))(bundle)


def swapped_rows(bundle: Path) -> None:
    features = np.fromfile(bundle / "records/features.slab", dtype=np.uint8).reshape(SIZE - 3, -1)
    features[[0, 1]] = features[[1, 0]]
    features.tofile(bundle / "records/features.slab")
    digest = hashlib.sha256((bundle / "records/features.slab").read_bytes()).hexdigest()
    signed(lambda found: found["files"].update({"records/features.slab": digest}))(bundle)


BROKEN = [
    (flip("learner"), "changed after it was signed: learner has another digest"),
    (flip("records/features.slab"), "changed after it was signed: records/features.slab"),
    (flip("records/ids.heap"), "changed after it was signed: records/ids.heap"),
    (flip("manifest.json"), "changed after it was signed: manifest.json"),
    (flip("signature.json"), "bundle"),
    (drop("signature.json"), "cannot be read: No such file"),
    (drop("records/labels.slab"), "cannot be read: No such file"),
    (link, "is a link; expunge does not follow links"),
    (bad_label, "a record has a label that is no class"),
    (swapped_rows, "the record in row 0 is not what was written: features.slab"),
    (signed(lambda found: found.update(format=2)), "has format 2; this version of expunge reads 1"),
    (signed(lambda found: found.update(kind="a cake")), "no audit bundle"),
    (signed(lambda found: found.pop("recipe")), "malformed: KeyError: 'recipe'"),
    (signed(lambda found: found["models"].pop()), "3 commitments for 4 shards"),
    (signed(lambda found: found["models"][0].__setitem__(1, "00")), "32 bytes each"),
    (signed(lambda found: found["recipe"].update(key="00")), "a recipe key is 32 bytes"),
    (signed(lambda found: found["recipe"].update(sampling="by hand")), "there is no sampling 'by hand'"),
    (signed(lambda found: found.update(num_records=10**15)), "another length"),
    (signed(lambda found: found["files"].update({"../x": "0"})), "its list of files does not fit"),
    (
        signed(lambda found: found["schema"]["form"]["features"][0].update(name="../../secret")),
        "there is no column '../../secret'",
    ),
    (signed(lambda found: found["schema"]["form"]["features"][0].update(dtype="|O")), "has the type '|O'"),
    (signed(lambda found: found["schema"]["form"]["features"][0].update(shape=[10**9])), "another length"),
]


@pytest.mark.parametrize(("change", "message"), BROKEN, ids=[message for _, message in BROKEN])
def test_a_bundle_that_was_changed_is_refused_in_one_line(change: Any, message: str, bundle: Path) -> None:
    change(bundle)
    with pytest.raises(FormatError) as error:
        recompute(bundle)
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_a_result_is_not_recorded_in_a_bundle(bundle: Path) -> None:
    with pytest.raises(ParameterError, match="this is a bundle"):
        recompute(bundle, record=True)


def test_a_bundle_goes_to_a_free_place_outside_the_folder(sound: Path, tmp_path: Path) -> None:
    clinic = sound.parent / "clinic"
    (tmp_path / "taken").touch()
    for out, message in [
        (tmp_path / "taken", "exists already"),
        (clinic / "bundle", "lies in the deployment's folder"),
        (tmp_path / "no" / "bundle", "there is no folder"),
    ]:
        with pytest.raises(StoreError, match=message):
            export_for_audit(clinic, out)
    with pytest.raises(FormatError):
        export_for_audit(sound, tmp_path / "bundle")  # a bundle is no deployment
    assert [path.name for path in tmp_path.iterdir()] == ["taken"]


def test_a_failure_leaves_nothing_behind(sound: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as broken:
        broken.setattr(disclosure, "_digest_of", fail)
        with pytest.raises(StoreError, match="no space left"):
            export_for_audit(sound.parent / "clinic", tmp_path / "bundle")
    assert list(tmp_path.iterdir()) == []


def test_a_model_without_a_file_is_not_exported(sound: Path, tmp_path: Path) -> None:
    clinic = Path(shutil.copytree(sound.parent / "clinic", tmp_path / "clinic"))
    next((clinic / "models").glob("00001-*")).unlink()
    with pytest.raises(FormatError, match="a model in service has no file"):
        export_for_audit(clinic, tmp_path / "bundle")


def test_only_the_chosen_models_are_read(sound: Path) -> None:
    assert sorted(disclose(sound.parent / "clinic", shards=lambda k: [k - 1]).models) == [3]
    assert disclosure.count_shards(sound) == disclosure.count_shards(sound.parent / "clinic") == 4


def test_a_commitment_says_nothing_without_its_salt() -> None:
    model = Encoded("arrays", b"model")
    one, other = (ModelCommitment.of(model, salt=os.urandom(32)) for _ in range(2))
    assert one.digest != other.digest
    assert one.opens_to(model)
    assert not one.opens_to(Encoded("pickle", b"model"))
    assert one.salt.hex() not in repr(one)


def test_the_log_commits_to_every_key_in_force(tmp_path: Path) -> None:
    with make(tmp_path / "clinic", NUMBERS) as deployment:
        first = deployment.inside.state.key.commitment
        deployment.rekey()
        second = deployment.inside.state.key.commitment
    store = Store.open(tmp_path / "clinic", read_only=True)
    entries = [json.loads(row[0]) for row in store.database.rows("SELECT entry FROM ledger ORDER BY sequence")]
    store.close()
    told = [entry["facts"]["key_commitment"] for entry in entries if entry["event"] in ("created", "generation")]
    assert told == [first, second]
    assert first != second


def _everything(folder: Path) -> bytes:
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


def _stored_models(folder: Path) -> list[bytes]:
    return [parted(path.name, path.read_bytes(), b"")[0] for path in (folder / "models").iterdir()]


@pytest.mark.parametrize("is_open", [True, False], ids=["open", "closed"])
def test_a_commitment_can_be_opened_as_long_as_its_model_is_in_service_and_never_after(
    tmp_path: Path, is_open: bool
) -> None:
    """After a deletion no file holds the salt of the model that was replaced, or the bytes that it committed to."""
    clinic = tmp_path / "clinic"
    with make(clinic, NUMBERS) as deployment:
        export_for_audit(clinic, tmp_path / "before")
        old = disclose(tmp_path / "before").models
        (shard,) = deployment.inside.state.shards_of(deployment.records.slot_of(7))
        assert all(old[k].salt in _everything(clinic) for k in range(4))  # type: ignore[union-attr]
        stored = _stored_models(clinic)
        deployment.delete([7])
        if not is_open:
            deployment.close()
        now = disclose(clinic).models
        for number in range(4):
            assert (now[number] == old[number]) == (number != shard)
        left, models = _everything(clinic), _stored_models(clinic)
        commitment = old[shard]
        assert commitment is not None
        (gone,) = [data for data in stored if commitment.opens_to(Encoded(commitment.format, data))]
        assert commitment.salt not in left
        assert commitment.salt.hex().encode() not in left
        assert commitment.digest not in left
        assert gone not in models
        assert not any(commitment.opens_to(Encoded(commitment.format, data)) for data in models)
    assert disclose(clinic).models_commitment != disclosure.combine_commitments(old)


def test_a_renewed_key_leaves_neither_a_salt_nor_the_old_key(tmp_path: Path) -> None:
    with make(tmp_path / "clinic", NUMBERS) as deployment:
        old, key = disclose(tmp_path / "clinic").models, deployment.inside.state.key.secret
        assert key in _everything(tmp_path / "clinic")
        deployment.rekey()
        left = _everything(tmp_path / "clinic")
        assert key not in left
        assert not any(model.salt in left for model in old.values() if model is not None)


def test_under_alpha_beta_gamma_the_log_publishes_no_commitment_to_models(tmp_path: Path) -> None:
    """Whether it changed from round to round would tell whether a record was in a shard at all."""
    make(tmp_path / "clinic", NUMBERS, sampling="independent", inclusion_probability=0.3).close()
    recompute(tmp_path / "clinic", shards=2, record=True)
    store = Store.open(tmp_path / "clinic", read_only=True)
    entries = [row[0] for row in store.database.rows("SELECT entry FROM ledger")]
    store.close()
    assert '"recomputed"' in entries[-1]
    assert not any('"models"' in entry for entry in entries)
