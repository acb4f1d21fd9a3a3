"""The built-in training loop: cross-entropy, any optimiser, in batches of nearly equal size; DP-SGD if wanted."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count, require_number
from expunge.core.errors import ExpungeError, ParameterError
from expunge.training.learners.pytorch.extra import Named, first_line, import_extra, resolve, seeded
from expunge.training.learners.pytorch.privacy import DPSGD, PrivateSteps, PrivateUpdates, poisson_batches

_SAME = 1e-4  # relative: rounding is smaller, and a layer that mixes examples changes their losses by more

OptimizerState = dict[str, NDArray[Any]]  # "<number of the parameter>/<name>"

OPTIMIZERS = {
    "adadelta": "Adadelta",
    "adagrad": "Adagrad",
    "adam": "Adam",
    "adamax": "Adamax",
    "adamw": "AdamW",
    "nadam": "NAdam",
    "radam": "RAdam",
    "rmsprop": "RMSprop",
    "sgd": "SGD",
}


@dataclass(frozen=True, kw_only=True)
class TrainingLoop:
    """Epochs over a shard in random order; the weight of a record multiplies its loss.

    An epoch has ⌈n/batch_size⌉ batches for a shard of n records. Their sizes differ by one at most, so that no batch is
    too small for batch normalisation merely because of n. Under DP-SGD the same number of batches is Poisson sampled
    instead, and a loss is weighted before its gradient is clipped.
    """

    optimizer: Named
    learning_rate: float
    weight_decay: float
    batch_size: int
    epochs: int
    privacy: DPSGD | None

    def __post_init__(self) -> None:
        if isinstance(self.optimizer, str) and ":" not in self.optimizer and self.optimizer not in OPTIMIZERS:
            names = ", ".join(OPTIMIZERS)
            raise ParameterError(
                f"optimizer must be one of {names}, a callable or 'package.module:name', got {self.optimizer!r}"
            )
        require_number("learning_rate", self.learning_rate, above=0)
        require_number("weight_decay", self.weight_decay, least=0)
        for name in ("batch_size", "epochs"):
            require_count(name, getattr(self, name), most=2**31)
        if self.privacy is not None and not isinstance(self.privacy, DPSGD):
            raise ParameterError(f"privacy must be a DPSGD or None, got {self.privacy!r}")

    def run(
        self, module: Any, X: Any, y: Any, weights: Any, *, state: OptimizerState | None
    ) -> tuple[OptimizerState, tuple[PrivateSteps, ...]]:
        """Train `module` in place, continuing from the optimiser's state where there is one."""
        parameters = [parameter for parameter in module.parameters() if parameter.requires_grad]
        optimizer = self._make_optimizer(parameters)
        if state:
            _write_optimizer(optimizer, state)
        if self.privacy is None:
            self._run_plain(module, optimizer, X, y, weights)
            return _read_optimizer(optimizer), ()
        spent = self._run_private(module, optimizer, X, y, weights, self.privacy)
        return _read_optimizer(optimizer), (spent,)

    def _run_plain(self, module: Any, optimizer: Any, X: Any, y: Any, weights: Any) -> None:
        torch = import_extra("torch")
        num_batches = -(-len(y) // self.batch_size)
        for epoch in range(self.epochs):
            order = torch.randperm(len(y), device="cpu").to(y.device)
            total = torch.zeros((), device=y.device, dtype=X.dtype)
            for rows in order.tensor_split(num_batches):
                optimizer.zero_grad()
                loss = _losses(module, X, y, weights, rows).mean()
                loss.backward()
                optimizer.step()
                total += loss.detach()
            _check_loss(float(total), epoch)

    def _run_private(self, module: Any, optimizer: Any, X: Any, y: Any, weights: Any, privacy: DPSGD) -> PrivateSteps:
        num_batches = -(-len(y) // self.batch_size)
        updates = PrivateUpdates(module, optimizer, privacy=privacy, mean_batch=len(y) / num_batches)
        _check_examples(updates, X, y)
        for epoch in range(self.epochs):
            total = 0.0
            for rows in poisson_batches(len(y), sample_rate=1 / num_batches, steps=num_batches):
                losses = _losses(updates.module, X, y, weights, rows.to(y.device)) if len(rows) else None
                updates.step(losses)
                total += 0.0 if losses is None else float(losses.detach().sum())
            _check_loss(total, epoch)
        return PrivateSteps(privacy.noise_multiplier, 1 / num_batches, self.epochs * num_batches)

    def _make_optimizer(self, parameters: list[Any]) -> Any:
        optim = import_extra("torch.optim")
        if isinstance(self.optimizer, str) and self.optimizer in OPTIMIZERS:
            kind = getattr(optim, OPTIMIZERS[self.optimizer])
            return kind(parameters, lr=self.learning_rate, weight_decay=self.weight_decay)
        made = resolve(self.optimizer, option="optimizer")(parameters)
        if not isinstance(made, optim.Optimizer):
            raise ParameterError(f"optimizer must return a torch.optim.Optimizer, got {made!r}")
        return made


def _losses(module: Any, X: Any, y: Any, weights: Any, rows: Any) -> Any:
    """The weighted cross-entropy of every row."""
    functional = import_extra("torch.nn.functional")
    losses = functional.cross_entropy(module(X[rows]), y[rows], reduction="none")
    return losses if weights is None else losses * weights[rows]


def _check_examples(updates: PrivateUpdates, X: Any, y: Any) -> None:
    """Refuse, before the first step, a module whose examples Opacus cannot tell apart.

    It tries batches of two sizes, because another axis may have the length of one of them by chance. It has a seed of
    its own, so that it does not change the training.
    """
    torch = import_extra("torch")
    with seeded(0, device=X.device, dtype=X.dtype), updates.keep_buffers():
        for size in (2, 3):
            rows = torch.arange(size, device=y.device) % len(y)
            try:
                updates.find_gradients(_losses(updates.module, X, y, None, rows))
            except ExpungeError:
                raise
            except Exception as error:
                raise ParameterError(f"DP-SGD cannot train this module: {first_line(error)}") from error
            updates.forget_gradients()
    _check_companions(updates, X, y)


def _check_companions(updates: PrivateUpdates, X: Any, y: Any) -> None:
    """Refuse a module in which an example's loss depends on the others of its batch: clipping does not bound that.

    The first of three rows is tried with two different pairs of other rows. All else, the seed included, is equal.
    """
    torch = import_extra("torch")
    places = torch.arange(3, device=y.device) % len(y)
    rows, losses = X[places], []
    others = 1 - 2 * rows[1:] if rows.is_floating_point() else rows[1:].roll(1, dims=-1)
    for companions in (rows[1:], others):
        with seeded(0, device=X.device, dtype=X.dtype), updates.keep_buffers(), torch.no_grad():
            batch = torch.cat([rows[:1], companions])
            own = _losses(updates.module, batch, y[places], None, torch.arange(3, device=y.device))
            losses.append(float(own[0]))
    if abs(losses[0] - losses[1]) > _SAME * (1 + abs(losses[0])):
        raise ParameterError(
            "DP-SGD cannot train this module: the loss of an example depends on the others in its batch "
            "(batch normalisation, also without weights, or a mean over the batch)"
        )


def _check_loss(total: float, epoch: int) -> None:
    if not math.isfinite(total):
        raise ExpungeError(f"training diverged: the loss is {total} in epoch {epoch + 1} (try a smaller learning rate)")


def _read_optimizer(optimizer: Any) -> OptimizerState:
    """The optimiser's state (momenta and the like) as arrays."""
    arrays = {}
    for number, values in optimizer.state_dict()["state"].items():
        for name, value in values.items():
            if value is None:
                continue
            array = value.detach().cpu().numpy().copy() if hasattr(value, "detach") else np.asarray(value)
            if array.dtype.kind not in "fiub":
                raise ParameterError(f"the optimizer's {name!r} is no number and cannot be kept in a checkpoint")
            arrays[f"{number}/{name}"] = array
    return arrays


def _write_optimizer(optimizer: Any, arrays: OptimizerState) -> None:
    torch = import_extra("torch")
    values: dict[int, dict[str, Any]] = {}
    for key, array in arrays.items():
        number, _, name = key.partition("/")
        values.setdefault(int(number), {})[name] = torch.tensor(array)
    optimizer.load_state_dict({"state": values, "param_groups": optimizer.state_dict()["param_groups"]})
