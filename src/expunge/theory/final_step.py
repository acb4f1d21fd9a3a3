"""The final step (Theorem 3.1, generalised): from a bound on what the transcript reveals to adaptive unlearning.

A transcript bound (a, b, g) says: outside an event of probability g, H(m) = sup_F [P(F|m) − e^a P(F)] ≤ b.
"""

from __future__ import annotations

import math

from expunge.core.checks import require_count, require_probability
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee, generations_assumption


def adapt(nonadaptive: Guarantee, transcript: Guarantee) -> Guarantee:
    """Non-adaptive (α,β,γ) and a transcript bound (a,b,g) give adaptive (α+a, βe^a+b, γ+g).

    `transcript` must be one of the theorems of this package. "H(m) ≤ b but for m of probability g" alone is not enough
    when only the updates u are conditioned on: H(u) may average a bad m into every u. The theorems here hold in that
    form too, because their failure is bounded jointly and Markov's inequality is applied after averaging. A gate that
    was designed for the transcript form gives that form.
    """
    growth = math.exp(transcript.alpha) if transcript.alpha < 700 else math.inf
    beta = nonadaptive.beta * growth if nonadaptive.beta > 0 else 0.0
    return Guarantee(
        nonadaptive.alpha + transcript.alpha,
        beta + transcript.beta,
        nonadaptive.gamma + transcript.gamma,
        theorem=_joined(nonadaptive.theorem, transcript.theorem),
        parameters={**nonadaptive.parameters, **transcript.parameters},
        assumptions=tuple(dict.fromkeys((*nonadaptive.assumptions, *transcript.assumptions))),
        note=transcript.note or nonadaptive.note,
        form="transcript" if "transcript" in (nonadaptive.form, transcript.form) else "paper",
    )


def over_generations(per_generation: Guarantee, *, num_generations: int) -> Guarantee:
    """(a, b, g) in each of at most G generations gives (a, b, G·g) over all of them.

    A requester can go through generation after generation until a bad event happens and then stop, so g is paid once
    per generation (the paper's Theorem 4.3 overlooks this). With g = 0 there is nothing to pay.
    """
    require_count("num_generations", num_generations, least=1)
    if per_generation.gamma == 0:
        return per_generation
    return Guarantee(
        per_generation.alpha,
        per_generation.beta,
        min(1.0, num_generations * per_generation.gamma),
        theorem=per_generation.theorem,
        parameters={
            **per_generation.parameters,
            "gamma_per_generation": per_generation.gamma,
            "num_generations": num_generations,
        },
        assumptions=(*per_generation.assumptions, generations_assumption(num_generations)),
        note=per_generation.note,
        form=per_generation.form,
    )


def from_expected(*, alpha: float, expected: float, beta: float | None = None) -> Guarantee:
    """If only E_m H(m) ≤ `expected` is known at a = `alpha`, Markov gives (α, β, expected/β) for any β.

    The paper takes β = γ = √expected, which is the default here.
    """
    require_probability("expected", expected)
    chosen = math.sqrt(expected) if beta is None else beta
    if beta is not None:
        require_probability("beta", beta)
    if chosen == 0:
        if expected > 0:
            raise ParameterError("beta must be > 0 when the expected excess is > 0, got 0")
        return Guarantee(alpha, 0.0, 0.0, theorem="Markov")
    # Never below the exact ratio, so that beta * gamma >= expected holds in floating point too.
    gamma = min(1.0, math.nextafter(expected / chosen, math.inf)) if expected > 0 else 0.0
    return Guarantee(alpha, chosen, gamma, theorem="Markov", parameters={"expected": expected})


def _joined(first: str, second: str) -> str:
    return " + ".join(part for part in (first, second) if part)
