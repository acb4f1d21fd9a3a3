"""A warm process that forks one process for every kill, kills it, and lets another one look at what is left.

It reads jobs as lines of JSON and answers each with a line: which steps were passed, whether the process was killed,
and what is wrong with the folder afterwards. Nothing that is killed or looked at is ever open in the warm process. What
children remove is kept (`graveyard.c`), if the process was started so; what the warm process removes is not.

Where `disk.c` is loaded, a call to the disk can fail, or kill the process; and the power can be lost: see `disk.py`.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import random
import select
import shutil
import signal
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import disk
import invariants
from sabotage import SABOTAGE
from scenarios import SCENARIOS, Scenario
from story import Story

import expunge
import expunge.training.ensemble
from expunge.core.errors import ExpungeError, StoreError
from expunge.folder import DurableDeployment
from expunge.folder.store import steps

GRAVEYARD = os.environ.pop("GRAVEYARD", None)
_ASIDE = ("met", "calls")  # what a process on a failing disk tells about itself
_KEPT = (0.0, 0.5, 0.0, 0.9, 1.0)  # the share of what was not flushed that reaches the disk all the same
Fate = tuple[list[dict[str, Any]], bool, float]  # what it told, whether it was killed, seconds


def forked(
    act: Callable[[Callable[..., None]], None],
    *,
    kill: list[Any] | None,
    after: float | None,
    folder: Path | None = None,
) -> Fate:
    """Run `act(tell)` in a process of its own, which dies at the n-th passing of a step, or after some seconds."""
    reading, writing = os.pipe()
    gc.freeze()  # a collection in the child would touch, and so copy, every page
    started = time.perf_counter()
    child = os.fork()
    if child == 0:
        os.close(reading)
        _run(act, writing, kill, folder)
    os.close(writing)
    raw = _listen(reading, child, after)
    _, status = os.waitpid(child, 0)
    killed = os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL
    told = [json.loads(line) for line in raw.split(b"\n")[:-1]]
    return told, killed, time.perf_counter() - started


def _listen(reading: int, child: int, after: float | None) -> bytes:
    deadline = None if after is None else time.perf_counter() + after
    raw = b""
    while True:
        wait = None if deadline is None else max(0.0, deadline - time.perf_counter())
        ready, _, _ = select.select([reading], [], [], wait)
        if not ready:
            os.kill(child, signal.SIGKILL)
            deadline = None
            continue
        piece = os.read(reading, 1 << 16)
        if not piece:
            os.close(reading)
            return raw
        raw += piece


def _run(act: Callable[[Callable[..., None]], None], writing: int, kill: list[Any] | None, folder: Path | None) -> None:
    """In the child: watch the steps, act, and never return."""
    if GRAVEYARD is not None:
        os.environ["GRAVEYARD"] = GRAVEYARD
    passed: Counter[str] = Counter()
    counting = threading.Lock()

    def tell(say: str, **facts: Any) -> None:
        os.write(writing, json.dumps({"say": say, **facts}).encode() + b"\n")

    def watch(step: str) -> None:
        with counting:  # steps are passed by several threads
            passed[step] += 1
            count = passed[step]
        if folder is not None:
            invariants.check_database(folder)
        if kill is not None and kill[:2] == [step, count]:
            if kill[2:] == ["interrupt"]:
                raise KeyboardInterrupt
            os.kill(os.getpid(), signal.SIGKILL)

    steps.on_step = watch
    code = 1
    try:
        act(tell)
        tell("finished", passed=dict(passed))
        code = 0
    except BaseException:
        tell("failed", why=traceback.format_exc())
    finally:
        os._exit(code)


def _live(story: Story, acts: list[str] | None) -> None:
    """Act; who is interrupted by its keyboard goes on for a while with the deployment that it has, and closes it."""
    try:
        story.act(acts)
    except KeyboardInterrupt:
        story.tell("interrupted")
        if not hasattr(story, "deployment"):
            return
        with contextlib.suppress(StoreError):  # "open it again", or it was closed already
            story.deployment.apply()
            story.deployment.rekey()
            story.deployment.apply()
        story.deployment.close()


def _live_on_a_failing_disk(story: Story, job: dict[str, Any]) -> None:
    """Act until an error reaches the caller; then either the disk is well again and the object goes on, or it dies."""
    at, how, onwards, recovers = job["fail"]
    disk.watch(story.folder, at=at, how=how, onwards=onwards)
    try:
        story.act(job.get("acts"))
    except ExpungeError as error:
        story.tell("met", line=str(error))
    story.tell("calls", count=disk.count())
    if not recovers:
        os.kill(os.getpid(), signal.SIGKILL)
    disk.watch(None)
    if hasattr(story, "deployment") and not story.deployment._keeper.closed.is_set():
        with contextlib.suppress(StoreError):  # "open it again"
            story.deployment.apply()
        story.deployment.close()


def _prepare(scenario: Scenario, sabotage: str | None) -> None:
    if scenario.dead_allowed is not None:
        expunge.training.ensemble._DEAD_SLOTS_ALLOWED = scenario.dead_allowed
    if sabotage is not None:
        SABOTAGE[sabotage]()


class Server:
    """Folders as they were created, kept to be copied."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.runs = 0

    def original(self, name: str) -> Path:
        """The folder of a scenario, never used but for its creation."""
        folder = self.home / "originals" / name
        if not folder.exists():
            folder.parent.mkdir(exist_ok=True)
            SCENARIOS[name].create(folder).close()
            self._warm_up(name, folder)
        return folder

    def _warm_up(self, name: str, folder: Path) -> None:
        """Live one life in this very process, so that its children find imported and cached what they need."""
        if SCENARIOS[name].is_busy:
            return  # its threads might be at work when this process forks
        told: list[dict[str, Any]] = []
        copied = self.home / "warm" / "folder"
        shutil.copytree(folder, copied)
        Story(SCENARIOS[name], copied, 0, lambda say, **facts: told.append({"say": say, **facts})).act()
        invariants.check(copied, SCENARIOS[name], told)
        shutil.rmtree(copied.parent)

    def answer(self, job: dict[str, Any]) -> dict[str, Any]:
        """Do a job: act, kill, perhaps kill the recovery as well, look."""
        self.runs += 1
        parent = self.home / f"run-{self.runs}"
        parent.mkdir()
        try:
            if job.get("create") and "losses" in job:
                return self._creation_without_power(job, parent / "folder")
            if job.get("create"):
                return self._killed_creation(job, parent / "folder")
            shutil.copytree(self.original(job["scenario"]), parent / "folder")
            if "losses" in job:
                return self._without_power(job, parent / "folder")
            return self._killed_story(job, parent / "folder")
        finally:
            shutil.rmtree(parent)

    def _killed_story(self, job: dict[str, Any], folder: Path) -> dict[str, Any]:
        scenario = SCENARIOS[job["scenario"]]

        def act(tell: Callable[..., None]) -> None:
            _prepare(scenario, job.get("sabotage"))
            story = Story(scenario, folder, job["seed"], tell)
            if "fail" in job:
                _live_on_a_failing_disk(story, job)
            else:
                _live(story, job.get("acts"))

        watched = None if "fail" in job else folder  # looking at the database would be counted as calls
        told, killed, seconds = forked(act, kill=job.get("kill"), after=job.get("after"), folder=watched)
        last = told[-1] if told else {}
        answer = {"killed": [killed], "seconds": seconds, "passed": last.get("passed", {}), "wrong": ""}
        if last.get("say") == "failed":
            return {**answer, "wrong": f"the process failed before it was killed: {last['why']}"}
        answer["interrupted"] = any(one["say"] == "interrupted" for one in told)
        answer |= {one["say"]: one.get("line", one.get("count")) for one in told if one["say"] in _ASIDE}
        told = [one for one in told if one["say"] not in ("interrupted", "finished", *_ASIDE)]
        return self._looked(job, folder, told, answer)

    def _without_power(self, job: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Act to the end; then look at the folder as it would be, had the power gone at one moment or another."""
        scenario, journal = SCENARIOS[job["scenario"]], folder.parent / "journal"
        before = disk.Disk(folder)

        def act(tell: Callable[..., None]) -> None:
            def tell_and_mark(say: str, **facts: Any) -> None:
                disk.tell()
                tell(say, **facts)

            _prepare(scenario, job.get("sabotage"))
            with journal.open("wb") as file:
                disk.watch(folder, journal=file.fileno())
                _live(Story(scenario, folder, job["seed"], tell_and_mark), job.get("acts"))
                disk.watch(None)

        told, _, _ = forked(act, kill=None, after=None)
        if told[-1]["say"] == "failed":
            return {"wrong": told[-1]["why"], "losses": 0}
        changes, chance = disk.read_journal(journal), random.Random(job["seed"])
        marks = [at + 1 for at, change in enumerate(changes) if change.what == disk.TOLD]
        anywhere = range(len(changes) + 1)
        moments = sorted(chance.choice(chance.choice([anywhere, marks])) for _ in range(job["losses"]))
        done, known = 0, 0
        for number, moment in enumerate(moments):
            for change in changes[done:moment]:
                before.apply(change)
                known += change.what == disk.TOLD
            done, keep = moment, _KEPT[number % len(_KEPT)]
            shutil.rmtree(folder)
            disk.build(before.without_power(chance, keep, is_torn=0 < keep < 1), folder)
            answer = self._looked(job, folder, told[:known], {"killed": [], "wrong": ""})
            if answer["wrong"]:
                where = f"after {moment} of {len(changes)} changes, {keep} of the others kept"
                return {"wrong": f"{where}: {answer['wrong']}", "losses": number}
        return {"wrong": "", "losses": len(moments), "changes": len(changes)}

    def _creation_without_power(self, job: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Create a folder; then look at what is there had the power gone: all of it, or nothing that is in the way."""
        scenario, journal, parent = SCENARIOS[job["scenario"]], self.home / f"journal-{self.runs}", folder.parent
        before, chance = disk.Disk(parent), random.Random(job["seed"])

        def act(tell: Callable[..., None]) -> None:
            _prepare(scenario, job.get("sabotage"))
            with journal.open("wb") as file:
                disk.watch(parent, journal=file.fileno())
                made = scenario.create(folder)
                disk.tell()
                made.close()
                disk.watch(None)

        told, _, _ = forked(act, kill=None, after=None)
        changes, done = disk.read_journal(journal), 0
        journal.unlink()
        (created,) = (at for at, change in enumerate(changes) if change.what == disk.TOLD)
        anywhere, late = range(len(changes) + 1), range(max(0, created - 20), len(changes) + 1)
        moments = sorted(chance.choice(chance.choice([anywhere, late])) for _ in range(job["losses"]))
        for number, moment in enumerate(moments):
            for change in changes[done:moment]:
                before.apply(change)
            done, keep = moment, _KEPT[number % len(_KEPT)]
            shutil.rmtree(parent)
            disk.build(before.without_power(chance, keep, is_torn=0 < keep < 1), parent)
            wrong = "" if folder.exists() or moment <= created else "the folder is gone"
            if not folder.exists():
                told, _, _ = forked(lambda tell: scenario.create(folder).close(), kill=None, after=None)
                wrong = wrong or ("" if told[-1]["say"] == "finished" else told[-1]["why"])
            wrong = wrong or self._looked(job, folder, [], {"killed": [], "wrong": ""})["wrong"]
            if wrong:
                where = f"after {moment} of {len(changes)} changes, {created} told, {keep} of the others kept"
                return {"wrong": f"{where}: {wrong}", "losses": number}
        return {"wrong": "", "losses": len(moments), "changes": len(changes)}

    def _killed_creation(self, job: dict[str, Any], folder: Path) -> dict[str, Any]:
        """Killed while the folder is made: it is there as a whole, or it is not and can be made again."""
        scenario = SCENARIOS[job["scenario"]]
        told, killed, seconds = forked(lambda tell: scenario.create(folder).close(), kill=job["kill"], after=None)
        answer = {"killed": [killed], "seconds": seconds, "exists": folder.exists(), "wrong": ""}
        answer["abandoned"] = len(list(folder.parent.glob("*.partial")))
        if not folder.exists():
            told, _, _ = forked(lambda tell: scenario.create(folder).close(), kill=None, after=None)
            if told[-1]["say"] != "finished":
                return {**answer, "wrong": told[-1]["why"]}
        return self._looked(job, folder, [], answer)

    def _looked(
        self, job: dict[str, Any], folder: Path, told: list[dict[str, Any]], answer: dict[str, Any]
    ) -> dict[str, Any]:
        """Kill the recovery as often as the job wants, then hold the folder against what was told."""
        scenario = SCENARIOS[job["scenario"]]

        def recover(tell: Callable[..., None]) -> None:
            _prepare(scenario, job.get("sabotage"))
            expunge.open(folder).close()

        def look(tell: Callable[..., None]) -> None:
            _prepare(scenario, job.get("sabotage"))
            DurableDeployment._apply_on_a_clock = lambda self: None  # type: ignore[method-assign]
            invariants.check(folder, scenario, told)

        for kill in job.get("again", []):
            since, killed, _ = forked(recover, kill=kill, after=None, folder=folder)
            answer["killed"].append(killed)
            if since and since[-1]["say"] == "failed":
                return {**answer, "wrong": f"the folder does not open: {since[-1]['why']}"}
        found, _, _ = forked(look, kill=None, after=None)
        if not found or found[-1]["say"] != "finished":
            answer["wrong"] = f"{found[-1]['why'] if found else 'killed'}\nthe last it told: {told[-3:]}"
        return answer


def main() -> None:
    """Answer until the end of the input."""
    server = Server(Path(sys.argv[1]))
    for line in sys.stdin:
        print(json.dumps(server.answer(json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
