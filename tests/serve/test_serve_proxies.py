"""The samples for nginx and haproxy, under the real programs: streams, ends, ids, bodies, and several instances."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import threading
import time

import pytest
from proxies import INSTALL, Proxy
from server import text_of
from test_serve_life import LONG, PROMPT

SAMPLES = [("nginx", "nginx.conf"), ("haproxy", "haproxy.cfg")]
MANY = [("nginx", "nginx-many.conf"), ("haproxy", "haproxy-many.cfg")]
FEW = {"prompt": PROMPT, "max_tokens": 2, "temperature": 0}
ALLOW = ("--allow-host", "llm.example")


@pytest.fixture
def proxy(tmp_path):
    """proxy(program, sample, *ports): that program, gone after the test."""
    made = []

    def started(program, sample, *ports):
        made.append(Proxy(program, sample, ports, tmp_path / f"proxy{len(made)}"))
        return made[-1]

    yield started
    for p in made:
        p.stop()


def open_stream(proxy, value, path="/v1/completions", headers=()):
    """(connection, answer) whose head is there."""
    c = proxy.connection()
    body = json.dumps(value | {"stream": True})
    c.request("POST", path, body, {"Host": "llm.example", "Content-Type": "application/json"} | dict(headers))
    return c, c.getresponse()


def texts(data):
    return "".join(
        json.loads(line[6:])["choices"][0]["text"] for line in data.decode().split("\n") if line.startswith("data: {")
    )


class Backend(threading.Thread):
    """A server that answers the health check, and streams an event each time that `next` is called."""

    def __init__(self):
        super().__init__(daemon=True)
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.port = self.listening.getsockname()[1]
        self.go, self.ended = threading.Semaphore(0), False
        self.start()

    def run(self):
        while True:
            s, _ = self.listening.accept()
            threading.Thread(target=self.serve, args=(s,), daemon=True).start()

    def serve(self, s):
        head = b""
        while b"\r\n\r\n" not in head:
            piece = s.recv(4096)
            if not piece:
                return
            head += piece
        if b"/ready" in head:
            s.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close\r\n\r\n{}")
            s.close()
            return
        kind = b"Content-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"
        s.sendall(b"HTTP/1.1 200 OK\r\n" + kind)
        n = 0
        while True:
            self.go.acquire()
            if self.ended:
                break
            event = b"data: %d\n\n" % n
            s.sendall(b"%x\r\n%s\r\n" % (len(event), event))
            n += 1
        s.sendall(b"0\r\n\r\n")


@pytest.mark.parametrize("program,sample", SAMPLES + MANY)
def test_each_event_arrives_before_the_next_is_made(proxy, program, sample):
    backend = Backend()
    front = proxy(program, sample, *[backend.port] * (2 if "many" in sample else 1))
    c, answer = open_stream(front, {})
    for n in range(20):
        backend.go.release()
        assert answer.readline() == b"data: %d\n" % n and answer.readline() == b"\n"
    backend.ended = True
    backend.go.release()
    assert answer.read() == b""
    c.close()


@pytest.mark.parametrize("program,sample", SAMPLES)
def test_streams_ids_bodies_and_ends(atlas, trained, start, proxy, program, sample):
    server = start(trained, *ALLOW)
    front = proxy(program, sample, server.port)
    text = text_of(atlas, trained, PROMPT, 480, "--temperature", 1.5, "--seed", 4)
    c, answer = open_stream(front, LONG, headers={"x-request-id": "id-from-afar"})
    assert answer.headers["x-request-id"] == "id-from-afar" and "id-from-afar" in server.wait_line("id-from-afar", 60)
    got = answer.read()
    assert texts(got) == text and got.endswith(b"data: [DONE]\n\n")
    c.close()
    # a body of megabytes goes through, and a request without an id has one of the server's
    status, headers, body = front.ask("POST", "/tokenize", json.dumps({"prompt": "of the king " * 200000}))
    assert status == 200 and len(json.loads(body)["tokens"]) > 200000
    assert re.fullmatch(r"req-[0-9a-f]{24}", headers["x-request-id"])
    # a page that the proxy gave may ask; another one's may not
    ask = json.dumps(FEW)
    assert front.ask("POST", "/v1/completions", ask, {"Origin": "https://llm.example"})[0] == 200
    assert front.ask("POST", "/v1/completions", ask, {"Origin": "https://evil.example"})[0] == 403
    assert front.ask("GET", "/")[0] == 200


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("program,sample", SAMPLES + MANY)
def test_a_client_that_leaves_is_noticed(trained, start, proxy, program, sample, stream):
    """Time after time: haproxy sees some of the ends even where its frontend does not look for them."""
    server = start(trained, *ALLOW)
    front = proxy(program, sample, *[server.port] * (2 if "many" in sample else 1))
    for n in range(1, 5):
        c = front.connection()
        c.request("POST", "/v1/completions", json.dumps(LONG | {"stream": stream, "n": 2}), {"Host": "llm.example"})
        if stream:
            c.getresponse().read(20)
        server.settles("slots_used", 2)
        if c.sock:  # of an answer whose end is the connection's, it is the answer's already
            c.sock.close()
        c.close()
        server.settles('cancelled_total{why="client"}', n)
        server.settles("slots_used", 0)


def test_long_silences_are_allowed():
    """A prompt may take minutes: both wait for an hour, which the programs' own defaults do not."""
    for sample in ("nginx.conf", "nginx-many.conf"):
        assert "proxy_read_timeout 1h;" in (INSTALL / sample).read_text(encoding="utf-8")
    for sample in ("haproxy.cfg", "haproxy-many.cfg"):
        text = (INSTALL / sample).read_text(encoding="utf-8")
        assert "\ttimeout server 1h\n" in text and "\ttimeout client 1h\n" in text
        assert "shutdown-sessions" not in re.sub(r"^#.*", "", text, flags=re.M)


