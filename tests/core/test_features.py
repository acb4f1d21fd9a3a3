"""The codes of labels."""

from __future__ import annotations

import numpy as np

from expunge.core.features import codes_of


def test_the_code_is_the_position_in_the_list_sorted_or_not():
    for classes in (np.array(["a", "b", "c"]), np.array(["c", "a", "b"]), np.array([3, 1, 2])):
        assert codes_of(classes[[2, 0, 1, 1]], classes).tolist() == [2, 0, 1, 1]


def test_an_unknown_label_gets_a_code_in_range():
    classes = np.array(["c", "a", "b"])
    codes = codes_of(np.array(["", "zzz", "b0"]), classes)
    assert ((codes >= 0) & (codes < 3)).all()
