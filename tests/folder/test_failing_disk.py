"""A disk that fails at any call, SQLite's calls included; a process that is killed there; and a power that is lost.

`processes/disk.c` stands in front of the C library. It counts the calls of a process below its folder that open or
change a file, makes one of them fail, once or from then on, and writes every change down, so that the folder can be
built as it would be had the power gone: without what was not flushed, or with a part of it. Each time the folder is
held against what the process had told by then, as after a kill.
"""

from __future__ import annotations

import errno
import os
import random
import time
from collections import Counter
from typing import Any

import pytest

SEED = 20
KILL, HALF = -1, -2
ERRORS = (errno.ENOSPC, errno.EIO, errno.EDQUOT, HALF)
# Of every scenario: what a process does, and how many errors, kills and losses of power it meets.
LIVES: dict[str, tuple[list[str], int, int, int]] = {
    "plain": (["delete", "correct", "reopen", "predict"], 70, 25, 15),
    "objects": (["add", "delete subject", "cancel"], 70, 25, 10),
    "noisy": (["add", "predict", "delete", "reopen"], 60, 20, 10),
    "gate": (["add", "predict", "delete", "predict"], 60, 20, 10),
    "encrypted": (["delete", "add", "reopen"], 20, 10, 5),
    "sparse": (["return", "correct", "retrain"], 40, 10, 10),
}
SECONDS = float(os.environ.get("EXPUNGE_FUZZ_SECONDS", "0"))


def test_there_are_enough():
    errors, kills, losses = (sum(life[place] for life in LIVES.values()) for place in (1, 2, 3))
    assert errors >= 300
    assert kills >= 100  # and more than 200 in `test_kills.py`
    assert losses >= 50


def spread(chance: random.Random, whole: int, count: int) -> list[int]:
    """Calls drawn from all, one from each of `count` stretches."""
    return [1 + int((place + chance.random()) * whole / count) for place in range(count)]


def live(ask: Any, scenario: str, at: int, how: int, chance: random.Random, **more: Any) -> str:
    """One life in which a call fails; what came of it."""
    onwards, recovers = (False, True) if how == KILL else (chance.random() < 0.4, chance.random() < 0.7)
    answer = ask(scenario=scenario, seed=SEED, fail=[at, how, onwards, recovers], **more)
    assert not answer["wrong"], f"{scenario}, call {at} fails with {how} (onwards: {onwards}): {answer['wrong']}"
    line = answer.get("met", "")
    assert "\n" not in line
    if how == KILL:
        return "killed" if answer["killed"] == [True] else "too late"
    if answer["calls"] < at:
        return "too late"
    return "told" if line else "carried on"


def whole_life(ask: Any, scenario: str, **more: Any) -> int:
    answer = ask(scenario=scenario, seed=SEED, fail=[0, 0, False, True], **more)
    assert not answer["wrong"]
    assert "met" not in answer
    return int(answer["calls"])


@pytest.mark.parametrize("scenario", LIVES)
def test_a_call_that_fails_is_told_in_a_line_or_does_no_harm(ask_breaker: Any, scenario: str) -> None:
    """What was accepted is there, once, and nothing is left behind; also if the process ends at once."""
    acts, errors, kills, _ = LIVES[scenario]
    chance, whole = random.Random(scenario), whole_life(ask_breaker, scenario, acts=acts)
    met: Counter[str] = Counter()
    for count, kinds in ((errors, ERRORS), (kills, (KILL,))):
        for at in spread(chance, whole, count):
            met[live(ask_breaker, scenario, at, chance.choice(kinds), chance, acts=acts)] += 1
    assert met["too late"] <= 0.1 * met.total()  # secrets are drawn anew: no two lives make the same number of calls
    assert met["told"] > met["carried on"]
    assert met["killed"] > 0


@pytest.mark.parametrize("scenario", LIVES)
def test_a_loss_of_power_loses_nothing_that_was_told(ask_breaker: Any, scenario: str) -> None:
    acts, _, _, losses = LIVES[scenario]
    answer = ask_breaker(scenario=scenario, seed=SEED, losses=losses, acts=acts)
    assert not answer["wrong"], answer["wrong"]
    assert answer["losses"] == losses
    assert answer["changes"] > 100


@pytest.mark.parametrize("scenario", ["plain", "gate"])
def test_a_folder_is_there_as_a_whole_after_a_loss_of_power(ask_breaker: Any, scenario: str) -> None:
    answer = ask_breaker(scenario=scenario, seed=SEED, create=True, losses=10)
    assert not answer["wrong"], answer["wrong"]
    assert answer["losses"] == 10


@pytest.mark.parametrize(
    ("sabotage", "job", "noticed"),
    [
        ("flush_nothing", {"acts": ["add", "delete"], "losses": 30}, ""),
        ("flush_no_folders", {"acts": ["add", "delete"], "losses": 30}, "missing"),
    ],
)
def test_a_protocol_that_does_not_flush_is_noticed(
    ask_breaker: Any, sabotage: str, job: dict[str, Any], noticed: str
) -> None:
    answer = ask_breaker(scenario="plain", seed=SEED, sabotage=sabotage, **job)
    assert answer["wrong"]
    assert noticed in answer["wrong"]


def test_a_write_that_is_not_finished_is_noticed(ask_breaker: Any) -> None:
    job: dict[str, Any] = {"scenario": "plain", "seed": SEED, "sabotage": "write_once", "acts": ["add"]}
    assert any(ask_breaker(**job, fail=[at, HALF, True, True])["wrong"] for at in (1, 50, 100, 20, 75, 130, 200))


@pytest.mark.long
@pytest.mark.parametrize("scenario", LIVES)
def test_more_calls_that_fail(ask_breaker: Any, scenario: str) -> None:
    """Longer lives, and EXPUNGE_FUZZ_SECONDS of them if that is set."""
    seed, end = int(time.time()) if SECONDS else SEED, time.monotonic() + SECONDS
    chance, whole = random.Random(f"{scenario} {seed}"), whole_life(ask_breaker, scenario)
    met: Counter[str] = Counter()
    for at in spread(chance, whole, 400):
        met[live(ask_breaker, scenario, at, chance.choice((*ERRORS, KILL)), chance)] += 1
    while time.monotonic() < end:
        met[live(ask_breaker, scenario, chance.randint(1, whole), chance.choice((*ERRORS, KILL)), chance)] += 1
    print(scenario, dict(met))


@pytest.mark.long
@pytest.mark.parametrize("scenario", LIVES)
def test_more_losses_of_power(ask_breaker: Any, scenario: str) -> None:
    seed, end, losses = int(time.time()) if SECONDS else SEED, time.monotonic() + SECONDS, 0
    while losses < 200 or time.monotonic() < end:
        answer = ask_breaker(scenario=scenario, seed=seed, losses=25)
        assert not answer["wrong"], f"seed {seed}: {answer['wrong']}"
        losses, seed = losses + answer["losses"], seed + 1
    print(scenario, f"{losses} losses of power")
