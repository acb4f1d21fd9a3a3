"""Everything about a training that is fixed before any data is seen: what a compiled program is compiled for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.errors import ParameterError
from expunge.learners.jax._gradients import Loss
from expunge.learners.jax._options import check_whole, is_number
from expunge.learners.jax.architecture import Architecture
from expunge.learners.jax.optimizer import as_transformation
from expunge.learners.jax.private import PrivateSGD


@dataclass(frozen=True, eq=False)
class Validation:
    """Public examples that choose among the weights of a training.

    Every `every` steps the accuracy on them is taken, and the training returns the weights of the best check, the later
    one among equals. The examples must not be records: what they choose is not unlearned.

    `y` are labels as the records have them; `for_classes` of the learner turns them into `codes`. A learner that is
    used by itself, with codes for labels and `num_classes`, takes codes here too.
    """

    X: NDArray[Any]
    y: NDArray[Any]
    every: int = 20
    codes: NDArray[Any] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        check_whole("every", self.every)
        if np.ndim(self.y) != 1:
            raise ParameterError(f"validation needs one label a row, got labels of the shape {np.shape(self.y)}")
        if len(self.X) != len(self.y) or not len(self.y):
            raise ParameterError(f"validation needs as many labels as rows, got {len(self.X)} and {len(self.y)}")

    def for_classes(self, classes: NDArray[Any]) -> Validation:
        """The same examples with the codes of their labels, which are places in `classes`."""
        code_of = {label: code for code, label in enumerate(np.asarray(classes).tolist())}
        labels = np.asarray(self.y).tolist()
        unknown = [label for label in labels if label not in code_of]
        if unknown:
            raise ParameterError(f"validation labels must be classes of the records, got {unknown[0]!r}")
        return replace(self, codes=np.array([code_of[label] for label in labels], dtype=np.int32))

    def class_codes(self, num_classes: int) -> NDArray[np.int32]:
        """What scores are compared with."""
        codes = np.asarray(self.y if self.codes is None else self.codes)
        if codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= num_classes:
            raise ParameterError(f"without for_classes validation labels must be codes from 0 to {num_classes - 1}")
        return codes.astype(np.int32)


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
    check_whole("batch_size", recipe.batch_size)
    if (recipe.steps is None) == (recipe.epochs is None):
        raise ParameterError(f"give either steps or epochs, got steps={recipe.steps!r}, epochs={recipe.epochs!r}")
    for name in ("steps", "epochs"):
        if getattr(recipe, name) is not None:
            check_whole(name, getattr(recipe, name))
    as_transformation(recipe.optimizer)  # one that cannot be made is an error here, not in training
    if recipe.privacy is not None and not isinstance(recipe.privacy, PrivateSGD):
        raise ParameterError(f"privacy must be a PrivateSGD or None, got {recipe.privacy!r}")
    if not is_number(recipe.input_scale) or recipe.input_scale == 0:
        raise ParameterError(f"input_scale must be a finite number other than 0, got {recipe.input_scale!r}")
