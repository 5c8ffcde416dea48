"""Messages, the API of Anthropic: its official client, prompts as `transformers` renders them, errors in its form."""

from __future__ import annotations

import json
import re

import anthropic
import pytest
from goldens import check_golden
from server import read_all
from transformers import AutoTokenizer

ASKED = [{"role": "user", "content": "In the beginning"}]
SHORT = {"model": "claude-opus-4", "max_tokens": 12, "temperature": 0, "messages": ASKED}
# Each kind of JSON; 0.1 has more digits in binary than it is written with.
INPUT = {"a": 0.1, "b": [1, 2.0, 1e22, -5e-324, 123456.789], "c": {"d": None, "é\n": [True, False, '"\\']}, "e": []}
CALL = {"type": "tool_use", "id": "toolu_1", "name": "weather", "input": {"city": "Ur", "days": 2}}


@pytest.fixture(scope="module")
def client(talker):
    return anthropic.Anthropic(base_url=f"http://127.0.0.1:{talker.port}", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def oracle(talking_folder):
    tokenizer = AutoTokenizer.from_pretrained(talking_folder)

    def ids_of(chat, **variables):
        text = tokenizer.apply_chat_template(chat, tokenize=False, **({"add_generation_prompt": True} | variables))
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    return ids_of


# Its client has no fields for sampling any more: they go as further ones.
OWN = {"model", "max_tokens", "messages", "system", "stop_sequences", "stream", "thinking", "output_config"}


def fields(asked):
    return {k: v for k, v in asked.items() if k in OWN} | {
        "extra_body": {k: v for k, v in asked.items() if k not in OWN}
    }


def text_of_ids(talker, ids, n):
    answer = talker.post("/v1/completions", {"prompt": ids, "max_tokens": n, "temperature": 0})[1]
    return answer["choices"][0]["text"]


# A request of Messages, and the conversation that Chat Completions would have.
CONVERSATIONS = {
    "one": ({"messages": ASKED}, ASKED),
    "blocks": (
        {"messages": [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]},
        [{"role": "user", "content": "a\nb"}],
    ),
    "system": ({"system": "Be brief.", "messages": ASKED}, [{"role": "system", "content": "Be brief."}, *ASKED]),
    "system blocks": (
        {
            "system": [
                {"type": "text", "text": "x-anthropic-billing-header: cc_version=2.0; cch=1a2b3;"},
                {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
                {"type": "text", "text": "Be kind."},
            ],
            "messages": ASKED,
        },
        [{"role": "system", "content": "Be brief.\nBe kind."}, *ASKED],
    ),
    "only a billing header": (
        {"system": [{"type": "text", "text": "x-anthropic-billing-header: cch=1a2b3;"}], "messages": ASKED},
        ASKED,
    ),
    "turns of one role": (
        {"messages": [{"role": "user", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]},
        [{"role": "user", "content": "a\nb"}],
    ),
    "calls": (
        {
            "messages": [
                *ASKED,
                {
                    "role": "assistant",
                    "content": [
                        {"type": "thinking", "thinking": "hm", "signature": "s"},
                        {"type": "redacted_thinking", "data": "sealed"},
                        {"type": "text", "text": "Let me see."},
                        CALL,
                        CALL | {"id": "toolu_2", "input": INPUT},
                    ],
                },
                {
                    "role": "user",
                    "content": [
                        {"type": "tool_result", "tool_use_id": "toolu_1", "content": "dry"},
                        {
                            "type": "tool_result",
                            "tool_use_id": "toolu_2",
                            "is_error": True,
                            "content": [{"type": "text", "text": "no"}, {"type": "text", "text": "city"}],
                        },
                        {"type": "text", "text": "And now?", "cache_control": {"type": "ephemeral"}},
                    ],
                },
            ]
        },
        [
            *ASKED,
            {
                "role": "assistant",
                "content": "Let me see.",
                "reasoning_content": "hm",
                "tool_calls": [
                    {"function": {"name": "weather", "arguments": '{"city": "Ur", "days": 2}'}},
                    {"function": {"name": "weather", "arguments": json.dumps(INPUT, ensure_ascii=False)}},
                ],
            },
            {"role": "tool", "content": "dry"},
            {"role": "tool", "content": "no\ncity"},
            {"role": "user", "content": "And now?"},
        ],
    ),
}


def test_answers_have_the_id_that_clients_look_for(talker, client):
    """`request-id`, of which the official client makes `_request_id`; also of errors, counts and streams."""
    asked = {"model": "tiny", "messages": ASKED}
    assert client.messages.create(**asked, max_tokens=2)._request_id.startswith("req-")
    given = {"extra_headers": {"x-request-id": "mine-1"}}
    assert client.messages.create(**asked, max_tokens=2, **given)._request_id == "mine-1"
    assert client.messages.count_tokens(**asked, **given)._request_id == "mine-1"
    with client.messages.stream(**asked, max_tokens=2, **given) as stream:
        assert stream.response.headers["request-id"] == "mine-1"
        stream.until_done()
    with pytest.raises(anthropic.BadRequestError) as caught:
        client.messages.create(**asked, max_tokens=0, **given)
    assert caught.value.request_id == "mine-1"
    _, headers, _ = talker.ask("POST", "/v1/chat/completions", b"{}")
    assert "request-id" not in headers and headers["x-request-id"].startswith("req-")


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_prompts_are_those_of_transformers(talker, client, oracle, name):
    """Their count, and the answer to them; count_tokens counts what the request sends."""
    asked, chat = CONVERSATIONS[name]
    ids = oracle(chat)
    answer = client.messages.create(**fields(SHORT | asked))
    assert answer.usage.input_tokens == len(ids)
    assert answer.content[0].text == text_of_ids(talker, ids, 12)
    counted = client.messages.count_tokens(model="claude-opus-4", **asked)
    assert counted.input_tokens == len(ids)
    assert client.beta.messages.count_tokens(model="claude-opus-4", **asked).input_tokens == len(ids)


def test_a_last_turn_of_the_model_is_continued(talker, client, oracle):
    begun = [*ASKED, {"role": "assistant", "content": "And God"}]
    ids = oracle(begun, continue_final_message=True, add_generation_prompt=False)
    answer = client.messages.create(**fields(SHORT | {"messages": begun}))
    assert (answer.usage.input_tokens, answer.content[0].text) == (len(ids), text_of_ids(talker, ids, 12))


@pytest.mark.parametrize(
    "more,variables",
    [
        ({"thinking": {"type": "enabled", "budget_tokens": 1024}}, {"enable_thinking": True}),
        ({"thinking": {"type": "adaptive"}}, {"enable_thinking": True}),
        ({"thinking": {"type": "disabled"}}, {"enable_thinking": False}),
        ({"thinking": {"type": "of a later year"}}, {}),
        ({"output_config": {"effort": "low"}}, {"reasoning_effort": "low"}),
        (
            {"thinking": {"type": "enabled"}, "chat_template_kwargs": {"enable_thinking": False}},
            {"enable_thinking": False},
        ),
    ],
    ids=str,
)
def test_reasoning_is_a_variable_of_the_template(talker, oracle, more, variables):
    count = talker.post("/v1/messages/count_tokens", {"messages": ASKED} | more)[1]["input_tokens"]
    assert count == len(oracle(ASKED, **variables))
    status, answer = talker.post("/v1/messages", SHORT | more)
    assert status == 200 and answer["content"][0]["text"] == text_of_ids(talker, oracle(ASKED, **variables), 12)


def test_an_answer(client):
    answer = client.messages.create(**fields(SHORT))
    assert answer.id.startswith("msg_") and (answer.type, answer.role, answer.model) == ("message", "assistant", "tiny")
    assert (answer.stop_reason, answer.stop_sequence, answer.usage.output_tokens) == ("max_tokens", None, 12)
    assert answer.usage.cache_read_input_tokens == answer.usage.cache_creation_input_tokens == 0
    for name in ("tiny", "claude-haiku-4-5-20251001", "claude-3"):
        assert client.messages.create(**fields(SHORT | {"model": name})).content == answer.content
    with pytest.raises(anthropic.NotFoundError) as refused:
        client.messages.create(**fields(SHORT | {"model": "gpt-4"}))
    assert refused.value.body["error"]["type"] == "not_found_error"


def test_a_stream_is_the_whole_answer(client):
    whole = client.messages.create(**fields(SHORT))
    with client.messages.stream(**fields(SHORT)) as stream:
        seen = [event.type for event in stream]
        final = stream.get_final_message()
    assert [b.text for b in final.content] == [b.text for b in whole.content]
    assert (final.stop_reason, final.usage) == (whole.stop_reason, whole.usage)
    assert seen[0] == "message_start" and seen[-2:] == ["message_delta", "message_stop"]
    raw = [e.type for e in client.beta.messages.create(**fields(SHORT), stream=True)]
    assert raw == ["message_start", "content_block_start", *["content_block_delta"] * 12, "content_block_stop"] + [
        "message_delta",
        "message_stop",
    ]


@pytest.mark.parametrize("stream", [False, True])
def test_stop_sequences(client, stream):
    text = client.messages.create(**fields(SHORT)).content[0].text
    stop = text.split(" ")[3]
    asked = SHORT | {"stop_sequences": ["never", stop]}
    if stream:
        with client.messages.stream(**fields(asked)) as s:
            answer = s.get_final_message()
    else:
        answer = client.messages.create(**fields(asked))
    assert (answer.stop_reason, answer.stop_sequence) == ("stop_sequence", stop)
    assert answer.content[0].text == text[: text.index(stop)]


def test_why_an_answer_ends(talker, client):
    """At the model's end of turn, here by force; at the context's; and with no text at all."""
    end = talker.post("/tokenize", {"prompt": " the", "add_special_tokens": False})[1]["tokens"][0]
    asked = SHORT | {"logit_bias": {str(end): 100}, "stop_token_ids": [end]}
    answer = client.messages.create(**fields(asked))
    assert (answer.stop_reason, answer.content, answer.usage.output_tokens) == ("end_turn", [], 1)
    long = SHORT | {"max_tokens": 8000, "ignore_eos": True}
    answer = client.messages.create(**fields(long))
    assert answer.stop_reason == "model_context_window_exceeded"
    assert answer.usage.output_tokens < 512


def test_sampling(client, talker, oracle):
    asked = SHORT | {"temperature": 1, "top_p": 0.8, "top_k": 5, "seed": 3}
    answer = client.messages.create(**fields(asked))
    sampling = {"temperature": 1, "top_p": 0.8, "top_k": 5, "seed": 3, "max_tokens": 12}
    same = talker.post("/v1/completions", {"prompt": oracle(ASKED)} | sampling)[1]
    assert answer.content[0].text == same["choices"][0]["text"]


def test_turns_with_the_client(client):
    """What it answered goes back as it came."""
    talk = list(ASKED)
    for _ in range(3):
        answer = client.messages.create(**fields(SHORT | {"messages": talk}))
        talk += [{"role": "assistant", "content": answer.content}, {"role": "user", "content": "And then?"}]
    assert client.messages.count_tokens(model="tiny", messages=talk).input_tokens > answer.usage.input_tokens


@pytest.mark.parametrize(
    "wrong,message",
    [
        ({"max_tokens": None}, "max_tokens is missing"),
        ({"max_tokens": 0}, "max_tokens is 0: expected a whole number from 1 to 1073741824"),
        ({"messages": None}, "messages is missing: expected a list"),
        ({"messages": []}, "messages has 0 messages: expected 1 to 4096"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role: expected user or assistant"),
        ({"messages": [1]}, "messages[0].role: expected user or assistant"),
        (
            {"messages": [{"role": "user"}]},
            "messages[0].content is missing: expected a string or a list of blocks",
        ),
        (
            {"messages": [{"role": "user", "content": ["x"]}]},
            "messages[0].content[0]: expected an object with a type",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "image", "source": {}}]}]},
            "messages[0].content[0] is of type image: expected text, thinking, tool_use or tool_result",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "document"}]}]},
            "messages[0].content[0] is of type document: expected text, thinking, tool_use or tool_result",
        ),
        (
            {"messages": [{"role": "user", "content": [CALL]}]},
            "messages[0].content[0] is of type tool_use: expected text, thinking, tool_use or tool_result",
        ),
        (
            {"messages": [*ASKED, {"role": "assistant", "content": [CALL | {"input": "{}"}]}]},
            "messages[1].content[0].input is a string: expected an object",
        ),
        (
            {"messages": [{"role": "user", "content": [{"type": "tool_result", "content": "x"}]}]},
            "messages[0].content[0].tool_use_id is missing: expected a string",
        ),
        (
            {
                "messages": [
                    {
                        "role": "user",
                        "content": [{"type": "tool_result", "tool_use_id": "t", "content": [{"type": "image"}]}],
                    }
                ]
            },
            "messages[0].content[0][0] is of type image: the model reads text",
        ),
        ({"system": [{"type": "image"}]}, "system[0] is of type image: the model reads text"),
        ({"system": 1}, "system is a whole number: expected a string or a list of parts"),
        ({"stop_sequences": [""]}, "stop_sequences has a string of 0 bytes: expected 1 to 256"),
        ({"mcp_servers": [{}]}, "mcp_servers: the server calls no other servers"),
        ({"container": "c"}, "container: the server runs no code"),
        (
            {"output_config": {"format": {"type": "grammar"}}},
            'output_config.format.type: expected "text", "json_object" or "json_schema"',
        ),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema is missing: expected an object"),
        (
            {"tools": [{"type": "web_search_20250305", "name": "web_search"}]},
            "tools[0] is of type web_search_20250305: this server runs no tools",
        ),
        ({"tool_choice": {"type": "all"}}, "tool_choice is of type all: expected auto, any, tool or none"),
        ({"thinking": {}}, "thinking: expected an object with a type"),
    ],
    ids=str,
)
def test_refusals(talker, wrong, message):
    for path in ("/v1/messages", "/v1/messages/count_tokens"):
        if path.endswith("tokens") and ("max_tokens" in wrong or "stop_sequences" in wrong):
            continue
        status, answer = talker.post(path, SHORT | wrong)
        assert (status, answer) == (
            400,
            {"type": "error", "error": {"type": "invalid_request_error", "message": message}},
        )


