"""What the experiments do with images: fixed features that no data was used for, and small movements."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import affine_transform

Pictures = NDArray[np.uint8]
_AT_ONCE = 2000
_CELL, _DIRECTIONS = 4, 8


def describe(pictures: Pictures) -> NDArray[np.float32]:
    """337 numbers for a picture of 28 × 28: gradient directions around every cell of 4 × 4 pixels, and its brightness.

    A function of the picture alone, so it may be applied before the records reach the ensemble: no record's features
    depend on another record, and there is nothing to unlearn.
    """
    parts = [_describe(pictures[first : first + _AT_ONCE]) for first in range(0, len(pictures), _AT_ONCE)]
    return np.concatenate(parts)


def _describe(pictures: Pictures) -> NDArray[np.float32]:
    grey = pictures.astype(np.float32) / 255
    padded = np.pad(grey, ((0, 0), (1, 1), (1, 1)), mode="edge")
    across = padded[:, 1:-1, 2:] - padded[:, 1:-1, :-2]
    down = padded[:, 2:, 1:-1] - padded[:, :-2, 1:-1]
    strength = np.hypot(across, down)
    turn = np.arctan2(down, across) / (2 * np.pi) * _DIRECTIONS % _DIRECTIONS
    lower = np.floor(turn)
    upper_part = strength * (turn - lower)
    place = lower.astype(np.intp)[..., np.newaxis] % _DIRECTIONS
    histogram = np.zeros((*grey.shape, _DIRECTIONS), dtype=np.float32)
    np.put_along_axis(histogram, place, (strength - upper_part)[..., np.newaxis], axis=3)
    np.put_along_axis(histogram, (place + 1) % _DIRECTIONS, upper_part[..., np.newaxis], axis=3)
    cells = _by_cell(histogram).sum(axis=(2, 4))
    blocks = cells[:, :-1, :-1] + cells[:, 1:, :-1] + cells[:, :-1, 1:] + cells[:, 1:, 1:]  # 2 × 2 cells, overlapping
    brightness = _by_cell(grey[..., np.newaxis]).mean(axis=(2, 4))
    rows = len(pictures)
    return np.concatenate([np.sqrt(blocks).reshape(rows, -1), brightness.reshape(rows, -1)], axis=1)


def _by_cell(pixels: NDArray[np.float32]) -> NDArray[np.float32]:
    rows, height, width, depth = pixels.shape
    return pixels.reshape(rows, height // _CELL, _CELL, width // _CELL, _CELL, depth)


def shift(pictures: Pictures, rng: np.random.Generator, *, most: int = 2) -> Pictures:
    """Every picture moved by up to `most` whole pixels each way; what leaves on one side is empty on the other."""
    height, width = pictures.shape[1:]
    padded = np.pad(pictures, ((0, 0), (most, most), (most, most)))
    tops, lefts = rng.integers(2 * most + 1, size=(2, len(pictures)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, (height, width), axis=(1, 2))
    return windows[np.arange(len(pictures)), tops, lefts]


def jitter(pictures: Pictures, rng: np.random.Generator, *, pixels: float, degrees: float) -> Pictures:
    """Every picture turned about its middle and moved by fractions of a pixel, both uniformly within the limits."""
    middle = (np.array(pictures.shape[1:]) - 1) / 2
    moved = np.empty_like(pictures)
    for place, picture in enumerate(pictures):
        angle = np.deg2rad(rng.uniform(-degrees, degrees))
        turn = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        offset = middle - turn @ middle + rng.uniform(-pixels, pixels, size=2)
        moved[place] = affine_transform(picture, turn, offset, order=1)
    return moved
