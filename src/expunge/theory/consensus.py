"""Designs of the consensus gate: survival tables that guarantee (α,β,γ)-unlearning (T4, Theorems B to E and 0).

Answers on which nearly all shards agree are free; a failed consensus forces a full retraining at the next update. A
design gives the secret law of the allowed number of dissenters T (and, two-sided, of the largest top vote U on which
the gate abstains). Both are drawn once per generation, so that the whole protocol is (α,β,γ)-unlearning over at most G
generations of at most l_max queries.

Every design carries the certificate that `consensus_certificate` gave it, which shares no code with the designer.
Where nothing non-vacuous exists, GuaranteeError says so in one line.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from expunge.core.errors import GuaranteeError, InputError
from expunge.core.guarantee import PRODUCT_ASSUMPTIONS, Form, Guarantee, generations_assumption
from expunge.theory import consensus_design as cache
from expunge.theory.consensus_certificate import ConsensusCertificate, certify_consensus, require_certificate
from expunge.theory.consensus_design import ConsensusTarget, Floats, design_tables

#: The assumption of the paper's form about the flag "a consensus failed", which depends on the secret threshold too.
FLAG_IS_SECRET: Final = (
    "Whether a consensus has failed, and the number of the generation, are shown to the operator only."
)
#: The assumption of the transcript form about the flag.
FLAG_IS_SHOWN: Final = (
    "Requesters are shown at once that a generation is used up: the guarantee is about what holds given everything "
    "that they saw, and this is part of it."
)


@dataclass(frozen=True, slots=True, eq=False)
class ConsensusDesign:
    """A certified consensus gate (T4). `design_consensus` makes it.

    The tables are read-only. Equality is identity; compare the targets, which determine everything.

    Parameters
    ----------
    target
        What the gate guarantees, and for how long.
    survival
        survival[d] = P(T ≥ d), d = 0..T_max.
    abstain_survival
        abstain_survival[a] = P(U ≥ a), a = 0..U_max, or None when one-sided.
    certificate
        What the independent certificate says of the tables.
    """

    target: ConsensusTarget
    survival: Floats
    abstain_survival: Floats | None
    certificate: ConsensusCertificate

    @property
    def max_dissent(self) -> int:
        """T_max: more dissenters than this always make the generation dirty."""
        return self.survival.size - 1

    @property
    def max_abstention(self) -> int | None:
        """U_max: the gate never abstains when the top class has more votes than this; None when one-sided."""
        return None if self.abstain_survival is None else self.abstain_survival.size - 1

    @property
    def kappa(self) -> float:
        """The chance, per generation, of being clean off the main path."""
        return self.certificate.kappa

    @property
    def is_noiseless(self) -> bool:
        """Whether the thresholds are constants (Theorem 0)."""
        return bool(self.survival[-1] == 1 and (self.abstain_survival is None or self.abstain_survival[-1] == 1))

    @property
    def sure_dissent(self) -> int:
        """The largest number of dissenters with which a query is clean for every T."""
        return int(np.count_nonzero(self.survival == 1)) - 1

    @property
    def sure_release_share(self) -> float:
        """The lowest share of the shards behind the top answer that is always released clean."""
        return 1 - self.sure_dissent / self.target.num_shards

    @property
    def sure_abstain_share(self) -> float | None:
        """The highest top share on which the gate always abstains clean; None when one-sided or there is none."""
        if self.abstain_survival is None or self.abstain_survival[0] < 1:
            return None
        return (int(np.count_nonzero(self.abstain_survival == 1)) - 1) / self.target.num_shards

    @property
    def guarantee(self) -> Guarantee:
        """The target as a guarantee in its own form, with its assumptions."""
        target = self.target
        theorem = "Theorem E" if target.two_sided else "Theorem 0" if self.is_noiseless else "Theorem D"
        return Guarantee(
            target.alpha,
            target.beta,
            target.gamma,
            theorem=f"T4, {theorem} ({target.form} form)",
            parameters={
                "num_shards": target.num_shards,
                "max_queries": target.max_queries,
                "generations": target.generations,
                "max_dissent": self.max_dissent,
                "sure_release_share": self.sure_release_share,
                "kappa": self.kappa,
                "certified_gamma": self.certificate.gamma,
            },
            assumptions=(
                *PRODUCT_ASSUMPTIONS,
                generations_assumption(target.generations),
                f"After {target.max_queries} queries, or one failed consensus, the next update is a full retraining.",
                FLAG_IS_SECRET if target.form == "paper" else FLAG_IS_SHOWN,
            ),
            form=target.form,
        )


def design_consensus(
    *,
    num_shards: int,
    max_queries: int,
    generations: int,
    alpha: float,
    beta: float,
    gamma: float,
    form: Form = "paper",
    two_sided: bool = False,
    design_point: float = 0.5,
    cache_folder: Path | None = None,
) -> ConsensusDesign:
    """Design the certified gate that releases the lowest shares for sure (T4, Theorems B to E and 0).

    Parameters
    ----------
    num_shards
        k, the number of shards. Their randomness must be independent.
    max_queries
        l_max, the number of queries in a generation.
    generations
        G, the number of generations.
    alpha, beta, gamma
        The guarantee, over all generations.
    form
        "paper" conditions on the updates only, as the paper's definition does; "transcript" conditions on everything
        that the requester saw.
    two_sided
        Whether the gate also abstains on low agreement (Theorem E). In the paper's form it may only do so if the
        target needs no noise: abstentions would reveal secret thresholds, which are no part of the models.
    design_point
        q̄ ≥ ½, the vote share that separates main-path answers from main-path abstentions. A larger one abstains more
        and releases less. It only matters when `two_sided`.
    cache_folder
        If given, the tables are read from there if they are there, and certified again; otherwise they are made and
        kept.

    Returns
    -------
    ConsensusDesign
        The gate, with its certificate.

    Raises
    ------
    ParameterError
        If an option is out of range.
    GuaranteeError
        If no design releases even unanimous answers for sure, or a two-sided gate would need noise in the paper's
        form. The message is one line.

    Examples
    --------
    >>> design = design_consensus(num_shards=300, max_queries=10_000, generations=1, alpha=5, beta=0.01, gamma=0.01)
    >>> print(design.guarantee)
    (5, 0.01, 0.01)-unlearning by T4, Theorem D (paper form)
    >>> round(design.sure_release_share, 4)
    0.8367
    """
    target = ConsensusTarget(
        num_shards,
        max_queries,
        generations,
        float(alpha),
        float(beta),
        float(gamma),
        form,
        two_sided,
        float(design_point) if two_sided else 0.5,
    )
    kept = None if cache_folder is None else cache.load(cache_folder, target)
    if kept is not None:
        try:
            return _certified(target, *kept)
        except (GuaranteeError, InputError):
            # A kept table that does not certify is not used: make it afresh.
            pass
    design = _design(target)
    if cache_folder is not None:
        cache.save(cache_folder, target, design.survival, design.abstain_survival)
    return design


def certify_design(design: ConsensusDesign) -> ConsensusCertificate:
    """Certify the tables of a design again, from their numbers alone (Theorem D; two-sided, Theorem E).

    Parameters
    ----------
    design
        The design to check.

    Returns
    -------
    ConsensusCertificate
        What the tables guarantee.

    Raises
    ------
    GuaranteeError
        If the tables miss the target.
    """
    return _certify(design.target, design.survival, design.abstain_survival)


def _design(target: ConsensusTarget) -> ConsensusDesign:
    def certifies(survival: Floats, abstain: Floats | None) -> bool:
        try:
            _certify(target, survival, abstain)
        except GuaranteeError:
            return False
        return True

    return _certified(target, *design_tables(target, certifies))


def _certified(target: ConsensusTarget, survival: Floats, abstain: Floats | None) -> ConsensusDesign:
    certificate = _certify(target, survival, abstain)
    if survival[0] < 1:
        raise GuaranteeError("the table does not release unanimous votes for sure")
    for table in (survival, abstain):
        if table is not None:
            table.flags.writeable = False
    return ConsensusDesign(target, survival, abstain, certificate)


def _certify(target: ConsensusTarget, survival: Floats, abstain: Floats | None) -> ConsensusCertificate:
    if target.two_sided != (abstain is not None):
        raise GuaranteeError("the tables do not have the sides that the target asks for")
    certificate = certify_consensus(
        survival,
        num_shards=target.num_shards,
        max_queries=target.max_queries,
        generations=target.generations,
        alpha=target.alpha,
        beta=target.beta,
        form=target.form,
        abstain_survival=abstain,
        design_point=target.design_point,
    )
    return require_certificate(certificate, target.gamma)
