"""Recomputation: sound folders agree, and every way to break a folder is found."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
import tempfile
from contextlib import closing
from fractions import Fraction
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge import Randomness, RecipeKey
from expunge.audit import Recomputation, choose_shards, recompute
from expunge.core.errors import FolderBusyError, FormatError, InputError, ModelFormatError, ParameterError
from expunge.core.words import is_on_tick
from expunge.evidence import verify
from expunge.evidence.witness import Witness, add_cosignatures
from expunge.folder import export_for_audit, open_view
from expunge.folder.codec import encode_model
from expunge.folder.disclosure import disclose
from expunge.folder.store import Store
from expunge.folder.store.database import Database
from expunge.folder.store.ensembles import read_records
from expunge.folder.store.packs import parted
from expunge.training import ensemble
from expunge.training.learners import LookupTableLearner, SlicedScikitLearner

SHARDS = 6


@pytest.fixture
def folder():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name) / "clinic"


def make(folder, learner=None, *, sampling="partition", size=120, **options):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(size, 3))
    y = np.where(X[:, 0] + rng.normal(size=size) > 0, "yes", "no")
    ids = [f"p{i}" for i in range(size)]
    options = {"n_shards": SHARDS, "promise": "unguarded", "sampling": sampling, "ids": ids, **options}
    return expunge.create(folder, SGDClassifier() if learner is None else learner, X, y, **options)


def write_model(folder, shard, data):
    """Replace a model's file, and the digest that the folder keeps of it."""
    with closing(Database(folder)) as database:
        (name,) = database.row("SELECT file FROM shards WHERE shard = ?", (shard,))
        data += parted(name, (folder / "models" / name).read_bytes(), b"")[1]
        database.execute("UPDATE shards SET digest = ? WHERE shard = ?", (hashlib.sha256(data).digest(), shard))
    (folder / "models" / name).write_bytes(data)


def model_bytes(folder, shard):
    store = Store.open(folder, read_only=True)
    (name,) = store.database.row("SELECT file FROM shards WHERE shard = ?", (shard,))
    store.close()
    return parted(name, (folder / "models" / name).read_bytes(), b"")[0]


def shard_of(folder, record):
    state = disclose(folder).state()
    (shard,) = state.shards_of(state.records.slot_of(record))
    return shard


def frame(size):
    rng = np.random.default_rng(3)
    return pd.DataFrame({"x": rng.normal(size=size), "colour": pd.Categorical(rng.choice(["red", "blue"], size))})


@pytest.mark.parametrize(
    ("learner", "options"),
    [
        (SGDClassifier(), {"sampling": "independent", "inclusion_probability": 0.4}),
        (RandomForestClassifier(3), {}),
        (SlicedScikitLearner(SGDClassifier(), num_slices=3), {"classes": ["no", "yes"]}),
        (LogisticRegression(), {"n_jobs": 2}),
    ],
    ids=["independent", "forest", "slices", "processes"],
)
def test_a_folder_agrees_after_many_updates(folder, learner, options):
    people = [f"h{i // 3}" for i in range(120)]
    rng, counter = np.random.default_rng(1), itertools.count()
    with make(folder, learner, subjects=people, weights=rng.random(120), **options) as deployment:
        alive = [f"p{i}" for i in range(120)]
        for _ in range(12):
            gone = [alive.pop(int(rng.integers(len(alive)))) for _ in range(2)]
            deployment.delete(gone)
            came = f"new{next(counter)}"
            deployment.add(rng.normal(size=(1, 3)), ["yes"], [came], weights=[0.5])
            alive.append(came)
        deployment.add(rng.normal(size=(1, 3)), ["no"], [gone[0]], readmit=True)
        deployment.delete(subjects=[deployment.inside.state.records.subjects_of(np.arange(120))[60]])
        seen = []
        found = recompute(folder, shards="all", advance=seen.append)  # while it is open for serving
    assert found.agrees
    assert found.different == ()
    assert found.checked == tuple(range(SHARDS))
    assert found.key == "matches"
    assert sum(seen) == SHARDS
    assert found.num_records == len(disclose(folder).records) < 120 - 24 + 12 + 1
    assert found.round == 26
    assert recompute(folder, shards="all").agrees


