"""What the newer APIs share with the older ones: clients that leave, full queues, drains, failures, other methods."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time

import anthropic
import openai
import pytest
from server import read_answer

ASKED = {
    "/v1/messages": {
        "messages": [{"role": "user", "content": "In the beginning"}],
        "max_tokens": 470,
        "temperature": 1.5,
        "seed": 4,
        "ignore_eos": True,
    },
    "/v1/responses": {
        "input": "In the beginning",
        "max_output_tokens": 470,
        "temperature": 1.5,
        "seed": 4,
        "ignore_eos": True,
    },
}
PATHS = pytest.mark.parametrize("path", ASKED)


def request(path, **more):
    body = json.dumps(ASKED[path] | more).encode()
    return b"POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(body), body)


def busy(server, path):
    """Sockets of streams that have both of the server's slots."""
    sockets = [server.raw(request(path, stream=True)) for _ in range(2)]
    for s in sockets:
        assert s.recv(15).startswith(b"HTTP/1.1 200")
    return sockets


def error_of(answer):
    """(status, type, message) of a whole answer or of a stream's last event."""
    if isinstance(answer, bytes):
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head[9:12]), *error_of(json.loads(body))[1:]
    error = answer["error"]
    return 0, error["type"], error["message"]


@PATHS
@pytest.mark.parametrize("stream", [False, True])
def test_a_client_that_leaves_frees_its_slot(talking, start, path, stream):
    server = start(talking)
    s = server.raw(request(path, stream=stream))
    server.settles("slots_used", 1)
    if stream:
        assert s.recv(15).startswith(b"HTTP/1.1 200")
    s.close()
    left = time.monotonic()
    server.settles("slots_used", 0)
    assert time.monotonic() - left < 0.4  # an answer of that length takes longer
    assert server.metric('cancelled_total{why="client"}') == 1 and server.metric("kv_pages_used") == 0
    line = json.loads(server.wait_line('"finish":"client"'))
    assert line["completion_tokens"] < 450 and line["status"] == 0 and line["route"] == f"POST {path}"


@PATHS
def test_a_full_queue(talking, start, path):
    server = start(talking, "--max-queue", 1)
    sockets = busy(server, path)
    few = {"max_tokens": 3} if path == "/v1/messages" else {"max_output_tokens": 3}
    waiting = server.raw(request(path, **few))
    server.settles("requests_waiting", 1)
    status, headers, body = server.ask("POST", path, json.dumps(ASKED[path]).encode())
    is_messages = path == "/v1/messages"
    assert (status, headers["Retry-After"]) == (529 if is_messages else 429, "1")
    assert error_of(json.loads(body))[1] == ("overloaded_error" if is_messages else "rate_limit_error")
    if is_messages:  # as its official client has it
        client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0)
        with pytest.raises(anthropic.OverloadedError) as caught:
            client.messages.create(
                model="claude-x", **{k: v for k, v in ASKED[path].items() if k in ("messages", "max_tokens")}
            )
        assert caught.value.status_code == 529 and caught.value.request_id.startswith("req-")
    assert ("type" in json.loads(body)) == (path == "/v1/messages")
    sockets[0].close()
    assert read_answer(waiting).startswith(b"HTTP/1.1 200")
    refused = 'route="/v1/messages",status="5xx"' if is_messages else f'route="{path}",status="4xx"'
    assert server.metric(f"http_requests_total{{{refused}}}") == 1 + is_messages
    assert server.metric("shed_total") == 1 + is_messages


def events(got):
    """Parsed data of the whole events of a stream."""
    return [json.loads(line[6:]) for line in got.split(b"\n") if line.startswith(b"data: {") and line.endswith(b"}")]


@PATHS
def test_a_drain_ends_streams_with_an_error(talking, start, path):
    server = start(talking, "--drain", 0)
    [stream, _] = busy(server, path)
    whole = server.raw(request(path))
    server.settles("requests_waiting", 1)
    server.process.send_signal(signal.SIGINT)
    got = read_answer(stream)
    assert got.endswith(b"\r\n0\r\n\r\n")
    last = events(got)[-1]
    if path == "/v1/messages":
        assert last == {"type": "error", "error": {"type": "api_error", "message": "the server ends"}}
    else:
        assert last["type"] == "response.failed" and last["response"]["status"] == "failed"
        assert last["response"]["error"] == {"code": "server_error", "message": "the server ends"}
    kind = "api_error" if path == "/v1/messages" else "server_error"
    assert error_of(read_answer(whole)) == (503, kind, "the server ends")
    assert server.process.wait(20) == 0


