from __future__ import annotations

from contextlib import closing

import expunge as library
from expunge.evidence import Envelope, verify
from expunge.folder.store.database import Database


def test_a_certificate_about_the_deployment(churn, tmp_path, expunge):
    done = expunge("certificate", churn)
    assert done.err == ""
    found = verify(done.out.encode())
    assert found.holds, found.wrong
    assert found.certificate.counts.num_records == 300
    expunge("certificate", churn, "--out", tmp_path / "certificate.json")
    expunge("verify", tmp_path / "certificate.json", "--public-key", churn / "keys" / "public.pem")


def test_a_certificate_about_a_request_while_the_folder_is_served(churn, tmp_path, expunge):
    request = expunge("delete", churn, "--id", "17", "--json").json["request"]
    out, page = tmp_path / "certificate.json", tmp_path / "certificate.html"
    out.write_text("an older one")
    with library.open(churn):
        done = expunge("certificate", churn, "--request", request, "--out", out, "--html", page)
    assert "expunge verify" in done.words
    assert verify(out.read_bytes()).holds
    assert b'"17"' not in Envelope.parse(out.read_bytes()).payload
    assert "<html" in page.read_text()
    only = expunge("certificate", churn, "--request", request, "--html", page)
    assert "{" not in only.out


def test_bad_certificates_are_not_written(churn, tmp_path, expunge):
    out = tmp_path / "certificate.json"
    assert "nonsense" in expunge("certificate", churn, "--request", "nonsense", "--out", out, code=2).err
    assert not out.exists()
    expunge("certificate", churn, "--out", churn / "certificate.json", code=2)
    expunge("certificate", churn, "--out", tmp_path / "absent" / "certificate.json", code=2)
    assert "both" in expunge("certificate", churn, "--out", out, "--html", out, code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["churn"]


def test_a_dash_is_standard_output(churn, tmp_path, monkeypatch, expunge):
    monkeypatch.chdir(tmp_path)
    assert verify(expunge("certificate", churn, "--out", "-").out.encode()).holds
    assert "--html needs the name of a file" in expunge("certificate", churn, "--html", "-", code=2).err
    assert [path.name for path in tmp_path.iterdir()] == ["churn"]


def test_a_newer_certificate_continues_older_ones(churn, tmp_path, expunge):
    first, second, third = (tmp_path / f"{name}.json" for name in ("first", "second", "third"))
    expunge("certificate", churn, "--out", first)
    expunge("delete", churn, "--id", "17")
    expunge("delete", churn, "--id", "18")
    expunge("certificate", churn, "--out", second)
    expunge("delete", churn, "--id", "19")
    expunge("certificate", churn, "--since", first, "--since", second, "--out", third)
    assert "They belong to one history" in expunge("verify", first, second, third).words
    assert expunge("verify", second, first, third, "--json").json["together"] == "one history"
    done = expunge("certificate", churn, "--since", churn / "keys" / "public.pem", code=2)
    assert "not JSON" in done.err


def test_old_requests_are_forgotten(churn, tmp_path, expunge):
    request = expunge("delete", churn, "--id", "17", "--json").json["request"]
    assert "Forgot 0 requests." in expunge("forget", churn, "--older-than", "365d").words
    with closing(Database(churn)) as database:
        database.execute("UPDATE requests SET applied_by = '2020-01-01T00:00:00Z'")
    assert expunge("forget", churn, "--older-than", "365d", "--json").json == {"forgotten": 1}
    assert "there is no request" in expunge("certificate", churn, "--request", request, code=2).err
    assert verify(expunge("certificate", churn).out.encode()).holds
    assert "a time such as 90d" in expunge("forget", churn, "--older-than", "soon", code=2).err
