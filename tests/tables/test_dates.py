"""Dates become numbers that depend on nothing but themselves."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError
from expunge.tables.dates import as_date_parts, date_columns, date_kind

SAME_DAY = ["2020-02-01", "2020/2/1", "1.2.2020", "01.02.2020", "2020-02-01T00:00:00Z", "2020-02-01T02:00+02:00"]
SAME_MOMENT = ["2020-02-01T08:05:30.5", "1.2.2020 8:05:30,5", "2020-02-01 10:05:30.500 +02:00", "2020/2/1 08:05:30.5Z"]


def parts(values, kind):
    return as_date_parts(pd.Series(values), kind, "column 'joined' of train.csv")


@pytest.mark.parametrize(("spellings", "kind"), [(SAME_DAY, "date"), (SAME_MOMENT, "time")])
def test_a_date_is_the_same_in_every_spelling(spellings, kind):
    assert date_kind(pd.Series(spellings)) == kind
    found = parts(spellings, kind)
    assert found.shape == (len(spellings), len(date_columns("joined", kind)))
    assert (found == found[0]).all()


def test_days_are_counted_and_circles_close():
    found = parts(["1970-01-05", "1970-01-12", None, "1969-12-31"], "date")
    np.testing.assert_array_equal(found[:, 0], [4, 11, np.nan, -1])
    np.testing.assert_allclose(found[:2, 3:], [[0, 1], [0, 1]], atol=1e-12)  # both are Mondays
    assert np.isnan(found[2]).all()
    assert np.allclose(np.hypot(found[:, 1], found[:, 2])[[0, 1, 3]], 1)
    december, january, june = parts(["2019-12-31", "2020-01-01", "2020-06-30"], "date")[:, 1:3]
    assert np.linalg.norm(december - january) < 0.05 < 1.9 < np.linalg.norm(june - january)


def test_a_value_does_not_depend_on_the_others():
    alone = [parts([value], "time") for value in SAME_MOMENT]
    assert np.array_equal(np.concatenate(alone), parts(SAME_MOMENT, "time"))


def test_dates_of_other_containers():
    for values in (
        pd.Series(pd.to_datetime(["2020-02-01", None])),
        pd.Series(pd.to_datetime(["2020-02-01 00:00", None]).tz_localize("UTC")),
        pd.Series(["2020-02-01", None], dtype="str"),
        pd.Series(["2020-02-01", np.nan], dtype=object),
    ):
        assert date_kind(values) == "date"
        assert as_date_parts(values, "date", "x")[0, 0] == 18_293
        assert np.isnan(as_date_parts(values, "date", "x")[1]).all()


@pytest.mark.parametrize("value", ["11/19/2026", "2026-13-01", "2026-02-30", "20260101", "monday", "2026", "1.5", ""])
def test_what_is_no_date(value):
    assert date_kind(pd.Series(["2026-01-01", value])) is None
    with pytest.raises(
        InputError, match=r"row 2 of column 'joined' of train.csv is .* which is not a date: 2026-11-19"
    ):
        parts(["2026-01-01", value], "date")


def test_numbers_are_no_dates():
    assert date_kind(pd.Series([1.0, 2.0])) is None
    with pytest.raises(InputError, match=r"row 1 .* is '2020.0', which is not a date"):
        parts([2020.0], "date")
