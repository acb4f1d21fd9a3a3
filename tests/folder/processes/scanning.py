"""Search every byte of every file for a person: what was erased must not be found, in any spelling."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

RUN = 16  # so many bytes in a row are no coincidence: all patterns are drawn at random


def forms_of(raw: bytes) -> Iterator[bytes]:
    """The bytes themselves, as hexadecimal digits, and as base64 at each of its three alignments."""
    yield raw
    yield raw.hex().encode()
    yield raw.hex().upper().encode()
    for shift in range(3):
        coded = base64.b64encode(bytes(shift) + raw)
        yield coded[4 if shift else 0 : 4 * ((shift + len(raw)) // 3)]


def row_patterns(row: np.ndarray) -> list[bytes]:
    """Every run of sixteen bytes of a row of numbers, at every position, in every form."""
    raw = np.ascontiguousarray(row).tobytes()
    starts = range(0, max(len(raw) - RUN, 0) + 1, row.dtype.itemsize)
    return [form for start in starts for form in forms_of(raw[start : start + RUN])]


def text_patterns(text: str) -> list[bytes]:
    """A text in UTF-8, UTF-16, as JSON with escapes, and in the forms of its bytes."""
    escaped = json.dumps(text)[1:-1].encode()
    return [*forms_of(text.encode()), escaped, text.encode("utf-16-le"), text.encode("utf-32-le")]


def number_patterns(number: int) -> list[bytes]:
    """A number of 64 bits either way round, in decimal digits, and in the forms of its bytes."""
    little, big = (number.to_bytes(8, order, signed=True) for order in ("little", "big"))
    return [*forms_of(little), *forms_of(big), str(number).encode()]


def files_under(*folders: Path) -> dict[Path, bytes]:
    """Every file's bytes, and every file's and folder's name as if it were one more file."""
    found: dict[Path, bytes] = {}
    for folder in folders:
        paths = sorted(folder.rglob("*"))
        found.update({path: path.read_bytes() for path in paths if path.is_file()})
        found[folder / "(names)"] = "\n".join(str(path.relative_to(folder)) for path in paths).encode()
    return found


def traces(files: dict[Path, bytes], patterns: Iterable[bytes]) -> list[str]:
    """Where any of the patterns is, one line each."""
    patterns = list(patterns)
    first = [int.from_bytes(pattern[:_WINDOW], "little") for pattern in patterns]
    starts, is_short = (
        np.array(first, dtype=np.uint64),
        np.array([len(each) < _WINDOW for each in patterns], dtype=bool),
    )
    found = []
    for path, content in files.items():
        places = range(len(patterns))
        if len(patterns) > 20:  # else it is quicker to look for each
            places = np.flatnonzero(is_short | _may_hold(content, starts)).tolist()
        found += [(place, path, content) for place in places if patterns[place] in content]
    return [
        f"{path.name} holds {patterns[place]!r} at byte {content.index(patterns[place])}"
        for place, path, content in sorted(found, key=lambda each: each[0])
    ]


_WINDOW = 8


def _may_hold(content: bytes, starts: np.ndarray) -> np.ndarray:
    """Of each of these eight bytes: False only if they are nowhere in the content.

    Every eight bytes in a row leave a mark in a table. Two that are different may share one.
    """
    bits = np.uint64(max(8, (8 * len(content)).bit_length()))
    marks = np.zeros(1 << int(bits), dtype=bool)
    for shift in range(min(_WINDOW, max(0, len(content) - _WINDOW + 1))):
        count = (len(content) - shift) // _WINDOW
        marks[_place_of(np.frombuffer(content, dtype="<u8", offset=shift, count=count), bits)] = True
    return marks[_place_of(starts, bits)]


def _place_of(windows: np.ndarray, bits: np.uint64) -> np.ndarray:
    return (windows * np.uint64(0x9E3779B97F4A7C15)) >> (np.uint64(64) - bits)
