"""Tables: numbers to the right, and nothing cut off, however narrow the terminal."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys

import pytest
from rich.text import Text

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


COMMANDS = {
    "create": ("create {new} --data {train} {columns} --shards 7 --minutes 0", "training"),
    "plan": ("plan --data {train} {columns} --minutes 0.02", "measuring"),
}


@pytest.mark.parametrize("command", COMMANDS)
def test_a_bar_on_a_terminal_and_nothing_in_a_pipe(files, tmp_path, command):
    """In real processes: one whose standard error is a terminal (a pseudo-terminal), and one where it is a pipe."""
    line, words = COMMANDS[command]

    def arguments(folder):
        columns = "--label churned --id customer_id --learner naive-bayes"
        given = line.format(new=tmp_path / folder, train=files / "train.csv", columns=columns)
        return [sys.executable, "-m", "expunge", *given.split()]

    ours, theirs = pty.openpty()
    with subprocess.Popen(
        arguments("a"), stdout=subprocess.DEVNULL, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    ) as process:
        os.close(theirs)
        told = b""
        with contextlib.suppress(OSError):  # the end of a terminal
            while part := os.read(ours, 4096):
                told += part
    os.close(ours)
    assert process.returncode == 0, told
    assert words.encode() in told
    assert "━".encode() in told
    piped = subprocess.run(arguments("b"), capture_output=True, check=True)
    assert piped.stderr == b""
    assert b"\x1b" not in piped.stdout


STRANGE = "churn\x1b]0;mine\x07\u202eno"


def test_no_text_commands_the_terminal(monkeypatch):
    """Whatever prints it: names of files, columns and labels come from others."""
    for width in (None, 60):
        file = io.StringIO()
        screen = output.Screen(file=file, width=width, force_terminal=width is not None, color_system=None)
        monkeypatch.setattr(output, "console", screen)
        monkeypatch.setattr(output, "_errors", screen)
        output.show_table(STRANGE, [STRANGE, "count"], [(STRANGE, 3)])
        output.say(STRANGE)
        output.complain(STRANGE)
        screen.print(f"[bold]{STRANGE}[/bold]")
        screen.print(Text(STRANGE))
        assert not set("\x1b\x07\u202e") & set(file.getvalue())
        assert "\\x1b]0;mine" in file.getvalue()
