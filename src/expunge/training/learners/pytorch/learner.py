"""Any `nn.Module` as a learner, on whole shards or slice by slice (the S of SISA), and the votes of its networks.

All networks vote at once: their weights are stacked, and one program serves all of them. How the votes are computed
depends on the architecture, the device and the number of rows, never on the shards. Shards without a network of their
own take part with zeros, so that they do not change even the last bit of another shard's scores. A shard's vote is a
function of its own model.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, cast

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_choice, require_count
from expunge.core.errors import ParameterError
from expunge.core.features import Features, num_rows
from expunge.training.learners.protocol import (
    ABSTAIN,
    Abstainer,
    Codes,
    Model,
    OneByOneVoter,
    Voter,
    Weights,
    count_votes,
)
from expunge.training.learners.pytorch.extra import Named, import_extra, resolve, seeded
from expunge.training.learners.pytorch.loop import OptimizerState, TrainingLoop
from expunge.training.learners.pytorch.model import (
    Checkpoint,
    Network,
    Shard,
    StoredModel,
    TorchModel,
    check_finite,
    check_shard,
    dump_model,
    final_model,
    load_model,
    read_state,
    top_classes,
    write_state,
)
from expunge.training.learners.pytorch.privacy import DPSGD, PrivateSteps
from expunge.training.learners.scikit import ConstantModel
from expunge.training.learners.slices import SlicedModel

_ROWS_TOGETHER = 64  # on a processor; with many rows its caches do better with one network after another
_PAIRS_TOGETHER = 1 << 14  # rows times shards in one go, which bounds the memory of their activations
_ROWS_ALONE = 1024


class TorchVoter:
    """Networks of one architecture, constants, and ⊥, voting together."""

    def __init__(self, network: Network, models: Sequence[Model], num_classes: int) -> None:
        self._network = network
        self._num_classes = num_classes
        self._fixed = np.array([_fixed_vote(model) for model in models], dtype=np.int32)
        self._networks = np.flatnonzero([isinstance(model, TorchModel) for model in models])
        self._module = network.loaded(_some_state(models)) if len(self._networks) else None
        self._weights = _stacked(self._module, models)
        self._can_batch = True
        self._lock = threading.Lock()  # calling a module with other weights changes it for the time of the call

    def count(self, X: Features) -> NDArray[np.int64]:
        """Votes for each class."""
        return count_votes(self.votes(X), self._num_classes)

    def votes(self, X: Features) -> Codes:
        """Every shard's vote."""
        table = np.tile(self._fixed, (num_rows(X), 1))
        if self._module is not None and len(table):
            torch = import_extra("torch")
            with self._lock, torch.inference_mode():
                codes = self._safe_codes(self._network.tensor(X, torch.float32))
            table[:, self._networks] = codes.cpu().numpy().T[:, self._networks]
        return table

    def _safe_codes(self, rows: Any) -> Any:
        """As `_codes`, with ⊥ for every row on which the network fails, as for any other learner."""
        torch = import_extra("torch")
        try:
            return self._codes(rows)
        except Exception:
            if len(rows) == 1:
                return torch.full((len(self._fixed), 1), ABSTAIN)
            return torch.cat([self._safe_codes(row) for row in rows.split(1)], dim=1)

    def _codes(self, rows: Any) -> Any:
        """Votes of shape (shards, rows). Those of shards without a network mean nothing."""
        if self._batches(rows):
            try:
                return self._together(rows)
            except RuntimeError:  # a layer that cannot be batched over weights: the same for all shards and rows
                self._can_batch = False
        return self._one_by_one(rows)

    def _batches(self, rows: Any) -> bool:
        return self._can_batch and (rows.device.type != "cpu" or len(rows) <= _ROWS_TOGETHER)

    def _together(self, rows: Any) -> Any:
        torch = import_extra("torch")
        scores = torch.vmap(self._scores, in_dims=(0, None), randomness="error")
        at_once = max(1, _PAIRS_TOGETHER // len(self._fixed))
        parts = [top_classes(scores(self._weights, part)) for part in rows.split(at_once)]
        return torch.cat(parts, dim=1)

    def _one_by_one(self, rows: Any) -> Any:
        torch = import_extra("torch")
        codes = torch.full((len(self._fixed), len(rows)), ABSTAIN, dtype=torch.int64, device=rows.device)
        for shard in self._networks.tolist():
            weights = {name: stack[shard] for name, stack in self._weights.items()}
            parts = [top_classes(self._scores(weights, part)) for part in rows.split(_ROWS_ALONE)]
            codes[shard] = torch.cat(parts)
        return codes

    def _scores(self, weights: dict[str, Any], rows: Any) -> Any:
        return import_extra("torch.func").functional_call(self._module, weights, (rows,))


def _fixed_vote(model: Model) -> int:
    return model.code if isinstance(model, ConstantModel) else ABSTAIN


def _some_state(models: Sequence[Model]) -> Any:
    return next(model.state for model in models if isinstance(model, TorchModel))


def _stacked(module: Any, models: Sequence[Model]) -> dict[str, Any]:
    """Every parameter and buffer of all shards along a new first axis, tied ones once."""
    if module is None:
        return {}
    torch = import_extra("torch")
    own = dict(module.named_parameters()) | dict(module.named_buffers())
    stacks = {name: torch.zeros((len(models), *tensor.shape)).to(tensor) for name, tensor in own.items()}
    for shard, model in enumerate(models):
        if isinstance(model, TorchModel):
            for name, stack in stacks.items():
                stack[shard] = torch.tensor(model.state[name])
    return stacks


_LOOP_OPTIONS = tuple(TrainingLoop.__dataclass_fields__)
_DEVICES = re.compile(r"cpu|auto|cuda(:\d+)?")


@dataclass(frozen=True)
class TorchLearner:
    """A learner that trains a new module on every shard.

    The same rows and seed give the same model bit for bit on a CPU, independently of earlier trainings. A shard with
    one class gets a constant without training, except under DP-SGD, where that would tell about its records.

    Parameters
    ----------
    factory
        A callable without arguments that returns a new `nn.Module` with one output for each class, or its name as
        'package.module:name'. A durable deployment needs the name, since a function cannot be stored.
    train
        Your own training function `train(module, X, y, *, seed, weights)`, or its name. It changes the module in place.
        X, y and weights (None unless records carry weights) are tensors on the device. Torch's, numpy's and Python's
        global generators are started from the seed, so it needs `seed` only for generators of its own. Without it the
        built-in loop minimises cross-entropy, with the options from `optimizer` to `privacy`.
    optimizer
        A name (sgd, adam, adamw, …), a callable that makes an optimiser from a list of parameters, or its name.
    learning_rate, weight_decay
        Those of an optimizer given by name.
    batch_size
        The largest number of records in a batch of the loop.
    epochs
        The number of times that the loop passes over a shard.
    privacy
        `DPSGD(...)` for clipped and noised gradients on Poisson samples.
    device
        "cpu", "cuda", "cuda:1", or "auto" for a GPU where there is one.
    dtype
        The type to train in, "float32" or "float64". Votes are always computed in float32.
    num_classes
        Set by `for_classes`.

    Raises
    ------
    ParameterError
        If an option is impossible. `MissingExtraError`, a kind of it, if torch is not installed.

    Examples
    --------
    >>> from functools import partial
    >>> import torch
    >>> X, y = np.repeat(np.eye(2), 20, axis=0), np.repeat([0, 1], 20)
    >>> learner = TorchLearner(partial(torch.nn.Linear, 2, 2), epochs=20)
    >>> learner.fit(X, y, seed=0).predict(np.eye(2))
    array([0, 1])
    """

    code_fields: ClassVar[tuple[str, ...]] = ("factory", "train", "optimizer")  # a store must not load these unasked

    factory: Named
    _: KW_ONLY
    train: Named | None = None
    optimizer: Named = "sgd"
    learning_rate: float = 0.1
    weight_decay: float = 0.0
    batch_size: int = 32
    epochs: int = 10
    privacy: DPSGD | None = None
    device: str = "cpu"
    dtype: str = "float32"
    num_classes: int | None = None

    def __post_init__(self) -> None:
        torch = import_extra("torch")
        if isinstance(self.factory, torch.nn.Module):
            raise ParameterError(
                f"factory must be a function that makes a new module, got a module ({type(self.factory).__name__})"
            )
        resolve(self.factory, option="factory")
        _ = self.loop
        if self.train is not None:
            resolve(self.train, option="train")
            for option in fields(self):
                if option.name in _LOOP_OPTIONS and getattr(self, option.name) != option.default:
                    raise ParameterError(f"{option.name} belongs to the built-in loop and has no effect with train")
        if not isinstance(self.device, str) or not _DEVICES.fullmatch(self.device):
            raise ParameterError(f"device must be cpu, cuda, cuda:<number> or auto, got {self.device!r}")
        require_choice("dtype", self.dtype, ("float32", "float64"))
        if self.num_classes is not None:
            require_count("num_classes", self.num_classes, most=2**31)

    @cached_property
    def loop(self) -> TrainingLoop:
        """The built-in loop with this learner's options."""
        return TrainingLoop(**{name: getattr(self, name) for name in _LOOP_OPTIONS})

    @cached_property
    def network(self) -> Network:
        """The architecture that all models share."""
        return Network(self.factory, num_classes=self.num_classes, device=self.device, dtype=self.dtype)

    def for_classes(self, classes: NDArray[Any]) -> TorchLearner:
        """The same learner, which then checks that modules have one output per class."""
        return replace(self, num_classes=len(classes))

    def environment(self) -> dict[str, str]:
        """The version of PyTorch, the device and how exact products are: other ones may give other bits."""
        torch = import_extra("torch")
        matmul, cudnn = torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32
        return {
            "torch": torch.__version__,
            "torch device": self.network.place_name(),
            "torch settings": f"matmul precision {matmul}, cudnn tf32 {cudnn}",
        }

    def is_constant(self, y: Codes) -> bool:
        """Whether a shard with these labels needs no training."""
        return self.privacy is None and bool((y == y[0]).all())

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """Train a new module on one shard. Raises `InputError` where rows, labels or weights do not fit."""
        shard = check_shard(X, y, weights, num_classes=self.num_classes)
        if not len(shard.y):
            return Abstainer()
        if self.is_constant(shard.y):
            return ConstantModel(int(shard.y[0]))
        return self.advance(None, shard, seed).model

    def advance(self, start: Checkpoint | None, shard: Shard, seed: int) -> Checkpoint:
        """Train a new module, or a copy of `start`'s with its optimiser continuing."""
        network = self.network
        rows, labels, factors = network.training_data(shard)
        with seeded(seed, device=network.place(), dtype=network.number_type()):
            module = network.build()
            if start is not None:
                write_state(module, start.model.state)
            network.check_scores(module, rows, labels)
            module.train()
            optimizer, spent = self._train(module, rows, labels, factors, seed, start)
            check_finite(module)
        return Checkpoint(TorchModel(network, read_state(module), (spent,) if spent else ()), optimizer)

    def _train(
        self, module: Any, X: Any, y: Any, weights: Any, seed: int, start: Checkpoint | None
    ) -> tuple[OptimizerState, tuple[PrivateSteps, ...]]:
        if self.train is None:
            return self.loop.run(module, X, y, weights, state=None if start is None else start.optimizer)
        resolve(self.train, option="train")(module, X, y, seed=seed, weights=weights)
        return {}, ()

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """All networks vote in one call, or one after another where there are models of another kind."""
        if all(isinstance(model, TorchModel | ConstantModel | Abstainer) for model in models):
            return TorchVoter(self.network, models, num_classes)
        return OneByOneVoter(models, num_classes)

    def dump_model(self, model: Model) -> StoredModel:
        """The model as arrays, numbers and words."""
        return dump_model(model)

    def load_model(self, stored: Mapping[str, Any]) -> Model:
        """The model that `dump_model` was given. Runs the learner's own factory, and nothing from what is stored."""
        return cast("Model", load_model(stored, self.network))


@dataclass(frozen=True)
class TorchSlicedLearner:
    """A learner that trains a network slice by slice, each from the weights of the slice before.

    A deletion resumes at the first slice that it touches. The learner's `epochs` are those of one slice. The state of
    the optimiser continues too, except with a training function of your own, which starts its own optimiser.

    Parameters
    ----------
    learner
        The learner of each slice.
    num_slices
        The number of slices, from 1 to 65,535.
    cumulative
        Whether a slice is trained together with all before it, as in SISA, or alone.

    Raises
    ------
    ParameterError
        If the learner is not a `TorchLearner`, or the number of slices is out of range.

    Examples
    --------
    >>> import torch
    >>> TorchSlicedLearner(TorchLearner(torch.nn.Identity), num_slices=4).num_slices
    4
    """

    learner: TorchLearner
    _: KW_ONLY
    num_slices: int
    cumulative: bool = True

    def __post_init__(self) -> None:
        if not isinstance(self.learner, TorchLearner):
            raise ParameterError(f"learner must be a TorchLearner, got {self.learner!r}")
        require_count("num_slices", self.num_slices, most=2**16 - 1)

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
        return final_model(checkpoint)

    def make_voter(self, models: Sequence[Model], num_classes: int) -> Voter:
        """All networks in one call."""
        finals = [model.final if isinstance(model, SlicedModel) else model for model in models]
        return self.learner.make_voter(finals, num_classes)

    def dump_model(self, model: Model) -> StoredModel:
        """The model and all its checkpoints as arrays, numbers and words."""
        return dump_model(model)

    def load_model(self, stored: Mapping[str, Any]) -> Model:
        """What `dump_model` was given. Runs the learner's own factory, and nothing from what is stored."""
        return cast("Model", load_model(stored, self.learner.network))
