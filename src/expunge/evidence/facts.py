"""What a certificate says, as plain facts that the deployment fills in.

Every fact here is public. There is no place for shards touched, votes, or how long a retraining took; points in time
that show the end of a retraining are rounded up to the clock tick. Two facts depend on the secret randomness all the
same: the generation, by whether a consensus failed, which the guarantee pays for; and the round, where requests that
come during a training are applied together after it, which applying on a clock prevents.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from types import MappingProxyType
from typing import Any, Final, Literal, Self, get_args

from expunge.core.errors import InputError, ParameterError
from expunge.core.guarantee import Parameter, explain_vacuity
from expunge.core.words import is_on_tick, require_tick
from expunge.evidence import checks as _require
from expunge.evidence.canonical import INFINITY

State = Literal["pending", "applied", "cancelled"]
Kind = Literal["deletion", "addition", "mixed"]
_LARGEST_INTEGER: Final = 2**63 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class DeploymentFacts:
    """Which deployment. `tick_seconds` is the clock on which it shows that work was done."""

    deployment_id: str
    name: str
    created_at: str
    tick_seconds: int
    sampler_is_independent: bool

    def __post_init__(self) -> None:
        _set(self, "deployment_id", _require.text("deployment_id", self.deployment_id))
        _set(self, "name", _require.text("name", self.name))
        _require.moment("created_at", self.created_at)
        require_tick(self.tick_seconds)
        _require.flag("sampler_is_independent", self.sampler_is_independent)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublicationFacts:
    """Where the deployment stood when the certificate was issued.

    `predictions_published` counts those of this generation so far; `predictions_covered` is how many the guarantee
    covers in a generation, None (or infinity) for any number.
    """

    generation: int
    round: int
    predictions_published: int
    predictions_covered: int | None

    def __post_init__(self) -> None:
        _set(self, "generation", _require.count("generation", self.generation, least=1))
        _set(self, "round", _require.count("round", self.round))
        _set(self, "predictions_published", _require.count("predictions_published", self.predictions_published))
        covered: Any = self.predictions_covered
        if covered is not None and covered != math.inf:
            covered = _require.count("predictions_covered", covered)
        _set(self, "predictions_covered", None if covered == math.inf else covered)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestFacts:
    """What was asked, and what became of it.

    `applied_by` is on the deployment's clock tick; `generation` and `round` are those in which it was applied.
    `id_hashes` are keyed hashes (`hash_ids`), one for each record, or none at all; never ids.
    """

    request_id: str
    num_deletions: int
    num_additions: int
    accepted_at: str
    state: State
    applied_by: str | None = None
    generation: int | None = None
    round: int | None = None
    cancelled_at: str | None = None
    id_hashes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _set(self, "request_id", _require.text("request_id", self.request_id))
        _set(self, "num_deletions", _require.count("num_deletions", self.num_deletions))
        _set(self, "num_additions", _require.count("num_additions", self.num_additions))
        if not self.num_records:
            raise ParameterError("a request must ask for at least one record")
        _require.moment("accepted_at", self.accepted_at)
        if self.state not in get_args(State):
            raise ParameterError(f"state must be one of {', '.join(get_args(State))}, got {self.state!r:.80}")
        self._check_outcome()
        hashes = _require.sequence_of("id_hashes", self.id_hashes)
        _set(self, "id_hashes", tuple(_require.digest("an id hash", item) for item in hashes))
        if hashes and len(hashes) != self.num_records:
            raise ParameterError(f"there must be {self.num_records} id_hashes, one for each record, got {len(hashes)}")
        if list(hashes) != sorted(hashes):
            raise ParameterError("id_hashes must be sorted, so that their order says nothing")

    def _check_outcome(self) -> None:
        applied = (self.applied_by, self.generation, self.round)
        if self.state == "applied":
            _require.moment("applied_by", self.applied_by)
            _set(self, "generation", _require.count("generation", self.generation, least=1))
            _set(self, "round", _require.count("round", self.round))
        elif applied != (None, None, None):
            raise ParameterError(f"a {self.state} request has no applied_by, generation or round")
        if self.state == "cancelled":
            _require.moment("cancelled_at", self.cancelled_at)
        elif self.cancelled_at is not None:
            raise ParameterError(f"a {self.state} request has no cancelled_at")
        done = self.applied_by or self.cancelled_at
        if done is not None and done < self.accepted_at:
            raise ParameterError(f"a request accepted at {self.accepted_at} cannot have been {self.state} at {done}")

    @property
    def num_records(self) -> int:
        """Records asked for."""
        return self.num_deletions + self.num_additions

    @property
    def kind(self) -> Kind:
        """What was asked."""
        if not self.num_additions:
            return "deletion"
        return "mixed" if self.num_deletions else "addition"


@dataclass(frozen=True, slots=True, kw_only=True)
class CountFacts:
    """A deployment's requests since its creation, and the records it holds."""

    num_records: int
    accepted: int
    applied: int
    pending: int
    cancelled: int

    def __post_init__(self) -> None:
        for each in fields(self):
            _set(self, each.name, _require.count(each.name, getattr(self, each.name)))
        if self.accepted != self.applied + self.pending + self.cancelled:
            raise ParameterError(
                f"of {self.accepted} accepted requests {self.applied} applied, {self.pending} pending and "
                f"{self.cancelled} cancelled do not add up"
            )


