"""The built-in attacks, which can be pointed at any scheme.

lookup: Section 5.1 and Theorem 5.1. label-only: Appendix C.2. white-box: Section 5.2. membership: shadow models in the
style of LiRA (Carlini et al. 2022). slow-down: Theorem 4.2.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import logit

from expunge.audit import requesters, statistics
from expunge.audit.inference import Event
from expunge.audit.scenario import Codes, History, MakeRequester, Scenario, Scheme, Setting, Statistic, Task
from expunge.audit.schemes import DeploymentScheme, PublishVotes
from expunge.core.checks import require_count
from expunge.core.errors import ParameterError
from expunge.core.features import Features
from expunge.core.guarantee import Guarantee
from expunge.core.randomness import Randomness
from expunge.core.records import Delete, RecordId, Records
from expunge.serving.interaction import EnsemblePair, Requester, interact
from expunge.serving.promises import Consensus, Promise
from expunge.training.ensemble import EnsembleState, learn
from expunge.training.learners import LookupTableLearner, NearestTableLearner
from expunge.training.sampling import IndependentSampler, PartitionSampler, Sampler

Scores = NDArray[np.float64]


def requester_name(requester: str | MakeRequester | None, usual: str = "user's own") -> str:
    """What a report and a file of trials call a requester. For a user's own it is the module:factory, if known."""
    if requester is None or isinstance(requester, str):
        return requester or usual
    return str(getattr(requester, "reference", "user's own"))


@dataclass(frozen=True)
class FixedStatistics:
    """Statistics that need no preparation."""

    statistics: Mapping[str, Statistic] = field(default_factory=dict)

    def __call__(self, scheme: Scheme[Any], rng: Randomness) -> Mapping[str, Statistic]:
        """The statistics."""
        return self.statistics


@dataclass(frozen=True)
class RequesterFactory:
    """Make a requester for a fixed task. Unlike a closure it can be pickled."""

    make: MakeRequester
    task: Task

    def __call__(self, rng: Randomness) -> Requester:
        """Make the requester for one trial."""
        return self.make(self.task, rng)


# --- lookup ---


@dataclass(frozen=True)
class LookupResult:
    """One trial of the lookup-table attack.

    Parameters
    ----------
    num_pairs
        How many pairs of copies there were before the attack.
    num_surviving_pairs
        How many pairs the requester left.
    accuracy_before
        Accuracy on all training points, before any request.
    accuracy_unlearned, accuracy_retrained
        Accuracy on the points that are left, after unlearning and after full retraining.
    event_unlearned, event_retrained
        Whether the event of Theorem 5.1 happened, after unlearning and after full retraining.
    accuracy_same_recipe, same_models
        What the recipe of the attacked ensemble, key included, gives on the points that are left: its accuracy, and
        whether its models are those in service (T6).
    """

    num_pairs: int
    num_surviving_pairs: int
    accuracy_before: float
    accuracy_unlearned: float
    accuracy_retrained: float
    event_unlearned: bool
    event_retrained: bool
    accuracy_same_recipe: float
    same_models: bool


def make_pairs(num_pairs: int) -> Records:
    """Make D^0 of Theorem 5.1: two copies of each of several distinct points, with alternating labels.

    Parameters
    ----------
    num_pairs
        How many distinct points.

    Returns
    -------
    Records
        Twice as many records.

    Examples
    --------
    >>> len(make_pairs(10))
    20
    """
    points = np.repeat(np.arange(num_pairs, dtype=np.float64), 2).reshape(-1, 1)
    return Records.build(points, np.repeat(np.arange(num_pairs) % 2, 2), classes=[0, 1])


