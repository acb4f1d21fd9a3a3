import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import expunge.cli.audit  # noqa: F401  (registers the command)
from expunge.audit import audit, lookup_scenario, make_scheme
from expunge.cli import app

PROGRAM = "import expunge.cli.audit; from expunge.cli import main; main()"
OWN = '''
import numpy as np
from expunge.audit import DeleteCorrect, make_scheme, lookup_scenario
from expunge.serving.interaction import EnsemblePair
from expunge.audit import PublishVotes
from expunge.training.sampling import PartitionSampler

def scheme(task):
    pair = EnsemblePair(task.learner, PartitionSampler(), 3)
    return pair, lambda state, points: PublishVotes(points)(0, state)

def requester(task, rng):
    ids, _, codes = task.columns
    return DeleteCorrect(ids, codes)

class Lazy:
    """Deletes nothing."""
    def learn(self, records, rng):
        return records, records
    def update(self, state, batch, rng):
        return state[0].apply(batch)[0], state[1]
    def records_of(self, state):
        return state[0]
    def release(self, state, points):
        known, codes, _ = state[1].gather(state[1].live_slots())
        table = dict(zip(known[:, 0].tolist(), codes.tolist()))
        return np.array([table.get(x, -1) for x in points[:, 0].tolist()])
'''


def invoke(*arguments):
    return CliRunner().invoke(app, ["audit", *arguments])


def run_program(*arguments, **options):
    return subprocess.run(
        [sys.executable, "-c", PROGRAM, "audit", *arguments],
        capture_output=True,
        text=True,
        env={**os.environ, "COLUMNS": "100", "PYTHONIOENCODING": "utf-8"},
        timeout=120,
        check=False,
        **options,
    )


def test_json_is_the_report():
    result = invoke("lookup", "--scheme", "sisa", "--size", "8", "--trials", "12", "--seed", "3", "--json")
    assert result.exit_code == 0, result.output
    scenario = lookup_scenario(num_pairs=8)
    report = audit(scenario, make_scheme("sisa", scenario), num_trials=12, seed=3)
    assert json.loads(result.stdout) == report.to_dict()


def test_the_program_in_100_columns(tmp_path):
    page = tmp_path / "audit.html"
    result = run_program("lookup", "--trials", "20", "--size", "10", "--seed", "1", "--html", str(page))
    assert result.returncode == 0, result.stderr
    assert max(len(line) for line in result.stdout.splitlines() if str(tmp_path) not in line) <= 100
    for part in ("unlearned", "retrained (control)", "Exact sign test", "is rejected", "no certificate covers them"):
        assert part in " ".join(result.stdout.split())
    assert page.read_text(encoding="utf-8").startswith("<!DOCTYPE html>")
    assert "expunge audit lookup" in page.read_text(encoding="utf-8")


def test_an_alarm_is_exit_code_1():
    result = invoke(
        *("lookup", "--scheme", "broken", "--size", "15", "--probability", "0.4", "--trials", "90", "--seed", "1"),
        *("--alpha", "0.5", "--json"),
    )
    assert result.exit_code == 1
    assert json.loads(result.stdout)["alarm"] is True


def test_a_seed_is_drawn_and_shown():
    seeds = {json.loads(invoke("lookup", "--size", "3", "--trials", "4", "--json").stdout)["seed"] for _ in range(2)}
    assert len(seeds) == 2


def test_resuming_gives_the_same_numbers(tmp_path):
    path = str(tmp_path / "trials")
    short = invoke("lookup", "--size", "5", "--trials", "5", "--seed", "9", "--resume", path, "--json")
    assert short.exit_code == 0
    resumed = invoke("lookup", "--size", "5", "--trials", "12", "--resume", path, "--json")
    whole = invoke("lookup", "--size", "5", "--trials", "12", "--seed", "9", "--json")
    assert json.loads(resumed.stdout) == json.loads(whole.stdout)


@pytest.mark.long
def test_schemes_and_requesters_of_the_users_own(tmp_path):
    (tmp_path / "own_audit.py").write_text(OWN)
    common = ("lookup", "--size", "20", "--trials", "40", "--seed", "1", "--json")
    own = run_program(
        *common, "--scheme", "own_audit:scheme", "--requester", "own_audit:requester", "--jobs", "2", cwd=tmp_path
    )
    assert own.returncode == 0, own.stderr
    found = json.loads(own.stdout)
    assert found["rejected"] is True
    assert found["requester"] == "own_audit:requester"
    built_in = json.loads(invoke(*common).stdout)
    assert found["tests"] == built_in["tests"]  # it is SISA, after all
    lazy = run_program(*common, "--scheme", "own_audit:Lazy", cwd=tmp_path)
    assert json.loads(lazy.stdout)["rejected"] is True


