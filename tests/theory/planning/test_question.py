import math

import numpy as np
import pytest

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee
from expunge.theory.planning import plan, read_vote_shares

GOOD = {"num_records": 10_000, "num_shards": 100}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_records": 0}, "num_records"),
        ({"num_records": 1.5}, "num_records"),
        ({"num_shards": 0}, "num_shards"),
        ({"num_shards": -3}, "num_shards"),
        ({"num_shards": True}, "num_shards"),
        ({"num_shards": "many"}, "num_shards"),
        ({"num_shards": 10**10}, "num_shards"),
        ({"num_classes": 1}, "num_classes"),
        ({"num_generations": 0}, "num_generations"),
        ({"inclusion_probability": 0}, "inclusion_probability"),
        ({"inclusion_probability": 1.1}, "inclusion_probability"),
        ({"inclusion_probability": math.nan}, "inclusion_probability"),
        ({"unanimous_accuracy": 1}, "unanimous_accuracy"),
        ({"unanimous_accuracy": 0}, "unanimous_accuracy"),
        ({"majority_accuracy": 1.0}, "majority_accuracy"),
        ({"predictions_per_day": 0}, "predictions_per_day"),
        ({"predictions_per_day": math.inf}, "predictions_per_day"),
        ({"deletions_per_day": -1}, "deletions_per_day"),
        ({"batches_per_day": math.nan}, "batches_per_day"),
        ({"failure": 1}, "failure"),
        ({"max_predictions": 0}, "max_predictions"),
        ({"max_predictions": 10**10}, "max_predictions"),
        ({"pool_size": -1}, "pool_size"),
        ({"ensemble_share": 0}, "ensemble_share"),
        ({"vote_shares": []}, "vote_shares"),
        ({"vote_shares": 0.9}, "vote_shares"),
        ({"vote_shares": [0.9, 1.1]}, "vote_shares"),
        ({"vote_shares": [0.9, math.nan]}, "vote_shares"),
        ({"vote_shares": ["high"]}, "vote_shares"),
        ({"target": (1, 1e-3, 1e-3)}, "target"),
        ({"target": Guarantee(math.inf, 1e-3, 1e-3)}, "alpha"),
        ({"target": Guarantee(1, 1, 1e-3)}, "beta"),
        ({"target": Guarantee(1, 1e-3, 1)}, "gamma"),
    ],
)
def test_an_impossible_option_is_named_in_one_line(options, message):
    with pytest.raises(ParameterError, match=message) as error:
        plan(**{**GOOD, **options})
    assert "\n" not in str(error.value)


def test_an_accuracy_that_no_noise_reaches_is_refused():
    # 80% of two shards is one vote against one: a tie, whatever the noise.
    with pytest.raises(ParameterError, match=r"share 0\.8"):
        plan(num_records=100, num_shards=2, majority_accuracy=0.9)


def test_numpy_numbers_are_numbers():
    made = plan(num_records=np.int64(10_000), num_shards=np.int32(100), predictions_per_day=np.float32(8))
    assert made.to_dict() == plan(num_records=10_000, num_shards=100, predictions_per_day=8).to_dict()
    assert type(made.question.num_shards) is int


def test_what_is_not_said_is_derived():
    question = plan(num_records=10_000, num_shards=80, deletions_per_day=6, batches_per_day=24).question
    assert question.inclusion_probability == 1 / 80
    assert question.wanted == {1.0: 0.99}
    assert question.records_per_shard == 125
    assert (question.updates_per_day, question.batch_size) == (6, 1)
    busy = plan(**GOOD, majority_accuracy=0.7, deletions_per_day=240, batches_per_day=24).question
    assert (busy.updates_per_day, busy.batch_size) == (24, 10)
    assert busy.wanted == {0.8: 0.7}


@pytest.mark.parametrize(
    "content",
    [
        "0.5\n0.75\n1\n",
        "share\n0.5\n0.75\n1.0",
        "0.5, 0.75; 1",
        "# seen today\n\n0.5 0.75 # two\r\n1e0",
        "\ufeff0.5\t.75 1",
    ],
)
def test_many_ways_to_write_three_shares(tmp_path, content):
    file = tmp_path / "shares.txt"
    file.write_text(content, encoding="utf-8", newline="")
    assert read_vote_shares(file) == (0.5, 0.75, 1.0)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("0.5\n-0.1\n", "'-0.1' in line 2"),
        ("0.5\nnan\n", "'nan' in line 2"),
        ("95%\n0.9", "'95%' in line 1"),
        ("\n\n0.5\nhigh", "'high' in line 4"),
        ("share\nshare\n0.5", "'share' in line 2"),
        ("# nothing\n", "no vote shares"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path, content, message):
    file = tmp_path / "shares.txt"
    file.write_text(content)
    with pytest.raises(ParameterError, match=message):
        read_vote_shares(file)


def test_a_folder_is_no_file(tmp_path):
    with pytest.raises(ParameterError, match="cannot be read"):
        read_vote_shares(tmp_path)
