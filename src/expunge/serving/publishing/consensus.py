"""Consensus publishing (T4): agreement is free, and a failed consensus only causes a full retraining later."""

from __future__ import annotations

import math
import threading
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expunge.core.checks import require_count
from expunge.core.errors import GuaranteeError
from expunge.core.guarantee import Guarantee, require_target
from expunge.core.randomness import Randomness
from expunge.privacy.mechanisms.consensus import ConsensusGate, plurality
from expunge.serving.publishing.publisher import BudgetStatus, Exhaustion, Journal
from expunge.theory import ConsensusDesign, default_cache_folder, design_consensus

DEFAULT_TARGET = Guarantee(5.0, 1e-3, 1e-3)
DEFAULT_MAX_PREDICTIONS = 10**6
_DECLINED = -1


class ConsensusPublisher:
    """Release the plurality of the votes, behind a gate that watches whether the shards agreed (T4).

    Every query is answered. After a failed consensus, or after `max_predictions` answers, the generation is dirty, and
    the next update is a full retraining. If `num_shards` is too small for any certified gate, the answers are the same
    and nothing is promised. The threshold is drawn once a generation and is as secret as the shards. So is everything
    that depends on it (T4, "who sees the flag"): whether a consensus failed, what is left of the generation, its
    number. That is why a failed consensus never starts a retraining at once: new answers in the round would show it.

    Parameters
    ----------
    num_shards
        The number of shards k.
    rng
        The secret randomness of the generation, from which the threshold is drawn.
    target
        The (α,β,γ) that the gate is certified for.
    max_predictions
        The number of answers in a generation.
    max_generations
        The number of generations that the certificate covers.
    two_sided
        Whether the gate also abstains (`DECLINED`) on queries whose top vote is small. Only for targets that need no
        noise: abstentions would reveal secret thresholds.
    cache_folder
        Where designs of the gate are kept; the default folder if None.

    Raises
    ------
    ParameterError
        If an option is out of range.
    GuaranteeError
        If a two-sided gate is asked for and cannot be certified.
    """

    on_exhausted: Exhaustion = "retrain_on_update"
    journal: Journal | None = None

    def __init__(
        self,
        *,
        num_shards: int,
        rng: Randomness,
        target: Guarantee = DEFAULT_TARGET,
        max_predictions: int = DEFAULT_MAX_PREDICTIONS,
        max_generations: int = 100,
        two_sided: bool = False,
        cache_folder: Path | None = None,
    ) -> None:
        require_count("max_generations", max_generations)
        require_count("max_predictions", max_predictions)
        self.target = require_target(target)
        self.num_shards = num_shards
        self._max_predictions = max_predictions
        self._design, self._reason = _design(
            num_shards, target, max_predictions, max_generations, two_sided, cache_folder or default_cache_folder()
        )
        self._start(rng)

    def _start(self, rng: Randomness) -> None:
        design = self._design
        self._lock = threading.Lock()
        self._predictions = 0
        self._is_marked = False  # whether the journal knows that the generation is dirty
        self._gate = None
        if design is not None:
            self._gate = ConsensusGate.draw(
                rng,
                survival=design.survival,
                max_queries=self._max_predictions,
                abstain_survival=design.abstain_survival,
            )

    @property
    def design(self) -> ConsensusDesign | None:
        """The design of the certified gate; None if there is none."""
        return self._design

    @property
    def is_repeatable(self) -> bool:
        """Whether there is no gate: with a gate, a repeated query must not be counted twice."""
        return self._gate is None

    @property
    def capacity(self) -> float:
        """l_max; infinite without a gate."""
        return math.inf if self._gate is None else self._max_predictions

    @property
    def shows_budget(self) -> bool:
        """False: it depends on whether a consensus failed."""
        return False

    @property
    def must_retrain(self) -> bool:
        """Whether a consensus failed, or the answers are used up."""
        return self._gate is not None and self._gate.dirty

    @property
    def status(self) -> BudgetStatus:
        """The number of answers, and what is left, for the operator. Agreeing answers cost no privacy budget."""
        left = math.inf if self._gate is None else max(0, self._max_predictions - self._predictions)
        return BudgetStatus(
            spent=0.0,
            left=math.inf if not self.must_retrain else 0.0,
            predictions=self._predictions,
            predictions_left=0 if self.must_retrain else left,
            exhausted=self.must_retrain,
        )

    def release(self, counts: NDArray[np.int64], rng: Randomness) -> NDArray[np.int64]:
        """Release the plurality for every row, after the gate has observed the votes; DECLINED where it abstains."""
        codes = plurality(counts)
        with self._lock:
            if self.journal is not None and len(counts):
                # Stay below the limit, so that a crash alone does not make the generation dirty.
                self.journal.reserve(self._predictions + len(counts), self._max_predictions - 1)
            self._predictions += len(counts)
            if self._gate is not None and len(counts):
                codes = np.where(self._gate.observe(counts, self.num_shards), _DECLINED, codes)
                if self.journal is not None and self._gate.dirty and not self._is_marked:
                    self.journal.mark_dirty()
                    self._is_marked = True  # set only now, so that no later answer leaves before the mark
        return codes

    def guarantee(self, *, num_shards: int, beta: float | None, gamma: float | None, num_generations: int) -> Guarantee:
        """The certified target; or a vacuous guarantee with the reason: there is no gate, or this one does not fit."""
        reason = self._reason
        if self._design is not None:
            made_for = self._design.target
            if made_for.num_shards == num_shards and made_for.generations >= num_generations:
                return self._design.guarantee
            reason = (
                f"the gate was designed for {made_for.num_shards} shards and {made_for.generations} generations, "
                f"the deployment has {num_shards} and {num_generations}"
            )
        return Guarantee(math.inf, self.target.beta, self.target.gamma, note=reason)

    def new_generation(self, rng: Randomness) -> ConsensusPublisher:
        """The same gate with a fresh secret threshold."""
        fresh = ConsensusPublisher.__new__(ConsensusPublisher)
        fresh.__dict__.update(self.__dict__)
        fresh.journal = None
        fresh._start(rng)
        return fresh

    @property
    def secret(self) -> dict[str, Any]:
        """The secret thresholds."""
        gate = self._gate
        return {} if gate is None else {"threshold": gate.threshold, "abstain_threshold": gate.abstain_threshold}

    def restore(self, *, predictions: int, dirty: bool, secret: dict[str, Any]) -> None:
        """Continue with the same thresholds, and with the books as they were kept."""
        self._predictions, self._is_marked = predictions, dirty
        if (self._gate is None) != (not secret):
            raise GuaranteeError("the gate that was kept does not belong to this number of shards and this target")
        if secret:
            self._gate = ConsensusGate(
                threshold=secret["threshold"],
                max_queries=self._max_predictions,
                abstain_threshold=secret["abstain_threshold"],
                queries=predictions,
                dirty=dirty or predictions >= self._max_predictions,
            )

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in ("_lock", "journal")}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        self._lock = threading.Lock()

    def snapshot(self) -> dict[str, Any]:
        """The books, without the secret threshold."""
        return {"predictions": self._predictions, "dirty": self.must_retrain}


def _design(
    num_shards: int, target: Guarantee, max_predictions: int, max_generations: int, two_sided: bool, cache_folder: Path
) -> tuple[ConsensusDesign | None, str]:
    try:
        design = design_consensus(
            num_shards=num_shards,
            max_queries=max_predictions,
            generations=max_generations,
            alpha=target.alpha,
            beta=target.beta,
            gamma=target.gamma,
            two_sided=two_sided,
            cache_folder=cache_folder,
        )
    except GuaranteeError as error:
        if two_sided:  # to abstain without a certificate would gain nothing
            raise
        return None, str(error)
    return design, ""
