"""A network trained slice by slice, with a checkpoint after each (the S of SISA)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from typing import Any, cast

from numpy.typing import NDArray

from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.training.learners.protocol import Codes, Model, Voter, Weights
from expunge.training.learners.pytorch import forms
from expunge.training.learners.pytorch.extra import is_whole
from expunge.training.learners.pytorch.learner import TorchLearner
from expunge.training.learners.pytorch.model import Checkpoint, TorchModel
from expunge.training.learners.pytorch.rows import check_shard
from expunge.training.learners.scikit import ConstantModel
from expunge.training.learners.slices import SlicedModel


@dataclass(frozen=True)
class TorchSlicedLearner:
    """Trains `learner`'s network for its number of epochs at every slice, going on from the weights before it.

    With `cumulative` (the default, as in SISA) a slice is trained together with all before it, otherwise alone. The
    optimiser's state goes on as well, except with a training function of your own, which starts its own optimiser.
    """

    learner: TorchLearner
    _: KW_ONLY
    num_slices: int
    cumulative: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.learner, TorchLearner):
            raise ParameterError(f"learner must be a TorchLearner, got {self.learner!r}")
        if not is_whole(self.num_slices, 1, 2**16 - 1):
            raise ParameterError(
                f"the number of slices must be a whole number from 1 to 65535, got {self.num_slices!r}"
            )

    @property
    def is_cumulative(self) -> bool:
        """Whether each slice is trained together with all before it."""
        return self.cumulative

    def for_classes(self, classes: NDArray[Any]) -> TorchSlicedLearner:
        """The same learner, told how many classes there are."""
        return replace(self, learner=self.learner.for_classes(classes))

    def extend(self, checkpoint: Any, X: Features, y: Codes, seed: int, *, weights: Weights | None) -> Any:
        """The checkpoint after one more slice."""
        shard = check_shard(X, y, weights, num_classes=self.learner.num_classes)
        # A constant holds nothing worth going on from: the rows of its slices are among the cumulative ones.
        if self.cumulative and self.learner.is_constant(shard.y):
            return ConstantModel(int(shard.y[0]))
        start = checkpoint if isinstance(checkpoint, Checkpoint) else None
        after = self.learner.advance(start, shard, seed)
        return after if start is None else self._with_earlier_runs(start, after)

    def _with_earlier_runs(self, start: Checkpoint, after: Checkpoint) -> Checkpoint:
        """DP-SGD's steps so far: one run over growing data, or runs over disjoint slices."""
        before, new = start.model.private_runs, after.model.private_runs
        runs = (sum(before + new, ()),) if self.cumulative and before else before + new
        return Checkpoint(TorchModel(after.model.network, after.model.state, runs), after.optimizer)

    def make_model(self, checkpoint: Any) -> Model:
        """The checkpoint as a voting model."""
        return forms.final_model(checkpoint)

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """All networks in one call."""
        finals = [model.final if isinstance(model, SlicedModel) else model for model in models]
        return self.learner.make_voter(finals, num_classes)

    def dump_model(self, model: Model) -> forms.Form:
        """The model and all its checkpoints as arrays, numbers and words."""
        return forms.dump(model)

    def load_model(self, form: Mapping[str, Any]) -> Model:
        """What `dump_model` was given. Runs the learner's own factory, and nothing from the form."""
        return cast("Model", forms.load(form, self.learner.network))
