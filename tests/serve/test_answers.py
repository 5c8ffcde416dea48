"""Answers of every kind of parts, as the official clients read them; what their tokens and parts are is prescribed.

`answerdump` is the server's own way from tokens to bytes, without a model and with a parser that gives prescribed parts."""

from __future__ import annotations

import http.server
import itertools
import json
import random
import subprocess
import threading

import anthropic
import openai
import pytest
from goldens import check_golden

CHAT, MESSAGES, RESPONSES, COMPLETIONS = (
    f"/v1/{name}" for name in ("chat/completions", "messages", "responses", "completions")
)
REPEATED = {"instructions": None, "tools": [], "tool_choice": "auto", "parallel_tool_calls": True, "metadata": {}}
ARGUMENTS = '{"city": "Ur", "days": [1, 2.5e3], "say": "\\"\\u00e9\\n"}'
CALL = ["call", "weather", ARGUMENTS]
# Tokens, each with what came of it: held back, two kinds at once, two calls at once, text after a call.
ALL_KINDS = [
    {"pieces": []},
    {"pieces": [["reasoning", "The user \u00e9"]]},
    {"pieces": []},
    {"pieces": [["reasoning", " asks.\n"], ["text", "Let me"]]},
    {"pieces": [["text", ' see "Ur".']]},
    {"pieces": [], "logprob": -4},
    {"pieces": [CALL, ["call", "apply_patch", '{"input": "a \\"b\\"\\nc"}']]},
    {"pieces": [["text", "\n"], ["call", "now", "{}"]]},
    {"pieces": [], "finish": "stop"},
]


@pytest.fixture(scope="module")
def answers(build_dir):
    """answers(path, tokens, **more): (stream, whole) as bytes."""

    def dump(path, tokens, **more):
        asked = {"path": path, "tokens": tokens, "max_new": 100, "repeated": REPEATED} | more
        run = subprocess.run(
            [build_dir / "tests" / "answerdump"], input=json.dumps(asked), capture_output=True, text=True, timeout=60
        )
        assert run.returncode == 0, run.stderr
        got = json.loads(run.stdout)
        return got["stream"].encode(), got["whole"].encode()

    return dump


@pytest.fixture(scope="module")
def clients():
    """clients(stream, whole): (openai, anthropic) whose server gives these bytes."""
    state = {}

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = state["stream" if asked.get("stream") else "whole"]
            kind = "text/event-stream; charset=utf-8" if asked.get("stream") else "application/json"
            self.send_response(200)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *words):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    url = f"http://127.0.0.1:{server.server_port}"
    pair = (
        openai.OpenAI(base_url=url + "/v1", api_key="none", max_retries=0),
        anthropic.Anthropic(base_url=url, api_key="none", max_retries=0),
    )

    def given(stream, whole):
        state.update(stream=stream, whole=whole)
        return pair

    yield given
    server.shutdown()


def events(stream):
    """[(event or None, parsed data)]; each event has its type twice, and its data on one line."""
    found = []
    for block in stream.decode().split("\n\n")[:-1]:
        lines = block.split("\n")
        data = lines[-1].removeprefix("data: ")
        assert lines[-1].startswith("data: ") and len(lines) <= 2
        if data != "[DONE]":
            parsed = json.loads(data)
            if len(lines) == 2:
                assert lines[0] == f"event: {parsed['type']}"
            found.append(parsed)
    return found


MESSAGE = [{"role": "user", "content": "x"}]


def test_chat(answers, clients):
    stream, whole = answers(CHAT, ALL_KINDS, usage=True)
    client, _ = clients(stream, whole)
    answer = client.chat.completions.create(model="tiny", messages=MESSAGE)
    [choice] = answer.choices
    assert choice.message.content == 'Let me see "Ur".\n\n' and choice.finish_reason == "tool_calls"
    assert choice.message.reasoning_content == "The user \u00e9 asks.\n"
    calls = choice.message.tool_calls
    assert [(c.type, c.function.name) for c in calls] == [
        ("function", name) for name in ("weather", "apply_patch", "now")
    ]
    assert calls[0].function.arguments == ARGUMENTS and len({c.id for c in calls}) == 3
    assert answer.usage.completion_tokens_details.reasoning_tokens == 4 and answer.usage.completion_tokens == 9
    with client.chat.completions.stream(model="tiny", messages=MESSAGE) as s:
        for _ in s:
            pass
        final = s.current_completion_snapshot
    [same] = final.choices
    assert same.message.content == choice.message.content and same.finish_reason == choice.finish_reason
    assert [(c.id, c.function.name, c.function.arguments) for c in same.message.tool_calls] == [
        (c.id, c.function.name, c.function.arguments) for c in calls
    ]
    chunks = list(client.chat.completions.create(model="tiny", messages=MESSAGE, stream=True))
    deltas = [c.choices[0].delta for c in chunks if c.choices]
    assert "".join(getattr(d, "reasoning_content", None) or "" for d in deltas) == choice.message.reasoning_content
    assert deltas[-1].model_dump(exclude_none=True) == {} and chunks[-1].usage == answer.usage
    assert all("finish_reason" in c for e in events(stream[: -len(b"data: [DONE]\n\n")]) for c in e["choices"])


