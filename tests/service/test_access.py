"""Keys: made, listed, revoked; who may do what."""

from __future__ import annotations

import json
import os
import time

import pytest

from expunge.core.errors import FormatError, InputError, ParameterError
from expunge.service.access import NAME, ROLES, Caller, KeyFile, KeyRing, Rates


def test_a_key_opens_its_role_and_a_wrong_one_nothing(tmp_path):
    keys = KeyFile(tmp_path)
    text, made = keys.create("update", rate=3, note="the shop")
    ring = KeyRing(keys)
    assert ring.caller_of(text) == Caller(made.id, "update", 3)
    wrong = text[:-1] + ("0" if text[-1] != "0" else "1")
    other = text.replace(made.id, "0" * 12)
    for strange in (wrong, other, text + "0", text.upper(), "", made.id, f"{text}\n"):
        assert ring.caller_of(strange) is None


def test_only_a_hash_is_kept_and_only_for_the_owner(tmp_path):
    text, made = KeyFile(tmp_path).create("operator")
    kept = (tmp_path / NAME).read_text()
    assert made.digest in kept
    assert text.rpartition("_")[2] not in kept
    assert (tmp_path / NAME).stat().st_mode & 0o077 == 0


def test_expired_and_revoked_keys_open_nothing(tmp_path):
    keys = KeyFile(tmp_path)
    brief, _ = keys.create("predict", expires=1)
    lasting, made = keys.create("predict")
    ring = KeyRing(keys)
    assert ring.caller_of(brief) is not None
    keys.revoke(made.id)
    ring.follow()
    assert ring.caller_of(lasting) is None
    time.sleep(2.1)
    assert ring.caller_of(brief) is None


def test_a_revoked_key_is_named_by_itself_too(tmp_path):
    keys = KeyFile(tmp_path)
    text, made = keys.create("predict")
    assert keys.revoke(text).id == made.id
    with pytest.raises(InputError, match="there is no key"):
        keys.revoke("000000000000")


@pytest.mark.parametrize(
    "wrong",
    [{"role": "root"}, {"role": "integration"}, {"role": "predict", "rate": 0}, {"role": "predict", "expires": "soon"}],
)
def test_wrong_options_make_no_key(tmp_path, wrong):
    with pytest.raises(ParameterError):
        KeyFile(tmp_path).create(**wrong)
    assert not (tmp_path / NAME).exists()


@pytest.mark.parametrize("content", ["", "[]", '{"keys": [{}]}', '{"keys": 3}'])
def test_a_damaged_file_opens_nothing(tmp_path, content):
    keys = KeyFile(tmp_path)
    text, _ = keys.create("predict")
    ring = KeyRing(keys)
    (tmp_path / NAME).write_text(content)
    with pytest.raises(FormatError, match="damaged"):
        ring.follow()
    assert ring.caller_of(text) is None


def test_a_link_in_place_of_the_keys_is_refused(tmp_path):
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_text(json.dumps({"keys": []}))
    folder = tmp_path / "folder"
    folder.mkdir(mode=0o700)
    os.symlink(elsewhere, folder / NAME)
    with pytest.raises(FormatError):
        KeyFile(folder).read()


def test_rates_allow_a_second_at_once_and_the_rate_after_it():
    now = [100.0]
    rates = Rates(lambda: now[0])
    caller = Caller("a", "predict", rate=5)
    assert [rates.wait_for(caller) for _ in range(6)][-2:] == [0.0, pytest.approx(0.2)]
    now[0] += 0.2
    assert rates.wait_for(caller) == 0.0
    assert rates.wait_for(caller) > 0
    assert rates.wait_for(Caller("b", "predict", rate=5)) == 0.0
    assert rates.wait_for(Caller("a", "predict", rate=None)) == 0.0


def test_the_program_makes_lists_and_revokes_keys(churn, program):
    made = json.loads(program("keys", "create", churn, "--role", "predict", "--expires", "90d", "--json").stdout)
    assert made["key"].startswith(f"expunge_{made['id']}_")
    listed = program("keys", "list", churn).stdout
    assert made["id"] in listed
    assert made["key"] not in listed
    assert json.loads(program("keys", "revoke", churn, "--id", made["id"], "--json").stdout)["state"] == "revoked"
    assert "there is no key" in program("keys", "revoke", churn, "--id", "nonsense", code=2).stderr


def test_a_running_service_follows_new_and_revoked_keys(churn, serve):
    with serve(churn) as service:
        text, made = KeyFile(churn).create("predict")
        _until(lambda: service.ask("GET", "/v1/status", key=text).status == 200)
        KeyFile(churn).revoke(made.id)
        _until(lambda: service.ask("GET", "/v1/status", key=text).status == 401)


def _until(true):
    for _ in range(100):
        if true():
            return
        time.sleep(0.1)
    raise AssertionError("it did not happen in ten seconds")


def test_nothing_is_answered_without_a_key_but_what_needs_none(service):
    assert service.ask("GET", "/healthz", role=None).json == {"status": "ok"}
    refused = service.ask("GET", "/v1/status", role=None)
    assert refused.status == 401
    assert refused.headers["content-type"] == "application/problem+json"
    assert refused.headers["www-authenticate"].startswith("Bearer")
    for role in ROLES:
        assert service.ask("GET", "/v1/status", role=role).json["records"] == 300
