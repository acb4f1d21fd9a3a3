"""Recomputation: train shards again from the records and the recipe, and compare bits with what is in service.

Under the exact promise (T6) every model is a function of the records that are left and of the recipe with its key ζ. So
an auditor who has these can check what updates did, without trusting the code that did them.
"""

from __future__ import annotations

import hashlib
import heapq
import os
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Any, Final, Literal

from expunge.core.checks import require_count
from expunge.core.errors import InputError, ParameterError, RequestError, StoreError
from expunge.core.files import read_bounded
from expunge.core.words import percent_at_least, plural, utc
from expunge.evidence import Checkpoint, NoteKey, detection_chance
from expunge.folder.codec import encode_model
from expunge.folder.disclosure import Disclosure, disclose, is_bundle, recording
from expunge.training.ensemble import Advance, ignore_progress, retrain
from expunge.training.environment import Environment

DEFAULT_SHARDS = 20
Choice = Literal["auditor's seed", "checkpoint", "software"]
KeyCheck = Literal["matches", "differs", "not recorded"]
EnvironmentCheck = Literal["same", "different"]
_FRACTIONS = (Fraction(1, 100), Fraction(1, 20), Fraction(1, 10), Fraction(1, 4))
_EVERY = (
    "Every shard was checked: one stale model would have been found. Nothing in these models depends on a record that "
    "is not among these, unless the recipe itself was chosen by looking at it."
)
_NOT_SERVED = (
    "It does not show that these models are what answers people, or all that does: only that they are kept here."
)
_NOT_COMPLETE = "It does not show that the records are complete, or that a deleted record is in no other copy."
_NOT_RANDOM_KEY = (
    "It does not show that the key was not picked among many: that it was drawn once is the operator's word."
)
_WITNESSED_KEY = (
    "The key was drawn with a witness, {}. The log commits to the operator's part before the witness answered, so the "
    "operator could not pick the key, unless the witness works with the operator. Since the key before, the log holds "
    "{} that no key followed from."
)
_NOT_FRONT = "It does not check what stands before the models (noise, a router, a student), or the log of requests."
_NOT_FRESH = (
    "It compares with training by the same recipe, key included. It says nothing about training with fresh randomness: "
    "no (alpha, beta, gamma) follows from it."
)
_CHOSEN_LATE = (
    "It counts only if the auditor chose the shards, and chose them after the models were committed to: an operator "
    "who knows the choice beforehand can repair those shards alone."
)
_BUNDLE_FIRST = (
    "The signed bundle commits to the models. So it must have been in the auditor's hands before the seed was chosen "
    "or the checkpoint was made."
)
_FOLDER_FIRST = (
    "It was made in the deployment's folder, and nothing committed to the models before the shards were chosen. An "
    "auditor who does not sit at the machine should ask for a bundle first (`expunge export --for-audit`)."
)
_NOT_COSIGNED = (
    "Nobody's cosignature of the checkpoint was checked. An operator who made it could make others until one "
    "drew the shards that suit."
)
_COSIGNED_OFTEN = (
    "The operator may have asked the witness more than once, and have taken the cosignature that suited. Ask the "
    "witness yourself, or agree on the checkpoint beforehand."
)
_OWN_CHOICE = "The software drew the shards. On the operator's machine the draw could have been repeated."
_MOST_CHECKPOINT: Final = 2**20


