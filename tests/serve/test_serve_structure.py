"""Structured output over HTTP, by the official client, on the reference device.

The fixture writes nonsense, so what it writes is valid only because each token was drawn by a mask. `jsonschema`
judges."""

from __future__ import annotations

import concurrent.futures
import json
import pathlib
import re
import shutil
import time

import anthropic
import jsonschema
import openai
import pytest
import soak
from server import text_of

REPO = pathlib.Path(__file__).resolve().parent.parent.parent

PROMPT = "In the beginning"
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "minLength": 2, "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 150},
        "size": {"type": "number", "exclusiveMinimum": -1.5, "maximum": 2},
        "tags": {"type": "array", "items": {"enum": ["a", "b c", None]}, "maxItems": 3},
        "next": {"anyOf": [{"type": "null"}, {"type": "string", "pattern": "^[a-f]{2,4}$"}]},
    },
    "required": ["name", "age", "size", "tags", "next"],
    "additionalProperties": False,
}
LONG = 400  # tokens, more than any number of the schema needs in practice


def client_of(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def client(served):
    return client_of(served)


def ask(client, max_tokens=LONG, **more):
    return client.completions.create(model="tiny", prompt=PROMPT, max_tokens=max_tokens, **more)


def judge(choice, schema):
    """A whole answer is of the schema, a cut one is only cut: nothing could be otherwise by the mask alone."""
    if choice.finish_reason == "stop":
        jsonschema.validate(json.loads(choice.text), schema)
    else:
        assert choice.finish_reason == "length"
    return choice.finish_reason == "stop"


@pytest.mark.parametrize("temperature", [0, 0.7, 1, 2])
def test_every_answer_is_of_the_schema(client, temperature):
    whole = 0
    for seed in range(20):
        answer = ask(client, temperature=temperature, seed=seed, extra_body={"guided_json": SCHEMA})
        whole += judge(answer.choices[0], SCHEMA)
    assert whole >= (0 if temperature == 0 else 15)  # numbers may have digits without end


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "strict": True, "schema": SCHEMA}}},
        {"structured_outputs": {"json": SCHEMA, "regex": None}},
        {"guided_json": json.dumps(SCHEMA)},
    ],
    ids=["response_format", "structured_outputs", "guided_json"],
)
def test_all_fields_ask_for_the_same(client, fields):
    wanted = ask(client, temperature=1, seed=3, extra_body={"guided_json": SCHEMA})
    answer = ask(client, temperature=1, seed=3, extra_body=fields)
    assert answer.choices[0].text == wanted.choices[0].text and answer.choices[0].finish_reason == "stop"
    pieces = ask(client, temperature=1, seed=3, stream=True, extra_body=fields)
    chunks = [c.choices[0] for c in pieces if c.choices]
    assert "".join(c.text for c in chunks) == wanted.choices[0].text
    assert [c.finish_reason for c in chunks if c.finish_reason] == ["stop"]


def test_expressions_choices_and_objects(client):
    for seed in range(8):
        expression = r"(yes|no), [a-z]{3,9}[0-9]{2}!"
        answer = ask(client, temperature=1.5, seed=seed, extra_body={"structured_outputs": {"regex": expression}})
        assert re.fullmatch(expression, answer.choices[0].text), answer.choices[0].text
        choices = ["alpha", "alphabet", 'Å, "quoted"', "beta\n"]
        answer = ask(client, temperature=1.5, seed=seed, extra_body={"guided_choice": choices})
        assert answer.choices[0].text in choices and answer.choices[0].finish_reason == "stop"
        answer = ask(client, temperature=1, seed=seed, extra_body={"response_format": {"type": "json_object"}})
        if answer.choices[0].finish_reason == "stop":
            assert isinstance(json.loads(answer.choices[0].text), dict)


def test_text_is_no_structure(atlas, trained, client):
    answer = ask(client, 20, temperature=0, extra_body={"response_format": {"type": "text"}, "structured_outputs": {}})
    assert answer.choices[0].text == text_of(atlas, trained, PROMPT, 20, "--temperature", 0)


