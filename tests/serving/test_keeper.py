"""A deployment calls its keeper at every step that a crash must not undo, in the right order."""

from __future__ import annotations

import pickle
import threading
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest

from expunge import Add, Deployment, IndependentSampler, PrivacyBudget, Randomness, Records
from expunge.core.errors import BudgetExhaustedError, TrainingError
from expunge.privacy.mechanisms import ExponentialMechanism
from expunge.serving.keeper import InMemory, RoundState
from expunge.serving.publishing import DirectFront, ExactPublisher, NoisyPublisher
from expunge.training.learners import LookupTableLearner

X = np.arange(30.0).reshape(-1, 1)
Y = np.arange(30) % 2
QUERY = np.array([[7.0]])


class Recorder:
    """Writes down every call. A failure that is named is raised there."""

    def __init__(self):
        self.calls, self.fails, self.deployment, self.written = [], {}, None, {}
        self.round = None  # to put in service instead of the one given

    def _call(self, name, *facts):
        self.calls.append((name, *facts))
        if name in self.fails:
            raise self.fails[name]

    @contextmanager
    def working(self):
        self._call("working")
        yield
        self.calls.append(("worked",))

    def begin(self, present):
        self.written = {}
        self._call("begin", present.round)
        return self

    def start(self, state, change):
        self.change = change
        self._call("start", len(state.records))

    def add(self, shard, model):
        self.written[shard] = model

    def stage(self, present, following):
        assert self.deployment.inside is present
        assert self.written.keys() <= set(range(3))
        assert all(following.state.models[shard] is model for shard, model in self.written.items())
        self._call("stage", present.round, following.round)
        return self.round(following) if self.round else following

    def commit(self, present, following, switch):
        assert self.deployment.inside is present
        self._call("commit", present.round, following.round, following.generation)
        switch(following)
        assert self.deployment.inside is following

    def erase(self, present):
        assert self.deployment.inside is present
        self._call("erase", present.round, len(present.state.records))

    def drop(self, present):
        assert self.deployment.inside is present
        self._call("drop", present.round)

    def journal(self, present):
        self._call("journal", present.generation, self.deployment is not None and self.deployment.inside is present)
        return Journal(self)

    def close(self, present):
        self._call("close", present.round)

    def assumptions(self, rng):
        return ["It is recorded."]

    def taken(self):
        """The calls since the last time."""
        found, self.calls = self.calls, []
        return found


class Journal:
    def __init__(self, recorder):
        self.recorder = recorder

    def reserve(self, total, limit):
        self.recorder._call("reserve", total)

    def mark_dirty(self):
        raise AssertionError("no gate here")


class Mechanism(ExponentialMechanism):
    """Notes when an answer is drawn."""

    def release(self, counts, rng):
        self.recorder._call("release", len(counts))
        return super().release(counts, rng)


def deploy(keeper, **options):
    mechanism = Mechanism(epsilon=0.01)
    object.__setattr__(mechanism, "recorder", keeper)
    options = {
        "publisher": NoisyPublisher(mechanism, budget=PrivacyBudget(1.0, 0.0)),
        "learner": LookupTableLearner(),
        **options,
    }
    keeper.deployment = Deployment(
        Records.build(X, Y),
        num_shards=3,
        sampler=IndependentSampler(1.0),
        rng=Randomness.from_seed(0),
        keeper=keeper,
        **options,
    )
    return keeper.deployment


@pytest.fixture
def keeper():
    return Recorder()


@pytest.fixture
def deployment(keeper):
    made = deploy(keeper)
    keeper.taken()
    return made


def test_a_new_deployment_has_a_journal_and_nothing_to_commit(keeper):
    deploy(keeper)
    assert keeper.taken() == [("journal", 1, False)]


def test_an_update_is_begun_committed_switched_and_erased(deployment, keeper):
    assert deployment.delete([7]).round == 1
    steps = [("begin", 0), ("start", 29), ("stage", 0, 1), ("commit", 0, 1, 1), ("erase", 1, 29)]
    assert keeper.taken() == [("working",), *steps, ("worked",)]
    assert keeper.written.keys() == {0, 1, 2}
    assert keeper.change.removed.tolist() == [7]


