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
_REVEALING = 0.999  # accuracy of one column alone, from which on it may be the label under another name
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
        are no categories; a column that tells the label; classes with fewer records than shards.

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
    found = []
    for place, (name, column) in enumerate(_columns(features, [*kinds] if kinds else None)):
        kind = [*kinds.values()][place] if kinds else "category"
        if kind not in ("date", "time") and (finding := _about(name, column, y, kind, is_regression)):
            found.append(finding)
    if not is_regression and y.ndim == 1:
        found += _rare_classes(y, num_shards)
    return tuple(found)


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
    if different <= 1 and count == len(column):
        return f"{name} has the same value in every row; {ignore}"
    is_number = present.dtype.kind in "iufb"
    if count < _FEWEST_ROWS:
        return None
    if is_number and different == count and _is_count(present.to_numpy()):
        return f"{name} looks like an id: its values are different whole numbers without gaps; {ignore}"
    if not is_number and different == count and (kind != "text" or not _has_words(present)):
        return f"{name} looks like an id or free text: no two of its {count:,} values are equal; {ignore}"
    if (
        not is_number
        and kind != "text"
        and different > min(_TOO_MANY_TEXTS, max(_MANY_TEXTS, _MOSTLY_DIFFERENT * count))
    ):
        return f"{name} is taken as categories and has {different:,} of them in {count:,} rows; {ignore}"
    if not is_regression and 2 <= different <= min(_FEW_VALUES, count // _FEWEST_ROWS) and labels.ndim == 1:
        return _revealing(name, column, labels)
    return None


def _has_words(values: pd.Series[Any]) -> bool:
    """Whether most texts have several words."""
    return bool(values.astype(str).str.contains(" ", regex=False).mean() > 0.5)


def _is_count(values: NDArray[Any]) -> bool:
    """Whether different numbers are whole, and nearly all numbers of their range."""
    numbers = values.astype(np.float64)
    return bool((numbers == np.floor(numbers)).all() and np.ptp(numbers) < 1.2 * len(numbers))


def _revealing(name: str, column: pd.Series[Any], labels: NDArray[Any]) -> str | None:
    """A column from which the label can be read off."""
    import pandas as pd

    codes = pd.factorize(column, use_na_sentinel=False)[0]
    _, truth = np.unique(labels, return_inverse=True)
    table = np.zeros((codes.max() + 1, truth.max() + 1))
    np.add.at(table, (codes, truth), 1)
    alone, baseline = table.max(axis=1).sum() / len(labels), table.sum(axis=0).max() / len(labels)
    if alone < _REVEALING or baseline > 1 - 10 * (1 - _REVEALING):
        return None
    return f"{name} alone tells the label of {alone:.1%} of the rows: is it known when a prediction is made?"


def _rare_classes(labels: NDArray[Any], num_shards: int) -> Iterator[str]:
    known, counts = np.unique(labels, return_counts=True)
    for label, count in zip(known.tolist(), counts.tolist(), strict=True):
        if count < num_shards:
            yield (
                f"class {str(label)!r} has {plural(count, 'record')}, fewer than the {num_shards:,} shards: most "
                "models never see it"
            )
