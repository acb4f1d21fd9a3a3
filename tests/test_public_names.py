"""`__all__` is exact, everywhere, and the light parts stay light."""

from __future__ import annotations

import importlib
import pkgutil
import subprocess
import sys

import pytest

import expunge

PACKAGES = ["expunge", *(m.name for m in pkgutil.walk_packages(expunge.__path__, "expunge.") if m.ispkg)]
BARE = {"expunge.core", "expunge.privacy", "expunge.training", "expunge.serving"}  # folders without names of their own


@pytest.mark.parametrize(
    "name", [package for package in PACKAGES if package not in {"expunge.cli", "expunge.training.learners.jax", *BARE}]
)
def test_all_is_exact(name):
    package = importlib.import_module(name)
    for public in package.__all__:
        assert getattr(package, public) is not None
    here = {
        public
        for public, value in vars(package).items()
        if not public.startswith("_") and getattr(value, "__module__", "").startswith("expunge")
    }
    assert here <= set(package.__all__)


def test_unknown_names_are_unknown():
    with pytest.raises(AttributeError, match="nonsense"):
        expunge.nonsense  # noqa: B018
    assert "UnlearningClassifier" in dir(expunge)


def test_help_does_not_load_the_training_code():
    code = "import sys, expunge.cli; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
