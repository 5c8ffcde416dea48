"""Raw bytes that no client sends: each is refused with a plain answer or a closed connection, and the next client is
served as before."""

from __future__ import annotations

import json
import re
import socket
import time

import pytest
from server import read_all

POST = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\n"
BODY = b'{"prompt": "a", "max_tokens": 2}'
NEXT = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"


def status_of(answer: bytes) -> int:
    assert answer.startswith(b"HTTP/1.1 "), answer
    return int(answer[9:12])


def error_of(answer: bytes) -> dict:
    """The one answer's error; nothing may follow it."""
    head, _, body = answer.partition(b"\r\n\r\n")
    assert len(re.findall(rb"HTTP/1\.1 \d", answer)) == 1 and b"Connection: close" in head, answer
    return json.loads(body)["error"]


@pytest.mark.parametrize(
    "data,status,message",
    [
        (POST + b"Content-Length: 5\r\nContent-Length: 5\r\n\r\nabcde", 400, "there are two Content-Length"),
        (POST + b"Content-Length: 5\r\nContent-Length: 50\r\n\r\nabcde" + NEXT, 400, "there are two Content-Length"),
        (POST + b"Content-Length: 5, 5\r\n\r\nabcde", 400, "Content-Length is not a whole number"),
        (POST + b"Content-Length: +5\r\n\r\nabcde", 400, "Content-Length is not a whole number"),
        (POST + b"Content-Length: -5\r\n\r\nabcde", 400, "Content-Length is not a whole number"),
        (POST + b"Content-Length: 0x5\r\n\r\nabcde", 400, "Content-Length is not a whole number"),
        (POST + b"Content-Length:\r\n\r\n", 400, "Content-Length is empty"),
        (POST + b"Content-Length : 5\r\n\r\nabcde" + NEXT, 400, "the name of a header field is not a token"),
        (POST + b"Content-Length: 99999999999999999999999\r\n\r\n", 413, "the body is larger than the limit"),
        (POST + b"Content-Length: 16777217\r\n\r\n", 413, "the body is larger than the limit"),
        (
            POST + b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n" + NEXT,
            400,
            "there are both Content-Length and Transfer-Encoding",
        ),
        (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding is not chunked"),
        (POST + b"Transfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 501, "Transfer-Encoding is not chunked"),
        (
            POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "there are two Transfer-Encoding",
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n0x5\r\nabcde\r\n0\r\n\r\n",
            400,
            "the length of a chunk is not hexadecimal",
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n+5\r\nabcde\r\n0\r\n\r\n",
            400,
            "the length of a chunk is not hexadecimal",
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n5;x=y\r\nabcde\r\n0\r\n\r\n",
            400,
            "the length of a chunk is not hexadecimal",
        ),
        (
            POST + b"Transfer-Encoding: chunked\r\n\r\n5\nabcde\r\n0\r\n\r\n",
            400,
            "the length of a chunk is not hexadecimal",
        ),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n\r\nabcde", 400, "a chunk has no length"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcdeXX0\r\n\r\n", 400, "a chunk does not end in CR LF"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", 413, "the body is larger than the limit"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"0" * 40, 400, "the length of a chunk is not hexadecimal"),
        (POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\nX: y\r\n\r\n", 400, "there are trailers"),
        (
            b"POST /v1/completions HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            "HTTP/1.0 has no Transfer-Encoding",
        ),
        (b"GET /health HTTP/1.1\nHost: localhost\n\n", 400, "a line of the head does not end in CR LF"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\nX: y\r\n\r\n", 400, "a line of the head does not end in CR LF"),
        (
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: y\r\n folded\r\n\r\n",
            400,
            "a header field goes on in the next line",
        ),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\0b\r\n\r\n", 400, "the head has a NUL"),
        (
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: a\x01b\r\n\r\n",
            400,
            "a header field has a control character",
        ),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nX y\r\n\r\n", 400, "a header line has no name before a colon"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\n: y\r\n\r\n", 400, "a header line has no name before a colon"),
        (b"GET /health HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 400, "there are two Host"),
        (b"GET /health HTTP/1.1\r\n\r\n", 400, "there is no Host"),
        (b"GET /health HTTP/2.0\r\nHost: localhost\r\n\r\n", 505, "the version must be HTTP/1.1 or HTTP/1.0"),
        (b"GET /health HTTP/1.1 \r\nHost: localhost\r\n\r\n", 505, "the version must be HTTP/1.1 or HTTP/1.0"),
        (b"GET  /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "the target must begin with /"),
        (b"GET http://localhost/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "the target must begin with /"),
        (b"G\x7fT /health HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "the method is not a token"),
        (b"GET /\x80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, "the target has a character that is not allowed in it"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n", 400, "the head has a NUL"),
        (b"GARBAGE\r\n\r\n", 400, "the request line is not METHOD TARGET HTTP/1.1"),
        (b"\n\n", 400, "a line of the head does not end in CR LF"),
        (b"\r\n\r\n", 400, "the request line is not METHOD TARGET HTTP/1.1"),
        (
            b"GET /health HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 20000 + b"\r\n\r\n",
            431,
            "the head is larger than the limit",
        ),
        (b"GET /" + b"y" * 20000, 431, "the head is larger than the limit"),
        (
            b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 101 + b"\r\n",
            431,
            "there are more than 100 header fields",
        ),
        (POST + b"Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}", 417, "Expect is not 100-continue"),
    ],
    ids=lambda v: v if isinstance(v, str) else "",
)
def test_refused(served, data, status, message):
    answer = served.exchange(data)
    assert status_of(answer) == status and error_of(answer)["message"] == message
    assert served.get("/health")[0] == 200


def test_every_cut_of_a_request_is_the_same_request(served):
    """The reader does not depend on how bytes are grouped; a chunked body is that of one length."""
    chunked = POST + b"Transfer-Encoding: chunked\r\n\r\n" + b"".join(b"1\r\n%c\r\n" % c for c in BODY) + b"0\r\n\r\n"
    plain = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    texts = set()
    for data in (chunked, plain):
        for cut in (*range(1, len(POST) + 40, 9), len(data) - 1):
            with served.raw(data[:cut]) as s:
                time.sleep(0.001)
                s.sendall(data[cut:])
                head, _, body = read_all(s, 0.05).partition(b"\r\n\r\n")
                texts.add(json.loads(body)["choices"][0]["text"])
    assert len(texts) == 1


def test_pipelined_requests_are_answered_in_order(served):
    one = POST + b"Content-Length: %d\r\n\r\n" % len(BODY) + BODY
    got = served.exchange(one + NEXT + one + NEXT)
    assert [part[:3] for part in got.split(b"HTTP/1.1 ")[1:]] == [b"200"] * 4
    assert got.index(b"text_completion") < got.index(b'"ok"') < got.rindex(b"text_completion") < got.rindex(b'"ok"')


def test_a_flood_in_the_pipe_is_cut(served):
    body = json.dumps({"prompt": "In the beginning", "max_tokens": 400, "temperature": 0}).encode()
    with served.raw(POST + b"Content-Length: %d\r\n\r\n%s" % (len(body), body)) as s:
        with pytest.raises(OSError):
            for _ in range(2000):
                s.sendall(NEXT * 100)
                time.sleep(0.001)
    served.settles("slots_used", 0)


def test_keep_alive_and_close(served):
    with served.raw() as s:
        for _ in range(3):
            s.sendall(NEXT)
            answer = s.recv(4096)
            assert status_of(answer) == 200 and b"Connection" not in answer
        s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\nHost: localhost\r\n\r\n")
        assert b"Connection: close" in read_all(s) and s.recv(1) == b""
    closed = served.exchange(b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n")
    assert b"Connection: close\r\n" in closed
    old = served.exchange(b"GET /health HTTP/1.0\r\n\r\n")
    assert b"Connection: close\r\n" in old
    assert b"Connection: keep-alive\r\n" in served.exchange(b"GET /health HTTP/1.0\r\nConnection: keep-alive\r\n\r\n")


def test_stream_of_http_1_0_ends_with_the_connection(served):
    body = json.dumps({"prompt": "a", "max_tokens": 2, "stream": True}).encode()
    got = served.exchange(b"POST /v1/completions HTTP/1.0\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
    assert b"Transfer-Encoding" not in got and got.endswith(b"data: [DONE]\n\n")


def test_expect_100(served):
    with served.raw(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(BODY)) as s:
        assert s.recv(100) == b"HTTP/1.1 100 Continue\r\n\r\n"
        s.sendall(BODY)
        assert status_of(read_all(s)) == 200
    assert status_of(served.exchange(POST + b"Expect: 100-continue\r\nContent-Length: 99999999\r\n\r\n")) == 413


def test_slow_loris(trained, start):
    """Heads and bodies have deadlines that bytes in between do not move; others are served meanwhile."""
    server = start(trained, "--head-timeout", 0.6, "--body-timeout", 0.9, "--keep-alive", 1.2)
    slow = {"silent": b"", "head": b"GET /health HTTP/1.1\r\n", "body": POST + b"Content-Length: 100\r\n\r\n"}
    sockets = {name: server.raw(data) for name, data in slow.items()}
    kept = server.raw(NEXT)
    assert status_of(kept.recv(4096)) == 200
    began, ends = time.monotonic(), {}
    while len(ends) < 4 and time.monotonic() < began + 5:
        for name, s in [*sockets.items(), ("kept", kept)]:
            if name in ends:
                continue
            try:
                if name == "head":
                    s.sendall(b"X: y\r\n")
                if name == "body":
                    s.sendall(b"a")
                s.settimeout(0.01)
                if not s.recv(4096, socket.MSG_PEEK):
                    ends[name] = time.monotonic() - began
                elif s.recv(4096):
                    ends[name] = time.monotonic() - began
            except TimeoutError:
                pass
        assert server.get("/health")[0] == 200
        time.sleep(0.05)
    assert (
        0.3 < ends["silent"] < 1.5
        and 0.3 < ends["head"] < 1.5
        and 0.6 < ends["body"] < 1.8
        and 0.9 < ends["kept"] < 2.5
    )
    with server.raw(slow["head"]) as s:
        assert error_of(read_all(s))["message"] == "the head did not come in time"


def test_too_many_connections(trained, start):
    server = start(trained, "--max-connections", 4)
    held = [server.raw() for _ in range(4)]
    time.sleep(0.1)
    answer = server.exchange(NEXT)
    assert status_of(answer) == 503 and b"Retry-After: 1" in answer
    head, _, body = answer.partition(b"\r\n\r\n")
    assert (
        len(body) == int(head.split(b"Content-Length: ")[1].split(b"\r")[0])
        and json.loads(body)["error"]["code"] == "overloaded"
    )
    for s in held:
        s.close()
    time.sleep(0.1)
    assert server.get("/health")[0] == 200


def test_body_limit_is_an_option(trained, start):
    server = start(trained, "--max-body", "1KiB")
    status, answer = server.post("/v1/completions", {"prompt": "a" * 2000})
    assert status == 413 and answer["error"]["type"] == "invalid_request_error"
    assert server.post("/v1/completions", {"prompt": "a", "max_tokens": 1})[0] == 200


def test_a_refused_body_does_not_reset_the_answer(served):
    """All of a body that is too large may be sent before the answer is read."""
    with served.raw(POST + b"Content-Length: 20000000\r\n\r\n") as s:
        s.sendall(b"a" * 20000000)
        assert status_of(read_all(s)) == 413


@pytest.mark.parametrize(
    "method,path,status,code",
    [
        ("GET", "/v1/nothing", 404, "unknown_url"),
        ("DELETE", "/v1/models", 405, None),
        ("GET", "/v1/completions", 405, None),
        ("POST", "/v1/embeddings", 404, "unknown_url"),
        ("GET", "/v1/responses", 405, None),
        ("POST", "/v1/responses/resp_1/cancel", 404, "unknown_url"),
        ("GET", "/v1/models/%00", 404, "model_not_found"),
        ("GET", "/v1/models/%zz", 404, "model_not_found"),
        ("GET", "//health", 404, "unknown_url"),
        ("GET", "/HEALTH", 404, "unknown_url"),
        ("OPTIONS", "/v1/models", 405, None),
    ],
)
def test_no_such_route(served, method, path, status, code):
    seen, headers, body = served.ask(method, path)
    error = json.loads(body)["error"]
    assert (seen, error["type"], error["code"]) == (status, "invalid_request_error", code)
    assert error["message"] and headers["x-request-id"].startswith("req-")
    takes = "POST" if path in ("/v1/completions", "/v1/responses") else "GET, HEAD"
    assert headers["Allow"] == (takes if status == 405 else None)
    assert served.get("/health?x=y")[0] == 200


@pytest.mark.parametrize("path", ["/", "/health", "/ready", "/v1/models", "/v1/models/tiny", "/v1/plan", "/v1/nothing"])
def test_head_is_get_without_its_body(served, path):
    """Also of an error; the connection goes on, so that what follows is the next answer."""
    (status, headers, body), (seen, head, nothing) = (served.ask(m, path) for m in ("GET", "HEAD"))
    assert (seen, nothing, head["Content-Length"]) == (status, b"", str(len(body))), path
    assert head["Content-Type"] == headers["Content-Type"]
    got = served.exchange(b"HEAD %s HTTP/1.1\r\nHost: localhost\r\n\r\n" % path.encode() + NEXT)
    assert len(re.findall(rb"HTTP/1\.1 \d", got)) == 2 and got.endswith(b'{"status":"ok"}')
    assert served.ask("HEAD", "/v1/completions")[:1] == (405,)
