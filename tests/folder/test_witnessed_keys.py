"""A key that a witness has a part in: the operator cannot pick it, every attempt shows, and an auditor checks it."""

from __future__ import annotations

import json
import tempfile
import threading
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

import expunge
from expunge.audit import recompute
from expunge.core.errors import FormatError, InputError, StoreError
from expunge.core.prf import RecipeKey
from expunge.evidence import Checkpoint, NoteKey, SigningKey, Submission, verify
from expunge.evidence.nonce import Draw, Nonce, nonce_message
from expunge.evidence.outlets import ask_nonce, ask_witness
from expunge.evidence.witness import Refused, Witness
from expunge.evidence.witness_server import WitnessServer
from expunge.folder import export_for_audit, open_view
from expunge.folder.disclosure import disclose
from expunge.folder.store.database import Database

X = np.random.default_rng(0).normal(size=(60, 2))


@pytest.fixture
def folder():
    memory = Path("/dev/shm")
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as name:
        yield Path(name) / "clinic"


@pytest.fixture
def witness(folder, tmp_path):
    expunge.create(folder, GaussianNB(), X, X[:, 0] > 0, n_shards=3).close()
    made = Witness.create(tmp_path / "witness", name="witness.example")
    with open_view(folder) as view:
        made.trust(view.log_key)
    return made


def asking(witness):
    """The witness in this process, which has cosigned nothing yet or what the folder's log holds."""
    return lambda submission_of, _: witness.nonce(submission_of(witness.logs()[0].size))


def entries(folder):
    with closing(Database(folder, read_only=True)) as database:
        return [json.loads(entry) for (entry,) in database.rows("SELECT entry FROM ledger ORDER BY sequence")]


def test_the_key_follows_from_a_committed_secret_and_the_nonce(folder, witness):
    with expunge.open(folder) as deployment:
        assert deployment.rekey(witness=asking(witness))
        deployment.delete([7])
    _, committed, renewed, *_ = entries(folder)
    assert (committed["event"], renewed["event"]) == ("committed", "generation")
    assert renewed["facts"]["witness"] == str(witness.key)
    assert (renewed["facts"]["committed"], renewed["facts"]["unused"]) == (2, 0)
    found = disclose(folder)
    draw = found.draw
    assert draw.nonce.to_facts()["nonce"] == renewed["facts"]["nonce"]
    assert RecipeKey(draw.own).commitment == committed["facts"]["key_commitment"]
    assert RecipeKey.with_nonce(draw.own, draw.nonce.value) == found.key
    assert found.key.commitment == renewed["facts"]["key_commitment"]
    assert Draw.from_data(json.loads(json.dumps(draw.to_data()))) == draw
    report = recompute(folder, shards="all")
    assert report.agrees
    assert (report.drawn_with, report.unused, report.draw_fault) == (str(witness.key), 0, "")
    assert any("could not pick the key" in each for each in report.shows)
    with open_view(folder) as view:
        certificate = view.certificate()
    assert verify(certificate.to_json()).holds
    assert [entry.event for entry in certificate.log.entries] == ["created", "committed", "generation"]
    assert any(
        f"A nonce of the witness {witness.key} went into the key" in each for each in certificate.statements.exact
    )
    assert not any("picked among many" in each for each in report.does_not_show)


def test_without_a_witness_it_stays_the_operators_word(folder, witness):
    with expunge.open(folder) as deployment:
        deployment.rekey(witness=asking(witness))
        deployment.rekey()
    report = recompute(folder, shards="all")
    assert (report.agrees, report.drawn_with, disclose(folder).draw) == (True, None, None)
    assert any("picked among many" in each for each in report.does_not_show)
    assert [entry["event"] for entry in entries(folder)] == ["created", "committed", "generation", "generation"]
    assert "witness" not in entries(folder)[-1]["facts"]


def test_every_attempt_stays_in_the_log(folder, witness):
    """An operator who does not like the key stops, and tries again."""

    def refuse(submission_of, _):
        asking(witness)(submission_of, _)
        raise KeyboardInterrupt

    with expunge.open(folder) as deployment:
        before = deployment.inside_key
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                deployment.rekey(witness=refuse)
        assert deployment.inside_key == before
        deployment.delete([7])
        assert not deployment.rekey(if_older_than="1d", witness=refuse)  # nothing to do: nobody is asked
        assert deployment.rekey(witness=asking(witness))
        deployment.rekey(witness=asking(witness))
    told = [entry["facts"]["unused"] for entry in entries(folder) if entry["event"] == "generation"]
    assert told == [3, 0]
    assert recompute(folder, shards="all").agrees


def test_there_is_one_nonce_for_one_commitment(folder, witness):
    """The same, whenever it is asked for; and none for another history that ends with another commitment."""
    seen = []

    def ask(submission_of, _):
        seen.append(submission_of(witness.logs()[0].size))
        first = witness.nonce(seen[0])
        assert witness.nonce(submission_of(seen[0].checkpoint.size)) == first
        return first

    with expunge.open(folder) as deployment:
        deployment.rekey(witness=ask)
    forged = replace(seen[0].checkpoint, root=bytes(32), signatures=())
    forged = forged.signed(SigningKey.load(folder / "keys" / "signing.pem"))
    with pytest.raises(Refused) as caught:
        witness.nonce(Submission(forged.size, (), forged))
    assert caught.value.is_fork


