"""Checks of single options, each with one clear line.

Optimisers as plain data, so that a learner can be stored; any Optax transformation works too.

DP-SGD, per-example clipping and Gaussian noise (Abadi et al. 2016), as in the paper's Section 5.2; its (ε, δ).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import ceil, isfinite, log, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import optax

from expunge.core.errors import ParameterError

if TYPE_CHECKING:
    from expunge.privacy.accounting import PrivacyBudget


_MOST = 2**31 - 1  # programs count in 32 bits


def check_whole(name: str, value: Any, *, most: int | None = _MOST) -> None:
    """Refuse what is not a whole number from 1 on."""
    is_whole = isinstance(value, int | np.integer) and not isinstance(value, bool)
    if not is_whole or value < 1:
        raise ParameterError(f"{name} must be a whole number of at least 1, got {value!r}")
    if most is not None and value > most:
        raise ParameterError(f"{name} must be at most {most}, got {value!r}")


def is_number(value: Any) -> bool:
    """Whether it is a finite number, and not a truth value."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool) and isfinite(value)


@dataclass(frozen=True)
class Optimizer:
    """An Optax optimiser by its name and numbers: `Optimizer("adam", {"learning_rate": 1e-3})`, or pairs of them."""

    name: str
    arguments: tuple[tuple[str, float | bool], ...]

    def __init__(self, name: str, arguments: Mapping[str, float | bool] | Iterable[tuple[str, float | bool]]) -> None:
        if not isinstance(name, str):
            raise ParameterError(f"an optimiser's name must be a text, got {name!r}")
        try:
            pairs = tuple(dict(arguments).items())
        except (TypeError, ValueError):
            raise ParameterError(f"an optimiser's arguments must be names with numbers, got {arguments!r}") from None
        object.__setattr__(self, "name", name)
        object.__setattr__(self, "arguments", pairs)

    def build(self) -> optax.GradientTransformation:
        """The transformation."""
        make = getattr(optax, self.name, None)
        if not callable(make):
            raise ParameterError(f"Optax has no optimiser {self.name!r}")
        try:
            made = make(**dict(self.arguments))
        except (TypeError, ValueError) as error:
            raise ParameterError(f"the optimizer {self.name!r} of Optax refuses its arguments: {error}") from error
        if not isinstance(made, optax.GradientTransformation):
            raise ParameterError(f"{self.name!r} of Optax is no optimiser, but makes a {type(made).__name__}")
        return made


def sgd(learning_rate: float, *, momentum: float = 0.0) -> Optimizer:
    """Stochastic gradient descent."""
    _check_rate(learning_rate)
    if not is_number(momentum) or not 0 <= momentum < 1:
        raise ParameterError(f"momentum must be in [0, 1), got {momentum!r}")
    return Optimizer("sgd", (("learning_rate", learning_rate), ("momentum", momentum)))


def adam(learning_rate: float) -> Optimizer:
    """Adam with Optax's defaults."""
    _check_rate(learning_rate)
    return Optimizer("adam", (("learning_rate", learning_rate),))


def _check_rate(learning_rate: Any) -> None:
    if not is_number(learning_rate) or learning_rate <= 0:
        raise ParameterError(f"learning_rate must be a positive number, got {learning_rate!r}")


def as_transformation(given: Any) -> optax.GradientTransformation:
    """The Optax transformation behind an `Optimizer`, or the given one."""
    if isinstance(given, Optimizer):
        return given.build()
    if hasattr(given, "init") and hasattr(given, "update"):
        return given
    raise ParameterError(f"the optimizer must be an Optimizer or an Optax transformation, got {given!r}")


_OVERFLOW = 1e-18  # the probability that a Poisson batch does not fit, a step


