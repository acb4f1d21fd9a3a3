"""Which classes and functions a stored value may name.

By default: scikit-learn's estimators, the few private scikit-learn classes that fitted ones hold, pure functions of
NumPy, SciPy and scikit-learn, and expunge's own records. Loading anything else runs other code (importing its module
does already), so the operator must trust it by name: `package` or `package.module` for everything that is defined
there, its inner modules included, or `package.module:Name` (or with a dot) for one class or function.
"""

from __future__ import annotations

import dataclasses
import importlib
import re
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from types import FunctionType, ModuleType
from typing import Any

import numpy as np
from sklearn.base import BaseEstimator

from expunge.core.errors import ModelFormatError, ParameterError
from expunge.core.imports import code_names, import_named

Trusted = frozenset[str]

_MODULE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*(\.[A-Za-z_][A-Za-z0-9_]*)*")
_NEVER = frozenset({"tests", "conftest", "externals", "datasets", "_build_utils"})
_OWN = (
    "expunge.training.learners",
    "expunge.privacy.mechanisms",
    "expunge.training.fallback",
    "expunge.serving.publishing",
)
_PURE_FUNCTIONS = ("sklearn.feature_selection", "sklearn.metrics")
_PURE_OTHERS = frozenset(
    {"expunge.training.learners.jax.gradients.cross_entropy", "sklearn.utils.validation.check_array"}
)
_PURE_NUMPY = frozenset({"max", "mean", "median", "min", "nan_to_num", "std", "sum", "var"})

# Private classes of scikit-learn, rebuilt attribute by attribute.
_PLAIN = frozenset(
    {
        "sklearn._loss.link.HalfLogitLink",
        "sklearn._loss.link.IdentityLink",
        "sklearn._loss.link.Interval",
        "sklearn._loss.link.LogLink",
        "sklearn._loss.link.LogitLink",
        "sklearn._loss.link.MultinomialLogit",
        "sklearn._loss.loss.AbsoluteError",
        "sklearn._loss.loss.ExponentialLoss",
        "sklearn._loss.loss.HalfBinomialLoss",
        "sklearn._loss.loss.HalfGammaLoss",
        "sklearn._loss.loss.HalfMultinomialLoss",
        "sklearn._loss.loss.HalfPoissonLoss",
        "sklearn._loss.loss.HalfSquaredError",
        "sklearn.calibration._CalibratedClassifier",
        "sklearn.compose._column_transformer.make_column_selector",
        "sklearn.ensemble._hist_gradient_boosting.predictor.TreePredictor",
        "sklearn.metrics._scorer._CurveScorer",
        "sklearn.metrics._scorer._PassthroughScorer",
        "sklearn.metrics._scorer._Scorer",
        "sklearn.model_selection._split.GroupKFold",
        "sklearn.model_selection._split.KFold",
        "sklearn.model_selection._split.LeaveOneOut",
        "sklearn.model_selection._split.RepeatedKFold",
        "sklearn.model_selection._split.RepeatedStratifiedKFold",
        "sklearn.model_selection._split.ShuffleSplit",
        "sklearn.model_selection._split.StratifiedKFold",
        "sklearn.model_selection._split.StratifiedShuffleSplit",
        "sklearn.model_selection._split.TimeSeriesSplit",
        "sklearn.neural_network._stochastic_optimizers.AdamOptimizer",
        "sklearn.neural_network._stochastic_optimizers.SGDOptimizer",
        "sklearn.utils._metadata_requests.MetadataRequest",
        "sklearn.utils._metadata_requests.MethodMetadataRequest",
    }
)
# Compiled classes of scikit-learn, rebuilt by calling them with a few numbers.
_CALLED = frozenset(
    {
        "sklearn._loss._loss.CyAbsoluteError",
        "sklearn._loss._loss.CyExponentialLoss",
        "sklearn._loss._loss.CyHalfBinomialLoss",
        "sklearn._loss._loss.CyHalfGammaLoss",
        "sklearn._loss._loss.CyHalfMultinomialLoss",
        "sklearn._loss._loss.CyHalfPoissonLoss",
        "sklearn._loss._loss.CyHalfSquaredError",
        "sklearn._loss._loss.CyHuberLoss",
        "sklearn.linear_model._sgd_fast.EpsilonInsensitive",
        "sklearn.linear_model._sgd_fast.Hinge",
        "sklearn.linear_model._sgd_fast.ModifiedHuber",
        "sklearn.linear_model._sgd_fast.SquaredEpsilonInsensitive",
        "sklearn.linear_model._sgd_fast.SquaredHinge",
    }
)
# Named tuples of scikit-learn, rebuilt by calling them with their fields.
_TUPLES = frozenset({"sklearn.impute._iterative._ImputerTriplet"})


