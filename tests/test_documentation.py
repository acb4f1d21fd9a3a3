"""Names and paths in the documentation exist."""

from __future__ import annotations

import importlib
import pkgutil
import re
from functools import cache
from pathlib import Path

import pytest

import expunge

ROOT = Path(__file__).parents[1]
PAGES = ["CONTRIBUTING.md", "README.md", *(f"docs/{path.name}" for path in sorted((ROOT / "docs").glob("*.md")))]
OTHERS_NAMES = "benchmarks", "command-line", "jax", "performance", "pytorch"  # with names of files, columns, libraries
BASES = ROOT, ROOT / "src" / "expunge", ROOT / "src" / "expunge" / "folder"
MODULES = {path.stem for path in (ROOT / "src" / "expunge").rglob("*") if not path.stem.startswith("_")}
SUFFIXES = (".py", ".md", ".json", ".toml", ".txt")
EXTRAS = "jax", "pytorch"
ANY = object()


def code_of(page):
    """The pieces of code inside the sentences of a page."""
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return set(re.findall(r"`([^`\n]+)`", text))


def is_path(code):
    return re.fullmatch(r"[\w./*-]+", code) and (code.endswith(SUFFIXES) or re.match(r"(src|tests|lab|docs)/", code))


@cache
def modules():
    names = [found.name for found in pkgutil.walk_packages(expunge.__path__, "expunge.", onerror=lambda _: None)]
    names = [name for name in names if not name.endswith("__main__") and not any(each in name for each in EXTRAS)]
    return [importlib.import_module(name) for name in names]


@cache
def owners(name):
    """What a first name stands for: a package of `expunge`, or a name in any module."""
    if any(name == module.__name__.rpartition(".")[2] for module in modules()):
        return [getattr(expunge, name)] if hasattr(expunge, name) else []
    return [getattr(module, name) for module in modules() if hasattr(module, name)]


def look_up(owner, name):
    """An attribute of a module, class or function; ANY for a field or the result of a property; None if missing."""
    if owner is ANY:
        return ANY
    found = getattr(owner, name, None)
    if found is not None and not isinstance(found, property):
        return found
    fields = [field for base in getattr(owner, "__mro__", [owner]) for field in getattr(base, "__annotations__", {})]
    return ANY if found is not None or name in fields else None


def is_known(dotted):
    first, *rest = dotted.split(".")
    found = owners(first)
    for name in rest:
        found = [deeper for owner in found if (deeper := look_up(owner, name)) is not None]
    return bool(found)


@pytest.mark.parametrize("page", PAGES)
def test_paths_exist(page):
    paths = {code for code in code_of(page) if is_path(code)}
    missing = sorted(path for path in paths if not any(list(base.glob(path.rstrip("/"))) for base in BASES))
    assert missing == []


@pytest.mark.parametrize("page", [page for page in PAGES if not any(name in page for name in OTHERS_NAMES)])
def test_names_exist(page):
    """`package.module.name`, `Class` and `Class.name`; arguments in parentheses are left out."""
    codes = {re.sub(r"\(.*\)$", "", code).removeprefix("expunge.") for code in code_of(page) if not is_path(code)}
    names = {code for code in codes if re.fullmatch(r"[A-Za-z_]\w*(\.\w+)*", code)}
    names = {name for name in names if name[0].isupper() or (name.split(".")[0] in MODULES and "." in name)}
    missing = sorted(name for name in names if not is_known(name))
    assert missing == []


def test_what_does_not_exist_is_noticed():
    assert "core/index.py" in {code for code in code_of("docs/design.md") if is_path(code)}
    assert not is_path("Deployment.update")
    assert is_known("training.ensemble.update")
    assert is_known("Deployment.update")
    assert is_known("RoundState.state")
    assert not is_known("training.ensemble.follow")
    assert not is_known("Deployment.follow")
    assert not is_known("Follower")
    assert not is_known("ensemble.update")  # the path to it is incomplete
