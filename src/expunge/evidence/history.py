"""What the log's entries in a certificate say about the recipe key in force, and about recomputations."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Final, Literal, Self, get_args

from expunge.core.checks import require_choice, require_count, require_flag
from expunge.core.errors import InputError, ParameterError
from expunge.evidence import checks
from expunge.evidence.ledger import Entry

Reason = Literal["by hand", "on a clock", "generation used up", "restored from a back-up"]
Choice = Literal["auditor's seed", "checkpoint", "software"]

#: Why a key was renewed, as a `generation` entry tells it, and as a certificate says it.
RENEWALS: Final[Mapping[Reason, str]] = MappingProxyType(
    {
        "by hand": (
            "it was renewed by hand, so the operator chose the moment, and could look at records and models before it"
        ),
        "on a clock": "it was renewed on a clock, because the key before it had reached a fixed age",
        "generation used up": (
            "it was renewed by the software, because the generation before it was used up; that depends on what was "
            "asked and answered"
        ),
        "restored from a back-up": "it was renewed because the deployment was restored from a back-up",
    }
)
#: The events that commit to the key in force. A `round` entry, under a consensus, does not say when it was drawn.
KEY_EVENTS: Final = frozenset({"created", "generation", "round"})
_RECIPE: Final = frozenset({"learner", "num_shards", "sampler", "promise"})
_ENOUGH: Final = 1000  # factors of a probability that are multiplied to the end
_SMALL: Final = Fraction(1, 10**9)


@dataclass(frozen=True, slots=True)
class KeyDraw:
    """When the recipe key in force was drawn, and why.

    Parameters
    ----------
    at
        When its entry was made, such as 2026-11-16T02:00:00Z.
    commitment
        The commitment to the key; None if there is none.
    reason
        Why the key before it was replaced: one of `RENEWALS`. None at the creation of the deployment, or if it is not
        told.
    is_of_round
        Whether the commitment is made for one round and `at` is its time, so that a renewal of the key does not show.
    witness
        The key of the witness whose nonce went into the recipe key, as one line; None if no witness had a part in it.
    unused
        How many commitments for a witness the log holds, since the key before, that no key followed from.
    """

    at: str
    commitment: str | None
    reason: Reason | None
    is_of_round: bool = False
    witness: str | None = None
    unused: int = 0

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Read a `created`, `generation` or `round` entry."""
        commitment, reason = entry.facts.get("key_commitment"), entry.facts.get("reason")
        witness = entry.facts.get("witness")
        if commitment is not None:
            checks.digest("key_commitment", commitment)
        if reason is not None:
            require_choice("reason", reason, get_args(Reason))
        if witness is not None:
            checks.text("witness", witness)
        unused = 0 if witness is None else checks.count("unused", entry.facts.get("unused"))
        return cls(entry.at, commitment, reason, entry.event == "round", witness, unused)


