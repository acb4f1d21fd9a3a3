"""Options of a JAX learner: the optimiser, DP-SGD and its (ε, δ), and validation.

An `Optimizer` is plain data, so that a learner can be stored. Any Optax transformation works too. DP-SGD clips every
example's gradient and adds Gaussian noise (Abadi et al. 2016), as in the paper's Section 5.2.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, log, sqrt
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
import optax
from numpy.typing import NDArray

from expunge.core.checks import require_choice, require_count, require_number
from expunge.core.errors import ParameterError

if TYPE_CHECKING:
    from expunge.privacy.accounting import PrivacyBudget

MOST_COUNT = 2**31 - 1  # programs count in 32 bits


@dataclass(frozen=True)
class Optimizer:
    """An Optax optimiser by its name and numbers. It is plain data, so a learner with it can be stored.

    Parameters
    ----------
    name
        The name of a function of Optax that makes an optimiser.
    arguments
        The function's arguments, as a mapping or as pairs of name and value.

    Raises
    ------
    ParameterError
        If the name is not text, or the arguments are not pairs.

    Examples
    --------
    >>> Optimizer("adam", {"learning_rate": 0.001}) == adam(0.001)
    True
    """

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
        """Make the Optax transformation. Raises `ParameterError` if Optax has no such optimiser."""
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
    """Stochastic gradient descent.

    Parameters
    ----------
    learning_rate
        The step size, above 0.
    momentum
        The momentum, from 0 to below 1.

    Returns
    -------
    Optimizer
        The optimiser.

    Raises
    ------
    ParameterError
        If a number is out of range.

    Examples
    --------
    >>> sgd(0.1, momentum=0.9).arguments
    (('learning_rate', 0.1), ('momentum', 0.9))
    """
    require_number("learning_rate", learning_rate, above=0)
    require_number("momentum", momentum, least=0, below=1)
    return Optimizer("sgd", (("learning_rate", learning_rate), ("momentum", momentum)))


def adam(learning_rate: float) -> Optimizer:
    """Adam with Optax's defaults.

    Parameters
    ----------
    learning_rate
        The step size, above 0.

    Returns
    -------
    Optimizer
        The optimiser.

    Raises
    ------
    ParameterError
        If the step size is out of range.

    Examples
    --------
    >>> adam(0.01).name
    'adam'
    """
    require_number("learning_rate", learning_rate, above=0)
    return Optimizer("adam", (("learning_rate", learning_rate),))


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
    """DP-SGD: how gradients are clipped and noised, and how batches are drawn.

    Every example's gradient is clipped to the l2 norm `clip_norm`. Gaussian noise of standard deviation
    `clip_norm · noise_multiplier` is added to their *sum*, which is then divided by the batch size and given to the
    optimiser (Abadi et al. 2016; the paper's Section 5.2).

    Noise is drawn in float32: like all floating-point samplers it is an idealisation of the Gaussian.

    Parameters
    ----------
    clip_norm
        The largest l2 norm of an example's gradient, above 0.
    noise_multiplier
        The noise's standard deviation, in units of `clip_norm`.
    sampling
        "shuffle" cuts batches from shuffled epochs and drops an incomplete last one, as in the paper's experiments; no
        (ε, δ) is claimed for it. With "poisson" every record joins a batch independently, with probability batch size /
        number of records (1 in a smaller shard). `budget` accounts for that.

    Raises
    ------
    ParameterError
        If an option is out of range.

    Examples
    --------
    >>> privacy = PrivateSGD(clip_norm=1.0, noise_multiplier=1.0, sampling="poisson")
    >>> 3 < privacy.budget(delta=1e-5, num_records=1800, batch_size=64, num_steps=100).epsilon < 3.5
    True
    """

    clip_norm: float
    noise_multiplier: float
    sampling: Literal["shuffle", "poisson"] = "shuffle"

    def __post_init__(self) -> None:
        require_number("clip_norm", self.clip_norm, above=0)
        require_number("noise_multiplier", self.noise_multiplier, least=0)
        require_choice("sampling", self.sampling, ("shuffle", "poisson"))

    def budget(self, *, delta: float, num_records: int, batch_size: int, num_steps: int) -> PrivacyBudget:
        """(ε, δ) of one shard's training for adding or removing one record, by Rényi accounting.

        It assumes Poisson sampling at rate batch_size / num_records, or 1 in a smaller shard, and takes the number of
        records as public. A batch that does not fit its storage is cut. That happens with probability at most 1e-18 in
        each step, and is charged to δ. At large ε (above 20 or so) that charge is more than δ, and no budget is
        claimed.

        Parameters
        ----------
        delta
            δ, above 0 and below 1.
        num_records
            The number of the shard's records.
        batch_size, num_steps
            Those of the training.

        Returns
        -------
        PrivacyBudget
            (ε, δ).

        Raises
        ------
        ParameterError
            If batches are shuffled, there is no noise, or no (ε, δ) can be claimed.
        """
        if self.sampling != "poisson":
            raise ParameterError("no (ε, δ) is known for shuffled batches: use sampling='poisson'")
        require_number("delta", delta, above=0, below=1)
        for name, value in (("num_records", num_records), ("batch_size", batch_size), ("num_steps", num_steps)):
            require_count(name, value)
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
    """The storage for a Poisson batch: a batch of mean `batch_size` is larger with probability at most 1e-18.

    By Bernstein's inequality, P(N ≥ m + t) ≤ exp(-t² / (2 (m + t/3))) for a binomial N of mean m.
    """
    bound = -log(_OVERFLOW)
    excess = bound / 3 + sqrt(bound**2 / 9 + 2 * bound * batch_size)
    return batch_size + ceil(excess)


@dataclass(frozen=True, eq=False)
class Validation:
    """Public examples that choose among the weights of a training.

    The accuracy on them is measured at regular steps. The training returns the weights of the best check, the later one
    among equals. The examples must not be records: what they choose is not unlearned.

    Parameters
    ----------
    X
        Rows, one for each example.
    y
        Labels as the records have them. The learner's `for_classes` turns them into `codes`. A learner that is used by
        itself, with codes for labels and `num_classes`, takes codes here too.
    every
        The number of steps from one check to the next.
    codes
        Set by `for_classes`.

    Raises
    ------
    ParameterError
        If there is not one label for each row, or no row.

    Examples
    --------
    >>> validation = Validation(np.zeros((2, 4)), np.array(["no", "yes"]), every=10)
    >>> validation.for_classes(np.array(["no", "yes"])).codes
    array([0, 1], dtype=int32)
    """

    X: NDArray[Any]
    y: NDArray[Any]
    every: int = 20
    codes: NDArray[Any] | None = field(default=None, kw_only=True, repr=False)

    def __post_init__(self) -> None:
        require_count("every", self.every, most=MOST_COUNT)
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
        """The labels as codes from 0 to `num_classes` − 1."""
        codes = np.asarray(self.y if self.codes is None else self.codes)
        if codes.dtype.kind not in "iu" or codes.min() < 0 or codes.max() >= num_classes:
            raise ParameterError(f"without for_classes validation labels must be codes from 0 to {num_classes - 1}")
        return codes.astype(np.int32)
