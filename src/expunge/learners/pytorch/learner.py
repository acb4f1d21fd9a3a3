"""Any `nn.Module` as a learner."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, fields, replace
from functools import cached_property
from typing import Any, ClassVar, cast

from numpy.typing import NDArray

from expunge.errors import ParameterError
from expunge.features import Features
from expunge.learners.protocol import Abstainer, Codes, Model, OneByOneVoter, Voter, Weights
from expunge.learners.pytorch import forms
from expunge.learners.pytorch._imports import Named, import_extra, resolve
from expunge.learners.pytorch._options import is_whole
from expunge.learners.pytorch._rows import Shard, check_shard
from expunge.learners.pytorch._seeding import seeded
from expunge.learners.pytorch.loop import OptimizerState, TrainingLoop
from expunge.learners.pytorch.model import Checkpoint, TorchModel
from expunge.learners.pytorch.network import Network, check_finite, read_state, write_state
from expunge.learners.pytorch.privacy import DPSGD, PrivateSteps
from expunge.learners.pytorch.voting import TorchVoter
from expunge.learners.scikit import ConstantModel

_LOOP_OPTIONS = tuple(TrainingLoop.__dataclass_fields__)
_DEVICES = re.compile(r"cpu|auto|cuda(:\d+)?")


@dataclass(frozen=True)
class TorchLearner:
    """Trains a new module of `factory` on every shard.

    Parameters
    ----------
    factory : a callable without arguments that returns a new `nn.Module` with one output per class, or its name as
        'package.module:name' (a durable deployment needs the name, since a function cannot be stored).
    train : your own training function `train(module, X, y, *, seed, weights)`, or its name. It changes the module in
        place; X, y and weights (None unless records carry weights) are tensors on the device. Torch's, numpy's and
        Python's global generators are started from the seed, so it needs `seed` only for generators of its own.
        Without it the built-in loop minimises cross-entropy, with the options up to `privacy`:
    optimizer : a name (sgd, adam, adamw, …), or a callable that makes one of a list of parameters, or its name.
    learning_rate, weight_decay : of an optimizer given by name.
    batch_size, epochs : how the loop goes over a shard.
    privacy : `DPSGD(...)` for clipped and noised gradients on Poisson samples.
    device : "cpu", "cuda", "cuda:1", or "auto" for a GPU where there is one.
    dtype : "float32" or "float64", to train in; votes are always computed in float32.
    num_classes : set by `for_classes`.

    The same rows and seed give the same model bit for bit on a CPU, whatever was trained before. A shard with one
    class gets a constant without training, except under DP-SGD, where that would tell about its records.
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
        if self.dtype not in ("float32", "float64"):
            raise ParameterError(f"dtype must be float32 or float64, got {self.dtype!r}")
        if self.num_classes is not None and not is_whole(self.num_classes, 1, 2**31):
            raise ParameterError(f"num_classes must be a whole number of at least 1, got {self.num_classes!r}")

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

    def is_constant(self, y: Codes) -> bool:
        """Whether a shard with these labels needs no training."""
        return self.privacy is None and bool((y == y[0]).all())

    def fit(self, X: Features, y: Codes, seed: int, *, weights: Weights | None = None) -> Model:
        """A module trained on the shard."""
        shard = check_shard(X, y, weights, num_classes=self.num_classes)
        if not len(shard.y):
            return Abstainer()
        if self.is_constant(shard.y):
            return ConstantModel(int(shard.y[0]))
        return self.advance(None, shard, seed).model

    def advance(self, start: Checkpoint | None, shard: Shard, seed: int) -> Checkpoint:
        """Train a new module, or a copy of `start`'s with its optimiser going on."""
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
        """All networks in one call; one after another where there are models of another kind."""
        if all(isinstance(model, TorchModel | ConstantModel | Abstainer) for model in models):
            return TorchVoter(self.network, models, num_classes)
        return OneByOneVoter(models, num_classes)

    def dump_model(self, model: Model) -> forms.Form:
        """The model as arrays, numbers and words."""
        return forms.dump(model)

    def load_model(self, form: Mapping[str, Any]) -> Model:
        """The model that `dump_model` was given. Runs the learner's own factory, and nothing from the form."""
        return cast("Model", forms.load(form, self.network))
