"""The (α,β,γ)-unlearning guarantee (Definition 2.3), which every theorem returns, and the theorems' assumptions.

A guarantee says: at every round, with probability at least 1−γ over the update sequence, every event E has
P(updated models ∈ E | updates) ≤ e^α · P(models retrained from scratch ∈ E) + β.
That is the paper's form. The transcript form conditions on everything that the requester saw, and is another claim.
The assumptions are plain sentences that must hold in a deployment for the theorems to apply.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from expunge.core.checks import require_choice, require_number
from expunge.core.errors import ParameterError

#: A guarantee that lets an event of this probability under full retraining become certain is called vacuous.
SMALLEST_EVENT: Final = 1e-6

Parameter = float | int | str | None

Form = Literal["paper", "transcript"]


@dataclass(frozen=True)
class Guarantee:
    """An (α,β,γ)-unlearning guarantee and its origin.

    Equality compares all fields; `covers` compares the claims alone.

    Parameters
    ----------
    alpha, beta, gamma
        The numbers of the claim, each >= 0; infinity is allowed.
    theorem
        The name of the bound.
    parameters
        The numbers from which the bound was computed.
    assumptions
        Plain sentences that must hold in the deployment.
    note
        Why a bound could not be given. A note makes the guarantee vacuous.
    form
        "paper" (Definition 2.3), or "transcript" if the numbers hold given everything that the requester saw. Neither
        form implies the other with the same numbers.

    Raises
    ------
    ParameterError
        If a number is negative or NaN, or the form is unknown.

    Examples
    --------
    >>> strong, weak = Guarantee(0.5, 1e-3, 0), Guarantee(1, 1e-2, 0)
    >>> strong.covers(weak), weak.covers(strong)
    (True, False)
    >>> print(Guarantee(14, 0, 0, theorem="T1"))
    (14, 0, 0)-unlearning by T1; vacuous: alpha = 14 lets an event with one chance in a million become certain
    """

    alpha: float
    beta: float
    gamma: float
    theorem: str = field(default="", kw_only=True)
    parameters: Mapping[str, Parameter] = field(default_factory=dict, kw_only=True, hash=False)
    assumptions: tuple[str, ...] = field(default=(), kw_only=True)
    note: str = field(default="", kw_only=True)
    form: Form = field(default="paper", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma"):
            value = require_number(f"{name} of a guarantee", getattr(self, name), least=0, infinite=True)
            object.__setattr__(self, name, value)
        require_choice("form of a guarantee", self.form, get_args(Form))
        plain = {name: _plain(value) for name, value in self.parameters.items()}
        object.__setattr__(self, "parameters", MappingProxyType(plain))
        object.__setattr__(self, "assumptions", tuple(self.assumptions))

    @property
    def reason(self) -> str:
        """Why the guarantee is vacuous, in one sentence; empty when it is not.

        The rule: γ ≥ 1, or e^α · 10⁻⁶ + β ≥ 1. In words, a guarantee says nothing useful if it may always fail, or if
        it lets an event with one chance in a million after honest retraining become certain.
        """
        return explain_vacuity(self.alpha, self.beta, self.gamma, note=self.note)

    @property
    def is_vacuous(self) -> bool:
        """Whether the guarantee is too weak to mean anything; `reason` says why."""
        return bool(self.reason)

    def covers(self, target: Guarantee) -> bool:
        """Tell whether this guarantee implies `target` for every system.

        The answer is exact within one form. If this α is at most the target's, β and γ must be no larger. A larger α
        also suffices if the target's β makes up for it, because probabilities stop at one: then
        β' ≥ 1 − (1−β)e^{α'−α} is needed. Across forms, only a target that claims nothing is covered.
        """
        if target.gamma >= 1 or target.beta >= 1:
            return True
        if self.form != target.form or self.note or self.gamma > target.gamma or self.beta >= 1:
            return False
        if self.alpha <= target.alpha:
            return self.beta <= target.beta
        return target.beta >= 1 - (1 - self.beta) * math.exp(target.alpha - self.alpha)

    def __str__(self) -> str:
        claim = f"({_short(self.alpha)}, {_short(self.beta)}, {_short(self.gamma)})-unlearning"
        claim += " in transcript form" if self.form == "transcript" else ""
        source = f" by {self.theorem}" if self.theorem else ""
        return f"{claim}{source}; vacuous: {self.reason}" if self.is_vacuous else f"{claim}{source}"

    def to_dict(self) -> dict[str, Any]:
        """Return a mapping for JSON. Infinite numbers become None; the form is left out if it is the paper's."""
        return {
            "alpha": _finite(self.alpha),
            "beta": _finite(self.beta),
            "gamma": _finite(self.gamma),
            "theorem": self.theorem,
            "parameters": {
                name: _finite(value) if isinstance(value, float) else value for name, value in self.parameters.items()
            },
            "assumptions": list(self.assumptions),
            "is_vacuous": self.is_vacuous,
            "reason": self.reason,
            **({} if self.form == "paper" else {"form": self.form}),
        }

    def __reduce__(self) -> tuple[Any, ...]:
        # A mapping proxy cannot be pickled; rebuild from a plain dictionary.
        claim = (self.alpha, self.beta, self.gamma)
        return _rebuild, (*claim, self.theorem, dict(self.parameters), self.assumptions, self.note, self.form)


