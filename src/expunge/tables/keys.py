"""Ids and labels in the columns of files.

A column of ids holds whole numbers if every id is written as one, and text otherwise. "17" is the number 17; "007" and
"1e3" are text, and so is every id of a column that mixes numbers and names. Whole numbers never pass through floating
point. Those beyond 64 bits are text.

Labels are whole numbers, truth values or text.
"""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError

if TYPE_CHECKING:
    import pandas as pd


KeyKind = Literal["int", "str"]

_WHOLE: Final = re.compile(r"0|-?[1-9][0-9]{0,18}")
_LIMIT: Final = 2**63
_LONGEST: Final = 20  # the digits of -2**63
_EXACT_FLOAT: Final = 2**53


def as_whole(text: str) -> int | None:
    """The whole number of 64 bits that is usually written as this text; None if there is none."""
    if not _WHOLE.fullmatch(text):
        return None
    number = int(text)
    return number if -_LIMIT <= number < _LIMIT else None


def as_whole_column(texts: list[str]) -> NDArray[np.int64] | None:
    """`as_whole` of every text in a column; None if any of them is no whole number."""
    written = np.array(texts, dtype=np.str_)
    if written.dtype.itemsize > _LONGEST * np.dtype("U1").itemsize:
        return None
    try:
        numbers = written.astype(np.int64)
    except (ValueError, OverflowError):
        return None
    return numbers if bool((numbers.astype(f"U{_LONGEST}") == written).all()) else None


def read_keys(values: pd.Series[Any], where: str, *, missing: bool = False) -> NDArray[Any]:
    """Read a column of ids.

    Parameters
    ----------
    values
        The column, as `read_table` gives it.
    where
        The column's name in error messages.
    missing
        Whether an id may be missing.

    Returns
    -------
    array
        int64, or objects: all text, or None where an id is missing.

    Raises
    ------
    InputError
        If an id is missing, or is neither a whole number nor text. The message names the row.
    """
    kind = values.dtype.kind
    if kind in "iu" and (kind == "i" or int(values.max() if len(values) else 0) < _LIMIT):
        return values.to_numpy(dtype=np.int64)
    gone = np.flatnonzero(values.isna().to_numpy())
    if len(gone) and not missing:
        raise InputError(f"row {gone[0] + 1:,} of {where} is empty; every record needs one")
    if values.dtype == "str" and not len(gone):
        whole = as_whole_column(values.tolist())
        return _objects(values.tolist()) if whole is None else whole
    plain = _plain(values, where)
    numbers = [as_whole(value) if isinstance(value, str) else value for value in plain if value is not None]
    if None in numbers:
        return _objects([None if value is None else str(value) for value in plain])
    if not len(gone):
        return np.array(numbers, dtype=np.int64)
    present = iter(numbers)
    return _objects([None if value is None else next(present) for value in plain])


def match_keys(
    values: pd.Series[Any], where: str, *, kind: KeyKind, missing: bool = False, whose: str = "the ids"
) -> NDArray[Any]:
    """Read a column of ids as the kind of id that a deployment has.

    Parameters
    ----------
    values
        The column, as `read_table` gives it.
    where
        The column's name in error messages.
    kind
        "int" for whole numbers, "str" for text.
    missing
        Whether an id may be missing.
    whose
        What the names are, for the message.

    Returns
    -------
    array
        As `read_keys`.

    Raises
    ------
    InputError
        If an id is of another kind. The message names the first such row.

    Examples
    --------
    >>> import pandas as pd
    >>> match_keys(pd.Series([17, 23]), "column 'id'", kind="str").tolist()
    ['17', '23']
    """
    found = read_keys(values, where, missing=missing)
    if found.dtype.kind == "i":
        return found if kind == "int" else _objects([str(number) for number in found.tolist()])
    for row, value in enumerate(found.tolist(), 1):
        if kind == "int" and isinstance(value, str) and as_whole(value) is None:
            raise InputError(f"row {row:,} of {where} is {value!r}; {whose} of this deployment are whole numbers")
    matched = [value if value is None else match_key(str(value), kind=kind, what=where) for value in found.tolist()]
    return _objects(matched)


def match_key(text: str, *, kind: KeyKind, what: str, whose: str = "the ids") -> int | str:
    """Read one id from the command line as the kind of id that a deployment has.

    Parameters
    ----------
    text
        What was typed.
    kind
        "int" for whole numbers, "str" for text.
    what
        The option's name, for the message.
    whose
        What the names are, such as "the subjects (column 'household')".

    Returns
    -------
    int or str
        The id.

    Raises
    ------
    InputError
        If the deployment's ids are whole numbers and this is none.

    Examples
    --------
    >>> match_key("17", kind="int", what="--id")
    17
    """
    if kind == "str":
        return text
    number = as_whole(text.strip())
    if number is None:
        raise InputError(f"{what} {text!r}: {whose} of this deployment are whole numbers")
    return number


def kind_of_keys(keys: NDArray[Any]) -> KeyKind:
    """Whether `read_keys` found whole numbers or text."""
    if keys.dtype.kind == "i":
        return "int"
    return "int" if all(isinstance(key, int) for key in keys if key is not None) else "str"


def refuse_duplicates(keys: NDArray[Any], where: str) -> None:
    """Refuse an id that occurs twice; the message names it and the rows."""
    import pandas as pd

    repeated = np.flatnonzero(pd.Series(keys).duplicated().to_numpy())
    if len(repeated):
        second = int(repeated[0])
        first = int(np.flatnonzero(keys == keys[second])[0])
        more = f" ({len(repeated):,} rows repeat an id)" if len(repeated) > 1 else ""
        raise InputError(f"rows {first + 1:,} and {second + 1:,} of {where} are both {keys.tolist()[second]!r}{more}")


