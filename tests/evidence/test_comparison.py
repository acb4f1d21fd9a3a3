"""Do certificates belong to one history? Every pair of a log and of its forks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from expunge.core.errors import ParameterError
from expunge.evidence import Certificate, SigningKey, compare, verify

SIZES = range(1, 33)


def _grown(office, *, change=None, size=40):
    """A log of many entries; from entry `change` on it is another one."""
    log = office.new_log()
    for place in range(len(log.entries) + 1, size + 1):
        other = change is not None and place >= change
        log.append("2026-11-16T05:00:00Z", "schema", {"generation": 1, "round": 12, "num_classes": 3 if other else 2})
    return log


def _certificate(office, log, size, *places, since=()):
    """A certificate about the deployment when its log had this size. Its facts do not matter here."""
    nothing = replace(office.counts, accepted=0, applied=0, pending=0)
    earlier = [log.checkpoint(each) for each in since]
    made = office.issue_for_deployment(counts=nothing, log=log.excerpt(*places, size=size, earlier=earlier))
    assert verify(made.to_json()).holds
    return made


def test_certificates_that_continue_one_another_are_of_one_history(office):
    log = _grown(office)
    for old in SIZES:
        for new in range(old, 40, 5):
            since = [old] if old < new else []
            pair = [_certificate(office, log, new, 1, since=since), _certificate(office, log, old, 1)]
            assert compare(pair).answer == "one history"
            assert compare(pair[::-1]) == compare(pair)


def test_the_entries_that_are_shown_may_be_enough(office):
    """A certificate that shows the last entry of an earlier log proves that it continues it, without another file."""
    log = _grown(office)
    for old in SIZES:
        new = _certificate(office, log, 40, old)
        found = compare([_certificate(office, log, old), new])
        assert found.answer == "one history"
        assert "by the entries that it shows" in found.explanation[0]


def test_two_that_do_not_meet_are_not_decided_and_a_third_decides(office):
    log = _grown(office)
    old, new = _certificate(office, log, 11, 1), _certificate(office, log, 29, 1)
    found = compare([old, new])
    assert found.answer == "not decided"
    assert found.explanation == ("nothing in these files shows that the log of 11 entries was continued",)
    third = _certificate(office, log, 37, 1, since=[11, 29])
    assert compare([old, third, new]).answer == "one history"
    half = _certificate(office, log, 37, 1, since=[29])
    assert compare([old, half, new]).answer == "not decided"


@pytest.mark.parametrize("change", [9, 16, 17, 31])
def test_a_fork_is_never_taken_for_one_history(office, change):
    log, fork = _grown(office), _grown(office, change=change)
    answers = set()
    for old in range(1, 40, 5):
        for new in range(old, 40, 6):
            for since in ([], [old] if old < new else []):
                one, other = _certificate(office, log, old, 1), _certificate(office, fork, new, 1, since=since)
                answer = compare([one, other]).answer
                answers.add(answer)
                if old >= change:
                    assert answer != "one history"
                if old >= change and (since or old == new):
                    assert answer == "two histories"
                if old < change and since:
                    assert answer == "one history"
    assert answers == {"one history", "two histories", "not decided"}


def test_what_shows_a_fork_is_named(office):
    log, fork = _grown(office), _grown(office, change=17)
    same = compare([_certificate(office, log, 30, 1), _certificate(office, fork, 30, 1)])
    assert same.explanation == ("two checkpoints of 30 entries have different roots",)
    entry = compare([_certificate(office, log, 30, 17), _certificate(office, fork, 35, 17)])
    assert (entry.answer, entry.explanation[0]) == ("two histories", "entry 17 is not the same in the two logs")
    root = compare([_certificate(office, log, 17), _certificate(office, fork, 35, 17)])
    assert (root.answer, root.explanation[0]) == (
        "two histories",
        "the first 17 entries are not the same in the two logs",
    )
    part = compare([_certificate(office, log, 31, 1), _certificate(office, fork, 39, 1)])
    assert part.answer == "not decided"
    part = compare([_certificate(office, log, 32, 1), _certificate(office, fork, 39, 1)])
    assert part.answer == "two histories"
    assert part.explanation[0] in (
        "entries 17 to 32 are not the same in the two logs",
        "entries 1 to 32 are not the same in the two logs",
    )


def test_other_deployments_and_other_keys_are_told(office):
    made = office.issue_for_deployment()
    stranger = replace(office, key=SigningKey.generate())
    forged = replace(stranger, log=type(office.log)(stranger.key))
    for entry in office.log.entries:
        forged.log.put(entry)
    other = Certificate(**{**vars(forged.issue_for_deployment())})
    assert compare([made, other]).answer == "different keys"
    elsewhere = replace(made, deployment=replace(made.deployment, deployment_id="elsewhere"))
    assert compare([made, elsewhere]).answer == "different deployments"
    with pytest.raises(ParameterError, match="two certificates or more"):
        compare([made])
