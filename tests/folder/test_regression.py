"""Regressors in a folder: values survive, deletions are exact, and what is deleted is gone from the disk."""

from __future__ import annotations

import contextlib
import struct

import numpy as np
import pytest
from sklearn.ensemble import RandomForestRegressor
from sklearn.linear_model import LinearRegression, Ridge, SGDRegressor
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeClassifier

import expunge
from expunge import Exact, RecipeKey
from expunge.audit import copy_deployment, recompute
from expunge.core.errors import FormatError, InputError, ParameterError, RecordError
from expunge.core.records import Records
from expunge.evidence import verify
from expunge.folder import export_for_audit, open_view
from expunge.training.ensemble import learn
from expunge.training.learners import SlicedScikitLearner
from expunge.training.recipe import Recipe

LEARNERS = {
    "ridge": lambda: Ridge(),
    "pipeline": lambda: make_pipeline(StandardScaler(), LinearRegression()),
    "forest": lambda: RandomForestRegressor(n_estimators=3),
    "slices": lambda: SlicedScikitLearner(SGDRegressor(), 3),
}
SECRET = 8123.4567


def data(outputs=()):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 3))
    return X, X @ rng.normal(size=(3, *outputs)) + rng.normal(size=(60, *outputs))


def contents(folder):
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("name", LEARNERS)
@pytest.mark.parametrize("outputs", [(), (2,)], ids=["one", "two"])
def test_it_opens_as_it_was_and_recomputes(name, outputs, folder):
    if name == "slices" and outputs:
        pytest.skip("SGDRegressor predicts one number")
    X, y = data(outputs)
    with expunge.create(folder, LEARNERS[name](), X, y, n_shards=4, promise=Exact(combine="median")) as made:
        made.add(X[:2] + 1, y[:2], ["a", "b"])
        made.delete([3, 4, "a"])
        before, recipe, records = made.predict(X), made.inside.state.recipe, made.records
        by_hand = np.median([np.reshape(m.predict(X), y.shape) for m in made.export()], axis=0)
    np.testing.assert_allclose(before, by_hand, rtol=1e-9)
    left = {r: at for at, r in enumerate(records.ids())}
    rows, labels, _ = records.gather(records.live_slots())
    ids = sorted(left, key=str, reverse=True)
    order = [left[r] for r in ids]
    anew = learn(
        Records.build(rows[order], labels[order], ids=ids, is_regression=True),
        Recipe(recipe.learner, 4, recipe.sampler, RecipeKey(recipe.key.secret, is_system=True)),
    )
    assert anew.values(X, "median").tobytes() == before.tobytes()
    with expunge.open(folder) as again:
        assert again.predict(X).tobytes() == before.tobytes()
        assert again.schema["promise"].words == "exact, combine=median"
        again.delete(["b"])
    found = recompute(folder)
    assert found.agrees
    assert len(found.checked) == 4


def test_a_bundle_recomputes_and_a_changed_target_is_found(folder, tmp_path):
    X, y = data((2,))
    with expunge.create(folder, Ridge(), X, y, n_shards=3) as made:
        made.delete([0])
    export_for_audit(folder, tmp_path / "bundle")
    assert recompute(tmp_path / "bundle").agrees
    slab = next(folder.rglob("labels.slab"))
    raw = bytearray(slab.read_bytes())
    raw[16 * 5 : 16 * 5 + 8] = struct.pack("<d", 1e6)  # the first number of record 5
    slab.write_bytes(raw)
    with contextlib.suppress(FormatError):  # a store that keeps checksums refuses the file
        assert not recompute(folder).agrees


def test_a_deleted_target_is_gone_from_the_disk(folder):
    X, y = data()
    y[7] = SECRET
    with expunge.create(folder, Ridge(), X, y, n_shards=3, apply="manual") as made:
        needle = struct.pack("<d", SECRET)
        assert any(needle in found for found in contents(folder).values())
        made.delete([7])
        made.add(X[:1], [SECRET + 1], ["late"])
        assert any(struct.pack("<d", SECRET + 1) in found for found in contents(folder).values())
        made.apply()
        made.delete(["late"])
        made.apply()
        for value in (SECRET, SECRET + 1):
            for path, found in contents(folder).items():
                assert struct.pack("<d", value) not in found, path


def test_requests_certificates_and_the_view(folder):
    X, y = data()
    with expunge.create(folder, Ridge(), X, y, n_shards=3) as made:
        receipt = made.delete([7])
        with pytest.raises(RecordError, match=r"'x'.*nan"):
            made.add(X[:1], [np.nan], ["x"])
        with pytest.raises(RecordError, match=r"'x'.*'dear'"):
            made.add(X[:1], ["dear"], ["x"])
        certificate = made.certificate(receipt.request)
    assert verify(certificate.to_json()).wrong == ()
    with open_view(folder) as view:
        assert view.status.num_records == 59
        assert [each.is_claimed for each in view.promise] == [True, False]


def test_attacks_on_labels_are_refused_in_a_line(folder):
    X, y = data()
    expunge.create(folder, Ridge(), X, y, n_shards=2).close()
    with pytest.raises(InputError, match=r"predicts numbers: use .*audit recompute"):
        copy_deployment(folder)


def test_several_labels_are_refused_in_a_line(folder):
    X, y = data((2,))
    with pytest.raises(ParameterError, match="a folder keeps one label a record"):
        expunge.create(folder, DecisionTreeClassifier(), X, y > 0)
    assert not folder.exists()


def test_no_records_left(folder):
    X, y = data()
    with expunge.create(folder, Ridge(), X[:4], y[:4], n_shards=2) as made:
        made.delete(range(4))
        with pytest.raises(InputError, match="no records are left"):
            made.predict(X)
    with expunge.open(folder) as again:
        with pytest.raises(InputError, match="no records are left"):
            again.predict(X)
        again.add(X[:2], y[:2], ["a", "b"])
        assert np.isfinite(again.predict(X)).all()


def test_other_promises_are_refused_before_anything_is_written(folder):
    X, y = data()
    for promise in ("consensus", "noise", "router", "unguarded"):
        with pytest.raises(ParameterError, match="a regressor needs promise='exact'"):
            expunge.create(folder, Ridge(), X, y, promise=promise)
    assert not folder.exists()
