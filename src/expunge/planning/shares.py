"""Observed top-vote shares, read from a text file."""

from __future__ import annotations

import math
import re
from os import PathLike
from pathlib import Path
from typing import Final

from expunge.errors import ParameterError

_SEPARATORS: Final = re.compile(r"[\s,;]+")


def read_vote_shares(path: str | PathLike[str]) -> tuple[float, ...]:
    """The shares in a file: numbers from 0 to 1 apart by white space, commas or semicolons.

    The first line may be a heading; empty lines and what follows a # are skipped. ParameterError, in one line, names
    what is wrong and where.
    """
    try:
        text = Path(path).read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is no text"
        raise ParameterError(f"the vote shares cannot be read from {str(path)!r}: {reason}") from None
    found: list[float] = []
    is_first = True
    for number, line in enumerate(text.splitlines(), start=1):
        words = [word for word in _SEPARATORS.split(line.partition("#")[0]) if word]
        if not words:
            continue
        if not (is_first and _is_heading(words)):
            found += [_share(word, path, number) for word in words]
        is_first = False
    if not found:
        raise ParameterError(f"there are no vote shares in {str(path)!r}")
    return tuple(found)


def _is_heading(words: list[str]) -> bool:
    return all(math.isnan(_number(word)) and not word[0].isdigit() for word in words)


def _share(word: str, path: str | PathLike[str], line: int) -> float:
    value = _number(word)
    if not 0 <= value <= 1:
        raise ParameterError(f"a vote share must be a number from 0 to 1, got {word!r} in line {line} of {str(path)!r}")
    return value


def _number(word: str) -> float:
    try:
        return float(word)
    except ValueError:
        return math.nan
