from __future__ import annotations

import math
from dataclasses import replace

import pytest

from expunge.evidence import CountFacts, GuaranteeFacts
from expunge.evidence.statements import make_statements


@pytest.fixture
def made(office):
    def make(**changes):
        facts = {
            "deployment": office.deployment,
            "publication": office.publication,
            "guarantee": office.guarantee,
            "request": office.request,
            "counts": None,
            **changes,
        }
        return make_statements(
            facts["deployment"],
            facts["publication"],
            facts["guarantee"],
            request=facts["request"],
            counts=facts["counts"],
        )

    return make


def _pending(request):
    return replace(request, state="pending", applied_by=None, generation=None, round=None)


def test_an_applied_request_is_promised_in_numbers(made):
    found = made()
    assert found.headline == "The request was applied by 2026-11-16T02:00:00Z."
    text = " ".join(found.promised)
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
            "same recipe",
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
def test_nothing_is_promised_where_there_is_no_guarantee(made, guarantee):
    found = made(guarantee=guarantee)
    assert f"No guarantee is given: {guarantee.reason.rstrip('.')}." in found.headline
    assert f"No guarantee is given: {guarantee.reason.rstrip('.')}." in found.not_promised[0]
    text = " ".join(found.promised)
    assert "likely" not in text
    assert "covers" not in text


def test_a_weak_alpha_is_called_weak(made):
    weak = made(guarantee=GuaranteeFacts(5.0, 1e-3, 1e-3)).not_promised[0]
    assert "This α is weak" in weak
    assert "about 0.674% or more the guarantee says nothing" in weak
    assert "chance of up to 1.59%" in weak
    assert "weak" not in made().not_promised[0]


def test_an_exact_guarantee_is_told_as_such(made):
    found = made(guarantee=GuaranteeFacts(0, 0, 0))
    assert "exactly the same probabilities" in " ".join(found.promised)
    assert "γ = 0.0" in " ".join(found.promised)
    assert "numbers matter" not in " ".join(found.not_promised)


def test_a_request_that_waits_or_was_cancelled_promises_no_more(made, office):
    waiting = made(request=_pending(office.request))
    assert "waiting to be applied" in waiting.headline
    assert "may have been trained on records that it deletes" in " ".join(waiting.not_promised)
    assert "trained without" not in " ".join(waiting.promised)
    cancelled = replace(_pending(office.request), state="cancelled", cancelled_at="2026-11-15T22:00:00Z")
    gone = made(request=cancelled)
    assert "cancelled at 2026-11-15T22:00:00Z" in gone.headline
    assert "it changed nothing" in gone.promised[0]
    assert "trained without" not in " ".join(gone.promised)


def test_additions_are_not_called_deletions(made, office):
    added = replace(office.request, num_deletions=0, num_additions=1, id_hashes=())
    assert "to add 1 record was accepted" in made(request=added).promised[0]
    assert "trained without" not in " ".join(made(request=added).promised)
    mixed = replace(office.request, num_deletions=1, num_additions=3, id_hashes=())
    text = " ".join(made(request=mixed).promised)
    assert "to delete 1 record and add 3 records" in text
    assert "without the deleted record," in text


def test_publications_are_counted(made, office):
    over = made(publication=replace(office.publication, predictions_published=10_001)).promised[-1]
    assert "more than it covers: the next update has to train everything from scratch" in over
    exact = made(publication=replace(office.publication, predictions_published=10_000)).promised[-1]
    assert "more than it covers" not in exact
    unlimited = made(publication=replace(office.publication, predictions_covered=None)).promised[-1]
    assert "any number of published predictions; there were 812" in unlimited


def test_a_deployment_tells_its_counts(made, office):
    text = made(request=None, counts=office.counts).promised[0]
    for words in ("4,997 records", "accepted since its creation: 3", "applied: 2", "waiting: 1", "applied: 0"):
        assert words in text


def test_round_numbers_are_not_rounded_and_the_second_tick_is_named(made, office):
    found = made(guarantee=replace(office.guarantee, alpha=8.0, beta=0.07, gamma=0.07))
    text = " ".join((*found.promised, *found.not_promised))
    assert "plus 7% (α = 8.0" in text
    assert "ticks of a clock, each 1 hour long: the second tick after the work began" in text
