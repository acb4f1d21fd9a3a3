"""Text from strangers on the way to a screen: what could rewrite or reorder the screen becomes visible."""

from __future__ import annotations

import unicodedata
from typing import Final

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# Directions that overlap into the text after them; ordinary right-to-left letters need none of these.
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})


def shown(text: str) -> str:
    """The text with control characters, line breaks and changes of direction replaced."""
    if text.isprintable():
        return text
    return "".join(_REPLACEMENT if _is_hidden(character) else character for character in text)


def _is_hidden(character: str) -> bool:
    return character in _BIDIRECTIONAL or unicodedata.category(character) in _HIDDEN
