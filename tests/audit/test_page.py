"""The page stands alone, is well-formed, and says what the report says."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ElementTree
from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from expunge.audit import audit, lookup_scenario, make_scheme, slow_down_scenario, to_html
from expunge.audit.page import WIDTH, alpha_plot, histogram_plot, interval_plot

LOOKUP = lookup_scenario(num_pairs=8)
SLOW = slow_down_scenario(num_records=20, num_rounds=1)
REPORTS = {
    "sisa": audit(LOOKUP, make_scheme("sisa", LOOKUP), num_trials=30, seed=1),
    "exponential": audit(LOOKUP, make_scheme("exponential", LOOKUP), num_trials=12, seed=1),
    "broken": audit(
        LOOKUP, make_scheme("broken", LOOKUP, inclusion_probability=0.4), num_trials=90, seed=1, confidence=0.9
    ),
    "slow-down": audit(SLOW, make_scheme("majority", SLOW), num_trials=12, seed=1),
}


class Checker(HTMLParser):
    """Every tag is closed, nothing is fetched, nothing is run."""

    VOID = frozenset({"meta", "br", "line", "circle", "rect"})

    def __init__(self):
        super().__init__()
        self.open: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        assert not {"src", "href", "srcset", "action"} & {name for name, _ in attrs}
        assert not any(name.startswith("on") for name, _ in attrs)
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.add(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@pytest.mark.parametrize("name", REPORTS)
def test_the_page_stands_alone(name):
    page = to_html(REPORTS[name], command="expunge audit lookup")
    checker = Checker()
    checker.feed(page)
    assert checker.open == []
    assert not {"script", "link", "img", "iframe", "object"} & checker.seen
    assert "http" not in page.replace('<meta http-equiv="Content-Security-Policy"', "")
    assert "url(" not in page
    assert "@import" not in page


@pytest.mark.parametrize("name", REPORTS)
def test_every_drawing_stays_within_its_frame(name):
    drawings = re.findall(r"<svg.*?</svg>", to_html(REPORTS[name]), flags=re.DOTALL)
    assert len(drawings) >= 3
    for drawing in drawings:
        root = ElementTree.fromstring(drawing)
        _, _, width, height = map(float, root.attrib["viewBox"].split())
        assert width == WIDTH
        for element in root.iter():
            for key, value in element.attrib.items():
                if key in ("x", "x1", "x2", "cx"):
                    assert 0 <= float(value) <= width
                if key in ("y", "y1", "y2", "cy"):
                    assert 0 <= float(value) <= height
                assert value not in ("nan", "inf")


def test_the_verdicts():
    pages = {name: to_html(report) for name, report in REPORTS.items()}
    assert 'class="verdict found"' in pages["sisa"]
    assert "nothing is promised that would forbid it" in pages["sisa"]
    assert 'class="verdict fine"' in pages["exponential"]
    assert "No difference from full retraining was found" in pages["exponential"]
    assert 'class="verdict alarm"' in pages["broken"]
    assert "but α ≤ 1 is certified" in pages["broken"]
    assert "How slow can a requester make deletions?" in pages["slow-down"]
    assert str(REPORTS["sisa"].seed) in pages["sisa"]


def test_the_page_fits_phones_and_paper_and_does_not_overstate():
    page = to_html(REPORTS["exponential"])
    assert '<meta name="viewport" content="width=device-width, initial-scale=1">' in page
    assert "svg text { font-size: 22px; }" in page
    assert "th, td.n { overflow-wrap: normal; }" in page  # headings and numbers are not broken into letters
    assert "h2, h3 { break-after: avoid; }" in page
    assert "<th>95% interval</th>" in page
    assert "with a chance of at most 0.05, by accident" in page


def test_a_statistic_that_is_always_zero_has_a_readable_scale():
    zeros = np.zeros(3)
    drawing = histogram_plot({"before": np.full(3, np.nan), "unlearned": zeros}, cut=None, label="zeros")
    words = [element.text for element in ElementTree.fromstring(drawing).iter("text")]
    assert "before: never defined" in words
    assert [word for word in words if word[-1].isdigit()] == ["-0.4", "-0.2", "0", "0.2", "0.4"]


def test_the_word_cut_off_stays_in_the_frame_on_the_right():
    drawing = histogram_plot({"unlearned": np.array([0.0, 1.0])}, cut=2.0, label="cut")
    (word,) = [element for element in ElementTree.fromstring(drawing).iter("text") if element.text == "cut-off"]
    assert word.attrib["text-anchor"] == "end"


def test_the_word_cut_off_lies_on_nothing():
    root = ElementTree.fromstring(histogram_plot({"unlearned": np.array([1.0, 2.0, 3.0])}, cut=2.0, label="cut"))
    heights = {element.text: float(element.attrib["y"]) for element in root.iter("text")}
    assert heights["cut-off"] + 22 <= heights["unlearned"]  # letters are 22 high on a phone
    assert all(heights["cut-off"] < float(bar.attrib["y"]) for bar in root.iter("rect"))


def test_names_are_escaped():
    page = to_html(replace(REPORTS["sisa"], scheme="<script>alert(1)</script>"), command="<b>&</b>")
    assert "<script>" not in page
    assert "&lt;b&gt;&amp;&lt;/b&gt;" in page


def test_the_drawings_at_their_edges():
    for drawing in (
        histogram_plot({"unlearned": np.array([np.nan])}, cut=None, label="nothing"),
        histogram_plot({"unlearned": np.array([2.0, 2.0])}, cut=2.0, label="one value"),
        histogram_plot({"unlearned": np.array([0.0]), "retrained": np.array([1e9])}, cut=-1e9, label="far apart"),
        alpha_plot(0.0, np.inf, label="nothing certified"),
        alpha_plot(3.0, 1e-9, label="alarm"),
        interval_plot([], label="no arms"),
    ):
        ElementTree.fromstring(drawing)


def test_the_data_of_a_report():
    data = REPORTS["broken"].to_dict()
    for key in ("rejected", "p_value", "alpha_lower", "alpha_certified", "before", "unlearned", "retrained"):
        assert key in data
    assert data["alarm"] is True
    assert data["rejected"] is True
    assert data["unlearned"]["count"] <= data["unlearned"]["trials"] == 60
    assert data["trials_to_choose_the_event"] == 30
    low, high = data["unlearned"]["interval"]
    assert low <= data["unlearned"]["rate"] <= high
    assert REPORTS["sisa"].to_dict()["alpha_certified"] is None
    assert data["before"] == {"count": 0, "trials": 0, "rate": None, "interval": [0.0, 1.0]}
