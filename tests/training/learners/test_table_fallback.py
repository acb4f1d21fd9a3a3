"""A fallback for mixed tables: its answers are a function of the current records and the query alone."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from expunge.core.errors import InputError, ParameterError, RecordError
from expunge.core.records import AddMany, Delete, Records
from expunge.training.fallback import (
    NO_ANSWER,
    GaussianNaiveBayes,
    MultinomialNaiveBayes,
    NearestNeighbours,
    RidgeFallback,
)
from expunge.training.learners import TableFallback

KINDS = [RidgeFallback(), GaussianNaiveBayes(), NearestNeighbours(num_neighbours=3)]
every_kind = pytest.mark.parametrize("kind", KINDS, ids=lambda kind: type(kind).__name__)


def people(n, seed):
    rng = np.random.default_rng(seed)
    age, plan = rng.normal(45, 12, n), rng.choice(["basic", "plus", "family"], n)
    y = np.where((age > 45) ^ (plan == "basic"), "yes", "no")
    table = pd.DataFrame(
        {
            "age": np.where(rng.random(n) < 0.1, np.nan, age),
            "plan": np.where(rng.random(n) < 0.1, None, plan),
            "street": rng.choice([f"street {i}" for i in range(3000)], n),
            "is_new": rng.random(n) < 0.5,
        }
    )
    return table, y


def answers(model, queries):
    found = model.assess(queries)
    return found.codes.tobytes() + found.margins.tobytes()


@every_kind
def test_a_history_leaves_no_trace(kind):
    X, y = people(300, 0)
    queries = pd.concat([people(40, 1)[0], X.head(20)], ignore_index=True)
    recipe = TableFallback(kind=kind)
    records = Records.build(X, y, allow_missing=True)
    model, rng = recipe.fit_records(records), np.random.default_rng(2)
    more, labels = people(60, 3)
    for step in range(6):
        gone = rng.choice(records.ids()[: len(records) // 2], 15, replace=False)
        batch = [Delete(int(i)) for i in gone]
        new = slice(10 * step, 10 * step + 8)
        batch.append(AddMany(ids=range(1000 + new.start, 1000 + new.stop), features=more[new], labels=labels[new]))
        after, change = records.apply(batch)
        model, records = model.updated(records, after, change), after
        assert answers(model, queries) == answers(recipe.fit_records(records.compacted()), queries)
    assert model.num_records == len(records)
    stale = recipe.fit_records(Records.build(X, y, allow_missing=True))
    assert answers(stale, queries) != answers(model, queries)  # to keep the first model would not pass
    rest, change = records.apply([Delete(record) for record in records.ids()])
    assert set(model.updated(records, rest, change).predict(queries).tolist()) == {NO_ANSWER}


@every_kind
def test_a_row_is_answered_alone_as_among_others(kind):
    X, y = people(400, 0)
    model = TableFallback(kind=kind).fit(X, (y == "yes").astype(int), num_classes=2)
    queries, _ = people(50, 1)
    together = model.assess(queries)
    alone = [model.assess(queries.iloc[[i]]) for i in range(50)]
    assert together.margins.tobytes() == np.concatenate([each.margins for each in alone]).tobytes()
    assert together.codes.tolist() == [int(each.codes[0]) for each in alone]
    assert ((together.margins >= 0) & (together.margins <= 1)).all()
    assert model.num_features == 4
    assert model.num_classes == 2
    shorter = model.delete(X.head(1), (y[:1] == "yes").astype(int), [0])
    again = shorter.add(X.head(1), (y[:1] == "yes").astype(int), [400])
    assert again.num_records == 400
    assert answers(again, queries) == answers(model, queries)


@every_kind
def test_numbers_alone_are_read_by_the_kind_itself(kind):
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(200, 3)), rng.integers(2, size=200)
    for rows in (X, pd.DataFrame(X, columns=list("abc"))):
        records = Records.build(rows, y)
        found, plain = TableFallback(kind=kind).fit_records(records), kind.fit_records(records)
        assert type(found) is type(plain)
        assert answers(found, rows) == answers(plain, rows)


def test_any_number_of_categories_stops_no_update():
    X, y = people(6000, 0)
    X["customer"] = [f"c-{i}" for i in range(6000)]
    records = Records.build(X, y, allow_missing=True)
    model = TableFallback().fit_records(records)
    new = X.head(1).assign(customer="of nowhere", plan="that nobody had", street="another")
    after, change = records.apply([AddMany(ids=["new"], features=new, labels=["yes"])])
    assert model.updated(records, after, change).num_records == 6001
    assert len(TableFallback(ignored=("customer",)).fit_records(records).learner.categories) == 3


def test_refusals():
    X, y = people(20, 0)
    with pytest.raises(ParameterError, match="kind"):
        TableFallback(kind=MultinomialNaiveBayes())
    with pytest.raises(ParameterError, match="needs a column"):
        TableFallback(ignored=tuple(X.columns)).fit_records(Records.build(X, y, allow_missing=True))
    weights = np.ones(20)
    weights[7] = 0.5
    with pytest.raises(RecordError, match=r"record 7 has the weight 0\.5"):
        TableFallback().check(Records.build(X, y, weights=weights, allow_missing=True))
    X["age"] = X["age"].astype(float)
    X.loc[3, "age"] = 1e200
    TableFallback().check(Records.build(X, y, allow_missing=True))  # read as 2^400, and no update waits for it
    model = TableFallback().fit(X, (y == "yes").astype(int), num_classes=2)
    with pytest.raises(InputError, match="not in the"):
        model.delete(X.head(1).assign(plan="unheard of"), [0], [0])


def test_records_of_weight_zero_are_left_out():
    X, y = people(30, 0)
    weights = np.ones(30)
    weights[5] = 0
    found = TableFallback().fit_records(Records.build(X, y, weights=weights, allow_missing=True))
    rest = TableFallback().fit_records(Records.build(X.drop(index=5), np.delete(y, 5), allow_missing=True))
    assert found.num_records == 29
    assert answers(found, X) == answers(rest, X)
