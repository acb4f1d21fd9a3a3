"""Storing the front of a deployment, and what its round has learned: no router or student is made, or paid for, twice.

What a round has learned, the front itself says (`dump_round`, `load_round`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

from expunge.core.errors import FormatError, ParameterError
from expunge.folder.codec import Encoded, decode, encode
from expunge.folder.store import Store
from expunge.serving.publishing import Front, Round, RoundContext
from expunge.training.ensemble import EnsembleState

_FRONT, _ROUND, _FIGURES = "front", "round", "figures"
_METHODS = ("open_round", "dump_round", "load_round", "refuse")


def put_front(store: Store, front: Front, trusted: Sequence[str]) -> None:
    """Store the front when the folder is created."""
    lacks = [name for name in _METHODS if not hasattr(front, name)]
    if lacks:
        raise ParameterError(f"{type(front).__name__} cannot be kept in a folder: it has no {lacks[0]}")
    encoded = encode(front, trusted=trusted)
    store.put_object(_FRONT, encoded.format, encoded.data)


def get_front(store: Store, trusted: Sequence[str]) -> Front:
    """Read the front."""
    found = store.object(_FRONT)
    if found is None:
        raise FormatError(f"{store.folder} does not say what answers queries: it is damaged")
    return cast("Front", decode(*found, trusted=trusted, any_release=True))


def encode_round(front: Front, serving: Round, state: EnsembleState, trusted: Sequence[str]) -> Encoded | None:
    """Turn what a round has learned into bytes; None if it has learned nothing."""
    kept = front.dump_round(serving, state)
    return encode(kept, trusted=trusted) if kept else None


def put_round(store: Store, encoded: Encoded | None, figures: dict[str, Any]) -> None:
    """Store what a round has learned, and how it turned out, inside the caller's transaction."""
    store.write_fact(_FIGURES, figures)
    if encoded is not None:
        store.put_object(_ROUND, encoded.format, encoded.data)


def get_figures(store: Store) -> dict[str, Any]:
    """Read how the round in force turned out."""
    found: dict[str, Any] = store.fact(_FIGURES)
    return found


def get_round(store: Store, front: Front, opening: RoundContext, trusted: Sequence[str]) -> Round:
    """Read the round that was stored."""
    return load_round(store, read_round(store), front, opening, trusted)


def read_round(store: Store) -> tuple[str, bytes] | None:
    """Read what the round in force has learned, as it was encoded; None if it has learned nothing."""
    return store.object(_ROUND)


def load_round(
    store: Store, found: tuple[str, bytes] | None, front: Front, opening: RoundContext, trusted: Sequence[str]
) -> Round:
    """Make the round again from what it has learned."""
    kept = {} if found is None else decode(*found, trusted=trusted)
    try:
        return front.load_round(opening, kept)
    except (KeyError, TypeError) as error:
        raise FormatError(f"{store.folder}: what the front keeps of its round is damaged: {error}") from error
