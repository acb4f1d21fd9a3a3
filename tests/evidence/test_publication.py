"""What a log shows: submissions to witnesses, and publications that can only grow."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import InputError, ParameterError
from expunge.evidence import Checkpoint, NoteKey, Publication, SigningKey, Submission, Tree, hash_leaf

KEY, OTHER = SigningKey.generate(), SigningKey.generate()
LOG = NoteKey("example.com/churn", KEY.public_key)
TREE = Tree([hash_leaf(b"%d" % number) for number in range(20)])
FORK = Tree([hash_leaf(b"%d" % number) for number in (*range(4), *range(100, 116))])


def checkpoint(size, tree=TREE, key=KEY, origin=LOG.name):
    return Checkpoint(origin, size, tree.root(size)).signed(key)


def submission(old, new, tree=TREE):
    return Submission(old, tuple(tree.consistency(old, new)), checkpoint(new, tree))


def published(*sizes, tree=TREE):
    made = Publication()
    for size in sizes:
        old = 0 if made.last is None else made.last.size
        made = made.extended(checkpoint(size, tree), tuple(tree.consistency(old, size)))
    return made


def test_a_submission_is_read_as_it_was_written():
    for old in range(20):
        for new in range(old, 21):
            made = submission(old, new)
            assert Submission.parse(str(made)) == made
            assert made.continues(checkpoint(old) if old else None)


def test_only_the_checkpoint_that_the_proof_starts_from_is_continued():
    made = submission(5, 9)
    assert not made.continues(None)
    assert not made.continues(checkpoint(4))
    assert not made.continues(checkpoint(5, FORK))
    assert not made.continues(checkpoint(5, origin="example.com/other"))
    assert not submission(5, 9, FORK).continues(checkpoint(5))
    assert not Submission(0, tuple(TREE.consistency(5, 9)), checkpoint(9)).continues(None)


@pytest.mark.parametrize(
    "bend",
    [
        lambda text: "",
        lambda text: text.removeprefix("old "),
        lambda text: text.replace("old 5", "old 05"),
        lambda text: text.replace("old 5", "old -5"),
        lambda text: text.replace("old 5", "old ٥"),
        lambda text: text.replace("old 5", "old 99999999999999999999"),
        lambda text: text.replace("\n\n", "\n", 1),
        lambda text: text.replace("\n", "\nAAEC\n", 1),
        lambda text: text.replace("\n", "\n*\n", 1),
        lambda text: text.replace("\n", "\n" + 64 * f"{'A' * 43}=\n", 1),
        lambda text: text + "x",
        lambda text: text + " " * 140_000,
    ],
)
def test_bent_submissions_are_one_line(bend):
    with pytest.raises(InputError, match=r"not a submission|not a checkpoint") as caught:
        Submission.parse(bend(str(submission(5, 9))))
    assert "\n" not in str(caught.value)


def test_impossible_submissions_are_refused():
    with pytest.raises(ParameterError, match="old size"):
        Submission(-1, (), checkpoint(3))
    with pytest.raises(ParameterError, match="63 hashes of 32 bytes"):
        Submission(1, (b"short",), checkpoint(3))


@given(st.lists(st.integers(1, 20), max_size=6).map(sorted))
def test_a_publication_is_read_as_it_was_written_and_only_grows(sizes):
    made = published(*sizes)
    made.require_signed(LOG)
    assert Publication.parse(str(made)) == made
    longer = made.extended(checkpoint(20), tuple(TREE.consistency(sizes[-1] if sizes else 0, 20)))
    assert str(longer).startswith(str(made))
    assert all(made.holds(checkpoint(size)) for size in sizes)
    assert not made.holds(checkpoint(5, FORK))


def test_a_publication_that_is_not_one_history_is_refused():
    for steps, words in (
        ((submission(0, 3), submission(5, 9)), "checkpoint 2, of 9 entries, does not continue"),
        ((submission(0, 5), submission(5, 9, FORK)), "checkpoint 2, of 9 entries, does not continue"),
        ((submission(3, 5),), "checkpoint 1, of 5 entries, does not continue"),
        ((submission(0, 5), Submission(5, (), checkpoint(5, key=OTHER))), "checkpoint 2, of 5 .* is not signed"),
        ((Submission(0, (), checkpoint(5, origin="example.com/other")),), "is not signed by the log example.com/churn"),
    ):
        with pytest.raises(InputError, match=words):
            Publication(steps).require_signed(LOG)


def test_what_is_cut_or_changed_is_noticed():
    """Every change of one character is either refused when it is read, or by its signatures and proofs."""
    text = str(published(3, 5, 9))
    for place in range(len(text)):
        for other in ("", "A", "\n"):
            bent = text[:place] + other + text[place + 1 :]
            if bent == text:
                continue
            with pytest.raises(InputError):
                Publication.parse(bent).require_signed(LOG)
    for place in range(1, len(text)):
        try:
            found = Publication.parse(text[:place])
        except InputError:
            continue
        assert text.startswith(str(found))  # a beginning that was published
        assert len(found.steps) < 3


@given(st.text())
def test_any_text_is_read_or_refused(text):
    try:
        found = Publication.parse(text)
    except InputError:
        return
    assert str(found) == text