@dataclass(frozen=True, slots=True)
class GuaranteeFacts:
    """The (α,β,γ)-unlearning guarantee (Definition 2.3), with where it comes from.

    `theorem` names the bound, `parameters` are the numbers it was computed from, `assumptions` are what it rests on,
    and `note` says why no bound could be given.
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
            _set(self, name, _require.number(name, getattr(self, name)))
        _set(self, "theorem", _require.text("theorem", self.theorem, empty=True))
        _set(self, "note", _require.text("note", self.note, empty=True))
        if not isinstance(self.parameters, Mapping):
            raise ParameterError(f"parameters must be an object, got {self.parameters!r:.80}")
        plain = {str(name): _parameter(str(name), value) for name, value in self.parameters.items()}
        _set(self, "parameters", MappingProxyType(plain))
        assumptions = _require.sequence_of("assumptions", self.assumptions)
        _set(self, "assumptions", tuple(_require.text("an assumption", item) for item in assumptions))

    @classmethod
    def of(cls, guarantee: Any) -> Self:
        """The facts of an `expunge.Guarantee`; only the paper's form of one is ever certified."""
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
        """Why the guarantee is vacuous; empty when it is not. The rule is that of `Guarantee.reason`."""
        return explain_vacuity(self.alpha, self.beta, self.gamma, note=self.note)

    @property
    def is_vacuous(self) -> bool:
        """Whether nothing useful is promised."""
        return bool(self.reason)


def to_data(facts: Any) -> dict[str, Any]:
    """The fields of a record of facts, for canonical JSON."""
    return {each.name: _plain(getattr(facts, each.name)) for each in fields(facts)}


def on_tick(deployment: DeploymentFacts, at: str) -> bool:
    """Whether a time is a tick of the deployment's clock."""
    return is_on_tick(at, tick_seconds=deployment.tick_seconds)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return dict(value)
    return list(value) if isinstance(value, tuple) else value


def _parameter(name: str, value: Any) -> Parameter:
    """A number, text or nothing; NumPy's numbers become Python's own."""
    if hasattr(value, "item"):
        value = value.item()
    if value == INFINITY:
        return math.inf
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return _require.text(f"the parameter {name}", value, empty=True)
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_INTEGER else _large(name, value)
    if isinstance(value, float) and not math.isnan(value) and value != -math.inf:
        return value
    raise InputError(f"the parameter {name} of a guarantee must be a number or text, got {value!r:.80}")


def _set(facts: object, name: str, value: object) -> None:
    object.__setattr__(facts, name, value)


def _large(name: str, value: int) -> float:
    """A whole number that canonical JSON has no room for."""
    try:
        return float(value)
    except OverflowError:
        raise ParameterError(f"the parameter {name} of a guarantee is too large to be written") from None
