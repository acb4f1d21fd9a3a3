"""Trials depend on the seed and their number alone; they survive interruption; requesters see what is published."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from expunge.audit import (
    DeleteCorrect,
    PublishedModels,
    UserScheme,
    audit,
    lookup_scenario,
    make_scheme,
    slow_down_scenario,
    white_box_scenario,
)
from expunge.audit.scenarios import RequesterFactory
from expunge.audit.trials import run_trials
from expunge.core.errors import InputError, ParameterError
from expunge.core.guarantee import Guarantee
from expunge.core.records import Delete

SCENARIO = lookup_scenario(num_pairs=8)
SISA = make_scheme("sisa", SCENARIO)


def dicts(trials):
    return [trial.to_dict() for trial in trials]


def test_one_seed_one_result():
    first, again, other = (run_trials(SCENARIO, SISA, num_trials=6, seed=seed) for seed in (4, 4, 5))
    assert dicts(first) == dicts(again)
    assert dicts(first) != dicts(other)


def test_the_number_of_workers_changes_nothing():
    serial = run_trials(SCENARIO, SISA, num_trials=9, seed=4)
    parallel = run_trials(SCENARIO, SISA, num_trials=9, seed=4, n_jobs=2)
    assert dicts(serial) == dicts(parallel)


def test_more_trials_begin_with_the_same_ones():
    assert dicts(run_trials(SCENARIO, SISA, num_trials=9, seed=4))[:5] == dicts(
        run_trials(SCENARIO, SISA, num_trials=5, seed=4)
    )


class Interrupted:
    """A scheme in whose n-th training Ctrl-C is pressed."""

    def __init__(self, scheme, after):
        self._scheme, self._left = scheme, after

    def __getattr__(self, name):
        return getattr(self._scheme, name)

    def learn(self, records, rng):
        self._left -= 1
        if self._left < 0:
            raise KeyboardInterrupt
        return self._scheme.learn(records, rng)


def test_an_interrupted_audit_goes_on_where_it_was(tmp_path):
    path = tmp_path / "trials.jsonl"
    whole = audit(SCENARIO, SISA, num_trials=20, seed=3)
    for after in (9, 3, 14):
        with pytest.raises(KeyboardInterrupt):
            audit(SCENARIO, Interrupted(SISA, after), num_trials=20, seed=3, resume=path)
    done = len(path.read_text().splitlines()) - 1
    assert 0 < done < 20
    with path.open("a") as file:
        file.write('{"trial": 19, "before": {"sha')  # cut short by a crash
    resumed = audit(SCENARIO, SISA, num_trials=20, resume=path)
    assert resumed.seed == 3
    assert resumed.to_dict() == whole.to_dict()
    assert len(path.read_text().splitlines()) == 21
    again = audit(SCENARIO, Interrupted(SISA, 0), num_trials=20, resume=path)  # nothing is left to train
    assert again.to_dict() == whole.to_dict()


def test_a_file_of_another_audit_is_refused(tmp_path):
    path = tmp_path / "trials.jsonl"
    run_trials(SCENARIO, SISA, num_trials=4, seed=1, resume=path)
    with pytest.raises(InputError, match="its seed is 1, this one's 2"):
        run_trials(SCENARIO, SISA, num_trials=4, seed=2, resume=path)
    with pytest.raises(InputError, match="its scheme is 'sisa', this one's 'majority'"):
        run_trials(SCENARIO, make_scheme("majority", SCENARIO), num_trials=4, seed=1, resume=path)
    with pytest.raises(InputError, match="num_pairs"):
        run_trials(lookup_scenario(num_pairs=9), SISA, num_trials=4, seed=1, resume=path)


def test_trials_with_other_noise_are_not_mixed_in(tmp_path):
    path = tmp_path / "trials.jsonl"
    weak, strong = (make_scheme("exponential", SCENARIO, target=Guarantee(alpha, 1e-3, 1e-3)) for alpha in (1.0, 0.01))
    run_trials(SCENARIO, weak, num_trials=4, seed=1, resume=path)
    with pytest.raises(InputError, match="its mechanism is 'ExponentialMechanism"):
        run_trials(SCENARIO, strong, num_trials=4, seed=1, resume=path)


def test_the_name_of_a_learner_is_the_same_in_every_process():
    class Nameless:
        def fit(self, X, y, seed):
            raise NotImplementedError

    names = {replace(SCENARIO.task, learner=Nameless()).learner_name for _ in range(3)}
    assert len(names) == 1
    assert "0x" not in names.pop()


@pytest.mark.parametrize("content", ["hello\n", '{"format": 99}\n', "[1]\n", "hello"])
def test_a_file_that_is_no_file_of_trials_is_refused(tmp_path, content):
    path = tmp_path / "trials.jsonl"
    path.write_text(content)
    with pytest.raises(InputError, match="is not a file of trials"):
        run_trials(SCENARIO, SISA, num_trials=4, seed=1, resume=path)


def test_a_damaged_trial_is_refused(tmp_path):
    path = tmp_path / "trials.jsonl"
    run_trials(SCENARIO, SISA, num_trials=4, seed=1, resume=path)
    path.write_text(path.read_text() + '{"trial": "x"}\n')
    with pytest.raises(InputError, match="not a trial"):
        run_trials(SCENARIO, SISA, num_trials=5, seed=1, resume=path)


def test_a_missing_folder_is_named(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        run_trials(SCENARIO, SISA, num_trials=4, seed=1, resume=tmp_path / "no" / "trials.jsonl")


class Watcher:
    """Keeps what it was shown."""

    seen: list

    def __init__(self, requester, seen):
        self._requester, self._seen = requester, seen

    def next_batch(self, published, asked):
        self._seen.append((published, asked))
        return self._requester.next_batch(published, asked)


def watched(scenario, seen):
    make = scenario.make_requester
    return replace(scenario, make_requester=lambda rng: Watcher(make(rng), seen))


@pytest.mark.parametrize("name", ["sisa", "exponential", "broken"])
def test_label_only_requesters_are_handed_labels_and_their_own_requests_only(name):
    seen: list = []
    run_trials(watched(SCENARIO, seen), make_scheme(name, SCENARIO), num_trials=2, seed=1)
    assert seen
    for published, asked in seen:
        for labels in published:
            assert type(labels) is np.ndarray
            assert labels.shape == (16,)
            assert labels.dtype == np.int64
            assert set(labels.tolist()) <= {-1, 0, 1}
        assert all(isinstance(update, Delete) for batch in asked for update in batch)


def test_full_model_requesters_are_handed_models_without_membership():
    scenario = slow_down_scenario(num_records=20, num_rounds=2)
    seen: list = []
    run_trials(watched(scenario, seen), make_scheme("majority", scenario), num_trials=1, seed=1)
    shown = seen[-1][0][-1]
    assert isinstance(shown, PublishedModels)
    assert set(shown.__dataclass_fields__) == {"models", "num_classes"}
    assert not any(hasattr(model, "membership") for model in shown.models)


class Forgetful:
    """A scheme that applies no update and says so; the auditor must not believe its records."""

    name = "forgetful"

    def __init__(self):
        self._scheme = SISA

    def __getattr__(self, name):
        return getattr(self._scheme, name)

    def update(self, state, batch, rng):
        return state


def test_what_is_left_is_computed_from_the_requests():
    lazy = Forgetful()
    trials = run_trials(SCENARIO, lazy, num_trials=4, seed=1)
    honest = run_trials(SCENARIO, SISA, num_trials=4, seed=1)
    assert [t.num_survivors for t in trials] == [t.num_survivors for t in honest]
    assert all(t.unlearned["shards that know a deleted record"] > 0 for t in trials)
    assert all(t.retrained["shards that know a deleted record"] == 0 for t in trials)
    report = audit(SCENARIO, lazy, num_trials=40, seed=1)
    assert report.rejected  # false alarm 0.05 in general; here all 40 trials differ in one direction, p = 5e-12
    assert report.p_value < 1e-10


def test_the_statistic_before_any_request_is_of_all_records():
    trials = run_trials(SCENARIO, SISA, num_trials=3, seed=1)
    for trial in trials:
        assert np.isnan(trial.before["shards that know a deleted record"])
        assert 1 / 3 <= trial.before["shards that know a surviving record"] <= 2 / 3
        assert json.loads(json.dumps(trial.to_dict()))["before"]["shards that know a deleted record"] is None


class Labels:
    """A user's scheme without models."""

    def learn(self, records, rng):
        return records

    def update(self, state, batch, rng):
        return state.apply(batch)[0]

    def records_of(self, state):
        return state

    def release(self, state, points):
        return np.zeros(len(points), dtype=np.int64)


