from __future__ import annotations

import ast
import inspect
import math
import textwrap
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from expunge.core.errors import InputError, ParameterError
from expunge.core.guarantee import SMALLEST_EVENT, Guarantee
from expunge.evidence import CountFacts, GuaranteeFacts, PublicationFacts, facts
from expunge.theory import design_consensus


@given(
    st.floats(0, 20) | st.just(math.inf),
    st.sampled_from([0.0, 1e-9, 1e-3, 0.5, 1.0, 2.0, math.inf]),
    st.sampled_from([0.0, 1e-3, 1.0, 3.0]),
    st.sampled_from(["", "no bound"]),
)
def test_vacuous_means_the_same_as_for_a_guarantee(alpha, beta, gamma, note):
    guarantee = Guarantee(alpha, beta, gamma, note=note)
    found = GuaranteeFacts.of(guarantee)
    assert (found.reason, found.is_vacuous) == (guarantee.reason, guarantee.is_vacuous)


_EDGE = -math.log(SMALLEST_EVENT)  # where alpha alone makes an event of one chance in a million certain


@pytest.mark.parametrize(
    ("sentence", "values"),
    [
        ("a note of its own", (1.0, 0.0, 0.0)),
        ("gamma = 1 allows", (1.0, 0.0, 1.0)),
        ("gamma = 1.5 allows", (math.inf, 2.0, 1.5)),
        ("beta = 1 allows", (1.0, 1.0, np.nextafter(1.0, 0.0))),
        ("alpha is infinite", (math.inf, np.nextafter(1.0, 0.0), 0.0)),
        ("alpha = 13.82 lets", (np.nextafter(_EDGE, 99.0), 0.0, 0.0)),
        ("alpha = 13.82 lets", (13.8155, 1e-4, 0.0)),
        ("alpha = 1e+300 lets", (1e300, 0.0, 0.0)),
        ("", (np.nextafter(_EDGE, 0.0) - 1e-12, 0.0, 0.0)),
        ("", (0.0, 0.999, 0.999)),
    ],
)
def test_every_sentence_is_that_of_a_guarantee_on_both_sides_of_its_edge(sentence, values):
    guarantee = Guarantee(*values, note=sentence if "note" in sentence else "")
    found = GuaranteeFacts.of(guarantee)
    assert found.reason == guarantee.reason
    assert guarantee.reason.startswith(sentence)
    assert bool(sentence) == found.is_vacuous == guarantee.is_vacuous


def test_the_rule_is_written_once_for_both():
    assert not hasattr(facts, "SMALLEST_EVENT")
    for kind in (GuaranteeFacts, Guarantee):
        body = ast.parse(textwrap.dedent(inspect.getsource(kind.reason.fget))).body[0].body[1:]  # [0]: words
        expected = "return explain_vacuity(self.alpha, self.beta, self.gamma, note=self.note)"
        assert [ast.unparse(statement) for statement in body] == [expected]


def test_the_facts_of_a_real_guarantee_are_all_of_it():
    guarantee = design_consensus(
        num_shards=1000, max_queries=10, generations=2, alpha=5.0, beta=1e-3, gamma=1e-3
    ).guarantee
    found = GuaranteeFacts.of(guarantee)
    for name in ("alpha", "beta", "gamma", "theorem", "assumptions", "note"):
        assert getattr(found, name) == getattr(guarantee, name)
    assert dict(found.parameters) == dict(guarantee.parameters)


