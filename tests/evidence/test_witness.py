"""The witness cosigns one history of each log, whatever it is sent, by how many, and when it is killed."""

from __future__ import annotations

import http.client
import http.server
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from http import HTTPStatus
from urllib.parse import urlsplit

import pytest

from expunge.core.errors import FormatError, InputError, StoreError
from expunge.evidence import Checkpoint, NoteKey, SigningKey, Submission, Tree, hash_leaf, outlets
from expunge.evidence.outlets import ask_witness
from expunge.evidence.witness import Refused, Witness, add_cosignatures
from expunge.evidence.witness_server import WitnessServer

KEY, OTHER = SigningKey.generate(), SigningKey.generate()
LOG = NoteKey("example.com/churn", KEY.public_key)
TREE = Tree([hash_leaf(b"%d" % number) for number in range(40)])
FORK = Tree([hash_leaf(b"%d" % number) for number in (*range(4), *range(100, 136))])


def submission(old, new, tree=TREE, key=KEY, origin=LOG.name, root=None):
    made = Checkpoint(origin, new, tree.root(new) if root is None else root).signed(key)
    return Submission(old, tuple(tree.consistency(old, new)), made)


@pytest.fixture
def witness(tmp_path):
    made = Witness.create(tmp_path / "witness", name="witness.example")
    assert made.trust(LOG)
    return made


def image(witness):
    return {path: path.read_bytes() for path in witness.path.rglob("*") if path.is_file()}


def test_it_cosigns_what_continues_what_it_cosigned(witness):
    before = 0
    for old, new in ((0, 3), (3, 9), (9, 9), (9, 40)):
        cosigned = witness.cosign(submission(old, new))
        assert (cosigned.size, cosigned.root) == (new, TREE.root(new))
        at = cosigned.cosigned_at(witness.key)
        assert abs(at - time.time()) < 60
        assert at >= before
        assert cosigned.is_signed_by(LOG)
        (known,) = Witness(witness.path).logs()  # another process
        assert known.last == cosigned
        before = at
    assert witness.refused() == []


def test_a_clock_that_was_set_back_does_not_count(witness):
    assert witness.cosign(submission(0, 3), now=2_000_000_000).cosigned_at(witness.key) == 2_000_000_000
    assert witness.cosign(submission(3, 5), now=1_000_000_000).cosigned_at(witness.key) == 2_000_000_000


REFUSALS = {
    "unknown log": (submission(9, 12, origin="example.com/other"), HTTPStatus.NOT_FOUND, None, False),
    "another key": (submission(9, 12, key=OTHER), HTTPStatus.FORBIDDEN, None, False),
    "backwards": (Submission(12, (), submission(0, 9).checkpoint), HTTPStatus.BAD_REQUEST, None, False),
    "stale": (submission(3, 12), HTTPStatus.CONFLICT, 9, False),
    "from nothing": (submission(0, 12), HTTPStatus.CONFLICT, 9, False),
    "smaller": (submission(3, 5), HTTPStatus.CONFLICT, 9, False),
    "same size": (submission(9, 9, FORK), HTTPStatus.CONFLICT, 9, True),
    "same size, from nothing": (submission(0, 9, FORK), HTTPStatus.CONFLICT, 9, True),
    "forked": (submission(9, 12, FORK), HTTPStatus.UNPROCESSABLE_ENTITY, None, True),
    "no proof": (Submission(9, (), submission(9, 12).checkpoint), HTTPStatus.UNPROCESSABLE_ENTITY, None, True),
    "a proof too many": (Submission(9, (bytes(32),), submission(9, 9).checkpoint), 422, None, False),
}


