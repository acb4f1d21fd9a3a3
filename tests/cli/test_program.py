"""The program as a shell sees it: completion, help, interrupts, folders that cannot be written."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from typer.main import get_command

from expunge.cli import app

DOCS = Path(__file__).parents[2] / "docs" / "command-line.md"


def commands():
    return sorted(get_command(app).commands)


def shell(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "expunge", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, **environment},
    )


@pytest.mark.parametrize("command", commands())
def test_every_command_is_documented_with_an_example(command):
    page = DOCS.read_text(encoding="utf-8")
    section = re.search(rf"^## `expunge {command}`\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    assert section, f"docs/command-line.md has no section about `expunge {command}`"
    assert re.search(rf"^expunge {command}\b", section[1], re.MULTILINE), "an example is missing"
    for option in getattr(get_command(app).commands[command], "params", []):
        for name in [name for name in option.opts if name.startswith("--")]:
            assert f"`{name}" in section[1] or name in ("--help", "--json"), f"{name} is not documented"


@pytest.mark.parametrize("command", commands())
def test_every_command_has_help_with_an_example(command, expunge):
    assert f"expunge {command}" in expunge(command, "--help").words


def test_show_completion_is_there(expunge):
    assert "--show-completion" in expunge("--help").words


def test_the_program_completes_commands_and_options():
    listed = shell(_EXPUNGE_COMPLETE="complete_bash", COMP_WORDS="expunge cer", COMP_CWORD="1")
    assert listed.stdout.split() == ["certificate"]
    options = shell(_EXPUNGE_COMPLETE="complete_bash", COMP_WORDS="expunge delete x --ids", COMP_CWORD="3")
    assert options.stdout.split() == ["--ids-file"]
    learners = shell(_EXPUNGE_COMPLETE="complete_bash", COMP_WORDS="expunge create x --learner log", COMP_CWORD="4")
    assert learners.stdout.split() == ["logistic"]


@pytest.mark.parametrize("name", ["bash", "zsh", "fish"])
def test_the_completion_script_is_shown(name):
    script = shell(_EXPUNGE_COMPLETE=f"source_{name}")
    assert script.returncode == 0, script.stderr
    assert f"_EXPUNGE_COMPLETE=complete_{name}" in script.stdout


def test_help_loads_no_training_code():
    program = (
        "import sys\nsys.argv = ['expunge', 'create', '--help']\nfrom expunge.cli import main\n"
        "try:\n    main()\nexcept SystemExit:\n    pass\n"
        "heavy = {'numpy', 'pandas', 'sklearn', 'scipy', 'pyarrow', 'jax', 'torch'} & set(sys.modules)\n"
        "print('heavy:', sorted(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=120)
    assert "heavy: []" in done.stdout


LEARNER = """
import os, signal
from pathlib import Path
from sklearn.linear_model import RidgeClassifier

class Interruptible(RidgeClassifier):
    def fit(self, X, y, sample_weight=None):
        if Path("interrupt").exists():
            Path("interrupt").unlink()
            signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs that run in the background
            os.kill(os.getpid(), signal.SIGINT)
        return super().fit(X, y, sample_weight)
