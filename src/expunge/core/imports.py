"""Code that a text names, as `package.module:name`. Nothing else in the package imports what a text names.

Importing a module runs it. So what reads texts from a file asks `names_code` first, and refuses a text that names code
which is not trusted. `import_named` takes no other texts: what passes the check cannot be imported.
"""

from __future__ import annotations

import importlib
import re
from collections.abc import Mapping
from typing import Any, TypeGuard

from expunge.core.errors import ParameterError

_WORD = r"[A-Za-z_][A-Za-z0-9_]*"
_CODE = re.compile(rf"{_WORD}(\.{_WORD})*:{_WORD}(\.{_WORD})*")


def names_code(text: object) -> TypeGuard[str]:
    """Whether `import_named` would import something for this value.

    Parameters
    ----------
    text
        Any value.

    Returns
    -------
    bool
        Whether it is a text of the form `package.module:name`, in plain Latin letters, digits and underscores.

    Examples
    --------
    >>> names_code("company.models:make"), names_code("evil-code:make"), names_code("os")
    (True, False, False)
    """
    return isinstance(text, str) and _CODE.fullmatch(text) is not None


def code_names(value: Any) -> list[str]:
    """All texts in a value that name code, also those in lists, tuples, sets and mappings.

    Parameters
    ----------
    value
        An option of a learner, for example.

    Returns
    -------
    list of str
        The texts, in the order in which they occur.

    Examples
    --------
    >>> code_names({"layers": ["company.nets:wide", 3], "x": "os:system"})
    ['company.nets:wide', 'os:system']
    """
    if isinstance(value, str):
        return [value] if names_code(value) else []
    if isinstance(value, Mapping):
        return [name for pair in value.items() for part in pair for name in code_names(part)]
    if isinstance(value, list | tuple | set | frozenset):
        return [name for part in value for name in code_names(part)]
    return []


def import_named(text: str, *, option: str) -> Any:
    """Import what a text names.

    Parameters
    ----------
    text
        The name, as `package.module:name` or `package.module:Class.name`.
    option
        What the name was given for, for the message of an error.

    Returns
    -------
    Any
        What the module has under that name.

    Raises
    ------
    ParameterError
        If the text has another form, the module cannot be imported, or it has no such name.

    Examples
    --------
    >>> import_named("math:floor", option="the learner")(2.5)
    2
    """
    if not names_code(text):
        raise ParameterError(f"{option} must be 'package.module:name', got {text!r:.80}")
    module, _, path = text.partition(":")
    try:
        found: Any = importlib.import_module(module)
    except Exception as error:  # a module's own code may raise anything
        why = error if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        raise ParameterError(f"{option} {text!r}: the module {module!r} cannot be imported: {why}") from error
    for name in path.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            raise ParameterError(f"{option} {text!r}: the module {module!r} has no {path!r}") from None
    return found
