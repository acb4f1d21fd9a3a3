from __future__ import annotations

import math
from dataclasses import fields, replace

import pytest

from expunge.evidence import CountFacts, ExactFacts, GuaranteeFacts, History, KeyDraw, RecomputationFacts
from expunge.evidence.statements import make_statements

NOTHING = GuaranteeFacts(math.inf, 0, 0, note="the shards are a partition")
KEY = KeyDraw("2026-11-01T08:00:00Z", "ab" * 32, None)
FOUND = RecomputationFacts("2026-11-16T04:00:00Z", 1, 12, 20, None, True, "auditor's seed", None)


@pytest.fixture
def made(office):
    def make(**changes):
        facts = {
            "deployment": office.deployment,
            "publication": office.publication,
            "exact": office.exact,
            "guarantee": office.guarantee,
            "history": History(KEY, FOUND),
            "request": office.request,
            "counts": None,
            **changes,
        }
        first = [facts.pop(name) for name in ("deployment", "publication", "exact", "guarantee")]
        return make_statements(*first, **facts)

    return make


def _pending(request):
    return replace(request, state="pending", applied_by=None, generation=None, round=None)


def _words(found):
    return {each.name: " ".join(getattr(found, each.name)) for each in fields(found)}


def test_an_ordinary_certificate_leads_with_the_exact_promise(made, office):
    deployment = replace(office.deployment, promise="exact", sampler_is_independent=False)
    found = made(deployment=deployment, guarantee=NOTHING, exact=replace(office.exact, num_shards=10))
    assert found.headline == (
        "The request was applied by 2026-11-16T02:00:00Z. "
        "The models in service are those that the same recipe gives on the records that are left."
    )
    for words in (
        "bit for bit",
        "if the records that were deleted had never been there",
        "however much was published",
        "LogisticRegression trains 10 models, each on a shard of the records. Every record is in one shard",
        "all records of a person are in the same one",
        "The key in force is that of 2026-11-01T08:00:00Z: the deployment was created with it",
        "ab" * 32,
    ):
        assert words in " ".join(found.exact), words
    for words in ("its secret key included", "not accuracy", "tuned settings", "is not recorded"):
        assert words in " ".join(found.exact_limits)
    assert found.alpha_beta_gamma == ("(α,β,γ): not claimed, because the shards are a partition.",)
    assert found.alpha_beta_gamma_limits == ()


def test_no_sentence_speaks_of_both_promises(made, office):
    """The exact promise and the (α,β,γ) one compare with different things."""
    changes = [
        {},
        {"guarantee": NOTHING},
        {"guarantee": GuaranteeFacts(0, 0, 0)},
        {"exact": replace(office.exact, note="the models are from elsewhere")},
        {"history": History(KEY, FOUND, replace(FOUND, agrees=False))},
        {"request": _pending(office.request)},
    ]
    for change in changes:
        for name, text in _words(made(**change)).items():
            for sentence in text.split(". "):
                of_exact = any(word in sentence for word in ("recipe", "bit for bit", "exact:"))
                of_numbers = any(word in sentence for word in ("α", "fresh randomness", "likely"))
                assert not (of_exact and of_numbers), (name, sentence)
                assert "uarantee" not in sentence


def test_a_promise_that_was_asked_for_and_is_not_claimed_is_in_the_headline(made, office):
    assert made(guarantee=NOTHING).headline.endswith("(α,β,γ): not claimed, because the shards are a partition.")
    for promise in ("exact", "unguarded"):
        deployment = replace(office.deployment, promise=promise)
        assert "(α,β,γ)" not in made(guarantee=NOTHING, deployment=deployment).headline
    assert "(α,β,γ)" not in made().headline


def test_where_the_exact_promise_is_not_claimed_it_says_why(made, office):
    found = made(exact=replace(office.exact, note="the models were trained elsewhere."))
    assert found.exact == ("exact: not claimed, because the models were trained elsewhere.",)
    assert found.exact_limits == ()
    assert "The exact promise is not claimed, because the models were trained elsewhere." in found.headline
    assert "bit for bit, those" not in " ".join(_words(found).values())
    assert "at most 2.72 times" in " ".join(found.alpha_beta_gamma)  # by itself


@pytest.mark.parametrize(
    ("reason", "words"),
    [
        ("by hand", "it was renewed by hand, so the operator chose the moment"),
        ("on a clock", "it was renewed on a clock"),
        ("generation used up", "the generation before it was used up"),
    ],
)
def test_why_the_key_was_renewed_is_told(made, reason, words):
    found = made(history=History(KeyDraw("2026-11-02T08:00:00Z", None, reason)))
    assert any(
        sentence.startswith("The key in force is that of 2026-11-02T08:00:00Z: ") and words in sentence
        for sentence in found.exact
    )
    assert "holds no commitment to it, because it was made from a fixed seed" in " ".join(found.exact)
    assert "is not shown in this certificate" in " ".join(made(history=History()).exact)


