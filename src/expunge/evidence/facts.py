"""What a certificate says, as plain facts that the deployment fills in.

`ExactFacts` and `GuaranteeFacts` are about the two promises, each by itself. Every fact here is public. There is no
field for the shards that were touched, for votes, or for how long a retraining took. Times that show the end of a
retraining are rounded up to the clock tick. The generation and the count of its predictions are left out under a
consensus: they depend on whether one failed, which is the operator's to know. One fact depends on the secret randomness
nevertheless. The round depends on how long trainings take, because requests that come during a training are applied
together after it; applying on a clock prevents that.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal, Self, get_args

from expunge.core.checks import require_choice, require_count, require_flag
from expunge.core.errors import InputError, ParameterError
from expunge.core.guarantee import Parameter, explain_vacuity
from expunge.core.words import is_on_tick, require_tick
from expunge.evidence import checks
from expunge.evidence.canonical import INFINITY, LARGEST_INTEGER

#: The largest number of shards that is believed.
MOST_SHARDS: Final = 2**31

State = Literal["pending", "applied", "cancelled"]
Kind = Literal["deletion", "addition", "correction", "mixed"]
PromiseName = Literal["exact", "consensus", "router", "student", "noise", "unguarded"]
Numerics = Literal["strict", "lenient"]

#: The promises that ask for no (α,β,γ).
WITHOUT_GUARANTEE: Final = frozenset({"exact", "unguarded"})


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFacts:
    """Which deployment a certificate is about.

    Parameters
    ----------
    deployment_id
        The id that its log is named after.
    name
        What the operator calls it.
    created_at
        When it was created, such as 2026-11-16T02:00:00Z.
    tick_seconds
        The clock tick. Times at which work was done are rounded up to it.
    promise
        The promise that it was created with, by its short name, such as "exact" or "consensus".
    sampler_is_independent
        Whether its shards are independent. If not, no (α,β,γ) can be claimed.
    """

    deployment_id: str
    name: str
    created_at: str
    tick_seconds: int
    promise: PromiseName
    sampler_is_independent: bool

    def __post_init__(self) -> None:
        _set(self, "deployment_id", checks.text("deployment_id", self.deployment_id))
        _set(self, "name", checks.text("name", self.name))
        checks.moment("created_at", self.created_at)
        require_tick(self.tick_seconds)
        require_choice("promise", self.promise, get_args(PromiseName))
        require_flag("sampler_is_independent", self.sampler_is_independent)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationFacts:
    """Where the deployment stood when the certificate was issued.

    Parameters
    ----------
    generation
        The generation, from 1. Every full training begins one. None under a consensus.
    round
        The round, from 0.
    predictions_reserved
        How many predictions were published in this generation at most: so many were reserved on the disk, which comes
        before they are released. None under a consensus.
    predictions_released
        How many of these are known to have been released. It is less than the number reserved if a process ended
        without notice, or is still serving. None under a consensus.
    predictions_covered
        How many predictions the guarantee covers in a generation. None or infinity means any number.
    """

    generation: int | None
    round: int
    predictions_reserved: int | None
    predictions_released: int | None
    predictions_covered: int | None

    def __post_init__(self) -> None:
        _set(self, "round", checks.count("round", self.round))
        told = (self.generation, self.predictions_reserved, self.predictions_released)
        if None in told and told != (None, None, None):
            raise ParameterError("generation and the numbers of its predictions are told together, or none of them is")
        if self.generation is not None:
            _set(self, "generation", checks.count("generation", self.generation, least=1))
            for name in ("predictions_reserved", "predictions_released"):
                _set(self, name, checks.count(name, getattr(self, name)))
            if self.predictions_released > self.predictions_reserved:  # type: ignore[operator]
                raise ParameterError(
                    f"of {self.predictions_reserved} predictions reserved, {self.predictions_released} cannot have "
                    "been released"
                )
        covered: Any = self.predictions_covered
        if covered is not None and covered != math.inf:
            covered = checks.count("predictions_covered", covered)
        _set(self, "predictions_covered", None if covered == math.inf else covered)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What was asked, and what became of it.

    Parameters
    ----------
    request_id
        The request's id, as in its acknowledgement.
    num_deletions, num_additions, num_corrections
        The number of records to delete, to add, and to correct: what these say is replaced, under the same ids. All are
        0 if a person's records were to be deleted and there was none.
    accepted_at
        When the request was accepted.
    state
        "pending", "applied" or "cancelled".
    applied_by
        For an applied request: a tick of the deployment's clock by which it was applied.
    generation, round
        For an applied request: where it was applied. The generation is None under a consensus.
    cancelled_at
        For a cancelled request: when it was cancelled.
    id_hashes
        Keyed hashes of the records' ids (see `hash_ids`), one for each record, or none. Never the ids.
    """

    request_id: str
    num_deletions: int
    num_additions: int
    num_corrections: int = 0
    accepted_at: str
    state: State
    applied_by: str | None = None
    generation: int | None = None
    round: int | None = None
    cancelled_at: str | None = None
    id_hashes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _set(self, "request_id", checks.text("request_id", self.request_id))
        _set(self, "num_deletions", checks.count("num_deletions", self.num_deletions))
        _set(self, "num_additions", checks.count("num_additions", self.num_additions))
        _set(self, "num_corrections", checks.count("num_corrections", self.num_corrections))
        checks.moment("accepted_at", self.accepted_at)
        require_choice("state", self.state, get_args(State))
        self._check_outcome()
        hashes = checks.sequence_of("id_hashes", self.id_hashes)
        _set(self, "id_hashes", tuple(checks.digest("an id hash", item) for item in hashes))
        if hashes and len(hashes) != self.num_records:
            raise ParameterError(f"there must be {self.num_records} id_hashes, one for each record, got {len(hashes)}")
        if list(hashes) != sorted(hashes):
            raise ParameterError("id_hashes must be sorted, so that their order says nothing")

    def _check_outcome(self) -> None:
        applied = (self.applied_by, self.generation, self.round)
        if self.state == "applied":
            checks.moment("applied_by", self.applied_by)
            if self.generation is not None:
                _set(self, "generation", checks.count("generation", self.generation, least=1))
            _set(self, "round", checks.count("round", self.round))
        elif applied != (None, None, None):
            raise ParameterError(f"a {self.state} request has no applied_by, generation or round")
        if self.state == "cancelled":
            checks.moment("cancelled_at", self.cancelled_at)
        elif self.cancelled_at is not None:
            raise ParameterError(f"a {self.state} request has no cancelled_at")
        done = self.applied_by or self.cancelled_at
        if done is not None and done < self.accepted_at:
            raise ParameterError(f"a request accepted at {self.accepted_at} cannot have been {self.state} at {done}")

    @property
    def num_records(self) -> int:
        """The number of records to delete, to add and to correct."""
        return self.num_deletions + self.num_additions + self.num_corrections

    @property
    def kind(self) -> Kind:
        """What was asked: deletion, addition, correction, or several of these."""
        if not self.num_additions and not self.num_corrections:
            return "deletion"
        if self.num_deletions or (self.num_additions and self.num_corrections):
            return "mixed"
        return "correction" if self.num_corrections else "addition"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountFacts:
    """A deployment's requests since its creation, and the records it holds.

    Parameters
    ----------
    num_records
        The records it holds.
    accepted
        The requests accepted: the applied, pending and cancelled ones together.
    applied, pending, cancelled
        The requests in each of these states.
    """

    num_records: int
    accepted: int
    applied: int
    pending: int
    cancelled: int

    def __post_init__(self) -> None:
        for each in fields(self):
            _set(self, each.name, checks.count(each.name, getattr(self, each.name)))
        if self.accepted != self.applied + self.pending + self.cancelled:
            raise ParameterError(
                f"of {self.accepted} accepted requests {self.applied} applied, {self.pending} pending and "
                f"{self.cancelled} cancelled do not add up"
            )


