from __future__ import annotations

import io
import stat

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError
from expunge.core.files import Draft
from expunge.tables import encode_answers

IDS = pd.Series(["007", None, "9"], dtype="str")


def test_a_file_appears_whole_or_not_at_all(tmp_path):
    path = tmp_path / "answers.csv"
    path.write_text("old")
    with Draft(path) as draft:
        assert path.read_text() == "old"
        draft.finish(b"new")
    assert path.read_text() == "new"
    assert stat.S_IMODE(path.stat().st_mode) & 0o600 == 0o600
    with pytest.raises(RuntimeError), Draft(path) as draft:
        raise RuntimeError
    assert path.read_text() == "new"
    assert [file.name for file in tmp_path.iterdir()] == ["answers.csv"]


def test_what_cannot_be_written_is_found_out_first(tmp_path):
    with pytest.raises(InputError, match="there is no folder"):
        Draft(tmp_path / "absent" / "a.csv")
    with pytest.raises(InputError, match="is a folder"):
        Draft(tmp_path)
    with pytest.raises(InputError, match="cannot be written"):
        Draft("/proc/answers.csv")


@pytest.mark.parametrize("answers", [np.array(["a", "b", "a"]), np.array(["a", None, "b"], dtype=object)])
def test_answers_as_csv(answers):
    text = encode_answers(answers, format="csv", ids=IDS, id_name="customer").decode()
    assert text.splitlines()[0] == "customer,prediction"
    assert [line.split(",")[1] for line in text.splitlines()[1:]] == [answer or "" for answer in answers]
    assert [line.split(",")[0] for line in text.splitlines()[1:]] == ["007", "", "9"]
    assert encode_answers(answers, format="csv").decode().splitlines()[0] == "prediction"


def test_whole_numbers_stay_whole_beside_a_declined_answer():
    answers = np.array([3, None, 2**60 + 1], dtype=object)
    assert encode_answers(answers, format="csv").decode().splitlines() == ["prediction", "3", '""', str(2**60 + 1)]
    table = pd.read_parquet(io.BytesIO(encode_answers(answers, format="parquet", ids=IDS)), dtype_backend="pyarrow")
    assert table["prediction"].tolist()[0] == 3
    assert table["prediction"].tolist()[2] == 2**60 + 1
    assert table["prediction"].isna().tolist() == [False, True, False]
    with np.load(io.BytesIO(encode_answers(answers, format="npz", ids=IDS)), allow_pickle=False) as stored:
        assert stored["declined"].tolist() == [False, True, False]
        assert stored["prediction"][2] == 2**60 + 1
        assert stored["id"].tolist() == ["007", "", "9"]


def test_other_kinds_of_labels_as_arrays():
    for answers in ([True, None], ["x", None], [0.5, None], [None, None]):
        content = encode_answers(np.array(answers, dtype=object), format="npz")
        with np.load(io.BytesIO(content), allow_pickle=False) as stored:
            assert stored["declined"].tolist() == [answer is None for answer in answers]
            if answers[0] is not None:
                assert stored["prediction"][0] == answers[0]


def test_an_id_column_called_prediction_does_not_hide_the_answers():
    text = encode_answers(np.array([1, 2, 3]), format="csv", ids=IDS, id_name="prediction").decode()
    assert text.splitlines()[0] == "id,prediction"
