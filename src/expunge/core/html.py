"""HTML pages that stand alone: one file, no scripts, nothing fetched; light, dark, and on A4 paper.

Every text on a page goes through `escape`. `document` makes the page around the parts.
"""

from __future__ import annotations

import html
import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

_REPLACEMENT: Final = "\N{REPLACEMENT CHARACTER}"
# These change the direction of the text after them. Ordinary right-to-left letters do not need them.
_BIDIRECTIONAL: Final = frozenset("\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")
_HIDDEN: Final = frozenset({"Cc", "Cs", "Zl", "Zp"})
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; base-uri 'none'; form-action 'none'"
_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1b1f24; --soft: #57606a; --line: #d0d7de; --paper: #ffffff; --back: #f6f8fa;
  --good: #116329; --good-back: #dafbe1; --wait: #7d4e00; --wait-back: #fff8c5; --bad: #a40e26; --bad-back: #ffebe9; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6edf3; --soft: #9198a1; --line: #3d444d; --paper: #161b22;
  --back: #0d1117; --good: #7ee787; --good-back: #12351d; --wait: #f2cc60; --wait-back: #3a2d05; --bad: #ffa198;
  --bad-back: #4c1519; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--back); color: var(--ink); line-height: 1.5;
  font: 16px/1.5 "Segoe UI", system-ui, -apple-system, "Helvetica Neue", Arial, sans-serif; }
main { max-width: 50rem; margin: 2rem auto; padding: 2.5rem 3rem; background: var(--paper);
  border: 1px solid var(--line); border-top: 6px solid var(--soft); border-radius: 6px; }
.brand { margin: 0; color: var(--soft); letter-spacing: 0.12em; text-transform: uppercase; font-size: 0.8rem; }
h1 { margin: 0.1rem 0 0.8rem; font-size: 2rem; line-height: 1.2; }
h2 { margin: 2.2rem 0 0.6rem; font-size: 1.25rem; border-bottom: 1px solid var(--line); padding-bottom: 0.25rem; }
h3 { margin: 1.6rem 0 0.4rem; font-size: 1rem; }
li { margin: 0.35rem 0; }
p, li { overflow-wrap: anywhere; }
ul { padding-left: 1.3rem; margin: 0.4rem 0; }
dl { display: grid; grid-template-columns: minmax(8rem, max-content) 1fr; gap: 0.25rem 1.4rem; margin: 0.6rem 0; }
dl > div { display: contents; }
dt { color: var(--soft); }
dd { margin: 0; overflow-wrap: anywhere; }
table { border-collapse: collapse; margin: 0.8rem 0; width: 100%; font-variant-numeric: tabular-nums; }
caption { text-align: left; padding-bottom: 0.4rem; color: var(--soft); }
th, td { text-align: left; padding: 0.3rem 1rem 0.3rem 0; border-bottom: 1px solid var(--line); vertical-align: top;
  overflow-wrap: anywhere; }
th { color: var(--soft); font-weight: 600; }
code { font-family: ui-monospace, "SFMono-Regular", Consolas, monospace; font-size: 0.92em; overflow-wrap: anywhere; }
@media (max-width: 40rem) { main { margin: 0; padding: 1.2rem; border-left: 0; border-right: 0; }
  dl { display: block; } dl > div { display: block; margin-bottom: 0.4rem; } }