def _plain(values: pd.Series[Any], where: str) -> list[Any]:
    """The values as int, str or None. Anything else is refused."""
    kind = values.dtype.kind
    if kind == "f":
        return [
            None if value != value else _whole_float(value, row, where) for row, value in enumerate(values.tolist())
        ]
    if kind in "iu":
        return [str(value) for value in values.tolist()]
    plain = [None if empty else value for value, empty in zip(values.tolist(), values.isna(), strict=True)]
    for row, value in enumerate(plain, 1):
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | str)):
            raise InputError(f"row {row:,} of {where} is {value!r}; an id is a whole number or text")
    return plain


def _whole_float(value: float, row: int, where: str) -> int:
    if value != int(value) or abs(value) > _EXACT_FLOAT:
        raise InputError(f"row {row + 1:,} of {where} is {value!r}; an id is a whole number or text")
    return int(value)


def _objects(values: list[Any]) -> NDArray[Any]:
    column = np.empty(len(values), dtype=object)
    column[:] = values
    return column


_FEW: Final = 20  # so many different labels are always taken for classes
_LONGEST_LABEL: Final = 256


def read_labels(values: pd.Series[Any], where: str) -> NDArray[Any]:
    """A column of labels, in the simplest type that holds all of them. A missing label is refused by its row."""
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
    return len(value) > _LONGEST_LABEL if isinstance(value, str) else not isinstance(value, int)


def _simplest(different: list[Any]) -> NDArray[Any]:
    """The different labels in one type."""
    if all(isinstance(value, bool) for value in different):
        return np.array(different, dtype=bool)
    return _from_text([str(value) for value in different])


def match_labels(values: pd.Series[Any], where: str, classes: NDArray[Any]) -> NDArray[Any]:
    """A column of labels in the type of the classes. A label that is no class is refused by its row."""
    found = read_labels(values, where)
    spelled = {_spelling(value): value for value in classes.tolist()}
    texts = [_spelling(value) for value in found.tolist()]
    for row, text in enumerate(texts, 1):
        if text not in spelled:
            raise InputError(
                f"row {row:,} of {where} is {found[row - 1]!s:.80}, which is not a class; {_known(classes)}"
            )
    return np.array([spelled[text] for text in texts])


def refuse_quantities(labels: NDArray[Any], where: str) -> None:
    """Refuse a label column in which few values repeat, or that is constant: another column was probably meant."""
    import pandas as pd

    different = pd.unique(pd.Series(labels))
    if len(different) > _FEW and 2 * len(different) > len(labels):
        raise InputError(
            f"{where} has {len(different):,} different values in {len(labels):,} rows; a label is a class, unless the "
            "learner predicts numbers, as ridge-regression does"
        )
    if len(different) == 1:
        raise InputError(f"{where} is {different[0]!s:.80} in every row; declare the other classes with --class")


def parse_classes(texts: Sequence[str], labels: NDArray[Any]) -> NDArray[Any]:
    """Read declared classes in the type of the labels.

    Parameters
    ----------
    texts
        The classes, as typed.
    labels
        The labels in the file.

    Returns
    -------
    array
        The classes, sorted, each once.

    Raises
    ------
    InputError
        If a class cannot be of the labels' type.

    Examples
    --------
    >>> parse_classes(["2", "0"], np.array([0, 1])).tolist()
    [0, 2]
    """
    if labels.dtype.kind == "U":
        return np.array(sorted(set(texts)))
    kind: Any = _truth if labels.dtype.kind == "b" else int
    try:
        return np.unique(np.array([kind(text) for text in texts], dtype=labels.dtype))
    except (ValueError, KeyError, OverflowError):
        raise InputError(f"--class {', '.join(texts)}: the labels in the file are {_kind_name(labels)}") from None


def match_class(text: str, classes: NDArray[Any], where: str) -> Any:
    """The class that is written so.

    Parameters
    ----------
    text
        The class, as typed.
    classes
        All classes.
    where
        What to call the place in an error.

    Returns
    -------
    object
        The class, as a plain value.

    Raises
    ------
    InputError
        If no class is written so.

    Examples
    --------
    >>> match_class("2", np.array([0, 2]), "--threshold")
    2
    """
    spelled = {_spelling(value): value for value in classes.tolist()}
    if _spelling(text) not in spelled:
        raise InputError(f"{where}: {text!r} is not a class; {_known(classes)}")
    return spelled[_spelling(text)]


def _known(classes: NDArray[Any]) -> str:
    from expunge.tables.formats import listed

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
    """Whether the text is a number in the usual spelling. A leading zero marks a code."""
    try:
        number = float(text)
    except ValueError:
        return False
    digits = text.lstrip("+-")
    return math.isfinite(number) and not (len(digits) > 1 and digits[0] == "0" and digits[1].isdigit())


def _fractions(labels: NDArray[Any], where: str) -> NDArray[Any]:
    """Fractions as text: learners would take numbers for quantities, and these are names of classes."""
    for row in np.flatnonzero(~np.isfinite(labels))[:1]:
        raise InputError(f"row {row + 1:,} of {where} is {labels[row]}; a label is a finite number or text")
    return np.array([_spelling(label) for label in labels.tolist()])


def _truth(text: str) -> bool:
    return {"true": True, "1": True, "false": False, "0": False}[text.lower()]