@pytest.mark.parametrize("case", REFUSALS)
def test_everything_else_is_refused_and_a_fork_is_kept(witness, case):
    sent, status, size, is_fork = REFUSALS[case]
    last = witness.cosign(submission(0, 9))
    before = image(witness)
    with pytest.raises(Refused) as caught:
        witness.cosign(sent)
    assert (caught.value.status, caught.value.size, caught.value.is_fork) == (status, size, is_fork)
    assert "\n" not in str(caught.value)
    assert witness.logs()[0].last == last
    kept = {path: content for path, content in image(witness).items() if path not in before}
    assert {path: image(witness)[path] for path in before} == before
    assert [*kept.values()] == ([f"{last}\n{sent}".encode()] if is_fork else [])
    assert witness.refused() == [*kept]
    assert witness.cosign(submission(9, 12)).size == 12  # the honest history goes on


def test_a_first_checkpoint_needs_no_proof(witness):
    with pytest.raises(Refused, match="no proof is needed") as caught:
        witness.cosign(Submission(0, (bytes(32),), submission(0, 3).checkpoint))
    assert (caught.value.status, witness.refused()) == (422, [])
    with pytest.raises(Refused, match="has 0") as caught:
        witness.cosign(submission(3, 9))
    assert (caught.value.status, caught.value.size) == (409, 0)


def test_a_log_keeps_its_key(witness):
    assert not witness.trust(LOG)
    with pytest.raises(InputError, match=r"another key of the log .* is trusted already"):
        witness.trust(NoteKey(LOG.name, OTHER.public_key))
    with pytest.raises(InputError, match="is a witness's"):
        witness.trust(witness.key)


def test_a_folder_that_is_no_witness_or_was_changed_is_refused(witness, tmp_path):
    with pytest.raises(InputError, match="is not a witness's folder"):
        Witness(tmp_path)
    with pytest.raises(InputError, match="is not a witness's folder"):
        Witness(tmp_path / "nothing")
    with pytest.raises(InputError, match="is not empty"):
        Witness.create(witness.path, name="other")
    witness.cosign(submission(0, 9))
    (file,) = (witness.path / "logs").iterdir()
    good = file.read_bytes()
    unsigned = f"{LOG}\n\n{submission(0, 3).checkpoint}".encode()  # an older checkpoint, put there by somebody else
    cut = [good[:size] for size in range(len(good))]  # where a new log's file ends, too
    for content in (*cut, unsigned, good.replace(b"\n9\n", b"\n8\n")):
        file.write_bytes(content)
        with pytest.raises(FormatError, match="A witness that forgot what it cosigned needs a new key"):
            Witness(witness.path).cosign(submission(9, 12))
    file.write_bytes(good)
    assert Witness(witness.path).cosign(submission(9, 12)).size == 12
    shutil.copy(witness.path / "logs" / file.name, tmp_path / "copy")
    other = Witness.create(tmp_path / "other", name="other.example")
    (other.path / "witness.key").write_bytes((witness.path / "witness.key").read_bytes())
    with pytest.raises(FormatError, match="do not belong together"):
        Witness(other.path)


# Over HTTP.