@page { size: A4; margin: 18mm; }
@media print {
  :root { color-scheme: light; --ink: #000; --soft: #444; --line: #bbb; --paper: #fff; --back: #fff; --good: #116329;
    --good-back: #fff; --wait: #7d4e00; --wait-back: #fff; --bad: #a40e26; --bad-back: #fff; }
  body { font-size: 10.5pt; } main { margin: 0; padding: 0; border: 0; max-width: none; }
  h1 { font-size: 20pt; } h2, h3 { break-after: avoid; } li, tr, dl > div { break-inside: avoid; }
}
"""


def make_visible(text: str) -> str:
    """Replace the characters of a text that could rewrite or reorder a screen.

    Use it for text that others wrote, before it is shown on a terminal or on a page.

    Parameters
    ----------
    text
        Any text.

    Returns
    -------
    str
        The text with a replacement character for every control character, line break and change of direction.

    Examples
    --------
    >>> make_visible("safe")
    'safe'
    >>> make_visible("two\\nlines")
    'two�lines'
    """
    if text.isprintable():
        return text
    return "".join(_REPLACEMENT if _is_hidden(character) else character for character in text)


def _is_hidden(character: str) -> bool:
    return character in _BIDIRECTIONAL or unicodedata.category(character) in _HIDDEN


def escape(text: str) -> str:
    """Write a text so that it can stand anywhere in a page, also in an attribute.

    Parameters
    ----------
    text
        Any text.

    Returns
    -------
    str
        The text as markup, with hidden characters made visible.

    Examples
    --------
    >>> escape("<b> & 'c'")
    '&lt;b&gt; &amp; &#x27;c&#x27;'
    """
    return html.escape(make_visible(text), quote=True)


def tag(name: str, content: str, *, css: str = "", **attributes: str) -> str:
    """Put an element around markup.

    Parameters
    ----------
    name
        The element's name.
    content
        Markup, not text: it is not escaped.
    css
        The element's class, if it has one.
    **attributes
        Further attributes. Their values are escaped.

    Returns
    -------
    str
        The markup.

    Examples
    --------
    >>> tag("p", "<b>safe</b>", css="note", role="alert")
    '<p class="note" role="alert"><b>safe</b></p>'
    """
    if css:
        attributes = {"class": css, **attributes}
    inside = "".join(f' {key}="{escape(value)}"' for key, value in attributes.items())
    return f"<{name}{inside}>{content}</{name}>"


def tag_text(name: str, text: str, *, css: str = "", **attributes: str) -> str:
    """Put an element around text.

    Parameters
    ----------
    name
        The element's name.
    text
        The text. It is escaped.
    css
        The element's class, if it has one.
    **attributes
        Further attributes. Their values are escaped.

    Returns
    -------
    str
        The markup.

    Examples
    --------
    >>> tag_text("td", "1 < 2")
    '<td>1 &lt; 2</td>'
    """
    return tag(name, escape(text), css=css, **attributes)


def bullets(sentences: Iterable[str]) -> str:
    """Write sentences as a list with bullets.

    Parameters
    ----------
    sentences
        The texts.

    Returns
    -------
    str
        The markup.

    Examples
    --------
    >>> bullets(["One.", "Two."])
    '<ul><li>One.</li><li>Two.</li></ul>'
    """
    return tag("ul", "".join(tag_text("li", sentence) for sentence in sentences))


def definitions(rows: Iterable[tuple[str, str]]) -> str:
    """Write names and values side by side.

    Parameters
    ----------
    rows
        Pairs of a name and its value.

    Returns
    -------
    str
        The markup.

    Examples
    --------
    >>> definitions([("Asked", "to delete 1 record")])
    '<dl><div><dt>Asked</dt><dd>to delete 1 record</dd></div></dl>'
    """
    return tag("dl", "".join(tag("div", tag_text("dt", name) + tag_text("dd", value)) for name, value in rows))


def table(columns: Sequence[str], rows: Iterable[Sequence[str]], *, css: str = "", caption: str = "") -> str:
    """Write a table of texts.

    Parameters
    ----------
    columns
        The headings.
    rows
        The cells, row by row.
    css
        The table's class, if it has one.
    caption
        A text above the table, if it has one.

    Returns
    -------
    str
        The markup.

    Examples
    --------
    >>> table(["name"], [["beta"]])
    '<table><thead><tr><th scope="col">name</th></tr></thead><tbody><tr><td>beta</td></tr></tbody></table>'
    """
    above = tag_text("caption", caption) if caption else ""
    head = tag("tr", "".join(tag_text("th", column, scope="col") for column in columns))
    body = "".join(tag("tr", "".join(tag_text("td", cell) for cell in row)) for row in rows)
    return tag("table", above + tag("thead", head) + tag("tbody", body), css=css)


def document(title: str, body: str, *, style: str = "", language: str = "en") -> str:
    """Make a page that stands alone: no browser fetches or runs anything for it.

    Parameters
    ----------
    title
        The text for the browser's tab.
    body
        The content, as markup.
    style
        Style sheet rules of this page, after the shared ones.
    language
        The language of the text.

    Returns
    -------
    str
        The whole file.

    Examples
    --------
    >>> page = document("Report", tag_text("h1", "Report"))
    >>> page.splitlines()[0]
    '<!DOCTYPE html>'
    """
    return (
        f'<!DOCTYPE html>\n<html lang="{escape(language)}">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta name="referrer" content="no-referrer">\n'
        f"<title>{escape(title)}</title>\n<style>{_STYLE}{style}</style>\n</head>\n"
        f"<body>\n<main>\n{body}\n</main>\n</body>\n</html>\n"
    )
