"""Certificates of folders: what they show of the log, and which promise they claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression

import expunge
from expunge.audit import recompute
from expunge.evidence import Certificate, verify
from expunge.folder import DurableDeployment, open_view
from expunge.serving.promises import Consensus, Noise

X = np.random.default_rng(0).normal(size=(60, 3))


def make(folder: Path, **options: Any) -> DurableDeployment:
    return expunge.create(folder, LogisticRegression(), X, X[:, 0] > 0, n_shards=4, **options)


def events(certificate: Certificate) -> list[str]:
    return [entry.event for entry in certificate.log.entries]


def test_the_first_certificate_of_an_ordinary_user_claims_the_exact_promise(folder: Path) -> None:
    with make(folder) as deployment:
        certificate = deployment.certificate(deployment.delete([7]).request)
    found = verify(certificate.to_json())
    assert found.holds, found.wrong
    said = certificate.statements
    assert said.headline.endswith(
        "The models in service are those that the same recipe gives on the records that are left."
    )
    assert "LogisticRegression trains 4 models" in " ".join(said.exact)
    assert said.alpha_beta_gamma[0].startswith("(α,β,γ): not claimed, because ")
    assert events(certificate) == ["created", "accepted", "applied"]
    assert certificate.history.key is not None
    assert certificate.history.key.commitment in " ".join(said.exact)
    assert "guarantee" not in found.certificate.statements.headline.lower()  # type: ignore[union-attr]


def test_a_certificate_that_was_made_before_a_renewal_and_one_after_it_both_hold(folder: Path) -> None:
    with make(folder) as deployment:
        request = deployment.delete([7]).request
        first = deployment.certificate(request)
        deployment.rekey()
        second = deployment.certificate(request)
        assert deployment.rekey(if_older_than="1d") is False
        assert deployment.inside_key.reason == "by hand"
        with open_view(folder) as view:
            assert view.inside_key == deployment.inside_key
            assert view.certificate(request).statements == second.statements
    assert first.history.key is not None
    assert second.history.key is not None
    assert first.history.key.commitment != second.history.key.commitment
    assert events(second) == ["created", "accepted", "applied", "generation"]
    assert "it was renewed by hand" in " ".join(second.statements.exact)
    assert verify(first.to_json()).holds
    assert verify(second.to_json()).holds


def test_a_recomputation_is_in_the_certificates_of_later_and_earlier_requests(folder: Path) -> None:
    with make(folder) as deployment:
        before = deployment.delete([7]).request
    recompute(folder, shards=2, seed="dice 41626", record=True)
    with expunge.open(folder) as deployment:
        after = deployment.delete([8]).request
        for request in (before, after):
            certificate = deployment.certificate(request)
            assert verify(certificate.to_json()).holds
            said = " ".join(certificate.statements.recomputed)
            assert "2 of 4 models in service were compared, bit for bit" in said
            assert "now in round 2 of generation 1" in said
        assert verify(deployment.certificate().to_json()).holds


def test_under_a_consensus_no_certificate_shows_when_the_key_was_renewed(folder: Path) -> None:
    with make(folder, promise=Consensus(), inclusion_probability=0.3) as deployment:
        first = deployment.delete([7]).request
        deployment.rekey()
        request = deployment.delete([8]).request
        certificate, whole = deployment.certificate(request), deployment.certificate()
        key = deployment.inside_key
        assert (key.reason, key.is_of_round) == ("by hand", False)  # for the operator
        assert deployment.promise[0].is_claimed
    with open_view(folder) as view:
        assert view.inside_key == key
    for found in (certificate, whole):
        assert verify(found.to_json()).holds
        assert found.history.key is not None
        assert found.history.key.is_of_round
        assert found.history.key.commitment == key.commitment
        assert "It does not say when the key was drawn" in " ".join(found.statements.exact)
        for words in (b"by hand", b"used up", b'"event":"generation"', b'"reason"'):
            assert words not in found.payload()
    assert whole.counts is not None
    assert whole.counts.applied == 2
    assert first != request


def test_a_recomputation_under_a_consensus_tells_no_generation(folder: Path) -> None:
    with make(folder, promise=Consensus(), inclusion_probability=0.3) as deployment:
        request = deployment.delete([7]).request
    recompute(folder, shards=2, seed=1, record=True)
    with open_view(folder) as view:
        certificate = view.certificate(request)
    assert verify(certificate.to_json()).holds
    assert certificate.history.recomputation is not None
    assert certificate.history.recomputation.generation is None
    assert "in round 1, 2 of 4 models in service were compared" in certificate.statements.recomputed[0]


def test_every_reason_for_a_new_key_is_in_the_log(folder: Path) -> None:
    with make(folder, promise=Noise(max_predictions=2), sampling="independent") as deployment:
        deployment.rekey()
        deployment.predict(X[:4])
        deployment.delete([3])
        assert "the generation before it was used up" in " ".join(deployment.certificate().statements.exact)
        reasons = [
            entry.facts["reason"] for entry in deployment._evidence.ledger.entries() if entry.event == "generation"
        ]
    assert reasons == ["by hand", "generation used up"]