def test_several_answers_each_have_their_own_text(client):
    answer = ask(client, temperature=1, seed=5, n=2, extra_body={"guided_json": SCHEMA})
    alone = [ask(client, temperature=1, seed=5 + i, extra_body={"guided_json": SCHEMA}).choices[0].text for i in (0, 1)]
    assert [c.text for c in answer.choices] == alone and alone[0] != alone[1]


def test_log_probabilities_are_those_without_masks(client):
    answer = ask(client, temperature=0, logprobs=5, extra_body={"guided_choice": ["{}"]})
    logs = answer.choices[0].logprobs
    assert "".join(logs.tokens) == "{}" and all(p <= 0 for p in logs.token_logprobs)
    assert logs.tokens[0] not in logs.top_logprobs[0] or logs.token_logprobs[0] <= 0


def test_what_a_request_forbids_besides(client, served):
    """A stop string ends the text, a bias holds, and where both leave nothing the request fails by name."""
    answer = ask(client, temperature=0, stop=['"age"'], extra_body={"guided_json": SCHEMA})
    assert answer.choices[0].finish_reason == "stop" and '"age"' not in answer.choices[0].text
    first = ask(client, 1, temperature=0, extra_body={"guided_choice": ["a", "b"]}).choices[0].text
    status, ids = served.post("/tokenize", {"prompt": first, "add_special_tokens": False})
    assert status == 200 and len(ids["tokens"]) == 1
    other = ask(client, 1, temperature=0, logit_bias={str(ids["tokens"][0]): -100},
                extra_body={"guided_choice": ["a", "b"]})  # fmt: skip
    assert {first, other.choices[0].text} == {"a", "b"}


def test_limits_of_tokens_leave_no_answer_without_a_token(client, served):
    """An answer that is whole ends, whatever else is asked for; one that may go on does where it must not end."""
    for more in ({"min_tokens": 50}, {"ignore_eos": True}, {"min_tokens": 50, "ignore_eos": True}):
        for seed in range(6):
            answer = ask(client, 60, temperature=2, seed=seed, extra_body={"guided_choice": ["a", "ab"]} | more)
            assert (answer.choices[0].text, answer.choices[0].finish_reason) == ("ab", "stop"), answer
    for seed in range(6):
        answer = ask(client, 60, temperature=2, seed=seed, extra_body={"guided_choice": ["a", "ab"]})
        assert answer.choices[0].text in ("a", "ab") and answer.choices[0].finish_reason == "stop"
    answer = ask(client, 3, temperature=1, extra_body={"guided_json": SCHEMA})
    assert answer.choices[0].finish_reason == "length" and answer.usage.completion_tokens == 3
    status, ids = served.post("/tokenize", {"prompt": "{", "add_special_tokens": False})
    answer = ask(client, 20, temperature=1, extra_body={"guided_json": SCHEMA, "stop_token_ids": ids["tokens"]})
    assert answer.choices[0].finish_reason in ("stop", "length")  # it is a token of the text, and ends it
    answer = ask(client, temperature=1, seed=2, echo=True, n=2, extra_body={"guided_choice": ["yes", "no"]})
    assert all(c.text.removeprefix(PROMPT) in ("yes", "no") for c in answer.choices)


@pytest.mark.parametrize("kind", [{"guided_choice": ["Genesis"]}, {"guided_json": {"const": {"a": [1, "é"]}}}], ids=str)
def test_an_answer_that_is_whole_at_its_limit(served, kind):
    """It ends with "stop", whatever the limit; one token less is "length"."""
    asked = {"prompt": PROMPT, "temperature": 0} | kind
    status, whole = served.post("/v1/completions", asked | {"max_tokens": 60})
    n = whole["usage"]["completion_tokens"]
    assert whole["choices"][0]["finish_reason"] == "stop" and n > 1
    for limit, finish in ((n + 1, "stop"), (n, "stop"), (n - 1, "length")):
        body = asked | {"max_tokens": limit}
        [got] = served.post("/v1/completions", body)[1]["choices"]
        assert (got["finish_reason"], got["text"] == whole["choices"][0]["text"]) == (finish, finish == "stop")
        assert f'"finish_reason":"{finish}"'.encode() in served.stream("/v1/completions", body)