def test_messages(answers, clients):
    stream, whole = answers(MESSAGES, ALL_KINDS)
    _, client = clients(stream, whole)
    answer = client.messages.create(model="claude-x", max_tokens=9, messages=MESSAGE)
    kinds = [b.type for b in answer.content]
    assert kinds == ["thinking", "text", "tool_use", "tool_use", "text", "tool_use"]
    assert answer.stop_reason == "tool_use" and answer.content[0].signature.startswith("sig_")
    assert answer.content[2].input == json.loads(ARGUMENTS) and answer.content[5].input == {}
    assert len({b.id for b in answer.content if b.type == "tool_use"}) == 3
    with client.messages.stream(model="claude-x", max_tokens=9, messages=MESSAGE) as s:
        final = s.get_final_message()
    assert [b.model_dump(exclude_none=True) for b in final.content] == [
        b.model_dump(exclude_none=True) for b in answer.content
    ]
    assert (final.id, final.stop_reason, final.usage.output_tokens) == (answer.id, answer.stop_reason, 9)
    starts = [e["index"] for e in events(stream) if e["type"] == "content_block_start"]
    assert starts == [e["index"] for e in events(stream) if e["type"] == "content_block_stop"] == list(range(6))


def test_responses(answers, clients):
    stream, whole = answers(RESPONSES, ALL_KINDS, custom=["apply_patch"])
    client, _ = clients(stream, whole)
    answer = client.responses.create(model="tiny", input="x")
    kinds = ["reasoning", "message", "function_call", "custom_tool_call", "message", "function_call"]
    assert [i.type for i in answer.output] == kinds and answer.status == "completed"
    assert answer.output[0].content[0].text == "The user \u00e9 asks.\n"
    assert answer.output[2].arguments == ARGUMENTS and answer.output[3].input == 'a "b"\nc'
    assert answer.usage.output_tokens_details.reasoning_tokens == 4
    ids = [i.id for i in answer.output] + [i.call_id for i in answer.output if hasattr(i, "call_id")]
    assert len(set(ids)) == 9
    with client.responses.stream(model="tiny", input="x") as s:
        seen = list(s)
        final = s.get_final_response()
    assert [i.id for i in final.output] == [i.id for i in answer.output] and final.output_text == answer.output_text
    done = [e.item for e in seen if e.type == "response.output_item.done"]
    assert [i.model_dump(exclude_none=True) for i in done] == [i.model_dump(exclude_none=True) for i in answer.output]
    raw = events(stream)
    assert [e["sequence_number"] for e in raw] == list(range(len(raw)))
    assert raw[-1]["response"] == json.loads(whole)


@pytest.mark.parametrize(
    "path,stream",
    [(CHAT, "chat-parts.sse"), (MESSAGES, "messages-parts.sse"), (RESPONSES, "responses-parts.sse")],
)
def test_golden_bytes(answers, path, stream):
    got, whole = answers(path, ALL_KINDS, custom=["apply_patch"] if path == RESPONSES else [])
    check_golden(stream, got.decode())
    check_golden(stream.replace(".sse", ".json"), whole.decode())


def test_one_call_where_one_is_asked_for(answers):
    for path in (CHAT, MESSAGES, RESPONSES):
        stream, whole = answers(path, ALL_KINDS, one_call=True)
        for text in (stream, whole):
            assert b"weather" in text and b"apply_patch" not in text


def test_ends(answers):
    """Each API's word for why an answer ended; a limit counts before a call."""
    text, call = [{"pieces": [["text", "x"]]}], [{"pieces": [CALL]}]
    for tokens, finish, max_new, words in (
        (text, "stop", 9, ("stop", "end_turn", "completed")),
        (text, "length", 2, ("length", "max_tokens", "incomplete")),
        (text, "length", 9, ("length", "model_context_window_exceeded", "incomplete")),
        (call, "stop", 9, ("tool_calls", "tool_use", "completed")),
        (call, "length", 2, ("length", "max_tokens", "incomplete")),
        ([], "stop", 9, ("stop", "end_turn", "completed")),
    ):
        tokens = [*tokens, {"finish": finish}]
        chat, messages, responses = (answers(path, tokens, max_new=max_new) for path in (CHAT, MESSAGES, RESPONSES))
        assert json.loads(chat[1])["choices"][0]["finish_reason"] == words[0]
        assert [c["finish_reason"] for e in events(chat[0]) for c in e["choices"]][-1] == words[0]
        assert json.loads(messages[1])["stop_reason"] == words[1]
        assert [e for e in events(messages[0]) if e["type"] == "message_delta"][0]["delta"]["stop_reason"] == words[1]
        assert json.loads(responses[1])["status"] == words[2]
        assert events(responses[0])[-1]["type"] == f"response.{words[2]}"


