"""Tables: numbers to the right, and nothing cut off, however narrow the terminal."""

from __future__ import annotations

import io

import pytest

from expunge.cli import output

ROWS = [(f"mnist-k6-0.{i}", "0.924 (inside)", "exponential", "description length", "0.503", 17) for i in range(3)]
COLUMNS = ["row", "after", "mechanism", "theorem", "indicator", "count"]


@pytest.fixture
def shown(monkeypatch):
    def show(width=None):
        file = io.StringIO()
        console = output.Screen(
            file=file, width=width, force_terminal=width is not None, highlight=False, color_system=None
        )
        monkeypatch.setattr(output, "console", console)
        output.show_table("Title", COLUMNS, ROWS)
        return file.getvalue()

    return show


def test_in_a_pipe_every_row_is_one_line(shown, monkeypatch):
    lines = shown().splitlines()
    for row in ROWS:
        assert any(all(str(cell) in line for cell in row) for line in lines)


@pytest.mark.parametrize("width", [50, 80])
def test_a_narrow_terminal_cuts_nothing_off(shown, width):
    page = shown(width)
    assert max(map(len, page.splitlines())) <= width
    assert "…" not in page
    for name in ("mnist-k6-0.0", "mnist-k6-0.2"):
        assert name in page


@pytest.mark.parametrize(("width", "num_lines"), [(None, 1), (50, 3)])
def test_sentences_are_folded_for_readers_alone(width, num_lines, monkeypatch):
    file = io.StringIO()
    console = output.Screen(file=file, width=width, force_terminal=width is not None, color_system=None)
    monkeypatch.setattr(output, "console", console)
    output.say("words " * 19 + "[end]")
    lines = file.getvalue().splitlines()
    assert len(lines) == num_lines
    assert all(line.startswith("  words") for line in lines)
    assert file.getvalue().endswith("[end]\n") or width


def test_labels_and_names_of_files_are_shown_as_they_are(capfd):
    """A label may look like markup, and a stranger's name of a file may hold commands for the terminal."""
    output.show_table(None, ["label"], [["[/b]"], ["[red]x[/red]"], ["a\x1b[31m\u202eb"]])
    shown = capfd.readouterr().out
    assert "[/b]" in shown
    assert "[red]x[/red]" in shown
    assert "a\\x1b[31m\\u202eb" in shown
    output.complain("evil\nname\x1b]0;title\x07 \udcff é")
    assert capfd.readouterr().err == "expunge: evil name\\x1b]0;title\\x07 \\udcff é\n"