def test_a_conversation_longer_than_the_context(talker, client):
    """The sentence by which Claude Code knows that it has to shorten one."""
    long = [{"role": "user", "content": "word " * 2000}]
    with pytest.raises(anthropic.BadRequestError) as refused:
        client.messages.create(**fields(SHORT | {"messages": long}))
    message = refused.value.body["error"]["message"]
    assert re.fullmatch(r"prompt is too long: \d{4} tokens > 512 maximum", message)
    status, answer = talker.post("/v1/messages", SHORT | {"messages": long, "stream": True})
    assert status == 400 and answer["error"]["message"] == message


def test_unknown_fields_are_counted(talker):
    assert talker.post("/v1/messages", SHORT | {"a_later_field": 1})[0] == 200
    assert talker.metric('unknown_field_total{name="a_later_field"}') == 1


def test_errors_before_a_request_have_the_form_of_the_api(talker):
    head = b"POST /v1/messages HTTP/1.1\r\nHost: localhost\r\n"
    for sent, status, kind in (
        (head + b"Content-Length: 99999999\r\n\r\n", 413, "request_too_large"),
        (head + b"Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n", 400, "invalid_request_error"),
        (b"GET /v1/messages HTTP/1.1\r\nHost: localhost\r\n\r\n", 405, "invalid_request_error"),
        (b"POST /v1/messages/batches HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "not_found_error"),
        (b"POST /v1/messages HTTP/1.1\r\nHost: elsewhere\r\n\r\n", 403, "permission_error"),
    ):
        with talker.raw(sent) as s:
            answer, _, body = read_all(s).partition(b"\r\n\r\n")
        assert answer.startswith(b"HTTP/1.1 %d " % status)
        error = json.loads(body)
        assert error["type"] == "error" and error["error"]["type"] == kind and error["error"]["message"]


def test_models(client):
    """The list and its members are those that this client asks for, too."""
    assert [m.id for m in client.models.list()] == ["tiny"]
    one = client.models.retrieve("tiny")
    assert (one.type, one.display_name, one.created_at.tzinfo is not None) == ("model", "tiny", True)


def test_keys(talking, start, tmp_path):
    """Both clients' headers are known."""
    (tmp_path / "keys").write_text("secret-key\n")
    server = start(talking, "--api-key-file", tmp_path / "keys")
    good = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="secret-key", max_retries=0)
    assert good.messages.create(**fields(SHORT)).content
    bearer = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", auth_token="secret-key", max_retries=0)
    assert bearer.messages.create(**fields(SHORT)).content
    bad = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="other", max_retries=0)
    with pytest.raises(anthropic.AuthenticationError) as refused:
        bad.messages.create(**fields(SHORT))
    assert refused.value.body == {
        "type": "error",
        "error": {"type": "authentication_error", "message": "the API key is wrong"},
    }


def test_golden_bytes(talker):
    asked = SHORT | {"max_tokens": 3}
    check_golden("messages.sse", talker.stream("/v1/messages?beta=true", asked).decode())
    _, _, body = talker.ask("POST", "/v1/messages", json.dumps(asked))
    check_golden("messages.json", body.decode())