@dataclass(frozen=True, slots=True, kw_only=True)
class ExactFacts:
    """The exact promise (T6) as a certificate states it, and the recipe that it compares with.

    When the key was drawn, and what a recomputation found, is told by the log's entries in the certificate.

    Parameters
    ----------
    learner
        What trains a shard's model, such as "LogisticRegression".
    num_shards
        The number of shards, k.
    numerics
        "strict" if everything is retrained when the environment changes, "lenient" if models of several environments
        may be in service together.
    environments
        What the models in service were trained in: pairs of a description and a number of models. Empty if that is not
        recorded. With several environments the promise holds up to rounding.
    note
        Why the promise is not claimed; empty if it is.
    """

    learner: str
    num_shards: int
    numerics: Numerics = "strict"
    environments: tuple[tuple[str, int], ...] = ()
    note: str = ""

    def __post_init__(self) -> None:
        _set(self, "learner", checks.text("learner", self.learner))
        _set(self, "num_shards", require_count("num_shards", self.num_shards, most=MOST_SHARDS))
        require_choice("numerics", self.numerics, get_args(Numerics))
        pairs = checks.sequence_of("environments", self.environments)
        _set(self, "environments", tuple(_environment(pair) for pair in pairs))
        counted = sum(count for _, count in self.environments)
        if self.environments and counted != self.num_shards:
            raise ParameterError(f"the environments must cover {self.num_shards} models, got {counted}")
        _set(self, "note", checks.text("note", self.note, empty=True))

    @property
    def is_mixed(self) -> bool:
        """Whether the models in service come from several environments."""
        return len(self.environments) > 1