def test_the_clients_raise_the_error_of_a_stream(talking, start):
    server = start(talking, "--drain", 0, "--name", "tiny")
    url = f"http://127.0.0.1:{server.port}"
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    own = {k: v for k, v in ASKED["/v1/messages"].items() if k in ("messages", "max_tokens")}
    more = {k: v for k, v in ASKED["/v1/messages"].items() if k not in own}
    with (
        pytest.raises(anthropic.APIStatusError, match="the server ends"),
        client.messages.stream(model="tiny", **own, extra_body=more) as stream,
    ):
        for i, _ in enumerate(stream):
            if i == 8:
                server.process.send_signal(signal.SIGTERM)
    assert server.process.wait(20) == 0
    client = openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0)
    with pytest.raises(openai.APIConnectionError):
        client.responses.create(model="tiny", input="x")


@PATHS
def test_a_session_that_fails(talking, start, tmp_path, path):
    """Its plan is changed in place: the stream ends with an error, a whole answer is one, and so is what comes later."""
    plan = tmp_path / "plan.bin"
    shutil.copy(talking, plan)
    server = start(plan)
    assert server.get("/health")[0] == 200
    sockets = busy(server, path)
    whole = server.raw(request(path))
    server.settles("requests_waiting", 1)
    with open(plan, "r+b") as f:
        f.seek(-1, os.SEEK_END)
        last = f.read(1)
        f.seek(-1, os.SEEK_END)
        f.write(bytes([last[0] ^ 1]))
    last = events(read_answer(sockets[0]))[-1]
    error = last["error"] if path == "/v1/messages" else last["response"]["error"]
    assert error["message"].startswith("the model's session failed") and "[DONE]" not in str(last)
    kind = "api_error" if path == "/v1/messages" else "server_error"
    assert error_of(read_answer(whole))[:2] == (503, kind)
    assert server.post(path, ASKED[path])[0] == 503
    assert server.process.wait(20) == 6


def test_answers_side_by_side(talking, start):
    """A stream of each API at once, with the texts that each has alone."""
    server = start(talking)
    alone = {p: server.stream(p, ASKED[p]) for p in ASKED}
    sockets = {p: server.raw(request(p, stream=True)) for p in ASKED}

    def text(got):
        return "".join(
            e["delta"] if isinstance(e["delta"], str) else e["delta"].get("text", "")
            for e in events(got)
            if "delta" in e
        )

    for p, s in sockets.items():
        got = read_answer(s)
        assert text(alone[p]) and text(re_chunked(got)) == text(alone[p])


def re_chunked(got):
    """The body of a chunked answer."""
    body, out = got.partition(b"\r\n\r\n")[2], b""
    while body and (size := int(body.partition(b"\r\n")[0], 16)):
        body = body.partition(b"\r\n")[2]
        out, body = out + body[:size], body[size + 2 :]
    return out


def test_a_page_of_another_origin_may_use_every_api(talking, start):
    server = start(talking, "--allow-origin", "https://page.example")
    fields = {"Origin": "https://page.example"}
    for path in ASKED:
        status, headers, _ = server.ask("OPTIONS", path, headers=fields)
        assert status == 204 and "anthropic-version" in headers["Access-Control-Allow-Headers"]
        assert server.ask("POST", path, json.dumps(ASKED[path]).encode(), fields)[0] == 200


def test_reading_takes_time_by_the_bytes_alone(talking, start):
    """Of many small parts, turns and items: what would be slow is one text that grows by each."""
    server = start(talking)
    n = 100000
    text = {"type": "text", "text": "a"}
    for path, asked in (
        ("/v1/messages", {"messages": [{"role": "user", "content": [text] * n}], "max_tokens": 1}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a" * 99}] * 4096, "max_tokens": 1}),
        ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "system": [text] * n, "max_tokens": 1}),
        ("/v1/responses", {"input": [{"role": "user", "content": [text | {"type": "input_text"}] * n}]}),
        ("/v1/responses", {"input": [{"role": "developer", "content": "a" * 99}] * 4096}),
    ):
        began = time.monotonic()
        status, answer = server.post(path, asked)
        assert status == 400 and "prompt" in answer["error"]["message"], answer
        assert time.monotonic() - began < 4
