"""Records outside the folder, as Parquet in another folder and in a bucket: the same bytes, applied once, and erased.

The bucket is moto's server: a stand-in for S3, which it imitates.
"""

from __future__ import annotations

import hashlib
import http.client
import io
import os
import shutil
import signal
import sqlite3
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import scipy.sparse
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.naive_bayes import BernoulliNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder

import expunge
from expunge.core import buckets
from expunge.core.errors import ExpungeError, FormatError, InputError, StoreError
from expunge.core.place import Place
from expunge.core.randomness import Randomness
from expunge.core.streams import RecordStream
from expunge.folder import open_view
from expunge.folder.backup import back_up
from expunge.folder.checkup import check
from expunge.folder.store import Store, steps
from expunge.folder.store.lake import LakeRows
from expunge.folder.store.objects import BucketObjects, FolderObjects, open_objects
from expunge.folder.store.packs import SALT_BYTES, read_model
from expunge.tables import read_stream, streams
from expunge.training.learners import LookupTableLearner

SIZE, SHARDS = 120, 4


def token(number: int) -> str:
    return f"w{np.random.default_rng(number).integers(1 << 62):x}"


def rows_of(numbers: Any) -> Any:
    return np.array([np.random.default_rng(number).normal(size=3) for number in numbers])


TABLES: dict[str, Callable[[Any], Any]] = {
    "numbers": rows_of,
    "frame": lambda numbers: pd.DataFrame(
        {"age": rows_of(numbers)[:, 0], "name": [token(n) for n in numbers], "n": np.array(numbers, dtype=np.int16)}
    ),
    "sparse": lambda numbers: scipy.sparse.csr_matrix(rows_of(numbers).clip(0)),
    "texts": lambda numbers: np.array([*(token(n) for n in numbers), None], dtype=object)[:-1],
}


LEARNERS: dict[str, Callable[[], Any]] = {
    "numbers": LookupTableLearner,
    "sparse": LookupTableLearner,
    "frame": lambda: make_pipeline(OneHotEncoder(handle_unknown="ignore"), BernoulliNB()),
    "texts": lambda: make_pipeline(CountVectorizer(), MultinomialNB()),
}


def create(path: Path, kind: str = "numbers", **options: Any) -> Any:
    numbers = [*range(SIZE)]
    ids, subjects = [f"p{n}" for n in numbers], [f"s{n // 2}" for n in numbers]
    labels = [["no", "yes"][n % 3 == 0] for n in numbers]
    base: dict[str, Any] = {"n_shards": SHARDS, "ids": ids, "subjects": subjects, "rng": Randomness.from_seed(5)}
    return expunge.create(path, LEARNERS[kind](), TABLES[kind](numbers), labels, **base | options)


def digests(path: Path) -> list[str]:
    """Those of the models in service, without their salts."""
    with sqlite3.connect(f"file:{path}/state.db?mode=ro", uri=True) as database:
        names = [name for (name,) in database.execute("SELECT file FROM shards ORDER BY shard")]
    models = Place.hold(path) / "models"
    found = [read_model(models / name, shard) for shard, name in enumerate(names)]
    return [hashlib.sha256(content[:-SALT_BYTES]).hexdigest() for content in found]


def parts(path: Path) -> dict[str, int]:
    with sqlite3.connect(f"file:{path}/state.db?mode=ro", uri=True) as database:
        return dict(database.execute("SELECT name, shard FROM parts"))


def live(path: Path, kind: str, **options: Any) -> Iterator[list[str]]:
    """A life: yield the models after each of its rounds."""
    deployment = create(path, kind, **options)
    yield digests(path)
    deployment.delete(["p7", "p8"], subjects=["s20"])
    yield digests(path)
    deployment.add(TABLES[kind]([200, 201, 202]), ["yes", "no", "no"], ["n0", "n1", "n2"])
    yield digests(path)
    deployment.close()
    deployment = expunge.open(path)
    deployment.correct(["p9", "n1"], y=["no", "yes"])
    yield digests(path)
    deployment.delete(["n0", "p50"])
    deployment.add(TABLES[kind]([7]), ["no"], ["p7"], readmit=True)
    yield digests(path)
    deployment.redeclare(add_classes=["maybe"])
    deployment.delete(["p60"])
    yield digests(path)
    deployment.close()
    assert check(path).damage == ()