def test_a_nonce_of_somebody_else_is_refused(folder, witness):
    other = SigningKey.generate()

    def wrong(submission_of, _):
        made = submission_of(0).checkpoint
        return Nonce(witness.key, other.sign(nonce_message(made.origin, made.size, made.root)))

    def cosignature(submission_of, _):
        """A cosignature is no nonce: it depends on the time, so there are many."""
        return Nonce(witness.key, witness.cosign(submission_of(0)).signatures[-1].signature[8:])

    def of_a_log(submission_of, _):
        made = submission_of(0).checkpoint
        return Nonce(NoteKey("x", other.public_key), other.sign(nonce_message(made.origin, made.size, made.root)))

    with expunge.open(folder) as deployment:
        before = deployment.inside_key
        for source in (wrong, cosignature, of_a_log):
            with pytest.raises(InputError, match="is not its nonce for this log"):
                deployment.rekey(witness=source)
        assert deployment.inside_key == before
    assert recompute(folder, shards="all").agrees


FAULTS = {
    "another secret": (lambda draw: replace(draw, own=bytes(32)), "does not commit to the operator's secret"),
    "another entry": (
        lambda draw: replace(draw, entry=replace(draw.entry, at="2020-01-01T00:00:00Z")),
        "is not in the log that the witness saw",
    ),
    "not the last entry": (
        lambda draw: replace(draw, entry=replace(draw.entry, sequence=draw.entry.sequence + 1)),
        "is not in the log that the witness saw",
    ),
    "another root": (lambda draw: replace(draw, root=bytes(32)), "is not in the log that the witness saw"),
    "another nonce": (
        lambda draw: replace(draw, nonce=replace(draw.nonce, value=bytes(64))),
        "is not the witness's answer to the commitment",
    ),
    "another witness": (
        lambda draw: replace(draw, nonce=replace(draw.nonce, witness=other_witness())),
        "is not the witness's answer to the commitment",
    ),
}


def other_witness():
    return NoteKey("witness.example", SigningKey.generate().public_key, is_witness=True)


@pytest.mark.parametrize("fault", FAULTS)
def test_an_auditor_finds_a_draw_that_was_made_up(folder, witness, fault):
    with expunge.open(folder) as deployment:
        deployment.rekey(witness=asking(witness))
    found = disclose(folder)
    bend, words = FAULTS[fault]
    assert found.draw.fault(found.key, found.log_key.name) == ""
    assert words in bend(found.draw).fault(found.key, found.log_key.name)
    assert "does not follow from" in found.draw.fault(RecipeKey(bytes(32)), found.log_key.name)
    assert "is not the witness's answer" in found.draw.fault(found.key, "expunge/other")


def test_an_operator_who_picks_a_key_after_the_nonce_is_found(folder, witness, tmp_path):
    """The broken variant: the key is one of many that the operator tried, and the log tells of a witness."""
    with expunge.open(folder) as deployment:
        original = RecipeKey.with_nonce.__func__
        try:
            RecipeKey.with_nonce = classmethod(lambda cls, own, nonce: cls(b"the one that suits the best....."))
            deployment.rekey(witness=asking(witness))
        finally:
            RecipeKey.with_nonce = classmethod(original)
    bundle = tmp_path / "bundle"
    export_for_audit(folder, bundle)
    for source in (folder, bundle):
        report = recompute(source, shards="all")
        assert (report.agrees, report.different, report.key) == (False, (), "matches")
        assert report.verdict.startswith("The key was not drawn as the log tells: the key does not follow from")
        assert any("picked among many" in each for each in report.does_not_show)


def test_a_bundle_holds_what_is_needed(folder, witness, tmp_path):
    with expunge.open(folder) as deployment:
        deployment.rekey(witness=asking(witness))
    bundle = tmp_path / "bundle"
    export_for_audit(folder, bundle)
    assert disclose(bundle).draw == disclose(folder).draw
    assert recompute(bundle, shards="all").drawn_with == str(witness.key)


def test_a_folder_that_tells_otherwise_than_its_log_is_refused(folder, witness):
    with expunge.open(folder) as deployment:
        deployment.rekey(witness=asking(witness))
    with closing(Database(folder)) as database:
        (good,) = database.rows("SELECT draw FROM recipe")[0]
        for text in ("", "{}", "nonsense", json.dumps({**json.loads(good), "unused": 4})):
            database.execute("UPDATE recipe SET draw = ?", (text,))
            with pytest.raises(FormatError, match=r"is damaged: .*how its key was drawn"):
                disclose(folder)