class Untrusted(ModelFormatError):
    """Something may not be stored or loaded unless the operator trusts its code; `names` has all that is missing."""

    def __init__(self, names: Sequence[str], why: str) -> None:
        self.names, self.why = tuple(names), why
        options = " ".join(f"--trust {name}" for name in self.names)
        is_one = len(self.names) == 1
        listed = self.names[0] if is_one else f"{', '.join(self.names[:-1])} and {self.names[-1]}"
        super().__init__(
            f"{listed} {'is' if is_one else 'are'} refused: {why}; if you trust {'its' if is_one else 'their'} code, "
            f"say so with {options} (from Python: trust={list(self.names)!r})"
        )


def joined(refused: Sequence[Untrusted]) -> Untrusted:
    """One error for all of them, so that the operator learns at once what has to be trusted."""
    names = list(dict.fromkeys(name for each in refused for name in each.names))
    reasons = {each.why for each in refused}
    return Untrusted(names, reasons.pop() if len(reasons) == 1 else _NOT_KNOWN)


_NOT_KNOWN = "it is not among the types that expunge can store safely"


def as_trusted(trusted: Iterable[str]) -> Trusted:
    """Bring the names into one spelling."""
    if isinstance(trusted, str):
        raise ModelFormatError(f"trusted must be a collection of names such as ['package.module'], got {trusted!r}")
    return frozenset(name.replace(":", ".") for name in trusted)


def name_of(thing: Any) -> str:
    """Write the full name of a class or function."""
    return f"{thing.__module__}.{thing.__qualname__}"


def is_trusted(name: str, trusted: Trusted) -> bool:
    """Say whether the operator trusts this class or function, or a module or package around it."""
    while name:
        if name in trusted:
            return True
        name = name.rpartition(".")[0]
    return False


def refusal(name: str, *, why: str = _NOT_KNOWN) -> Untrusted:
    """Make the error for a name that may not be stored or loaded. It says how to trust the name."""
    return Untrusted([name], why)


def object_class(name: str, trusted: Trusted) -> type:
    """Find the class of that name, if its objects may be rebuilt attribute by attribute."""
    if name.startswith(("sklearn.", *_OWN)):
        return _safe_class(name)
    found = trusted_class(name, trusted)
    if not issubclass(found, BaseEstimator):
        raise refusal(name)
    return found


def require_known(name: str, trusted: Trusted) -> None:
    """Refuse the name of a class that is neither trusted nor of a package that is looked at more closely later."""
    if not name.startswith(("sklearn.", *_OWN)) and not is_trusted(name, trusted):
        raise refusal(name)


def require_known_function(name: str, trusted: Trusted) -> None:
    """Refuse the name of a function that is neither trusted nor pure."""
    if not is_trusted(name, trusted) and _pure_function(name) is None:
        raise refusal(name, why=_IS_FUNCTION)


_IS_FUNCTION = "it is a function, and loading it would run its module"


def called_class(name: str) -> type:
    """Find the compiled class of that name, if it may be rebuilt by a call."""
    if name not in _CALLED:
        raise refusal(name)
    return _imported_class(name)


def is_called(name: str) -> bool:
    """Say whether objects of the class are rebuilt by a call."""
    return name in _CALLED


def tuple_class(name: str) -> type:
    """Find the named tuple of that name, if it may be rebuilt."""
    if name not in _TUPLES:
        raise refusal(name)
    return _imported_class(name)


@lru_cache(maxsize=1024)
def own_class(name: str) -> type:
    """Find the public record of expunge of that name: one of its data classes, or a class without state."""
    if not name.startswith(_OWN) or not _MODULE.fullmatch(name):
        raise refusal(name)
    found = _imported_class(name)
    if not (dataclasses.is_dataclass(found) or name == "expunge.training.learners.protocol.Abstainer"):
        raise refusal(name)
    if not any(found.__name__ in package.__all__ for package in _packages(found.__module__)):
        raise refusal(name, why="it is an inner part of expunge")
    return found


