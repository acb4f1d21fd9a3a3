"""The environment: which software and which processor trained a model, because they decide its last bits (T6).

The same recipe gives the same bits in the same environment only. So an environment is recorded with every model. When
it has changed, an update retrains everything, or, where the recipe says "lenient", the touched shards alone.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import json
import platform
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any, Literal, Self, get_args

import numpy as np
import scipy
import scipy.linalg  # loads its BLAS, which is then listed
import sklearn
from threadpoolctl import threadpool_info

from expunge.core.errors import FormatError
from expunge.core.version import __version__
from expunge.core.words import plural

Numerics = Literal["strict", "lenient"]
NUMERICS = get_args(Numerics)
_LIST = "processor features"  # the fact that is a list
_BOOSTING = ("xgboost", "lightgbm", "catboost")
_SHORT = ("python", "numpy", "scikit-learn", *_BOOSTING, "jax", "jax device", "torch", "torch device", "processor")
_CLOCK = re.compile(r"\s*(\bCPU\b)?\s*@.*$|\((R|TM)\)", re.IGNORECASE)
_PACKAGE = re.compile(r"[\\/](?:site|dist)-packages[\\/](\w+)")


@dataclass(frozen=True, slots=True)
class Environment:
    """What the bits of a trained model depend on beside records and recipe.

    Parameters
    ----------
    facts
        Names and values, sorted by name. Every value is a text.

    Examples
    --------
    >>> old, new = (Environment.of({"numpy": version, "python": "3.11.9"}) for version in ("2.1.0", "2.2.0"))
    >>> new.differences(old)
    ('numpy 2.1.0 -> 2.2.0',)
    >>> new.differences(new), new == old
    ((), False)
    """

    facts: tuple[tuple[str, str], ...]

    @classmethod
    def of(cls, facts: Mapping[str, str]) -> Self:
        """The environment with these facts.

        Parameters
        ----------
        facts
            Values by name.

        Returns
        -------
        Environment
            The same facts, in order.
        """
        return cls(tuple(sorted((str(name), str(value)) for name, value in facts.items())))

    @classmethod
    def here(cls, learner: Any = None) -> Self:
        """The environment of this process.

        Python, NumPy, SciPy, scikit-learn and expunge, the linear algebra and the processor count always. The package
        that a learner comes from counts too, if it has a version. A learner says more by an optional method
        `environment()`, which returns texts by name, such as its device.

        Parameters
        ----------
        learner
            What trains the models. None leaves its facts out.

        Returns
        -------
        Environment
            The facts found.
        """
        found = dict(_common_facts())
        for part in _parts(learner, set()):
            package = str(getattr(part, "__module__", None)).partition(".")[0]
            version = _version_of(package) if _is_foreign(package) else None
            if version is not None:
                found[package] = version
            if not isinstance(part, type) and callable(declare := getattr(part, "environment", None)):
                found |= declare()
        return cls.of(found)

    @classmethod
    def like(cls, recorded: Environment) -> Self:
        """The environment of this process as far as it is known without the learner.

        Parameters
        ----------
        recorded
            The environment to compare with. Of its facts those are found that are versions of packages.

        Returns
        -------
        Environment
            The facts found; the others as they were recorded.
        """
        common = dict(_common_facts())
        versions = {name: _version_of(name) or value for name, value in recorded.facts if name not in common}
        return cls.of(common | versions)

    @property
    def digest(self) -> str:
        """SHA-256 of the facts, in hexadecimal."""
        return hashlib.sha256(self.to_text().encode()).hexdigest()

    def differences(self, before: Environment) -> tuple[str, ...]:
        """What has changed, in words.

        Parameters
        ----------
        before
            The environment to compare with.

        Returns
        -------
        tuple of str
            Such as "numpy 2.1.0 -> 2.2.0"; empty if nothing has.
        """
        old, new = dict(before.facts), dict(self.facts)
        names = sorted(name for name in old.keys() | new.keys() if old.get(name) != new.get(name))
        return tuple(_difference(name, old.get(name), new.get(name)) for name in names)

    def to_text(self) -> str:
        """The facts as JSON."""
        return json.dumps(dict(self.facts), sort_keys=True)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """Read what `to_text` wrote.

        Parameters
        ----------
        text
            The facts as JSON.

        Returns
        -------
        Environment
            The environment.

        Raises
        ------
        FormatError
            If it is something else.
        """
        try:
            found = json.loads(text)
        except ValueError:
            found = None
        if not isinstance(found, dict) or not all(isinstance(value, str) for value in found.values()):
            raise FormatError("the environment that models were trained in is damaged")
        return cls.of(found)

    def __str__(self) -> str:
        """The facts that people know, for one sentence."""
        known = dict(self.facts)
        return ", ".join(f"{name} {known[name]}" for name in _SHORT if name in known)


@cache
def _common_facts() -> Mapping[str, str]:
    features = np.show_config(mode="dicts").get("SIMD Extensions", {})
    return {
        "python": platform.python_version(),
        "expunge": __version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "scikit-learn": sklearn.__version__,
        "blas": ", ".join(sorted(set(_linear_algebra()))),
        "system": " ".join(filter(None, [platform.system(), platform.machine(), *platform.libc_ver()])),
        "processor": _processor(),
        _LIST: " ".join([*features.get("baseline", ()), *features.get("found", ())]),
    }


def _linear_algebra() -> Iterator[str]:
    """The libraries that NumPy and SciPy use. Others may be loaded by packages that the learner does not use."""
    for each in threadpool_info():
        place = _PACKAGE.search(each.get("filepath") or "")
        if each.get("user_api") == "blas" and (place is None or place[1] in ("numpy", "scipy")):
            words = (each.get(name) for name in ("internal_api", "version", "architecture"))
            yield " ".join(str(word) for word in words if word)


def _processor() -> str:
    """The kind of the processor, without its clock."""
    try:
        text = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:
        text = ""
    known = dict(re.findall(r"^(model name|CPU implementer|CPU part)\s*: (.*)$", text, re.MULTILINE))
    name = known.get("model name") or " ".join(known.values()) or platform.processor() or platform.machine()
    return " ".join(_CLOCK.sub("", name).split())


def _parts(value: Any, seen: set[int]) -> Iterator[Any]:
    """A learner and everything that it is made of: estimators in its options, in lists and in tables."""
    if id(value) in seen or isinstance(value, str | bytes | int | float | complex | np.ndarray | None):
        return
    seen.add(id(value))
    if isinstance(value, type):
        yield value
        return
    if isinstance(value, Mapping):
        inner: Iterable[Any] = value.values()
    elif isinstance(value, list | tuple | set | frozenset):
        inner = value
    elif isinstance(value, partial):
        inner = [value.func, *value.args, *value.keywords.values()]
    else:
        yield value
        if hasattr(value, "get_params"):
            inner = value.get_params(deep=False).values()
        else:
            inner = [getattr(value, each.name) for each in fields(value)] if is_dataclass(value) else ()
    for each in inner:
        yield from _parts(each, seen)


def _is_foreign(package: str) -> bool:
    """Whether the package is not among those that count always."""
    return package not in ("expunge", "numpy", "scipy", "sklearn", "__main__", *sys.stdlib_module_names)


def _version_of(package: str) -> str | None:
    """The version of an installed package, without importing it; None if it has none."""
    for name in (package, f"{package}-cpu"):  # as XGBoost without its GPU code is called
        try:
            return importlib.metadata.version(name)
        except (importlib.metadata.PackageNotFoundError, ValueError):
            continue
    found = getattr(sys.modules.get(package), "__version__", None)
    return found if isinstance(found, str) else None


def _difference(name: str, old: str | None, new: str | None) -> str:
    if name == _LIST and old is not None and new is not None:
        before, after = set(old.split()), set(new.split())
        changes = [f"without {each}" for each in sorted(before - after)]
        return f"{name}: {', '.join([*changes, *(f'with {each}' for each in sorted(after - before))])}"
    return f"{name} {old or 'not used'} -> {new or 'not used'}"


@dataclass(frozen=True, slots=True)
class Origins:
    """Where the models in service come from: how many from which environment.

    Parameters
    ----------
    counts
        Environments, each with its number of models, the largest number first.
    here
        The environment of this process.
    numerics
        "strict" or "lenient": what an update does about models from another environment.

    Examples
    --------
    >>> old, new = (Environment.of({"numpy": version}) for version in ("2.1.0", "2.2.0"))
    >>> found = Origins.of({old: 7, new: 3}, here=new, numerics="lenient")
    >>> found.is_mixed, found.retrains_everything, found.changes
    (True, False, ((7, ('numpy 2.1.0 -> 2.2.0',)),))
    """

    counts: tuple[tuple[Environment, int], ...]
    here: Environment
    numerics: Numerics = "strict"

    @classmethod
    def of(cls, counts: Mapping[Environment, int], *, here: Environment, numerics: Numerics) -> Self:
        """Order the counts.

        Parameters
        ----------
        counts
            The number of models by environment.
        here, numerics
            As in the class.

        Returns
        -------
        Origins
            The same, in an order that depends on nothing else.
        """
        return cls(tuple(_ordered(counts)), here, numerics)

    @property
    def is_mixed(self) -> bool:
        """Whether the models come from several environments, so that the state is the recipe's up to rounding."""
        return len(self.counts) > 1

    @property
    def changes(self) -> tuple[tuple[int, tuple[str, ...]], ...]:
        """For every environment that is not this one: how many models come from it, and what has changed since."""
        return tuple((count, self.here.differences(each)) for each, count in self.counts if each != self.here)

    @property
    def retrains_everything(self) -> bool:
        """Whether the next update trains the models from other environments again, all of them."""
        return self.numerics == "strict" and bool(self.changes)

    @property
    def described(self) -> tuple[tuple[str, int], ...]:
        """Each environment in words, with its number of models. All but the first are told by how they differ."""
        return describe_environments(dict(self.counts))

    def __str__(self) -> str:
        return "; ".join(f"{plural(count, 'model')} from {words}" for words, count in self.described)

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {
            "numerics": self.numerics,
            "here": dict(self.here.facts),
            "models": [
                {"count": count, "environment": dict(each.facts), "changed_since": list(self.here.differences(each))}
                for each, count in self.counts
            ],
            "next_update_retrains_everything": self.retrains_everything,
        }


def describe_environments(counts: Mapping[Environment, int]) -> tuple[tuple[str, int], ...]:
    """Each environment in words, with its number of models. All but the first are told by how they differ from it.

    Parameters
    ----------
    counts
        The number of models by environment.

    Returns
    -------
    tuple of pairs
        Words and numbers, the largest number first.

    Examples
    --------
    >>> old, new = (Environment.of({"numpy": version}) for version in ("2.1.0", "2.2.0"))
    >>> describe_environments({old: 3, new: 7})
    (('numpy 2.2.0', 7), ('another one (numpy 2.2.0 -> 2.1.0)', 3))
    """
    ordered = _ordered(counts)
    if not ordered:
        return ()
    first = ordered[0][0]
    words = [f"another one ({', '.join(each.differences(first))})" for each, _ in ordered[1:]]
    return tuple(zip([str(first), *words], [count for _, count in ordered], strict=True))


def _ordered(counts: Mapping[Environment, int]) -> list[tuple[Environment, int]]:
    return sorted(counts.items(), key=lambda each: (-each[1], each[0].facts))