# Several instances ------------------------------------------------------------


def session(front, name, value=FEW):
    """(status, name of the instance that answered)."""
    status, _, body = front.ask("POST", "/v1/completions", json.dumps(value), {"x-session-id": name})
    return status, json.loads(body).get("model")


class Load(threading.Thread):
    """Asks as many sessions in turn, each request over a connection of its own."""

    def __init__(self, front, sessions):
        super().__init__(daemon=True)
        self.front, self.sessions, self.ends, self.seen = front, sessions, threading.Event(), []
        self.start()

    def run(self):
        while not self.ends.is_set():
            for name in self.sessions:
                try:
                    self.seen.append((name, *session(self.front, name)))
                except Exception as failure:  # noqa: BLE001  any one is a refusal that the test looks for
                    self.seen.append((name, repr(failure), None))

    def stop(self):
        self.ends.set()
        self.join(60)
        return self.seen


@pytest.fixture(params=MANY, ids=["nginx", "haproxy"])
def pair(wide, start, proxy, request):
    """({name: server}, proxy) of two instances; `wide` has eight slots."""
    servers = {name: start(wide, "--name", name, "--max-queue", 500, *ALLOW) for name in ("one", "two")}
    front = proxy(*request.param, servers["one"].port, servers["two"].port)
    front.program = request.param[0]
    return servers, front


def sessions_of(front, n=24):
    """{session: instance}, of each both some."""
    homes = {f"session-{i}": session(front, f"session-{i}")[1] for i in range(n)}
    assert set(homes.values()) == {"one", "two"}, homes
    return homes


def test_affinity(pair):
    """A session stays where it is, through connections that are kept too; without the header both have work."""
    _, front = pair
    homes = sessions_of(front)
    for _ in range(3):
        for name, home in homes.items():
            assert session(front, name) == (200, home)
    c = front.connection()
    for name in list(homes) * 2:
        c.request("POST", "/v1/completions", json.dumps(FEW), {"Host": "llm.example", "x-session-id": name})
        assert json.loads(c.getresponse().read())["model"] == homes[name]
    c.close()
    answers = set()
    for _ in range(64):  # nginx draws: each of the two is sure to come in so many
        if len(answers) < 2:
            answers.add(json.loads(front.ask("POST", "/v1/completions", json.dumps(FEW))[2])["model"])
    assert answers == {"one", "two"}