@dataclass(frozen=True)
class PrivateSGD:
    """How gradients are made private.

    Every example's gradient is clipped to the l2 norm `clip_norm`; Gaussian noise of standard deviation
    `clip_norm · noise_multiplier` is added to their *sum*, which is then divided by the batch size and handed to the
    optimiser. With `sampling="shuffle"` batches are cut from shuffled epochs, an incomplete last one dropped, as in the
    paper's experiments: no (ε, δ) is claimed for it. With `sampling="poisson"` every record joins a batch independently
    with probability batch size / number of records (1 in a smaller shard), which is what `budget` accounts for.

    Noise is drawn in float32: like all floating-point samplers it is an idealisation of the Gaussian.
    """

    clip_norm: float
    noise_multiplier: float
    sampling: Literal["shuffle", "poisson"] = "shuffle"

    def __post_init__(self) -> None:
        if not (is_number(self.clip_norm) and self.clip_norm > 0):
            raise ParameterError(f"clip_norm must be a positive number, got {self.clip_norm!r}")
        if not (is_number(self.noise_multiplier) and self.noise_multiplier >= 0):
            raise ParameterError(f"noise_multiplier must be a number of at least 0, got {self.noise_multiplier!r}")
        if self.sampling not in ("shuffle", "poisson"):
            raise ParameterError(f"sampling must be 'shuffle' or 'poisson', got {self.sampling!r}")

    def budget(self, *, delta: float, num_records: int, batch_size: int, num_steps: int) -> PrivacyBudget:
        """(ε, δ) of one shard's training for adding or removing one record, by Rényi accounting.

        Assumes Poisson sampling at rate batch_size / num_records, or 1 in a smaller shard, the number of records being
        public. A batch that does not fit its storage is cut; that happens with probability at most 1e-18 a step, which
        is charged to δ. At large ε (above 20 or so) that charge is more than δ, and no budget is claimed.
        """
        if self.sampling != "poisson":
            raise ParameterError("no (ε, δ) is known for shuffled batches: use sampling='poisson'")
        if not 0 < delta < 1:
            raise ParameterError(f"delta must be in (0, 1), got {delta!r}")
        for name, value in (("num_records", num_records), ("batch_size", batch_size), ("num_steps", num_steps)):
            check_whole(name, value, most=None)
        if self.noise_multiplier == 0:
            raise ParameterError("there is no finite ε without noise (noise_multiplier 0)")
        from dp_accounting import dp_event, rdp

        from expunge.privacy.accounting import PrivacyBudget

        accountant = rdp.RdpAccountant()
        rate = min(1.0, batch_size / num_records)
        step = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(self.noise_multiplier))
        accountant.compose(step, num_steps)
        if poisson_capacity(batch_size) >= num_records:  # every batch fits
            return PrivacyBudget(float(accountant.get_epsilon(delta)), delta)
        epsilon = float(accountant.get_epsilon(delta / 2))
        _check_cuts(epsilon, delta / 2, num_steps)
        return PrivacyBudget(epsilon, delta)


def _check_cuts(epsilon: float, spare: float, num_steps: int) -> None:
    """Refuse an ε at which cut batches cost more than `spare` of δ.

    A cut changes the output with probability at most p on either side: δ grows by at most (1 + e^ε) p.
    """
    times = spare / (num_steps * _OVERFLOW)
    if times <= 2:
        raise ParameterError(f"delta is too small for {num_steps} steps: got {2 * spare!r}")
    if epsilon > (largest := log(times - 1)):
        raise ParameterError(
            f"no (ε, δ) is claimed here: ε would be {epsilon:.1f}, and above {largest:.1f} batches that are cut cost "
            f"more than δ; use more noise, fewer steps or smaller batches"
        )


def poisson_capacity(batch_size: int) -> int:
    """Room for a Poisson batch: a batch of mean `batch_size` is larger with probability at most 1e-18.

    By Bernstein's inequality, P(N ≥ m + t) ≤ exp(-t² / (2 (m + t/3))) for a binomial N of mean m.
    """
    bound = -log(_OVERFLOW)
    excess = bound / 3 + sqrt(bound**2 / 9 + 2 * bound * batch_size)
    return batch_size + ceil(excess)
