"""Responses: the official client, prompts as `transformers` renders them, and what is refused because nothing is stored."""

from __future__ import annotations

import json

import openai
import pytest
from goldens import check_golden
from transformers import AutoTokenizer

TEXT = "In the beginning"
SHORT = {"model": "tiny", "max_output_tokens": 12, "temperature": 0, "input": TEXT}
CALL = {"type": "function_call", "call_id": "call_1", "name": "weather", "arguments": '{"city": "Ur"}'}


@pytest.fixture(scope="module")
def client(talker):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{talker.port}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def oracle(talking_folder):
    tokenizer = AutoTokenizer.from_pretrained(talking_folder)

    def ids_of(chat, **variables):
        text = tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True, **variables)
        return tokenizer(text, add_special_tokens=False)["input_ids"]

    return ids_of


def text_of_ids(talker, ids, **more):
    asked = {"prompt": ids, "max_tokens": 12, "temperature": 0} | more
    return talker.post("/v1/completions", asked)[1]["choices"][0]["text"]


def message(role, *texts, kind="input_text"):
    return {"type": "message", "role": role, "content": [{"type": kind, "text": t} for t in texts]}


def call(name, arguments):
    return {"function": {"name": name, "arguments": arguments}}


# A request of Responses, and the conversation that Chat Completions would have.
CONVERSATIONS = {
    "text": ({"input": TEXT}, [{"role": "user", "content": TEXT}]),
    "instructions": (
        {"input": TEXT, "instructions": "Be brief."},
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": TEXT}],
    ),
    "message without a type": (
        {"input": [{"role": "user", "content": TEXT}]},
        [{"role": "user", "content": TEXT}],
    ),
    "system and developer": (
        {
            "instructions": "Be brief.",
            "input": [
                message("developer", "Be kind."),
                message("user", "a", "b"),
                {"role": "system", "content": "Be true."},
                {"role": "user", "content": "c"},
            ],
        },
        [
            {"role": "system", "content": "Be brief.\n\nBe kind.\n\nBe true."},
            {"role": "user", "content": "a\nb\nc"},
        ],
    ),
    "turns": (
        {
            "input": [
                message("user", "a"),
                message("assistant", "b", kind="output_text") | {"id": "msg_1", "status": "completed"},
                message("user", "c"),
            ]
        },
        [
            {"role": "user", "content": "a"},
            {"role": "assistant", "content": "b"},
            {"role": "user", "content": "c"},
        ],
    ),
    "calls": (
        {
            "input": [
                message("user", "a"),
                {
                    "type": "reasoning",
                    "id": "rs_1",
                    "summary": [],
                    "content": [{"type": "reasoning_text", "text": "hm"}],
                    "encrypted_content": None,
                },
                message("assistant", "Let me see.", kind="output_text"),
                CALL,
                CALL | {"call_id": "call_2", "arguments": "{}"},
                {"type": "function_call_output", "call_id": "call_1", "output": "dry"},
                {
                    "type": "function_call_output",
                    "call_id": "call_2",
                    "output": [{"type": "input_text", "text": "no"}, {"type": "input_text", "text": "city"}],
                },
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": "so"}]},
                {"type": "reasoning", "summary": [], "encrypted_content": "sealed"},
                {"type": "custom_tool_call", "call_id": "call_3", "name": "patch", "input": 'a "b"\n'},
                {"type": "custom_tool_call_output", "call_id": "call_3", "output": "done"},
            ]
        },
        [
            {"role": "user", "content": "a"},
            {
                "role": "assistant",
                "content": "Let me see.",
                "reasoning_content": "hm",
                "tool_calls": [call("weather", '{"city": "Ur"}'), call("weather", "{}")],
            },
            {"role": "tool", "content": "dry"},
            {"role": "tool", "content": "no\ncity"},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "so",
                "tool_calls": [call("patch", '{"input":"a \\"b\\"\\n"}')],
            },
            {"role": "tool", "content": "done"},
        ],
    ),
}


@pytest.mark.parametrize("name", CONVERSATIONS)
def test_prompts_are_those_of_transformers(talker, client, oracle, name):
    """Their count, and the answer to them."""
    asked, chat = CONVERSATIONS[name]
    answer = client.responses.create(**(SHORT | asked))
    assert answer.usage.input_tokens == len(oracle(chat))
    assert answer.output_text == text_of_ids(talker, oracle(chat))


