"""Everything about a training that is fixed before any data is seen: what a compiled program is compiled for."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.training.learners.jax.architecture import Architecture, fixed_key, one_line
from expunge.training.learners.jax.gradients import Loss
from expunge.training.learners.jax.options import PrivateSGD, as_transformation, check_whole, is_number


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


@lru_cache(maxsize=64)
def check_update(recipe: Recipe) -> None:
    """Refuse weights, a loss or an optimiser that a step cannot be made with; computes nothing.

    Optimisers that want the loss besides the gradient (L-BFGS, Polyak's steps) or weights of their own kind are none.
    """
    architecture, optimizer = recipe.architecture, as_transformation(recipe.optimizer)
    weights = jax.eval_shape(lambda: architecture.init(fixed_key(), recipe.num_classes))
    for leaf in jax.tree.leaves(weights):
        if not jnp.issubdtype(leaf.dtype, jnp.floating):
            raise ParameterError(f"the network's weights must be arrays of floats, got one of type {leaf.dtype}")
    label = jax.ShapeDtypeStruct((), jnp.int32)
    try:
        loss = jax.eval_shape(recipe.loss, jax.ShapeDtypeStruct((recipe.num_classes,), jnp.float32), label)
    except Exception as error:
        raise ParameterError(f"the loss fails on the scores and the label of one example: {one_line(error)}") from error
    if getattr(loss, "shape", None) != ():
        found = getattr(loss, "shape", type(loss).__name__)
        raise ParameterError(f"the loss of one example must be a number, got {found}")
    try:
        jax.eval_shape(lambda own: optimizer.update(own, optimizer.init(own), own), weights)
    except Exception as error:
        words = "the optimizer cannot make a step from gradients and weights alone"
        raise ParameterError(f"{words}: {one_line(error)}") from error


def check_recipe(recipe: Recipe) -> None:
    """One clear line about an impossible option."""
    check_whole("batch_size", recipe.batch_size)
    if (recipe.steps is None) == (recipe.epochs is None):
        raise ParameterError(f"give either steps or epochs, got steps={recipe.steps!r}, epochs={recipe.epochs!r}")
    for name in ("steps", "epochs"):
        if getattr(recipe, name) is not None:
            check_whole(name, getattr(recipe, name))
    if not callable(recipe.loss):
        raise ParameterError(f"loss must be a function of scores and label, got {recipe.loss!r}")
    as_transformation(recipe.optimizer)  # one that cannot be made is an error here, not in training
    if recipe.privacy is not None and not isinstance(recipe.privacy, PrivateSGD):
        raise ParameterError(f"privacy must be a PrivateSGD or None, got {recipe.privacy!r}")
    if not is_number(recipe.input_scale) or recipe.input_scale == 0:
        raise ParameterError(f"input_scale must be a finite number other than 0, got {recipe.input_scale!r}")
