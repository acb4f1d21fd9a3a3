"""Files that people bring: CSV, Parquet and NPZ with anything in them. A command works, or says why in one line."""

from __future__ import annotations

import io
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

COUNT = 8  # of each command and format
SIZE = 12
CELLS = (
    "", " ", "NA", "nan", "inf", "-1", "1e400", "9" * 30, "0x10", "1,5", "abc", "é\u0301", "\u202eabc", "\x00",
    "\x1b[2J", '"', "'", "a\nb", "=1+1", "2026-02-30", "True", "[/b]", "\ufeff1", "١٢", "1_000", "p3", "-0",
)  # fmt: skip


def table(first: int) -> pd.DataFrame:
    rng = np.random.default_rng(first)
    return pd.DataFrame(
        {
            "id": [f"p{number}" for number in range(first, first + SIZE)],
            "age": rng.integers(18, 80, SIZE).astype(float),
            "town": rng.choice(["Rome", "Bern"], SIZE),
            "label": rng.choice(["yes", "no"], SIZE),
        }
    )


def written(frame: pd.DataFrame, kind: str) -> bytes:
    raw = io.BytesIO()
    if kind == "csv":
        return frame.to_csv(index=False).encode("utf-8", "surrogatepass")
    if kind == "parquet":
        frame.to_parquet(raw)
    else:
        columns = {name: frame[name].to_numpy() for name in frame}
        np.savez(raw, **{name: one.astype(str) if one.dtype == object else one for name, one in columns.items()})
    return raw.getvalue()


def changed(frame: pd.DataFrame, kind: str, rng: np.random.Generator) -> bytes:
    """Changed cells and columns, or changed bytes."""
    frame = frame.copy()
    what = rng.integers(5)
    if what in (0, 1):
        for _ in range(rng.integers(1, 3)):
            column = frame.columns[rng.integers(len(frame.columns))]
            frame[column] = frame[column].astype(object)
            frame.loc[rng.integers(len(frame)), column] = CELLS[rng.integers(len(CELLS))]
        frame = frame.astype({name: str for name in frame if frame[name].dtype == object})
    elif what == 2:
        names = list(frame.columns)
        at = int(rng.integers(len(names)))
        match rng.integers(4):
            case 0:
                frame = frame.drop(columns=names[at])
            case 1:
                frame = frame.rename(columns={names[at]: CELLS[rng.integers(len(CELLS))]})
            case 2:
                frame = frame.assign(**{f"more{at}": frame[names[at]]})
            case _:
                frame = frame[names[at:] + names[:at]].iloc[: rng.integers(len(frame) + 1)]
    raw = bytearray(written(frame, kind))
    if what == 3:
        for _ in range(rng.integers(1, 6)):
            raw[rng.integers(len(raw))] = rng.integers(256)
    elif what == 4:
        start, end = sorted(rng.integers(len(raw) + 1, size=2).tolist())
        raw = raw[:start] + raw[end:] if rng.integers(2) else raw[:end] + raw[start:]
    return bytes(raw)


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory, run: Any) -> Path:
    home = tmp_path_factory.mktemp("inputs")
    (home / "people.csv").write_bytes(written(table(0), "csv"))
    words = ("--data", home / "people.csv", "--label", "label", "--id", "id", "--learner", "naive-bayes")
    done = run("create", home / "churn", *words, "--shards", 2, "--promise", "exact")
    assert done.code == 0, done
    return home / "churn"


COMMANDS: dict[str, tuple[Any, ...]] = {
    "create": ("--label", "label", "--id", "id", "--learner", "naive-bayes", "--shards", 2, "--promise", "exact"),
    "add": (),
    "predict": (),
}


@pytest.mark.parametrize("kind", ["csv", "parquet", "npz"])
@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_works_or_says_why(
    pattern: Path, tmp_path: Path, draws: Any, run: Any, command: str, kind: str
) -> None:
    """What was refused has changed nothing, and leaves nothing behind; what was accepted is there as a whole."""
    met: Counter[int] = Counter()
    churn, data, out = tmp_path / "churn", tmp_path / f"data.{kind}", tmp_path / "answers.csv"
    if command != "create":
        shutil.copytree(pattern, churn)
    for seed, rng in draws(COUNT):
        frame = table(1000 * (1 + sum(met.values())))
        content = changed(frame.drop(columns="label") if command == "predict" else frame, kind, rng)
        data.write_bytes(content)
        before = None if command == "create" else counted(run, churn)
        more = ("--out", out) if command == "predict" else ()
        done = run(command, churn, "--data", data, *COMMANDS[command], *more)
        met[done.code] += 1
        assert done.code in (0, 2), (seed, done)
        if command == "create":
            assert churn.exists() == (done.code == 0), (seed, done)
            if churn.exists():
                shutil.rmtree(churn)
        elif done.code == 2:
            assert counted(run, churn) == before, (seed, done)
        assert out.exists() == (command == "predict" and done.code == 0), (seed, done)
        out.unlink(missing_ok=True)
        left = {path.name for path in tmp_path.iterdir()} - {"churn", data.name}
        assert not left, (seed, done, left)
    assert met[2] > 0
    print(command, kind, dict(met))


def counted(run: Any, churn: Path) -> tuple[Any, ...]:
    facts = json.loads(run("status", churn, "--json").out)
    return facts["round"], facts["records"]