def test_a_folder_agrees_after_a_new_generation(folder):
    with make(folder) as deployment:
        deployment.rekey()
        deployment.delete(["p3"])
    found = recompute(folder, shards="all")
    assert (found.agrees, found.key, found.generation) == (True, "matches", 2)


def test_nothing_is_changed(folder):
    make(folder).close()

    def fingerprint():
        return {p: p.read_bytes() for p in folder.rglob("*") if p.is_file() and not p.name.endswith(("-shm", "-wal"))}

    before = fingerprint()
    recompute(folder)
    assert fingerprint() == before


def test_a_model_that_was_replaced_is_found(folder):
    make(folder).close()
    write_model(folder, 2, model_bytes(folder, 3))
    found = recompute(folder, shards="all")
    assert found.different == (2,)
    assert not found.agrees
    assert found.num_agreeing == SHARDS - 1
    assert "1 model of 6 in service are not" in found.verdict
    assert expunge.open(folder).close() is None  # the folder itself does not notice


def test_one_bit_of_a_model_is_found(folder):
    make(folder, GaussianNB()).close()
    state = disclose(folder).state()
    model = ensemble.retrain(state, [4])[0]
    model.estimator.theta_[0, 0] = np.nextafter(model.estimator.theta_[0, 0], np.inf)
    write_model(folder, 4, encode_model(state.learner, model).data)
    assert recompute(folder, shards="all").different == (4,)


def test_a_model_file_that_is_missing_or_damaged_is_found(folder):
    make(folder).close()
    for path in (folder / "models").glob("00001-*"):
        path.unlink()
    for path in (folder / "models").glob("00005-*"):
        path.write_bytes(b"nonsense")
    assert recompute(folder, shards="all").different == (1, 5)


def test_an_update_that_forgot_to_retrain_is_found(folder, monkeypatch):
    deployment = make(folder)
    stale = shard_of(folder, "p7")
    with monkeypatch.context() as broken:
        broken.setattr(ensemble, "_by_shard", lambda *_: {})  # the records go, the models stay
        deployment.delete(["p7"])
    deployment.close()
    found = recompute(folder, shards="all")
    assert found.different == (stale,)
    hits = [bool(recompute(folder, shards=2, seed=seed).different) for seed in range(30)]
    assert hits == [stale in choose_shards(SHARDS, 2, seed=seed) for seed in range(30)]
    assert any(hits)
    assert not all(hits)


