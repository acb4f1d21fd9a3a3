"""The JAX learner slice by slice: a checkpoint is the weights after a slice (the S of SISA)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.errors import InputError, ParameterError
from expunge.core.features import Features
from expunge.training.learners.jax.batches import capacity
from expunge.training.learners.jax.learner import JaxLearner, StoredModel
from expunge.training.learners.protocol import Codes, Model, ShardData, Voter, Weights
from expunge.training.learners.slices import SlicedModel


@dataclass(frozen=True, eq=False)
class SlicedJaxLearner:
    """Trains `learner`'s network on slice after slice, with a fresh optimiser for each.

    With `is_cumulative` (as in SISA) a slice is trained together with all before it; otherwise alone. The learner's
    `steps` or `epochs` are those of one slice.
    """

    learner: JaxLearner
    num_slices: int
    is_cumulative: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.learner, JaxLearner):
            raise ParameterError(f"the learner of slices must be a JaxLearner, got {self.learner!r}")
        is_whole = isinstance(self.num_slices, int | np.integer) and not isinstance(self.num_slices, bool)
        if not is_whole or not 1 <= self.num_slices < 2**16:
            raise ParameterError(f"the number of slices must be from 1 to 65535, got {self.num_slices!r}")

    @property
    def shards_at_once(self) -> int:
        """As many as the learner likes: a slice of all of them is trained together."""
        return self.learner.shards_at_once

    def for_classes(self, classes: NDArray[Any]) -> SlicedJaxLearner:
        """The same learner for as many classes as there are labels."""
        return replace(self, learner=self.learner.for_classes(classes))

    def extend(self, checkpoint: Any, X: Features, y: Codes, seed: int, *, weights: Weights | None) -> Any:
        """The weights after training on these rows, from the checkpoint's weights on."""
        return self.extend_many([checkpoint], [ShardData(0, X, y, weights, seed)])[0]

    def extend_many(self, checkpoints: Sequence[Any], shards: Sequence[ShardData]) -> list[Any]:
        """The same for many shards, together where their programs are the same."""
        groups: dict[tuple[int, bool], list[int]] = {}
        for number, (checkpoint, shard) in enumerate(zip(checkpoints, shards, strict=True)):
            groups.setdefault((capacity(len(shard.y)), checkpoint is None), []).append(number)
        extended: list[Any] = [None] * len(shards)
        for (room, is_fresh), numbers in groups.items():
            starts = None if is_fresh else [checkpoints[number] for number in numbers]
            trained = self.learner.train([shards[number] for number in numbers], room, starts)
            for number, weights in zip(numbers, trained, strict=True):
                extended[number] = weights
        return extended

    def make_model(self, checkpoint: Any) -> Model:
        """The checkpoint as a voting model."""
        return self.learner.make_model(checkpoint)

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """As the base learner votes."""
        finals = [model.final if isinstance(model, SlicedModel) else model for model in models]
        return self.learner.make_voter(finals, num_classes)

    def dump_model(self, model: Model) -> StoredModel:
        """All checkpoints, each array under the number of its slice."""
        if not isinstance(model, SlicedModel):
            raise InputError(f"the sliced JAX learner cannot store a {type(model).__name__}")
        stored: StoredModel = {"kind": "sliced"}
        for number, checkpoint in enumerate(model.checkpoints):
            if checkpoint is not None:
                part = self.learner.dump_model(self.make_model(checkpoint))
                stored |= {f"{number}/{name}": value for name, value in part.items()}
        return stored

    def load_model(self, stored: StoredModel) -> Model:
        """The checkpoints and the model of the last."""
        if stored.get("kind") != "sliced":
            raise InputError(f"a stored model must be of kind 'sliced', got {stored.get('kind')!r}")
        checkpoints: list[Any] = []
        for number in range(self.num_slices):
            prefix = f"{number}/"
            part = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
            model: Any = self.learner.load_model(part) if part else None
            checkpoints.append(None if model is None else model.parameters)
        last = checkpoints[-1]
        return SlicedModel(tuple(checkpoints), _final(self, last))


def _final(learner: SlicedJaxLearner, last: Any) -> Model:
    from expunge.training.learners.protocol import Abstainer

    return Abstainer() if last is None else learner.make_model(last)


def same_parameters(first: Any, second: Any) -> bool:
    """Whether two trees of weights agree in every bit."""
    import jax

    left, right = jax.tree.flatten(first), jax.tree.flatten(second)
    return left[1] == right[1] and all(
        np.asarray(a).tobytes() == np.asarray(b).tobytes() for a, b in zip(left[0], right[0], strict=True)
    )