def test_effort_is_a_variable_of_the_template(talker, client, oracle):
    ids = oracle([{"role": "user", "content": TEXT}], reasoning_effort="low")
    answer = client.responses.create(**SHORT, reasoning={"effort": "low", "summary": "auto"})
    assert answer.output_text == text_of_ids(talker, ids) and answer.reasoning.effort == "low"


def test_an_answer(client):
    answer = client.responses.create(**SHORT)
    assert answer.id.startswith("resp_") and answer.object == "response" and answer.model == "tiny"
    assert answer.status == "incomplete" and answer.incomplete_details.reason == "max_output_tokens"
    assert answer.usage.output_tokens == 12 and answer.usage.total_tokens == answer.usage.input_tokens + 12
    [item] = answer.output
    assert (item.type, item.role, item.status) == ("message", "assistant", "incomplete")
    assert (answer.tools, answer.tool_choice, answer.parallel_tool_calls) == ([], "auto", True)
    assert answer.error is None and answer.instructions is None and answer.metadata == {} and answer.temperature == 0
    repeated = client.responses.create(**SHORT, instructions="x", metadata={"a": "b"}, top_p=0.5, store=True)
    assert (repeated.instructions, repeated.metadata, repeated.top_p) == ("x", {"a": "b"}, 0.5)
    assert repeated.max_output_tokens == 12 and repeated.model_extra["store"] is False


def test_sampling_of_the_plan_counts_where_nothing_is_asked(talker, client, oracle):
    """Codex sends neither temperature nor a limit."""
    answer = client.responses.create(model="tiny", input=TEXT, extra_body={"seed": 5}, max_output_tokens=20)
    ids = oracle([{"role": "user", "content": TEXT}])
    same = talker.post("/v1/completions", {"prompt": ids, "max_tokens": 20, "seed": 5})[1]
    assert answer.output_text == same["choices"][0]["text"]
    assert client.responses.create(model="tiny", input=TEXT).usage.output_tokens > 20


def test_a_stream_is_the_whole_answer(client):
    whole = client.responses.create(**SHORT)
    events = list(client.responses.create(**SHORT, stream=True))
    assert [e.sequence_number for e in events] == list(range(len(events)))
    assert "".join(e.delta for e in events if e.type == "response.output_text.delta") == whole.output_text
    final = events[-1].response
    assert events[-1].type == "response.incomplete" and final.output_text == whole.output_text
    assert final.usage == whole.usage and {e.response.id for e in events if hasattr(e, "response")} == {final.id}
    assert {e.item_id for e in events if hasattr(e, "item_id")} == {final.output[0].id}
    done = next(e for e in events if e.type == "response.output_item.done")
    assert done.item == final.output[0]


def test_the_helper_for_streams(talker, client):
    """It fails on events out of order; a text that ends by itself is `completed`."""
    end = talker.post("/tokenize", {"prompt": " the", "add_special_tokens": False})[1]["tokens"][0]
    with client.responses.stream(
        **(SHORT | {"max_output_tokens": 200}), extra_body={"stop_token_ids": [end]}
    ) as stream:
        for _ in stream:
            pass
        final = stream.get_final_response()
    assert final.status == "completed" and final.incomplete_details is None
    assert final.output_text and final.output[0].status == "completed"
    empty = client.responses.create(**SHORT, extra_body={"stop_token_ids": [end], "logit_bias": {str(end): 100}})
    assert (empty.status, empty.output, empty.output_text) == ("completed", [], "")


def test_logprobs(talker, client, oracle):
    """Those of Completions, in the stream once each and whole where the text is."""
    asked = SHORT | {"include": ["message.output_text.logprobs"], "top_logprobs": 2}
    part = client.responses.create(**asked).output[0].content[0]
    assert "".join(t.token for t in part.logprobs) == part.text and all(len(t.top_logprobs) == 2 for t in part.logprobs)
    events = list(client.responses.create(**asked, stream=True))
    deltas = [t for e in events if e.type == "response.output_text.delta" for t in e.logprobs]
    assert [(t.token, t.logprob) for t in deltas] == [(t.token, t.logprob) for t in part.logprobs]
    assert events[-1].response.output[0].content[0].logprobs == part.logprobs
    ids = oracle([{"role": "user", "content": TEXT}])
    same = talker.post("/v1/completions", {"prompt": ids, "max_tokens": 12, "temperature": 0, "logprobs": 1})[1]
    assert [t.logprob for t in part.logprobs] == same["choices"][0]["logprobs"]["token_logprobs"]
    assert client.responses.create(**SHORT).output[0].content[0].logprobs == []


