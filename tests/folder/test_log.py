"""The log of a folder: signed checkpoints, proofs, and nothing is signed for a log that was changed."""

from __future__ import annotations

import json
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import expunge
from expunge.core.errors import FormatError, InputError
from expunge.evidence import (
    Checkpoint,
    NoteKey,
    Peaks,
    PublicKey,
    SigningKey,
    hash_leaf,
    is_consistent,
    write_canonical,
)
from expunge.folder import DurableDeployment, evidence, open_view
from expunge.folder.checkup import check
from expunge.folder.store import Store

X = np.random.default_rng(0).normal(size=(60, 3))


@pytest.fixture
def deployment(folder: Path) -> DurableDeployment:
    made = expunge.create(folder, LogisticRegression(), X, X[:, 0] > 0, n_shards=4)
    made.delete([7])
    made.delete([8])
    return made


def log_key(folder: Path, checkpoint: Checkpoint) -> NoteKey:
    return NoteKey(checkpoint.origin, PublicKey.load(folder / "keys" / "public.pem"))


def test_every_checkpoint_is_signed_and_continues_every_earlier_one(deployment: DurableDeployment) -> None:
    seen = [deployment.checkpoint()]
    for record in range(4):
        deployment.delete([record])
        seen.append(deployment.checkpoint())
    with open_view(deployment.path) as view:
        assert view.checkpoint() == seen[-1]
        assert view.consistency(seen[1].size, seen[2].size) == deployment.consistency(seen[1].size, seen[2].size)
    assert [each.size for each in seen] == [5, 7, 9, 11, 13]
    for place, old in enumerate(seen):
        assert old.is_signed_by(log_key(deployment.path, old))
        for new in seen[place:]:
            proof = deployment.consistency(old.size, new.size)
            assert is_consistent(old.size, old.root, new.size, new.root, proof)
    with pytest.raises(InputError, match="old size"):
        deployment.consistency(14)


def test_a_checkpoint_with_cosignatures_is_kept(deployment: DurableDeployment) -> None:
    witness, old = SigningKey.generate(), deployment.checkpoint()
    cosigned = old.cosigned("witness.example", witness, time=1_800_000_000)
    deployment.keep_cosigned(cosigned)
    assert deployment.checkpoint() == cosigned
    deployment.delete([9])
    new = deployment.checkpoint()
    assert (new.size, len(new.signatures)) == (7, 1)
    for wrong, words in (
        (Checkpoint(old.origin, 7, new.root).signed(witness), "is not signed by the log"),
        (Checkpoint("expunge/other", 7, new.root).signed(witness), "is not signed by the log"),
        (_signed(deployment.path, old.origin, 7, bytes(32)), "size 7 is not one of this log"),
        (_signed(deployment.path, old.origin, 8, new.root), "size 8 is not one of this log"),
    ):
        with pytest.raises(InputError, match=words):
            deployment.keep_cosigned(wrong)
    deployment.keep_cosigned(new.cosigned("witness.example", witness, time=1_800_000_000))
    with pytest.raises(InputError, match="the checkpoint of size 5 is older than the cosigned one of 7"):
        deployment.keep_cosigned(cosigned)


def _signed(folder: Path, origin: str, size: int, root: bytes) -> Checkpoint:
    return Checkpoint(origin, size, root).signed(SigningKey.load(folder / "keys" / "signing.pem"))


def _rewrite(store: Store, sequence: int, at: str, *, with_leaf: bool = False, with_tree: bool = False) -> None:
    """What somebody does who changes an entry with the database's own means, so that its checksums are right."""
    row = store.database.row("SELECT entry FROM ledger WHERE sequence = ?", (sequence,))
    assert row is not None
    text = write_canonical({**json.loads(row[0]), "at": at})
    store.database.execute("UPDATE ledger SET entry = ? WHERE sequence = ?", (text.decode(), sequence))
    if with_leaf:
        store.database.execute("UPDATE ledger SET leaf = ? WHERE sequence = ?", (hash_leaf(text), sequence))
    if with_tree:
        peaks = Peaks()
        for (entry,) in store.database.rows("SELECT entry FROM ledger ORDER BY sequence"):
            peaks.append(hash_leaf(entry.encode()))
        store.database.execute("UPDATE checkpoints SET nodes = ?", (peaks.nodes,))


def _forge(store: Store) -> None:
    """A whole other log, with a checkpoint of another key."""
    _rewrite(store, 2, "2020-01-01T00:00:00Z", with_leaf=True, with_tree=True)
    row = store.database.row("SELECT nodes FROM checkpoints")
    assert row is not None
    made = Checkpoint(f"expunge/{store.fact('deployment')}", 5, Peaks(5, bytes(row[0])).root())
    store.database.execute("UPDATE checkpoints SET note = ?", (str(made.signed(SigningKey.generate())),))


