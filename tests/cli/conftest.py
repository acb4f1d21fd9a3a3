"""A company's files, and a deployment made of them once; tests change copies."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import sys
from dataclasses import dataclass

import numpy as np
import pandas as pd
import pytest

from expunge.cli import main


@dataclass(frozen=True)
class Done:
    """What a command left behind."""

    code: int
    out: str
    err: str

    @property
    def words(self):
        """The output without its line breaks."""
        return " ".join(self.out.split())

    @property
    def json(self):
        return json.loads(self.out)


@pytest.fixture(autouse=True)
def _unfolded(monkeypatch):
    """As in a pipe: lines are not folded, though a worker of the tests has a width."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(scope="session")
def expunge():
    """Run the program in this process: `expunge("status", folder, "--json").json`."""

    def run(*arguments, code=0, stdin=b""):
        words, out, err = ["expunge", *map(str, arguments)], io.BytesIO(), io.StringIO()
        streams = {"argv": words, "stdin": io.TextIOWrapper(io.BytesIO(stdin), encoding="utf-8")}
        text = io.TextIOWrapper(out, encoding="utf-8", write_through=True)
        with contextlib.ExitStack() as stack:
            for name, value in streams.items():
                stack.callback(setattr, sys, name, getattr(sys, name))
                setattr(sys, name, value)
            stack.enter_context(contextlib.redirect_stdout(text))
            stack.enter_context(contextlib.redirect_stderr(err))
            try:
                main()
                left = 0
            except SystemExit as exit_:
                left = exit_.code or 0
        done = Done(left, out.getvalue().decode(), err.getvalue())
        assert done.code == code, (words, done)
        if code == 2:
            assert done.err.startswith("expunge: ")
            assert done.err.count("\n") == 1, done.err  # one clear line
        return done

    return run


def customers(first, size, *, seed):
    rng = np.random.default_rng(seed)
    spend = rng.normal(size=size).round(3)
    return pd.DataFrame(
        {
            "customer_id": np.arange(first, first + size),
            "household": [f"h{number}" for number in (np.arange(first, first + size) // 3)],
            "age": rng.integers(18, 80, size).astype(float),
            "spend": spend,
            "churned": np.where(spend + 0.2 * rng.normal(size=size) > 0, "yes", "no"),
        }
    )


def write(frame, path):
    if path.suffix == ".parquet":
        frame.to_parquet(path)
    elif path.suffix == ".npz":
        np.savez(path, **{name: np.array(frame[name].tolist()) for name in frame})
    else:
        frame.to_csv(path, index=False)
    return path


@pytest.fixture(scope="session")
def write_table():
    return write


@pytest.fixture(scope="session")
def people():
    """`people(first, size)`: customers with ids from `first` on."""
    return lambda first, size, seed=0: customers(first, size, seed=seed)


@pytest.fixture(scope="session")
def files(tmp_path_factory):
    """train, new, more and gone, in a folder."""
    folder = tmp_path_factory.mktemp("files")
    write(customers(1, 300, seed=1), folder / "train.csv")
    write(customers(301, 30, seed=2), folder / "more.csv")
    write(customers(900, 25, seed=3).drop(columns=["churned", "household"]), folder / "new.csv")
    write(pd.DataFrame({"customer_id": [4, 5]}), folder / "gone.csv")
    return folder


@pytest.fixture(scope="session")
def create(files, expunge):
    """`create(folder, "--shards", "5")`: a deployment of the training file, or of another one with its columns."""

    def run(folder, *options, data=None, code=0):
        columns = ("--label", "churned", "--id", "customer_id", "--subject", "household")
        return expunge("create", folder, "--data", data or files / "train.csv", *columns, *options, code=code)

    return run


@pytest.fixture(scope="session")
def first_churn(tmp_path_factory, create):
    folder = tmp_path_factory.mktemp("made") / "churn"
    create(f"{folder}/", "--learner", "logistic", "--shards", "10", "--promise", "consensus")
    return folder


@pytest.fixture
def churn(first_churn, tmp_path):
    """A deployment of the training file, to be changed at will."""
    return shutil.copytree(first_churn, tmp_path / "churn")