@dataclass(frozen=True, slots=True)
class GuaranteeFacts:
    """The (α,β,γ)-unlearning guarantee (Definition 2.3) as a certificate states it.

    Parameters
    ----------
    alpha, beta, gamma
        The numbers of the guarantee.
    theorem
        The name of the bound.
    parameters
        The numbers that the bound was computed from.
    assumptions
        The sentences that it rests on.
    note
        Why no bound could be given. A note makes the guarantee vacuous.
    """

    alpha: float
    beta: float
    gamma: float
    theorem: str = field(default="", kw_only=True)
    parameters: Mapping[str, Parameter] = field(default_factory=dict, kw_only=True, hash=False)
    assumptions: tuple[str, ...] = field(default=(), kw_only=True)
    note: str = field(default="", kw_only=True)

    def __post_init__(self) -> None:
        for name in ("alpha", "beta", "gamma"):
            _set(self, name, checks.number(name, getattr(self, name)))
        _set(self, "theorem", checks.text("theorem", self.theorem, empty=True))
        _set(self, "note", checks.text("note", self.note, empty=True))
        if not isinstance(self.parameters, Mapping):
            raise ParameterError(f"parameters must be an object, got {self.parameters!r:.80}")
        plain = {str(name): _parameter(str(name), value) for name, value in self.parameters.items()}
        _set(self, "parameters", MappingProxyType(plain))
        assumptions = checks.sequence_of("assumptions", self.assumptions)
        _set(self, "assumptions", tuple(checks.text("an assumption", item) for item in assumptions))

    @classmethod
    def of(cls, guarantee: Any) -> Self:
        """Take the facts of an `expunge.Guarantee`. A guarantee that is not in the paper's form is refused."""
        if guarantee.form != "paper":
            raise ParameterError(f"a certificate needs a guarantee in the paper's form, got the {guarantee.form} form")
        return cls(
            guarantee.alpha,
            guarantee.beta,
            guarantee.gamma,
            theorem=guarantee.theorem,
            parameters=guarantee.parameters,
            assumptions=guarantee.assumptions,
            note=guarantee.note,
        )

    @property
    def reason(self) -> str:
        """Why the guarantee is vacuous, by the rule of `expunge.Guarantee`; empty when it is not."""
        return explain_vacuity(self.alpha, self.beta, self.gamma, note=self.note)

    @property
    def is_vacuous(self) -> bool:
        """Whether nothing useful is promised."""
        return bool(self.reason)


def to_data(facts: Any) -> dict[str, Any]:
    """Take the fields of a record of facts, for canonical JSON."""
    return {each.name: _plain(getattr(facts, each.name)) for each in fields(facts)}


def on_tick(deployment: DeploymentFacts, at: str) -> bool:
    """Say whether a time is a tick of the deployment's clock."""
    return is_on_tick(at, tick_seconds=deployment.tick_seconds)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _environment(pair: Any) -> tuple[str, int]:
    """Check a description and a number of models."""
    found = checks.sequence_of("an environment", pair)
    if len(found) != 2:
        raise ParameterError(f"an environment must be a description and a number of models, got {found!r:.80}")
    return checks.text("an environment", found[0]), checks.count("models of an environment", found[1], least=1)


def _parameter(name: str, value: Any) -> Parameter:
    """Check a number, text or None, and turn NumPy's numbers into Python's own."""
    if hasattr(value, "item"):
        value = value.item()
    if value == INFINITY:
        return math.inf
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return checks.text(f"the parameter {name}", value, empty=True)
    if isinstance(value, int):
        return value if abs(value) <= LARGEST_INTEGER else _large(name, value)
    if isinstance(value, float) and not math.isnan(value) and value != -math.inf:
        return value
    raise InputError(f"the parameter {name} of a guarantee must be a number or text, got {value!r:.80}")


def _set(facts: object, name: str, value: object) -> None:
    object.__setattr__(facts, name, value)


def _large(name: str, value: int) -> float:
    """Turn a whole number that is too large for canonical JSON into a float."""
    try:
        return float(value)
    except OverflowError:
        raise ParameterError(f"the parameter {name} of a guarantee is too large to be written") from None
