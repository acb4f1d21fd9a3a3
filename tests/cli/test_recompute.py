"""`expunge audit recompute` and `expunge export --for-audit`, from a CSV file to the verdict."""

import hashlib
import shutil
from contextlib import closing

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import expunge as package
from expunge.audit import choose_shards
from expunge.core.place import Place
from expunge.evidence import Envelope
from expunge.folder.store.database import Database
from expunge.folder.store.packs import read_model, write_pack
from expunge.training import environment


def make_stale(folder, shard):
    """Put another shard's model in the place of one, with its digest; they are all in one file."""
    with closing(Database(folder)) as database:
        ((name,),) = database.rows("SELECT DISTINCT file FROM shards")
        place = Place.hold(folder / "models") / name
        models = {each: read_model(place, each) for each in range(10)}
        models[shard] = models[(shard + 1) % 10]
        digest = hashlib.sha256(models[shard]).digest()
        database.execute("UPDATE shards SET digest = ? WHERE shard = ?", (digest, shard))
    (folder / "models" / name).unlink()
    write_pack(place, 10, models, None)


def test_a_folder_after_deletions_agrees(churn, files, expunge):
    expunge("delete", churn, "--id", "4", "--id", "17")
    expunge("add", churn, "--data", files / "more.csv")
    done = expunge("audit", "recompute", churn)
    assert done.words.startswith(
        "The recomputation agrees: the model of every shard is, bit for bit, what the recipe gives."
    )
    for part in ("328 records", "10 of 10 shards", "10 agree", "The key is the one that the log committed to"):
        assert part in done.words
    assert done.words.index("What this shows") < done.words.index("What it does not show")
    assert "that it was drawn once is the operator's word" in done.words
    assert "Every shard was checked" in done.words


def test_a_stale_shard_is_exit_code_1(churn, expunge):
    make_stale(churn, 3)
    done = expunge("audit", "recompute", churn, "--all", "--json", code=1)
    assert done.json == expunge("audit", "recompute", churn, "--shards", "all", "--json", code=1).json
    assert (done.json["agrees"], done.json["different"], done.json["num_checked"]) == (False, [3], 10)
    assert "Shards that differ: 3." in expunge("audit", "recompute", churn, code=1).words
    seed = next(seed for seed in range(99) if 3 not in choose_shards(10, 4, seed=seed))
    lucky = expunge("audit", "recompute", churn, "--shards", "4", "--seed", seed, "--json").json
    assert lucky["agrees"]
    assert lucky["checked"] == choose_shards(10, 4, seed=seed)
    assert lucky["shows"][0].startswith("If 1 of the 10 shards (10%) had stale models")
    assert lucky["shows"][0].endswith("at least 40%.")


def test_a_disagreement_that_is_recorded_ends_the_claim(churn, expunge):
    make_stale(churn, 3)
    expunge("audit", "recompute", churn, "--shards", "all", code=1)
    words = expunge("status", churn).words
    assert "exact: not claimed. Why: the recomputation of" in words
    assert "What would change that: `expunge rekey` trains everything again, and `expunge audit" in words
    assert "bit for bit" not in words
    expunge("rekey", churn)
    expunge("audit", "recompute", churn, "--shards", "all")
    assert "exact: promised." in expunge("status", churn).words


def test_the_result_is_recorded(churn, expunge, tmp_path):
    assert expunge("audit", "recompute", churn, "--no-record").words.endswith("The result is not in the log.")
    in_the_log = "The result is in the log, signed, and in every later certificate."
    assert expunge("audit", "recompute", churn, "--shards", "3", "--record").words.endswith(in_the_log)
    assert expunge("audit", "recompute", churn).words.endswith(in_the_log)
    certificate = tmp_path / "certificate.json"
    expunge("certificate", churn, "--out", certificate)
    assert Envelope.parse(certificate.read_bytes()).payload.count(b'"event":"recomputed"') == 1
    expunge("verify", certificate, "--public-key", churn / "keys" / "public.pem")
    told = expunge("verify", certificate).words
    assert "all 10 models in service were compared, bit for bit" in told
    assert "All agreed. One stale model would have been found." in told


