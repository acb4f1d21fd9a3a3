"""Names of code: what passes the check as harmless is never imported."""

from __future__ import annotations

import importlib
import sys

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from expunge.core.errors import ParameterError
from expunge.core.imports import code_names, import_named, names_code


class Spy:
    """A real finder of modules, which finds none and writes down what was looked for."""

    def __init__(self) -> None:
        self.looked_for: list[str] = []

    def find_spec(self, name, path=None, target=None):
        self.looked_for.append(name)
        return None


@pytest.fixture(scope="module")
def spy():
    finder = Spy()
    sys.meta_path.insert(0, finder)
    yield finder
    sys.meta_path.remove(finder)


fragments = st.sampled_from(["evil", "-", "_", ":", ".", "..", " ", "\n", "é", "ａ", "os", "1", "\0", "/", "__main__"])
odd_names = st.one_of(st.text(), st.lists(fragments, max_size=8).map("".join))


@given(text=odd_names)
@example("evil-code:make")
@example("evil:make:more")
@example(":make")
@example("evil:")
@example("evil.:make")
@example(".evil:make")
@example("evil\n:make")
@example("évil:make")
def test_only_what_the_check_knows_is_imported(spy, text):
    del spy.looked_for[:]
    with pytest.raises(ParameterError) as caught:
        import_named(f"no_such_{text}" if names_code(f"no_such_{text}") else text, option="learner")
    assert "\n" not in str(caught.value)
    if not names_code(text) and not names_code(f"no_such_{text}"):
        assert spy.looked_for == []


def test_an_importer_without_the_check_would_be_caught(spy, monkeypatch, tmp_path):
    """A module whose name is no identifier can be imported: this is what the check has to know of."""
    (tmp_path / "evil-code.py").write_text("def make(): return 'ran'\n")
    monkeypatch.syspath_prepend(tmp_path)
    module, _, name = "evil-code:make".partition(":")
    assert getattr(importlib.import_module(module), name)() == "ran"
    assert not names_code("evil-code:make")
    with pytest.raises(ParameterError, match=r"learner must be 'package.module:name', got 'evil-code:make'"):
        import_named("evil-code:make", option="learner")
    del sys.modules["evil-code"]


def test_what_is_named_is_found():
    assert import_named("collections.abc:Mapping.get", option="learner").__name__ == "get"
    for text, message in {
        "no_such_module:x": "the module 'no_such_module' cannot be imported: No module named",
        "math:no.such": "the module 'math' has no 'no.such'",
    }.items():
        with pytest.raises(ParameterError, match=message):
            import_named(text, option="learner")


def test_a_module_that_fails_is_one_line(monkeypatch, tmp_path):
    (tmp_path / "failing_module.py").write_text("raise RuntimeError('no')\n")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ParameterError, match="cannot be imported: RuntimeError: no"):
        import_named("failing_module:make", option="learner")


def test_names_are_found_in_every_container():
    value = {"a:b": [("c:d", {"e": frozenset({"f:g"})}), 3, None], "x": {"h.i:j"}, "no": "k-l:m"}
    assert code_names(value) == ["a:b", "c:d", "f:g", "h.i:j"]