def test_what_no_token_is_left_for_fails_by_name(served):
    """A bias that forbids what the structure needs: an error, and the server goes on."""
    for text in ("a", "b"):
        assert served.post("/v1/completions", {"prompt": PROMPT, "guided_choice": [text], "max_tokens": 4})[0] == 200
    status, ids = served.post("/tokenize", {"prompt": "a", "add_special_tokens": False})
    body = {"prompt": PROMPT, "guided_choice": ["a"], "logit_bias": {str(t): -100 for t in ids["tokens"]}}
    status, answer = served.post("/v1/completions", body | {"max_tokens": 4})
    assert status == 200 or "no token" in answer["error"]["message"], answer
    assert served.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 4})[0] == 200


def test_a_structure_with_too_many_ways_to_go_on_fails_by_name(served):
    """All of its alternatives stay open: the text is whole and valid, or there is an error, never a text that is not."""
    ways = [{"type": "object", "maxProperties": i + 2} for i in range(1500)]
    schema = {"anyOf": ways}
    for seed in range(4):
        body = {"prompt": PROMPT, "guided_json": schema, "max_tokens": 24, "seed": seed, "temperature": 2}
        status, answer = served.post("/v1/completions", body, timeout=120)
        assert status in (200, 400), answer
        if status == 400:
            assert "too ambiguous" in answer["error"]["message"]
        elif answer["choices"][0]["finish_reason"] == "stop":
            jsonschema.validate(json.loads(answer["choices"][0]["text"]), schema)
    assert served.get("/health")[0] == 200


@pytest.mark.parametrize(
    "fields,param,words",
    [
        ({"guided_json": {"properties": {"a/b": {"$dynamicRef": "#"}}}}, "guided_json", "/properties/a~1b/$dynamicRef: $dynamicRef is not"),
        ({"guided_json": "{"}, "guided_json", "not JSON: line 1"),
        ({"guided_json": 5}, "guided_json", "a schema is expected"),
        ({"guided_json": {"type": "string", "pattern": "(?<=a)"}}, "guided_json", "/pattern: looking back"),
        ({"guided_json": {"type": "string", "pattern": "(a)\\1"}}, "guided_json", "references back"),
        ({"guided_json": {"$ref": "#/$defs/none"}}, "guided_json", "/$ref: there is no schema"),
        ({"guided_json": {"enum": list(range(4097))}}, "guided_json", "/enum: a list of 1 to 4096"),
        ({"guided_json": {"const": "x" * 66000}}, "guided_json", "more than 65536 bytes"),
        ({"guided_json": {"type": "object", "required": ["a"], "properties": {"a": False}}}, "guided_json", "nothing can"),
        ({"guided_json": {"properties": {"x" + "é" * 150: {"$dynamicRef": "#"}}}}, "guided_json", "é: $dynamicRef is not"),
        ({"guided_json": {"$ref": "#/" + "é" * 150}}, "guided_json", "there is no schema #/éé"),
        ({"guided_json": {"propertyNames": {"not": {"format": "date"}}}}, "guided_json", "/propertyNames/not/format: format is not"),
        ({"guided_regex": ""}, "guided_regex", "only the empty text"),
        ({"guided_regex": "(a"}, "guided_regex", "')' is missing"),
        ({"guided_regex": ["a"]}, "guided_regex", "expected a string"),
        ({"guided_choice": []}, "guided_choice", "1 to 4096 choices"),
        ({"guided_choice": ["a", 1]}, "guided_choice", "/1: a string"),
        ({"structured_outputs": {"grammar": "root ::= x"}}, "structured_outputs", "structured_outputs.grammar is not"),
        ({"structured_outputs": []}, "structured_outputs", "expected an object"),
        ({"response_format": {"type": "json_schema"}}, "response_format.schema", "expected a JSON schema"),
        ({"response_format": {"type": "xml"}}, "response_format", "expected \"text\""),
        ({"response_format": "json"}, "response_format", "expected an object"),
        ({"response_format": {"type": "json_object"}, "guided_regex": "a"}, "guided_regex", "already"),
        ({"guided_grammar": "x"}, "guided_grammar", "structures are"),
    ],
    ids=lambda v: None,
)  # fmt: skip
def test_refusals_have_a_place(served, client, fields, param, words):
    with pytest.raises(openai.BadRequestError) as refused:
        ask(client, 5, extra_body=fields)
    assert refused.value.param == param and words in refused.value.body["message"], refused.value.body
    assert served.get("/health")[0] == 200


