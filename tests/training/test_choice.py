"""Which number of shards is chosen, and how it is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from expunge.core.errors import ParameterError
from expunge.core.records import Records
from expunge.training.choice import choose, choose_shards, is_quick
from expunge.training.comparison import Candidate, Comparison
from expunge.training.learners.named import named_learner
from expunge.training.scores import Score, Scores


def scores(accuracy, area=None, *, recalls=None):
    one = Score(accuracy, accuracy - 0.01, accuracy + 0.01)
    return Scores(one, None if area is None else Score(area, area, area), recalls=recalls or {"no": one, "yes": one})


def candidate(shards, accuracy, deletion, *, learner="", retrained=1.0, area=None, recalls=None):
    return Candidate(
        num_shards=shards,
        learner=learner,
        scores=scores(accuracy, area, recalls=recalls),
        against_one=None,
        training=shards * deletion,
        deletion=deletion,
        retrained=retrained,
        measured=shards,
    )


def comparison(*candidates, refit=None):
    return Comparison(
        candidates=candidates,
        baseline=scores(0.5),
        most_frequent="no",
        refit=candidates[0].training if refit is None else refit,
        is_estimated=refit is not None,
        num_records=1000,
        tested=1000,
        folds=5,
    )


@pytest.mark.parametrize(
    ("found", "shards", "learner", "words"),
    [
        (
            comparison(candidate(1, 0.9, 0.9), candidate(20, 0.9, 0.05)),
            *(
                1,
                "",
                "Retrain one model (k = 1): it takes 0.90 s, and a day's 10 deletions take 9 s of processor time.",
            ),
        ),
        (  # the fewest shards that come close to the least work
            comparison(*(candidate(k, 0.9 - k / 9e4, 100 / k + 0.5) for k in (1, 10, 50, 100, 1000))),
            *(100, "", "Use 100 shards: a day's 10 deletions take 15 s of processor time instead of 17 minutes"),
        ),
        (  # accuracy
            comparison(candidate(1, 0.9, 100.0), candidate(5, 0.895, 20.0), candidate(20, 0.88, 5.0)),
            *(5, "", "(5 times less), and the accuracy is 89.5% instead of 90.0% of one model."),
        ),
        (  # area
            comparison(candidate(1, 0.9, 99.0, area=0.8), candidate(5, 0.9, 20.0, area=0.7)),
            *(1, "", "shards lose more than 0.01: 5 shards, the best of them, lose 0.100."),
        ),
        (  # a class that is lost
            comparison(
                candidate(1, 0.9, 99.0, recalls={"no": Score(1, 1, 1), "yes": Score(0.3, 0.3, 0.3)}),
                candidate(5, 0.9, 20.0, recalls={"no": Score(1, 1, 1), "yes": Score(0, 0, 0)}),
            ),
            *(1, "", "lose 0.150"),
        ),
        (
            comparison(candidate(1, 0.9, 99.0), candidate(5, 0.9, 60.0)),
            *(1, "", "it takes 99 s, and shards that are as good save little."),
        ),
        (comparison(candidate(1, 0.9, 99.0)), 1, "", "there are too few records for shards"),
        (
            comparison(
                candidate(1, 0.9, 99.0), candidate(5, 0.9, 20.0), candidate(1, 0.9, 0.01, learner="ridge-exact")
            ),
            *(1, "ridge-exact", "Use --learner ridge-exact: it deletes without training, in 10 ms instead of 99 s"),
        ),
        (  # one that unlearns exactly, but answers worse
            comparison(
                candidate(1, 0.9, 99.0), candidate(5, 0.9, 20.0), candidate(1, 0.8, 0.01, learner="ridge-exact")
            ),
            *(5, "", "Use 5 shards"),
        ),
        (
            comparison(candidate(1, 0.9, 0.004, retrained=0.0)),
            *(1, "", "Use one model: a deletion changes it in 4 ms and trains nothing."),
        ),
        (  # one model could not be measured
            comparison(candidate(50, 0.9, 10.0), candidate(100, 0.895, 5.0), refit=700.0),
            *(100, "", "instead of 90.0% of 50 shards"),
        ),
    ],
)
def test_choices(found, shards, learner, words):
    choice = choose(found)
    assert (choice.num_shards, choice.learner) == (shards, learner)
    assert words in choice.words
    assert choice.to_dict()["words"] == choice.words


def test_a_choice_of_what_helps_a_rare_class_says_how_to_make_it():
    bad = {"no": Score(1, 1, 1), "yes": Score(0.1, 0.1, 0.1)}
    good = {"no": Score(1, 1, 1), "yes": Score(0.3, 0.3, 0.3)}
    one, ten = candidate(1, 0.9, 99.0, recalls=good), candidate(10, 0.9, 10.0, recalls=bad)
    other = candidate(10, 0.9, 30.0, recalls=good)
    choice = choose(comparison(one, ten, replace(other, has_thresholds=True)))
    assert choice.options == "--set thresholds=true"
    assert "Use 10 shards, thresholds (--set thresholds=true): " in choice.words
    choice = choose(comparison(one, ten, replace(other, overlap=3, retrained=3.0)))
    assert choice.options == "--sampling independent --probability 0.3"
    assert choose(comparison(one, candidate(10, 0.9, 10.0, recalls=good))).options == ""


def test_the_traffic_and_the_tolerance_decide():
    found = comparison(candidate(1, 0.9, 0.9), candidate(20, 0.88, 0.05))
    assert choose(found).num_shards == 1
    assert choose(found, deletions_per_day=5000, batches_per_day=5000).num_shards == 1
    assert choose(found, deletions_per_day=5000, batches_per_day=5000, tolerance=0.03).num_shards == 20
    # Applied in one batch a day, every shard would be trained once: that is no less than one model.
    assert choose(found, deletions_per_day=5000, batches_per_day=1, tolerance=0.03).num_shards == 1
    with pytest.raises(ParameterError, match="tolerance"):
        choose(found, tolerance=0)


def test_numbers_are_told_by_r2():
    def one(shards, r2, deletion):
        return Candidate(
            num_shards=shards,
            scores=Scores(Score(r2, r2, r2)),
            against_one=None,
            training=shards * deletion,
            deletion=deletion,
            retrained=1,
            measured=shards,
        )

    assert "R² is 0.895 instead of 0.900 of one model" in choose(comparison(one(1, 0.9, 100), one(10, 0.895, 10))).words


def test_what_is_quick():
    assert is_quick(5.0)
    assert not is_quick(5.1)
    assert not is_quick(4.0, deletions_per_day=100)
    assert is_quick(4.0, deletions_per_day=100, batches_per_day=10)


def test_few_records_and_quick_refits_get_one_model():
    X = np.arange(400.0).reshape(200, 2)
    choice, found = choose_shards(Records.build(X, X[:, 0] > 100), named_learner("ridge"))
    assert choice.num_shards == 1
    assert [each.num_shards for each in found.candidates] == [1]  # nothing else had to be trained
    choice, found = choose_shards(Records.build(X[:30], X[:30, 0] > 30), named_learner("ridge"))
    assert (choice.num_shards, found) == (1, None)
    assert "30 records are too few for shards" in choice.words
