"""Checkpoints and cosignatures: the published examples of the formats, and whatever is bent is refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import InputError, ParameterError
from expunge.evidence.checkpoint import Checkpoint, NoteKey, NoteSignature
from expunge.evidence.keys import SigningKey

# The example in the documentation of Go's package for notes, which the format comes from.
GO_KEY = "PeterNeumann+c74f20a3+ARpc2QcUPDhMQegwxbzhKqiBfsVkmqq/LDE4izWy10TW"
GO_NOTE = b"If you think cryptography is the answer to your problem,\nthen you don't know what your problem is.\n"
GO_LINE = "x08go/ZJkuBS9UG/SffcvIAQxVBtiFupLLr8pAcElZInNIuGUgYN1FFYC2pZSNXgKvqfqdngotpRZb6KE6RyyBwJnAM="
# The example in the specification of cosignatures.
EXAMPLE = """example.com/behind-the-sofa
20852163
CsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=

\u2014 example.com/behind-the-sofa \
Az3grlgtzPICa5OS8npVmf1Myq/5IZniMp+ZJurmRDeOoRDe4URYN7u5/Zhcyv2q1gGzGku9nTo+zyWE+xeMcTOAYQ8=
\u2014 witness.example.com/w1 \
jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==
"""
KEY, OTHER, WITNESS = SigningKey.generate(), SigningKey.generate(), SigningKey.generate()
LOG = NoteKey("example.com/churn", KEY.public_key)
WATCHING = NoteKey("witness.example.com/w1", WITNESS.public_key, is_witness=True)
MADE = (
    Checkpoint("example.com/churn", 7, bytes(range(32)))
    .signed(KEY)
    .cosigned(WATCHING.name, WITNESS, time=1_700_000_000)
)


def test_the_key_and_signature_of_the_format_s_own_documentation():
    import base64

    key = NoteKey.parse(GO_KEY)
    assert (key.name, key.id.hex(), key.is_witness) == ("PeterNeumann", "c74f20a3", False)
    assert str(key) == GO_KEY
    raw = base64.b64decode(GO_LINE)
    assert raw[:4] == key.id
    assert key.key.verifies(raw[4:], GO_NOTE)
    assert not key.key.verifies(raw[4:], GO_NOTE + b"\n")


def test_the_example_of_the_specification_is_read_and_written():
    found = Checkpoint.parse(EXAMPLE)
    assert (found.origin, found.size, found.root.hex()[:8]) == ("example.com/behind-the-sofa", 20852163, "0ac5186a")
    assert [each.name for each in found.signatures] == ["example.com/behind-the-sofa", "witness.example.com/w1"]
    assert int.from_bytes(found.signatures[1].signature[:8], "big") == 1679315147
    assert str(found) == EXAMPLE


def test_signed_and_cosigned():
    again = Checkpoint.parse(str(MADE))
    assert again == MADE
    assert again.is_signed_by(LOG)
    assert again.is_signed_by(WATCHING)
    assert again.cosigned_at(WATCHING) == 1_700_000_000
    assert again.cosigned_at(LOG) is None
    assert not again.is_signed_by(NoteKey(LOG.name, OTHER.public_key))
    assert not again.is_signed_by(NoteKey("example.com/other", KEY.public_key))
    assert not again.is_signed_by(NoteKey(WATCHING.name, WITNESS.public_key))  # the key of a log, not of a witness
    later = again.cosigned(WATCHING.name, WITNESS, time=1_700_000_060)  # replaces the earlier line
    assert len(later.signatures) == 2
    assert later.cosigned_at(WATCHING) == 1_700_000_060


def test_nothing_that_is_signed_can_be_changed():
    text = str(MADE)
    note = text.partition("\n\n")[0]
    for place in range(len(note)):
        for other in "x0 A\n":
            bent = text[:place] + other + text[place + 1 :]
            if bent == text:
                continue
            try:
                found = Checkpoint.parse(bent)
            except InputError:
                continue
            assert not found.is_signed_by(LOG)
            assert not found.is_signed_by(WATCHING)


def test_a_log_s_signature_is_no_cosignature_of_the_same_key():
    """A log that also is a witness: without the two kinds, one could be passed off as the other."""
    watching = NoteKey(LOG.name, KEY.public_key, is_witness=True)
    signed = Checkpoint("example.com/churn", 7, bytes(32)).signed(KEY)
    assert watching.id != LOG.id
    assert not signed.is_signed_by(watching)
    relabelled = Checkpoint(
        signed.origin,
        signed.size,
        signed.root,
        signatures=(NoteSignature(LOG.name, watching.id, bytes(8) + signed.signatures[0].signature),),
    )
    assert not relabelled.is_signed_by(watching)


def test_two_signatures_of_one_key_are_none():
    wrong = NoteSignature(LOG.name, LOG.id, bytes(64))
    twice = Checkpoint(MADE.origin, MADE.size, MADE.root, signatures=(wrong, *MADE.signatures))
    assert not twice.is_signed_by(LOG)


@pytest.mark.parametrize(
    "bend",
    [
        lambda text: "",
        lambda text: text.replace("\n\n", "\n"),
        lambda text: text[:-1],
        lambda text: text + "x",
        lambda text: text.replace("\n7\n", "\n07\n"),
        lambda text: text.replace("\n7\n", "\n-7\n"),
        lambda text: text.replace("\n7\n", "\n9999999999999999999\n"),
        lambda text: text.replace("\n7\n", "\n٧\n"),
        lambda text: text.replace("AAEC", "AAE"),
        lambda text: text.replace("\u2014", "-"),
        lambda text: text.replace("\n\n", "\n\textension\n\n"),
        lambda text: text + text.split("\n\n")[1] * 16,
        lambda text: text.replace("example.com/churn ", "example.com/churn  "),
        lambda text: "x" * 70_000 + text,
    ],
)
def test_bent_texts_are_one_line(bend):
    with pytest.raises(InputError, match="not a checkpoint") as caught:
        Checkpoint.parse(bend(str(MADE)))
    assert "\n" not in str(caught.value)


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        found = Checkpoint.parse(text)
    except InputError:
        return
    assert str(found) == text


@pytest.mark.parametrize("text", ["", "a+b", GO_KEY[:-4], GO_KEY.replace("c74f", "c74e"), GO_KEY.replace("+AR", "+CR")])
def test_wrong_keys_are_one_line(text):
    with pytest.raises(InputError, match="verifier key"):
        NoteKey.parse(text)
    with pytest.raises(ParameterError, match="no spaces"):
        NoteKey("two words", KEY.public_key)