def test_a_deep_or_ambiguous_source_is_refused_in_time(served):
    deep = {"type": "array"}
    for _ in range(40):
        deep = {"type": "array", "items": deep}
    for source in (
        {"guided_json": deep},
        {"guided_regex": "(a|b)*a(a|b){30}"},
        {"guided_regex": "(((a{999}){999}){999})"},
        {"guided_regex": "((((){65535}){65535}){65535}){65535}"},
        {"guided_regex": "a" + "*" * 60000},
    ):
        status, answer = served.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 4} | source, timeout=20)
        assert status == 400, answer


def test_a_long_compilation_holds_up_nobody(start, trained):
    """With one worker, while grammars of a tenth of a second each are compiled, a request without one is answered before
    most of them, and so is one whose grammar is kept."""
    server = start(trained, "--workers", 1)
    kept = {"prompt": PROMPT, "guided_choice": ["yes"], "max_tokens": 4}
    assert server.post("/v1/completions", kept)[0] == 200
    answered = []

    def ask_for(name, path, body):
        status, answer = server.post(path, body, timeout=120)
        assert status in (200, 400), answer
        answered.append(name)

    slow = [
        {"prompt": PROMPT, "guided_regex": f"(x|y)*x(x|y){{{13 + i % 2}}}{'z' * i}", "max_tokens": 1} for i in range(12)
    ]
    quick = [
        ("/tokenize", {"prompt": PROMPT}),
        ("/v1/completions", {"prompt": PROMPT, "max_tokens": 1}),
        ("/v1/completions", kept),
    ]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        waiting = [pool.submit(ask_for, "slow", "/v1/completions", body) for body in slow]
        until = time.monotonic() + 60
        while len(answered) < 1 and time.monotonic() < until:
            time.sleep(0.002)
        waiting += [pool.submit(ask_for, "quick", path, body) for path, body in quick]
        for one in waiting:
            one.result()
    last = max(i for i, name in enumerate(answered) if name == "quick")
    assert answered[: last + 1].count("slow") < len(slow) // 2, answered


@pytest.fixture(scope="module")
def drafting(small_plan_of, plan_of, tmp_path_factory):
    """Plans whose drafts are a head's, and the host's."""
    toml = tmp_path_factory.mktemp("drafts") / "MODEL.toml"
    toml.write_text(
        "[runtime]\nslots = 4\n[kv]\npage = 16\n[phases]\nprefill = [64]\ndecode = [4]\n"
        '[speculate]\ndrafter = "ngram"\nrows = 4\n'
    )
    folders = {}
    for name in ("llama-trained", "qwen3_5_moe-trained"):
        folders[name] = tmp_path_factory.mktemp("tools") / name
        shutil.copytree(REPO / "tests" / "fixtures" / name, folders[name])
        (folders[name] / "chat_template.jinja").write_text(soak.TEMPLATE)
    return {
        "head": small_plan_of(folders["qwen3_5_moe-trained"], "--target", "none", slots=4, decode="[4]", rows=3),
        "ngram": plan_of(folders["llama-trained"], "--target", "none", "--model", toml),
    }


REPEATS = {
    "type": "array", "minItems": 3, "maxItems": 6,
    "items": {"type": "object", "properties": {"kind": {"enum": ["place", "person"]}, "years": {"type": "integer", "maximum": 99}},
              "required": ["kind", "years"], "additionalProperties": False},
}  # fmt: skip
TOOL = {"type": "function", "function": {"name": "look_up", "parameters": {
    "type": "object", "properties": {"places": {"type": "array", "items": {"enum": ["Babylon", "Jerusalem"]}, "minItems": 4, "maxItems": 8}},
    "required": ["places"], "additionalProperties": False}}}  # fmt: skip