@dataclass(frozen=True, slots=True)
class RecomputationFacts:
    """What the log tells of a recomputation.

    Parameters
    ----------
    at
        When it was recorded.
    generation, round
        The moment that the models belong to. The generation is None under a consensus.
    num_checked
        How many shards were trained again.
    num_different
        In how many of them the model in service was another one; None where that is not told.
    agrees
        Whether all agreed, and the key was the one that the log committed to.
    chosen_by
        What decided which shards were trained again: "auditor's seed", "checkpoint" or "software".
    checkpoint
        The SHA-256 of the checkpoint's file, if it decided; else None.
    """

    at: str
    generation: int | None
    round: int
    num_checked: int
    num_different: int | None
    agrees: bool
    chosen_by: Choice
    checkpoint: str | None

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Read a `recomputed` entry."""
        facts: Mapping[str, Any] = entry.facts
        different, checkpoint = facts.get("num_different"), facts.get("checkpoint")
        checked = checks.count("num_checked", facts.get("num_checked"), least=1)
        if different is not None:
            require_count("num_different", different, least=0, most=checked)
        if require_flag("agrees", facts.get("agrees")) and different:
            raise ParameterError(f"it cannot agree when {different} models differ")
        require_choice("chosen_by", facts.get("chosen_by"), get_args(Choice))
        if (checkpoint is not None) != (facts["chosen_by"] == "checkpoint"):
            raise ParameterError("a checkpoint is named if, and only if, it chose the shards")
        if "models" in facts:
            checks.digest("models", facts["models"])
        return cls(
            entry.at,
            checks.count("generation", facts["generation"], least=1) if "generation" in facts else None,
            checks.count("round", facts.get("round")),
            checked,
            different,
            facts["agrees"],
            facts["chosen_by"],
            None if checkpoint is None else checks.digest("checkpoint", checkpoint),
        )


def is_recipe(entry: Entry) -> bool:
    """Whether an entry tells of another recipe: another learner or number of shards, or that of a back-up."""
    return entry.event in ("schema", "restored") and "learner" in entry.facts


@dataclass(frozen=True, slots=True)
class RestorationFacts:
    """What the log tells of a restore from a back-up.

    Parameters
    ----------
    at
        When it was made.
    entries
        How many entries the log of the back-up had.
    continued
        Whether the log goes on after the entries that came later, so that it was known what was deleted since.
    """

    at: str
    entries: int
    continued: bool

    @classmethod
    def of(cls, entry: Entry) -> Self:
        """Read a `restored` entry."""
        entries = checks.count("entries", entry.facts.get("entries"), least=1)
        return cls(entry.at, entries, require_flag("continued", entry.facts.get("continued")))


@dataclass(frozen=True, slots=True)
class History:
    """What entries say about the key in force and about recomputations.

    Parameters
    ----------
    key
        When the key in force was drawn; None if that is not shown.
    recomputation
        The last recomputation; None if none is shown.
    disagreement
        A recomputation that found other models than the recipe gives, since which the entries show neither a full
        retraining nor that every shard was found to agree; None if there is none.
    restoration
        The restore from a back-up after which the recipe was not changed; None if none is shown.

    A recomputation of models by an earlier recipe (another learner or number of shards) is left out.

    Examples
    --------
    >>> History.of([]).recomputation is None
    True
    """

    key: KeyDraw | None = None
    recomputation: RecomputationFacts | None = None
    disagreement: RecomputationFacts | None = None
    restoration: RestorationFacts | None = None

    @classmethod
    def of(cls, entries: Iterable[Entry], *, num_shards: int = 0) -> Self:
        """Read it from entries, in their order. An entry that is malformed raises an InputError that names it.

        Parameters
        ----------
        entries
            Entries of a log, in their order.
        num_shards
            The number of shards k, by which a recomputation of every shard is recognised.

        Returns
        -------
        History
            What they say.

        Raises
        ------
        InputError
            If an entry tells something impossible.
        """
        key = last = disagreement = restoration = None
        for entry in entries:
            try:
                if entry.event in KEY_EVENTS:
                    key = KeyDraw.of(entry)
                    disagreement = disagreement if entry.event == "round" else None
                elif is_recipe(entry):
                    last = disagreement = None
                    restoration = RestorationFacts.of(entry) if entry.event == "restored" else None
                elif entry.event == "recomputed":
                    last = RecomputationFacts.of(entry)
                    if not last.agrees:
                        disagreement = last
                    elif last.num_checked == num_shards:
                        disagreement = None
            except InputError as error:
                raise InputError(f"entry {entry.sequence}: {error}") from None
        return cls(key, last, disagreement, restoration)


def telling_entries(entries: Iterable[Entry], *, num_shards: int) -> list[Entry]:
    """The entries that a certificate rests on: those of the recipe, of the key, and of recomputations that count.

    Parameters
    ----------
    entries
        All entries of a log, in their order.
    num_shards
        The number of shards k.

    Returns
    -------
    list of Entry
        A few entries, in their order.

    Examples
    --------
    >>> telling_entries([], num_shards=10)
    []
    """
    recipe: dict[str, Entry] = {}
    key: list[Entry] = []
    retrained: list[Entry] = []
    last: list[Entry] = []
    disagreement: list[Entry] = []
    commitments: dict[int, Entry] = {}
    for entry in entries:
        if entry.event == "committed":
            commitments[entry.sequence] = entry
        recipe |= dict.fromkeys(_RECIPE & entry.facts.keys(), entry)
        if is_recipe(entry):
            last, disagreement = [], []
        if entry.event in KEY_EVENTS:
            key = [entry]
        if entry.event in KEY_EVENTS - {"round"}:
            retrained, disagreement = [entry], []
        elif entry.event == "recomputed":
            last = [entry]
            if not entry.facts.get("agrees"):
                disagreement = [entry]
            elif entry.facts.get("num_checked") == num_shards:
                disagreement = []
    settled = retrained if last and not last[0].facts.get("agrees") and not disagreement else []
    committed = [commitments[number] for each in key if (number := each.facts.get("committed")) in commitments]
    chosen = {entry.sequence: entry for entry in (*recipe.values(), *committed, *key, *settled, *last, *disagreement)}
    return [chosen[number] for number in sorted(chosen)]


def detection_chance(num_shards: int, num_checked: int, num_stale: int) -> Fraction:
    """The chance that shards drawn at random include a stale one (hypergeometric).

    Parameters
    ----------
    num_shards
        The number of shards k.
    num_checked
        How many are drawn, m.
    num_stale
        How many of the k are stale, s.

    Returns
    -------
    Fraction
        1 − C(k−s, m) / C(k, m), exactly if m or s is at most 1,000. Beyond that it may be too small, by at most 10⁻⁹.

    Raises
    ------
    ParameterError
        If a number is negative, or more than k are drawn or stale.

    Examples
    --------
    >>> detection_chance(10, 4, 1)
    Fraction(2, 5)
    """
    stale = require_count("num_stale", num_stale, least=0, most=num_shards)
    drawn = require_count("num_checked", num_checked, least=0, most=num_shards)
    fewer, more = min(stale, drawn), max(stale, drawn)
    missed = rest = 1
    for place in range(fewer):
        missed, rest = missed * max(0, num_shards - more - place), rest * (num_shards - place)
        if place >= _ENOUGH and missed < rest * _SMALL:
            break  # every further factor is at most one
    return 1 - Fraction(missed, rest)
