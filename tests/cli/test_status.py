from __future__ import annotations

import json
import re

import expunge as library


def test_status_in_words(churn, files, expunge):
    expunge("predict", churn, "--data", files / "new.csv", "--out", churn.parent / "answers.csv")
    done = expunge("status", churn)
    assert "churn: round 0" in done.words
    assert "300 records in 10 shards" in done.words
    assert "0 applied, 0 pending, 0 cancelled; new ones are applied at once" in done.words
    assert "generation, is for operators (--inside)" in done.words  # 25, which would tell when a consensus failed
    assert not re.search(r"\b25\b", done.words)
    assert "exact: promised." in done.words
    assert "(α,β,γ): not claimed." in done.words
    assert "What would change that: about" in done.words


def test_status_is_the_same_while_another_process_has_the_folder(churn, expunge):
    before = expunge("status", churn, "--json").json
    with library.open(churn):
        assert expunge("status", churn, "--json").json == before
        assert "in use" in expunge("delete", churn, "--id", "1", code=2).err
        assert "in use" in expunge("status", churn, "--inside", code=2).err


def test_nothing_inside_unless_asked(churn, expunge):
    outside = expunge("status", churn, "--json").json
    assert "inside" not in outside
    assert not re.search("shard_|models_trained|empty|exhausted|predictions_left", json.dumps(outside))
    assert (outside["generation"], outside["budget"]) == (None, None)
    inside = expunge("status", churn, "--json", "--inside").json
    assert {name: value for name, value in inside.items() if name != "inside"} == outside
    secret = inside["inside"]
    assert secret["models_trained"] == 10
    assert (secret["generation"], secret["budget"]["predictions"], secret["budget"]["exhausted"]) == (1, 0, False)
    assert secret["smallest_shard"] <= secret["median_shard"] <= secret["largest_shard"]
    assert "voids the guarantee" in expunge("status", churn, "--inside").words


def test_what_is_no_deployment(tmp_path, files, expunge):
    (tmp_path / "photos").mkdir()
    for command in (
        ("status",),
        ("predict", "--data", files / "new.csv"),
        ("delete", "--id", "1"),
        ("add", "--data", files / "more.csv"),
        ("certificate",),
        ("apply",),
        ("cancel", "--request", "x"),
    ):
        for folder, words in ((tmp_path / "photos", "is not a deployment"), (tmp_path / "absent", "does not exist")):
            assert words in expunge(command[0], folder, *command[1:], code=2).err
    assert list(tmp_path.iterdir()) == [tmp_path / "photos"]


def test_an_unknown_request(churn, expunge):
    assert "nonsense" in expunge("status", churn, "--request", "nonsense", code=2).err


def test_a_folder_that_was_not_made_by_the_command_line(tmp_path, files, expunge):
    import numpy as np
    from sklearn.linear_model import LogisticRegression

    X = np.arange(40.0).reshape(20, 2)
    with library.create(tmp_path / "a", LogisticRegression(), X, X[:, 0] > 19, n_shards=3):
        pass
    assert expunge("status", tmp_path / "a", "--json").json["records"] == 20
    err = expunge("predict", tmp_path / "a", "--data", files / "new.csv", code=2).err
    assert "was not created by `expunge create`" in err


def test_a_folder_may_be_called_anything(churn, expunge):
    strange = churn.parent / "ü [b]dep[" / "x]"
    strange.parent.mkdir()
    churn.rename(strange)
    done = expunge("status", strange)
    assert f"{strange}: round 0" in done.out
