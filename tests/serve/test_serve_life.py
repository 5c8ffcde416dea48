"""The life of requests and of the server: clients that leave, full queues, drains, failures."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import struct
import threading
import time

import openai
import pytest
from server import read_answer, text_of

PROMPT = "In the beginning"
LONG = {"prompt": PROMPT, "max_tokens": 480, "temperature": 1.5, "seed": 4}


def request(value, path=b"/v1/completions"):
    body = json.dumps(value).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path, len(body), body)


def busy(server, value=LONG):
    """Sockets whose requests have all the server's slots."""
    sockets = [server.raw(request(value | {"stream": True})) for _ in range(2)]
    for s in sockets:
        assert s.recv(15).startswith(b"HTTP/1.1 200")
    return sockets


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("how", ["close", "reset", "half"])
def test_a_client_that_leaves_frees_its_slot(trained, start, stream, how):
    """Whole answers too, to which nothing is written before their end."""
    server = start(trained)
    s = server.raw(request(LONG | {"stream": stream, "n": 2}))
    server.settles("slots_used", 2)
    if how == "reset":
        s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.shutdown(socket.SHUT_WR) if how == "half" else s.close()
    left = time.monotonic()
    server.settles("slots_used", 0)
    assert time.monotonic() - left < 0.4  # an answer of that length takes longer
    assert server.metric('cancelled_total{why="client"}') == 1 and server.metric("kv_pages_used") == 0
    line = json.loads(server.wait_line('"finish":"client"'))
    assert line["completion_tokens"] < 900 and line["status"] == 0
    assert server.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 2})[0] == 200


def test_a_client_that_leaves_the_queue(trained, start):
    server = start(trained)
    sockets = busy(server)
    waiting = [server.raw(request(LONG)) for _ in range(3)]
    server.settles("requests_waiting", 3)
    for s in waiting:
        s.close()
    server.settles("requests_waiting", 0)
    assert server.metric("requests_running") == 2
    assert all(read_answer(s).endswith(b"0\r\n\r\n") for s in sockets)
    assert server.metric("prompt_tokens_total") == 20  # of five requests; the answers are of two
    assert server.metric("generation_tokens_total") <= 960


def test_a_client_that_leaves_while_its_body_is_read(trained, start):
    server = start(trained)
    for cut in (10, 60, 120, 200):
        server.raw(request(LONG)[:cut]).close()
    for _ in range(20):
        server.raw(request({"prompt": "of the king " * 40, "max_tokens": 400})).close()
    server.settles("requests_waiting", 0)
    server.settles("slots_used", 0)
    assert server.stop() == 0


def test_a_client_that_takes_no_bytes(trained, start):
    """It loses its answer after some tokens; the other stream goes on."""
    server = start(trained, "--max-pending", "4KiB")
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.connect(("127.0.0.1", server.port))
    s.sendall(request(LONG | {"stream": True, "n": 2, "logprobs": 0, "stop": [f"never {i}" for i in range(9)]}))
    server.wait_line('"finish":"slow_client"', 30)
    server.settles("slots_used", 0)
    assert server.metric('cancelled_total{why="slow_client"}') == 1
    s.close()


def test_a_full_queue(trained, start):
    server = start(trained, "--max-queue", 1)
    sockets = busy(server)
    waiting = server.raw(request(LONG | {"max_tokens": 3}))
    server.settles("requests_waiting", 1)
    status, headers, body = server.ask("POST", "/v1/completions", json.dumps(LONG).encode())
    assert (status, headers["Retry-After"]) == (429, "1")
    assert json.loads(body)["error"]["type"] == "rate_limit_error" and server.metric("shed_total") == 1
    assert server.get("/ready") == (200, {"status": "ready"})
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=60)
    assert client.completions.create(model="plan", prompt=PROMPT, max_tokens=2, extra_body={"model": None}).usage
    assert read_answer(waiting).startswith(b"HTTP/1.1 200") and sockets
    status, answer = server.post("/v1/completions", {"prompt": [PROMPT] * 4, "max_tokens": 1})
    assert (status, answer["error"]["message"]) == (400, "the request asks for 4 answers: this server takes 3")


def test_the_longest_wait(trained, start):
    server = start(trained, "--max-wait", 0.1)
    sockets = busy(server)
    status, answer = server.post("/v1/completions", LONG)
    assert (status, answer["error"]["message"]) == (429, "no slot became free in 0.1 seconds") and sockets
    assert server.metric('cancelled_total{why="wait"}') == 1


def test_probes_do_not_wait_for_the_model(trained, start):
    server = start(trained)
    sockets = busy(server)
    body = json.dumps({"prompt": "word " * 200000}).encode()
    thread = threading.Thread(target=lambda: server.ask("POST", "/tokenize", body))
    thread.start()
    slowest = 0
    for _ in range(20):
        began = time.monotonic()
        assert server.get("/health")[0] == 200
        slowest = max(slowest, time.monotonic() - began)
    thread.join()
    assert slowest < 0.5 and sockets


