"""The best guarantee for a transcript: every theorem that applies, at the γ that each generation may spend."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping

from expunge.core.checks import require_count, require_probability
from expunge.core.guarantee import BASE_ASSUMPTIONS, Guarantee
from expunge.privacy.accounting.events import Event
from expunge.theory.approximate import t2_approximate, t2_gaussian, t2_mixed, t2_zcdp
from expunge.theory.composition import PrivacyTotals
from expunge.theory.concentrated import description_length, mutual_information, t3
from expunge.theory.final_step import over_generations
from expunge.theory.pure import t1


def certify(
    events: Mapping[Event, int],
    *,
    num_shards: int,
    beta: float,
    gamma: float,
    num_generations: int = 1,
    num_outcomes: int | None = None,
) -> Guarantee:
    """The (α,β,γ) with the smallest α that a theorem (T1, T2, T3 or a companion) proves for a deployment.

    Parameters
    ----------
    events
        What one generation may publish, as a mapping from event to count. The certificate holds for every generation
        that publishes at most that.
    num_shards
        k, the number of shards. Their randomness must be independent.
    beta, gamma
        β and γ of the guarantee, over all generations. A theorem that fails with probability g per generation is used
        at g = γ/G.
    num_generations
        G, the number of generations.
    num_outcomes
        If given, promises that every event counted releases one of at most that many values, and adds the
        description-length bound.

    Returns
    -------
    Guarantee
        The best of `all_bounds` whose β is at most `beta`. If no theorem gives a bound, α is infinite and the guarantee
        says why.

    Raises
    ------
    ParameterError
        If an option is out of range.
    UnknownEventError
        If no guarantee is known for an event.

    Examples
    --------
    >>> from expunge.privacy.accounting import BoundedRange
    >>> print(certify({BoundedRange(0.01): 6}, num_shards=100, beta=1e-3, gamma=1e-3))
    (0.8507, 0.001, 0)-unlearning by T1 (pure DP)
    """
    bounds = all_bounds(
        events,
        num_shards=num_shards,
        beta=beta,
        gamma=gamma,
        num_generations=num_generations,
        num_outcomes=num_outcomes,
    )
    # A bound that needs more β than asked for (mutual information) does not answer the question.
    answers = [bound for bound in bounds if bound.beta <= beta]
    best = min(answers, key=lambda bound: (bound.alpha, bound.gamma, bound.beta))
    if math.isinf(best.alpha):
        return _nothing(PrivacyTotals.of(events), beta, gamma)
    return best


def all_bounds(
    events: Mapping[Event, int],
    *,
    num_shards: int,
    beta: float,
    gamma: float,
    num_generations: int = 1,
    num_outcomes: int | None = None,
) -> list[Guarantee]:
    """What every theorem that applies to `events` gives, for display; each bound is valid.

    Parameters
    ----------
    events, num_shards, beta, gamma, num_generations, num_outcomes
        As for `certify`.

    Returns
    -------
    list of Guarantee
        One guarantee for each theorem, over all generations. Mutual information may need a larger β than `beta`.

    Raises
    ------
    ParameterError
        If an option is out of range.
    UnknownEventError
        If no guarantee is known for an event.

    Examples
    --------
    >>> from expunge.privacy.accounting import BoundedRange
    >>> bounds = all_bounds({BoundedRange(0.01): 6}, num_shards=100, beta=1e-3, gamma=1e-3)
    >>> [bound.theorem for bound in bounds]
    ['T1 (pure DP)', 'T2 (zCDP)', 'T3 (zCDP, few shards)', 'mutual information']
    """
    require_count("num_shards", num_shards, least=1)
    require_count("num_generations", num_generations, least=1)
    require_probability("beta", beta)
    require_probability("gamma", gamma)
    if num_outcomes is not None:
        require_count("num_outcomes", num_outcomes, least=1)
    cost = PrivacyTotals.of(events)
    per_generation = gamma / num_generations
    # γ/G may round up: the union over generations must stay within what was asked for.
    while per_generation * num_generations > gamma:
        per_generation = math.nextafter(per_generation, 0.0)
    found = [t1(num_shards=num_shards, epsilon=cost.epsilon, beta=beta)]
    if per_generation > 0:
        found += _with_failure(cost, num_shards, beta, per_generation)
    if per_generation > 0 and num_outcomes is not None:
        log_transcripts = cost.num_events * math.log(num_outcomes)
        found.append(description_length(log_num_transcripts=log_transcripts, gamma=per_generation))
    return [over_generations(bound, num_generations=num_generations) for bound in found]


def _with_failure(cost: PrivacyTotals, num_shards: int, beta: float, gamma: float) -> Iterator[Guarantee]:
    """The bounds that may fail with probability gamma in a generation."""
    if not cost.is_private:
        return
    k = num_shards
    if cost.delta > 0:
        yield (
            t2_approximate(num_shards=k, epsilon=cost.approximate_epsilon, delta=cost.delta, beta=beta, gamma=gamma)
            if cost.rho == 0
            else t2_mixed(
                num_shards=k, rho=cost.rho, epsilon=cost.approximate_epsilon, delta=cost.delta, beta=beta, gamma=gamma
            )
        )
        rho = cost.rho + cost.approximate_rho
        yield t2_mixed(num_shards=k, rho=rho, delta=cost.delta, beta=beta, gamma=gamma)
        return
    yield t2_zcdp(num_shards=k, rho=cost.rho, beta=beta, gamma=gamma)
    if cost.mu is not None:
        yield t2_gaussian(num_shards=k, mu=cost.mu, beta=beta, gamma=gamma)
    yield t3(num_shards=k, rho=cost.rho, beta=beta, gamma=gamma)
    yield mutual_information(num_shards=k, rho=cost.rho, gamma=gamma)


def _nothing(cost: PrivacyTotals, beta: float, gamma: float) -> Guarantee:
    note = "something was published without privacy: no bound on what it reveals" if not cost.is_private else ""
    return Guarantee(math.inf, beta, gamma, assumptions=BASE_ASSUMPTIONS, note=note)
