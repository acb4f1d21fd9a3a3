from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from expunge.cli import app, main
from expunge_lab.bench import SUITES

FAST = ["guarantee", "sampling"]


def invoke(*arguments: str) -> str:
    found = CliRunner().invoke(app, ["bench", *arguments], env={"COLUMNS": "200"}, catch_exceptions=False)
    assert found.exit_code == 0
    return found.stdout


def test_json_has_every_field() -> None:
    data = json.loads(invoke(*FAST, "--quick", "--json"))
    assert data["command"] == "expunge bench guarantee sampling --quick"
    assert data["quick"] is True
    assert [suite["name"] for suite in data["suites"]] == FAST
    assert set(data["environment"]) == {"date", "expunge", "python", "numpy", "scikit_learn", "num_cores"}
    fields = {"what", "unit", "ours", "other_name", "other", "ratio", "comparison", "target", "met"}
    for suite in data["suites"]:
        for line in suite["lines"]:
            assert set(line) == fields
            assert 0 < line["ours"]["low"] <= line["ours"]["median"] <= line["ours"]["high"]


def test_the_page_names_its_command_and_no_place(tmp_path: Path) -> None:
    out = tmp_path / "page.md"
    invoke("guarantee", "--quick", "--out", str(out))
    text = out.read_text(encoding="utf-8")
    assert "`expunge bench guarantee --quick --out page.md`" in text
    assert str(tmp_path) not in text


def test_the_figures_of_networks_are_kept_and_shown_with_those_of_other_devices(tmp_path: Path) -> None:
    pytest.importorskip("jax")
    kept, out = tmp_path / "kept", tmp_path / "page.md"
    kept.mkdir()
    arguments = ("deep", "--quick", "--kept", str(kept), "--out", str(out))
    invoke(*arguments)
    (kept / "cpu.json").rename(kept / "another.json")
    invoke(*arguments)
    assert sorted(path.name for path in kept.iterdir()) == ["another.json", "cpu.json"]
    text = out.read_text(encoding="utf-8")
    assert text.count("Measured by `expunge bench deep --quick --out page.md --kept kept`") == 2
    assert str(tmp_path) not in text


def test_a_damaged_file_among_those_kept_is_said_before_anything_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "gpu.json").write_text('{"format": 1', encoding="utf-8")
    monkeypatch.setattr(sys, "argv", ["expunge", "bench", "deep", "--quick", "--kept", str(tmp_path)])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert "gpu.json is no file of measurements" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["gpu.json"]


def test_the_tables_on_the_terminal_say_that_a_run_was_quick() -> None:
    text = invoke("guarantee", "--quick")
    assert "laplace" in text  # the name of a line may be wrapped
    assert "A quick run" in text


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["nonsense"], "no benchmark 'nonsense'"),
        (["guarantee", "--quick", "--out", "no/such/page.md"], "no folder"),
        (["guarantee", "--quick", "--kept", "."], "deep alone"),
        (["deep", "--quick", "--kept", "no/such"], "no folder"),
    ],
)
def test_bad_input_is_one_clear_line_and_exit_code_2(
    arguments: list[str], word: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["expunge", "bench", *arguments])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert word in printed.err
    assert len(printed.err.splitlines()) == 1


def test_help_names_every_suite_and_gives_an_example() -> None:
    text = " ".join(invoke("--help").replace("│", " ").split())
    assert all(name in text for name in SUITES)
    assert "Example: expunge bench" in text


def test_help_does_not_load_the_benchmarks() -> None:
    program = "import sys, expunge.cli; sys.exit('expunge_lab.bench' in sys.modules or 'sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", program], check=False).returncode == 0


def test_the_help_names_every_suite() -> None:
    text = " ".join(invoke("--help").replace("│", " ").split())
    assert f"{', '.join(SUITES)}." in text