def test_what_stands_against_recording_is_told(churn, expunge, monkeypatch):
    with package.open(churn):
        told = expunge("audit", "recompute", churn)
        assert "The result is not in the log:" in told.words
        assert "is in use" in told.words
        assert "is in use" in expunge("audit", "recompute", churn, "--record", code=2).err
    make_stale(churn, 3)
    before = expunge("status", churn).words
    with monkeypatch.context() as patch:
        patch.setattr(environment, "_common_facts", lambda: {"numpy": "99"})
        told = expunge("audit", "recompute", churn, code=1).words
    assert "The result is not in the log: in another environment a difference proves nothing." in told
    assert expunge("status", churn).words == before


def test_an_auditor_needs_the_bundle_only(churn, files, expunge, tmp_path):
    expunge("delete", churn, "--ids-file", files / "gone.csv")
    done = expunge("export", churn, "--for-audit", tmp_path / "bundle")
    assert "the bundle holds people's records and the secret key" in done.words
    shutil.rmtree(churn)
    told = expunge("audit", "recompute", tmp_path / "bundle", "--shards", "3", "--seed", "8")
    assert told.words.startswith("The recomputation agrees: the model of every shard that was checked is")
    for part in (
        "298 records",
        "3 of 10 shards trained again, drawn with the seed '8', 3 agree",
        "The bundle is signed",
    ):
        assert part in told.words
    content = bytearray((tmp_path / "bundle" / "records" / "labels.slab").read_bytes())
    content[0] ^= 1
    (tmp_path / "bundle" / "records" / "labels.slab").write_bytes(content)
    assert "was changed after it was signed" in expunge("audit", "recompute", tmp_path / "bundle", code=2).err


def test_a_bundle_of_a_deployment_made_in_python(expunge, tmp_path):
    X = np.random.default_rng(0).normal(size=(50, 2))
    package.create(
        tmp_path / "made", LogisticRegression(), X, np.arange(50) % 2, promise="unguarded", n_shards=3
    ).close()
    found = expunge("export", tmp_path / "made", "--for-audit", tmp_path / "bundle", "--json").json
    assert (found["num_records"], found["num_shards"]) == (50, 3)
    again = expunge("audit", "recompute", tmp_path / "bundle", "--shards", "all", "--json").json
    assert again["agrees"]
    assert again["commitment"] == found["commitment"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--shards", "none"), "--shards must be a whole number of at least 1, or all, got 'none'"),
        (("--shards", "0"), "--shards must be"),
        (("--shards", ""), "--shards must be"),
        (("--shards", "3", "--all"), "--shards says how many: give one of them"),
        (("--seed", ""), "seed must be"),
        (("--checkpoint", "/nowhere"), "the checkpoint /nowhere cannot be read"),
        (("--checkpoint", __file__, "--seed", "3"), "give one of them"),
        (("--sheep",), "No such option"),
    ],
)
def test_bad_options_are_one_line(churn, expunge, options, message):
    assert message in expunge("audit", "recompute", churn, *options, code=2).err


def test_bad_sources_are_one_line(expunge, tmp_path, churn):
    expunge("audit", "recompute", tmp_path, code=2)
    expunge("audit", "recompute", tmp_path / "nothing", code=2)
    assert "exists already" in expunge("export", churn, "--for-audit", tmp_path, code=2).err
    assert "lies in the deployment's folder" in expunge("export", churn, "--for-audit", churn / "b", code=2).err
    expunge("export", churn, "--for-audit", tmp_path / "bundle")
    assert "this is a bundle" in expunge("audit", "recompute", tmp_path / "bundle", "--record", code=2).err


def test_scenarios_are_played_with_and_without_the_word(expunge):
    options = ("lookup", "--size", "6", "--trials", "6", "--seed", "1", "--json")
    assert expunge("audit", *options).json == expunge("audit", "play", *options).json
    assert expunge("audit", "--seed", "1", *options).json["seed"] == 1
    assert "recompute" in expunge("audit", "--help").words
    assert "--requester" in expunge("audit", "play", "--help").words
