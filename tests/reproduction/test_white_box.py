"""The bridge to the engines, with engines that only count; and that the real ones have the shape it expects."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from expunge.errors import InputError
from expunge.reproduction import Trials, load_pictures
from expunge.reproduction.trials import array_names

pytest.importorskip("jax")

from expunge.reproduction import white_box

EXPERIMENTS = Path(__file__).parents[2] / "experiments"

ENGINES = "def make_engine(row, pictures):\n    return row, pictures\n"
TRIALS = """
from types import SimpleNamespace
import numpy as np

def run_trials(row, engine, pictures, *, seed, trials, fixed_partition):
    assert engine == (row, pictures)
    each = np.array([(number + fixed_partition) / len(pictures.y_test) for number in trials])
    models = np.tile(each[:, None], (1, row.num_shards))
    arms = {arm: models for arm in ("before", "after", "control")}
    kinds = {f"{kind}_{arm}": each for kind in ("voted", "averaged") for arm in arms}
    whole = np.full(len(trials), seed % 1000)
    return SimpleNamespace(**arms, **kinds, deleted=whole, guessed_right=whole // 2)
"""


@pytest.fixture
def forget(monkeypatch):
    """No engines are known yet."""
    for name in [name for name in sys.modules if name.split(".")[0] == "white_box"]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setattr(sys, "path", [path for path in sys.path if Path(path) != EXPERIMENTS])
    yield
    for name in [name for name in sys.modules if name.split(".")[0] == "white_box"]:
        del sys.modules[name]


@pytest.fixture
def counting_engines(tmp_path, monkeypatch, forget):
    package = tmp_path / "experiments" / "white_box"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "engines.py").write_text(ENGINES)
    (package / "trials.py").write_text(TRIALS)
    monkeypatch.chdir(tmp_path)


def test_accuracies_become_exact_counts(counting_engines, tiny_row):
    pictures = load_pictures(tiny_row.experiment)
    found = white_box.WhiteBox(tiny_row, pictures)([3, 7])
    assert isinstance(found, Trials)
    assert found.numbers.tolist() == [3, 7]
    assert found.before.tolist() == [[3, 3], [7, 7]]
    assert found.averaged_control.tolist() == [3, 7]
    assert np.array_equal(found.num_hits, found.num_deleted // 2)
    fixed = white_box.WhiteBox(tiny_row, pictures, has_fixed_partition=True)([3])
    assert fixed.before.tolist() == [[4, 4]]


def test_without_engines_one_line_says_so(tmp_path, monkeypatch, forget, tiny_row):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match="folder experiments"):
        white_box.WhiteBox(tiny_row, load_pictures(tiny_row.experiment))


def test_the_real_engines_have_the_shape_that_is_expected(monkeypatch, forget):
    monkeypatch.chdir(EXPERIMENTS.parent)
    trials, engines = white_box._core("trials"), white_box._core("engines")
    parameters = inspect.signature(trials.run_trials).parameters
    assert list(parameters) == ["row", "engine", "pictures", "seed", "trials", "fixed_partition"]
    assert list(inspect.signature(engines.make_engine).parameters)[:2] == ["row", "pictures"]
    fields = set(trials.TrialResults.__dataclass_fields__)
    assert fields >= (set(array_names()) - {"numbers", "num_deleted", "num_hits"}) | {"deleted", "guessed_right"}


BLOCKED = """
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"dp_accounting", "skops", "cryptography", "pandas", "pyarrow", "torch", "opacus"}:
            raise ImportError(f"no module {name}")

sys.meta_path.insert(0, Missing())
"""


def on_a_bare_machine(code, folder):
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
    return subprocess.run(
        [sys.executable, "-c", BLOCKED + code],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_a_machine_without_privacy_accounting_can_run_the_table(tmp_path):
    arguments = ["reproduce", "table", "--quick", "--trials", "2", "--batch", "2", "--rows", "digits-k2-0", "--json"]
    done = on_a_bare_machine(f"sys.argv = ['expunge', *{arguments}]\nfrom expunge.cli import main\nmain()", tmp_path)
    assert done.returncode == 0, done.stderr
    assert '"complete": true' in done.stdout


def test_and_load_the_engines():
    code = "from expunge.reproduction.white_box import _core\n_core('trials'), _core('engines')\nprint('loaded')"
    done = on_a_bare_machine(code, EXPERIMENTS.parent)
    assert done.stdout == "loaded\n", done.stderr
