"""Learners that unlearn without training, in folders: whatever a crash leaves, the models are those of the records."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

import expunge
from expunge import AddMany, Delete
from expunge.folder.codec import encode_model
from expunge.folder.store import steps
from expunge.training.ensemble import learn
from expunge.training.learners.named import exact_names, named_learner

OPTIONS = {"forest-exact": {"num_trees": 4, "share": 0.7}, "neighbours-exact": {"num_neighbours": 3}}
STEPS = [
    *("accept.done", "apply.trained", "stage.model", "stage.done", "switch.open"),
    *("switch.done", "erase.slots", "erase.files", "erase.checkpoint", "applied.open", "applied.done"),
]
ROWS = np.random.default_rng(0).normal(size=(66, 3))
LABELS = (ROWS[:, 0] > 0).astype(np.int64)


def bits(state, models):
    return [encode_model(state.learner, model).data for model in models]


def settled(path):
    """The ids and the models once everything accepted is applied; the models are those of training from scratch."""
    with expunge.open(path) as deployment:
        deployment.apply()
        state = deployment.inside.state
        found = bits(state, state.models)
        assert found == bits(state, learn(state.records, state.recipe).models)
        assert deployment.predict(ROWS[:5]).shape == (5,)
        return set(state.records.ids()), found


@pytest.mark.parametrize("name", exact_names())
def test_a_crash_at_any_step_leaves_the_models_before_or_after(name, folder):
    learner = named_learner(name, **OPTIONS.get(name, {}))
    batch = [Delete(5), Delete(7), AddMany(ids=[60, 61], features=ROWS[60:62], labels=LABELS[60:62])]
    copies = {}

    def die(step):
        if step in STEPS and step not in copies:
            copies[step] = shutil.copytree(folder, folder.with_name(step))

    with expunge.create(folder, learner, ROWS[:60], LABELS[:60], ids=range(60), n_shards=1) as deployment:
        before, steps.on_step = steps.on_step, die
        try:
            deployment.submit(batch)
            deployment.apply()
        finally:
            steps.on_step = before
        assert deployment.inside.last_report.num_retrained == 1
    expected = settled(folder)
    assert expected[0] == {*range(62)} - {5, 7}
    assert sorted(copies) == sorted(STEPS)
    for step, copy in copies.items():
        (copy / "lock").unlink(missing_ok=True)
        assert settled(copy) == expected, step
    rows = [ROWS[record].tobytes() for record in (5, 7)]
    files = [path.read_bytes() for path in folder.rglob("*") if path.is_file()]
    assert not any(row in content for row in rows for content in files)
    assert any(ROWS[8].tobytes() in content for content in files)  # what is there is found
