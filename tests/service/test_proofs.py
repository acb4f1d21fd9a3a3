"""Evidence over HTTP is checked as an auditor would, offline."""

from __future__ import annotations

import base64

import pytest

from expunge.evidence import Checkpoint, Entry, NoteKey, hash_leaf, is_consistent, root_of_inclusion, verify


@pytest.fixture(scope="module")
def told(first_churn, tmp_path_factory, serve):
    """A service on which a request was applied, and that request."""
    import shutil

    folder = shutil.copytree(first_churn, tmp_path_factory.mktemp("told") / "churn")
    with serve(folder) as running:
        done = running.ask("POST", "/v1/updates", {"delete": {"ids": [7]}}, Prefer="wait=60")
        assert done.json["state"] == "applied"
        yield running, done.json["request"]


def test_certificates_verify_offline(told):
    service, request = told
    for path in (f"/v1/certificates/{request}", "/v1/certificates"):
        found = service.ask("GET", path, role="auditor")
        checked = verify(found.body)
        assert checked.wrong == ()
        page = service.ask("GET", path, role="update", Accept="text/html")
        assert page.headers["content-type"].startswith("text/html")
        assert b"<script" not in page.body
    assert request.encode() in base64.b64decode(service.ask("GET", f"/v1/certificates/{request}").json["payload"])
    assert service.ask("GET", "/v1/certificates/nobody").status == 404
    assert service.ask("GET", "/v1/certificates", Accept="image/png").status == 406


def test_the_log_and_its_proofs(told):
    service, _ = told
    head = Checkpoint.parse(service.ask("GET", "/v1/log/checkpoint", role="auditor").body.decode())
    key = NoteKey.parse(service.ask("GET", "/v1/log/key").body.decode())
    assert head.is_signed_by(key)
    entries, after = [], 0
    while after is not None:
        page = service.ask("GET", f"/v1/log/entries?after={after}&limit=2").json
        entries, after = entries + page["entries"], page["next"]
    assert [each["sequence"] for each in entries] == list(range(1, head.size + 1))
    for each in entries:
        leaf = hash_leaf(Entry(**each).content)
        proof = service.ask("GET", f"/v1/log/inclusion?sequence={each['sequence']}").json
        hashes = [base64.b64decode(one) for one in proof["proof"]]
        assert base64.b64decode(proof["leaf"]) == leaf
        assert root_of_inclusion(leaf, each["sequence"] - 1, proof["size"], hashes) == head.root
    for wrong in (
        "inclusion",
        "inclusion?sequence=99",
        "inclusion?sequence=0",
        "consistency?from=99",
        "entries?limit=0",
    ):
        assert service.ask("GET", f"/v1/log/{wrong}").status == 400, wrong


def test_the_log_only_grew(told):
    service, _ = told
    before = Checkpoint.parse(service.ask("GET", "/v1/log/checkpoint").body.decode())
    service.ask("POST", "/v1/updates", {"delete": {"ids": [8]}}, Prefer="wait=60")
    after = Checkpoint.parse(service.ask("GET", "/v1/log/checkpoint").body.decode())
    proof = service.ask("GET", f"/v1/log/consistency?from={before.size}&to={after.size}").json["proof"]
    hashes = [base64.b64decode(each) for each in proof]
    assert is_consistent(before.size, before.root, after.size, after.root, hashes)
    assert not is_consistent(before.size, after.root, after.size, after.root, hashes)
