"""Clients that take their answers slowly, or not at all: what was answered reaches them whole while they take some of it."""

from __future__ import annotations

import json
import pathlib
import re
import signal
import socket
import threading
import time

import pytest
from server import read_answer

NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def stalled(server, choices, fields=b"", **asked):
    """A socket of little room, whose server writes a long answer to it: a stream, if nothing else is asked."""
    s = socket.socket()
    s.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2048)
    s.settimeout(20)
    s.connect(("127.0.0.1", server.port))
    long = {"prompt": ["a"] * choices, "max_tokens": 480, "logprobs": 5, "stream": True, "ignore_eos": True}
    body = json.dumps(long | asked).encode()
    head = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n" + fields
    s.sendall(head + b"Content-Length: %d\r\n\r\n" % len(body) + body)
    return s


def answered(server, fields=b""):
    """A socket of little room, whose answer the server has made and the kernel's buffers do not hold."""
    s = stalled(server, 4, fields, stream=False)
    server.wait_line('"request"', 30)
    return s


def is_whole(got):
    """Are these bytes one answer with all of its Content-Length, or with its last chunk?"""
    head, _, body = got.partition(b"\r\n\r\n")
    length = re.search(rb"Content-Length: (\d+)", head)
    return len(body) == int(length[1]) if length else body.endswith(b"0\r\n\r\n")


def read_slowly(s, pause=0.02, got=b""):
    """One whole answer that begins with `got`, 2 KiB each `pause` seconds."""
    while not is_whole(got):
        part = s.recv(2048)
        assert part, "cut after %d bytes" % len(got)
        got += part
        time.sleep(pause)
    assert got.startswith(b"HTTP/1.1 200 ") and len(got) > 3 << 16  # more than the kernel's buffers hold
    return got


def test_a_client_that_reads_nothing_for_too_long(trained, start):
    """--write-timeout counts from the last byte that it took, also while the answer grows."""
    server = start(trained, "--write-timeout", 0.1, "--max-pending", "1GiB")
    with stalled(server, 16):
        line = json.loads(server.wait_line('"finish":"client"', 20))
        server.settles("slots_used", 0)
        assert line["stream"] and server.metric('cancelled_total{why="client"}') == 1


@pytest.mark.parametrize("fields", [b"", b"Connection: close\r\n"], ids=["kept", "closed"])
def test_a_client_that_reads_slowly(trained, start, fields):
    """It is not cut, though the socket is not writable for longer than --write-timeout, and though the last byte is
    written seconds after the answer was whole."""
    server = start(trained, "--write-timeout", 0.3, "--max-pending", "1GiB")
    with stalled(server, 2, fields) as s:
        got = read_slowly(s)
    assert got.count(b"data: [DONE]") == 1
    assert json.loads(server.wait_line('"request"', 20))["finish"] == "length"


def test_time_between_requests_begins_after_the_answer(trained, start):
    """--keep-alive does not count while the client takes an answer, and does after it."""
    server = start(trained, "--keep-alive", 0.3)
    with answered(server) as s:
        time.sleep(1)
        read_slowly(s, 0.001)
        s.sendall(NEXT)
        assert s.recv(4096).startswith(b"HTTP/1.1 200 ")
        began = time.monotonic()
        assert s.recv(4096) == b"" and 0.2 < time.monotonic() - began < 2


def test_a_drain_waits_for_clients_that_read_slowly(trained, start):
    """What was answered before SIGTERM, on a connection that was to go on, is read to its end before the exit."""
    server = start(trained)
    with answered(server) as s:
        server.process.send_signal(signal.SIGTERM)
        server.wait_line("draining")
        got = b""
        for some in (1, 3 << 16):  # before the rest waits in the kernel, and after
            while len(got) < some:
                got += s.recv(2048)
            time.sleep(0.5)
            assert server.process.poll() is None
        read_slowly(s, 0.001, got)
        assert s.recv(10) == b""
    assert server.process.wait(20) == 0


def test_bytes_of_a_client_do_not_end_its_answer(trained, start):
    """A client that goes on sending after the request that was its last: the end of its answer waits in the kernel, and
    a socket that is closed would be reset by what comes in."""
    server = start(trained)
    with answered(server, b"Connection: close\r\n") as s:
        got = b""
        while len(got) < 3 << 16:
            got += s.recv(2048)
        for _ in range(35):
            s.sendall(NEXT)
            time.sleep(0.1)
        read_slowly(s, 0.001, got)
        assert s.recv(10) == b""


def test_a_client_that_ends_its_half(trained, start):
    """It has the answer that was made before."""
    server = start(trained)
    with answered(server) as s:
        s.shutdown(socket.SHUT_WR)
        read_slowly(s)
        assert s.recv(10) == b""
    for _ in range(20):
        with server.raw(NEXT) as s:
            s.shutdown(socket.SHUT_WR)
            assert is_whole(b"".join(iter(lambda: s.recv(4096), b"")))


def test_a_client_that_ends_its_half_with_a_request_begun(trained, start):
    """Requests in a row, the last of which is being answered when its half ends: it has all answers before that one
    whole, and nothing is made of that one any more."""
    server = start(trained)
    asked = b"GET /v1/plan HTTP/1.1\r\nHost: localhost\r\n\r\n"
    with server.raw(asked) as s:
        n = (60 << 10) // len(read_answer(s))  # that wait to be sent at once while the next request is read
    body = json.dumps({"prompt": "a", "max_tokens": 480, "ignore_eos": True}).encode()
    last = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n" % len(body) + body
    assert n > 3
    late = 0  # half a connection that ended after its last answer
    for count in [n] * 10 + [1, 0]:
        with server.raw(asked * count + last) as s:
            s.shutdown(socket.SHUT_WR)
            got = b"".join(iter(lambda: s.recv(1 << 16), b""))
        answers = [b"HTTP/1.1 200 " + part for part in got.split(b"HTTP/1.1 200 ")[1:]]
        late += len(answers) > count
        assert len(answers) in (count, count + 1) and all(map(is_whole, answers))
        server.settles("slots_used", 0)
    assert server.metric('cancelled_total{why="client"}') == 12 - late > 0


def test_requests_of_a_client_that_reads_no_answers(trained, start):
    """They are read only while there is room for their answers; the client has all answers in the end."""
    server = start(trained)
    with server.raw(NEXT) as s:
        size = len(read_answer(s))
        n, before = (64 << 20) // size, resident(server)
        thread = threading.Thread(target=s.sendall, args=(NEXT * n,))
        thread.start()
        time.sleep(2)
        assert resident(server) < before + (24 << 20)
        assert server.get("/health")[0] == 200
        with s.makefile("rb") as answers:
            assert len(answers.read(n * size)) == n * size
        thread.join()


def resident(server):
    """Bytes of memory that the server holds."""
    status = pathlib.Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) << 10
