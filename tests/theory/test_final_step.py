"""The generalised final step, and the retry attack that shows why gamma is paid once per generation."""

import math

import numpy as np
import pytest

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.privacy.accounting.events import ApproximateDP
from expunge.theory import ExactSystem, adapt, certify, description_length, voting_system
from expunge.theory.final_step import from_expected, over_generations


def test_adapt_adds_and_multiplies():
    result = adapt(Guarantee(0.5, 0.01, 0.02, theorem="A"), Guarantee(1.0, 0.03, 0.04, theorem="B"))
    assert result.alpha == 1.5
    assert result.beta == pytest.approx(0.01 * math.e + 0.03)
    assert result.gamma == pytest.approx(0.06)
    assert result.theorem == "A + B"
    transcript = Guarantee(1.0, 0.03, 0.04, theorem="B", note="why")
    assert adapt(Guarantee(0, 0, 0), transcript) == transcript
    assert adapt(Guarantee(0, 0.1, 0), Guarantee(math.inf, 0, 0)).beta == math.inf


def test_the_form_goes_along():
    transcript = Guarantee(1.0, 0.03, 0.04, form="transcript")
    assert adapt(Guarantee(0, 0, 0), transcript) == transcript
    assert over_generations(transcript, num_generations=3).form == "transcript"
    assert adapt(Guarantee(0, 0, 0), Guarantee(1, 0, 0)).form == "paper"


def test_adapt_is_sound_on_random_posteriors():
    """Whatever prior, posterior and models: the composed inequality holds for every event."""
    rng = np.random.default_rng(7)
    for _ in range(200):
        prior, posterior, scratch = (rng.dirichlet(np.full(5, 0.5)) for _ in range(3))
        alpha, a = rng.uniform(0, 1, 2)
        beta = np.maximum(prior - math.exp(alpha) * scratch, 0).sum()
        b = np.maximum(posterior - math.exp(a) * prior, 0).sum()
        total = adapt(Guarantee(alpha, beta, 0), Guarantee(a, b, 0))
        assert np.maximum(posterior - math.exp(total.alpha) * scratch, 0).sum() <= total.beta + 1e-12


def test_over_generations_pays_gamma_only_where_there_is_one():
    assert over_generations(Guarantee(1, 0.1, 1e-3), num_generations=7).gamma == pytest.approx(7e-3)
    free = Guarantee(1, 0.1, 0.0)
    assert over_generations(free, num_generations=10**6) == free
    assert over_generations(Guarantee(1, 0.1, 0.5), num_generations=10).gamma == 1
    with pytest.raises(ParameterError, match="num_generations"):
        over_generations(free, num_generations=0)


def test_markov():
    root = from_expected(alpha=1.0, expected=1e-6)
    assert root.beta == pytest.approx(1e-3)
    assert root.beta * root.gamma >= 1e-6
    assert from_expected(alpha=1.0, expected=1e-6, beta=0.1).gamma == pytest.approx(1e-5)
    assert from_expected(alpha=1.0, expected=0.0) == Guarantee(1.0, 0.0, 0.0, theorem="Markov")
    with pytest.raises(ParameterError, match="beta"):
        from_expected(alpha=1.0, expected=0.1, beta=0.0)


def play_until_bad(system: ExactSystem, *, alpha: float, beta: float, num_generations: int) -> float:
    """The retry attack, exactly: P(H > β) in the generation that is current at the end.

    The requester looks at each generation's transcript. If it is bad it asks for one update that is not a full
    retraining and stops; otherwise it uses the generation up and forces a fresh one, while there are any left.
    """
    marginal, harm = system.harm(alpha)
    bad = float(marginal[harm > beta + 1e-12].sum())
    reached, failure = 1.0, 0.0
    for _ in range(num_generations):
        failure += reached * bad
        reached *= 1 - bad
    return failure


def leak_everything(num_states: int, probability: float) -> ExactSystem:
    """Publishes r in clear with the given probability and nothing otherwise: (0, q)-DP, no better."""
    channel = np.vstack([np.full(num_states, 1 - probability), probability * np.eye(num_states)])
    return ExactSystem(prior=np.full(num_states, 1 / num_states), channel=channel)


def test_retry_attack_on_a_leaky_release():
    num_generations, leak, beta, gamma = 100, 1e-4, 0.5, 2e-3
    num_states = 30**2  # two shards whose coins take 30 values
    system = leak_everything(num_states, leak)
    events = {ApproximateDP(0.0, leak): 1}
    naive = certify(events, num_shards=2, beta=beta, gamma=gamma)
    assert naive.alpha < math.log(num_states * (1 - beta))  # below what would excuse the leak
    assert not system.violates(naive)  # right for one generation
    failure = play_until_bad(system, alpha=naive.alpha, beta=beta, num_generations=num_generations)
    assert failure > naive.gamma  # and refuted over many
    ours = certify(events, num_shards=2, beta=beta, gamma=num_generations * gamma, num_generations=num_generations)
    assert ours.alpha == pytest.approx(naive.alpha)
    assert not ours.is_vacuous
    assert play_until_bad(system, alpha=ours.alpha, beta=beta, num_generations=num_generations) <= ours.gamma
    # At the naive gamma ours has to claim less: no α that the system refutes.
    strict = certify(events, num_shards=2, beta=beta, gamma=gamma, num_generations=num_generations)
    assert strict.alpha > math.log(num_states * (1 - beta))


def test_retry_attack_on_a_vote():
    """Five fair shards, "1" is answered only to a unanimous vote: one transcript in 32 reveals all of r."""
    system = voting_system(
        shard_priors=[(0.5, 0.5)] * 5,
        votes=[(0, 1)],
        law=lambda counts: (0.0, 1.0) if counts[1] == 5 else (1.0, 0.0),
        num_classes=2,
        num_queries=1,
        strategy=lambda transcript: 0,
    )
    naive = description_length(log_num_transcripts=math.log(2), gamma=1 / 15)
    assert not system.violates(naive)
    failure = play_until_bad(system, alpha=naive.alpha, beta=naive.beta, num_generations=3)
    assert failure == pytest.approx(1 - (31 / 32) ** 3)
    assert failure > naive.gamma
    ours = over_generations(naive, num_generations=3)
    assert failure <= ours.gamma
    assert any("3 generations" in sentence for sentence in ours.assumptions)