@pytest.fixture
def server(witness):
    said = []
    with WitnessServer(witness, port=0, report=said.append) as running:
        running.said = said
        thread = threading.Thread(target=running.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield running
        running.shutdown()
        thread.join()


def post(url, body, path="/add-checkpoint", **headers):
    connection = http.client.HTTPConnection(urlsplit(url).netloc, timeout=20)
    try:
        connection.request("POST", path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.headers["Content-Type"], answer.read().decode()
    finally:
        connection.close()


def test_over_http_a_cosignature_comes_back(server, witness):
    sent = submission(0, 9)
    status, kind, lines = post(server.url, str(sent).encode())
    assert (status, kind) == (200, "text/plain; charset=utf-8")
    cosigned = add_cosignatures(sent.checkpoint, lines, witness.key)
    assert cosigned == witness.logs()[0].last
    with pytest.raises(InputError, match="holds no cosignature of the witness"):
        add_cosignatures(sent.checkpoint, lines, NoteKey("other.example", OTHER.public_key, is_witness=True))
    with pytest.raises(InputError, match="not a checkpoint"):
        add_cosignatures(sent.checkpoint, "nonsense", witness.key)


@pytest.mark.parametrize("case", REFUSALS)
def test_over_http_a_refusal_has_the_status_of_the_specification(server, witness, case):
    sent, status, size, is_fork = REFUSALS[case]
    witness.cosign(submission(0, 9))
    found, kind, text = post(server.url, str(sent).encode())
    assert (found, text.count("\n")) == (status, 1)
    assert (kind, text) == ("text/x.tlog.size", f"{size}\n") if size is not None else kind.startswith("text/plain")
    assert [line.startswith("REFUSED: the log example.com/churn ") for line in server.said] == [True] * is_fork
    answer = ask_witness(server.url + "/", sent)
    assert (answer.status, answer.size) == (status, size)


def test_over_http_nonsense_is_refused_and_the_server_goes_on(server):
    assert post(server.url, b"nonsense")[0] == 400
    assert post(server.url, b"\xff\xfe")[0] == 400
    assert post(server.url, b"", path="/other")[0] == 404
    assert post(server.url, b"x" * 200_000)[0] == 413
    assert post(server.url, None, **{"Transfer-Encoding": "chunked"})[0] == 411
    assert post(server.url, b"x", **{"Content-Length": "-1"})[0] == 411
    assert ask_witness(server.url, submission(0, 9)).status == 200
    assert server.said == []


def test_of_many_who_ask_at_once_one_history_is_cosigned(server, witness):
    """Two histories, in every size: what was cosigned lies on one of them."""
    sent = [submission(0, size, tree) for size in range(5, 40) for tree in (TREE, FORK)]
    with ThreadPoolExecutor(8) as pool:
        answers = list(pool.map(lambda each: ask_witness(server.url, each), sent))
    agreed = [each for each, answer in zip(sent, answers, strict=True) if answer.status == 200]
    assert len(agreed) == 1  # all others no longer start from what was cosigned
    assert {answer.status for answer in answers} == {200, 409}
    tree = TREE if agreed[0].checkpoint.root == TREE.root(agreed[0].checkpoint.size) else FORK
    other = FORK if tree is TREE else TREE
    size = agreed[0].checkpoint.size
    assert ask_witness(server.url, submission(size, 40, other)).status in (409, 422)
    assert ask_witness(server.url, submission(size, 40, tree)).status == 200
    assert witness.logs()[0].size == 40


_ASK = """
import sys
from expunge.evidence import Submission
from expunge.evidence.witness import Refused, Witness
witness = Witness(sys.argv[1])
for text in open(sys.argv[2]).read().split("\\0"):
    try:
        print(witness.cosign(Submission.parse(text)).size, flush=True)
    except Refused:
        print("refused", flush=True)
"""


def test_what_was_given_out_before_a_kill_is_remembered(witness, tmp_path):
    """Killed again and again in the middle of its work: no size that was told is ever forgotten."""
    (tmp_path / "steps").write_text("\0".join(str(submission(size, size + 1)) for size in range(39)))
    command = [sys.executable, "-c", _ASK, str(witness.path), str(tmp_path / "steps")]
    told, kills = 0, 0
    while told < 39 and kills < 8:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=os.environ) as process:
            for line in process.stdout:
                if line.strip() == "refused":
                    continue
                told = int(line)
                if told % 6 == 0:
                    process.send_signal(signal.SIGKILL)
                    kills += 1
                    break
            process.kill()
        size = Witness(witness.path).logs()[0].size
        assert told <= size <= told + 39
        told = size
    assert kills >= 3
    assert witness.refused() == []
    assert Witness(witness.path).logs()[0].size == 39


def test_a_server_that_never_ends_is_given_up(monkeypatch):
    """It sends one byte after the other, each before the patience with a silent server is over."""
    monkeypatch.setattr(outlets, "_LONGEST", 0.3)
    over = threading.Event()

    class Dripping(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            self.wfile.write(b"HTTP/1.0 200 OK\r\nContent-Length: 1000\r\n\r\n")
            while not over.wait(0.05):
                self.wfile.write(b"x")

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Dripping) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with pytest.raises(StoreError, match="does not come to an end"):
            ask_witness(f"http://127.0.0.1:{server.server_address[1]}", submission(0, 3))
        over.set()
        server.shutdown()