def test_an_update_that_kept_the_order_of_arrival_is_found(folder, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(RecipeKey, "order", lambda self, shard, names: np.arange(len(names)))
        make(folder).close()
    assert recompute(folder, shards="all").different == tuple(range(SHARDS))


def test_models_with_another_seed_are_found(folder, monkeypatch):
    with monkeypatch.context() as broken:
        broken.setattr(RecipeKey, "seed", lambda self, shard, slice, digest: 1)
        make(folder).close()
    assert recompute(folder, shards="all").different == tuple(range(SHARDS))


def test_a_record_that_was_changed_in_the_store_is_found(folder):
    make(folder).close()
    touched = shard_of(folder, "p9")
    with closing(Store.open(folder)) as store:
        records, slot = store.records, read_records(store).slot_of("p9")
    path = records.path / "features.slab"
    table = np.fromfile(path, dtype=np.float64).reshape(-1, 3)
    table[slot, 1] += 1e-9
    table.tofile(path)
    with pytest.raises(FormatError, match=rf"the record in row {slot} is not what was written: features\.slab"):
        recompute(folder, shards="all")
    # An operator who does it on purpose makes the checksums fit.
    records._sums_on_disk(np.arange(len(table))).tofile(records.path / "checksums.slab")
    with closing(Database(folder)) as database:
        database.execute("UPDATE position SET total = ?", (str(records.total(len(table))),))
    assert recompute(folder, shards="all").different == (touched,)


def test_another_key_than_the_one_that_was_committed_to_is_found(folder, monkeypatch):
    """An operator who trains everything by a key of his choice, after the first one was published."""
    make(folder, LookupTableLearner()).close()
    chosen = RecipeKey.from_seed(5)
    found = disclose(folder)
    state = type(found)(**{**found.__dict__, "key": chosen}).state()
    for shard, model in enumerate(ensemble.retrain(state, range(SHARDS))):
        write_model(folder, shard, encode_model(state.learner, model).data)
    with closing(Database(folder)) as database:
        database.execute("UPDATE recipe SET secret = ?", (chosen.secret,))
    result = recompute(folder, shards="all")
    assert result.different == ()
    assert result.key == "differs"
    assert not result.agrees
    assert "not the one that the log committed to" in result.verdict


def test_an_old_log_has_no_commitment(folder):
    make(folder, LookupTableLearner()).close()
    with closing(Database(folder)) as database:
        database.execute("UPDATE ledger SET entry = json_remove(entry, '$.facts.key_commitment')")
    result = recompute(folder, shards=1)
    assert (result.agrees, result.key) == (True, "not recorded")


@pytest.mark.parametrize("slices", [1, 3])
def test_a_folder_agrees_after_the_last_record_of_a_label_is_gone(folder, slices):
    """The list of labels stays. Models that are told all of it, slice by slice, are still the fresh ones."""
    X = np.random.default_rng(0).normal(size=(60, 2))
    y = np.array(["a very rare label", *(["no", "yes"] * 30)][:60])
    learner = SlicedScikitLearner(GaussianNB(), num_slices=slices) if slices > 1 else LogisticRegression()
    with expunge.create(folder, learner, X, y, n_shards=4, promise="unguarded") as deployment:
        deployment.delete([0])
        assert recompute(folder, shards="all").agrees
    assert disclose(folder).records.classes.tolist() == ["a very rare label", "no", "yes"]
    with expunge.open(folder) as deployment:
        deployment.delete([7])
        assert recompute(folder, shards="all").agrees
        deployment.add(X[:1], ["a very rare label"], [100])
    assert recompute(folder, shards="all").agrees


def test_data_frames_agree(folder):
    table, y = frame(80), np.arange(80) % 2
    from expunge.training.learners.named import named_learner

    learner = named_learner("logistic", columns={"x": "number", "colour": "category"})
    with expunge.create(folder, learner, table, y, n_shards=3, promise="unguarded") as deployment:
        deployment.delete([3, 4])
        deployment.add(table.iloc[:1], [1], [900])
    assert recompute(folder, shards="all").agrees


@pytest.mark.parametrize(("shards", "stale", "drawn"), [(6, 1, 2), (7, 3, 3), (5, 0, 2), (5, 5, 1), (6, 2, 6)])
def test_the_chance_of_detection_is_exact(shards, stale, drawn):
    draws = list(itertools.combinations(range(shards), drawn))
    hits = sum(any(shard < stale for shard in draw) for draw in draws)
    found = Recomputation("x", "folder", 1, 0, 9, shards, tuple(range(drawn)), ())
    assert found.chance_of_detection(stale) == Fraction(hits, len(draws))
    assert float(found.chance_of_detection(stale)) >= 1 - (1 - stale / shards) ** drawn - 1e-12


@pytest.mark.parametrize(("shards", "drawn"), [(1000, 20), (677, 20), (37, 5), (3000, 2999), (2, 1)])
def test_what_it_shows_is_never_rounded_up(shards, drawn):
    found = Recomputation("x", "folder", 1, 0, 9, shards, tuple(range(drawn)), ())
    for sentence in found.shows:
        stale, percent = re.fullmatch(r"If ([\d,]+) of the .* of at least ([\d.]+)%\.", sentence).groups()
        exact = 100 * found.chance_of_detection(int(stale.replace(",", "")))
        assert exact - Fraction(1, 10) < Fraction(percent) <= exact
    assert any("answers people" in each for each in found.does_not_show)
    assert any("picked among many" in each for each in found.does_not_show)


def test_shards_are_drawn_evenly():
    """Each of 8 shards is in a draw of 3 with probability 3/8; false alarms below 1e-6 (8 bounds of 5.5 sigma)."""
    draws = 4000
    counts = np.bincount(np.concatenate([choose_shards(8, 3, seed=seed) for seed in range(draws)]), minlength=8)
    assert np.abs(counts - draws * 3 / 8).max() < 5.5 * np.sqrt(draws * 3 / 8 * 5 / 8)
    assert len({tuple(choose_shards(10**6, 3)) for _ in range(5)}) == 5  # the system's randomness


@pytest.mark.parametrize("sampling", ["partition", "independent"])
def test_the_result_goes_into_the_log(folder, sampling):
    make(folder, LookupTableLearner(), sampling=sampling, size=30).close()
    recompute(folder, shards=4, seed=1, record=True)
    write_model(folder, 0, model_bytes(folder, 1))
    recompute(folder, shards="all", record=True)
    with open_view(folder) as view:
        certificate = view.certificate()
        entries = [entry for entry in view._evidence.ledger.entries() if entry.event == "recomputed"]
    assert verify(certificate.to_json()).wrong == ()
    first, second = (dict(entry.facts) for entry in entries)
    common = {"generation": 1, "round": 0}
    # With independent shards the number depends on ζ and may matter to an (α,β,γ) promise: the verdict only.
    told = [{"num_different": 0}, {"num_different": 1}] if sampling == "partition" else [{}, {}]
    models = [facts.pop("models", None) for facts in (first, second)]
    assert first == {**common, "num_checked": 4, "agrees": True, "chosen_by": "auditor's seed", **told[0]}
    assert second == {**common, "num_checked": 6, "agrees": False, "chosen_by": "software", **told[1]}
    assert models[1] == (disclose(folder).models_commitment if sampling == "partition" else None)
    assert (models[0] != models[1]) == (sampling == "partition")
    assert "exact: not claimed, because the recomputation of" in certificate.statements.exact[0]
    with open_view(folder) as view:
        assert [each.is_claimed for each in view.promise] == [False, False]
        assert "not claimed, because the recomputation" in str(view.promise[0])
    with expunge.open(folder) as deployment:
        assert not deployment.promise[0].is_claimed
        deployment.rekey()
        assert deployment.promise[0].is_claimed
        assert "bit for bit" in deployment.certificate().statements.exact[0]
    assert all(is_on_tick(entry.at, tick_seconds=60) for entry in entries)
    expunge.open(folder).close()


def test_a_checkpoint_of_the_log_chooses_the_shards(folder, tmp_path):
    make(folder, LookupTableLearner(), size=30).close()
    point = tmp_path / "checkpoint"
    point.write_bytes(b"example.org/log\n41\nroot\n\n-- witness signature\n")
    digest = hashlib.sha256(point.read_bytes()).hexdigest()
    found = recompute(folder, shards=3, checkpoint=point, record=True)
    ranked = sorted(range(SHARDS), key=lambda i: hashlib.sha256(bytes.fromhex(digest) + str(i).encode()).digest())
    assert found.checked == tuple(sorted(ranked[:3]))
    assert (found.chosen_by, found.checkpoint, found.to_dict()["checkpoint"]) == ("checkpoint", digest, digest)
    with open_view(folder) as view:
        certificate = view.certificate()
    assert certificate.history.recomputation.checkpoint == digest
    assert any(digest in sentence for sentence in certificate.statements.recomputed)
    assert verify(certificate.to_json()).holds
    point.write_bytes(point.read_bytes() + b"\n")
    others = {recompute(folder, shards=3, checkpoint=point).checked, found.checked}
    for content in (b"a", b"b", b"c"):
        point.write_bytes(content)
        others.add(recompute(folder, shards=3, checkpoint=point).checked)
    assert len(others) > 1
    for path, message in [(tmp_path / "gone", "cannot be read"), (tmp_path, "cannot be read")]:
        with pytest.raises(InputError, match=message):
            recompute(folder, checkpoint=path)
    point.write_bytes(b"")
    with pytest.raises(InputError, match="must have from 1 to"):
        recompute(folder, checkpoint=point)


def test_a_seed_is_any_text_and_the_draw_can_be_repeated_by_hand():
    digest = hashlib.sha256(b"expunge seed\0the dice say 41626").digest()
    ranked = sorted(range(100), key=lambda i: hashlib.sha256(digest + str(i).encode()).digest())
    assert choose_shards(100, 5, seed="the dice say 41626") == sorted(ranked[:5])
    assert choose_shards(100, 5, seed=7) == choose_shards(100, 5, seed="7") != choose_shards(100, 5, seed="8")


def test_what_it_does_not_show_says_where_it_was_made_and_who_chose(folder):
    make(folder, LookupTableLearner(), size=30).close()
    drawn, given = recompute(folder, shards=2), recompute(folder, shards=2, seed=1)
    assert any("nothing committed to the models before" in each for each in given.does_not_show)
    assert any("could have been repeated" in each for each in drawn.does_not_show)
    assert not any("could have been repeated" in each for each in given.does_not_show)
    assert not any("could have been repeated" in each for each in recompute(folder).does_not_show)


def test_a_folder_that_is_being_served_is_not_recorded_in(folder):
    with make(folder, LookupTableLearner(), size=30):
        trained = []
        with pytest.raises(FolderBusyError, match="is in use"):
            recompute(folder, record=True, advance=trained.append)
        assert trained == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"shards": 0}, "shards must be an integer >= 1, got 0"),
        ({"shards": "some"}, "shards must be"),
        ({"seed": ""}, "seed must be a text or a whole number, got ''"),
        ({"seed": True}, "seed must be a text or a whole number, got True"),
        ({"seed": 1, "checkpoint": __file__}, "by a seed or by a checkpoint: give one of them"),
    ],
)
def test_wrong_options_are_named(folder, options, message):
    with pytest.raises(ParameterError, match=message):
        recompute(folder, **options)


