"""Findings: what looks like a mistake in the first data, before anything is promised about it.

A finding is a sentence that names the column or the class and says what to do. It is a guess, and nothing is refused.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from expunge.core.features import Features, is_frame, is_sparse
from expunge.core.words import plural

if TYPE_CHECKING:
    import pandas as pd

_MANY_TEXTS = 50  # different texts in a column, from which on they may be no categories
_MOSTLY_DIFFERENT = 0.2  # of the rows
_TOO_MANY_TEXTS = 1000  # however many rows there are
_FEWEST_ROWS = 20  # in fewer, everything is different by chance
_REVEALING = 0.02  # of the mistakes of one constant answer: what one column alone may leave, if it tells the label
_FEW_MISTAKES = 20  # of a constant answer, below which nothing is said about what tells the label
_MANY_NUMBERS = 20  # different numbers as labels, from which on they may be no classes
_FEW_EACH = 20  # records of each
_MANY_ROWS = 1000  # in so many, whole numbers that all differ are hardly amounts
_NAMED = 3  # classes or columns of which each has a sentence of its own
_FEW_VALUES = 50  # a column with more different values is not compared with the labels


def inspect_data(
    features: Features,
    labels: ArrayLike,
    *,
    num_shards: int,
    kinds: Mapping[str, str] | None = None,
    is_regression: bool = False,
) -> tuple[str, ...]:
    """What looks like a mistake in a table.

    Parameters
    ----------
    features
        One row for each record: a data frame, or an array of numbers. Of other containers nothing is said.
    labels
        One label for each record.
    num_shards
        k.
    kinds
        The names of the columns, in order, and what each holds: "category", or "text" that is read word by word; of a
        "date" or a "time" nothing is said. None takes the table's own names, and all words for categories.
    is_regression
        Whether labels are numbers to predict, and not classes.

    Returns
    -------
    tuple of str
        One sentence for each finding: constant columns; columns that look like ids; texts with so many values that they
        are no categories; a column that tells the label, or whose gaps do; labels that look like numbers to predict;
        classes with fewer records than shards.

    Examples
    --------
    >>> import pandas as pd
    >>> table = pd.DataFrame({"customer": np.arange(100), "country": ["AT"] * 100})
    >>> for each in inspect_data(table, np.arange(100) % 2, num_shards=10):
    ...     print(each)
    column 'customer' looks like an id: its values are different whole numbers without gaps; learn without it (--ignore)
    column 'country' has the same value in every row; learn without it (--ignore)
    """
    y = np.asarray(labels)
    is_told = not is_regression and y.ndim == 1
    found: list[str] = []
    constant: list[str] = []
    for place, (name, column) in enumerate(_columns(features, [*kinds] if kinds else None)):
        kind = [*kinds.values()][place] if kinds else "category"
        if kind in ("date", "time"):
            name, day, _ = name.rpartition(" day")
            found += _revealing(f"whether {name}' is empty", column.isna(), y) if day and is_told else ()
        elif column.nunique() <= 1 and column.notna().all():
            constant.append(name)
        elif finding := _about(name, column, y, kind, is_regression):
            found.append(finding)
        elif is_told:
            found += _revealing(f"whether {name} is empty", column.isna(), y)
    if constant:
        what, it = ("has the same value", "it") if len(constant) == 1 else ("have one value each,", "them")
        found.append(f"{_listed(constant)} {what} in every row; learn without {it} (--ignore)")
    if is_told:
        found += _about_classes(y, num_shards)
    return tuple(found)


def _listed(names: Sequence[str]) -> str:
    """The names of a few columns, and how many more there are."""
    if len(names) == 1:
        return names[0]
    plain = [name.removeprefix("column ") for name in names]
    most = plain[:_NAMED] if len(plain) > _NAMED + 1 else plain[:-1]
    rest = len(plain) - len(most)
    return f"columns {', '.join(most)} and {plain[-1] if rest == 1 else f'{rest:,} more'}"


def _columns(features: Features, names: Sequence[str] | None) -> Iterator[tuple[str, pd.Series[Any]]]:
    """The columns of a table, with a name that a person knows them by."""
    import pandas as pd

    if is_frame(features):
        for place, name in enumerate(features.columns):
            yield f"column {name!r}", features.iloc[:, place]
    elif not is_sparse(features) and getattr(features, "ndim", 0) == 2:
        for place in range(features.shape[1]):
            yield f"column {names[place]!r}" if names else f"column {place}", pd.Series(features[:, place])


def _about(name: str, column: pd.Series[Any], labels: NDArray[Any], kind: str, is_regression: bool) -> str | None:
    """The first thing that looks wrong with a column; None if nothing does."""
    ignore = "learn without it (--ignore)"
    present = column.dropna()
    count, different = len(present), int(present.nunique())
    is_number = present.dtype.kind in "iufb"
    if count < _FEWEST_ROWS:
        return None
    if is_number and different == count and (why := _why_id(present.to_numpy())):
        return f"{name} looks like an id: its values are {why}; {ignore}"
    if not is_number and different == count and (kind != "text" or not _has_words(present)):
        return f"{name} looks like an id or free text: no two of its {count:,} values are equal; {ignore}"
    if (
        not is_number
        and kind != "text"
        and different > min(_TOO_MANY_TEXTS, max(_MANY_TEXTS, _MOSTLY_DIFFERENT * count))
    ):
        return f"{name} is taken as categories and has {different:,} of them in {count:,} rows; {ignore}"
    if not is_regression and 2 <= different <= min(_FEW_VALUES, count // _FEWEST_ROWS) and labels.ndim == 1:
        return next(_revealing(f"{name} alone", column, labels), None)
    return None


def _has_words(values: pd.Series[Any]) -> bool:
    """Whether most texts have several words."""
    return bool(values.astype(str).str.contains(" ", regex=False).mean() > 0.5)


def _why_id(values: NDArray[Any]) -> str:
    """Why numbers that all differ look like ids: they are whole, and nearly all of their range or very many."""
    numbers = values.astype(np.float64)
    if not (numbers == np.floor(numbers)).all():
        return ""
    if np.ptp(numbers) < 1.2 * len(numbers):
        return "different whole numbers without gaps"
    return "whole numbers, and no two of them are equal" if len(numbers) >= _MANY_ROWS else ""


def _revealing(what: str, column: pd.Series[Any], labels: NDArray[Any]) -> Iterator[str]:
    """A column from which the label can be read off."""
    import pandas as pd

    codes = pd.factorize(column, use_na_sentinel=False)[0]
    _, truth = np.unique(labels, return_inverse=True)
    table = np.zeros((codes.max() + 1, truth.max() + 1))
    np.add.at(table, (codes, truth), 1)
    alone, baseline = len(labels) - table.max(axis=1).sum(), len(labels) - table.sum(axis=0).max()
    if baseline >= _FEW_MISTAKES and alone <= _REVEALING * baseline:
        share = (1 - alone / len(labels)) * 100
        yield f"{what} tells the label of {share:.1f}% of the rows: is it known when a prediction is made?"


def _about_classes(labels: NDArray[Any], num_shards: int) -> Iterator[str]:
    known, counts = np.unique(labels, return_counts=True)
    if len(known) >= _MANY_NUMBERS and len(labels) < _FEW_EACH * len(known) and _are_numbers(known):
        yield (
            f"the labels are {len(known):,} different numbers: if they are to be predicted as numbers, take a learner "
            "for numbers, such as --learner ridge-regression"
        )
    rare = [(str(label), count) for label, count in zip(known.tolist(), counts.tolist(), strict=True)]
    rare = [(label, count) for label, count in rare if count < num_shards]
    if len(rare) > _NAMED:
        names = ", ".join(repr(label) for label, _ in rare[:_NAMED])
        yield (
            f"{len(rare):,} classes ({names}, …) have fewer records than there are shards ({num_shards:,}): most "
            "models never see them"
        )
        return
    for label, count in rare:
        yield (
            f"class {label!r} has {plural(count, 'record')}, fewer than the {num_shards:,} shards: most models never "
            "see it"
        )


def _are_numbers(labels: NDArray[Any]) -> bool:
    try:
        return labels.dtype.kind != "b" and bool(np.isfinite(labels.astype(np.float64)).all())
    except ValueError:
        return False