def test_turns_with_the_client(client):
    """What it answered goes back as it came, ids and all."""
    talk = [{"role": "user", "content": TEXT}]
    used = []
    for _ in range(3):
        answer = client.responses.create(**(SHORT | {"input": talk}))
        used.append(answer.usage.input_tokens)
        talk += [*(i.model_dump() for i in answer.output), {"role": "user", "content": "And then?"}]
    assert used == sorted(set(used))


def test_tools_that_others_run_are_left_out(talker):
    tools = [{"type": "web_search"}, {"type": "mcp", "server_label": "x", "server_url": "y"}]
    status, answer = talker.post("/v1/responses", SHORT | {"tools": tools})
    assert status == 200 and answer["tools"] == []
    assert talker.metric('unknown_field_total{name="tools.web_search"}') == 1
    assert talker.metric('unknown_field_total{name="tools.mcp"}') == 1


@pytest.mark.parametrize(
    "wrong,param,text",
    [
        ({"input": None}, "input", "input is missing: expected a string or a list of items"),
        ({"input": []}, "input", "input has 0 items: expected 1 to 4096"),
        ({"input": [1]}, "input[0]", "input[0]: expected an object with a type"),
        (
            {"input": [{"type": "item_reference", "id": "msg_1"}]},
            "input[0]",
            "input[0] is of type item_reference: expected messages, calls, their outputs or reasoning",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "x"}]}]},
            "input[0][0]",
            "input[0][0] is of type input_image: the model reads text",
        ),
        (
            {"input": [{"role": "user", "content": [{"type": "input_file"}]}]},
            "input[0][0]",
            "input[0][0] is of type input_file: the model reads text",
        ),
        (
            {"input": [{"role": "king", "content": "x"}]},
            "input[0]",
            "input[0].role: expected user, assistant, system or developer",
        ),
        ({"input": [CALL | {"arguments": "{"}]}, "input[0]", "input[0].arguments is not the text of a JSON object"),
        ({"input": [CALL | {"call_id": None}]}, "input[0].call_id", "input[0].call_id is null: expected a string"),
        (
            {"previous_response_id": "resp_1"},
            "previous_response_id",
            "previous_response_id: no responses are stored: send the whole conversation",
        ),
        (
            {"conversation": "conv_1"},
            "conversation",
            "conversation: no conversations are stored: send the whole conversation",
        ),
        ({"background": True}, "background", "background: answers are not kept for later"),
        ({"prompt": {"id": "p"}}, "prompt", "prompt: no prompts are stored"),
        ({"truncation": "auto"}, "truncation", "truncation: a prompt is read whole or refused"),
        (
            {"text": {"format": {"type": "grammar"}}},
            "text.format",
            'text.format.type: expected "text", "json_object" or "json_schema"',
        ),
        ({"tools": [{"type": "function"}]}, "tools[0].name", "tools[0].name is missing: expected a string"),
        ({"tool_choice": "all"}, "tool_choice", "tool_choice is all: expected auto, none, required or a tool"),
        ({"include": "x"}, "include", "include is a string: expected a list"),
        (
            {"max_output_tokens": 0},
            "max_output_tokens",
            "max_output_tokens is 0: expected a whole number from 1 to 1073741824",
        ),
        ({"instructions": 1}, "instructions", "instructions is a whole number: expected a string"),
    ],
    ids=str,
)
def test_refusals(talker, wrong, param, text):
    status, answer = talker.post("/v1/responses", SHORT | wrong)
    error = {"message": text, "type": "invalid_request_error", "param": param, "code": None}
    assert (status, answer) == (400, {"error": error})


def test_a_conversation_longer_than_the_context(client):
    with pytest.raises(openai.BadRequestError) as refused:
        client.responses.create(**(SHORT | {"input": "word " * 2000}))
    assert refused.value.code == "context_length_exceeded" and refused.value.param == "input"
    assert "512" in refused.value.body["message"]


def test_golden_bytes(talker):
    asked = SHORT | {"max_output_tokens": 2}
    check_golden("responses.sse", talker.stream("/v1/responses", asked).decode())
    _, _, body = talker.ask("POST", "/v1/responses", json.dumps(asked))
    check_golden("responses.json", body.decode())
