"""DP-SGD through Opacus: per-example clipping, Gaussian noise, Poisson sampling, and what it adds up to.

This is privacy of the *records*. It comes on top of unlearning and is independent of it: no part of the unlearning
guarantee rests on it. The (ε,δ) of a model is about one shard, and holds against replacing one of its records by one
without gradient. This is "zero-out" adjacency, the convention under which a Poisson-sampled Gaussian costs the same as
when a record is removed and under which the number of records is public. A record that sits in several shards pays in
each of them.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from expunge.core.checks import require_choice, require_number
from expunge.core.errors import ParameterError
from expunge.training.learners.pytorch.extra import import_extra

AccountantName = Literal["rdp", "prv"]


@dataclass(frozen=True, kw_only=True)
class DPSGD:
    """DP-SGD: clip every example's gradient and add Gaussian noise to the sum.

    Parameters
    ----------
    max_grad_norm
        The largest norm of an example's gradient, above 0.
    noise_multiplier
        The noise's standard deviation, in units of `max_grad_norm`.

    Raises
    ------
    ParameterError
        If a number is out of range.

    Examples
    --------
    >>> DPSGD(max_grad_norm=1.0, noise_multiplier=1.0)
    DPSGD(max_grad_norm=1.0, noise_multiplier=1.0)
    """

    max_grad_norm: float
    noise_multiplier: float

    def __post_init__(self) -> None:
        require_number("max_grad_norm", self.max_grad_norm, above=0)
        require_number("noise_multiplier", self.noise_multiplier, least=0)


class PrivateSteps(NamedTuple):
    """A number of steps of the Gaussian mechanism on Poisson samples."""

    noise_multiplier: float
    sample_rate: float
    steps: int


class DataPrivacy(NamedTuple):
    """(ε,δ)-differential privacy of one shard's model in the records of that shard."""

    epsilon: float
    delta: float


def data_privacy(runs: Sequence[Sequence[PrivateSteps]], *, delta: float, accountant: AccountantName) -> DataPrivacy:
    """What the runs add up to for one record, by Opacus's accountant (Rényi, or numeric composition).

    Steps within a run see the same records and are composed. Different runs see disjoint records, so a record pays for
    the most expensive run only.
    """
    require_number("delta", delta, above=0, below=1)
    require_choice("accountant", accountant, ("rdp", "prv"))
    return DataPrivacy(max((_epsilon(run, delta, accountant) for run in runs), default=0.0), delta)


def _epsilon(run: Sequence[PrivateSteps], delta: float, accountant: AccountantName) -> float:
    if any(part.noise_multiplier == 0 for part in run):
        return math.inf
    accountants = import_extra("opacus.accountants")
    books = accountants.RDPAccountant() if accountant == "rdp" else accountants.PRVAccountant()
    books.history = [tuple(part) for part in run if part.steps]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that another Rényi order could be better: the bound holds all the same
        return float(books.get_epsilon(delta)) if books.history else 0.0


class PrivateUpdates:
    """A module and its optimiser under Opacus: `step` is one update of DP-SGD.

    The noise is for sums in which an example's gradient, of all parameters together, has norm `max_grad_norm` at most.
    Opacus takes the first axis of a layer's input for the examples. If a module has folded its batch into rows, every
    row would be clipped by itself, and an example would count as much as its rows together. So every step checks that
    every parameter has one gradient for each example.
    """

    def __init__(self, module: Any, optimizer: Any, *, privacy: DPSGD, mean_batch: float) -> None:
        _check_layers(module)
        self._parameters = {name: own for name, own in module.named_parameters() if own.requires_grad}
        grad_sample = import_extra("opacus.grad_sample")
        self.module = grad_sample.GradSampleModule(module, loss_reduction="sum")
        self._optimizer = import_extra("opacus.optimizers").DPOptimizer(
            optimizer,
            noise_multiplier=privacy.noise_multiplier,
            max_grad_norm=privacy.max_grad_norm,
            expected_batch_size=mean_batch,
        )

    def step(self, losses: Any | None) -> None:
        """Make one update from a batch's losses. None stands for an empty batch, which is noise alone."""
        if losses is None:
            for parameter in self._parameters.values():
                parameter.grad_sample = parameter.new_zeros((0, *parameter.shape))
        else:
            self.find_gradients(losses)
        self._optimizer.step()
        self.forget_gradients()

    def find_gradients(self, losses: Any) -> None:
        """Compute every example's gradient, or refuse in one line a parameter that has none."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that inputs have no gradients of their own
            losses.sum().backward()
        for name, parameter in self._parameters.items():
            _check_gradients(name, getattr(parameter, "grad_sample", None), len(losses))

    def forget_gradients(self) -> None:
        """Clear the gradients for the next batch."""
        self._optimizer.zero_grad(set_to_none=True)

    @contextmanager
    def keep_buffers(self) -> Iterator[None]:
        """Restore the module's buffers afterwards."""
        before = {name: buffer.clone() for name, buffer in self.module.named_buffers()}
        yield
        for name, buffer in self.module.named_buffers():
            buffer.copy_(before[name])


def _check_gradients(name: str, found: Any, num_examples: int) -> None:
    """Refuse gradients that are not one for each example. The message leaves out their number, which is secret."""
    if found is None:
        raise ParameterError(
            f"DP-SGD cannot train this module: {name!r} has no gradients (its layer must be called, or it be frozen)"
        )
    # Several parts are several passes through the layer, which would be clipped each by itself.
    parts = found if isinstance(found, list) else [found]
    if len(parts) != 1 or len(parts[0]) != num_examples:
        raise ParameterError(
            f"DP-SGD cannot train this module: {name!r} has not one gradient an example "
            "(the first axis of what its layer is given must be the batch)"
        )


def poisson_batches(num_records: int, *, sample_rate: float, steps: int) -> Iterator[Any]:
    """Batches that every record joins with probability `sample_rate`, independently of everything else."""
    torch = import_extra("torch")
    for _ in range(steps):
        yield torch.nonzero(torch.rand(num_records, dtype=torch.float64, device="cpu") < sample_rate).flatten()


def _check_layers(module: Any) -> None:
    validator = import_extra("opacus.validators").ModuleValidator
    for error in validator.validate(module, strict=False):
        first_sentence = str(error).partition("\n")[0].partition(". ")[0]
        raise ParameterError(f"DP-SGD cannot train this module: {first_sentence}")