@pytest.mark.parametrize("kind", TABLES)
def test_the_same_models_as_in_a_folder(kind: str, folder: Path, bucket: Any) -> None:
    lives = [
        live(folder / "slabs", kind),
        live(folder / "lake", kind, records_at=folder / "table"),
        live(folder / "s3", kind, records_at=bucket.url),
    ]
    rounds = [*zip(*lives, strict=True)]
    assert len(rounds) == 6
    for number, found in enumerate(rounds):
        assert found[0] == found[1] == found[2], number
    assert len({tuple(found[0]) for found in rounds}) == len(rounds)


def test_a_renewed_key_and_a_wider_form_write_the_table_anew(folder: Path) -> None:
    numbers = rows_of(range(SIZE))
    with create(folder, records_at=folder.with_name("table"), ids=None) as deployment:
        before = parts(folder)
        deployment.add(rows_of([300]), ["no"], ["a text"])  # ids were numbers before
        between = parts(folder)
        assert not before.keys() & between.keys()
        deployment.rekey()
        assert not between.keys() & parts(folder).keys()
        assert check(folder).damage == ()
        records = deployment.inside.state.records
        for slot in (0, 17, SIZE):
            record = records.id_of(slot)
            expected = rows_of([300])[0] if record == "a text" else numbers[record]
            assert records.gather(np.array([slot]))[0][0].tolist() == expected.tolist()
    assert {*FolderObjects(folder.with_name("table")).names("records/")} == {*parts(folder)}


def test_a_deletion_touches_the_parts_of_its_shards_alone(folder: Path) -> None:
    with create(folder, records_at=folder.with_name("table")) as deployment:
        before = parts(folder)
        deployment.delete(["p7"])
        after = parts(folder)
        gone = {before[name] for name in before.keys() - after.keys()}
        assert len(gone) == 1
        assert gone == {after[name] for name in after.keys() - before.keys()}
        state = deployment.inside.state
        assert isinstance(state.records.blocks[0].elsewhere, LakeRows)
        assert len(state.records.blocks[0].features) == 0


