"""Fields of request JSON: wrong types and ranges of every one of them are refused by name, before any work."""

from __future__ import annotations

import json
import pathlib
import re

import pytest

SOURCE = (pathlib.Path(__file__).resolve().parents[2] / "runtime" / "serve" / "request.c").read_text(encoding="utf-8")
SETS = {"BOTH": "CHAT COMPLETIONS", "NEWER": "MESSAGES RESPONSES", "ALL": "CHAT COMPLETIONS MESSAGES RESPONSES"}
KNOWN = [
    (name, api, rule, nothing)
    for name, apis, rule, nothing in re.findall(r'^\t\{"(\w+)", (\w+), (\w+), "((?:[^"\\]|\\.)*)"', SOURCE, re.M)
    for api in SETS.get(apis, apis).split()
]
WRONG = {"a": True}, [["a"]], "word", True, 1.5, -7, 1 << 62


def completions(served, **fields):
    return served.post("/v1/completions", {"prompt": "a", "max_tokens": 1} | fields)


def chat(served, **fields):
    return served.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "a"}]} | fields)


# Values among WRONG that the field takes.
TAKEN = {
    "echo": [True],
    "stream": [True],
    "ignore_eos": [True],
    "include_stop_str_in_output": [True],
    "add_special_tokens": [True],
    "stop": ["word"],
    "prompt": ["word"],
    "seed": [-7, 1 << 62],
    "temperature": [1.5],
    "presence_penalty": [1.5],
    "frequency_penalty": [1.5],
    "repetition_penalty": [1.5],
    "skip_special_tokens": [True],
    "spaces_between_special_tokens": [True],
    "stream_options": [{"a": True}],
    "logprobs": [],
    "metadata": WRONG,
    "guided_json": [True, {"a": True}],
    "guided_regex": ["word"],
    "cache_salt": ["word"],
}


@pytest.mark.parametrize("name", [n for n, api, rule, _ in KNOWN if api == "COMPLETIONS" and rule != "IGNORED"])
def test_wrong_types(served, name):
    for value in WRONG:
        if any(value is v or (value == v and type(value) is type(v)) for v in TAKEN.get(name, [])):
            continue
        status, answer = completions(served, **{name: value})
        error = answer.get("error", {})
        assert status == (404 if name == "model" and value == "word" else 400), (name, value, answer)
        assert error["type"] == "invalid_request_error" and error["param"].startswith(name), (name, value, error)


@pytest.mark.parametrize("name", sorted({n for n, api, rule, _ in KNOWN if rule == "IGNORED" and api == "COMPLETIONS"}))
def test_book_keeping_is_ignored(served, name):
    for value in WRONG:
        assert completions(served, **{name: value})[0] == 200


def test_null_is_absent(served):
    """All at once, of both routes."""
    nulls = {n: None for n, api, _, _ in KNOWN if api == "COMPLETIONS" and n not in ("prompt", "max_tokens")}
    assert completions(served, **nulls)[0] == 200
    status, answer = chat(served, **{n: None for n, api, _, _ in KNOWN if api == "CHAT" and n != "messages"})
    assert status == 400 and answer["error"]["message"] == "the plan has no chat template"
    assert completions(served, prompt=None)[1]["error"]["message"] == "prompt is missing"