def test_a_scheme_without_models_cannot_be_audited_in_the_full_model_setting():
    from expunge.audit import digits_task

    scheme = UserScheme(Labels(), name="labels")
    report = audit(SCENARIO, scheme, num_trials=4, seed=1)
    assert report.p_value == 1.0
    with pytest.raises(InputError, match="shows no models"):
        audit(white_box_scenario(digits_task(num_records=40)), scheme, num_trials=4, seed=1)


def test_a_requester_of_the_users_own():
    def own(task, rng):
        ids, _, codes = task.columns
        return DeleteCorrect(ids, codes)

    scenario = lookup_scenario(num_pairs=8, requester=own)
    assert isinstance(scenario.make_requester, RequesterFactory)
    assert scenario.parameters["requester"] == "user's own"
    assert dicts(run_trials(scenario, SISA, num_trials=3, seed=1)) == dicts(
        run_trials(SCENARIO, SISA, num_trials=3, seed=1)
    )


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_trials": 3}, "num_trials"),
        ({"num_trials": True}, "num_trials"),
        ({"seed": -1}, "seed"),
        ({"seed": 1.5}, "seed"),
        ({"significance": 0.0}, "significance"),
        ({"confidence": 1.0}, "confidence"),
        ({"beta": -0.1}, "beta"),
        ({"gamma": 1.0}, "gamma"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ParameterError, match=message):
        audit(SCENARIO, SISA, **{"num_trials": 4, **options})


def test_progress_counts_every_trial(tmp_path):
    from contextlib import contextmanager

    steps = []

    @contextmanager
    def progress(description, total):
        steps.append((description, total))
        yield steps.append

    run_trials(SCENARIO, SISA, num_trials=5, seed=1, resume=tmp_path / "t", progress=progress)
    assert steps[0] == ("lookup against sisa", 5)
    assert sum(steps[1:]) == 5
