"""Designed tables kept on disk, by parameters. What is read back is certified again by the caller, never trusted.

One file a target, JSON with floats in hexadecimal (exact, readable, cannot run code), written to a temporary file and
renamed, so that a reader sees a whole file or none. Whatever is wrong with a file makes it count as absent.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from expunge.guarantees._consensus_regimes import Floats
from expunge.guarantees._consensus_target import ConsensusTarget

#: Raise it whenever the designer changes what it returns: files of other versions are not read.
_VERSION = 1


def default_cache_folder() -> Path:
    """$EXPUNGE_CACHE, else $XDG_CACHE_HOME/expunge, else ~/.cache/expunge; for callers that want a cache."""
    named = os.environ.get("EXPUNGE_CACHE")
    if named:
        return Path(named)
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "expunge"


def load(folder: Path, target: ConsensusTarget) -> tuple[Floats, Floats | None] | None:
    """The tables kept for exactly this target, or None."""
    try:
        content = json.loads(_path(folder, target).read_text(encoding="ascii"))
        if content["version"] != _VERSION or content["target"] != _key(target):
            return None
        abstain = content["abstain_survival"]
        return _table(content["survival"]), None if abstain is None else _table(abstain)
    except (OSError, ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def save(folder: Path, target: ConsensusTarget, survival: Floats, abstain_survival: Floats | None) -> None:
    """Keep the tables; a folder that cannot be written to only means that they will be made again."""
    content = {
        "version": _VERSION,
        "target": _key(target),
        "survival": _text(survival),
        "abstain_survival": None if abstain_survival is None else _text(abstain_survival),
    }
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor, temporary = tempfile.mkstemp(dir=folder, prefix=".consensus-", suffix=".tmp")
        try:
            with os.fdopen(descriptor, "w", encoding="ascii") as file:
                json.dump(content, file)
            os.replace(temporary, _path(folder, target))
        except OSError:
            os.unlink(temporary)


def _path(folder: Path, target: ConsensusTarget) -> Path:
    digest = hashlib.sha256(json.dumps([_VERSION, _key(target)], sort_keys=True).encode()).hexdigest()
    return folder / f"consensus-{digest[:32]}.json"


def _key(target: ConsensusTarget) -> dict[str, Any]:
    """The target with floats in hexadecimal: equal keys mean equal targets, to the last bit."""
    return {name: float(value).hex() if isinstance(value, float) else value for name, value in asdict(target).items()}


def _text(table: Floats) -> list[str]:
    return [value.hex() for value in table.tolist()]


def _table(values: list[str]) -> Floats:
    return np.array([float.fromhex(value) for value in values], dtype=np.float64)