def _packages(module: str) -> Iterator[ModuleType]:
    """List the packages of expunge around a module that have public names."""
    while module.startswith(_OWN):
        package = importlib.import_module(module)
        if hasattr(package, "__all__"):
            yield package
        module = module.rpartition(".")[0]


def require_trusted_code(options: Iterable[Any], trusted: Trusted) -> None:
    """Refuse a record's options that name code which `import_named` would import, unless the code is trusted."""
    refused: list[Untrusted] = []
    for text in code_names(list(options)):
        try:
            if text.replace(":", ".") not in trusted:
                _require_trusted(text, trusted)
        except Untrusted as error:
            refused.append(error)
    if refused:
        raise joined(refused)


def is_own(kind: type) -> bool:
    """Say whether a class is a record of expunge."""
    return kind.__module__.startswith(_OWN)


def function(name: str, trusted: Trusted) -> Any:
    """Find the function of that name, if it is pure or trusted."""
    found = _pure_function(name)
    if found is not None:
        return found
    if not is_trusted(name, trusted):
        raise refusal(name, why=_IS_FUNCTION)
    found = _imported(name)
    if not isinstance(found, FunctionType) or name_of(found) != name:
        raise refusal(name, why="it is not a function of that module")
    return found


def _require_trusted(text: str, trusted: Trusted) -> None:
    """Refuse code that is not trusted, or that the trusted module only imports."""
    name = text.replace(":", ".")
    if name.startswith("sklearn."):
        _safe_class(name)
        return
    if not is_trusted(name, trusted):
        raise refusal(name)
    try:
        found = import_named(text, option="the name")
    except ParameterError as error:
        raise ModelFormatError(f"{name} cannot be loaded: {error}") from error
    if not isinstance(found, type | FunctionType) or name_of(found) != name:
        raise refusal(name, why="its module does not define it")


def trusted_class(name: str, trusted: Trusted) -> type:
    """Find the operator's own class of that name. Its module must define it, not only import it."""
    if not is_trusted(name, trusted):
        raise refusal(name)
    return _imported_class(name)


@lru_cache(maxsize=1024)
def _safe_class(name: str) -> type:
    if not _MODULE.fullmatch(name) or not _NEVER.isdisjoint(name.split(".")):
        raise refusal(name)
    found = _imported_class(name)
    if name in _PLAIN or issubclass(found, BaseEstimator) or _is_kernel(found):
        return found
    raise refusal(name)


def _is_kernel(found: type) -> bool:
    from sklearn.gaussian_process.kernels import Kernel

    return issubclass(found, Kernel)


def _imported_class(name: str) -> type:
    found = _imported(name)
    if not isinstance(found, type) or name_of(found) != name:
        raise refusal(name, why="it is not a class of that module")
    return found


def _imported(name: str) -> Any:
    module, _, attribute = name.rpartition(".")
    if not _MODULE.fullmatch(module) or "<" in attribute:
        raise ModelFormatError(
            f"{name} cannot be stored: only what a module defines at its top level can be found again"
        )
    if module == "__main__":
        raise ModelFormatError(f"{name} cannot be stored: move it from the script into a module of its own")
    try:
        return import_named(f"{module}:{attribute}", option="the name")
    except ParameterError as error:
        raise ModelFormatError(f"{name} cannot be loaded: {error}") from error


@lru_cache(maxsize=1024)
def _pure_function(name: str) -> Any:
    """Find a universal function of NumPy or SciPy, or a public function of the listed parts of scikit-learn."""
    module, _, attribute = name.rpartition(".")
    if module in ("numpy", "scipy.special"):
        found = getattr(importlib.import_module(module), attribute, None)
        is_pure = isinstance(found, np.ufunc) or (module == "numpy" and attribute in _PURE_NUMPY)
        return found if is_pure else None
    if name in _PURE_OTHERS:
        return _imported(name)
    for package in _PURE_FUNCTIONS:
        if module.startswith(package):
            found = getattr(importlib.import_module(package), attribute, None)
            return found if isinstance(found, FunctionType) and name_of(found) == name else None
    return None