def test_what_is_no_deployment_is_refused(tmp_path):
    for path in (tmp_path, tmp_path / "nothing"):
        with pytest.raises(FormatError):
            recompute(path)


class Stranger(GaussianNB):
    """A classifier of somebody's own."""


def test_code_of_ones_own_must_be_trusted(folder):
    make(folder, Stranger(), trust=[__name__]).close()
    with pytest.raises(ModelFormatError):
        recompute(folder)
    assert recompute(folder, shards="all", trust=[__name__]).agrees


def test_a_key_from_a_seed_is_not_committed_to(folder):
    """Whoever reads the log could otherwise try one seed after another."""
    make(folder, LookupTableLearner(), size=30, rng=Randomness.from_seed(3)).close()
    assert recompute(folder, shards="all").key == "not recorded"
    assert recompute(folder, shards="all").agrees


@pytest.mark.parametrize("from_bundle", [False, True])
@pytest.mark.parametrize("recorded", ["same", "different"])
def test_the_environment_is_compared(folder, tmp_path, recorded, from_bundle):
    make(folder, LookupTableLearner(), size=30).close()
    write_model(folder, 0, model_bytes(folder, 1))
    if recorded == "different":
        pretend(folder, numpy="1.0")
    if from_bundle:
        export_for_audit(folder, tmp_path / "bundle")
    found = recompute(tmp_path / "bundle" if from_bundle else folder, shards="all")
    assert found.environment == recorded
    assert [each[:2] for each in found.changed] == ([("numpy", "1.0")] if recorded == "different" else [])
    assert {"same": "In the same environment", "different": "Repeat"}[recorded] in found.shows[0]