DRAFTED = {
    "schema": {"guided_json": REPEATS},
    "schema drawn": {"guided_json": REPEATS, "temperature": 1, "seed": 7},
    "regex": {"guided_regex": "(the king of (Judah|Israel), ){2,6}and [a-z ]{3,20}"},
    "free regex": {"guided_regex": "[a-z ,.]{20,200}", "temperature": 1, "top_p": 0.9},
    "choice": {"guided_choice": ["and the LORD said unto him", "and the LORD said unto Moses", "and it came to pass"]},
    "several": {"guided_json": REPEATS, "temperature": 1, "n": 3},
    "stop": {"guided_json": REPEATS, "stop": ['on", "years']},
    "min_tokens": {"guided_regex": "[a-z ]+", "min_tokens": 30, "temperature": 1},
    "bias": {"guided_json": REPEATS, "logit_bias": {"4": -2, "15": 1}, "temperature": 1},
    "penalties": {"guided_json": REPEATS, "repetition_penalty": 1.3, "presence_penalty": 0.5},
    "scores": {"guided_json": REPEATS, "logprobs": 3},
    "several choices": {
        "guided_json": {"type": "array", "items": {"enum": ["a", "b"]}, "uniqueItems": True, "minItems": 2}
    },
    "cut": {"guided_json": REPEATS, "max_tokens": 9},
}


@pytest.mark.parametrize("kind", ["head", "ngram"])
def test_drafts_of_structures(start, drafting, kind):
    """Each way to ask for a structure, with drafts: the very answer without, of fewer steps, alone and beside others."""
    answers, steps = [], []
    for options in (["--speculate", "off"], []):
        server = start(drafting[kind], "--name", "tiny", "--prefix-cache", "off", *options)
        mine = {}
        for name, fields in DRAFTED.items():
            status, got = server.post(
                "/v1/completions", {"prompt": PROMPT, "max_tokens": 160, "temperature": 0} | fields
            )
            assert status == 200, (name, got)
            mine[name] = [(c["text"], c["finish_reason"], c["logprobs"]) for c in got["choices"]], got["usage"]
        talk = {
            "messages": [{"role": "user", "content": PROMPT}],
            "max_tokens": 200,
            "tools": [TOOL],
            "tool_choice": "required",
        }
        for temperature in (0, 1):
            status, got = server.post("/v1/chat/completions", talk | {"temperature": temperature})
            [call] = got["choices"][0]["message"]["tool_calls"]
            mine["tool", temperature] = call["function"], got["usage"]
        steps.append(sum(n for (phase, _), n in server.steps().items() if phase != "prefill"))
        drafts, accepted = (server.metric(f"{name}_total") for name in ("drafts", "accepted"))
        with concurrent.futures.ThreadPoolExecutor(4) as pool:
            body = {"prompt": PROMPT, "max_tokens": 100, "temperature": 0}
            free = pool.submit(server.post, "/v1/completions", body)
            held = pool.map(
                lambda f: server.post("/v1/completions", body | {"max_tokens": 160} | f)[1], DRAFTED.values()
            )
            mine["beside"] = [[c["text"] for c in got["choices"]] for got in held]
            mine["free"] = [c["text"] for c in free.result()[1]["choices"]]
        assert mine["beside"] == [[c[0] for c in mine[name][0]] for name in DRAFTED]
        answers.append(mine)
        assert server.stop() == 0
    for name, fields in DRAFTED.items():
        assert answers[0][name] == answers[1][name], name
        for text, end, _ in answers[0][name][0]:
            if "guided_regex" in fields and end == "stop":
                assert re.fullmatch(fields["guided_regex"], text), name
            elif "guided_json" in fields and end == "stop" and "stop" not in fields:
                jsonschema.validate(json.loads(text), fields["guided_json"])
    assert answers[0] == answers[1]
    assert drafts >= accepted > 20 and steps[1] < steps[0] - 20, (drafts, accepted, steps)


