import dataclasses
import json
import math
import pickle

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import ParameterError
from expunge.core.guarantee import Guarantee

levels = st.floats(0, 1)
alphas = st.floats(0, 20)


def test_is_positional_frozen_and_compares_by_value():
    guarantee = Guarantee(1, 1e-3, 0)
    assert (guarantee.alpha, guarantee.beta, guarantee.gamma) == (1.0, 1e-3, 0.0)
    assert guarantee == Guarantee(1.0, 1e-3, 0.0)
    assert hash(guarantee) == hash(Guarantee(1.0, 1e-3, 0.0))
    with pytest.raises(dataclasses.FrozenInstanceError):
        guarantee.alpha = 2.0


@pytest.mark.parametrize("values", [(-1, 0, 0), (0, math.nan, 0), (0, 0, "1"), (True, 0, 0)])
def test_refuses_impossible_values(values):
    with pytest.raises(ParameterError, match="of a guarantee must be"):
        Guarantee(*values)


@pytest.mark.parametrize(
    ("guarantee", "word"),
    [
        (Guarantee(math.inf, 0, 0), "infinite"),
        (Guarantee(0, 1, 0), "beta"),
        (Guarantee(0, 0, 1), "gamma"),
        (Guarantee(13.9, 0, 0), "one chance in a million"),
        (Guarantee(0, 0, 0, note="published in clear"), "published in clear"),
    ],
)
def test_vacuous_guarantees_say_why(guarantee, word):
    assert guarantee.is_vacuous
    assert word in guarantee.reason
    assert "vacuous" in str(guarantee)


@pytest.mark.parametrize("guarantee", [Guarantee(0, 0, 0), Guarantee(5, 1e-3, 1e-3), Guarantee(13.8, 0, 0.5)])
def test_others_are_not_vacuous(guarantee):
    assert not guarantee.is_vacuous
    assert guarantee.reason == ""


def test_to_dict_is_strict_json_and_pickles():
    guarantee = Guarantee(
        math.inf,
        0.1,
        0.2,
        theorem="T1",
        parameters={"num_shards": np.int64(3), "epsilon": math.inf},
        assumptions=("a",),
    )
    text = json.dumps(guarantee.to_dict(), allow_nan=False)
    assert json.loads(text)["parameters"] == {"num_shards": 3, "epsilon": None}
    assert json.loads(text)["is_vacuous"] is True
    assert pickle.loads(pickle.dumps(guarantee)) == guarantee
    assert str(Guarantee(1, 1e-3, 0, theorem="T1")) == "(1, 0.001, 0)-unlearning by T1"


def test_the_forms_do_not_cover_each_other():
    """docs/theory.md, "Two forms": the transcript form does not imply Definition 2.3 with the same numbers."""
    paper, transcript = Guarantee(1, 1e-3, 1e-3), Guarantee(1, 1e-3, 1e-3, form="transcript")
    assert paper.form == "paper"
    assert transcript.covers(transcript)
    assert not transcript.covers(paper)
    assert not paper.covers(transcript)
    assert not Guarantee(0, 0, 0, form="transcript").covers(paper)
    assert transcript != paper
    assert transcript.covers(Guarantee(0, 1, 0))  # what claims nothing is covered by anything


def test_the_form_is_kept_and_shown():
    transcript = Guarantee(1, 1e-3, 0, theorem="T4", form="transcript")
    assert pickle.loads(pickle.dumps(transcript)) == transcript
    assert dataclasses.replace(transcript, assumptions=("a",)).form == "transcript"
    assert transcript.to_dict()["form"] == "transcript"
    assert str(transcript) == "(1, 0.001, 0)-unlearning in transcript form by T4"
    # The paper's form is written as it always was.
    assert list(Guarantee(1, 1e-3, 0).to_dict()) == [
        *("alpha", "beta", "gamma", "theorem", "parameters", "assumptions", "is_vacuous", "reason"),
    ]
    with pytest.raises(ParameterError, match="form of a guarantee"):
        Guarantee(1, 1e-3, 0, form="any")


@given(alphas, levels, levels, alphas, levels, levels)
def test_covers_is_implication(a, b, g, a2, b2, g2):
    """(a,b) implies (a2,b2) exactly if the first's best power is below the second's at every false alarm rate."""
    rates = np.concatenate([[0.0], np.exp(-np.linspace(0, 25, 400)), [(1 - b) * math.exp(-a)]])
    power = np.minimum(1, math.exp(a) * rates + b)
    allowed = np.minimum(1, math.exp(a2) * rates + b2)
    implied = g2 >= 1 or b2 >= 1 or (g <= g2 and bool(np.all(power <= allowed)))
    clear = g2 >= 1 or b2 >= 1 or g > g2 or abs(np.max(power - allowed)) > 1e-9
    if clear:
        assert Guarantee(a, b, g).covers(Guarantee(a2, b2, g2)) == implied


@given(alphas, levels, levels)
def test_covers_itself(a, b, g):
    assert Guarantee(a, b, g).covers(Guarantee(a, b, g))
