"""What a certificate says in sentences, made from its facts: what happened, each promise by itself, what was checked.

The sentences are part of the format of a certificate. A verifier makes them again from the facts and compares. So the
operator cannot sign better words than the facts support. Changing a word here, or a digit of a number in words,
changes the format.

The exact promise (T6) and the (α,β,γ) one (T1 to T5) compare with different things. Each has statements of its own, and
no sentence speaks of both.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Final

from expunge.core import words
from expunge.core.words import percent_at_least, period, plural
from expunge.evidence import checks
from expunge.evidence.facts import (
    WITHOUT_GUARANTEE,
    CountFacts,
    DeploymentFacts,
    ExactFacts,
    GuaranteeFacts,
    PublicationFacts,
    RequestFacts,
)
from expunge.evidence.history import (
    RENEWALS,
    History,
    KeyDraw,
    RecomputationFacts,
    RestorationFacts,
    detection_chance,
)

_WEAK_FACTOR: Final = 10.0
_SHARE: Final = 10  # one shard in so many: how likely a recomputation is to find it

RECIPE: Final = (
    "Choices that were made by looking at records that were deleted later remain, because they are part of the recipe: "
    "the list of classes, tuned settings, designed features, a pretrained model that had seen them."
)
SAME_KEY: Final = (
    "It compares with training by the same recipe, its secret key included. It does not say what another key would "
    "have given."
)
NOT_ACCURACY: Final = (
    "It protects deletion, not accuracy. People who see the models can choose deletions after which the rest is served "
    "badly."
)
ENVIRONMENT: Final = (
    "In which software and on which kind of processor the models were trained is not recorded. Others can change the "
    "last bits."
)
NO_KEY: Final = "When the key in force was drawn is not shown in this certificate. The log of the deployment tells it."
FRESH: Final = (
    "It compares with training from scratch, by the same learner and settings, with fresh randomness. Choices that "
    "were made by looking at records that were deleted later remain."
)
NO_WITNESS: Final = (
    "No witness had a part in drawing the key. The operator alone vouches that it was not picked among many keys."
)
CLAMPED: Final = (
    "For some of this the clock of the operator's machine showed an earlier time than that of an entry before it in "
    "the log, because the clock was set back or other work came first. It is dated by that entry, and so marked"
)
ONE_ROUND: Final = "It holds for the models of each round taken by itself, not for all rounds together."
NOT_RECOMPUTED: Final = "No recomputation of the models is shown in this certificate."
RECOMPUTATION_LIMITS: Final = (
    "A recomputation does not show that these models are what answers people, that the records are complete, or that "
    "the key was not picked among many. It counts only if the shards were chosen after the models were fixed: an "
    "operator who knows the choice beforehand can repair those shards alone."
)
PENDING: Final = (
    "The request has not been applied yet: the models in service may have been trained on records that it deletes."
)
EARLIER_OUTPUTS: Final = (
    "What was published before the request was applied stays published. Nothing takes back what earlier predictions "
    "revealed about a record, and comparing predictions from before and after a deletion can reveal that a record was "
    "deleted, and what it was (Chen et al. 2021, When Machine Unlearning Jeopardizes Privacy)."
)
NEIGHBOURS: Final = (
    "Other people's deletions can expose those who stay: when some records leave, others stand out more (Carlini et "
    "al. 2022, The Privacy Onion Effect). Training from scratch has the same effect."
)
NOT_PRIVACY: Final = (
    "This is not a promise of privacy for records that are still in the training data: a model may have memorised them."
)
COPIES: Final = (
    "Copies outside the deployment are not covered: backups, exports, logs, the system the data came from, and any "
    "other system that holds the same data."
)
OPERATOR: Final = (
    "The signature shows who made this statement, not that it is true. The operator is trusted to have run the "
    "software as it is, and to have kept its secrets. The models alone do not show which records they were trained on "
    "(Thudi et al. 2022, On the Necessity of Auditable Algorithmic Definitions for Machine Unlearning). An auditor who "
    "is given the records and the key can train shards again and compare."
)


@dataclass(frozen=True, slots=True)
class Statements:
    """What a certificate says in sentences.

    Parameters
    ----------
    headline
        The most important thing, in one or a few sentences.
    happened
        What was asked and done, or the state of the deployment.
    exact
        The exact promise: what it says and what it compares with; or that it is not claimed, and why.
    exact_limits
        What the exact promise does not say; empty if it is not claimed.
    alpha_beta_gamma
        The (α,β,γ) promise; or that it is not claimed, and why.
    alpha_beta_gamma_limits
        What the (α,β,γ) promise does not say; empty if it is not claimed.
    recomputed
        What the last recomputation found, and what that shows.
    not_promised
        What is not promised at all.
    """

    headline: str
    happened: tuple[str, ...]
    exact: tuple[str, ...]
    exact_limits: tuple[str, ...]
    alpha_beta_gamma: tuple[str, ...]
    alpha_beta_gamma_limits: tuple[str, ...]
    recomputed: tuple[str, ...]
    not_promised: tuple[str, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "headline", checks.text("headline", self.headline))
        for name in [each.name for each in fields(self)][1:]:
            sentences = checks.sequence_of(name, getattr(self, name))
            object.__setattr__(self, name, tuple(checks.text(f"a sentence of {name}", item) for item in sentences))


def make_statements(
    deployment: DeploymentFacts,
    publication: PublicationFacts,
    exact: ExactFacts,
    guarantee: GuaranteeFacts,
    *,
    history: History,
    request: RequestFacts | None,
    counts: CountFacts | None,
    clamped: Sequence[str] = (),
) -> Statements:
    """Make the sentences that the facts support. `clamped` names what has a time that the log marks as clamped."""
    about = _about_request(request, deployment) if request is not None else _about_counts(counts, publication)
    if history.restoration is not None:
        about.append(_restored(history.restoration))
    if clamped:
        about.append(f"{CLAMPED}: {', '.join(clamped)}.")
    unclaimed = why_not_exact(exact, history)
    return Statements(
        headline=_headline(request, deployment, exact, unclaimed, guarantee),
        happened=tuple(about),
        exact=(f"exact: not claimed, because {unclaimed}.",) if unclaimed else _exact(deployment, exact, history.key),
        exact_limits=() if unclaimed else _exact_limits(exact),
        alpha_beta_gamma=_promises(guarantee, publication),
        alpha_beta_gamma_limits=_limits_of_numbers(guarantee),
        recomputed=_recomputed(history.recomputation, exact, publication),
        not_promised=(
            *([PENDING] if request is not None and request.state == "pending" else []),
            *(EARLIER_OUTPUTS, NEIGHBOURS, NOT_PRIVACY, COPIES, OPERATOR),
        ),
    )


def _restored(found: RestorationFacts) -> str:
    """Say that the deployment was restored from a back-up, and what was known then."""
    known = (
        "Before it answered anybody, the records that were deleted or corrected after the back-up were taken out, as "
        "far as the log and the keyed hashes of deleted records told of them."
        if found.continued
        else "What was asked for after the back-up is not known to it: such requests have to be made again, and a log "
        "that was published before may show that there were any."
    )
    return (
        f"The deployment was restored at {found.at} from a back-up whose log had "
        f"{found.entries:,} {'entry' if found.entries == 1 else 'entries'}. {known}"
    )


def why_not_exact(exact: ExactFacts, history: History) -> str:
    """Why the exact promise is not claimed; empty if it is."""
    if exact.note:
        return exact.note.rstrip(". ")
    return why_disagreeing(history)


def why_disagreeing(history: History) -> str:
    """Why a recomputation keeps the exact promise from being claimed; empty if none does.

    Parameters
    ----------
    history
        What the log says about recomputations.

    Returns
    -------
    str
        The reason, as the end of a sentence.

    Examples
    --------
    >>> why_disagreeing(History())
    ''
    """
    found = history.disagreement
    if found is None:
        return ""
    return (
        f"the recomputation of {found.at} found models in service that are not what the recipe gives, or another key "
        "than the one that was committed to; since then the log shows neither a full retraining nor a recomputation of "
        "every shard that agrees"
    )


def describe_request(request: RequestFacts) -> str:
    """Say what a request asked for, such as "to delete 2 records and add 1 record"."""
    parts = []
    if request.num_deletions:
        parts.append(f"delete {plural(request.num_deletions, 'record')}")
    if request.num_additions:
        parts.append(f"add {plural(request.num_additions, 'record')}")
    if request.num_corrections:
        parts.append(f"correct {plural(request.num_corrections, 'record')}")
    return f"to {' and '.join(parts) or 'delete all records of a person, of whom there was none,'}"


def describe_place(generation: int | None, round: int | None) -> str:
    """Say where a deployment stood, such as "round 3 of generation 1", or "round 3" if the generation is not told."""
    return f"round {round:,}" + ("" if generation is None else f" of generation {generation:,}")


def _headline(
    request: RequestFacts | None,
    deployment: DeploymentFacts,
    exact: ExactFacts,
    unclaimed: str,
    guarantee: GuaranteeFacts,
) -> str:
    if request is None:
        what = "State of the deployment"
    elif request.state == "applied":
        what = f"The request was applied by {request.applied_by}"
    elif request.state == "cancelled":
        return f"The request was cancelled at {request.cancelled_at}, before it was applied."
    else:
        return "The request was accepted and is waiting to be applied."
    sentences = [what]
    if unclaimed:
        sentences.append(f"The exact promise is not claimed, because {unclaimed}")
    else:
        rounding = ", up to rounding" if exact.is_mixed else ""
        sentences.append(
            f"The models in service are those that the same recipe gives on the records that are left{rounding}"
        )
    if deployment.promise not in WITHOUT_GUARANTEE and guarantee.is_vacuous:
        sentences.append(f"(α,β,γ): not claimed, because {_reason(guarantee)}")
    return ". ".join(sentences) + "."


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
    if request.num_corrections:
        sentences.append(
            "The models in service from that round on were trained on what the request put into the corrected "
            f"{'record' if request.num_corrections == 1 else 'records'}, and not on what was there before, unless a "
            "later request changed them again."
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


def _exact(deployment: DeploymentFacts, exact: ExactFacts, key: KeyDraw | None) -> tuple[str, ...]:
    closely = "up to rounding" if exact.is_mixed else "bit for bit"
    return (
        f"The models in service are, {closely}, those that the recipe gives when it is run from the beginning on the "
        "records that are left. It would have given the same models if the records that were deleted had never been "
        "there.",
        "This holds after any history of questions, answers and requests, also if people chose their requests by what "
        "they saw, and however much was published.",
        _recipe(deployment, exact),
        NO_KEY if key is None else _drawn(key),
        *([] if key is None else [_witnessed(key)]),
        *_environments(exact),
    )


def _recipe(deployment: DeploymentFacts, exact: ExactFacts) -> str:
    number = f"{exact.num_shards:,} models, each on a shard of the records"
    if exact.num_shards == 1:
        trained = "one model on all records"
    elif deployment.sampler_is_independent:
        trained = f"{number}. Every shard holds a record with the same chance, and all records of a person or none"
    else:
        trained = f"{number}. Every record is in one shard, and all records of a person are in the same one"
    decided = "the order of the records and the seed of the training"
    if exact.num_shards > 1:
        decided = "the shards, the order of their records and the seed of each training"
    return (
        f"It compares with this recipe: {exact.learner} trains {trained}. A secret key decides {decided}. The columns, "
        "the classes and the software are those of this deployment."
    )


def _drawn(key: KeyDraw) -> str:
    """Say when the key in force was drawn, and why."""
    if key.is_of_round:
        made = f": {key.commitment}" if key.commitment else ", because it was made from a fixed seed"
        holds = "a commitment" if key.commitment else "no commitment"
        return (
            f"The log holds {holds} to the key in force in the round of {key.at}{made}. It does not say when the key "
            "was drawn: that is for the operator and for auditors."
        )
    why = "the deployment was created with it" if key.reason is None else RENEWALS[key.reason]
    told = (
        "The log holds no commitment to it, because it was made from a fixed seed"
        if key.commitment is None
        else f"The log holds a commitment to it: {key.commitment}"
    )
    return f"The key in force is that of {key.at}: {why}. {told}."


def _witnessed(key: KeyDraw) -> str:
    """Say who had a part in drawing the key."""
    if key.witness is None:
        return NO_WITNESS
    unused = plural(key.unused, "such commitment")
    return (
        f"A nonce of the witness {key.witness} went into the key, after the log had committed to the operator's part. "
        f"Since the key before, the log holds {unused} that no key followed from."
    )


def _environments(exact: ExactFacts) -> list[str]:
    if not exact.environments:
        return []
    if not exact.is_mixed:
        return [f"All models in service were trained in one environment: {exact.environments[0][0]}."]
    named = "; ".join(f"{plural(count, 'model')} in {name}" for name, count in exact.environments)
    after = {
        "strict": "The next update trains all of them again, in one environment",
        "lenient": "They stay in service together until they are trained again",
    }
    number = len(exact.environments)
    return [f"The models in service were trained in {number} environments: {named}. {after[exact.numerics]}."]


def _exact_limits(exact: ExactFacts) -> tuple[str, ...]:
    return (SAME_KEY, NOT_ACCURACY, RECIPE, *([] if exact.environments else [ENVIRONMENT]))


def _recomputed(found: RecomputationFacts | None, exact: ExactFacts, publication: PublicationFacts) -> tuple[str, ...]:
    """Say what the last recomputation found, and what that shows."""
    if found is None:
        return (NOT_RECOMPUTED,)
    every = found.num_checked >= exact.num_shards  # more of them is a contradiction, which `verify` names
    if every:
        what = f"all {plural(exact.num_shards, 'model')}" if exact.num_shards > 1 else "the model"
    else:
        what = f"{found.num_checked:,} of {exact.num_shards:,} models"
    was = "was" if found.num_checked == 1 else "were"
    sentences = [
        f"On {found.at}, in {describe_place(found.generation, found.round)}, {what} in service {was} "
        f"compared, bit for bit, with models that were trained again from the records. {_outcome(found)}."
    ]
    if not every:
        sentences.append(_chosen(found))
    if found.agrees:
        sentences.append(_strength(found, exact) if not every else "One stale model would have been found.")
    if (found.generation, found.round) != (publication.generation, publication.round):
        sentences.append(
            f"The deployment is now in {describe_place(publication.generation, publication.round)}. Models "
            "that were trained since then were not looked at."
        )
    return (*sentences, RECOMPUTATION_LIMITS)


def _outcome(found: RecomputationFacts) -> str:
    if found.agrees:
        return "It agreed" if found.num_checked == 1 else "All agreed"
    if found.num_different:
        return f"{plural(found.num_different, 'model')} did not agree"
    return "They did not all agree, or the key was not the one that the log commits to"


def _chosen(found: RecomputationFacts) -> str:
    if found.chosen_by == "auditor's seed":
        return "They were drawn at random by a seed that was given, which counts if an auditor gave it."
    if found.chosen_by == "checkpoint":
        return f"They were drawn at random by the bytes of a checkpoint with the SHA-256 {found.checkpoint}."
    return (
        "They were drawn by the software itself, on the operator's machine. That shows less than a choice by an "
        "auditor, because an operator could have repeated the draw."
    )


def _strength(found: RecomputationFacts, exact: ExactFacts) -> str:
    """Say which share of stale shards would have been found, and with which probability."""
    share = -(-exact.num_shards // _SHARE)
    told = [
        f"{plural(stale, 'shard')} of {exact.num_shards:,} with a probability of at least "
        f"{percent_at_least(detection_chance(exact.num_shards, found.num_checked, stale))}"
        for stale in dict.fromkeys([1, share])
    ]
    return f"Stale models would have been found: {', and '.join(told)}."


def _promises(guarantee: GuaranteeFacts, publication: PublicationFacts) -> tuple[str, ...]:
    if guarantee.is_vacuous:
        return (f"(α,β,γ): not claimed, because {_reason(guarantee)}.",)
    if guarantee.alpha == guarantee.beta == 0:
        closeness = (
            "After an update the models have exactly the same probabilities as models trained from scratch, with fresh "
            "randomness, on the remaining records (α = 0, β = 0)."
        )
    else:
        closeness = (
            f"Anything that a test can look for in the updated models is at most {words.factor(guarantee)} times as "
            "likely as after training from scratch, with fresh randomness, on the remaining records, plus "
            f"{words.percent(guarantee.beta)} (α = {guarantee.alpha!r}, β = {guarantee.beta!r})."
        )
    return (closeness, _failure(guarantee), _coverage(publication))


def _failure(guarantee: GuaranteeFacts) -> str:
    adaptive = "This holds however the requests were chosen, also by people who saw earlier predictions"
    if guarantee.gamma == 0:
        return f"{adaptive} (γ = 0.0)."
    return (
        f"{adaptive}, except with a probability of at most {words.percent(guarantee.gamma)}, "
        f"{words.chance(guarantee.gamma)}, over all generations that the promise is good for "
        f"(γ = {guarantee.gamma!r})."
    )


def _coverage(publication: PublicationFacts) -> str:
    if publication.generation is None or publication.predictions_reserved is None:
        most = publication.predictions_covered
        number = "any number of published predictions" if most is None else plural(most, "published prediction")
        return (
            f"It covers {number} between two full trainings. After them, or after a failed consensus, the next update "
            "trains everything from scratch. When that was the case is shown to the operator only."
        )
    covered, reserved = publication.predictions_covered, publication.predictions_reserved
    number = "any number of published predictions"
    if covered is not None:
        number = f"{plural(covered, 'published prediction')} in a generation"
    sentence = f"It covers {number}; {_published(publication)}."
    if covered is not None and reserved > covered:
        return f"{sentence} That is more than it covers: the next update has to train everything from scratch."
    return sentence


def _published(publication: PublicationFacts) -> str:
    """Say how many predictions there were, or between which numbers their number lies."""
    reserved, released = publication.predictions_reserved, publication.predictions_released
    assert reserved is not None  # they are told together
    assert released is not None
    if reserved == released:
        return f"there were {plural(reserved, 'prediction')} so far in generation {publication.generation:,}"
    return (
        f"there were at most {plural(reserved, 'prediction')} so far in generation {publication.generation:,}: so many "
        f"were reserved before they were released, and {released:,} are known to have been released"
    )


def _limits_of_numbers(guarantee: GuaranteeFacts) -> tuple[str, ...]:
    if guarantee.is_vacuous:
        return ()
    if guarantee.alpha == guarantee.beta == 0:
        return (FRESH, ONE_ROUND)
    certain = (1 - guarantee.beta) * math.exp(-guarantee.alpha)
    weak = "This α is weak. " if math.exp(guarantee.alpha) > _WEAK_FACTOR else ""
    return (
        f"The numbers matter. {weak}Of what happens after training from scratch with a chance of about "
        f"{words.percent(certain)} or more the promise says nothing. A test for traces of deleted records that "
        "raises a false alarm on 1 in 10,000 systems trained from scratch may raise an alarm here with a chance of up "
        f"to {words.percent(words.bound(guarantee, 1e-4))}.",
        FRESH,
        ONE_ROUND,
    )


def _reason(guarantee: GuaranteeFacts) -> str:
    return guarantee.reason.rstrip(". ")
