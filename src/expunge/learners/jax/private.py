"""DP-SGD, per-example clipping and Gaussian noise (Abadi et al. 2016), as in the paper's Section 5.2; its (ε, δ)."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil, log, sqrt
from typing import TYPE_CHECKING, Literal

from expunge.errors import ParameterError
from expunge.learners.jax._options import check_whole, is_number

if TYPE_CHECKING:
    from expunge.accounting import PrivacyBudget

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

        from expunge.accounting import PrivacyBudget

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
