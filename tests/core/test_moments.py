from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import ParameterError
from expunge.core.words import is_on_tick, round_up, seconds_of, utc

SECONDS = st.integers(0, 4_000_000_000)


def test_a_moment_is_written_in_utc():
    assert utc(0) == "1970-01-01T00:00:00Z"
    assert utc(1.999) == "1970-01-01T00:00:01Z"
    berlin = timezone(timedelta(hours=1))
    assert utc(datetime(2026, 11, 16, 3, 0, 0, 999_999, tzinfo=berlin)) == "2026-11-16T02:00:00Z"
    assert utc(datetime(2026, 11, 16, 2, tzinfo=UTC)) == "2026-11-16T02:00:00Z"


def test_a_moment_without_a_zone_is_refused():
    with pytest.raises(ParameterError, match="time zone"):
        utc(datetime(2026, 11, 16))


@given(SECONDS)
def test_seconds_come_back(seconds):
    assert seconds_of(utc(seconds)) == seconds


@given(SECONDS, st.integers(1, 86_400), st.integers(0, 999).map(lambda thousandths: thousandths / 1000))
def test_rounding_up_gives_the_first_tick_that_is_not_earlier(seconds, tick, fraction):
    found = seconds_of(round_up(seconds + fraction, tick_seconds=tick))
    assert found % tick == 0
    assert seconds + fraction <= found < seconds + fraction + tick
    assert is_on_tick(round_up(utc(seconds), tick_seconds=tick), tick_seconds=tick)


@pytest.mark.parametrize(
    "text",
    [
        *("", "2026-11-16", "2026-11-16T02:00:00", "2026-11-16T02:00:00Z\n", "2026-11-16 02:00:00Z"),
        *("2026-13-16T02:00:00Z", "2026-02-29T02:00:00Z", "2026-11-16T24:00:00Z", "٢٠٢٦-11-16T02:00:00Z", None, 17),
        *("2026-11-16T02:00:00.5Z", "2026-11-16T02:00:00+00:00", "0000-01-01T00:00:00Z"),
    ],
)
def test_other_ways_to_write_a_time_are_refused(text):
    with pytest.raises(ParameterError, match="time"):
        seconds_of(text)


@pytest.mark.parametrize("tick", [0, -1, 1.5, True, "60", None, 10**9])
def test_an_impossible_tick_is_refused(tick):
    with pytest.raises(ParameterError, match="tick_seconds"):
        round_up(0, tick_seconds=tick)
    with pytest.raises(ParameterError, match="after 1970"):
        utc(1e20)
