"""Petitions: erasure requests that integrations send, in any form.

An integration learns of a petition that it was received, and that it is completed or cancelled, and nothing else: no
number of records, no error that tells whether there were any, and no time but ticks of the deployment's clock. A person
without records gets a request like any other. It is applied like any other, and deletes nothing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal

import msgspec

from expunge.core.errors import InputError, RequestError
from expunge.core.records import RecordId
from expunge.core.words import seconds_of, utc
from expunge.folder.store.petitions import Petition
from expunge.service.access import Role
from expunge.service.exchange import Request
from expunge.service.integrations import HASHES, RAW, Integration, hashed
from expunge.service.problems import Problem, invalid
from expunge.service.updates import in_thread
from expunge.tables import match_key

if TYPE_CHECKING:
    from expunge.folder import DurableDeployment
    from expunge.service.application import Service

SENDERS: Final[frozenset[Role]] = frozenset({"integration"})
Status = Literal["pending", "completed", "cancelled"]
MOST_IDENTITIES: Final = 100
MOST_BODY: Final = 1 << 18
ID: Final = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
_ID: Final = re.compile(ID)
_LONGEST_VALUE: Final = 1000


@dataclass(frozen=True, slots=True)
class Name:
    """One name of a person, as it was sent.

    Parameters
    ----------
    type, value, form
        What kind of name it is, the name, and "raw" or which hash of it.
    """

    type: str
    value: str
    form: str


class Desk:
    """Takes petitions in.

    Parameters
    ----------
    service
        The service.
    """

    def __init__(self, service: Service) -> None:
        self._service = service
        self._deployment: DurableDeployment = service.deployment

    def sender(self, request: Request) -> Integration:
        """The integration that sends a request with its key."""
        assert request.caller is not None
        found = self._service.integrations.by_key.get(request.caller.name)
        if found is None:
            raise Problem(403, "forbidden", "this key belongs to no integration any more")
        return found

    async def receive(
        self, sender: Integration, id: str, names: Sequence[Name], *, asked: Any, form: str, urls: Iterable[str]
    ) -> Petition:
        """Accept a petition, or find the one with this id. `asked` tells it from others.

        Raises
        ------
        Problem
            If a name is of a kind or form that this integration has none of, or the id was used for something else.
        """
        if not _ID.fullmatch(id):
            raise invalid("an id has 1 to 64 letters, digits, dots, hyphens and underscores", field="id")
        for number, name in enumerate(names, 1):
            self._check(sender, name, number)
        told = msgspec.json.encode([asked, sorted((each.type, each.form, each.value) for each in names), [*urls]])
        take = partial(self._take, sender, id, names, asked=told, form=form, urls=[*urls])
        found: Petition = await in_thread(self._service.desk, take)
        self._service.trainer.look()
        return found

    def _take(self, sender: Integration, id: str, names: Sequence[Name], **more: Any) -> Petition:
        return self._deployment.receive(sender.name, id, self._people(sender, names), **more)

    def _check(self, sender: Integration, name: Name, number: int) -> None:
        known = {each.type: each for each in sender.identities}
        if name.type not in known:
            said = f"identity type {name.type!r:.80} is not known here; there is {', '.join(known)}"
            raise invalid(said, row=number, field="identity_type")
        accepted = known[name.type].accepted
        if name.form not in accepted:
            said = f"identity format {name.form!r:.40} is not accepted for {name.type!r}; send {' or '.join(accepted)}"
            raise invalid(said, row=number, field="identity_format")
        if not 0 < len(name.value) <= _LONGEST_VALUE or "\0" in name.value:
            raise invalid(f"an identity has 1 to {_LONGEST_VALUE:,} characters", row=number, field="identity_value")
        if name.form != RAW and not re.fullmatch(rf"[0-9a-fA-F]{{{HASHES[name.form]}}}", name.value):
            said = f"{name.form} has {HASHES[name.form]} hexadecimal digits"
            raise invalid(said, row=number, field="identity_value")
        if name.form == known[name.type].form == RAW:
            try:
                self._key(name.value)
            except InputError:
                raise invalid("the identity is no name of a person here", row=number, field="identity_value") from None

    def _people(self, sender: Integration, names: Sequence[Name]) -> list[RecordId]:
        """Whose records are to be deleted. A hash that nobody's name has stands for itself: nobody has that name."""
        held = {each.type: each.form for each in sender.identities}
        people, found = list[RecordId](), set[RecordId]()
        for name in names:
            own = held[name.type]
            if name.form == own:
                people.append(self._key(name.value) if own == RAW else name.value.lower())
            elif own != RAW:
                people.append(hashed(name.value, own))
            else:
                found = found or self._deployment.people()
                digest = name.value.lower()
                people += [each for each in found if hashed(str(each), name.form) == digest] or [digest]
        return people

    def _key(self, value: str) -> RecordId:
        """A name as the kind of names that the deployment has."""
        schema = self._service.columns.schema
        if schema is None:
            return int(value) if self._has_numbers and re.fullmatch(r"-?[0-9]{1,18}", value) else value
        has_subjects = schema.subject is not None
        kind = schema.subject_kind if has_subjects else schema.id_kind
        found: RecordId = match_key(value, kind=kind, what="subjects" if has_subjects else "ids", whose="the people")
        return found

    @property
    def _has_numbers(self) -> bool:
        """Whether people are numbers, by the first record."""
        records = self._deployment.records
        first = records.live_slots()[:1]
        subjects = records.subjects_of(first)
        return all(isinstance(each, int) for each in (records.ids_of(first) if subjects is None else subjects).tolist())

    async def find(self, sender: Integration, id: str) -> Petition:
        """The sender's petition with this id."""
        find = partial(self._deployment.petitions.find, sender.name, id)
        found: Petition | None = await in_thread(self._service.desk, find)
        if found is None:
            raise Problem(404, "not-found", "there is no request with this id")
        return found

    async def status(self, petition: Petition) -> Status:
        """How far a petition is."""
        found = await in_thread(self._service.desk, self._deployment.request, petition.request)
        return status_of(found.public_state, found.applied_by, time.time())

    async def cancel(self, petition: Petition) -> None:
        """Take a petition back, if it is still pending. One that was taken back before stays so."""
        if await self.status(petition) == "cancelled":
            return
        try:
            await in_thread(self._service.desk, self._deployment.cancel, petition.request)
        except RequestError:
            raise Problem(409, "conflict", "it is too late to cancel this request") from None
        self._service.arrivals.changed()


def status_of(state: str, at: str | None, now: float) -> Status:
    """What a sender is told of a request: that it is completed from the tick on by which it counts as applied.

    Examples
    --------
    >>> status_of("applied", "2026-01-01T00:01:00Z", seconds_of("2026-01-01T00:00:59Z"))
    'pending'
    """
    if state == "cancelled":
        return "cancelled"
    return "completed" if state == "applied" and at is not None and seconds_of(at) <= now else "pending"


def now() -> str:
    """This second."""
    return utc(time.time())