def test_a_full_retraining_gives_all_models_and_a_new_journal_before_the_switch(deployment, keeper):
    for act, round_ in ((deployment.rekey, 0), (lambda: deployment.delete([7]), 1)):
        generation = deployment.status.generation + 1
        before = deployment.inside.publisher
        if round_:
            deployment.predict(np.arange(1000.0).reshape(-1, 1))  # more than the budget covers
            keeper.taken()
        act()
        left = 30 - round_
        assert keeper.taken()[1:-1] == [
            ("begin", 0),
            ("start", left),
            ("stage", 0, round_),
            ("commit", 0, round_, generation),
            ("journal", generation, False),
            ("erase", round_, left),
        ]
        assert keeper.written.keys() == {0, 1, 2}
        after = deployment.inside.publisher
        assert after is not before
        assert isinstance(after.journal, Journal)


@pytest.mark.parametrize("step", ["begin", "start", "stage", "commit"])
@pytest.mark.parametrize("error", [OSError("full"), KeyboardInterrupt()])
def test_a_round_that_was_not_kept_is_dropped_and_the_old_one_stays_in_service(deployment, keeper, step, error):
    before, keeper.fails = deployment.inside, {step: error}
    with pytest.raises(type(error)):
        deployment.delete([7])
    assert deployment.inside is before
    assert [name for name, *_ in keeper.taken()][-1] == "drop"
    keeper.fails = {}
    assert deployment.delete([7]).round == 1


class Interrupting:
    """A lock that is interrupted when it is given back."""

    def __init__(self, lock):
        self._lock, self.is_armed = lock, True

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *error):
        self._lock.__exit__(*error)
        if self.is_armed:
            self.is_armed = False
            raise KeyboardInterrupt


def test_an_interruption_after_the_switch_is_one_of_the_new_round(deployment, keeper):
    """Then memory agrees with what was committed, and the keeper is told so."""
    deployment._lock = Interrupting(deployment._lock)
    with pytest.raises(KeyboardInterrupt):
        deployment.delete([7])
    assert keeper.taken()[-1] == ("drop", 1)
    assert 7 not in deployment.records
    assert deployment.delete([8]).round == 2


def test_a_journal_that_fails_leaves_the_old_generation_in_service(deployment, keeper):
    before, keeper.fails = deployment.inside, {"journal": OSError("full")}
    with pytest.raises(OSError, match="full"):
        deployment.rekey()
    assert deployment.inside is before
    assert keeper.taken()[-1] == ("drop", 0)


def test_a_training_that_fails_is_dropped(keeper):
    class Broken(LookupTableLearner):
        is_broken = False

        def fit(self, X, y, seed, *, weights=None):
            if Broken.is_broken:
                raise RuntimeError("broken")
            return super().fit(X, y, seed, weights=weights)

    deployment = deploy(keeper, learner=Broken())
    keeper.taken()
    Broken.is_broken = True
    with pytest.raises(TrainingError):
        deployment.delete([7])
    assert [name for name, *_ in keeper.taken()] == ["working", "begin", "start", "drop"]
    assert 7 in deployment.records


def test_an_erasing_that_fails_leaves_the_new_round_in_service(deployment, keeper):
    keeper.fails = {"erase": OSError("full")}
    with pytest.raises(OSError, match="full"):
        deployment.delete([7])
    assert 7 not in deployment.records
    assert deployment.status.round == 1
    assert ("drop", 1) not in keeper.taken()


def test_a_front_that_cannot_pay_drops_its_round_and_begins_another(keeper):
    class Poor(DirectFront):
        is_poor = False

        def open_round(self, opening):
            if Poor.is_poor and opening.change is not None:
                raise BudgetExhaustedError("poor")
            return super().open_round(opening)

    deployment = deploy(keeper, front=Poor())
    keeper.taken()
    Poor.is_poor = True
    deployment.delete([7])
    assert [name for name, *_ in keeper.taken()][1:-1] == [
        *("begin", "start", "drop"),
        *("begin", "start", "stage", "commit", "journal", "erase"),
    ]
    assert deployment.status.generation == 2


