"""`--take-over PATH`: a server takes the place of another one; nothing is refused, lost or cut in between."""

from __future__ import annotations

import http.client
import json
import os
import re
import shutil
import signal
import socket
import stat
import threading
import time

import pytest
from server import read_answer, text_of
from test_serve_life import LONG, PROMPT, request

FEW = {"prompt": PROMPT, "max_tokens": 2, "temperature": 0}


@pytest.fixture
def control(tmp_path):
    return tmp_path / "control"


@pytest.fixture
def take(start, control):
    """take(plan, *options): a server that takes over what is at `control`, ready; its port is that of the first."""
    ports = []

    def taken(plan, *options, **kwargs):
        server = start(plan, "--take-over", control, *options, wait=False, **kwargs)
        server.wait_line('"ready"')
        line = server.wait_line('"listening"')
        ports.append(int(re.search(r":(\d+)\"}", line)[1]) if "unix:" not in line else 0)
        server.port = ports[-1]
        assert len(set(ports)) == 1
        return server

    return taken


def fingerprint(server):
    return server.post("/v1/completions", FEW)[1]["system_fingerprint"]


class Load(threading.Thread):
    """Requests one after the other, each over a connection of its own or all over one that is kept; what came."""

    def __init__(self, port, keeps):
        super().__init__(daemon=True)
        self.port, self.keeps, self.answers, self.ends, self.failure = port, keeps, [], threading.Event(), None
        self.start()

    def run(self):
        connection, body = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30), json.dumps(FEW)
        try:
            while not self.ends.is_set():
                connection.request("POST", "/v1/completions", body)
                answer = connection.getresponse()
                self.answers.append((answer.status, json.loads(answer.read())["system_fingerprint"]))
                if not self.keeps:
                    connection.close()
        except Exception as failure:  # noqa: BLE001  any one fails the test
            self.failure = failure

    def sees(self, mark, timeout=30):
        until = time.monotonic() + timeout
        while not self.failure and (200, mark) not in self.answers:
            assert time.monotonic() < until, self.answers
            time.sleep(0.01)

    def stop(self):
        self.ends.set()
        self.join(30)
        assert self.failure is None, self.failure
        assert {status for status, _ in self.answers} == {200}
        return [mark for _, mark in self.answers]


def test_a_new_plan_under_load(atlas, trained, wide, take):
    """Streams and whole answers that run go on to their ends with the old plan; clients that ask all the time, over new
    connections and kept ones, never see a refusal; what is asked after the swap has the new plan."""
    old = take(wide)
    text = text_of(atlas, wide, PROMPT, 480, "--temperature", 1.5, "--seed", 4)
    loads = [Load(old.port, keeps) for keeps in (False, False, True, True)]
    streams = [old.raw(request(LONG | {"stream": True})) for _ in range(2)]
    whole = old.raw(request(LONG))
    heads = [s.recv(400) for s in streams]
    before = fingerprint(old)
    new = take(trained)
    after = fingerprint(new)
    assert after != before
    old.wait_line('"replaced"')
    for load in loads:
        load.sees(after)
    marks = [load.stop() for load in loads]
    for mark in marks:
        assert set(mark) == {before, after} and mark == sorted(mark, key=[before, after].index)
    for head, s in zip(heads, streams):
        got = (head + read_answer(s)).decode()
        events = [json.loads(line[6:]) for line in got.split("\n") if line.startswith("data: {")]
        assert "".join(e["choices"][0]["text"] for e in events) == text and "data: [DONE]" in got
        assert {e["system_fingerprint"] for e in events} == {before}
    assert json.loads(read_answer(whole).split(b"\r\n\r\n")[1])["choices"][0]["text"] == text
    assert old.process.wait(20) == 0
    assert fingerprint(new) == after and new.stop() == 0


def test_three_in_a_row_and_the_last_one_removes_the_socket(trained, take, control):
    servers = [take(trained) for _ in range(3)]
    assert [server.process.wait(20) for server in servers[:2]] == [0, 0]
    assert stat.S_ISSOCK(control.stat().st_mode)
    assert servers[2].stop() == 0 and not control.exists()


