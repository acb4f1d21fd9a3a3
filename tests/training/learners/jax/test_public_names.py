from __future__ import annotations

import subprocess
import sys

import expunge.training.learners.jax as package


def test_all_is_exact() -> None:
    assert sorted(package.__all__) == package.__all__
    assert all(hasattr(package, name) for name in package.__all__)


def test_importing_learners_loads_no_jax_and_without_it_one_line_says_how_to_get_it() -> None:
    code = (
        "import sys, expunge.training.learners, expunge.serving.estimator\n"
        "assert 'jax' not in sys.modules\n"
        "sys.modules['jax'] = None\n"
        "try:\n import expunge.training.learners.jax\nexcept ImportError as error:\n print(error)"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert done.stdout.strip().endswith("pip install 'expunge[jax]'")
    assert done.stdout.count("\n") == 1