def attack_lookup(
    num_pairs: int, *, rng: Randomness, num_shards: int = 3, sampler: Sampler | None = None
) -> LookupResult:
    """Play the attack of Section 5.1 once. Theorem 5.1 turns it into a proof that SISA does not unlearn.

    Every training point is there twice. A lookup-table model labels a point only if its shard holds it, so the
    published label tells whether the two copies are in different shards. The requester deletes what is labelled
    correctly. Only pairs that share a shard are left, and the ensemble is wrong on every one of them. Full retraining
    on the same records would be right on about 2/3.

    Parameters
    ----------
    num_pairs
        How many pairs of copies.
    rng
        The randomness of the trial.
    num_shards
        How many shards of lookup tables.
    sampler
        How records are assigned to shards. None: to one shard each, independently of each other, as in SISA.

    Returns
    -------
    LookupResult
        Accuracies and events of this trial.

    Examples
    --------
    >>> from expunge.core.randomness import Randomness
    >>> found = attack_lookup(200, rng=Randomness.from_seed(1))
    >>> found.accuracy_unlearned, found.event_unlearned, found.event_retrained
    (0.0, True, False)
    """
    pair = EnsemblePair(LookupTableLearner(), sampler or PartitionSampler(), num_shards)
    records = make_pairs(num_pairs)
    points, codes, _ = records.gather(records.live_slots())
    requester = requesters.DeleteCorrect(records.ids(), codes)
    played = interact(pair, PublishVotes(points), requester, records, rng=rng, max_rounds=1)
    survivors = played.state.records
    retrained = pair.learn(survivors, rng)
    again = learn(survivors.compacted(), played.state.recipe)
    return LookupResult(
        num_pairs=num_pairs,
        num_surviving_pairs=len(survivors) // 2,
        accuracy_before=float(np.mean(played.published[0] == codes)),
        accuracy_unlearned=_training_accuracy(played.state),
        accuracy_retrained=_training_accuracy(retrained),
        event_unlearned=each_point_has_one_shard(played.state),
        event_retrained=each_point_has_one_shard(retrained),
        accuracy_same_recipe=_training_accuracy(again),
        same_models=again.models == played.state.models,
    )


@dataclass(frozen=True)
class DeploymentAttack:
    """One trial of the lookup-table attack on a deployment with independent shards.

    Parameters
    ----------
    num_pairs, num_surviving_pairs
        How many pairs of copies there were, and how many the requester left.
    accuracy_before
        Accuracy of the published labels, before any request.
    accuracy_in_service, accuracy_retrained
        Accuracy on the points that are left: of the deployment, and of one that was trained afresh on them.
    num_shards, models_retrained
        How many models there are, and how many the deletions retrained.
    same_models
        Whether the models in service are those of the recipe in force, bit for bit (T6).
    guarantee
        The (α,β,γ) that the deployment has.
    """

    num_pairs: int
    num_surviving_pairs: int
    accuracy_before: float
    accuracy_in_service: float
    accuracy_retrained: float
    num_shards: int
    models_retrained: int
    same_models: bool
    guarantee: Guarantee


def attack_deployment(
    num_pairs: int, *, rng: Randomness, num_shards: int = 1000, promise: Promise | None = None
) -> DeploymentAttack:
    """Play the attack of Section 5.1 once against a deployment with independent shards.

    A lookup table answers only for the points of its own shard, so the shards never agree. Under consensus publishing
    the labels are given all the same, and the next update retrains everything with new secrets (T4). So what the
    requester has arranged is gone.

    Parameters
    ----------
    num_pairs
        How many pairs of copies.
    rng
        The randomness of the trial.
    num_shards
        How many shards; enough of them for the promise (5, 1e-3, 1e-3).
    promise
        What is promised; `Consensus()` if None.

    Returns
    -------
    DeploymentAttack
        Accuracies of this trial.

    Examples
    --------
    >>> from expunge.core.randomness import Randomness
    >>> found = attack_deployment(50, rng=Randomness.from_seed(1))
    >>> found.models_retrained == found.num_shards, found.guarantee.is_vacuous
    (True, False)
    """
    promise = Consensus() if promise is None else promise
    scheme = DeploymentScheme(
        name=promise.name,
        make_learner=LookupTableLearner,
        sampler=IndependentSampler(),
        num_shards=num_shards,
        publisher=promise.make_publisher(num_shards, 2, rng),
        max_generations=promise.max_generations,
    )
    records = make_pairs(num_pairs)
    points, codes, _ = records.gather(records.live_slots())
    deployment = scheme.learn(records, rng)
    published = scheme.release(deployment, points)
    trained = deployment.inside.models_trained
    deployment.update([Delete(each) for each in np.array(records.ids())[published == codes].tolist()])
    left, state = deployment.records, deployment.inside.state
    again = learn(left.compacted(), state.recipe)
    return DeploymentAttack(
        num_pairs=num_pairs,
        num_surviving_pairs=len(left) // 2,
        accuracy_before=float(np.mean(published == codes)),
        accuracy_in_service=_plurality_accuracy(state),
        accuracy_retrained=_plurality_accuracy(scheme.learn(left.compacted(), rng).inside.state),
        num_shards=num_shards,
        models_retrained=deployment.inside.models_trained - trained,
        same_models=again.models == state.models,
        guarantee=deployment.guarantee(),
    )