def test_a_part_is_read_once_in_an_update(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with create(folder, records_at=folder.with_name("table")) as deployment:
        read: list[str] = []
        get = FolderObjects.read
        monkeypatch.setattr(FolderObjects, "read", lambda self, name: read.append(name) or get(self, name))
        deployment.delete(["p7", "p8", "p9", "p10", "p11"])
        assert len({name for name in read if name != "expunge.json"}) > 1
        assert len(read) == len({*read})


def test_a_shard_does_not_gather_more_and_more_parts(folder: Path) -> None:
    with create(folder, records_at=folder.with_name("table")) as deployment:
        most = 0
        for number in range(40):
            deployment.add(rows_of([500 + number]), ["no"], [f"n{number}"])
            counts = [*parts(folder).values()]
            most = max(most, *(counts.count(shard) for shard in range(SHARDS)))
        assert 2 < most <= 9
    assert check(folder).damage == ()


def test_when_all_of_a_shard_is_deleted_it_has_no_part(folder: Path) -> None:
    with create(folder, records_at=folder.with_name("table")) as deployment:
        state = deployment.inside.state
        gone = [state.records.id_of(slot) for slot in state.members[1].tolist()]
        deployment.delete(gone)
        assert 1 not in parts(folder).values()
        deployment.add(rows_of(range(300, 310)), ["no", "yes"] * 5, gone[:10], readmit=True)
    assert check(folder).damage == ()
    expunge.open(folder).close()


@pytest.mark.parametrize("kind", ["numbers", "frame", "texts"])
def test_no_object_holds_what_was_deleted(kind: str, folder: Path, bucket: Any) -> None:
    def patterns(number: int) -> list[bytes]:
        return [token(number).encode()] if kind != "numbers" else [rows_of([number])[0, 0].tobytes()]

    def finds(number: int) -> bool:
        contents = [*bucket.contents().values(), *(file.read_bytes() for file in folder.rglob("*") if file.is_file())]
        return any(pattern in content for pattern in patterns(number) for content in contents)

    with create(folder, kind, records_at=bucket.url) as deployment:
        assert finds(7)
        assert finds(33)
        assert finds(41)
        deployment.delete(["p7"])
        assert not finds(7)
        deployment.delete([], subjects=["s16"])  # p32, p33
        deployment.add(TABLES[kind]([400]), ["no"], ["new"])
        assert finds(400)
        deployment.delete(["new"])
        assert not finds(33)
        assert not finds(400)
        assert finds(41)
    assert not [name for name in bucket.contents() if "probe" in name]


def test_files_are_overwritten_before_they_are_removed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = folder.with_name("table")
    with create(folder, records_at=table) as deployment:
        held = {file: os.open(file, os.O_RDONLY) for file in table.rglob("*.parquet")}
        deployment.delete(["p7"])
        gone = [descriptor for file, descriptor in held.items() if not file.exists()]
        assert len(gone) == 1
        assert not any(os.pread(gone[0], 1 << 20, 0))
        for descriptor in held.values():
            os.close(descriptor)


def test_a_bucket_that_keeps_old_versions_is_refused(folder: Path, bucket: Any) -> None:
    bucket.client.create_bucket(Bucket=f"{bucket.name}-lock", ObjectLockEnabledForBucket=True)
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
    for name in (bucket.name, f"{bucket.name}-lock"):
        with pytest.raises(StoreError, match=r"keeps old versions of its objects.*suspend its versioning"):
            create(folder, records_at=f"s3://{name}/churn")
        assert not folder.exists()
    bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Suspended"})
    create(folder, records_at=bucket.url).close()


def test_versions_that_are_switched_on_later_stop_the_next_round(folder: Path, bucket: Any) -> None:
    with create(folder, records_at=bucket.url) as deployment:
        before = digests(folder)
        bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Enabled"})
        with pytest.raises(StoreError, match="keeps old versions"):
            deployment.delete(["p7"])
        assert deployment.status.pending == 1
        assert digests(folder) == before
        bucket.client.put_bucket_versioning(Bucket=bucket.name, VersioningConfiguration={"Status": "Suspended"})
        deployment.apply()
        assert "p7" not in deployment.records


def test_a_table_is_made_of_files_in_a_bucket(folder: Path, bucket: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    numbers = [*range(SIZE)]
    frame = pd.DataFrame(rows_of(numbers), columns=["a", "b", "c"])
    frame = frame.assign(id=[f"p{n}" for n in numbers], y=[["no", "yes"][n % 3 == 0] for n in numbers])
    for number, low in enumerate(range(0, SIZE, 50)):
        part = io.BytesIO()
        frame.iloc[low : low + 50].to_parquet(part, index=False)
        bucket.client.put_object(Bucket=bucket.name, Key=f"in/day={number}/x.parquet", Body=part.getvalue())
    monkeypatch.setattr(streams, "_HEAD", 40)
    source = f"s3://{bucket.name}/in"
    with create(folder / "one", subjects=None) as one:
        expected = digests(one.path)
    for name, pattern in (("two", f"{source}/*/*.parquet"), ("three", source)):
        _, _, stream = read_stream(pattern, label="y", id="id")
        assert stream is not None
        table = f"s3://{bucket.name}/{name}"
        options: dict[str, Any] = {"n_shards": SHARDS, "rng": Randomness.from_seed(5), "records_at": table}
        with expunge.create(folder / name, LookupTableLearner(), stream, **options) as made:
            assert digests(made.path) == expected
    with pytest.raises(InputError, match="there is no Parquet file"):
        read_stream(f"s3://{bucket.name}/none/*.parquet", label="y")
    with pytest.raises(StoreError, match="s3://no-such-bucket"):
        read_stream("s3://no-such-bucket/x.parquet", label="y")


def test_a_stream_needs_a_place_and_a_number_of_shards(folder: Path) -> None:
    stream = RecordStream(LakeRows, np.zeros((1, 2)), np.zeros(5, np.int32), np.array(["a", "b"]))  # type: ignore[arg-type]
    cases: dict[str, dict[str, Any]] = {
        "leave out ids": {"ids": [1], "records_at": folder},
        "needs records_at": {},
        "needs records_at, and a number": {"records_at": folder, "n_shards": "auto"},
    }
    for words, options in cases.items():
        with pytest.raises(InputError, match=words):
            expunge.create(folder, LookupTableLearner(), stream, **options)
    assert not folder.exists()


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "gs": ({"records_at": "gs://bucket/x"}, "of gs:// expunge cannot tell"),
    "no bucket": ({"records_at": "s3://"}, "not of the form s3://bucket/prefix"),
    "short bucket": ({"records_at": "s3://b/x"}, "the bucket's name in 3 to 63 small letters"),
    "odd bucket": ({"records_at": "s3://Bucket/../x"}, "not of the form s3://bucket/prefix"),
    "machine": ({"records_at": "file://elsewhere/x"}, "names another machine"),
    "promise": ({"records_at": "table", "promise": "unguarded"}, "are for the exact promise, not for unguarded"),
    "sampling": ({"records_at": "table", "sampling": "independent"}, "need --sampling partition"),
    "encrypt": ({"records_at": "table", "encrypt": True}, "not encrypted record by record"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_does_not_fit_is_refused_in_one_line(case: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options, words = REFUSED[case]
    monkeypatch.chdir(folder.parent)
    with pytest.raises(InputError, match=words):
        create(folder, **options)
    assert not folder.exists()
    assert not Path("table").exists()


def test_records_go_where_nothing_else_is(folder: Path) -> None:
    table = folder.with_name("table")
    table.mkdir(mode=0o700)
    (table / "notes.txt").write_text("mine")
    with pytest.raises(InputError, match="is not empty"):
        create(folder, records_at=table)
    assert [file.name for file in table.iterdir()] == ["notes.txt"]
    create(folder, records_at=folder.with_name("other")).close()
    for inside in (folder / "table", folder):
        with pytest.raises(InputError, match="lies in a deployment's folder"):
            create(folder.with_name("third"), records_at=inside)
    with pytest.raises(InputError, match="is not empty"):
        create(folder.with_name("third"), records_at=folder.with_name("other"))
    assert check(folder).damage == ()


def test_a_failed_creation_leaves_nothing(folder: Path, bucket: Any) -> None:
    def fail(step: str) -> None:
        if step == "create.models":
            raise RuntimeError("on purpose")

    for url in (folder.with_name("table"), bucket.url):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(steps, "on_step", fail)
            with pytest.raises(RuntimeError, match="on purpose"):
                create(folder, records_at=url)
        assert open_objects(str(url)).names() == []
        assert not folder.exists()
    create(folder, records_at=bucket.url).close()


def test_damage_is_found_and_named(folder: Path) -> None:
    table = folder.with_name("table")
    create(folder, records_at=table).close()
    one = sorted(table.rglob("*.parquet"))[0]
    content = one.read_bytes()
    one.write_bytes(content[:200] + bytes([content[200] ^ 1]) + content[201:])
    assert any(one.name in line for line in check(folder).damage)
    with pytest.raises(ExpungeError, match=one.name), expunge.open(folder) as deployment:
        deployment.rekey()
    one.unlink()
    assert any("lacks the object" in line for line in check(folder).damage)
    one.write_bytes(content)
    assert check(folder).damage == ()
    two = sorted(table.rglob("*.parquet"))[1]
    one.write_bytes(two.read_bytes())  # a sound part in another's place
    assert check(folder).damage


def test_a_folder_of_records_that_is_not_mounted_is_named_and_not_made(folder: Path) -> None:
    table, away = folder.with_name("table"), folder.with_name("away")
    create(folder, records_at=table).close()
    table.rename(away)
    with pytest.raises(FormatError, match="table with the records is not there: mount its disk"):
        expunge.open(folder)
    assert sum("is not there" in line for line in check(folder).damage) == 1
    assert not table.exists()
    away.rename(table)
    assert check(folder).damage == ()
    expunge.open(folder).close()


def test_a_part_from_before_a_deletion_is_noticed(folder: Path) -> None:
    table = folder.with_name("table")
    with create(folder, records_at=table) as deployment:
        old = {file.parent.name: file.read_bytes() for file in table.rglob("*.parquet")}
        deployment.delete(["p7"])
    for file in table.rglob("*.parquet"):
        file.write_bytes(old[file.parent.name])
    assert any("its content has another digest" in line for line in check(folder).damage)


def test_nothing_of_another_deployment_is_removed(folder: Path) -> None:
    """A folder from a stranger that names somebody's table cannot have it swept."""
    mine, theirs = folder / "mine", folder / "theirs"
    create(mine, records_at=folder / "table").close()
    create(theirs, records_at=folder / "else").close()
    there = sorted((folder / "table").rglob("*"))
    with expunge.open(theirs) as deployment:
        store = deployment._store
        with store.database.transaction():
            store.database.execute("UPDATE lake SET url = ?", (str(folder / "table"),))
    with pytest.raises(FormatError, match="records of another deployment; nothing was changed"):
        expunge.open(theirs)
    assert sorted((folder / "table").rglob("*")) == there
    expunge.open(mine).close()


def test_a_second_writer_takes_over_and_the_first_one_changes_nothing(folder: Path, bucket: Any) -> None:
    first = create(folder, records_at=bucket.url)
    copy = Path(shutil.copytree(folder, folder.with_name("copy")))
    second = expunge.open(copy)
    before = bucket.contents()
    with pytest.raises(StoreError, match="another process writes there by now; nothing was changed"):
        first.delete(["p7"])
    assert first.status.pending == 1
    assert before.keys() <= bucket.contents().keys()
    second.delete(["p8"])
    second.close()
    assert check(copy).damage == ()
    first._store._lock.release()  # type: ignore[union-attr]


@pytest.mark.parametrize("act", ["delete", "add", "rekey"])
def test_a_copy_of_the_folder_from_before_removes_nothing(act: str, folder: Path) -> None:
    table = folder.with_name("table")
    create(folder, records_at=table).close()
    copy = Path(shutil.copytree(folder, folder.with_name("copy")))
    with expunge.open(folder) as deployment:
        acts: dict[str, Callable[[], Any]] = {
            "delete": lambda: deployment.delete(["p7"]),
            "add": lambda: deployment.add(rows_of([300]), ["no"], ["n"]),
            "rekey": deployment.rekey,
        }
        acts[act]()
    there = {file: file.read_bytes() for file in table.rglob("*") if file.is_file()}
    with pytest.raises(FormatError, match="is a copy from before or was set back; nothing was changed"):
        expunge.open(copy)
    assert {file: file.read_bytes() for file in table.rglob("*") if file.is_file()} == there
    expunge.open(folder).close()
    assert check(folder).damage == ()


def test_a_view_and_status_say_where_records_are(folder: Path, bucket: Any) -> None:
    with create(folder, records_at=bucket.url) as deployment:
        assert deployment.records_at == bucket.url
        with open_view(folder) as view:
            assert view.records_at == bucket.url
        with pytest.raises(InputError, match="does not back them up"):
            back_up(folder, folder.with_name("file.backup"))
        back_up(folder, folder.with_name("log.backup"), log_only=True)


KILLS = [
    "accept.done",
    "stage.records",
    "stage.model",
    "stage.done",
    "apply.trained",
    "switch.open",
    "switch.done",
    "erase.slots",
    "erase.files",
    "erase.checkpoint",
    "applied.open",
    "applied.done",
]


RENEWED = "rewrite.done", "stage.done", "switch.done", "erase.files"


@pytest.mark.parametrize(("step", "renews"), [*((step, False) for step in KILLS), *((step, True) for step in RENEWED)])
def test_a_killed_process_leaves_one_state_or_the_other(step: str, renews: bool, folder: Path) -> None:
    """After SIGKILL, opening finishes: the request is applied once, nothing lies around, nobody is lost."""
    table = folder.with_name("table")
    create(folder, records_at=table, apply="manual").close()
    child = os.fork()
    if child == 0:  # pragma: no cover
        try:
            deployment = expunge.open(folder)
            passed = iter(range(10))
            steps.on_step = lambda name: (
                os.kill(os.getpid(), signal.SIGKILL) if name == step and next(passed) == 0 else None
            )
            if renews:
                deployment.rekey()
            deployment.submit([expunge.Delete("p7"), expunge.Add(id="n", features=rows_of([600])[0], label="no")])
            deployment.apply()
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status) or step == "erase.checkpoint"
    with expunge.open(folder) as deployment:
        if not deployment.requests():
            deployment.submit([expunge.Delete("p7"), expunge.Add(id="n", features=rows_of([600])[0], label="no")])
        deployment.apply()
        assert [one.public_state for one in deployment.requests()] == ["applied"]
        assert len(deployment.records) == SIZE
        assert "p7" not in deployment.records
        assert "n" in deployment.records
    assert check(folder).damage == ()
    assert {*FolderObjects(table).names("records/")} == {*parts(folder)}
    if not renews:
        with create(folder.with_name("fresh")) as fresh:
            fresh.update([expunge.Delete("p7"), expunge.Add(id="n", features=rows_of([600])[0], label="no")])
        assert digests(folder) == digests(folder.with_name("fresh"))


class Faults:
    """A server before the bucket. `plan` says of a method how many requests pass, and what becomes of the others."""

    def __init__(self, address: str) -> None:
        self.target = address.removeprefix("http://")
        self.plan: dict[str, tuple[int, str]] = {}
        self.done: list[str] = []
        self.under_way = 0
        self.lock = threading.Lock()

    def next(self, method: str, path: str) -> str | None:
        with self.lock:
            if method not in self.plan or (method in ("PUT", "GET") and "expunge.json" in path):
                return None
            left, fault = self.plan[method]
            self.plan[method] = left - 1, fault
            if left > 0:
                return None
            self.done.append(fault)
            return fault


@contextmanager
def faulty(address: str) -> Iterator[tuple[Faults, str]]:
    faults = Faults(address)

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _pass(self) -> None:
            with faults.lock:
                faults.under_way += 1
            try:
                self._answer()
            except OSError:  # the program has gone
                self.close_connection = True
            finally:
                with faults.lock:
                    faults.under_way -= 1

        def _answer(self) -> None:
            fault = faults.next(self.command, self.path)
            length = int(self.headers.get("Content-Length") or 0)
            if fault == "cut":
                self.rfile.read(length // 2)
                self.close_connection = True
                return
            body = self.rfile.read(length)
            if fault == "error":
                self.send_response(503)
                self.send_header("Content-Length", "0")
                self.end_headers()
                return
            if fault == "slow":
                threading.Event().wait(1.3)
            target = http.client.HTTPConnection(faults.target)
            target.request(self.command, self.path, body, dict(self.headers))
            answer = target.getresponse()
            content = answer.read()
            target.close()
            if fault == "lost":
                self.close_connection = True
                return
            self.send_response(answer.status)
            for name, value in answer.getheaders():
                if name.lower() not in ("connection", "transfer-encoding", "content-length", "server", "date"):
                    self.send_header(name, value)
            self.send_header("Content-Length", str(len(content) if self.command != "HEAD" else 0))
            self.end_headers()
            self.wfile.write(content)

        do_GET = do_PUT = do_POST = do_DELETE = do_HEAD = _pass

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield faults, f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        while faults.under_way:  # what is slow arrives late, and not never
            threading.Event().wait(0.01)
        server.shutdown()
        server.server_close()


FAULTS = [
    *(("PUT", fault) for fault in ("error", "slow", "cut", "lost")),
    *(("GET", fault) for fault in ("error", "cut")),
    *(("POST", fault) for fault in ("error", "lost")),
]


@pytest.mark.parametrize(("method", "fault"), FAULTS)
def test_a_bucket_that_fails_loses_nothing(
    method: str, fault: str, folder: Path, bucket: Any, s3_address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error, an answer after the patience is over, an upload that is cut off, an answer that never comes."""
    if fault == "slow":
        monkeypatch.setattr(buckets, "_PATIENCE", timedelta(seconds=1))
    monkeypatch.setattr(buckets, "_RETRIES", 1)
    with create(folder, records_at=bucket.url, apply="manual") as deployment:
        deployment.submit([expunge.Delete("p7"), expunge.Add(id="n", features=rows_of([600])[0], label="no")])
    with faulty(s3_address) as (faults, address):
        monkeypatch.setenv("AWS_ENDPOINT_URL", address)
        with expunge.open(folder) as deployment:
            before = digests(folder)
            for skipped in range(2):
                faults.plan = {method: (skipped, fault)}
                told = ""
                try:
                    deployment.apply()
                except StoreError as error:
                    told = str(error)
                assert "\n" not in told
                assert len(told) < 500
                faults.plan = {}
                if [one.public_state for one in deployment.requests()] == ["applied"]:
                    break
                assert digests(folder) == before or method == "POST"  # after the switch only erasing is left
            assert faults.done
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_address)
    with expunge.open(folder) as deployment:
        deployment.apply()
        assert [one.public_state for one in deployment.requests()] == ["applied"]
        assert len(deployment.records) == SIZE
        assert deployment.status.round == 1
    names = {name.removeprefix("churn/") for name in bucket.contents()}
    assert names == {"expunge.json", *parts(folder)}
    pattern = rows_of([7])[0, 0].tobytes()
    assert not any(pattern in content for content in bucket.contents().values())
    with create(folder.with_name("fresh")) as fresh:
        fresh.update([expunge.Delete("p7"), expunge.Add(id="n", features=rows_of([600])[0], label="no")])
    assert digests(folder) == digests(folder.with_name("fresh"))


@pytest.fixture(params=["folder", "bucket"])
def kept(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    return (
        FolderObjects(tmp_path / "kept")
        if request.param == "folder"
        else BucketObjects(request.getfixturevalue("bucket").url)
    )


def test_objects_are_what_they_should_be(kept: Any) -> None:
    assert kept.names() == []
    kept.put("records/shard=00001/a.parquet", b"one")
    kept.put("records/shard=00002/b.parquet", b"two")
    kept.flush()
    assert kept.names() == kept.names("records/") == ["records/shard=00001/a.parquet", "records/shard=00002/b.parquet"]
    assert kept.names("records/shard=00002/") == ["records/shard=00002/b.parquet"]
    assert kept.names("nothing/") == []
    assert kept.read("records/shard=00002/b.parquet") == b"two"
    with pytest.raises(FormatError, match="lacks the object records/c"):
        kept.read("records/c")
    assert kept.swap("mark", None, b"1")
    assert not kept.swap("mark", None, b"2")
    assert not kept.swap("mark", b"2", b"3")
    assert kept.swap("mark", b"1", b"4")
    assert kept.read("mark") == b"4"
    assert not kept.swap("other", b"1", b"4")
    kept.remove(["records/shard=00001/a.parquet", "records/never.parquet", "mark"])
    assert kept.names() == ["records/shard=00002/b.parquet"]
    kept.require_forgetful()
    assert kept.names() == ["records/shard=00002/b.parquet"]


def test_without_its_extra_a_bucket_says_what_to_install(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "obstore", None)
    with pytest.raises(expunge.core.errors.MissingExtraError, match=r"pip install 'expunge\[lake\]'"):
        create(folder, records_at="s3://bucket/x")
    assert not folder.exists()


def test_the_folder_is_opened_without_reading_a_part(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    create(folder, records_at=folder.with_name("table")).close()
    read: list[str] = []
    get = FolderObjects.read
    monkeypatch.setattr(FolderObjects, "read", lambda self, name: read.append(name) or get(self, name))
    with expunge.open(folder) as deployment:
        deployment.predict(rows_of([1, 2]))
    assert {*read} == {"expunge.json"}
    with open_view(folder):
        pass
    assert isinstance(Store.open(folder, read_only=True).lake, object)
