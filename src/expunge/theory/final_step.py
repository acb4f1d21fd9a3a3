"""The final step (Theorem 3.1, generalised): from a bound on what the transcript reveals to adaptive unlearning.

A transcript bound (a, b, g) says: outside an event of probability g, H(m) = sup_F [P(F|m) − e^a P(F)] ≤ b.
"""

from __future__ import annotations

import math

from expunge.core.checks import require_count, require_probability
from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee, generations_assumption


def adapt(nonadaptive: Guarantee, transcript: Guarantee) -> Guarantee:
    """Combine a non-adaptive (α,β,γ) and a transcript bound (a,b,g) into adaptive (α+a, βe^a+b, γ+g) (Theorem 3.1).

    "H(m) ≤ b but for m of probability g" alone is not enough when only the updates u are conditioned on: H(u) may
    average a bad m into every u. The theorems here hold in that form too, because their failure is bounded jointly and
    Markov's inequality is applied after averaging. A gate that was designed for the transcript form gives that form.

    Parameters
    ----------
    nonadaptive
        What the unlearning algorithm guarantees against requests chosen in advance.
    transcript
        What the transcript reveals. It must come from one of the theorems of this package.

    Returns
    -------
    Guarantee
        The adaptive guarantee, with the assumptions of both. Its form is "transcript" if either has that form.

    Examples
    --------
    >>> exact = Guarantee(0.0, 0.0, 0.0, theorem="Lemma 4.1")
    >>> print(adapt(exact, Guarantee(0.5, 1e-3, 1e-4, theorem="T2 (zCDP)")))
    (0.5, 0.001, 0.0001)-unlearning by Lemma 4.1 + T2 (zCDP)
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
    """Pay γ once per generation: (a, b, g) in each of at most G generations gives (a, b, G·g) over all of them.

    A requester can go through generation after generation until a bad event happens and then stop, so g is paid once
    per generation. (The paper's Theorem 4.3 overlooks this.) With g = 0 there is nothing to pay.

    Parameters
    ----------
    per_generation
        The guarantee for one generation.
    num_generations
        G, the number of generations.

    Returns
    -------
    Guarantee
        The guarantee over all generations; γ is at most 1.

    Raises
    ------
    ParameterError
        If `num_generations` is not an integer >= 1.

    Examples
    --------
    >>> print(over_generations(Guarantee(1.0, 1e-3, 1e-5), num_generations=100))
    (1, 0.001, 0.001)-unlearning
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
    """Markov: if only E_m H(m) ≤ `expected` is known at a = `alpha`, then (α, β, expected/β) holds for any β.

    Parameters
    ----------
    alpha
        The a at which H is measured.
    expected
        The bound on the mean of H(m).
    beta
        β of the guarantee. The paper takes β = γ = √expected, which is the default here.

    Returns
    -------
    Guarantee
        (α, β, γ) with β·γ >= `expected`, in floating point too; γ is at most 1.

    Raises
    ------
    ParameterError
        If a probability is out of range, or β = 0 < `expected`.

    Examples
    --------
    >>> print(from_expected(alpha=1.0, expected=1e-6))
    (1, 0.001, 0.001)-unlearning by Markov
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