"""


def test_an_interrupt_leaves_nothing_half_done(tmp_path, files, expunge, monkeypatch):
    (tmp_path / "interruptible.py").write_text(LEARNER)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    create = (
        *("create", "a", "--data", files / "train.csv", "--label", "churned", "--id", "customer_id", "--subject"),
        *("household", "--shards", "3", "--probability", "1", "--learner", "interruptible:Interruptible"),
        *("--trust", "interruptible"),
    )
    (tmp_path / "interrupt").touch()
    done = expunge(*create, code=130)
    assert done.err == "expunge: interrupted; nothing was created\n"
    assert not (tmp_path / "a").exists()
    expunge(*create)
    (tmp_path / "interrupt").touch()
    done = expunge("delete", "a", "--id", "7", "--trust", "interruptible", code=130)
    assert "what was accepted is kept" in done.err
    assert done.err.count("\n") == 1
    status = expunge("status", "a", "--json").json
    assert status["pending"] == 1
    (request,) = status["pending_requests"]
    assert done.err.startswith(f"expunge: interrupted; request {request} is accepted")
    (tmp_path / "interrupt").touch()
    again = expunge("delete", "a", "--id", "8", "--trust", "interruptible", "--json", code=130).json
    assert (again["state"], again["error"]) == ("pending", "interrupted")
    expunge("cancel", "a", "--request", again["request"], "--trust", "interruptible")
    expunge("apply", "a", "--trust", "interruptible")
    status = expunge("status", "a", "--json").json
    assert (status["pending"], status["records"]) == (0, 299)


def test_a_full_disk_is_one_line(churn, files, expunge):
    done = subprocess.run(
        f"{sys.executable} -m expunge predict {churn} --data {files / 'new.csv'} > /dev/full",
        shell=True,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 2
    assert "No space left" in done.stderr
    assert done.stderr.count("\n") == 1


INTERRUPTED_LOADING = """
import os, runpy, signal, sys

class Watch:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            sys.meta_path.remove(self)
            os.kill(os.getpid(), signal.SIGINT)

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored in jobs that run in the background
module = sys.argv.pop(1)
sys.meta_path.insert(0, Watch())
runpy.run_module("expunge", run_name="__main__")
"""


@pytest.mark.parametrize(
    "module", ["expunge.cli.app", "typer", "rich.console", "expunge.cli.status", "numpy", "sklearn"]
)
def test_an_interrupt_while_modules_are_loading_is_one_line(module, churn):
    command = [sys.executable, "-c", INTERRUPTED_LOADING, module, "status", str(churn), "--inside"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 130
    assert done.stderr.strip().startswith("expunge: interrupted")
    assert done.stderr.strip().count("\n") == 0


def test_an_interrupt_that_comes_out_as_another_error(churn, expunge, monkeypatch):
    def load(*arguments, **options):
        try:
            raise KeyboardInterrupt
        except KeyboardInterrupt as error:
            raise ImportError("numpy could not be loaded") from error

    monkeypatch.setattr("expunge.folder.open_view", load)
    assert expunge("status", churn, code=130).err == "expunge: interrupted\n"


KILLED = """
import os, signal, sys
from expunge.folder.store import steps
from expunge.cli import main
number, step, *sys.argv = int(sys.argv[1]), sys.argv[2], "expunge", *sys.argv[3:]
steps.on_step = lambda name: os.kill(os.getpid(), number) if name == step else None
main()
"""


def killed(number, step, *words):
    return subprocess.run(
        [sys.executable, "-c", KILLED, str(int(number)), step, *map(str, words)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_creation_leaves_nothing(files, tmp_path, number, expunge):
    words = ["create", tmp_path / "new", "--data", files / "train.csv", "--label", "churned", "--id", "customer_id"]
    done = killed(number, "create.models", *words, "--shards", "3")
    left = sorted(path.name for path in tmp_path.iterdir())
    if number == signal.SIGKILL:
        assert done.returncode == -number, done
        assert [re.sub("[0-9a-f]{8}", "x", name) for name in left] == [".new.x.partial"]
    else:
        assert (done.returncode, left) == (128 + number, []), done
        assert done.stderr.splitlines()[-1] == "expunge: ended by SIGTERM"
    expunge(*words, "--shards", "3")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["new"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_a_killed_prediction_leaves_nothing(churn, files, tmp_path, number):
    out = tmp_path / "out"
    out.mkdir()
    done = killed(number, "open.read", "predict", churn, "--data", files / "new.csv", "--out", out / "answers.csv")
    assert done.returncode == (-number if number == signal.SIGKILL else 128 + number), done
    assert list(out.iterdir()) == []