def test_over_http(folder, witness):
    with serving(witness) as url, expunge.open(folder) as deployment:
        for _ in range(2):
            assert deployment.rekey(witness=ask_nonce(url, witness.key))
        with pytest.raises(InputError, match="is not its nonce for this log"):
            deployment.rekey(witness=ask_nonce(url, other_witness()))
    with expunge.open(folder) as deployment:
        with pytest.raises(StoreError, match="cannot be reached"):
            deployment.rekey(witness=ask_nonce(url, witness.key))
        assert deployment.status.generation == 3
    assert recompute(folder, shards="all").drawn_with == str(witness.key)


def test_under_a_consensus_a_renewal_does_not_show_so_no_witness_can_take_part(folder, tmp_path):
    expunge.create(folder, GaussianNB(), X, X[:, 0] > 0, n_shards=3, promise="consensus").close()
    with expunge.open(folder) as deployment, pytest.raises(InputError, match="under a consensus"):
        deployment.rekey(witness=lambda *_: pytest.fail("asked"))
    assert [entry["event"] for entry in entries(folder)] == ["created"]


@contextmanager
def serving(witness, **options):
    with WitnessServer(witness, port=0, report=pytest.fail, **options) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        try:
            yield server.url
        finally:
            server.shutdown()
            thread.join()


def test_the_first_key_has_a_part_of_a_witness_that_takes_new_logs(folder, tmp_path):
    witness = Witness.create(tmp_path / "witness", name="witness.example")
    with serving(witness, trusts_new=True) as url:
        source = ask_nonce(url, witness.key)
        with expunge.create(folder, GaussianNB(), X, X[:, 0] > 0, n_shards=3, witness=source) as deployment:
            assert deployment.inside_key.witness == str(witness.key)
            deployment.delete([7])
            deployment.rekey(witness=source)
    committed, created, *_ = entries(folder)
    assert (committed["event"], created["event"]) == ("committed", "created")
    assert committed["at"] == created["at"]
    assert (created["facts"]["committed"], created["facts"]["unused"]) == (1, 0)
    (known,) = witness.logs()
    with open_view(folder) as view:
        assert known.key == view.log_key
        assert view.consistency(1)
    report = recompute(folder, shards="all")
    assert (report.agrees, report.drawn_with, report.draw_fault) == (True, str(witness.key), "")


def test_the_secret_is_committed_to_and_answered_before_a_record_is_read(folder, tmp_path):
    """T6 wants the key to be drawn before any record is read. A witness that refuses leaves nothing behind."""
    seen = []

    class Records:
        """Features that note when they are read."""

        dtype, ndim, shape = X.dtype, 2, X.shape

        def __len__(self):
            return len(X)

        def __array__(self, dtype=None, copy=None):
            seen.append("records")
            return np.array(X, dtype=dtype)

    witness = Witness.create(tmp_path / "witness", name="witness.example")

    def ask(submission_of, log):
        seen.append("witness")
        witness.trust(log)
        return witness.nonce(submission_of(0))

    expunge.create(folder, GaussianNB(), Records(), X[:, 0] > 0, n_shards=3, witness=ask).close()
    assert seen[0] == "witness"
    assert seen.count("witness") == 1
    with (
        serving(Witness.create(tmp_path / "closed", name="closed.example")) as url,
        pytest.raises(InputError, match="does not know this log"),
    ):
        expunge.create(folder.with_name("other"), GaussianNB(), X, X[:, 0] > 0, witness=ask_nonce(url, witness.key))
    assert [path.name for path in folder.parent.iterdir()] == [folder.name]
    for options in ({"promise": "consensus"}, {"rng": expunge.Randomness.from_seed(1)}):
        with pytest.raises(InputError, match="a witness"):
            expunge.create(folder.with_name("other"), GaussianNB(), X, X[:, 0] > 0, witness=ask, **options)
    assert seen.count("witness") == 1


def test_a_witness_takes_a_new_log_once_and_only_if_it_signed(folder, witness, tmp_path):
    other = SigningKey.generate()
    new, stranger = NoteKey("expunge/new", other.public_key), NoteKey("expunge/new", SigningKey.generate().public_key)
    sent = Submission(0, (), Checkpoint(new.name, 1, bytes(32)).signed(other))
    longer = Submission(1, (), Checkpoint(new.name, 1, bytes(32)).signed(other))
    with serving(witness) as url:  # knows the logs that it was told of, and no others
        assert ask_witness(url, sent, path="nonce", key=new).status == 404
    with serving(witness, trusts_new=True) as url:
        assert ask_witness(url, sent, path="nonce", key=stranger).status == 404  # its key did not sign this
        assert ask_witness(url, sent, path="nonce", key=NoteKey("expunge/x", other.public_key)).status == 404
        assert ask_witness(url, sent, key=new).status == 400  # the specification's request has no such line
        first = ask_witness(url, sent, path="nonce", key=new)
        assert first.status == 200
        assert ask_witness(url, longer, path="nonce", key=new).text == first.text
        assert ask_witness(url, longer, path="nonce").text == first.text
    assert [each.key.name for each in witness.logs() if each.size] == [new.name]
