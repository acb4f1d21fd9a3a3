"""Records outside the folder, as Parquet partitioned by shard: making the table, its memory, and what a deletion moves.

The table is made in a process of its own, whose memory is measured, from Parquet files that are larger than the memory
that it may take. Figures of time are processor time: reading, sorting and writing, up to where training begins.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from expunge.folder import open as open_folder
from expunge_lab.bench.durable import temporary_folder
from expunge_lab.bench.measurement import Line, Progress, Spread, Target

_FEATURES = 20
_ROWS_A_FILE = 500_000
_DELETIONS = 5


@dataclass(frozen=True, slots=True)
class Size:
    """How much to measure."""

    num_records: int
    num_shards: int


FULL, QUICK = Size(1_000_000, 100), Size(3_000, 5)
CREATION, MEMORY, MOVED = Target.ratio_at_most(2.0), Target.ours_at_most(1.5 * 2**30), Target.ratio_at_most(3.0)

_OURS = """
import json, resource, sys, time
from sklearn.naive_bayes import GaussianNB
import expunge
from expunge.folder.store import steps
from expunge.tables import read_stream
source, folder, table, shards = sys.argv[1:]
written = []
steps.on_step = lambda name: written.append(time.process_time()) if name == "create.records" else None
begun = time.process_time()
_, few, stream = read_stream(source, label="y", id="id")
given = (stream,) if stream is not None else (few.features, few.labels)
ids = None if stream is not None else few.ids
expunge.create(folder, GaussianNB(), *given, ids=ids, n_shards=int(shards), records_at=table).close()
print(json.dumps([written[0] - begun, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""
_THEIRS = """
import json, resource, sys, time
import numpy as np, pyarrow as pa, pyarrow.dataset as ds
source, table, shards = sys.argv[1:]
pa.set_cpu_count(1)
begun = time.process_time()
data, k = ds.dataset(source, format="parquet"), int(shards)
def batches():
    for batch in data.to_batches(batch_size=1 << 18, use_threads=False):
        shard = pa.array(((batch.column("id").to_numpy() * 2654435761) >> 7) % k, pa.int32())
        yield pa.RecordBatch.from_arrays([*batch.columns, shard], names=[*batch.schema.names, "shard"])
schema = data.schema.append(pa.field("shard", pa.int32()))
by_shard = ds.partitioning(pa.schema([("shard", pa.int32())]), flavor="hive")
ds.write_dataset(batches(), table, schema=schema, format="parquet", partitioning=by_shard, max_open_files=k + 10,
                 max_partitions=k + 10, use_threads=False)
print(json.dumps([time.process_time() - begun, 1024 * resource.getrusage(resource.RUSAGE_SELF).ru_maxrss]))
"""


def run(*, quick: bool, progress: Progress) -> list[Line]:
    """The suite."""
    size = QUICK if quick else FULL
    with progress("lake", 3 + _DELETIONS) as advance, temporary_folder() as home:
        write_files(home / "data", size.num_records)
        advance(1)
        what = f"{size.num_records:,} records of {_FEATURES} numbers in {size.num_shards:,} partitions"
        table, shards = str(home / "table"), str(size.num_shards)
        ours, memory = _measured(_OURS, str(home / "data"), str(home / "folder"), table, shards)
        advance(1)
        theirs, _ = _measured(_THEIRS, str(home / "data"), str(home / "other"), shards)
        advance(1)
        moved = []
        with open_folder(home / "folder") as deployment:
            records = deployment.records
            deployment.delete([records.id_of(0)])  # the first one loads code
            shard = sum(file.stat().st_size for file in (home / "table").rglob("*.parquet")) / size.num_shards
            for number in range(1, _DELETIONS + 1):
                before = _bytes_moved()
                deployment.delete([records.id_of(number * size.num_records // (_DELETIONS + 1))])
                moved.append(_bytes_moved() - before)
                advance(1)
    ratio = Spread.of([bytes_ / shard for bytes_ in moved])
    partition = Spread.of([shard] * len(moved))
    return [
        Line.cost(f"making a table: {what}", [ours], "`pyarrow.dataset.write_dataset`", [theirs], target=CREATION),
        Line(f"peak memory of creating it: {what}", Spread.of([memory]), "bytes", target=MEMORY),
        Line(
            f"bytes read and written by a deletion: {what}",
            Spread.of(moved),
            "bytes",
            "one partition",
            partition,
            ratio,
            "times as much",
            MOVED,
        ),
    ]


def write_files(folder: Path, num_records: int) -> None:
    """Random records with ids out of order, in several Parquet files."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    folder.mkdir()
    rng = np.random.default_rng(0)
    for first in range(0, num_records, _ROWS_A_FILE):
        numbers = np.arange(first, min(first + _ROWS_A_FILE, num_records))
        X = rng.normal(size=(len(numbers), _FEATURES))
        columns: dict[str, Any] = {f"x{place}": X[:, place] for place in range(_FEATURES)}
        label = (X[:, 0] + rng.normal(size=len(numbers)) > 0).astype(np.int64)
        table = pa.table({"id": numbers * 7919 % (1 << 40), **columns, "y": label})
        pq.write_table(table, folder / f"{first:010d}.parquet")


def _measured(code: str, *arguments: str) -> tuple[float, float]:
    """Seconds and bytes, as a program of its own tells them."""
    found = subprocess.run([sys.executable, "-c", code, *arguments], check=True, capture_output=True, text=True)
    seconds, memory = json.loads(found.stdout.splitlines()[-1])
    return float(seconds), float(memory)


def _bytes_moved() -> int:
    """All bytes that this process has read and written so far, from files and elsewhere."""
    lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
    found = dict(line.split(": ") for line in lines)
    return int(found["rchar"]) + int(found["wchar"])