def test_parameters_become_plain():
    parameters = {"a": np.float64(0.5), "b": np.int64(3), "c": math.inf, "d": None, "e": "x", "f": 10**30}
    found = GuaranteeFacts(1, 0, 0, parameters=parameters).parameters
    assert dict(found) == {"a": 0.5, "b": 3, "c": math.inf, "d": None, "e": "x", "f": 1e30}
    assert type(found["a"]) is float
    with pytest.raises(TypeError):
        found["a"] = 1


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"alpha": math.nan}, "alpha"),
        ({"beta": -1}, "beta"),
        ({"gamma": "1"}, "gamma"),
        ({"gamma": True}, "gamma"),
        ({"theorem": 3}, "theorem"),
        ({"parameters": {"x": math.nan}}, "parameter x"),
        ({"parameters": {"x": [1]}}, "parameter x"),
        ({"parameters": {"x": 10**400}}, "parameter x"),
        ({"parameters": [1]}, "parameters"),
        ({"assumptions": "one"}, "assumptions"),
        ({"assumptions": [""]}, "assumption"),
    ],
)
def test_impossible_guarantees_are_refused(change, word):
    with pytest.raises(InputError, match=word):
        GuaranteeFacts(**{"alpha": 1.0, "beta": 0.0, "gamma": 0.0, **change})


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"request_id": ""}, "request_id"),
        ({"num_deletions": -1}, "num_deletions"),
        ({"num_deletions": 2.0}, "num_deletions"),
        ({"num_deletions": 0}, "must be 0 id_hashes"),
        ({"accepted_at": "today"}, "accepted_at"),
        ({"state": "done"}, "state"),
        ({"state": "pending"}, "pending request has no applied_by"),
        ({"state": "cancelled"}, "cancelled request has no applied_by"),
        ({"applied_by": None}, "applied_by"),
        ({"applied_by": "2026-11-15T21:00:00Z"}, "accepted at 2026-11-15T21:12:41Z cannot"),
        ({"generation": 0}, "generation"),
        ({"round": -1}, "round"),
        ({"cancelled_at": "2026-11-16T02:00:00Z"}, "cancelled_at"),
        ({"id_hashes": ("17", "23")}, "id hash"),
        ({"id_hashes": ("a" * 64,)}, "2 id_hashes"),
        ({"id_hashes": ("b" * 64, "a" * 64)}, "sorted"),
    ],
)
def test_impossible_requests_are_refused(office, change, word):
    with pytest.raises(InputError, match=word):
        replace(office.request, **change)


def test_kinds_of_requests(office):
    request = replace(office.request, id_hashes=())
    assert request.kind == "deletion"
    assert replace(request, num_additions=1).kind == "mixed"
    assert replace(request, num_additions=1, num_deletions=0).kind == "addition"
    assert replace(request, num_additions=1).num_records == 3


@pytest.mark.parametrize(
    ("change", "word"),
    [
        ({"deployment_id": ""}, "deployment_id"),
        ({"name": None}, "name"),
        ({"created_at": "2026"}, "created_at"),
        ({"tick_seconds": 0}, "tick_seconds"),
        ({"sampler_is_independent": 1}, "sampler_is_independent"),
    ],
)
def test_impossible_deployments_are_refused(office, change, word):
    with pytest.raises(InputError, match=word):
        replace(office.deployment, **change)


def test_the_name_of_any_folder_can_be_written(office):
    assert replace(office.deployment, name="a\udcffb").name == "a?b"
    assert replace(office.deployment, name="a\nb").name == "a\nb"


def test_any_number_of_predictions():
    made = PublicationFacts(
        generation=1, round=0, predictions_reserved=np.int64(3), predictions_released=2, predictions_covered=math.inf
    )
    assert made.predictions_covered is None
    assert type(made.predictions_reserved) is int
    with pytest.raises(InputError, match="of 3 predictions reserved, 4 cannot have been released"):
        replace(made, predictions_released=4)
    with pytest.raises(InputError, match="told together, or none"):
        replace(made, predictions_released=None)
    with pytest.raises(InputError, match="predictions_covered"):
        replace(made, predictions_covered=1.5)
    with pytest.raises(InputError, match="generation"):
        replace(made, generation=0)


def test_counts_add_up():
    assert CountFacts(num_records=1, accepted=6, applied=1, pending=2, cancelled=3).accepted == 6
    with pytest.raises(InputError, match="add up"):
        CountFacts(num_records=1, accepted=5, applied=1, pending=2, cancelled=3)
    with pytest.raises(InputError, match="num_records"):
        CountFacts(num_records=-1, accepted=0, applied=0, pending=0, cancelled=0)


def test_only_the_papers_form_of_a_guarantee_is_certified() -> None:
    assert GuaranteeFacts.of(Guarantee(1.0, 1e-3, 1e-3)).alpha == 1.0
    with pytest.raises(ParameterError, match="paper's form, got the transcript form"):
        GuaranteeFacts.of(Guarantee(1.0, 1e-3, 1e-3, form="transcript"))
