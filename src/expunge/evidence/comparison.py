"""Comparing certificates: do they belong to one history, or did the operator sign two?

Every certificate holds a checkpoint of the operator's log, signed with the same key. The log may only grow. Three
things tie a checkpoint to a later one: the same size and root; a consistency proof in the later certificate; and the
complete parts of the tree that the later certificate's proofs show, if they are enough to compute the earlier root.
Two checkpoints of one size with different roots, or a part of the tree with two hashes, show two histories.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from expunge.core.errors import ParameterError
from expunge.evidence.certificate import Certificate
from expunge.evidence.checkpoint import Checkpoint
from expunge.evidence.tree import root_of_parts

Answer = Literal["one history", "two histories", "not decided", "different deployments", "different keys"]


@dataclass(frozen=True, slots=True)
class Comparison:
    """What a comparison of certificates found.

    Parameters
    ----------
    answer
        "one history", "two histories", "not decided", or that they are of "different deployments" or signed with
        "different keys".
    explanation
        One line for each thing that was found.
    """

    answer: Answer
    explanation: tuple[str, ...]


def compare(certificates: Sequence[Certificate]) -> Comparison:
    """Say whether certificates belong to one history of one deployment.

    Parameters
    ----------
    certificates
        At least two certificates. `verify` must have found that each of them holds.

    Returns
    -------
    Comparison
        The answer, and what it rests on.

    Raises
    ------
    ParameterError
        If there is only one.
    """
    if len(certificates) < 2:
        raise ParameterError("give two certificates or more to compare")
    ordered = sorted(certificates, key=lambda each: each.log.checkpoint.size)
    first = ordered[0]
    if any(each.deployment.deployment_id != first.deployment.deployment_id for each in ordered):
        names = ", ".join(dict.fromkeys(each.deployment.deployment_id for each in ordered))
        return Comparison("different deployments", (f"they are about different deployments: {names[:200]}",))
    if any(each.public_key != first.public_key for each in ordered):
        keys = "; ".join(dict.fromkeys(each.public_key.fingerprint for each in ordered))
        return Comparison(
            "different keys", (f"they are about one deployment, and are signed with different keys: {keys[:400]}",)
        )
    forks = [line for place, one in enumerate(ordered) for other in ordered[place + 1 :] for line in _fork(one, other)]
    if forks:
        return Comparison("two histories", tuple(dict.fromkeys(forks)))
    return _connected(ordered)


def _connected(ordered: list[Certificate]) -> Comparison:
    """Follow each certificate to a later one, up to the last."""
    ties, loose = [], []
    for place, one in enumerate(ordered[:-1]):
        size = one.log.checkpoint.size
        found = next((tie for other in ordered[place + 1 :] if (tie := _tie(one, other))), None)
        if found is None:
            loose.append(f"nothing in these files shows that the log of {size:,} entries was continued")
        else:
            ties.append(found)
    if loose:
        return Comparison("not decided", tuple(dict.fromkeys(loose)))
    return Comparison("one history", tuple(dict.fromkeys(ties)))


def _fork(one: Certificate, other: Certificate) -> list[str]:
    """What shows that two certificates, signed with one key, are of two histories."""
    roots: dict[int, bytes] = {}
    for checkpoint in _checkpoints(one):
        roots[checkpoint.size] = checkpoint.root
    found = [
        f"two checkpoints of {checkpoint.size:,} entries have different roots"
        for checkpoint in _checkpoints(other)
        if roots.get(checkpoint.size, checkpoint.root) != checkpoint.root
    ]
    parts, others = one.log.parts, other.log.parts
    at_odds = sorted(part for part in parts.keys() & others.keys() if parts[part] != others[part])
    if at_odds and not found:
        first, count = at_odds[0]
        what = f"entry {first + 1:,} is" if count == 1 else f"entries {first + 1:,} to {first + count:,} are"
        found.append(f"{what} not the same in the two logs")
    for smaller, larger in ((one, other), (other, one)):
        size = smaller.log.checkpoint.size
        root = root_of_parts(larger.log.parts, size) if size <= larger.log.checkpoint.size and size else None
        if not found and root is not None and root != smaller.log.checkpoint.root:
            found.append(f"the first {size:,} entries are not the same in the two logs")
    return found


def _tie(one: Certificate, other: Certificate) -> str | None:
    """What shows that the later certificate's log continues the earlier one's; None if nothing does."""
    now, then = other.log.checkpoint, one.log.checkpoint
    if (now.size, now.root) == (then.size, then.root):
        return f"the same {now.size:,} entries"
    if any((each.size, each.root) == (then.size, then.root) for each in _checkpoints(other)):
        return f"the log of {now.size:,} entries begins with the {then.size:,} of the other: by a consistency proof"
    if then.size and root_of_parts(other.log.parts, then.size) == then.root:
        return (
            f"the log of {now.size:,} entries begins with the {then.size:,} of the other: by the entries that it shows"
        )
    return None


def _checkpoints(certificate: Certificate) -> list[Checkpoint]:
    return [certificate.log.checkpoint, *(each.checkpoint for each in certificate.log.earlier)]
