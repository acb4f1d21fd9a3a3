from __future__ import annotations

from expunge_lab.bench.workload import fit_voters, make_queries


def test_voters_vote_on_every_call(monkeypatch):
    """A benchmark that asks the same rows again must not be answered from the round's memory."""
    model = fit_voters(2000, 1000)
    calls = []
    voter = model.deployment_.inside.state.voter
    count = voter.count
    monkeypatch.setattr(voter, "count", lambda X: calls.append(len(X)) or count(X))
    queries = make_queries(5)
    for _ in range(3):
        model.predict(queries)
    assert calls == [5, 5, 5]
