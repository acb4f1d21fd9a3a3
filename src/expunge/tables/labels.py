"""Labels: whole numbers, truth values or text, and the classes that they are of."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

import numpy as np
from numpy.typing import NDArray

from expunge.errors import InputError
from expunge.tables.keys import as_whole_column

if TYPE_CHECKING:
    import pandas as pd

_FEW: Final = 20  # so many different labels are classes whatever they look like
_LONGEST: Final = 256


def read_labels(values: pd.Series[Any], where: str) -> NDArray[Any]:
    """A column of labels, in the simplest type that holds every one of them; a missing one is named."""
    gone = np.flatnonzero(values.isna().to_numpy())
    if len(gone):
        raise InputError(f"row {gone[0] + 1:,} of {where} is empty; every record needs a label")
    if values.dtype.kind in "biu":
        return values.to_numpy()
    if values.dtype.kind == "f":
        labels = values.to_numpy()
        whole = np.isfinite(labels) & (labels == np.floor(labels)) & (np.abs(labels) < 2**53)
        return labels.astype(np.int64) if whole.all() else _fractions(labels, where)
    import pandas as pd

    try:
        codes, different = pd.factorize(values)
    except TypeError:
        raise InputError(f"row 1 of {where} is {values.iloc[0]!r:.80}; a label is a number or text") from None
    for place, value in enumerate(different):
        row = f"row {int(np.argmax(codes == place)) + 1:,} of {where}" if _is_strange(value) else ""
        if isinstance(value, str) and row:
            raise InputError(f"{row} has {len(value):,} letters; a label is a class")
        if row:
            raise InputError(f"{row} is {value!r:.80}; a label is a number or text")
    return _simplest(list(different))[codes]


def _is_strange(value: Any) -> bool:
    return len(value) > _LONGEST if isinstance(value, str) else not isinstance(value, int)


def _simplest(different: list[Any]) -> NDArray[Any]:
    """The different labels in one type."""
    if all(isinstance(value, bool) for value in different):
        return np.array(different, dtype=bool)
    return _from_text([str(value) for value in different])


def match_labels(
    values: pd.Series[Any], where: str, classes: NDArray[Any], recalls: Callable[[str], bool] = lambda _: False
) -> NDArray[Any]:
    """A column of labels in the type of the classes; the first that is none of them, nor recalled, is named."""
    found = read_labels(values, where)
    spelled = {_spelling(value): value for value in classes.tolist()}
    texts = [_spelling(value) for value in found.tolist()]
    for row, text in enumerate(texts, 1):
        if text not in spelled and recalls(text):
            spelled[text] = text
        if text not in spelled:
            raise InputError(
                f"row {row:,} of {where} is {found[row - 1]!s:.80}, which is not a class; {_known(classes)}"
            )
    return np.array([spelled[text] for text in texts])


def refuse_quantities(labels: NDArray[Any], where: str) -> None:
    """A column in which hardly a value repeats was meant to be something else than the label; so was a constant."""
    import pandas as pd

    different = pd.unique(pd.Series(labels))
    if len(different) > _FEW and 2 * len(different) > len(labels):
        raise InputError(f"{where} has {len(different):,} different values in {len(labels):,} rows; a label is a class")
    if len(different) == 1:
        raise InputError(f"{where} is {different[0]!s:.80} in every row; declare the other classes with --class")


def parse_classes(texts: Sequence[str], labels: NDArray[Any]) -> NDArray[Any]:
    """Declared classes in the type of the labels at hand."""
    if labels.dtype.kind == "U":
        return np.array(sorted(set(texts)))
    kind: Any = _truth if labels.dtype.kind == "b" else int
    try:
        return np.unique(np.array([kind(text) for text in texts], dtype=labels.dtype))
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"--class {', '.join(texts)}: the labels in the file are {_kind_name(labels)}") from None


def _known(classes: NDArray[Any]) -> str:
    from expunge.tables.reading import listed

    return f"the classes are {listed(classes.tolist())}"


def _kind_name(labels: NDArray[Any]) -> str:
    return "truth values" if labels.dtype.kind == "b" else "whole numbers"


def _spelling(value: Any) -> str:
    """How a label is written, the same for 1, 1.0 and "1", and for true and "True"."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float) and value.is_integer() and abs(value) < 2**53:
        return str(int(value))
    text = str(value)
    return text.lower() if text.lower() in ("true", "false") else text


def _from_text(texts: list[str]) -> NDArray[Any]:
    whole = as_whole_column(texts)
    if whole is not None:
        return whole
    if all(_is_fraction(text) for text in texts):
        numbers = np.array(texts, dtype=np.float64)
        if (numbers == np.floor(numbers)).all() and (np.abs(numbers) < 2**53).all():
            return numbers.astype(np.int64)
    return np.array(texts)


def _is_fraction(text: str) -> bool:
    """A number in the usual spelling: no leading zeros, which are codes."""
    try:
        number = float(text)
    except ValueError:
        return False
    digits = text.lstrip("+-")
    return math.isfinite(number) and not (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit())


def _fractions(labels: NDArray[Any], where: str) -> NDArray[Any]:
    """Fractions name classes by how they are written: learners take them for quantities otherwise."""
    for row in np.flatnonzero(~np.isfinite(labels))[:1]:
        raise InputError(f"row {row + 1:,} of {where} is {labels[row]}; a label is a finite number or text")
    return np.array([_spelling(label) for label in labels.tolist()])


def _truth(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
