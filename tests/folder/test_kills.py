"""A real process is killed (SIGKILL) at every named step and at random instants; its folder is then held against what
it had told by then. See `processes/`: `story` acts, `invariants` looks, `server` forks and kills.
"""

from __future__ import annotations

import random

import numpy as np
import pytest

import expunge
from expunge.core.errors import DuplicateRecordError
from expunge.folder.store import steps
from expunge.training.learners import LookupTableLearner

SEED = 20
CREATING = {step for step in steps.STEPS if step.startswith(("create.", "backup.", "restore."))}
NOT_EVERYWHERE = {"erase.keys", "dirty.flagged", "dirty.done", "rewrite.done", "reserve.open", "reserve.done"}
EVERYWHERE = set(steps.STEPS) - CREATING - NOT_EVERYWHERE
RESERVING = {"reserve.open", "reserve.done"}

# Of every scenario: the steps that it passes, and at how many of the passings of each it is killed.
NAMED: dict[str, tuple[set[str], int]] = {
    "plain": (EVERYWHERE | RESERVING | {"rewrite.done"}, 1),  # a new key puts the records into another order
    "objects": (EVERYWHERE | RESERVING | {"rewrite.done"}, 2),
    "noisy": (EVERYWHERE | RESERVING, 1),
    "gate": (EVERYWHERE | RESERVING | {"dirty.flagged", "dirty.done"}, 1),
}
FEW = {
    "encrypted": ["accept.staged", "stage.done", "switch.open", "switch.done", "erase.keys", "erase.heap", "open.read"],
    "sparse": ["accept.staged", "rewrite.done", "stage.model", "switch.open", "switch.done", "erase.heap", "open.read"],
    "slices": ["accept.done", "stage.records", "stage.model", "stage.done", "switch.open", "switch.done", "open.read"],
    "refusing": ["accept.done", "switch.done", "reserve.done", "close.done"],
    "background": ["stage.model", "switch.open", "switch.done", "applied.done"],
    "student": ["stage.done", "switch.open", "switch.done", "erase.files"],
    "router": ["stage.done", "switch.open", "switch.done", "erase.files"],
}
NUM_RANDOM = 36
INTERRUPTED = [
    "accept.done",
    "apply.trained",
    "stage.model",
    "rewrite.done",
    "stage.done",
    "switch.open",
    "switch.done",
]
INTERRUPTED += ["erase.heap", "erase.files", "erase.checkpoint", "applied.open", "applied.done", "cancel.done"]
CREATIONS = ["create.folder", "create.records", "stage.model", "create.models", "create.written", "create.renamed"]
RECOVERY = ["open.locked", "sweep.listed", "erase.heap", "open.swept", "open.read", "erase.slots", "erase.files"]
RECOVERY += ["erase.checkpoint", "applied.open", "applied.done", "open.done"]
RECIPES = ["rewrite.done", "stage.model", "stage.done", "switch.open", "switch.done", "sweep.listed", "applied.open"]
CUT_SHORT = ["switch.done", "erase.heap", "erase.files"]


def test_there_are_enough_kills():
    named = sum(len(passed) * times for passed, times in NAMED.values()) + sum(map(len, FEW.values()))
    assert named + NUM_RANDOM + len(CREATIONS) + len(CUT_SHORT) * (1 + len(RECOVERY)) >= 200