def test_a_commitment_made_for_a_round_does_not_say_when_the_key_was_drawn(made):
    at = "2026-11-02T08:00:00Z"
    said = " ".join(made(history=History(KeyDraw(at, "ab" * 32, None, is_of_round=True))).exact)
    assert f"a commitment to the key in force in the round of {at}: {'ab' * 32}. It does not say when" in said
    assert "created with it" not in said
    said = " ".join(made(history=History(KeyDraw(at, None, None, is_of_round=True))).exact)
    assert "no commitment to the key in force" in said


def test_several_environments_mean_up_to_rounding(made):
    exact = ExactFacts(learner="GaussianNB", num_shards=10, environments=(("numpy 1", 7), ("numpy 2", 3)))
    found = made(exact=exact)
    assert found.headline.endswith("on the records that are left, up to rounding.")
    text = " ".join(found.exact)
    assert "bit for bit" not in text
    assert "in 2 environments: 7 models in numpy 1; 3 models in numpy 2. The next update trains all" in text
    assert "stay in service together" in " ".join(made(exact=replace(exact, numerics="lenient")).exact)
    one = made(exact=replace(exact, environments=(("numpy 1", 10),)))
    assert "bit for bit" in one.exact[0]
    assert "All models in service were trained in one environment: numpy 1." in one.exact
    assert "is not recorded" not in " ".join(one.exact_limits)


def test_a_recomputation_is_told_with_what_it_shows(made, office):
    text = " ".join(made().recomputed)
    for words in (
        "in round 12 of generation 1, 20 of 1,000 models in service were compared, bit for bit",
        "All agreed.",
        "by a seed that was given, which counts if an auditor gave it",
        "1 shard of 1,000 with a probability of at least 2%",
        "100 shards of 1,000 with a probability of at least 88%",
        "does not show that these models are what answers people",
    ):
        assert words in text, words
    assert "now in round" not in text
    later = made(publication=replace(office.publication, round=15))
    assert "now in round 15 of generation 1. Models that were trained since then" in " ".join(later.recomputed)
    none = made(history=History(KEY))
    assert none.recomputed == ("No recomputation of the models is shown in this certificate.",)
    drawn = made(history=History(KEY, replace(FOUND, chosen_by="software")))
    assert "an operator could have repeated the draw" in " ".join(drawn.recomputed)
    point = made(history=History(KEY, replace(FOUND, chosen_by="checkpoint", checkpoint="cd" * 32)))
    assert f"a checkpoint with the SHA-256 {'cd' * 32}" in " ".join(point.recomputed)
    every = " ".join(made(history=History(KEY, replace(FOUND, num_checked=1000))).recomputed)
    assert "all 1,000 models in service were compared" in every
    assert "One stale model would have been found." in every
    assert "drawn" not in every
    single = replace(office.exact, num_shards=1)
    assert "the model in service was compared" in " ".join(
        made(exact=single, history=History(KEY, replace(FOUND, num_checked=1))).recomputed
    )


def test_a_recomputation_that_disagrees_is_told(made):
    found = replace(FOUND, agrees=False, num_different=3)
    said = made(history=History(KEY, found, found))
    assert "3 models did not agree." in said.recomputed[0]
    assert "would have been found" not in " ".join(said.recomputed)
    assert said.exact[0].startswith("exact: not claimed, because the recomputation of 2026-11-16T04:00:00Z found")
    assert (
        "They did not all agree, or the key"
        in made(history=History(KEY, replace(found, num_different=None))).recomputed[0]
    )


def test_an_applied_request_is_promised_in_numbers(made):
    found = made()
    assert found.headline.startswith("The request was applied by 2026-11-16T02:00:00Z. ")
    text = " ".join((*found.happened, *found.alpha_beta_gamma))
    for words in (
        "to delete 2 records was accepted at 2026-11-15T21:12:41Z and applied by 2026-11-16T02:00:00Z",
        "in round 12 of generation 1",
        "1 hour",
        "trained without the deleted records",
        "at most 2.72 times as likely",
        "plus 0.1% (α = 1.0, β = 0.001)",
        "however the requests were chosen",
        "1 in 1,000",
        "γ = 0.001",
        "covers 10,000 published predictions in a generation; there were 812",
    ):
        assert words in text


def test_the_known_limits_are_always_there(made, office):
    counts = CountFacts(num_records=1, accepted=0, applied=0, pending=0, cancelled=0)
    for found in (
        made(),
        made(request=_pending(office.request)),
        made(guarantee=GuaranteeFacts(math.inf, 0, 0)),
        made(guarantee=GuaranteeFacts(0, 0, 0)),
        made(request=None, counts=counts),
    ):
        text = " ".join(found.not_promised)
        for words in (
            "stays published",
            "Chen et al. 2021",
            "Carlini et al. 2022",
            "Thudi et al. 2022",
            "backups",
            "operator is trusted",
            "not a promise of privacy",
        ):
            assert words in text


