"""Everything about a training that is fixed before any data is seen: what a compiled program is compiled for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.errors import ParameterError
from expunge.learners.jax._gradients import Loss
from expunge.learners.jax.architecture import Architecture
from expunge.learners.jax.optimizer import as_transformation
from expunge.learners.jax.private import PrivateSGD


@dataclass(frozen=True, eq=False)
class Validation:
    """Public examples that choose among the weights of a training.

    Every `every` steps the accuracy on them is taken, and the training returns the weights of the best check, the later
    one among equals. The examples must not be records: what they choose is not unlearned.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    every: int = 20

    def __post_init__(self) -> None:
        if self.every < 1:
            raise ParameterError(f"every must be at least 1, got {self.every!r}")
        if len(self.X) != len(self.y) or not len(self.y):
            raise ParameterError(f"validation needs as many labels as rows, got {len(self.X)} and {len(self.y)}")


@dataclass(frozen=True)
class Recipe:
    """Hashable, so that programs can be kept by it."""

    architecture: Architecture
    loss: Loss
    optimizer: Any  # an Optimizer or an Optax transformation
    num_classes: int
    batch_size: int
    steps: int | None
    epochs: int | None
    privacy: PrivateSGD | None
    check_every: int | None
    input_scale: float

    def num_steps(self, size: int) -> int:
        """How many steps a shard of that many rows is trained for."""
        if self.steps is not None:
            return self.steps
        assert self.epochs is not None
        return self.epochs * max(size // self.batch_size, 1)

    def num_epochs(self, least: int) -> int:
        """The most epochs that a shard of at least `least` rows can begin."""
        if self.steps is None:
            assert self.epochs is not None
            return self.epochs
        return -(-self.steps // max(least // self.batch_size, 1))


def check_recipe(recipe: Recipe) -> None:
    """One clear line about an impossible option."""
    if recipe.batch_size < 1:
        raise ParameterError(f"batch_size must be at least 1, got {recipe.batch_size!r}")
    if (recipe.steps is None) == (recipe.epochs is None):
        raise ParameterError(f"give either steps or epochs, got steps={recipe.steps!r}, epochs={recipe.epochs!r}")
    length = recipe.steps if recipe.epochs is None else recipe.epochs
    if length is None or length < 1:
        raise ParameterError(f"a training needs at least one step, got {length!r}")
    as_transformation(recipe.optimizer)  # one that cannot be made is an error here, not in training
    if not np.isfinite(recipe.input_scale) or recipe.input_scale == 0:
        raise ParameterError(f"input_scale must be a finite number other than 0, got {recipe.input_scale!r}")