def test_the_scheme_of_the_documentation_is_caught(tmp_path):
    page = (Path(__file__).parents[2] / "docs" / "audit.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```python\n(# mine\.py.*?)```", page, flags=re.DOTALL)
    (tmp_path / "mine.py").write_text(example)
    done = run_program("lookup", "--scheme", "mine:Forgetful", "--trials", "20", "--seed", "1", "--json", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["rejected"] is True  # for every seed: every deleted record is known


def test_a_failure_in_the_users_own_code_is_one_line_that_says_where(tmp_path):
    (tmp_path / "failing.py").write_text(OWN.replace("return records, records", "return records.nothing"))
    page = tmp_path / "page.html"
    done = run_program("lookup", "--trials", "4", "--scheme", "failing:Lazy", "--html", str(page), cwd=tmp_path)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert "failing:Lazy failed: AttributeError" in done.stderr
    assert "(failing.py, line 19)" in done.stderr
    assert {path.name for path in tmp_path.iterdir()} <= {"failing.py", "__pycache__"}


def test_an_interrupt_says_what_becomes_of_the_trials(tmp_path):
    (tmp_path / "stopped.py").write_text(OWN.replace("return records, records", "raise KeyboardInterrupt"))
    common = ("lookup", "--trials", "4", "--scheme", "stopped:Lazy")
    assert "no trial is kept without --resume" in run_program(*common, cwd=tmp_path).stderr
    done = run_program(*common, "--resume", "trials", cwd=tmp_path)
    assert done.returncode == 130
    assert done.stderr == "expunge: interrupted; the same command goes on from trials\n"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nothing",), "scenario must be one of lookup, label-only, white-box, membership, slow-down, got 'nothing'"),
        (("lookup", "--scheme", "magic"), "scheme must be one of sisa"),
        (("lookup", "--trials", "1"), "num_trials must be an integer from 4 to 10,000,000, got 1"),
        (("lookup", "--trials", "10000000000"), "num_trials must be an integer from 4 to 10,000,000, got 10000000000"),
        (("lookup", "--html", "no/such/folder/page.html"), "there is no folder"),
        (("lookup", "--html", "."), "'.' is a folder: name the page in it"),
        (("lookup", "--html", "/proc/page.html"), "'/proc/page.html' cannot be written"),
        (("lookup", "--size", "999999999999"), "not enough memory"),
        (("slow-down", "--records", "0"), "num_records must be an integer >= 1, got 0"),
        (("lookup", "--learner", "tree"), "the scenario lookup has no option learner, got 'tree'"),
        (("lookup", "--probability", "0.1"), "sisa is a partition and has no inclusion probability, got 0.1"),
    ],
)
def test_wrong_input_is_one_line_and_exit_code_2(arguments, message):
    result = run_program(*arguments)
    assert result.returncode == 2
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1
    assert result.stdout == ""


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--scheme", "broken_audit:failing"), "'broken_audit:failing' failed: RuntimeError: out of luck"),
        (("--scheme", "broken_syntax:scheme"), "the module 'broken_syntax' cannot be imported: SyntaxError"),
        (("--requester", "broken_audit:failing"), "'broken_audit:failing' failed: TypeError"),
        (("--requester", "broken_audit:number"), "the requester of 'broken_audit:number' has no next_batch, got int"),
    ],
)
def test_a_factory_of_ones_own_that_fails_is_named_in_one_line(arguments, message, tmp_path):
    (tmp_path / "broken_audit.py").write_text(
        "def failing(task):\n    raise RuntimeError('out of luck')\n\ndef number(task, rng):\n    return 3\n"
    )
    (tmp_path / "broken_syntax.py").write_text("def scheme(:")
    result = run_program("lookup", *arguments, cwd=tmp_path)
    assert result.returncode == 2, result.stderr
    assert message in result.stderr
    assert len(result.stderr.strip().splitlines()) == 1


def test_a_failure_while_trials_run_is_no_alarm(tmp_path):
    (tmp_path / "late_audit.py").write_text(
        OWN.replace("known, codes, _ =", "raise RuntimeError('a bug')\n        a =")
    )
    result = run_program("lookup", "--scheme", "late_audit:Lazy", "--trials", "4", cwd=tmp_path)
    assert result.returncode == 2
    assert "late_audit:Lazy failed: RuntimeError: a bug (late_audit.py, line 25)" in result.stderr


def test_without_mnist_the_stand_in_is_offered(tmp_path):
    result = subprocess.run(
        [sys.executable, "-c", PROGRAM, "audit", "label-only"],
        capture_output=True,
        text=True,
        env={**os.environ, "EXPUNGE_DATA": str(tmp_path)},
        timeout=120,
        check=False,
    )
    assert result.returncode == 2
    assert "--data digits" in result.stderr
