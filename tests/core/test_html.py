"""Pages stand alone, and a text on them is only a text."""

from __future__ import annotations

import re
from html.parser import HTMLParser

import pytest

from expunge.core.html import bullets, definitions, document, escape, make_visible, table, tag, tag_text

EVIL = "\"><script>alert('x')</script><img src=x onerror=y>&amp;\x00\u202e"
PAGE = document(EVIL, tag_text("h1", "A page"), style=".note { color: var(--bad); }\n")


class Parser(HTMLParser):
    """Elements, texts, and whether every element is closed where it should be."""

    def __init__(self, source: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[str] = []
        self.feed(source)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def test_text_from_strangers_cannot_rewrite_the_screen():
    assert make_visible("a\x1b[2Jb\r\n\u202ec\u2028d\x9b") == "a�[2Jb����c�d�".replace("����", "��" + "�")
    assert make_visible("naïve 你好 می‌خواهم") == "naïve 你好 می‌خواهم"


def test_a_page_fetches_and_runs_nothing():
    found = Parser(PAGE)
    assert {name for name, _ in found.tags} == {"html", "head", "meta", "title", "style", "body", "main", "h1"}
    assert not any({"src", "href"} & set(attributes) for _, attributes in found.tags)
    assert not re.search(r"url\(|@import|https?://", PAGE)
    policies = [value for _, value in found.tags if value.get("http-equiv") == "Content-Security-Policy"]
    assert policies[0]["content"].startswith("default-src 'none'")


def test_a_page_has_light_dark_and_paper():
    for rule in ("color-scheme: light dark", "(prefers-color-scheme: dark)", "@page { size: A4", "@media print"):
        assert rule in PAGE
    assert PAGE.index("@media print") < PAGE.index(".note {")  # a page's own rules win
    for name in set(re.findall(r"var\((--[a-z-]+)\)", PAGE)):
        assert PAGE.count(f"{name}:") == 3, name  # light, dark and paper


@pytest.mark.parametrize(
    "markup",
    [
        escape(EVIL),
        tag("p", "", css=EVIL, title=EVIL),
        tag_text("p", EVIL, css=EVIL),
        bullets([EVIL]),
        definitions([(EVIL, EVIL)]),
        table([EVIL], [[EVIL]], css=EVIL, caption=EVIL),
        PAGE,
    ],
)
def test_hostile_text_is_only_text(markup):
    found = Parser(markup)
    assert not {"script", "img"} & {name for name, _ in found.tags}
    assert "\x00" not in markup
    assert "\u202e" not in markup
    texts = [*found.texts, *(value or "" for _, attributes in found.tags for value in attributes.values())]
    assert any("<script>alert('x')</script>" in text for text in texts)
