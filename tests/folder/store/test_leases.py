"""Leases: no replica answers from an older round once the writer has gone on, whatever the order of events."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import greenlet
import pytest

from expunge.core.errors import ParameterError, StoreError
from expunge.core.place import Place
from expunge.folder.store import leases
from expunge.folder.store.leases import Followers, Lease, LeaseError, find_replicas, margin

L = 10.0


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place.hold(tmp_path)


@dataclass
class Setting:
    """A folder in which a round is in force, a replica of it and its writer, on one clock that the test moves."""

    place: Place
    time: Time = field(default_factory=Time)
    point: tuple[int, int] = (1, 0)

    def __post_init__(self) -> None:
        self.lease = self.replica()
        self.writer = Followers(self.place, clock=self.time)

    def replica(self) -> Lease:
        found = Lease(self.place, lambda: self.point, seconds=L, clock=self.time)
        found.acknowledge(self.point)
        assert found.renew()
        return found

    def switch(self) -> None:
        self.point = (1, self.point[1] + 1)
        self.writer.announce(self.point)

    @property
    def waits(self) -> bool:
        return bool(self.writer.outstanding())


@pytest.fixture
def setting(place: Place) -> Iterator[Setting]:
    found = Setting(place)
    yield found
    found.lease.close()


def test_a_replica_answers_for_as_long_as_its_lease(setting: Setting) -> None:
    setting.time.now += L - 0.01
    assert setting.lease.is_valid
    setting.lease.require()
    setting.time.now += 0.01
    assert not setting.lease.is_valid
    with pytest.raises(LeaseError, match=r"has not followed .* for 10 seconds"):
        setting.lease.require()
    assert setting.lease.renew()
    assert setting.lease.is_valid


def test_a_round_that_is_not_acknowledged_does_not_renew_the_lease(setting: Setting) -> None:
    setting.switch()
    assert not setting.lease.renew()
    assert setting.lease.is_valid  # the round before is answered from until the lease runs out
    setting.time.now += L
    assert not setting.lease.is_valid
    setting.lease.acknowledge(setting.point)
    assert not setting.lease.is_valid
    assert setting.lease.renew()


def test_the_writer_waits_for_an_acknowledgement(setting: Setting) -> None:
    setting.switch()
    assert [each.process for each in setting.writer.outstanding()] == [os.getpid()]
    setting.lease.acknowledge(setting.point)
    assert not setting.waits


def test_the_writer_waits_for_a_silent_replica_no_longer_than_its_lease_and_only_once(setting: Setting) -> None:
    setting.switch()
    setting.time.now += L + margin(L) - 0.01
    assert setting.waits
    assert not setting.lease.is_valid
    setting.time.now += 0.02
    assert not setting.waits
    for _ in range(3):
        setting.switch()
        assert not setting.waits
    setting.lease.acknowledge(setting.point)
    setting.lease.renew()
    setting.switch()
    assert setting.waits  # it is there again


def test_another_writer_does_not_know_that_a_lease_ran_out(setting: Setting) -> None:
    setting.switch()
    setting.time.now += 2 * L
    again = Followers(setting.place, clock=setting.time)
    again.announce(setting.point)
    assert again.outstanding()


def test_a_replica_that_closes_or_is_killed_is_not_waited_for(setting: Setting, place: Place) -> None:
    setting.switch()
    setting.lease.close()
    assert not setting.waits
    assert not (place / "replicas").names()
    code = (
        "import sys, time\n"
        "from expunge.core.place import Place\n"
        "from expunge.folder.store.leases import Lease\n"
        "lease = Lease(Place.hold(sys.argv[1]), lambda: (1, 1))\n"
        "lease.acknowledge((1, 1))\n"
        "print(lease.renew(), flush=True)\n"
        "time.sleep(600)\n"
    )
    process = subprocess.Popen([sys.executable, "-c", code, str(place.path)], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    with process.stdout as told:
        assert told.readline() == "True\n"
        assert not setting.waits
        setting.switch()
        process.send_signal(signal.SIGSTOP)
        assert [each.process for each in setting.writer.outstanding()] == [process.pid]
        process.kill()
        process.wait()
    assert not setting.waits
    assert not (place / "replicas").names()


def test_a_forked_child_neither_answers_nor_keeps_the_lease(setting: Setting) -> None:
    setting.switch()
    child = os.fork()
    if not child:
        os._exit(int(setting.lease.is_valid or setting.lease.renew()))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert setting.lease.is_valid
    assert setting.waits
    setting.lease.close()
    assert not setting.waits


def test_a_file_that_says_nothing_yet_is_not_waited_for_and_a_damaged_one_for_long(setting: Setting) -> None:
    file = next(iter((setting.place / "replicas").iterdir())).path
    told = file.read_bytes()
    setting.switch()
    file.write_bytes(b"")
    assert not setting.waits
    file.write_bytes(told.replace(b"seconds", b"secnods"))
    setting.time.now += 2 * L
    assert [each.seconds for each in setting.writer.outstanding()] == [leases.LONGEST]
    file.write_bytes(told)
    assert not setting.waits


def test_files_of_others_stay(setting: Setting) -> None:
    stray = setting.place.path / "replicas" / "notes.txt"
    stray.write_text("mine")
    setting.lease.close()
    setting.switch()
    assert not setting.waits
    assert stray.read_text() == "mine"


def test_a_folder_without_replicas_costs_nothing(place: Place) -> None:
    writer = Followers(place)
    writer.announce((1, 0))
    writer.wait(lambda _: pytest.fail("there is nothing to wait for"))
    assert list(find_replicas(place)) == []
    assert place.names() == []


def test_waiting_is_given_up_in_one_line(setting: Setting) -> None:
    setting.switch()
    with pytest.raises(StoreError, match="replicas had not acknowledged the last round; nothing was lost"):
        setting.writer.wait(lambda _: True)


@pytest.mark.parametrize("seconds", [0.0, 301.0, float("nan")])
def test_a_lease_has_a_sensible_length(place: Place, seconds: float) -> None:
    with pytest.raises(ParameterError, match="lease must be"):
        Lease(place, lambda: (1, 0), seconds=seconds)


# Any order of events: actors take turns, and are interrupted wherever they look at anything.


class World:
    """Runs one actor at a time, in an order and with delays that follow from a seed."""

    def __init__(self, seed: int, place: Place) -> None:
        self.rng, self.place, self.now = random.Random(seed), place, 1000.0
        self.point, self.applied = (1, 0), (1, 0)
        self.stale: list[str] = []
        self.answers = 0

    def pause(self) -> None:
        """Let others go on, for as long as it takes."""
        greenlet.getcurrent().parent.switch()

    def clock(self) -> float:
        self.pause()
        found = self.now
        self.pause()
        return found

    def in_force(self) -> tuple[int, int]:
        self.pause()
        found = self.point
        self.pause()
        return found

    def run(self, actors: list[Callable[[World], None]], steps: int) -> None:
        lives = [greenlet.greenlet(partial(act, self)) for act in actors]
        frozen = [0] * len(lives)
        for step in range(steps):
            chosen = self.rng.choice([n for n in range(len(lives)) if frozen[n] <= step] or [0])
            if self.rng.random() < 0.02:
                frozen[chosen] = step + self.rng.randrange(200)
            self.now += self.rng.choice((0.0, 0.01)) if self.rng.random() < 0.95 else self.rng.random() / 2
            lives[chosen].switch()
        for each in lives:
            each.throw()


class Variant:
    """The protocol as it is; each subclass gets one thing wrong."""

    lease: type[Lease] = Lease
    followers: type[Followers] = Followers
    looks_early = acknowledges_early = trusts_itself = False

    def __init__(self) -> None:
        self.lives: dict[int, tuple[Lease, list[tuple[int, int]]]] = {}  # of each replica, its lease and what it holds

    def follow(self, world: World, number: int) -> None:
        """Live as one process after another."""
        while True:
            lease = self.lease(world.place, world.in_force, seconds=1.0, clock=world.clock)
            held = [(0, 0)]
            self.lives[number] = lease, held
            try:
                while world.rng.random() < 0.8:
                    while not lease.renew():
                        found = world.in_force()
                        if self.acknowledges_early:
                            lease.acknowledge(found)
                        world.pause()  # it reads the models
                        held[0] = found
                        if not self.acknowledges_early:
                            lease.acknowledge(found)
                    world.pause()
            finally:
                lease.close()

    def answer(self, world: World, number: int) -> None:
        while True:
            world.pause()
            if number in self.lives:
                lease, held = self.lives[number]
                seen = world.applied  # a request comes, from somebody who has seen this
                if self.trusts_itself or lease.is_valid:
                    world.answers += 1
                    if held[0] < seen:
                        world.stale.append(f"{held[0]} after {seen}")

    def replicas(self, count: int) -> list[Callable[[World], None]]:
        return [partial(act, number=number) for number in range(count) for act in (self.follow, self.answer)]

    def writer(self, world: World) -> None:
        writer = self.followers(world.place, clock=world.clock)
        while True:
            world.pause()
            if self.looks_early:
                there = {each.name for each in find_replicas(world.place)}
                world.pause()
            world.point = (1, world.point[1] + 1)
            writer.announce(world.point)
            while any(not self.looks_early or each.name in there for each in writer.outstanding()):
                world.pause()
            world.applied = world.point


class _LooksAtTheClockTooLate(Lease):
    def renew(self) -> bool:
        found = self._acknowledged is not None and self._in_force() == self._acknowledged
        if found:
            self._until = self._clock() + self.seconds
        return found


class _WaitsTooShort(Followers):
    def outstanding(self) -> Any:
        self._since -= 0.6
        try:
            return super().outstanding()
        finally:
            self._since += 0.6


class _NeverWaitsAgain(Followers):
    ever: frozenset[str] = frozenset()

    def outstanding(self) -> Any:
        found = super().outstanding()
        self.ever |= self._lapsed.keys()
        return [each for each in found if each.name not in self.ever]


class ClockTooLate(Variant):
    lease = _LooksAtTheClockTooLate


class WaitsTooShort(Variant):
    followers = _WaitsTooShort


class LooksForReplicasTooEarly(Variant):
    looks_early = True


class AcknowledgesTooEarly(Variant):
    acknowledges_early = True


class NeedsNoLease(Variant):
    trusts_itself = True


class NeverWaitsAgain(Variant):
    followers = _NeverWaitsAgain


def stale_answers(
    kind: type[Variant], seeds: range, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[int, int]:
    """The schedules with a stale answer, up to the first one, and all answers."""
    answers = 0
    for seed in seeds:
        variant, home = kind(), tmp_path / f"{kind.__name__}-{seed}"
        home.mkdir()
        world = World(seed, Place.hold(home))
        look = leases._read
        write = leases.write_all

        def read(*given: Any, world: World = world, look: Any = look) -> Any:
            world.pause()
            found = look(*given)
            world.pause()
            return found

        def written(*given: Any, world: World = world, write: Any = write) -> None:
            world.pause()
            write(*given)
            world.pause()

        with monkeypatch.context() as patched:
            patched.setattr(leases, "_read", read)
            patched.setattr(leases, "write_all", written)
            world.run([*variant.replicas(2), variant.writer], 1000)
        answers += world.answers
        if world.stale:
            return 1, answers
    return 0, answers


def test_no_answer_is_stale_in_any_order_of_events(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stale, answers = stale_answers(Variant, range(30), tmp_path, monkeypatch)
    assert not stale
    assert answers > 500


@pytest.mark.long
def test_no_answer_is_stale_in_many_more_orders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert not stale_answers(Variant, range(30, 1000), tmp_path, monkeypatch)[0]


@pytest.mark.parametrize(
    "variant",
    [
        ClockTooLate,
        WaitsTooShort,
        LooksForReplicasTooEarly,
        AcknowledgesTooEarly,
        NeedsNoLease,
        NeverWaitsAgain,
    ],
)
def test_a_protocol_with_one_step_wrong_is_caught(
    variant: type[Variant], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert stale_answers(variant, range(600), tmp_path, monkeypatch)[0]  # nearly always within a few