def pretend(folder, **facts):
    """Change what is recorded about the environment that the models were trained in."""
    with closing(Database(folder)) as database:
        ((text,),) = database.rows("SELECT facts FROM environments")
        database.execute("UPDATE environments SET facts = ?", (json.dumps(json.loads(text) | facts, sort_keys=True),))


def test_several_environments_are_told_with_their_numbers(folder):
    X = np.arange(60.0).reshape(30, 2)
    expunge.create(folder, LookupTableLearner(), X, np.arange(30) % 2, n_shards=4, numerics="lenient").close()
    pretend(folder, numpy="1.0")
    with expunge.open(folder) as deployment:
        deployment.delete([3])
    assert disclose(folder).environment["numpy"] == f"1.0 (3 models), {np.__version__} (1 model)"
    assert recompute(folder, shards="all").environment == "different"


def test_a_cosigned_checkpoint_chooses_the_shards_and_the_report_says_by_whom(folder, tmp_path):
    """From the bundle to the report, as an auditor does it: what an operator can add to the file does not count."""
    make(folder, LookupTableLearner(), size=30).close()
    bundle, point = tmp_path / "bundle", tmp_path / "cosigned"
    export_for_audit(folder, bundle)
    witness, other = (Witness.create(tmp_path / name, name=name) for name in ("witness.example", "other.example"))
    with open_view(folder) as view:
        for each in (witness, other):
            each.trust(view.log_key)
        cosigned = witness.cosign(view.submission(0), now=1_800_000_000)
        both = add_cosignatures(cosigned, str(other.cosign(view.submission(0)).signatures[-1]) + "\n", other.key)
    point.write_text(str(cosigned))
    found = recompute(bundle, shards=3, checkpoint=point, witnesses=[witness.key])
    assert found.agrees
    assert found.cosigned_by == (("witness.example", "2027-01-15T08:00:00Z"),)
    assert found.to_dict()["cosigned_by"] == [["witness.example", "2027-01-15T08:00:00Z"]]
    assert any("may have asked the witness more than once" in each for each in found.does_not_show)
    text = f"{cosigned.note}\n{cosigned.signatures[-1]}\n"
    assert found.checkpoint == hashlib.sha256(text.encode()).hexdigest()
    point.write_text(str(both))  # one line more, by somebody whom the auditor did not name
    assert recompute(bundle, shards=3, checkpoint=point, witnesses=[witness.key]) == found
    assert recompute(folder, shards=3, checkpoint=point, witnesses=[witness.key]).checked == found.checked
    named = recompute(bundle, shards=3, checkpoint=point, witnesses=[other.key, witness.key])
    again = recompute(bundle, shards=3, checkpoint=point, witnesses=[witness.key, other.key])
    assert named.checkpoint == again.checkpoint != found.checkpoint
    assert [name for name, _ in named.cosigned_by] == ["other.example", "witness.example"]
    unchecked = recompute(bundle, shards=3, checkpoint=point)
    assert unchecked.cosigned_by == ()
    assert any("Nobody's cosignature" in each for each in unchecked.does_not_show)


def test_a_checkpoint_that_is_not_what_was_asked_for_is_refused(folder, tmp_path):
    make(folder, LookupTableLearner(), size=30).close()
    make(tmp_path / "stranger", LookupTableLearner(), size=30).close()
    witness, point = Witness.create(tmp_path / "witness", name="witness.example"), tmp_path / "point"
    with open_view(tmp_path / "stranger") as view:
        witness.trust(view.log_key)
        point.write_text(str(witness.cosign(view.submission(0))))
    with pytest.raises(InputError, match="is not signed by the log of this deployment"):
        recompute(folder, checkpoint=point, witnesses=[witness.key])
    with open_view(folder) as view:
        point.write_text(str(view.checkpoint()))
    with pytest.raises(InputError, match=r"is not cosigned by witness\.example"):
        recompute(folder, checkpoint=point, witnesses=[witness.key])
    point.write_text("nonsense")
    with pytest.raises(InputError, match="point: not a checkpoint"):
        recompute(folder, checkpoint=point, witnesses=[witness.key])
    with pytest.raises(ParameterError, match="none was given"):
        recompute(folder, witnesses=[witness.key])
