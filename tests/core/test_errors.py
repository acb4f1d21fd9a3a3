from __future__ import annotations

import pickle

import pytest

from expunge.core.errors import ExpungeError, FormatError, RecordError, TrainingError


@pytest.mark.parametrize(
    "error",
    [
        ExpungeError("the column 'a\nb' is\r\ndamaged"),
        FormatError("the column 'a\x0bb' is\u2028damaged"),
        RecordError("the column 'a\nb' is\ndamaged", "x\ny"),
        TrainingError("the column 'a\nb' is\ndamaged", 3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_a_message_is_one_line_also_when_it_quotes_input(error):
    assert str(error) == "the column 'a b' is damaged"
    assert str(pickle.loads(pickle.dumps(error))) == str(error)


def test_other_arguments_are_kept():
    assert ExpungeError("a\nb", 3).args == ("a b", 3)
    assert RecordError("no", "x\ny").record == "x\ny"