def test_connections_that_are_open(trained, take):
    """One that has asked nothing yet, and one that was kept: each has one more answer, which says that it is the last;
    so has one whose request is half there. Those that ask nothing end in the time of a head."""
    old = take(trained, "--head-timeout", 1)
    ask = request(FEW)
    kept, fresh, half, silent = (old.raw() for _ in range(4))
    for s in (kept, silent):
        s.sendall(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
        assert b"Connection" not in read_answer(s)
    half.sendall(ask[:-5])
    time.sleep(0.1)
    take(trained)
    old.wait_line('"replaced"')
    for s, data in ((kept, ask), (fresh, ask), (half, ask[-5:])):
        s.sendall(data)
        got = read_answer(s)
        assert got.startswith(b"HTTP/1.1 200") and b"Connection: close\r\n" in got and s.recv(1) == b""
    assert silent.recv(1) == b""
    assert old.process.wait(20) == 0


def test_a_unix_socket(trained, start, control, tmp_path):
    at = tmp_path / "http"

    def ask():
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(at))
            s.sendall(request(FEW))
            return read_answer(s)

    servers = []
    for _ in range(2):
        server = start(trained, "--socket", at, "--take-over", control, wait=False)
        servers.append(server)
        server.wait_line('"ready"')
        server.wait_line('"listening"')
        assert ask().startswith(b"HTTP/1.1 200")
    assert servers[0].process.wait(20) == 0
    assert ask().startswith(b"HTTP/1.1 200") and servers[1].stop() == 0 and not at.exists()


def test_a_plan_that_does_not_open_changes_nothing(trained, take, start, control, tmp_path):
    """The new server ends with its own exit code; the old one goes on, and the next one takes its place."""
    old = take(trained)
    plan = tmp_path / "plan.bin"
    shutil.copy(trained, plan)
    with open(plan, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))
    bad = start(plan, "--take-over", control, "--verify", "full", wait=False)
    assert bad.process.wait(30) == 6
    lazy = start(plan, "--take-over", control, wait=False)
    assert lazy.process.wait(30) == 6, lazy.lines
    assert old.get("/ready")[0] == 200 and control.exists()
    killed = start(trained, "--take-over", control, wait=False)
    killed.process.kill()
    killed.process.wait()
    assert fingerprint(old)
    assert fingerprint(take(trained)) and old.process.wait(20) == 0


def test_the_same_place_is_asked_for(trained, take, start, control, tmp_path):
    """A server does not end up where its options do not say."""
    old = take(trained)
    why = "the server before this one listens elsewhere: give this one the same --host and --port, or --socket"
    for options in (["--port", 1], ["--host", "127.0.0.2"], ["--socket", tmp_path / "http"]):
        server = start(trained, "--take-over", control, *options, wait=False)
        assert server.process.wait(20) == 5
        server.reader.join(10)
        assert json.loads(server.lines[-1])["text"] == why
    assert old.get("/ready")[0] == 200


def taker(control):
    """A connection to the control socket to which the sockets were given: (connection, descriptors)."""
    s = socket.socket(socket.AF_UNIX)
    s.settimeout(10)
    s.connect(str(control))
    s.sendall(b"t")
    word, fds, _, _ = socket.recv_fds(s, 10, 10)
    assert word == b"t" and len(fds) == 2
    return s, fds


