"""The few pieces of HTML that the page is made of; every text goes through `escaped`."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence

from expunge.certificates.display import shown


def escaped(text: str) -> str:
    """Text that can stand anywhere in a page."""
    return html.escape(shown(text), quote=True)


def tag(name: str, content: str, *, css: str = "", **attributes: str) -> str:
    """An element around markup."""
    if css:
        attributes = {"class": css, **attributes}
    inside = "".join(f' {key}="{escaped(value)}"' for key, value in attributes.items())
    return f"<{name}{inside}>{content}</{name}>"


def tag_text(name: str, text: str, *, css: str = "", **attributes: str) -> str:
    """An element around text."""
    return tag(name, escaped(text), css=css, **attributes)


def items(sentences: Iterable[str]) -> str:
    """A list of sentences."""
    return tag("ul", "".join(tag_text("li", sentence) for sentence in sentences))


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and values."""
    return tag("dl", "".join(tag("div", tag_text("dt", name) + tag_text("dd", value)) for name, value in rows))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, css: str = "") -> str:
    """A table of texts."""
    head = tag("tr", "".join(tag_text("th", column, scope="col") for column in columns))
    body = "".join(tag("tr", "".join(tag_text("td", cell) for cell in row)) for row in rows)
    return tag("table", tag("thead", head) + tag("tbody", body), css=css)
