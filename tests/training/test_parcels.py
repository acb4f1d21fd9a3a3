from __future__ import annotations

import threading

import pytest
from cryptography.exceptions import InvalidTag

from expunge.core.errors import ExpungeError, TrainingError
from expunge.training import parcels
from expunge.training.parcels import make_key, open_parcel, result_of, seal, work


def shout(word: str) -> str:
    return word.upper()


def fail(word: str) -> str:
    raise TrainingError(f"cannot learn from {word}", 3)


class Stubborn(Exception):
    """An error that cannot be pickled."""

    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")
        self.lock = threading.Lock()


def fail_stubbornly(word: str) -> str:
    raise Stubborn(word, word)


def call(function, item):
    key = make_key()
    return result_of(key, work(key, seal(key, function), seal(key, item)))


@pytest.mark.parametrize("size", [0, 1, 15, 16, 17, 64, 1000])
def test_a_parcel_opens_with_its_key_alone_and_shows_nothing(monkeypatch, size):
    monkeypatch.setattr(parcels, "_PIECE", 16)  # so that it has many pieces
    key, value = make_key(), b"Zo\xeb" * size
    parcel = seal(key, value)
    assert open_parcel(key, parcel) == value
    assert b"Zo\xeb" not in parcel
    assert parcel != seal(key, value)
    with pytest.raises(InvalidTag):
        open_parcel(make_key(), parcel)
    with pytest.raises(InvalidTag):
        open_parcel(key, parcel[:20] + bytes([parcel[20] ^ 1]) + parcel[21:])


def test_results_and_errors_travel():
    assert call(shout, "quiet") == "QUIET"
    assert call(lambda word: word * 2, "a") == "aa"  # a function that no module holds
    with pytest.raises(TrainingError, match="cannot learn from Zoë") as caught:
        call(fail, "Zoë")
    assert caught.value.shard == 3
    with pytest.raises(ExpungeError, match="Stubborn: x and x"):
        call(fail_stubbornly, "x")
    with pytest.raises(ExpungeError, match="cannot be sent back"):
        call(lambda _: (each for each in "ab"), "x")
