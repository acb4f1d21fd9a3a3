"""What is promised and what is not, as sentences made from the numbers.

The sentences are part of the format of a certificate. A verifier makes them again from the numbers and compares. So the
operator cannot sign better words than the numbers support. Changing a word here, or a digit of a number in words,
changes the format.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

from expunge.core import words
from expunge.core.words import period, plural
from expunge.evidence import checks
from expunge.evidence.facts import CountFacts, DeploymentFacts, GuaranteeFacts, PublicationFacts, RequestFacts

_WEAK_FACTOR: Final = 10.0

EARLIER_OUTPUTS: Final = (
    "What was published before the request was applied stays published. The guarantee does not take back what earlier "
    "predictions revealed about a record, and comparing predictions from before and after a deletion can reveal that a "
    "record was deleted, and what it was (Chen et al. 2021, When Machine Unlearning Jeopardizes Privacy)."
)
NEIGHBOURS: Final = (
    "Other people's deletions can expose those who stay: when some records leave, others stand out more (Carlini et "
    "al. 2022, The Privacy Onion Effect). Training from scratch has the same effect; the guarantee does not prevent it."
)
NOT_PRIVACY: Final = (
    "It is not a promise of privacy for records that are still in the training data: a model may have memorised them."
)
COPIES: Final = (
    "Copies outside the deployment are not covered: backups, exports, logs, the system the data came from, and any "
    "other system that holds the same data."
)
OPERATOR: Final = (
    "The signature shows who made this statement, not that it is true. The operator is trusted to have run the "
    "software as it is and to have kept its secret randomness secret; from a model alone nobody can prove which "
    "records it was or was not trained on (Thudi et al. 2022, On the Necessity of Auditable Algorithmic Definitions "
    "for Machine Unlearning)."
)
RECIPE: Final = (
    "It compares with training from scratch by the same recipe. Choices that were made by looking at deleted records "
    "remain: the list of classes, tuned settings, designed features, a pretrained model that had seen them."
)
ONE_ROUND: Final = "It holds for the models of each round taken by itself, not for all rounds together."


@dataclass(frozen=True, slots=True)
class Statements:
    """What a certificate says in sentences.

    Parameters
    ----------
    headline
        The most important thing, in one or two sentences.
    promised
        What is promised.
    not_promised
        What is not promised.
    """

    headline: str
    promised: tuple[str, ...]
    not_promised: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "headline", checks.text("headline", self.headline))
        for name in ("promised", "not_promised"):
            sentences = checks.sequence_of(name, getattr(self, name))
            object.__setattr__(self, name, tuple(checks.text(f"a sentence of {name}", item) for item in sentences))


def make_statements(
    deployment: DeploymentFacts,
    publication: PublicationFacts,
    guarantee: GuaranteeFacts,
    *,
    request: RequestFacts | None,
    counts: CountFacts | None,
) -> Statements:
    """Make the sentences that the facts support."""
    about = _about_request(request, deployment) if request is not None else _about_counts(counts, publication)
    return Statements(
        headline=_headline(request, guarantee),
        promised=(*about, *_promises(guarantee, publication)),
        not_promised=(
            *_limits_of_numbers(guarantee),
            *([PENDING] if request is not None and request.state == "pending" else []),
            *(EARLIER_OUTPUTS, NEIGHBOURS, NOT_PRIVACY, COPIES, OPERATOR, RECIPE),
            *([] if guarantee.is_vacuous else [ONE_ROUND]),
        ),
    )


def describe_request(request: RequestFacts) -> str:
    """Say what a request asked for, such as "to delete 2 records and add 1 record"."""
    parts = []
    if request.num_deletions:
        parts.append(f"delete {plural(request.num_deletions, 'record')}")
    if request.num_additions:
        parts.append(f"add {plural(request.num_additions, 'record')}")
    return f"to {' and '.join(parts)}"


def describe_place(generation: int | None, round: int | None) -> str:
    """Say where a deployment stood, such as "round 3 of generation 1", or "round 3" if the generation is not told."""
    return f"round {round:,}" + ("" if generation is None else f" of generation {generation:,}")


PENDING: Final = (
    "The request has not been applied yet: the models in service may have been trained on records that it deletes."
)


def _headline(request: RequestFacts | None, guarantee: GuaranteeFacts) -> str:
    if request is None:
        what = "State of the deployment"
    elif request.state == "applied":
        what = f"The request was applied by {request.applied_by}"
    elif request.state == "cancelled":
        what = f"The request was cancelled at {request.cancelled_at}, before it was applied"
    else:
        what = "The request was accepted and is waiting to be applied"
    return f"{what}. No guarantee is given: {_reason(guarantee)}." if guarantee.is_vacuous else f"{what}."


def _about_request(request: RequestFacts, deployment: DeploymentFacts) -> list[str]:
    accepted = f"The request {describe_request(request)} was accepted at {request.accepted_at}"
    if request.state == "cancelled":
        return [f"{accepted} and cancelled at {request.cancelled_at}, before it was applied; it changed nothing."]
    if request.state == "pending":
        return [f"{accepted} and has not been applied yet."]
    sentences = [
        f"{accepted} and applied by {request.applied_by}, in {describe_place(request.generation, request.round)}. "
        "Times by which work was done are ticks of a clock, each "
        f"{period(deployment.tick_seconds)} long: the second tick after the work began, or a later one if it took "
        "longer."
    ]
    if request.num_deletions:
        sentences.append(
            "The models in service from that round on were trained without the deleted "
            f"{'record' if request.num_deletions == 1 else 'records'}, unless a later request added them again."
        )
    return sentences


def _about_counts(counts: CountFacts | None, publication: PublicationFacts) -> list[str]:
    assert counts is not None  # a certificate is for a request or for the deployment
    return [
        f"The deployment holds {plural(counts.num_records, 'record')} and is in "
        f"{describe_place(publication.generation, publication.round)}. Requests accepted since its creation: "
        f"{counts.accepted:,}; applied: "
        f"{counts.applied:,}, waiting: {counts.pending:,}, cancelled before they were applied: {counts.cancelled:,}."
    ]


def _promises(guarantee: GuaranteeFacts, publication: PublicationFacts) -> list[str]:
    if guarantee.is_vacuous:
        return []
    if guarantee.alpha == guarantee.beta == 0:
        closeness = (
            "After an update the models have exactly the same probabilities as models trained from scratch on the "
            "remaining records (α = 0, β = 0)."
        )
    else:
        closeness = (
            f"Whatever anyone looks for in the updated models is at most {words.factor(guarantee)} times as likely "
            f"as after training from scratch on the remaining records, plus {words.percent(guarantee.beta)} "
            f"(α = {guarantee.alpha!r}, β = {guarantee.beta!r})."
        )
    return [closeness, _failure(guarantee), _coverage(publication)]


def _failure(guarantee: GuaranteeFacts) -> str:
    adaptive = "This holds however the requests were chosen, also by people who saw earlier predictions"
    if guarantee.gamma == 0:
        return f"{adaptive} (γ = 0.0)."
    return (
        f"{adaptive}, except with a probability of at most {words.percent(guarantee.gamma)}, "
        f"{words.chance(guarantee.gamma)}, over all generations that the guarantee is good for "
        f"(γ = {guarantee.gamma!r})."
    )


def _coverage(publication: PublicationFacts) -> str:
    if publication.generation is None or publication.predictions_published is None:
        most = publication.predictions_covered
        number = "any number of published predictions" if most is None else plural(most, "published prediction")
        return (
            f"It covers {number} between two full trainings. After them, or after a failed consensus, the next update "
            "trains everything from scratch. When that was the case is shown to the operator only."
        )
    published = (
        f"{plural(publication.predictions_published, 'prediction')} so far in generation {publication.generation:,}"
    )
    if publication.predictions_covered is None:
        return f"It covers any number of published predictions; there were {published}."
    sentence = (
        f"It covers {plural(publication.predictions_covered, 'published prediction')} in a generation; there were "
        f"{published}."
    )
    if publication.predictions_published > publication.predictions_covered:
        return f"{sentence} That is more than it covers: the next update has to train everything from scratch."
    return sentence


def _limits_of_numbers(guarantee: GuaranteeFacts) -> list[str]:
    if guarantee.is_vacuous:
        return [
            f"No guarantee is given: {_reason(guarantee)}. Nothing is promised about how close the updated models are "
            "to models trained from scratch."
        ]
    if guarantee.alpha == guarantee.beta == 0:
        return []
    certain = (1 - guarantee.beta) * math.exp(-guarantee.alpha)
    weak = "This α is weak. " if math.exp(guarantee.alpha) > _WEAK_FACTOR else ""
    return [
        f"The numbers matter. {weak}Of what happens after training from scratch with a chance of about "
        f"{words.percent(certain)} or more the guarantee says nothing. A test for traces of deleted records that "
        "raises a false alarm on 1 in 10,000 systems trained from scratch may raise an alarm here with a chance of up "
        f"to {words.percent(words.bound(guarantee, 1e-4))}."
    ]


def _reason(guarantee: GuaranteeFacts) -> str:
    return guarantee.reason.rstrip(". ")