# The newer APIs: what a request needs, and values among WRONG that a field takes.
NEWER = {
    "MESSAGES": ("/v1/messages", {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
    "RESPONSES": ("/v1/responses", {"input": "a", "max_output_tokens": 1}),
}
NEWER_TAKE = TAKEN | {
    "system": ["word"],
    "stop_sequences": ["word"],
    "input": ["word"],
    "instructions": ["word"],
    "parallel_tool_calls": [True],
    "chat_template_kwargs": [{"a": True}],
    "include": [["a"]],
    "text": [{"a": True}],
    "reasoning": [{"a": True}],
    "output_config": [{"a": True}],
}


def newer(talker, api, **fields):
    """(status, the error or the answer): of one shape for both."""
    path, needs = NEWER[api]
    status, answer = talker.post(path, needs | fields)
    assert status == 200 or ("type" in answer) == (api == "MESSAGES")
    return status, answer.get("error") or answer


@pytest.mark.parametrize("name,api", [(n, a) for n, a, rule, _ in KNOWN if a in NEWER and rule != "IGNORED"])
def test_wrong_types_of_newer_apis(talker, name, api):
    for value in WRONG:
        if any(value is v or (value == v and type(value) is type(v)) for v in NEWER_TAKE.get(name, [])):
            continue
        status, error = newer(talker, api, **{name: value})
        kind = "not_found_error" if api == "MESSAGES" and status == 404 else "invalid_request_error"
        assert status == (404 if name == "model" and value == "word" else 400), (name, value, error)
        assert error["type"] == kind and (name in error["message"] or status == 404), (name, value, error)
        assert api == "MESSAGES" or error["param"].startswith(name), (name, value, error)


@pytest.mark.parametrize("name,api", [(n, a) for n, a, rule, _ in KNOWN if a in NEWER and rule == "IGNORED"])
def test_book_keeping_of_newer_apis_is_ignored(talker, name, api):
    for value in WRONG:
        assert newer(talker, api, **{name: value})[0] == 200


@pytest.mark.parametrize("api", NEWER)
def test_null_is_absent_in_newer_apis(talker, api):
    nulls = {n: None for n, a, _, _ in KNOWN if a == api and n not in NEWER[api][1]}
    assert newer(talker, api, **nulls)[0] == 200


@pytest.mark.parametrize("name,api,nothing", [(n, a, v) for n, a, r, v in KNOWN if a in NEWER and r == "REFUSED" and v])
def test_values_that_ask_newer_apis_for_nothing(talker, name, api, nothing):
    assert newer(talker, api, **{name: json.loads(nothing.replace('\\"', '"'))})[0] == 200


@pytest.mark.parametrize(
    "name,nothing", [(n, v) for n, api, rule, v in KNOWN if rule == "REFUSED" and v and api == "COMPLETIONS"]
)
def test_values_that_ask_for_nothing(served, name, nothing):
    body = b'{"prompt": "a", "max_tokens": 1, "%s": %s}' % (name.encode(), nothing.replace('\\"', '"').encode())
    assert served.post("/v1/completions", body)[0] == 200


@pytest.mark.parametrize(
    "fields,param,message",
    [
        ({"temperature": -1}, "temperature", "temperature is -1: expected a number from 0 to 100"),
        ({"temperature": "hot"}, "temperature", "temperature is a string: expected a number from 0 to 100"),
        ({"top_p": 1.01}, "top_p", "top_p is 1.01: expected a number from 0 to 1"),
        ({"top_k": -2}, "top_k", "top_k is -2: expected a whole number from -1 to 1073741824"),
        ({"max_tokens": 0}, "max_tokens", "max_tokens is 0: expected a whole number from 1 to 1073741824"),
        ({"max_tokens": 2.0}, "max_tokens", "max_tokens is a number: expected a whole number from 1 to 1073741824"),
        ({"n": 3}, "n", "n is 3: expected a whole number from 1 to 2"),
        ({"best_of": 2}, "best_of", "best_of: an answer is drawn once"),
        ({"suffix": "x"}, "suffix", "suffix: the model continues a text, it fills no gap"),
        ({"stop": ""}, "stop", "stop has a string of 0 bytes: expected 1 to 256"),
        ({"stop": "x" * 257}, "stop", "stop has a string of 257 bytes: expected 1 to 256"),
        ({"stop": ["x"] * 17}, "stop", "stop has 17 strings: expected at most 16"),
        ({"stop": [1]}, "stop", "stop has a whole number: expected strings"),
        ({"logprobs": 6}, "logprobs", "logprobs is 6: expected a whole number from 0 to 5"),
        (
            {"stream_options": {"include_usage": 1}},
            "stream_options.include_usage",
            "include_usage is a whole number: expected true or false",
        ),
        ({"logit_bias": {"x": 1}}, "logit_bias", "logit_bias has x: expected a token id below 2048"),
        ({"logit_bias": {"2048": 1}}, "logit_bias", "logit_bias has 2048: expected a token id below 2048"),
        ({"logit_bias": {"1": 101}}, "logit_bias", "logit_bias[1] is out of range: expected a number from -100 to 100"),
        (
            {"logit_bias": {str(i): 1 for i in range(301)}},
            "logit_bias",
            "logit_bias: expected an object of at most 300 token ids",
        ),
        ({"stop_token_ids": [2048]}, "stop_token_ids", "stop_token_ids[0]: expected a token id below 2048"),
        ({"min_tokens": 5}, "min_tokens", "min_tokens is 5: expected at most the 1 tokens of the answer"),
        ({"prompt": []}, "prompt", "prompt is an empty list"),
        ({"prompt": [-1]}, "prompt", "prompt[0] is -1: expected a token id below 2048"),
        ({"prompt": [2048]}, "prompt", "prompt[0] is 2048: expected a token id below 2048"),
        ({"prompt": [1, "a"]}, "prompt", "prompt[1] is a string: expected a token id"),
        ({"prompt": ["a", 1]}, "prompt[1]", "prompt[1] is a whole number: expected a string as the first"),
        ({"prompt": [[1], [2, 99999]]}, "prompt[1]", "prompt[1][1] is 99999: expected a token id below 2048"),
        ({"prompt": [[]]}, "prompt[0]", "the prompt has no tokens"),
        ({"prompt": ["a"] * 129}, "prompt", "prompt has 129 prompts: expected at most 128"),
        (
            {"prompt": [1] * 513},
            "prompt",
            "the prompt has 513 tokens: this model's maximum context length is 512 tokens",
        ),
        (
            {"response_format": {"type": "json"}},
            "response_format",
            'response_format.type: expected "text", "json_object" or "json_schema"',
        ),
    ],
    ids=str,
)
def test_ranges(served, fields, param, message):
    status, answer = completions(served, **fields)
    assert (status, answer["error"]["param"], answer["error"]["message"]) == (400, param, message)


@pytest.mark.parametrize(
    "messages,param,message",
    [
        ("hello", "messages", "messages is a string: expected a list"),
        ([], "messages", "messages has 0 messages: expected 1 to 4096"),
        (["x"], "messages[0]", "messages[0] is a string: expected an object"),
        (
            [{"content": "x"}],
            "messages[0].role",
            "messages[0].role: expected system, developer, user, assistant or tool",
        ),
        (
            [{"role": "user", "content": 1}],
            "messages[0].content",
            "messages[0].content is a whole number: expected a string or a list of parts",
        ),
        (
            [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}],
            "messages[0].content[0]",
            "messages[0].content[0] is of type image_url: the model reads text",
        ),
        (
            [{"role": "user", "content": [{"type": "text"}]}],
            "messages[0].content[0]",
            "messages[0].content[0] has no text",
        ),
        ([{"role": "user", "content": "x"}] * 4097, "messages", "messages has 4097 messages: expected 1 to 4096"),
    ],
    ids=str,
)
def test_messages(served, messages, param, message):
    status, answer = chat(served, messages=messages)
    assert (status, answer["error"]["param"], answer["error"]["message"]) == (400, param, message)


@pytest.mark.parametrize(
    "fields",
    [
        {"tools": [{"type": "function", "function": {"name": "f"}}]},
        {"tool_choice": "required"},
        {"functions": [{}]},
        {"audio": {}},
        {"modalities": ["text", "audio"]},
        {"web_search_options": {}},
        {"guided_grammar": "root ::= x"},
    ],
    ids=str,
)
def test_chat_refuses_by_name(served, fields):
    status, answer = chat(served, **fields)
    assert status == 400 and answer["error"]["param"] == next(iter(fields))


@pytest.mark.parametrize(
    "number", ["9223372036854775807", "9223372036854775808", "-9223372036854775809", "1" * 30, "-" + "9" * 300, "9" * 400,
               "1e999", "-1.5E+400", "0." + "3" * 400 + "e5", "1e-999"]
)  # fmt: skip
def test_numbers_of_any_size(served, number):
    """JSON has them, schemas have such bounds, and models write them in calls that clients send back. Texts that look like
    them are texts."""
    rest = json.dumps({"prompt": f'x {number[:40]}, \\"{number[:40]}"', "max_tokens": 2, "temperature": 0})
    plain = served.post("/v1/completions", rest.encode())
    assert plain[0] == 200
    body = f'{{"metadata": [{number},{number} ,{{"a":{number}}}], {rest[1:]}'.encode()
    status, answer = served.post("/v1/completions", body)
    assert (status, answer["choices"]) == (200, plain[1]["choices"]), answer
    schema = f'{{"type": "integer", "minimum": -5, "maximum": {number.lstrip("-")}}}'
    for given in (schema, json.dumps(schema)):
        asked = f'{{"prompt": "x", "max_tokens": 40, "temperature": 1, "guided_json": {given}}}'.encode()
        status, answer = served.post("/v1/completions", asked)
        assert status == 200 and -5 <= int(answer["choices"][0]["text"] or 0), answer
    status, answer = served.post("/v1/completions", f'{{"prompt": "x", "seed": {number}}}'.encode())
    assert (status == 400) == (number != "9223372036854775807") and (
        status == 200 or answer["error"]["param"] == "seed"
    )


@pytest.mark.parametrize(
    "body,message",
    [
        (b"", "the request has no body: expected a JSON object"),
        (b"[]", "the body is a list: expected a JSON object"),
        (b'"x"', "the body is not JSON: "),
        (b"{", "the body is not JSON: line 1, column 1: "),
        (b"{}x", "the body is not JSON: line 1, column 3: "),
        (b'{"a": 1, "a": 2}', "the body is not JSON: "),
        (b'{"prompt": "\\u0000"}', "line 1, column 19: no prompt can have \\u0000"),
        (b'{"prompt": "\xff"}', "the body is not JSON: "),
        (b'{"prompt": "\\ud800"}', "the body is not JSON: "),
        (b'{"temperature": NaN}', "the body is not JSON: "),
        (b'{"temperature": 1e}', "the body is not JSON: "),
        (b'{"seed": 099999999999999999999}', "the body is not JSON: "),
        (b'{"prompt": ' + b"[" * 100000 + b"]" * 100000 + b"}", "the body is nested deeper than 64"),
    ],
    ids=lambda v: str(v)[:30],
)
def test_bad_json(served, body, message):
    for path in ("completions", "chat/completions", "messages", "messages/count_tokens", "responses"):
        status, answer = served.post(f"/v1/{path}", body)
        assert status == 400 and answer["error"]["message"].startswith(message), answer
        assert answer["error"]["type"] == "invalid_request_error"
        assert set(answer) == ({"type", "error"} if "messages" in path else {"error"})
    for path in ("/tokenize", "/detokenize"):
        status, answer = served.post(path, body)
        assert status == 400 and answer["error"]["message"].startswith(message), answer
        assert answer["error"]["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    "path,fields,message",
    [
        ("/tokenize", {}, "prompt is missing"),
        ("/tokenize", {"prompt": 1}, "prompt is a whole number: expected a string"),
        (
            "/tokenize",
            {"prompt": "x", "return_token_strs": True},
            "return_token_strs: /detokenize gives the text of ids",
        ),
        ("/tokenize", {"messages": [{"role": "user", "content": "x"}]}, "the plan has no chat template"),
        ("/detokenize", {}, "tokens is missing"),
        ("/detokenize", {"tokens": "x"}, "tokens is a string: expected a list of token ids"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1] is -1: expected a token id below 2048"),
    ],
)
def test_tokens(served, path, fields, message):
    status, answer = served.post(path, fields)
    assert (status, answer["error"]["message"]) == (400, message)
