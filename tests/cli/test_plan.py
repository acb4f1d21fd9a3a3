import json
import os
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from expunge.cli import app, main
from expunge.core.guarantee import Guarantee
from expunge.theory.planning import plan

PROGRAM = "from expunge.cli import main; main()"


def invoke(*arguments):
    return CliRunner().invoke(app, ["plan", *arguments])


def test_json_is_the_plan():
    result = invoke(
        *("--records", "200000", "--shards", "400", "--probability", "0.005", "--classes", "4"),
        *("--accuracy", "0.9", "--accuracy-80", "0.8", "--alpha", "4", "--beta", "0.01", "--gamma", "0.02"),
        *("--generations", "7", "--predictions-per-day", "12.5", "--deletions-per-day", "40"),
        *("--batches-per-day", "8", "--max-predictions", "5000", "--pool", "300", "--ensemble-share", "0.25", "--json"),
    )
    assert result.exit_code == 0, result.output
    expected = plan(
        num_records=200_000,
        num_shards=400,
        inclusion_probability=0.005,
        num_classes=4,
        unanimous_accuracy=0.9,
        majority_accuracy=0.8,
        target=Guarantee(4, 0.01, 0.02),
        num_generations=7,
        predictions_per_day=12.5,
        deletions_per_day=40,
        batches_per_day=8,
        max_predictions=5000,
        pool_size=300,
        ensemble_share=0.25,
    )
    assert json.loads(result.stdout) == expected.to_dict()


def test_the_defaults_are_the_functions():
    result = invoke("--records", "1000000", "--shards", "1000", "--json")
    assert json.loads(result.stdout) == plan(num_records=10**6, num_shards=1000).to_dict()


def run_program(*arguments):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        timeout=120,
        check=False,
    )


def plan_shows(*arguments, parts, but=()):
    """What the plan prints: its exit code is 0, its lines fit 100 columns, and it shows the parts."""
    result = run_program("plan", *arguments)
    assert result.returncode == 0, result.stderr
    lines = [line for line in result.stdout.splitlines() if not any(str(words) in line for words in but)]
    assert max(len(line) for line in lines) <= 100
    for part in parts:
        assert part in result.stdout
    return result.stdout


@pytest.fixture
def refused(monkeypatch, capsys):
    """Run a plan that is refused: exit code 2, one line on standard error, which is returned."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["expunge", "plan", "--records", "1000", *arguments])
        with pytest.raises(SystemExit) as stopped:
            main()
        assert stopped.value.code == 2
        out, error = capsys.readouterr()
        assert (out, error.count("\n")) == ("", 1)
        assert error.startswith("expunge: ")
        return error

    return run


def test_the_program_in_100_columns(tmp_path):
    picture = tmp_path / "bounds.png"
    parts = ("permute-and-flip", "T1 (pure DP)", "T4, Theorem D", "Verdict", "at most 149 times")
    parts += ("Update: consensus+student", "677 shards")
    wanted = ("--records", "1000000", "--shards", "1000", "--plot", str(picture))
    plan_shows(*wanted, parts=parts, but=(tmp_path,))
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_where_consensus_needs_more_shards_the_program_says_how_many():
    parts = ("num_shards=100 is too few", "Retrain one model", "More shards, for consensus: 677", "Fewer predictions")
    plan_shows("--records", "1000000", "--shards", "100", parts=parts)


def test_a_sample_of_vote_shares(tmp_path):
    file = tmp_path / "shares.csv"
    file.write_text("share\n" + "0.99\n" * 999 + "0.5\n")
    wanted = ("--records", "1000000", "--shards", "1000", "--shares", str(file))
    plan_shows(*wanted, parts=("0.1%", "99.900%", "With 95% confidence"))
    data = json.loads(invoke(*wanted, "--json").stdout)
    expected = plan(num_records=10**6, num_shards=1000, vote_shares=[0.99] * 999 + [0.5])
    assert data == expected.to_dict()


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "cannot be read"),
        (b"", "no vote shares"),
        (b"share\n", "no vote shares"),
        (b"0.9\n1.2\n", "'1.2' in line 2"),
        (b"0.9\nmany\n", "'many' in line 2"),
        (b"\xff\xfe\x00", "no text"),
    ],
)
def test_a_bad_file_is_one_line_and_exit_code_2(content, message, tmp_path, refused):
    file = tmp_path / "shares.csv"
    if content is not None:
        file.write_bytes(content)
    assert message in refused("--shards", "10", "--shares", str(file))


def test_long_numbers_fit_too():
    wanted = ("--records", "1000000000", "--shards", "1000000", "--alpha", "5", "--predictions-per-day", "50")
    parts = ("permute-and-flip", "ε0 = 9.19e-06", "T2 (Gaussian DP)", "63.8 days", "Update: gaussian")
    # Nothing is cut off, in any cell.
    assert "…" not in plan_shows(*wanted, parts=(*parts, "designed for at most"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--shards", "0"), "num_shards"),
        (("--shards", "10", "--alpha", "-1"), "alpha"),
        (("--shards", "10", "--beta", "1"), "beta"),
        (("--shards", "10", "--probability", "2"), "inclusion_probability"),
        (("--shards", "10", "--accuracy", "1"), "unanimous_accuracy"),
        (("--shards", "10", "--max-predictions", "0"), "max_predictions"),
        (("--shards", "10", "--pool", "-1"), "pool_size"),
        (("--shards", "10", "--ensemble-share", "1.5"), "ensemble_share"),
        (("--shards", "10", "--plot", "bounds.pdf"), ".png or .svg"),
    ],
)
def test_a_bad_value_is_one_line_and_exit_code_2(arguments, message, refused):
    assert message in refused(*arguments)


def test_what_is_not_a_number_or_missing_is_refused(refused):
    assert invoke("--records", "many", "--shards", "10").exit_code == 2
    assert "give --data FILE" in refused("--json")


def test_help_has_an_example():
    result = CliRunner().invoke(app, ["plan", "--help"], env={"COLUMNS": "100"})
    assert result.exit_code == 0
    assert "Example: expunge plan --records" in result.output