@dataclass(frozen=True, slots=True)
class Recomputation:
    """What a recomputation found. Which shards differ depends on ζ: under (α,β,γ) keep it inside.

    Parameters
    ----------
    name
        The deployment's name.
    source
        What was read: a deployment's folder or a bundle.
    generation, round
        The moment that the models belong to.
    num_records, num_shards
        The number of records, and of shards (k).
    checked
        The shards that were trained again, ascending.
    different
        Those whose model in service is another one, ascending.
    seed
        The auditor's seed that the shards were chosen with; None if there was none.
    checkpoint
        The SHA-256 of the checkpoint that the shards were chosen with; None if there was none. Without a seed and a
        checkpoint the software drew them.
    cosigned_by
        The witnesses whose cosignatures of the checkpoint were checked, each with its time.
    key
        Whether ζ fits the commitment in the deployment's log.
    commitment
        The commitment to the key that was used.
    drawn_with
        The key of the witness that had a part in ζ, as one line; None if none had, and the choice of ζ is the
        operator's word.
    unused
        How many commitments for a witness the log holds, since the key before, that no key followed from.
    draw_fault
        Why ζ was not drawn as the log tells; empty if it was, or no witness had a part in it.
    environment
        Whether this machine and its libraries are those that the models were trained with.
    changed
        What differs in the environment: by name, the value recorded and the value here.
    signed_by
        The fingerprint of the key that signed the bundle; None for a folder.
    is_recorded
        Whether the result was written into the folder's log.
    not_recorded
        Why it was not, where it was to be recorded if possible; empty otherwise.

    Examples
    --------
    >>> found = Recomputation("churn", "folder", 1, 0, 900, 100, tuple(range(20)), ())
    >>> found.agrees
    True
    >>> found.chance_of_detection(10)
    Fraction(144127874, 159277783)
    """

    name: str
    source: Literal["folder", "bundle"]
    generation: int
    round: int
    num_records: int
    num_shards: int
    checked: tuple[int, ...]
    different: tuple[int, ...]
    seed: str | None = None
    checkpoint: str | None = None
    cosigned_by: tuple[tuple[str, str], ...] = ()
    key: KeyCheck = "matches"
    commitment: str = ""
    drawn_with: str | None = None
    unused: int = 0
    draw_fault: str = ""
    environment: EnvironmentCheck = "same"
    changed: tuple[tuple[str, str, str], ...] = ()
    signed_by: str | None = None
    is_recorded: bool = False
    not_recorded: str = ""

    @property
    def agrees(self) -> bool:
        """Whether every model that was checked is the recipe's, and the key is the one that was committed to."""
        return not self.different and self.key != "differs" and not self.draw_fault

    @property
    def chosen_by(self) -> Choice:
        """What decided which shards were checked: "auditor's seed", "checkpoint" or "software"."""
        return "checkpoint" if self.checkpoint is not None else "software" if self.seed is None else "auditor's seed"

    @property
    def num_agreeing(self) -> int:
        """How many of the shards that were checked agree."""
        return len(self.checked) - len(self.different)

    def chance_of_detection(self, num_stale: int) -> Fraction:
        """The exact chance that shards drawn like these include one of so many stale ones (hypergeometric).

        Parameters
        ----------
        num_stale
            How many of the k shards are not what the recipe gives.

        Returns
        -------
        Fraction
            1 − C(k − s, m) / C(k, m), which is at least 1 − (1 − s/k)^m. Exact if s or m is at most 1,000.

        Raises
        ------
        ParameterError
            If it is not a number from 0 to k.
        """
        return detection_chance(self.num_shards, len(self.checked), num_stale)

    @property
    def verdict(self) -> str:
        """The result in one sentence."""
        every = "every shard" if len(self.checked) == self.num_shards else "every shard that was checked"
        if self.key == "differs":
            return "The key is not the one that the log committed to: these models do not follow from that recipe."
        if self.draw_fault:
            return f"The key was not drawn as the log tells: {self.draw_fault}."
        if not self.different:
            return f"The recomputation agrees: the model of {every} is, bit for bit, what the recipe gives."
        return (
            f"The recomputation does not agree: {plural(len(self.different), 'model')} of {len(self.checked):,} in "
            "service are not what the recipe gives on these records."
        )

    @property
    def shows(self) -> tuple[str, ...]:
        """What the result shows, in sentences."""
        if not self.agrees:
            return tuple(self._explanations())
        drawn = (
            ()
            if self.drawn_with is None
            else (_WITNESSED_KEY.format(self.drawn_with, plural(self.unused, "commitment")),)
        )
        if len(self.checked) == self.num_shards:
            return (_EVERY, *drawn)
        counts = dict.fromkeys([1, *(-int(-share * self.num_shards // 1) for share in _FRACTIONS)])
        lines = [
            f"If {count:,} of the {self.num_shards:,} {'shard' if self.num_shards == 1 else 'shards'} "
            f"({100 * count / self.num_shards:.2g}%) had stale models, this would have been found with a probability "
            f"of at least {percent_at_least(self.chance_of_detection(count))}."
            for count in sorted(counts)
        ]
        return (*lines, *drawn)

    def _explanations(self) -> list[str]:
        lines = []
        if self.different and self.environment == "different":
            lines.append(
                "The environment is not the one that the models were trained in, which can change last bits. Repeat "
                "the recomputation there before you conclude anything."
            )
        if self.different:
            lines.append(
                "In the same environment this means that a model is stale or was changed, that records were changed, "
                "or that the learner is not deterministic."
            )
        return lines

    @property
    def does_not_show(self) -> tuple[str, ...]:
        """What the result does not show, in sentences."""
        first = _BUNDLE_FIRST if self.source == "bundle" else _FOLDER_FIRST
        weak = {
            "software": _OWN_CHOICE,
            "checkpoint": _COSIGNED_OFTEN if self.cosigned_by else _NOT_COSIGNED,
        }.get(self.chosen_by)
        drawn = () if weak is None or len(self.checked) == self.num_shards else (weak,)
        key = () if self.drawn_with is not None and not self.draw_fault else (_NOT_RANDOM_KEY,)
        return (_CHOSEN_LATE, first, *drawn, _NOT_SERVED, _NOT_COMPLETE, *key, _NOT_FRONT, _NOT_FRESH)

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain data."""
        return {
            "agrees": self.agrees,
            "verdict": self.verdict,
            "name": self.name,
            "source": self.source,
            "generation": self.generation,
            "round": self.round,
            "num_records": self.num_records,
            "num_shards": self.num_shards,
            "num_checked": len(self.checked),
            "num_agreeing": self.num_agreeing,
            "checked": list(self.checked),
            "different": list(self.different),
            "chosen_by": self.chosen_by,
            "seed": self.seed,
            "checkpoint": self.checkpoint,
            "cosigned_by": [list(each) for each in self.cosigned_by],
            "key": self.key,
            "commitment": self.commitment,
            "drawn_with": self.drawn_with,
            "unused": self.unused,
            "draw_fault": self.draw_fault,
            "environment": self.environment,
            "changed": [list(each) for each in self.changed],
            "signed_by": self.signed_by,
            "is_recorded": self.is_recorded,
            "not_recorded": self.not_recorded,
            "shows": list(self.shows),
            "does_not_show": list(self.does_not_show),
        }


def choose_shards(
    num_shards: int, shards: int | Literal["all"], *, seed: str | int | None = None, checkpoint: str | None = None
) -> list[int]:
    """Draw shards at random, without replacement. With a seed or a checkpoint anybody can repeat the draw.

    The shards are those whose SHA-256 of `digest` and of the shard's number in decimal digits comes first. `digest` is
    the checkpoint's SHA-256; or the SHA-256 of `expunge seed`, a zero byte and the seed; or 32 random bytes.

    Parameters
    ----------
    num_shards
        k.
    shards
        How many; "all", or more than k, means all of them.
    seed
        The auditor's seed, any text. Without one, and without a checkpoint, the operating system draws.
    checkpoint
        The SHA-256 of a checkpoint of the log, in hexadecimal, instead of a seed.

    Returns
    -------
    list of int
        The shards, ascending.

    Raises
    ------
    ParameterError
        If `shards` is neither a positive number nor "all", the seed is empty, or there are a seed and a checkpoint.

    Examples
    --------
    >>> choose_shards(3, 20)
    [0, 1, 2]
    >>> choose_shards(100, 3, seed="the dice say 41626")
    [60, 70, 72]
    """
    wanted = num_shards if shards == "all" else require_count("shards", shards)
    if seed is not None and checkpoint is not None:
        raise ParameterError("the shards are chosen by a seed or by a checkpoint: give one of them")
    if checkpoint is not None:
        digest = bytes.fromhex(checkpoint)
    elif seed is not None:
        digest = hashlib.sha256(b"expunge seed\0" + _seed_text(seed).encode()).digest()
    else:
        digest = secrets.token_bytes(32)
    if wanted >= num_shards:
        return list(range(num_shards))
    ranks = ((hashlib.sha256(digest + b"%d" % shard).digest(), shard) for shard in range(num_shards))
    return sorted(shard for _, shard in heapq.nsmallest(wanted, ranks))


def _seed_text(seed: object) -> str:
    text = str(seed) if isinstance(seed, int) and not isinstance(seed, bool) else seed
    if not isinstance(text, str) or not text.strip():
        raise ParameterError(f"seed must be a text or a whole number, got {seed!r:.80}")
    return text


def digest_checkpoint(path: str | os.PathLike[str]) -> str:
    """The SHA-256 of a checkpoint's file.

    Parameters
    ----------
    path
        The file. Its content is not interpreted.

    Returns
    -------
    str
        64 hexadecimal digits.

    Raises
    ------
    InputError
        If the file cannot be read, is empty, or is larger than a checkpoint can be.
    """
    return hashlib.sha256(_read_checkpoint(path)).hexdigest()


def _read_checkpoint(path: str | os.PathLike[str]) -> bytes:
    try:
        data = read_bounded(path, most=_MOST_CHECKPOINT)
    except OSError as error:
        raise InputError(f"the checkpoint {path} cannot be read: {error.strerror or error}") from None
    if not data or len(data) > _MOST_CHECKPOINT:
        raise InputError(f"the checkpoint {path} must have from 1 to {_MOST_CHECKPOINT:,} bytes")
    return data


def _only_cosigned(path: str | os.PathLike[str], witnesses: Sequence[NoteKey]) -> Checkpoint:
    """Read a checkpoint, and leave nothing of it but what the log and these witnesses signed: it decides a draw."""
    try:
        found = Checkpoint.parse(_read_checkpoint(path).decode(errors="replace"))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    for witness in witnesses:
        if found.cosigned_at(witness) is None:
            raise InputError(f"the checkpoint {path} is not cosigned by {witness.name}")
    names = {(each.name, each.id) for each in witnesses}
    ours = sorted((each for each in found.signatures if (each.name, each.id) in names), key=str)
    return replace(found, signatures=tuple(ours))


def _require_log(path: str | os.PathLike[str], log: NoteKey) -> None:
    """Raise an error unless a checkpoint is one of this log."""
    found = Checkpoint.parse(_read_checkpoint(path).decode(errors="replace"))
    if found.origin != log.name or not found.is_signed_by(log):
        raise InputError(f"the checkpoint {path} is not signed by the log of this deployment, {log.name}")


def recompute(
    source: str | os.PathLike[str],
    *,
    shards: int | Literal["all"] = DEFAULT_SHARDS,
    seed: str | int | None = None,
    checkpoint: str | os.PathLike[str] | None = None,
    witnesses: Sequence[NoteKey] = (),
    trust: Sequence[str] = (),
    record: bool | None = False,
    advance: Advance = ignore_progress,
) -> Recomputation:
    """Train shards chosen at random again, and compare the bytes of their models with those in service (T6).

    Membership, order, slices and seeds are derived from the key ζ and the records; nothing that an update left behind
    is used. Nothing is changed, and another process may be serving the folder.

    If s of k shards are stale and m are checked, this is found with probability 1 − C(k−s, m)/C(k, m), at least
    1 − (1 − s/k)^m, provided that the shards are chosen by the auditor and after the models were committed to. It does
    not show that these models are what is served, that the records are complete, or that ζ was not picked among many.

    Parameters
    ----------
    source
        A deployment's folder, or a bundle of `export_for_audit`.
    shards
        How many shards to check; "all", or more than there are, means all of them.
    seed
        The auditor's seed that the shards are chosen by, any text. Without one the operating system draws.
    checkpoint
        A file that the shards are chosen by instead: a checkpoint of the log that witnesses have signed after the
        models were committed to. Its SHA-256 decides, so that the auditor need not be trusted either.
    witnesses
        The keys of the witnesses who must have cosigned the checkpoint. Then it must be one of this deployment's log,
        and the SHA-256 is of what these witnesses signed: other lines in the file do not count.
    trust
        The modules or classes of your own that the folder was created with.
    record
        Whether to write the result into the folder's log. With True the folder is held meanwhile: no other process may
        have it open. With None the result is written afterwards, if the folder is free then and in the same round;
        `not_recorded` says why it was not. One that disagrees in another environment, which proves nothing, is not.
    advance
        Called with the number of models trained since the last call.

    Returns
    -------
    Recomputation
        Which shards agree, and what that shows.

    Raises
    ------
    FormatError
        If the source is neither a deployment nor a bundle, has another format version, or is damaged; or if a bundle
        was changed after it was signed.
    ParameterError
        If an option is wrong, or the result for a bundle is to be recorded.
    ModelFormatError
        If the learner is made of code that is not trusted.
    TrainingError
        If a shard cannot be trained.
    InputError
        If the checkpoint cannot be read.
    FolderBusyError
        If the result is to be recorded, and another process has the folder open.

    Examples
    --------
    >>> import tempfile, pathlib
    >>> import numpy as np
    >>> from sklearn.naive_bayes import GaussianNB
    >>> import expunge
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "churn"
    >>> X, y = np.arange(40.0).reshape(20, 2), np.arange(20) % 2
    >>> with expunge.create(path, GaussianNB(), X, y, n_shards=3) as deployment:
    ...     receipt = deployment.delete([7])
    >>> recompute(path, shards="all").agrees
    True
    """
    if record and is_bundle(source):
        raise ParameterError("a result is recorded in a deployment's folder, and this is a bundle")
    if witnesses and checkpoint is None:
        raise ParameterError("witnesses cosign a checkpoint, and none was given")
    digest, cosigned_by = None, tuple[tuple[str, str], ...]()
    if checkpoint is not None and witnesses:
        cosigned = _only_cosigned(checkpoint, witnesses)
        digest = hashlib.sha256(str(cosigned).encode()).hexdigest()
        cosigned_by = tuple((each.name, utc(cosigned.cosigned_at(each) or 0)) for each in witnesses)
    elif checkpoint is not None:
        digest = digest_checkpoint(checkpoint)
    choose_shards(1, shards, seed=seed, checkpoint=digest)  # refuses wrong options before anything is read
    text, begun = None if seed is None else _seed_text(seed), time.time()
    with recording(source) if record else nullcontext() as write:
        found = disclose(source, shards=lambda k: choose_shards(k, shards, seed=text, checkpoint=digest))
        if checkpoint is not None and witnesses:
            _require_log(checkpoint, found.log_key)
        result = replace(_compared(found, text, digest, trust, advance), cosigned_by=cosigned_by)
        if write is not None:
            _write(write, result)
            result = replace(result, is_recorded=True)
    if record is None and result.source == "folder":
        result = _recorded_if_possible(source, result, begun)
    return result


def _write(write: Callable[..., None], result: Recomputation) -> None:
    write(
        generation=result.generation,
        round=result.round,
        num_checked=len(result.checked),
        num_different=len(result.different),
        agrees=result.agrees,
        chosen_by=result.chosen_by,
        checkpoint=result.checkpoint,
    )


def _recorded_if_possible(source: str | os.PathLike[str], result: Recomputation, begun: float) -> Recomputation:
    if result.different and result.environment == "different":
        return replace(result, not_recorded="in another environment a difference proves nothing")
    try:
        with recording(source, begun=begun) as write:
            _write(write, result)
    except (RequestError, StoreError) as error:
        return replace(result, not_recorded=str(error))
    return replace(result, is_recorded=True)


def _compared(
    found: Disclosure, seed: str | None, checkpoint: str | None, trust: Sequence[str], advance: Advance
) -> Recomputation:
    state, checked, different = found.state(trust=trust), tuple(found.models), []
    for shard, model in zip(checked, retrain(state, checked, advance=advance), strict=True):
        served = found.models[shard]
        if served is None:
            different.append(shard)
            continue
        stored = encode_model(state.learner, model, trusted=tuple(trust), beside_records=True)
        if not served.opens_to(stored):
            different.append(shard)
    made = (found.key.commitment, found.key.commitment_in(found.round))  # the latter under a consensus
    key: KeyCheck = "matches" if found.commitment in made else "differs"
    changed = _changes(found.environment, dict(Environment.here(state.learner).facts))
    return Recomputation(
        name=found.name,
        source=found.source,
        generation=found.generation,
        round=found.round,
        num_records=len(found.records),
        num_shards=found.num_shards,
        checked=checked,
        different=tuple(different),
        seed=seed,
        checkpoint=checkpoint,
        key="not recorded" if found.commitment is None else key,
        commitment=next((each for each in made if each == found.commitment), found.key.commitment),
        drawn_with=None if found.draw is None else str(found.draw.nonce.witness),
        unused=0 if found.draw is None else found.draw.unused,
        draw_fault="" if found.draw is None else found.draw.fault(found.key, found.log_key.name),
        environment="different" if changed else "same",
        changed=changed,
        signed_by=found.signed_by,
    )


def _changes(recorded: Mapping[str, str], here: Mapping[str, str]) -> tuple[tuple[str, str, str], ...]:
    """What is another one here."""
    names = sorted(recorded.keys() | here.keys())
    pairs = [(name, recorded.get(name, "not used"), here.get(name, "not used")) for name in names]
    return tuple(each for each in pairs if each[1] != each[2])
