"""What a deletion costs, in words, by `create` and `status`."""

from __future__ import annotations

import pytest

from expunge.cli.costs import explain_costs
from expunge.training.costs import Costs


@pytest.mark.parametrize(
    ("costs", "shards", "words"),
    [
        (Costs(0.05, 1.0, 0.9, False), 20, ["retrains 1 of 20 models: about 50 ms", "against about 0.90 s for"]),
        (Costs(0.31, 1.0, 11.2, True), 20, ["against an estimated 11 s for training one model on everything"]),
        (Costs(0.02, 1.0, 0.15, False), 10, ["Plain retraining (--shards 1) would take 0.15 s a deletion"]),
        (Costs(3.0, 1.0, 4.0, False), 10, ["Plain retraining (--shards 1) would take 4 s a deletion"]),
        (Costs(0.1, 2.7, 9.0, False), 677, ["retrains about 2.7 of 677 models"]),
        (Costs(0.0004, 0.0, 0.0, False), 1, ["retrains nothing", "in less than 1 ms"]),
        (Costs(0.0012, 0.0, 0.0, False), 1, ["retrains nothing: the model is updated exactly, in about 1.2 ms"]),
        (Costs(5.0, 1.0, 5.0, False), 1, ["retrains the one model: about 5 s", "--shards 10"]),
        (Costs(0.05, 1.0, 900.0, True), 20, ["an estimated 15 minutes"]),
    ],
)
def test_costs_are_told(costs, shards, words):
    told = " ".join(explain_costs(costs, num_shards=shards, promise="exact"))
    assert all(each in told for each in words), told


def test_plain_retraining_is_advised_only_where_it_is_cheap_and_the_promise_allows_it():
    dear, cheap = Costs(0.1, 1.0, 2.0, False), Costs(0.02, 1.0, 0.15, False)
    assert len(explain_costs(dear, num_shards=20, promise="exact")) == 1
    assert len(explain_costs(cheap, num_shards=20, promise="exact")) == 2
    other = explain_costs(cheap, num_shards=20, promise="consensus")
    assert "retrains all of them: about 0.40 s" in other[1]
    assert len(other) == 2
    assert len(explain_costs(cheap, num_shards=20, promise="unguarded")) == 1  # no generation is ever used up
    assert len(explain_costs(Costs(0.1, 1.0, 0.1, False), num_shards=1, promise="exact")) == 1


def test_create_measures_and_status_repeats(tmp_path, create, expunge):
    folder = tmp_path / "a"
    made = create(folder, "--json", "--shards", "4").json["costs"]
    assert made["models_retrained"] == 1
    assert made["refit"] > 0
    assert expunge("status", folder, "--json").json["costs"] == made
    assert "A deletion retrains 1 of 4 models" in expunge("status", folder).words
    request = expunge("delete", folder, "--id", "17", "--json").json["request"]
    expunge("certificate", folder, "--request", request, "--out", tmp_path / "c.json")
    assert "costs" not in (tmp_path / "c.json").read_text()


def test_times_stay_inside_where_the_key_is_secret(tmp_path, create, expunge):
    folder = tmp_path / "a"
    create(folder, "--promise", "consensus", "--shards", "4")
    assert "costs" not in expunge("status", folder, "--json").json
    assert "retrains" not in expunge("status", folder).words
    assert "What a deletion costs" in expunge("status", folder, "--inside").words
    assert expunge("status", folder, "--inside", "--json").json["inside"]["costs"]["models_retrained"] == 1