def test_one_of_two_is_killed_under_load(atlas, wide, start, pair):
    """Its streams end with an error that clients raise; streams of the other are whole; each other request is answered,
    but that haproxy does not repeat the one that was on its way to the killed instance, if the connection is reset;
    sessions of the other stay; and all are where they were when an instance is back at the same address."""
    servers, front = pair
    homes = sessions_of(front)
    first = {home: next(s for s in homes if homes[s] == home) for home in servers}
    text = text_of(atlas, wide, PROMPT, 480, "--temperature", 1.5, "--seed", 4)
    streams = {
        home: [open_stream(front, LONG, headers={"x-session-id": first[home]}) for _ in range(3)] for home in servers
    }
    begun = {home: [answer.readline() for _, answer in streams[home]] for home in servers}
    load = Load(front, list(homes))
    while len(load.seen) < len(homes):
        time.sleep(0.01)
    servers["two"].process.kill()
    for (c, answer), line in zip(streams["one"], begun["one"]):
        got = line + answer.read()
        assert texts(got) == text and got.endswith(b"data: [DONE]\n\n")
        c.close()
    for c, answer in streams["two"]:
        with pytest.raises((http.client.IncompleteRead, ConnectionError, OSError)):
            answer.read()
        c.close()
    n = len(load.seen)
    while len(load.seen) < n + 2 * len(homes):
        time.sleep(0.01)
    seen = load.stop()
    refused = [row for row in seen if row[1] != 200]
    assert len(refused) <= (front.program == "haproxy"), refused
    assert all(homes[name] == "two" and home is None for name, _, home in refused)
    assert all(home == "one" for name, _, home in seen if homes[name] == "one")
    assert {home for _, status, home in seen[n:] if status == 200} == {"one"}
    back = start(wide, "--name", "two", *ALLOW, "--port", servers["two"].port)
    until = time.monotonic() + 20
    while session(front, first["two"])[1] != "two":
        assert time.monotonic() < until
        time.sleep(0.1)
    assert all(session(front, name) == (200, home) for name, home in homes.items())
    assert back.metric("requests_running") == 0


def test_an_instance_that_drains(atlas, wide, pair):
    """A new plan the router's way: SIGTERM; no request fails, streams end as they would."""
    servers, front = pair
    homes = sessions_of(front)
    name = next(s for s in homes if homes[s] == "two")
    text = text_of(atlas, wide, PROMPT, 480, "--temperature", 1.5, "--seed", 4)
    c, answer = open_stream(front, LONG, headers={"x-session-id": name})
    load = Load(front, list(homes))
    while len(load.seen) < len(homes):
        time.sleep(0.01)
    servers["two"].process.send_signal(signal.SIGTERM)
    got = answer.read()
    assert texts(got) == text and got.endswith(b"data: [DONE]\n\n")
    c.close()
    assert servers["two"].process.wait(20) == 0
    n = len(load.seen)
    while len(load.seen) < n + len(homes):
        time.sleep(0.01)
    seen = load.stop()
    assert {status for _, status, _ in seen} == {200}, [row for row in seen if row[1] != 200]
    assert seen[-1][2] == "one"


@pytest.mark.parametrize("program,sample", MANY)
def test_a_full_instance(trained, start, proxy, program, sample):
    """nginx passes it over while another one has room; then, and with haproxy at once, 429 reaches the client."""
    servers = [start(trained, "--name", f"instance-{i}", *ALLOW, "--max-queue", 1) for i in range(2)]
    front = proxy(program, sample, *[server.port for server in servers])
    held, waiting = [], []

    def fill():
        """All slots and the queue of the instance that takes the next request of session a."""
        before = [server.metric("slots_used") for server in servers]
        held.append(open_stream(front, LONG | {"n": 2, "ignore_eos": True}, headers={"x-session-id": "a"}))
        assert held[-1][1].status == 200
        [busy] = [server for server, n in zip(servers, before) if server.metric("slots_used") > n]
        waiting.append(threading.Thread(target=session, args=(front, "a")))
        waiting[-1].start()
        busy.settles("requests_waiting", 1)
        return busy

    first = fill()
    if program == "nginx":
        assert fill() is not first
    status, headers, _ = front.ask("POST", "/v1/completions", json.dumps(FEW), {"x-session-id": "a"})
    assert (status, headers["Retry-After"]) == (429, "1")
    for c, _ in held:
        c.close()
    for thread in waiting:
        thread.join()