@pytest.mark.parametrize("kind", ["head", "ngram"])
def test_a_peer_that_leaves_a_drafted_structure(start, drafting, kind):
    """Its slot's masks are nobody's: later answers are those of a server that saw nothing else."""
    server = start(drafting[kind], "--name", "tiny", "--prefix-cache", "off")
    ask = {"prompt": PROMPT, "max_tokens": 60, "temperature": 1, "seed": 2}
    held = ask | {"guided_json": REPEATS}
    fresh = [server.post("/v1/completions", body)[1]["choices"] for body in (ask, held)]
    for n in range(6):
        body = json.dumps(
            held
            | {"max_tokens": 400, "stream": True, "seed": n, "guided_json": REPEATS | {"minItems": 90, "maxItems": 99}}
        )
        head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n"
        with server.raw((head + body).encode()) as s:
            assert b"200 OK" in s.recv(4096)
            time.sleep(0.02 * n)
        assert [server.post("/v1/completions", body)[1]["choices"] for body in (ask, held)] == fresh
    server.settles("slots_used", 0)
    assert server.stop() == 0


@pytest.mark.parametrize("kind", ["head", "ngram"])
def test_where_plans_draft(start, drafting, kind):
    """Masked answers and others beside them draft, and both are those of a plan that drafts nothing."""
    texts = []
    for options in ([], ["--speculate", "off"]):
        server = start(drafting[kind], "--name", "tiny", *options)
        client = client_of(server)
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            free = pool.submit(ask, client, 120, temperature=0, extra_body={"ignore_eos": True})
            masked = [
                ask(client, 120, temperature=1, seed=seed, extra_body={"guided_json": SCHEMA}).choices[0]
                for seed in range(6)
            ]
            texts.append([free.result().choices[0].text, *(c.text for c in masked)])
        for choice in masked:
            judge(choice, SCHEMA)
        assert any(c.finish_reason == "stop" for c in masked)
        if not options:
            assert server.metric("drafts_total") > 0
        assert server.stop() == 0
    assert texts[0] == texts[1]


def test_eight_at_once_half_of_them_free(start, atlas, wide):
    server = start(wide, "--name", "tiny")
    client = client_of(server)
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(ask, client, 150, temperature=1, seed=i, extra_body={"guided_json": SCHEMA} if i % 2 else {})
            for i in range(16)
        ]
        answers = [a.result().choices[0] for a in asked]
    for i, choice in enumerate(answers):
        if i % 2:
            judge(choice, SCHEMA)
        else:
            assert choice.text == text_of(atlas, wide, PROMPT, 150, "--temperature", 1, "--seed", i)
    alone = ask(client, 150, temperature=1, seed=3, extra_body={"guided_json": SCHEMA}).choices[0]
    assert alone.text == answers[3].text
    assert server.metric("slots_used") == 0 and server.stop() == 0


def test_all_apis(talker):
    """Chat, Responses and Messages, by their clients, streamed and whole."""
    chat = client_of(talker)
    messages = anthropic.Anthropic(base_url=f"http://127.0.0.1:{talker.port}", api_key="none", max_retries=0)
    said, form = [{"role": "user", "content": PROMPT}], {"type": "json_schema", "schema": SCHEMA}
    texts = set()
    for stream in (False, True):
        answer = chat.chat.completions.create(
            model="tiny", messages=said, temperature=1, seed=1, max_tokens=LONG, stream=stream,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": SCHEMA}},
        )  # fmt: skip
        if stream:
            chunks = [c.choices[0] for c in answer]
            texts.add("".join(c.delta.content or "" for c in chunks))
            assert chunks[-1].finish_reason == "stop"
        else:
            texts.add(answer.choices[0].message.content)
            assert answer.choices[0].finish_reason == "stop"
    assert len(texts) == 1
    response = chat.responses.create(
        model="tiny", input=PROMPT, max_output_tokens=LONG, text={"format": form | {"name": "x"}}
    )
    if response.status == "completed":
        texts.add(response.output_text)
    message = messages.messages.create(
        model="tiny", messages=said, max_tokens=LONG, extra_body={"output_config": {"format": form}}
    )
    if message.stop_reason == "end_turn":
        texts.add(message.content[0].text)
    for text in texts:
        jsonschema.validate(json.loads(text), SCHEMA)
    assert response.status in ("completed", "incomplete") and message.stop_reason in ("end_turn", "max_tokens")


def test_a_peer_that_leaves_frees_the_slot(served):
    body = json.dumps({"prompt": PROMPT, "max_tokens": 500, "stream": True, "guided_regex": "[a-z ]{2000}"}).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    with served.raw(head + body) as s:
        assert b"200 OK" in s.recv(4096)
    served.settles("slots_used", 0)