def test_what_is_said_at_the_control_socket(trained, take, start, control):
    """Other words, words out of order, and ends at any point leave the server as it was."""
    old = take(trained)
    for words in (b"", b"x", b"k", b"\0" * 1000):
        with socket.socket(socket.AF_UNIX) as s:
            s.connect(str(control))
            s.sendall(words)
    for words in (b"", b"t", b"x"):
        s, fds = taker(control)
        if words:
            s.sendall(words)
        s.close()
        for fd in fds:
            os.close(fd)
        assert old.get("/ready") == (200, {"status": "ready"})
    s, fds = taker(control)
    late = start(trained, "--take-over", control, wait=False)  # while another one is at it
    assert late.process.wait(30) == 5
    late.reader.join(10)
    assert "another one is taking its place" in late.lines[-1]
    # descriptors are of the sockets that listen: with the server gone, a connection is still accepted
    with socket.socket(fileno=fds[1]) as listening:
        assert listening.getsockname() == ("127.0.0.1", old.port)
        s.sendall(b"k")
        assert old.process.wait(20) == 0
        client = socket.create_connection(("127.0.0.1", old.port))
        listening.setblocking(True)
        assert listening.accept()[0]
        client.close()
    os.close(fds[0])
    assert control.exists()  # as another one has its socket
    later = start(trained, "--take-over", control)
    assert later.stop() == 0 and not control.exists()


def ask_for_sockets(path):
    """(bytes, number of descriptors) that come back for TAKE."""
    with socket.socket(socket.AF_UNIX) as s:
        s.settimeout(20)
        s.connect(path)
        try:
            s.sendall(b"t")
            data, fds, _, _ = socket.recv_fds(s, 1, 16)
        except (BrokenPipeError, ConnectionResetError):
            return b"", 0
        for fd in fds:
            os.close(fd)
        return data, len(fds)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can be another user")
def test_another_user_gets_no_sockets(trained, take, control):
    """Whatever the file's mode lets in."""
    server = take(trained)
    control.chmod(0o777)
    control.parent.chmod(0o755)
    child = os.fork()
    if child == 0:
        os.chdir(control.parent)
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        os._exit(0 if ask_for_sockets(control.name) == (b"", 0) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert ask_for_sockets(str(control)) == (b"t", 2)
    assert server.post("/v1/completions", FEW)[0] == 200


def test_a_server_that_ends_while_the_next_one_loads(trained, start, control):
    """The next one accepts what waits in the sockets' queues."""
    with socket.socket() as listening, socket.socket(socket.AF_UNIX) as giver:
        listening.bind(("127.0.0.1", 0))
        listening.listen(8)
        giver.bind(str(control))
        giver.listen(8)
        server = start(trained, "--take-over", control, wait=False)
        server.port = listening.getsockname()[1]
        peer, _ = giver.accept()
        assert peer.recv(10) == b"t"
        socket.send_fds(peer, [b"t"], [giver.fileno(), listening.fileno()])
        early = server.raw(request(FEW))
        peer.close()
    assert re.match(rb"HTTP/1.1 (200|503)", read_answer(early))
    server.wait_line('"ready"')
    assert fingerprint(server)
    assert server.stop() == 0 and not control.exists()


@pytest.mark.parametrize("answer", ["nothing", "end", "words", "other"])
def test_a_process_that_gives_no_sockets(trained, start, control, answer):
    with socket.socket(socket.AF_UNIX) as giver:
        giver.bind(str(control))
        giver.listen(8)
        server = start(trained, "--take-over", control, wait=False)
        peer, _ = giver.accept()
        if answer == "end":
            peer.close()
        elif answer == "words":
            peer.sendall(b"t")
        elif answer == "other":
            socket.send_fds(peer, [b"t"], [giver.fileno()])
        assert server.process.wait(30) == 5
        server.reader.join(10)
        assert ("gives no listening sockets" in server.lines[-1]) == (answer != "nothing")


def test_a_signal_after_the_swap(trained, take):
    """The old server then has --drain seconds, and no more."""
    old = take(trained, "--drain", 0)
    s = old.raw(request(LONG | {"stream": True}))
    s.recv(15)
    take(trained)
    old.wait_line('"replaced"')
    old.process.send_signal(signal.SIGTERM)
    assert b"the server ends" in read_answer(s)
    assert old.process.wait(20) == 0


def test_a_path_that_is_too_long(trained, start, tmp_path):
    server = start(trained, "--take-over", tmp_path / ("x" * 120), wait=False)
    assert server.process.wait(20) == 5
    server.reader.join(10)
    assert "File name too long" in server.lines[-1]