def explain_vacuity(alpha: float, beta: float, gamma: float, *, note: str = "") -> str:
    """Say why a guarantee with these numbers is vacuous.

    The rule is γ ≥ 1, or e^α · 10⁻⁶ + β ≥ 1.

    Parameters
    ----------
    alpha, beta, gamma
        The numbers of the guarantee.
    note
        Why a bound could not be given. A note makes the guarantee vacuous.

    Returns
    -------
    str
        One sentence, or empty text if the guarantee is not vacuous.

    Examples
    --------
    >>> explain_vacuity(1.0, 0.001, 0.001)
    ''
    >>> explain_vacuity(1.0, 0.001, 1.0)
    'gamma = 1 allows the claim to fail always'
    """
    if note:
        return note
    if gamma >= 1:
        return f"gamma = {gamma:g} allows the claim to fail always"
    if beta >= 1:
        return f"beta = {beta:g} allows any event to become certain"
    if math.isinf(alpha):
        return "alpha is infinite: no bound is known for what was published"
    if alpha + math.log(SMALLEST_EVENT) >= math.log1p(-beta):
        return f"alpha = {alpha:.4g} lets an event with one chance in a million become certain"
    return ""


def _rebuild(
    alpha: float,
    beta: float,
    gamma: float,
    theorem: str,
    parameters: Mapping[str, Parameter],
    assumptions: tuple[str, ...],
    note: str,
    form: Form = "paper",
) -> Guarantee:
    return Guarantee(
        alpha, beta, gamma, theorem=theorem, parameters=parameters, assumptions=assumptions, note=note, form=form
    )


def _plain(value: Any) -> Parameter:
    """Turn NumPy numbers into Python's own, which JSON can hold."""
    plain: Parameter = value.item() if hasattr(value, "item") else value
    return plain


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _short(value: float) -> str:
    return "∞" if math.isinf(value) else f"{value:.4g}"


def require_target(target: object) -> Guarantee:
    """Check a target for a deployment: a guarantee in the paper's form, which is the form that deployments give.

    Parameters
    ----------
    target
        What the caller gave.

    Returns
    -------
    Guarantee
        The target.

    Raises
    ------
    ParameterError
        If it is not a guarantee, or is in the transcript form.
    """
    if not isinstance(target, Guarantee):
        raise ParameterError(f"target must be a Guarantee(alpha, beta, gamma), got {target!r}")
    if target.form != "paper":
        raise ParameterError(f"target must be a guarantee in the paper's form, got one in {target.form} form")
    return target


#: Needed by every theorem.
BASE_ASSUMPTIONS: Final = (
    "Everything that leaves the system and depends on the secret randomness is counted in the transcript.",
    "The coins of a training follow from its data and a secret key by a pseudo-random function, taken for a random one;"
    " a full retraining draws a new key.",
    "The unlearning algorithm is exact against requests chosen in advance (Lemma 4.1).",
    "Requests depend on what is published only. If the operator deletes records or tunes after reading what is inside, "
    "the exact promise alone covers it.",
)

#: Needed by the theorems that look at shards one by one.
PRODUCT_ASSUMPTIONS: Final = (
    "The shards are drawn and trained with independent randomness (a disjoint partition is not covered).",
    *BASE_ASSUMPTIONS,
)


def generations_assumption(num_generations: int) -> str:
    """Return the assumption that a guarantee with γ > 0 adds."""
    noun = "generation (full training) is" if num_generations == 1 else "generations (full trainings) are"
    return (
        f"At most {num_generations} {noun} updated without retraining everything, and gamma is paid for each; "
        "after them every update is a full retraining."
    )