def test_a_stream_that_breaks_off(answers, clients):
    tokens = [{"pieces": [["text", "x"]]}, {"pieces": [CALL]}, {"pieces": [["text", "y"]]}]
    for path in (CHAT, MESSAGES):
        stream, _ = answers(path, tokens, error="the model's session failed")
        oai, anth = clients(stream, b"")
        with pytest.raises((openai.APIError, anthropic.APIStatusError), match="the model's session failed"):
            if path == CHAT:
                list(oai.chat.completions.create(model="tiny", messages=MESSAGE, stream=True))
            else:
                list(anth.messages.create(model="x", max_tokens=9, messages=MESSAGE, stream=True))
    stream, _ = answers(RESPONSES, tokens, error="the model's session failed")
    client, _ = clients(stream, b"")
    last = list(client.responses.create(model="tiny", input="x", stream=True))[-1]
    assert last.type == "response.failed" and last.response.status == "failed"
    assert (last.response.error.code, last.response.error.message) == ("server_error", "the model's session failed")
    assert [i.type for i in last.response.output] == ["message", "function_call"]


def joined(parts):
    """Kinds and texts, of one kind next to each other as one."""
    found = []
    for kind, group in itertools.groupby(parts, key=lambda p: p[0]):
        group = list(group)
        found += group if kind == "call" else [[kind, "".join(p[1] for p in group)]]
    return found


def parts_of_messages(whole):
    names = {"thinking": "reasoning", "text": "text", "tool_use": "call"}
    return [
        ["call", b["name"], b["input"]] if b["type"] == "tool_use" else [names[b["type"]], b[b["type"]]]
        for b in whole["content"]
    ]


def test_random_answers(answers, clients):
    """Parts in any order, in any number of tokens: nothing lost, nothing twice, each API's stream its whole answer, and
    log probabilities of all tokens once."""
    rng = random.Random(7)
    for _ in range(40):
        tokens = []
        for n in range(rng.randrange(1, 12)):
            pieces = []
            for _ in range(rng.choice([0, 0, 1, 1, 1, 2, 3])):
                kind = rng.choice(["text", "text", "reasoning", "call"])
                value = rng.choice(["a", " \u00e9", "\n", '"{', "\U0001f600"])
                pieces.append(["call", f"f{n}", json.dumps({"a": value})] if kind == "call" else [kind, value])
            tokens.append({"pieces": pieces, "logprob": -n - 1})
        tokens[-1]["finish"] = rng.choice(["stop", "length"])
        parts = joined([p for t in tokens for p in t["pieces"]])
        stream, whole = answers(MESSAGES, tokens)
        assert parts_of_messages(json.loads(whole)) == [
            [*p[:2], json.loads(p[2])] if p[0] == "call" else p for p in parts
        ]
        with clients(stream, whole)[1].messages.stream(model="x", max_tokens=9, messages=MESSAGE) as s:
            final = s.get_final_message().model_dump(exclude_none=True)
        assert parts_of_messages(final) == parts_of_messages(json.loads(whole))
        stream, whole = answers(RESPONSES, tokens, logprobs=True)
        assert events(stream)[-1]["response"] == json.loads(whole)
        items = json.loads(whole)["output"]
        assert [e["item"] for e in events(stream) if e["type"] == "response.output_item.done"] == items
        assert [i["type"] for i in items] == [
            {"text": "message", "reasoning": "reasoning", "call": "function_call"}[p[0]] for p in parts
        ]
        in_parts = [t["logprob"] for i in items if i["type"] == "message" for t in i["content"][0]["logprobs"]]
        in_deltas = [
            t["logprob"] for e in events(stream) if e["type"].endswith("text.delta") for t in e.get("logprobs", [])
        ]
        assert in_parts == in_deltas and len(set(in_parts)) == len(in_parts)
        stream, whole = answers(CHAT, tokens, logprobs=True)
        choice = json.loads(whole)["choices"][0]
        made = [-n - 1 for n, t in enumerate(tokens) if t.get("finish") != "stop"]
        assert [t["logprob"] for t in choice["logprobs"]["content"]] == made
        chunks = [c for e in events(stream) for c in e["choices"]]
        assert [t["logprob"] for c in chunks for t in (c["logprobs"] or {"content": []})["content"]] == made
        for kind, field in (("text", "content"), ("reasoning", "reasoning_content")):
            text = "\n".join(p[1] for p in parts if p[0] == kind)
            assert (choice["message"].get(field) or "") == text
            assert "".join(c["delta"].get(field) or "" for c in chunks) == text


def test_answers_side_by_side(answers):
    """Calls are numbered in each answer."""
    tokens = [{"choice": i, "pieces": [CALL]} for i in (0, 1, 1, 0)] + [{"choice": i, "finish": "stop"} for i in (1, 0)]
    stream, whole = answers(CHAT, tokens, n=2)
    seen = {
        (c["index"], t["index"]) for e in events(stream) for c in e["choices"] for t in c["delta"].get("tool_calls", [])
    }
    assert seen == {(0, 0), (0, 1), (1, 0), (1, 1)}
    assert [len(c["message"]["tool_calls"]) for c in json.loads(whole)["choices"]] == [2, 2]
    assert all(c["message"]["content"] is None for c in json.loads(whole)["choices"])