@pytest.mark.parametrize(
    "guarantee",
    [
        GuaranteeFacts(math.inf, 1e-3, 1e-3, note="the shards are a partition."),
        GuaranteeFacts(14.0, 1e-3, 1e-3),
        GuaranteeFacts(1.0, 1.0, 0.0),
        GuaranteeFacts(1.0, 0.0, 1.0),
    ],
)
def test_nothing_is_claimed_of_numbers_that_say_nothing(made, guarantee):
    found = made(guarantee=guarantee)
    sentence = f"(α,β,γ): not claimed, because {guarantee.reason.rstrip('.')}."
    assert sentence in found.headline
    assert found.alpha_beta_gamma == (sentence,)


def test_a_weak_alpha_is_called_weak(made):
    weak = made(guarantee=GuaranteeFacts(5.0, 1e-3, 1e-3)).alpha_beta_gamma_limits[0]
    assert "This α is weak" in weak
    assert "about 0.674% or more the promise says nothing" in weak
    assert "chance of up to 1.59%" in weak
    assert "weak" not in made().alpha_beta_gamma_limits[0]


def test_the_same_probabilities_are_told_as_such(made):
    found = made(guarantee=GuaranteeFacts(0, 0, 0))
    assert "exactly the same probabilities" in " ".join(found.alpha_beta_gamma)
    assert "γ = 0.0" in " ".join(found.alpha_beta_gamma)
    assert "numbers matter" not in " ".join(found.alpha_beta_gamma_limits)


def test_a_request_that_waits_or_was_cancelled_promises_no_more(made, office):
    waiting = made(request=_pending(office.request))
    assert waiting.headline == "The request was accepted and is waiting to be applied."
    assert "may have been trained on records that it deletes" in " ".join(waiting.not_promised)
    assert "trained without" not in " ".join(waiting.happened)
    cancelled = replace(_pending(office.request), state="cancelled", cancelled_at="2026-11-15T22:00:00Z")
    gone = made(request=cancelled)
    assert "cancelled at 2026-11-15T22:00:00Z" in gone.headline
    assert "it changed nothing" in gone.happened[0]
    assert "trained without" not in " ".join(gone.happened)


def test_additions_are_not_called_deletions(made, office):
    added = replace(office.request, num_deletions=0, num_additions=1, id_hashes=())
    assert "to add 1 record was accepted" in made(request=added).happened[0]
    assert "trained without" not in " ".join(made(request=added).happened)
    mixed = replace(office.request, num_deletions=1, num_additions=3, id_hashes=())
    text = " ".join(made(request=mixed).happened)
    assert "to delete 1 record and add 3 records" in text
    assert "without the deleted record," in text


def test_publications_are_counted(made, office):
    def said(reserved, released=None, **changes):
        numbers = {"predictions_reserved": reserved, "predictions_released": reserved if released is None else released}
        return made(publication=replace(office.publication, **numbers, **changes)).alpha_beta_gamma[-1]

    assert "more than it covers: the next update has to train everything from scratch" in said(10_001)
    assert "more than it covers" not in said(10_000)
    assert "any number of published predictions; there were 812" in said(812, predictions_covered=None)


def test_what_was_reserved_is_not_called_published(made, office):
    """A process that is killed leaves more predictions reserved than were released."""
    publication = replace(office.publication, predictions_reserved=9_000, predictions_released=5_000)
    assert made(publication=publication).alpha_beta_gamma[-1] == (
        "It covers 10,000 published predictions in a generation; there were at most 9,000 predictions so far in "
        "generation 1: so many were reserved before they were released, and 5,000 are known to have been released."
    )


def test_a_clamped_time_is_told(made):
    assert "clock" not in made().happened[-1]
    told = made(clamped=("accepted", "issued")).happened[-1]
    assert "the clock of the operator's machine showed an earlier time" in told
    assert told.endswith(": accepted, issued.")


def test_who_had_a_part_in_the_key_is_told(made):
    """A key can be picked among many unless a witness had a part in it."""
    assert "The operator alone vouches that it was not picked among many keys." in " ".join(made().exact)
    witnessed = " ".join(made(history=History(replace(KEY, witness="witness.example", unused=2))).exact)
    assert "A nonce of the witness witness.example went into the key, after the log had committed to" in witnessed
    assert "the log holds 2 such commitments that no key followed from" in witnessed
    assert "picked among many" not in witnessed


def test_a_deployment_tells_its_counts(made, office):
    found = made(request=None, counts=office.counts)
    assert found.headline.startswith("State of the deployment. The models in service are those that the same recipe")
    text = found.happened[0]
    for words in ("4,997 records", "accepted since its creation: 3", "applied: 2", "waiting: 1", "applied: 0"):
        assert words in text


def test_round_numbers_are_not_rounded_and_the_second_tick_is_named(made, office):
    found = made(guarantee=replace(office.guarantee, alpha=8.0, beta=0.07, gamma=0.07))
    text = " ".join((*found.happened, *found.alpha_beta_gamma))
    assert "plus 7% (α = 8.0" in text
    assert "ticks of a clock, each 1 hour long: the second tick after the work began" in text