def killed_at(ask, scenario, step, passing):
    """Kill at that passing; the secret randomness decides how often some steps are passed, so perhaps at an earlier."""
    for attempt in range(8):
        answer = ask(scenario=scenario, seed=SEED + attempt // 2, kill=[step, passing if attempt == 0 else 1])
        assert not answer["wrong"], f"{scenario} killed at {step} {passing}: {answer['wrong']}"
        if answer["killed"] == [True]:
            return
    pytest.fail(f"{scenario} does not pass {step}")


@pytest.mark.parametrize("scenario", NAMED)
def test_a_process_killed_at_every_step_loses_nothing(ask_killer, scenario):
    expected, times = NAMED[scenario]
    whole = ask_killer(scenario=scenario, seed=SEED)
    assert not whole["wrong"]
    passed = whole["passed"]
    assert set(passed) == expected
    chance = random.Random(scenario)
    for step in sorted(expected):
        count = passed[step]
        passings = [1, count] if times == 2 and count > 1 else [chance.randint(1, count)] * times
        for passing in passings:
            killed_at(ask_killer, scenario, step, passing)


@pytest.mark.parametrize("scenario", FEW)
def test_other_ways_of_answering(ask_killer, scenario):
    whole = ask_killer(scenario=scenario, seed=SEED)
    assert not whole["wrong"]
    chance = random.Random(scenario)
    for step in FEW[scenario]:
        killed_at(ask_killer, scenario, step, chance.randint(1, whole["passed"][step]))


@pytest.mark.parametrize("step", RECIPES)
def test_another_recipe_and_corrections_are_in_force_as_a_whole_or_not_at_all(ask_killer, step):
    acts = ["delete", "another recipe", "correct", "correct", "another recipe", "delete subject"]
    job = {"scenario": "exact", "seed": SEED, "acts": acts}
    count = ask_killer(**job)["passed"][step]
    for passing in {1, count // 2, count - 1}:
        answer = ask_killer(**job, kill=[step, max(1, passing)])
        assert answer["killed"] == [True]
        assert not answer["wrong"], answer["wrong"]


@pytest.mark.parametrize("step", INTERRUPTED)
def test_who_interrupts_an_update_loses_nothing_and_goes_on_or_is_told_to_open_again(ask_killer, step):
    """Ctrl-C in a notebook: an exception at an unexpected place, and the same object used afterwards."""
    answer = ask_killer(scenario="objects", seed=SEED, kill=[step, 1, "interrupt"])
    assert answer["interrupted"]
    assert not answer["wrong"], answer["wrong"]


def test_going_on_after_an_interrupted_switch_would_be_noticed(ask_killer):
    job = {"scenario": "plain", "seed": SEED, "acts": ["add"], "kill": ["switch.done", 1, "interrupt"]}
    assert not ask_killer(**job)["wrong"]
    assert "other records than expected" in ask_killer(**job, sabotage="go_on_out_of_step")["wrong"]


def test_what_was_accepted_at_the_moment_of_an_interruption_is_known(tmp_path, monkeypatch):
    """The same id is not accepted again: two additions of it could never be applied."""

    def interrupt(step):
        if step == "accept.done":
            raise KeyboardInterrupt

    options = {"n_shards": 2, "promise": "unguarded", "apply": "manual"}
    deployment = expunge.create(tmp_path / "folder", LookupTableLearner(), np.eye(4), [0, 1, 0, 1], **options)
    with monkeypatch.context() as patch:
        patch.setattr(steps, "on_step", interrupt)
        with pytest.raises(KeyboardInterrupt):
            deployment.add(np.ones((1, 4)), [1], [77])
    with pytest.raises(DuplicateRecordError, match="77"):
        deployment.add(np.ones((1, 4)), [1], [77])
    assert deployment.apply() == 1
    assert 77 in deployment.records
    deployment.close()


def test_killed_at_random_instants(ask_killer):
    chance, scenarios = random.Random(SEED), [*NAMED, "sparse", "slices", "background"]
    for number in range(NUM_RANDOM):
        scenario, seed = scenarios[number % len(scenarios)], SEED + number
        after = chance.uniform(0.0, 0.4)
        for _ in range(12):
            answer = ask_killer(scenario=scenario, seed=seed, after=after)
            assert not answer["wrong"], f"{scenario} {seed} killed after {after} s: {answer['wrong']}"
            if answer["killed"] == [True]:
                break
            after /= 2  # it was done before that
        assert answer["killed"] == [True]


@pytest.mark.parametrize("step", CUT_SHORT)
def test_a_recovery_that_is_killed_is_taken_up_again(ask_killer, step):
    """One kill in the middle of an erasure, then a kill at every step of the recovery from it, one after another."""
    again = [[each, 1] for each in RECOVERY]
    answer = ask_killer(scenario="objects", seed=SEED, acts=["delete subject"], kill=[step, 1], again=again)
    assert not answer["wrong"], answer["wrong"]
    assert all(answer["killed"])


@pytest.mark.parametrize("step", CREATIONS)
def test_a_folder_is_made_whole_or_not_at_all(ask_killer, step):
    answer = ask_killer(scenario="plain", create=True, kill=[step, 1])
    assert answer["killed"] == [True]
    assert not answer["wrong"], answer["wrong"]
    assert answer["exists"] == (step == "create.renamed")
    # What is left of it lies beside the folder until that is made again, which the server has seen to.
    assert answer["abandoned"] == (0 if answer["exists"] else 1)


@pytest.mark.parametrize(
    ("sabotage", "scenario", "acts", "step", "noticed"),
    [
        ("apply_twice", "plain", ["delete"], "switch.done", "no record has the id"),
        ("forget_the_ledger_of_predictions", "noisy", ["predict"], "close.open", "released, 0 paid for"),
        ("forget_dirt", "gate", ["predict"] * 2, "close.open", "forgotten that the generation is used up"),
        ("leave_files", "plain", ["delete", "add"], "applied.done", "models"),
        ("leave_rows", "plain", ["delete"], "applied.done", "which was erased"),  # opening looks at what it reads
        ("leave_the_log", "plain", ["delete"], "applied.done", "the log was not overwritten before truncate"),
        ("leave_bytes", "plain", ["delete"], "applied.done", "was not overwritten before unlink"),
        ("leave_zeros_in_memory", "plain", ["delete"], "applied.done", "was not flushed before unlink"),
        ("keep_names_in_the_database", "plain", ["delete"], "applied.done", "holds b'key of '"),
    ],
)
def test_a_broken_protocol_is_noticed(ask_killer, graveyard, sabotage, scenario, acts, step, noticed):
    if "before" in noticed and graveyard is None:
        pytest.skip("there is no compiler for C, cc, to build what keeps removed files")
    job = {"scenario": scenario, "acts": acts, "kill": [step, 1]}
    assert not ask_killer(**job, seed=SEED)["wrong"]
    for seed in range(SEED, SEED + 12):  # the dirt alone is a matter of chance: most lives have some
        answer = ask_killer(**job, seed=seed, sabotage=sabotage)
        if answer["wrong"]:
            break
        assert answer["killed"] == [True]
    assert noticed in answer["wrong"]
