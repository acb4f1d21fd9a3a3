"""A stranger's folder: rows of its database that say anything, with the right checksums.

Whatever a row says, opening, checking, predicting and applying give an answer or one line, and nothing outside of the
folder is touched.
"""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import expunge
from expunge.core.errors import ExpungeError
from expunge.folder import disclose, open_view
from expunge.folder.checkup import check
from expunge.folder.store.database import Database
from expunge.serving.promises import Noise
from expunge.training.learners import NearestTableLearner

COUNT = 80
X = np.random.default_rng(0).normal(size=(10, 3))
ODD: tuple[Any, ...] = (
    None, 0, 1, -1, 7, 2**31, 2**63 - 1, -(2**63), 0.5, 1e308, "", "x", "../../outside/letter", "/etc/passwd", "..",
    "a\nb", "\x1b[2J", "\u0000", "𝒳" * 50, "9" * 400, "[]", "{}", "null", "[[1]]", '{"a": 1}', "NaN", "1e999", b"",
    b"\x00" * 8, b"\xff" * 8, b"\xff" * 32, b"x" * 200, "2026-13-45T99:99:99Z",
)  # fmt: skip


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("rows") / "churn"
    with expunge.create(
        home,
        NearestTableLearner(50.0),
        X,
        np.arange(10) % 2,
        ids=[f"p{number}" for number in range(10)],
        subjects=[f"s{number // 2}" for number in range(10)],
        n_shards=3,
        inclusion_probability=0.5,
        promise=Noise("laplace", max_predictions=50),
        apply="manual",
    ) as deployment:
        deployment.predict(X[:2])
        deployment.add(X[:1] + 9, [1], ["early"])
        deployment.delete(["p3"])
        deployment.apply()
        deployment.add(X[:1] + 5, [1], ["new"])
        deployment.delete(["p1"])
    return home


@contextmanager
def writing(home: Path) -> Iterator[Database]:
    database = Database(home)
    try:
        yield database
    finally:
        database.close()


def forge(home: Path, rng: np.random.Generator) -> str:
    """Change a few values of the database, as its own software would write them."""
    told = []
    with writing(home) as database:
        tables = [row[0] for row in database.rows("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = [name for name in tables if not name.startswith(("sqlite_", "tally"))]
        for _ in range(rng.integers(1, 3)):
            table = tables[rng.integers(len(tables))]
            columns = [row[1] for row in database.rows(f"PRAGMA table_info({table})")]
            rows = database.rows(f"SELECT * FROM {table}")
            if not rows:
                continue
            row = rows[rng.integers(len(rows))]
            place = int(rng.integers(len(columns)))
            value = changed(row[place], rng)
            same = " AND ".join(f"{name} IS ?" for name in columns)
            try:
                if rng.random() < 0.15:
                    database.execute(f"DELETE FROM {table} WHERE {same}", row)
                else:
                    database.execute(f"UPDATE {table} SET {columns[place]} = ? WHERE {same}", (value, *row))
            except (ExpungeError, OverflowError, UnicodeError):  # a value that the column does not take
                continue
            told.append(f"{table}.{columns[place]} of {row!r:.60} = {value!r:.60}")
    return "; ".join(told)


def changed(value: Any, rng: np.random.Generator) -> Any:
    """Another value; of JSON, another value somewhere in it; of a number or bytes, a near one."""
    if rng.random() < 0.5:
        if isinstance(value, int):
            return value + int(rng.choice([-1, 1, 2, 1000]))
        if isinstance(value, bytes) and value:
            at = rng.integers(len(value))
            return value[:at] + bytes([rng.integers(256)]) + value[at + 1 :]
        if isinstance(value, str) and value[:1] in ("{", "["):
            tree = json.loads(value)
            here, key = {"all": tree}, "all"
            while isinstance(here[key], dict | list) and here[key] and rng.random() < 0.85:
                here = here[key]
                key = [*here][rng.integers(len(here))] if isinstance(here, dict) else int(rng.integers(len(here)))
            odd = [each for each in ODD if not isinstance(each, bytes)]
            here[key] = odd[rng.integers(len(odd))]
            return json.dumps(tree)
    return ODD[rng.integers(len(ODD))]


def use(home: Path) -> None:
    with expunge.open(home) as deployment:
        deployment.predict(X[:2])
        assert deployment.status.num_shards
        deployment.requests()
        deployment.certificate()
        deployment.apply()
        deployment.delete(["p5"])
        deployment.apply()


def look(home: Path) -> None:
    with open_view(home) as view:
        for read in (view.requests, view.guarantee, view.schema, view.origins, view.certificate):
            read()
        assert view.status.num_shards
    disclose(home)


def test_whatever_a_row_says_one_line_or_an_answer(pattern: Path, tmp_path: Path, draws: Any, run: Any) -> None:
    home, met = tmp_path / "home" / "churn", Counter[str]()
    (tmp_path / "outside").mkdir()
    letter = tmp_path / "outside" / "letter"
    letter.write_bytes(b"keep this")
    for seed, rng in draws(COUNT):
        shutil.copytree(pattern, home)
        told = forge(home, rng)
        for act in (check, look, use):
            try:
                act(home)
                met[f"{act.__name__}: done"] += 1
            except Exception as error:
                if not isinstance(error, ExpungeError) or "\n" in str(error):
                    raise AssertionError(f"{seed}, {act.__name__}: {told}: {error!r}") from error
                met[f"{act.__name__}: one line"] += 1
        if rng.random() < 0.1:
            run("status", home)
        assert letter.read_bytes() == b"keep this", (seed, told)
        assert [path.name for path in home.parent.iterdir()] == ["churn"], (seed, told)
        shutil.rmtree(home)
    print(dict(met))
