from __future__ import annotations

from expunge.certificates import read_certificate, verify


def test_a_certificate_comes_back_as_it_was(office):
    for made in (office.issue(), office.issue_for_deployment()):
        data = made.to_json()
        again = read_certificate(data)
        assert again == made
        assert again.to_json() == data
        found = verify(data, public_key=office.key.public_key)
        assert found.holds, found.wrong
        assert found.key == "matches"
        assert found.certificate == made