def _plurality_accuracy(state: EnsembleState) -> float:
    """Accuracy of the plurality, which a deployment publishes, on the records of the state; 1 if none are left."""
    points, codes, _ = state.records.gather(state.records.live_slots())
    return float(np.mean(state.count_votes(points).argmax(axis=1) == codes)) if len(codes) else 1.0


def _training_accuracy(state: EnsembleState) -> float:
    """Accuracy on the records of the state itself; 1 if none are left."""
    points, codes, _ = state.records.gather(state.records.live_slots())
    return float(np.mean(PublishVotes(points)(0, state) == codes)) if len(codes) else 1.0


def each_point_has_one_shard(state: EnsembleState) -> bool:
    """E^t of Theorem 5.1: every point that is left is in exactly one shard's table."""
    points, _, _ = state.records.gather(state.records.live_slots())
    return bool((state.count_votes(points).sum(axis=1) == 1).all())


# Points are whole numbers, so this table knows exactly what it was shown. Public points are a quarter away from them.
_TAU = 0.3
_PUBLIC_OFFSET = 0.25
_ADDING_ROUNDS = 4


def lookup_scenario(*, num_pairs: int = 50, requester: str | MakeRequester = "correct") -> Scenario:
    """Make the lookup-table attack (Section 5.1, Theorem 5.1) for any scheme.

    Labels of two copies of each point are published. If copies are to be added, each point is there once. A requester
    that deletes what is labelled correctly leaves records in an arrangement that fresh training would hardly give. The
    statistics are: how many shards still know a surviving record, how many are labelled correctly, and how much is left
    of the deleted ones.

    Parameters
    ----------
    num_pairs
        How many distinct points.
    requester
        "correct" deletes all records that are labelled correctly, "one-by-one" the same, one a round; "random-correct"
        deletes half as many records as there are points, from the correct ones, "random" as many chosen in advance;
        "add" adds copies of what is labelled wrongly. Or a function of the task and randomness that makes a requester.

    Returns
    -------
    Scenario
        The scenario.

    Raises
    ------
    ParameterError
        If there are fewer than two points, or there is no such requester.

    Examples
    --------
    >>> from expunge.audit import DeleteThese, audit, make_scheme
    >>> scenario = lookup_scenario(num_pairs=10, requester=lambda task, rng: DeleteThese(task.columns[0][:5]))
    >>> audit(scenario, make_scheme("sisa", scenario), num_trials=20, seed=1).verdict
    'no difference from full retraining was found'
    """
    require_count("num_pairs", num_pairs, least=2)
    adds = requester == "add"
    task = _numbers_task(num_pairs, records=None if adds else make_pairs(num_pairs))
    return Scenario(
        name="lookup",
        about=f"every training point {'once' if adds else 'twice'}, lookup tables",
        task=task,
        points=task.columns[1],
        make_requester=_make_label_requester(requester, task, size=num_pairs // 2),
        prepare=FixedStatistics(
            {
                "shards that know a surviving record": statistics.SurvivorSupport(),
                "accuracy on surviving records": statistics.SurvivorAccuracy(),
                "shards that know a deleted record": statistics.DeletedSupport(),
            }
        ),
        max_rounds={"one-by-one": len(task.records), "add": _ADDING_ROUNDS}.get(str(requester), 1),
        parameters={"num_pairs": num_pairs, "requester": requester_name(requester)},
    )


def _make_label_requester(requester: str | MakeRequester, task: Task, *, size: int) -> RequesterFactory:
    make = requesters.NamedRequester(requester, size=size) if isinstance(requester, str) else requester
    return RequesterFactory(make, task)


def _numbers_task(num_points: int, *, records: Records | None = None) -> Task:
    """Whole numbers with alternating labels, each of them once if no records are given."""
    points = np.arange(num_points, dtype=np.float64).reshape(-1, 1)
    codes = np.arange(num_points, dtype=np.int64) % 2
    kept = Records.build(points, codes, classes=[0, 1]) if records is None else records
    # On whole numbers it answers as the lookup table does; unlike it, it also answers near them.
    return Task("lookup tables", kept, NearestTableLearner(_TAU), points, codes, points + _PUBLIC_OFFSET)


# --- label-only ---


def label_only_scenario(
    task: Task, *, num_deletions: int | None = None, requester: str | MakeRequester = "random-correct"
) -> Scenario:
    """Make the label-only attack of Appendix C.2: delete a random subset of what is predicted correctly.

    The statistics are the accuracy on the records that are left, and the share of the shards that vote for a deleted
    record's label.

    Parameters
    ----------
    task
        The data and the learner.
    num_deletions
        How many records to delete at most; None means a fifth of them.
    requester
        As in `lookup_scenario`; "random-correct" and "random" delete `num_deletions` records.

    Returns
    -------
    Scenario
        The scenario.

    Raises
    ------
    ParameterError
        If there are not so many records, or there is no such requester.

    Examples
    --------
    >>> from expunge.audit import digits_task
    >>> label_only_scenario(digits_task(num_records=100)).about
    'digits; at most 20 records are deleted'
    """
    size = len(task.records) // 5 if num_deletions is None else num_deletions
    require_count("num_deletions", size, most=len(task.records))
    return Scenario(
        name="label-only",
        about=task.name if requester == "correct" else f"{task.name}; at most {size} records are deleted",
        task=task,
        points=task.columns[1],
        make_requester=_make_label_requester(requester, task, size=size),
        prepare=FixedStatistics(
            {
                "accuracy on surviving records": statistics.SurvivorAccuracy(),
                "shards that know a deleted record": statistics.DeletedSupport(),
            }
        ),
        max_rounds=size if requester == "one-by-one" else 1,
        parameters={
            "task": task.name,
            "num_records": len(task.records),
            "num_deletions": size,
            "requester": requester_name(requester),
        },
    )


# --- white-box ---

_INDICATOR = "targeted shards are less accurate than the others"


def white_box_scenario(task: Task, *, requester: MakeRequester | None = None) -> Scenario:
    """Make the white-box attack of Section 5.2, for any learner that gives probabilities.

    The models are published. The requester deletes the records that, by confidence, seem to be in the first half of the
    shards. The event is fixed in advance: the targeted models have the lower mean accuracy on held-out points. After
    full retraining it has probability ½ by symmetry, if the number of shards is even.

    Parameters
    ----------
    task
        The data and the learner. The task must have test points.
    requester
        None means `DeleteTargeted`; or a function of the task and randomness that makes a requester.

    Returns
    -------
    Scenario
        The scenario.

    Raises
    ------
    ParameterError
        If the task has no test points.

    Examples
    --------
    >>> from expunge.audit import digits_task
    >>> scenario = white_box_scenario(digits_task(num_records=100))
    >>> scenario.setting, str(scenario.event)
    ('models', 'targeted shards are less accurate than the others at least 0.5')
    """
    if task.test_points is None or task.test_codes is None:
        raise ParameterError("the white-box scenario needs held-out points, and the task has none")
    return Scenario(
        name="white-box",
        about=f"{task.name}; all models are published",
        task=task,
        points=task.columns[1],
        make_requester=RequesterFactory(requester or _make_targeted, task),
        prepare=FixedStatistics({_INDICATOR: statistics.TargetedWorse(task.test_points, task.test_codes)}),
        setting="models",
        settings=("models",),
        event=Event(_INDICATOR, "at least", 0.5),
        null_value=0.5,
        parameters={
            "task": task.name,
            "num_records": len(task.records),
            "learner": task.learner_name,
            "requester": requester_name(requester, "targeted"),
        },
    )


def _make_targeted(task: Task, rng: Randomness) -> Requester:
    return requesters.DeleteTargeted(*task.columns)


# --- slow-down ---


def slow_down_scenario(
    task: Task | None = None,
    *,
    num_rounds: int = 3,
    setting: Setting = "models",
    num_records: int = 200,
    requester: MakeRequester | None = None,
) -> Scenario:
    """Make the slow-down attack: a requester looks for records in many shards, so that deleting them is slow.

    Round after round it deletes the record that seems to be in the most shards. The statistic is the number of shards
    that hold the record it names next. The control arm retrains everything and is asked about the same record: its
    count is Bin(k,p). A requester that is shown lookup tables knows the counts, which is the worst case (Theorem 4.2
    holds for any requester).

    Parameters
    ----------
    task
        The data and the learner; None means points that are whole numbers, and lookup tables.
    num_rounds
        How many records are deleted before the statistic is taken.
    setting
        What is published: "models" or "labels".
    num_records
        How many points, if no task is given.
    requester
        None means `DeleteMostShards`; or a function of the task and randomness that makes a requester.

    Returns
    -------
    Scenario
        The scenario.

    Raises
    ------
    ParameterError
        If there are too few rounds or records.

    Examples
    --------
    >>> from expunge.audit import audit, make_scheme
    >>> scenario = slow_down_scenario(num_records=50)
    >>> report = audit(scenario, make_scheme("majority", scenario), num_trials=10, seed=1)
    >>> report.run_time.largest <= report.run_time.adaptive
    True
    """
    require_count("num_rounds", num_rounds)
    if task is None:
        require_count("num_records", num_records, least=2)
    attacked = task or _numbers_task(num_records)
    require_count("num_rounds", num_rounds, most=len(attacked.records) - 1)
    return Scenario(
        name="slow-down",
        about=f"{attacked.name}; all {'models' if setting == 'models' else 'labels'} are published",
        task=attacked,
        points=attacked.columns[1],
        make_requester=RequesterFactory(requester or _make_most_shards, attacked),
        prepare=FixedStatistics({statistics.HOLDERS: statistics.NextHolders()}),
        setting=setting,
        settings=("models", "labels"),
        max_rounds=num_rounds,
        needs_next_batch=True,
        parameters={
            "task": attacked.name,
            "num_records": len(attacked.records),
            "num_rounds": num_rounds,
            "setting": setting,
            "requester": requester_name(requester, "most-shards"),
        },
    )


def _make_most_shards(task: Task, rng: Randomness) -> Requester:
    return requesters.DeleteMostShards(*task.columns)


# --- membership ---

# Confidence is brought this far from 0 and 1 before its logit is taken, and no spread is assumed to be smaller.
_EDGE = 1e-3
_LEAST_SPREAD = 0.05
_TARGET_SEED = 5201


@dataclass(frozen=True)
class LikelihoodRatio:
    """log p(confidence | trained with) − log p(confidence | trained without), summed over the targets."""

    points: Features
    codes: Codes
    num_classes: int
    mean_with: Scores
    mean_without: Scores
    spread_with: Scores
    spread_without: Scores

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """The log-likelihood ratio of the state."""
        seen = _logits(statistics.confidences(scheme, state, self.points, self.codes, self.num_classes))
        inside = _log_density(seen, self.mean_with, self.spread_with)
        outside = _log_density(seen, self.mean_without, self.spread_without)
        return float((inside - outside).sum())


@dataclass(frozen=True)
class MeanConfidence:
    """The mean confidence in the targets' labels: the same question without shadow models."""

    points: Features
    codes: Codes
    num_classes: int

    def __call__(self, scheme: Scheme[Any], state: Any, history: History, rng: Randomness) -> float:
        """The mean."""
        return float(statistics.confidences(scheme, state, self.points, self.codes, self.num_classes).mean())


def fit_likelihood_ratio(
    scheme: Scheme[Any], records: Records, targets: Sequence[RecordId], *, num_shadows: int, rng: Randomness
) -> LikelihoodRatio:
    """Train shadows with the targets and as many without, and fit normal distributions to their confidences.

    The shadows are trained on D and on D^t. For every target they give two normal distributions of the ensemble's
    confidence in its label. The sum over the targets of the log-likelihood ratio is large if a state looks as if it had
    been trained with them.
    """
    require_count("num_shadows", num_shadows, least=2)
    points, codes = _target_rows(records, targets)
    without = records.apply([Delete(target) for target in targets])[0]

    def shadows(data: Records) -> Scores:
        states = (scheme.learn(data, rng) for _ in range(num_shadows))
        return np.stack(
            [_logits(statistics.confidences(scheme, s, points, codes, records.num_classes)) for s in states]
        )

    seen_with, seen_without = shadows(records), shadows(without)
    return LikelihoodRatio(
        points=points,
        codes=codes,
        num_classes=records.num_classes,
        mean_with=seen_with.mean(axis=0),
        mean_without=seen_without.mean(axis=0),
        spread_with=np.maximum(seen_with.std(axis=0), _LEAST_SPREAD),
        spread_without=np.maximum(seen_without.std(axis=0), _LEAST_SPREAD),
    )


def _target_rows(records: Records, targets: Sequence[RecordId]) -> tuple[Features, Codes]:
    """Features and class codes of the targets, in the order of the records."""
    slots = np.array(sorted(records.slot_of(target) for target in targets), dtype=np.int64)
    points, codes, _ = records.gather(slots)
    return points, codes.astype(np.int64)


def _logits(confidence: Scores) -> Scores:
    return np.asarray(logit(np.clip(confidence, _EDGE, 1 - _EDGE)))


def _log_density(x: Scores, mean: Scores, spread: Scores) -> Scores:
    return np.asarray(-(((x - mean) / spread) ** 2) / 2 - np.log(spread) - math.log(2 * math.pi) / 2)


@dataclass(frozen=True)
class _ShadowStatistics:
    """Train the shadows once the scheme is known."""

    records: Records
    targets: tuple[RecordId, ...]
    num_shadows: int

    def __call__(self, scheme: Scheme[Any], rng: Randomness) -> Mapping[str, Statistic]:
        points, codes = _target_rows(self.records, self.targets)
        ratio = fit_likelihood_ratio(scheme, self.records, self.targets, num_shadows=self.num_shadows, rng=rng)
        return {
            "likelihood ratio of the deleted records": ratio,
            "confidence in the deleted records' labels": MeanConfidence(points, codes, self.records.num_classes),
        }


@dataclass(frozen=True)
class _DeleteTargets:
    targets: tuple[RecordId, ...]

    def __call__(self, task: Task, rng: Randomness) -> Requester:
        return requesters.DeleteThese(self.targets)


def membership_scenario(
    task: Task, *, num_targets: int = 30, num_shadows: int = 16, mislabelled: bool = True
) -> Scenario:
    """Make the membership attack: train with canaries, delete them, and look for traces of them with shadow models.

    The requester is oblivious: a correct unlearner, even SISA, must pass. The targets are drawn once.

    Parameters
    ----------
    task
        The data and the learner.
    num_targets
        How many records are canaries.
    num_shadows
        How many shadows are trained with the canaries, and how many without.
    mislabelled
        Whether each canary carries a wrong label, which only a model that saw it would give. Only the audit's copy of
        the data is changed.

    Returns
    -------
    Scenario
        The scenario.

    Raises
    ------
    ParameterError
        If there are not more records than targets, or mislabelled targets have only one class.

    Examples
    --------
    >>> from expunge.audit import digits_task
    >>> scenario = membership_scenario(digits_task(num_records=100), num_targets=10)
    >>> len(scenario.points)
    10
    """
    ids = task.columns[0]
    require_count("num_targets", num_targets, most=len(ids) - 1)
    chosen = np.random.default_rng(_TARGET_SEED).permutation(len(ids))[:num_targets]
    planted, wrongly = (_with_canaries(task, chosen), " with wrong labels") if mislabelled else (task, "")
    targets = tuple(ids[place] for place in sorted(chosen.tolist()))
    return Scenario(
        name="membership",
        about=f"{task.name}; {num_targets} records{wrongly} are deleted, and shadow models look for a trace",
        task=planted,
        points=_target_rows(planted.records, targets)[0],
        make_requester=RequesterFactory(_DeleteTargets(targets), planted),
        prepare=_ShadowStatistics(planted.records, targets, num_shadows),
        settings=("labels", "models"),
        parameters={
            "task": task.name,
            "num_records": len(ids),
            "learner": task.learner_name,
            "num_targets": num_targets,
            "num_shadows": num_shadows,
            "mislabelled": mislabelled,
            "requester": "these",
        },
    )


def _with_canaries(task: Task, chosen: Any) -> Task:
    ids, points, codes = task.columns
    classes = task.records.classes
    if len(classes) < 2:
        raise ParameterError("mislabelled targets need two classes or more")
    wrong = codes.copy()
    wrong[chosen] = (codes[chosen] + 1) % len(classes)
    records = Records.build(points, classes[wrong], ids=ids, classes=classes, allow_missing=task.records.allow_missing)
    return Task(task.name, records, task.learner, task.test_points, task.test_codes, task.pool)