def test_drain(atlas, trained, start):
    """After SIGTERM: streams and whole answers end as they would, what is new is refused, exit code 0."""
    server = start(trained)
    text = text_of(atlas, trained, PROMPT, 300, "--temperature", 1.5, "--seed", 4)
    asked = LONG | {"max_tokens": 300}
    stream, whole, idle = server.raw(request(asked | {"stream": True})), server.raw(request(asked)), server.raw()
    queued = server.raw(request({"prompt": PROMPT, "max_tokens": 1}))
    kept = server.raw(b"GET /ready HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert b'"ready"' in kept.recv(4096)
    server.settles("slots_used", 2)
    server.process.send_signal(signal.SIGTERM)
    assert idle.recv(10) == b"" and kept.recv(10) == b""
    with pytest.raises(OSError):
        server.raw()
    got = read_answer(stream)
    events = [json.loads(line[6:]) for line in got.decode().split("\n") if line.startswith("data: {")]
    assert "".join(e["choices"][0]["text"] for e in events) == text and b"data: [DONE]" in got
    answer = read_answer(whole)
    assert b"Connection: close" in answer and json.loads(answer.split(b"\r\n\r\n")[1])["choices"][0]["text"] == text
    assert read_answer(queued).startswith(b"HTTP/1.1 200")
    assert server.process.wait(20) == 0


def test_drain_has_an_end(trained, start):
    server = start(trained, "--drain", 0)
    [stream, _] = busy(server)
    server.process.send_signal(signal.SIGINT)
    event = b'data: {"error":{"message":"the server ends","type":"server_error","param":null,"code":null}}\n\n'
    assert read_answer(stream).endswith(event + b"\r\n0\r\n\r\n")
    assert server.process.wait(20) == 0


def test_a_second_signal_ends_at_once(trained, start):
    server = start(trained)
    busy(server)
    server.process.send_signal(signal.SIGTERM)
    server.wait_line("draining")
    server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(5) == 130


def test_a_session_that_fails(trained, start, tmp_path):
    """The plan's file is changed in place under the reference device: streams end with an error event that the client
    raises, /health is 503, and the exit code is that of the status."""
    plan = tmp_path / "plan.bin"
    shutil.copy(trained, plan)
    server = start(plan, "--name", "tiny")
    assert server.get("/health")[0] == 200
    sockets = busy(server)
    whole = server.raw(request(LONG))
    server.settles("requests_waiting", 1)
    with open(plan, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))
    got = read_answer(sockets[0])
    assert b'"type":"server_error"' in got.rsplit(b"data: ", 1)[1] and b"[DONE]" not in got
    assert read_answer(whole).startswith(b"HTTP/1.1 503")
    status, health = server.get("/health")
    assert status == 503 and health["status"] == "failed" and health["reason"].startswith("INTEGRITY: ")
    assert server.get("/ready")[0] == 503
    assert server.post("/v1/completions", {"prompt": PROMPT})[0] == 503
    assert server.process.wait(20) == 6


def test_weights_that_do_not_match_their_hashes(atlas, trained, tmp_path):
    """The session does not open; the exit code is that of the status, and nothing was answered from such weights."""
    plan = tmp_path / "plan.bin"
    data = bytearray(trained.read_bytes())
    [at] = [m.start() for m in re.finditer(re.escape(bytes(data[len(data) // 2 : len(data) // 2 + 64])), data)][:1]
    data[at] ^= 1
    plan.write_bytes(data)
    run = atlas("serve", plan, "--device", "cpu", "--port", 0, timeout=60)
    assert run.returncode == 6 and "error[INTEGRITY]" in run.stderr and '"ready"' not in run.stderr


def test_the_client_raises_the_error_of_a_stream(trained, start):
    server = start(trained, "--drain", 0, "--name", "tiny")
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.APIError, match="the server ends"):
        for i, _ in enumerate(
            client.completions.create(model="tiny", prompt=PROMPT, max_tokens=480, temperature=1.5, seed=4, stream=True)
        ):
            if i == 3:
                server.process.send_signal(signal.SIGTERM)


def test_log_lines(trained, start):
    server = start(trained, "--name", "tiny")
    secret = "In the house of Pharaoh"
    server.post("/v1/completions", {"prompt": secret, "max_tokens": 3, "temperature": 0, "user": "someone"})
    server.post("/v1/completions", {"prompt": secret, "max_tokens": "x"})
    line = json.loads(server.wait_line('"status":200'))
    assert line["route"] == "POST /v1/completions" and line["finish"] == "length" and line["completion_tokens"] == 3
    assert line["prompt_tokens"] > 3 and 0 < line["first_token_ms"] <= line["ms"] and line["stream"] is False
    assert json.loads(server.wait_line('"status":400'))["finish"] == "refused"
    server.get("/health")
    assert server.stop() == 0
    text = "".join(server.lines)
    events = [json.loads(line)["event"] for line in server.lines]  # nothing but JSON
    assert events[:4] == ["plan", "listening", "device", "ready"] and events[-2:] == ["draining", "ended"]
    assert "Pharaoh" not in text and "someone" not in text and "/health" not in text
    quiet = start(trained, "--log", "text")
    quiet.post("/v1/completions", {"prompt": secret, "max_tokens": 3})
    assert " POST /v1/completions 200 " in quiet.wait_line("completions")


def test_a_log_that_nobody_reads_stops_nothing(trained, start):
    server = start(trained, wait=True)
    server.process.send_signal(0)
    body = request({"prompt": "a", "max_tokens": "x" * 50})
    with server.raw() as s:
        for _ in range(300):
            s.sendall(body)
            assert s.recv(4096)
    assert server.get("/health")[0] == 200