ATTACKS: dict[str, tuple[Callable[[Store], object], str]] = {
    "a past entry": (lambda store: _rewrite(store, 2, "2020-01-01T00:00:00Z"), "entry 2 was changed"),
    "with its leaf": (
        lambda store: _rewrite(store, 2, "2020-01-01T00:00:00Z", with_leaf=True),
        "its entries are not those that its checkpoint was signed for",
    ),
    "with the tree": (
        lambda store: _rewrite(store, 2, "2020-01-01T00:00:00Z", with_leaf=True, with_tree=True),
        "its entries are not those that its checkpoint was signed for",
    ),
    "and the signature": (_forge, "its checkpoint is not signed with the deployment's key"),
    "the end is gone": (
        lambda store: store.database.execute("DELETE FROM ledger WHERE sequence > 3"),
        "it ends after entry 3, and 5 entries were signed",
    ),
    "the middle is gone": (
        lambda store: store.database.execute("DELETE FROM ledger WHERE sequence = 3"),
        "entry 3 is missing",
    ),
    "one too many": (
        lambda store: store.database.execute("INSERT INTO ledger SELECT 6, entry, leaf FROM ledger WHERE sequence = 5"),
        "entry 6 was never signed",
    ),
    "no checkpoint": (lambda store: store.database.execute("DELETE FROM checkpoints"), "entry 1 was never signed"),
}


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_signed_for_a_log_that_was_changed(deployment: DurableDeployment, attack: str) -> None:
    """The attacker takes the time of the acceptance back to 2020, in the log and in the table of requests."""
    change, words = ATTACKS[attack]
    change(deployment._store)
    deployment._store.database.execute("UPDATE requests SET accepted_at = '2020-01-01T00:00:00Z' WHERE number = 1")
    before = deployment._store.database.rows("SELECT * FROM checkpoints")
    for act in (deployment.certificate, deployment.checkpoint, lambda: deployment.consistency(1)):
        with pytest.raises(FormatError, match=words) as caught:
            act()
        assert "\n" not in str(caught.value)
    if attack in ("and the signature", "the end is gone", "one too many", "no checkpoint"):
        with pytest.raises(FormatError, match=words):  # what does not need every entry to be read
            deployment.delete([1])
    assert deployment._store.database.rows("SELECT * FROM checkpoints") == before
    deployment.close()
    with pytest.raises(FormatError, match=words):
        expunge.open(deployment.path)
    with pytest.raises(FormatError, match=words):
        open_view(deployment.path)


def test_an_entry_after_a_changed_one_does_not_cover_it_up(deployment: DurableDeployment) -> None:
    """Accepting does not read the past. What it signs is the tree that was signed before, with one more entry."""
    _rewrite(deployment._store, 2, "2020-01-01T00:00:00Z", with_leaf=True)
    deployment.delete([1])
    with pytest.raises(FormatError, match="its entries are not those that its checkpoint was signed for"):
        deployment.certificate()
    _rewrite(deployment._store, 2, "2020-01-01T00:00:00Z", with_leaf=True, with_tree=True)
    with pytest.raises(FormatError, match="what is kept of its tree is not what its checkpoint was signed for"):
        deployment.delete([2])


def test_a_sound_log_is_told_by_the_checkup(deployment: DurableDeployment) -> None:
    deployment.close()
    assert check(deployment.path).checked["log entries"] == 5


def test_a_long_log_holds_nothing_up(deployment: DurableDeployment, monkeypatch: pytest.MonkeyPatch) -> None:
    """While its entries are looked at for a certificate or a proof, a request is accepted, and is in what is given."""
    ledger = deployment._evidence.ledger
    asked = deployment.delete([17]).request
    questions: list[Callable[[], object]] = [
        lambda: deployment.certificate(asked),
        deployment.checkpoint,
        lambda: deployment.inclusion(1),
        lambda: deployment.consistency(1),
    ]
    monkeypatch.setattr(evidence, "_AT_ONCE", 2)
    original = evidence.hash_leaf
    for place, ask in enumerate(questions):
        accepted, seen = list[object](), list[bytes]()

        def accept(id: int = 20 + place, accepted: list[object] = accepted) -> None:
            accepted.append(deployment.submit([expunge.Delete(id)]))

        def meanwhile(
            content: bytes,
            accept: Callable[[], None] = accept,
            seen: list[bytes] = seen,
            accepted: list[object] = accepted,
        ) -> bytes:
            seen.append(content)
            if len(seen) == 3:
                thread = threading.Thread(target=accept)
                thread.start()
                thread.join(20)
                assert accepted  # it does not wait
            return original(content)

        with monkeypatch.context() as patch:
            patch.setattr(evidence, "hash_leaf", meanwhile)
            found = ask()
        assert len(accepted) == 1
        if isinstance(found, Checkpoint):
            assert found.size == ledger.signed.size
    assert deployment.log_state.counts["accepted"] == 7
    assert ledger.counts() == Counter(each.event for each in ledger.entries())
