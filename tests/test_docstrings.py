"""Public names are documented in NumPy style, and their examples run.

python tests/test_docstrings.py [PACKAGE...]      lists what is missing, for example `theory` or `serving`
"""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import sys

import pytest

import expunge

MODULES = sorted(
    found.name for found in pkgutil.walk_packages(expunge.__path__, "expunge.") if not found.name.endswith("__main__")
)
EXTRAS = {"jax": "expunge.training.learners.jax", "torch": "expunge.training.learners.pytorch"}


def load(name):
    for extra, package in EXTRAS.items():
        if name.startswith(package):
            pytest.importorskip(extra)
    return importlib.import_module(name)


def public_names(module):
    """The functions and classes that a package lists in `__all__` and that this project defines."""
    for name in getattr(module, "__all__", ()):
        value = getattr(module, name)
        if (inspect.isfunction(value) or inspect.isclass(value)) and value.__module__.startswith("expunge"):
            yield name, value


def section(text, title):
    """The lines under a title that is underlined with hyphens."""
    found = re.search(rf"^{title}\n-{{{len(title)}}}\n(.*?)(?=^\S[^\n]*\n-{{3,}}\n|\Z)", text, re.MULTILINE | re.DOTALL)
    return None if found is None else found[1]


def missing(value):
    """What a public name's docstring lacks."""
    text = inspect.getdoc(value) or ""
    if not text:
        return ["a docstring"]
    if inspect.isclass(value) and (
        issubclass(value, BaseException) or getattr(value, "_is_protocol", False) or issubclass(value, tuple)
    ):
        return []
    try:
        signature = inspect.signature(value)
    except (TypeError, ValueError):
        return []
    wanted = [
        name.lstrip("*")
        for name, found in signature.parameters.items()
        if name not in ("self", "cls") and not name.startswith("_")
    ]
    lacks = []
    described = section(text, "Parameters") or section(text, "Attributes") or ""
    heads = " ".join(line for line in described.splitlines() if line and not line.startswith(" "))
    heads = set(re.findall(r"\w+", re.sub(r":[^,]*", "", heads)))
    lacks += [f"parameter {name}" for name in wanted if name not in heads]
    returns = signature.return_annotation
    gives = inspect.isfunction(value) and returns not in (None, "None", signature.empty, "NoReturn")
    if gives and section(text, "Returns") is None and section(text, "Yields") is None:
        lacks.append("Returns")
    return lacks


@pytest.mark.parametrize("name", MODULES)
def test_the_examples_run(name):
    module = load(name)
    failed, _ = doctest.testmod(module, optionflags=doctest.NORMALIZE_WHITESPACE | doctest.ELLIPSIS)
    assert failed == 0


@pytest.mark.parametrize("name", ["expunge", *MODULES])
def test_public_names_say_what_they_take_and_give(name):
    module = load(name)
    lacks = {f"{name}.{public}": missing(value) for public, value in public_names(module)}
    assert {public: what for public, what in lacks.items() if what} == {}


if __name__ == "__main__":
    wanted = sys.argv[1:] or [""]
    total = 0
    for name in ["expunge", *MODULES]:
        if not any(name.startswith(f"expunge.{part}".rstrip(".")) for part in wanted):
            continue
        for public, value in public_names(importlib.import_module(name)):
            if what := missing(value):
                total += 1
                print(f"{inspect.getsourcefile(value).partition('src/')[2]}: {public} lacks {', '.join(what)}")
    print(total, "public names lack something")
