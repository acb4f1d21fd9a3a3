"""Each check passes good values on as plain Python objects, and names the option and the value of bad ones."""

import math

import numpy as np
import pytest

from expunge.core import checks
from expunge.core.errors import ParameterError


def test_good_values_come_back_plain():
    assert checks.require_count("k", np.int64(3)) == 3
    assert type(checks.require_count("k", np.int64(3))) is int
    assert type(checks.require_number("x", np.float32(0.5), above=0)) is float
    assert checks.require_number("x", math.inf, least=0, infinite=True) == math.inf
    assert checks.require_probability("p", 1) == 1.0
    assert checks.require_text("t", "", empty=True) == ""


@pytest.mark.parametrize("value", [True, 1.0, "3", None, 0, np.float64(2), math.nan])
def test_no_count(value):
    with pytest.raises(ParameterError, match=r"^k must be an integer >= 1, got "):
        checks.require_count("k", value)


@pytest.mark.parametrize("value", [True, "3", None, 0, -1.0, math.nan, math.inf, 3, 10**400])
def test_no_number_of_the_range(value):
    with pytest.raises(ParameterError, match=r"^x must be a number > 0 and < 3, got "):
        checks.require_number("x", value, above=0, below=3)


def test_other_messages():
    with pytest.raises(ParameterError, match=r"^k must be an integer from 1 to 1,000, got 1001$"):
        checks.require_count("k", 1001, most=1000)
    with pytest.raises(ParameterError, match=r"^x must be a finite number >= 0, got inf$"):
        checks.require_number("x", math.inf, least=0)
    with pytest.raises(ParameterError, match=r"^p must be a probability in \[0, 1\], got 1.5$"):
        checks.require_probability("p", 1.5)
    with pytest.raises(ParameterError, match=r"^c must be one of a, b, got 'x'$"):
        checks.require_choice("c", "x", ["a", "b"])
    with pytest.raises(ParameterError, match=r"^f must be true or false, got 1$"):
        checks.require_flag("f", 1)
    with pytest.raises(ParameterError, match=r"^t must be text that is not empty, got ''$"):
        checks.require_text("t", "")
