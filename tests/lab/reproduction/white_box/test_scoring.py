"""What is read off scores."""

from __future__ import annotations

import numpy as np

from expunge_lab.reproduction.white_box.scoring import log_chances


def test_chances_near_one_are_told_apart():
    """As the difference of a score of 16 and a sum that is hardly higher, both of these would be exactly one."""
    scores = np.zeros((2, 1, 10), np.float32)
    scores[:, 0, 3] = 15.5, 16.5
    chances = np.asarray(log_chances(scores, np.full((2, 1), 3)))[:, 0]
    exact = [-np.log1p(9 * np.exp(-score)) for score in (15.5, 16.5)]
    assert np.allclose(chances, exact, rtol=0, atol=5e-7)  # ten numbers are added up next to one
    assert chances[0] < chances[1] < 0


def test_chances_are_those_of_the_labels():
    scores = np.log(np.array([[[0.2, 0.3, 0.5], [0.7, 0.2, 0.1]]], np.float32))
    chances = np.exp(np.asarray(log_chances(scores, np.array([[2, 1]]))))
    assert np.allclose(chances, [[0.5, 0.2]], atol=1e-6)