def test_what_was_kept_is_what_is_served(deployment, keeper):
    """A keeper may lay the records out anew."""

    def rewritten(following):
        state = following.state.compacted()
        return replace(following, state=state, serving=following.serving.moved(state))

    keeper.round = rewritten
    deployment.update([Add(id="new", features=[99.0], label=1)])
    deployment.delete([7])
    inside = deployment.inside
    assert inside.state.records.num_slots == inside.state.records.num_live == 30
    assert inside.serving.opening.state is inside.state


def test_predictions_are_reserved_before_they_are_drawn(deployment, keeper):
    deployment.predict(QUERY)
    assert keeper.taken() == [("reserve", 1), ("release", 1)]
    deployment.predict(QUERY)  # answered before
    assert keeper.taken() == []
    keeper.fails = {"reserve": OSError("full")}
    with pytest.raises(OSError, match="full"):
        deployment.predict(QUERY + 1)
    assert keeper.taken() == [("reserve", 2)]
    assert deployment.status.budget.predictions == 1
    keeper.fails = {}
    deployment.predict(QUERY + 1)
    assert keeper.taken() == [("reserve", 2), ("release", 1)]


def test_a_retraining_in_the_background_is_kept_in_the_same_way(keeper):
    mechanism = ExponentialMechanism(epsilon=1.0)
    budget = PrivacyBudget(2.0, 0.0)
    deployment = deploy(keeper, publisher=NoisyPublisher(mechanism, budget=budget, on_exhausted="retrain_now"))
    keeper.taken()
    deployment.predict(X[:5])
    deployment.wait()
    assert deployment.status.generation == 2
    assert keeper.taken() == [
        *(("reserve", 5), ("working",), ("begin", 0), ("start", 30), ("stage", 0, 0), ("commit", 0, 0, 2)),
        *(("journal", 2, False), ("erase", 0, 30), ("worked",)),
    ]
    keeper.fails = {"commit": OSError("full")}
    deployment.predict(X[:5] + 100)
    deployment._background.join()
    assert str(deployment.background_error()) == "full"
    assert deployment.background_error() is None
    assert deployment.status.generation == 2


def test_updates_wait_while_they_are_held(deployment, keeper):
    with deployment.hold():
        waiting = threading.Thread(target=deployment.delete, args=[[7]])
        waiting.start()
        waiting.join(0.2)
        assert 7 in deployment.records
        deployment.delete([8])  # of the thread itself
    waiting.join()
    assert deployment.status.round == 2
    deployment.close()
    assert keeper.taken()[-1] == ("close", 2)


def test_the_keeper_says_what_is_assumed(deployment):
    assert "It is recorded." in deployment.guarantee().assumptions
    in_memory = InMemory().assumptions(Randomness.from_seed(0))
    assert not set(in_memory) & set(deployment.guarantee().assumptions)
    assert len(in_memory) == 2


def test_a_deployment_goes_on_from_a_round_without_training(deployment, keeper):
    class Untrainable(LookupTableLearner):
        def fit(self, X, y, seed, *, weights=None):
            raise AssertionError("nothing is trained")

    deployment.delete([7])
    present, other = deployment.inside, Recorder()
    keeper.taken()
    again = Deployment.resumed(present, Untrainable(), front=DirectFront(), max_generations=100, keeper=other)
    assert again.inside is present
    assert again.status == deployment.status
    assert other.taken() == [("journal", 1, False)]
    other.deployment = again
    assert again.delete([8]).round == 2
    assert [name for name, *_ in other.taken()][1:-1] == ["begin", "start", "stage", "commit", "erase"]
    assert keeper.taken() == []


def test_a_copy_is_kept_in_memory(keeper):
    deployment = deploy(keeper, publisher=ExactPublisher())
    keeper.taken()
    copy = pickle.loads(pickle.dumps(deployment))
    copy.delete([7])
    assert keeper.taken() == []
    assert 7 in deployment.records
    assert isinstance(copy.inside, RoundState)
