"""Chat Completions over plans with a chat template; `transformers` says what the prompts are."""

from __future__ import annotations

import json
import re
import shutil

import openai
import pytest
from server import Server
from transformers import AutoTokenizer

TEMPLATE = """{%- for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['content'] is string %}{{ message['content'] }}
{%- else %}{% for part in message['content'] or [] %}{{ part['text'] }}{% endfor %}{% endif %}
{{- '<|im_end|>\\n' }}{% endfor %}
{%- if reasoning_effort is defined %}{{ 'effort ' + reasoning_effort }}{% endif %}
{%- if messages[-1]['content'] == 'refuse me' %}{{ raise_exception('that cannot be said') }}{% endif %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
SIMPLE = "{% for m in messages %}{{ m.role + ': ' + m.content + '\\n' }}{% endfor %}"
TALK = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "In the beginning"}]


@pytest.fixture(scope="module")
def folders(repo, tmp_path_factory):
    """llama-trained with two templates and their control tokens."""
    made = {}
    for name, template in (("parts", TEMPLATE), ("simple", SIMPLE)):
        folder = made[name] = tmp_path_factory.mktemp(name) / "llama-trained"
        shutil.copytree(repo / "tests" / "fixtures" / "llama-trained", folder)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": template}))
    return made


@pytest.fixture(scope="module")
def chat(atlas, small_plan_of, folders):
    server = Server(atlas, small_plan_of(folders["parts"]), "--name", "tiny")
    yield server
    assert server.stop() == 0


@pytest.fixture(scope="module")
def oracle(folders):
    return AutoTokenizer.from_pretrained(folders["parts"])


@pytest.fixture(scope="module")
def client(chat):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{chat.port}/v1", api_key="none", max_retries=0)


@pytest.mark.parametrize(
    "talk,more",
    [
        (TALK, {}),
        (TALK, {"add_generation_prompt": False}),
        (
            TALK + [{"role": "assistant", "content": "God"}],
            {"continue_final_message": True, "add_generation_prompt": False},
        ),
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}], {}),
        (
            [
                {"role": "user", "content": "x"},
                {"role": "assistant", "content": None},
                {"role": "user", "content": "z"},
            ],
            {},
        ),
        ([{"role": "user", "content": '\u00e9 \U0001f600 \u6c34 \\ " \n'}], {}),
    ],
    ids=str,
)
def test_prompts_are_those_of_transformers(chat, oracle, talk, more):
    text = oracle.apply_chat_template(talk, tokenize=False, **({"add_generation_prompt": True} | more))
    status, got = chat.post("/tokenize", {"messages": talk} | more)
    assert status == 200 and got["tokens"] == oracle(text, add_special_tokens=False)["input_ids"]


def test_variables_of_the_template(chat, oracle):
    asked = {"messages": TALK, "reasoning_effort": "high"}
    text = oracle.apply_chat_template(TALK, tokenize=False, add_generation_prompt=True, reasoning_effort="high")
    assert chat.post("/tokenize", asked)[1]["tokens"] == oracle(text, add_special_tokens=False)["input_ids"]
    asked["chat_template_kwargs"] = {"reasoning_effort": "low"}
    text = text.replace("effort high", "effort low")
    assert chat.post("/tokenize", asked)[1]["tokens"] == oracle(text, add_special_tokens=False)["input_ids"]


def test_arguments_of_tool_calls_are_what_the_template_takes(folders, small_plan_of, start, tmp_path):
    """They come as text, which is how clients send them; templates that list them, as Qwen3.5's does, get objects."""
    shutil.copytree(folders["parts"], tmp_path / "calls")
    (tmp_path / "calls/chat_template.jinja").write_text(
        "{% for m in messages %}{{ m.role }}:{{ m.content or '' }}{% for c in m.tool_calls %}"
        "{% for k, v in c.function.arguments | items %} {{ k }}={{ v }}{% endfor %}{% endfor %};{% endfor %}"
    )
    server = start(small_plan_of(tmp_path / "calls"))
    call = {"id": "call_1", "type": "function", "function": {"name": "w", "arguments": '{"city": "Ur", "days": 2}'}}
    talk = [TALK[1], {"role": "assistant", "content": None, "tool_calls": [call]}, {"role": "tool", "content": "dry"}]
    got = server.post("/tokenize", {"messages": talk, "add_generation_prompt": False})[1]
    want = "user:In the beginning;assistant: city=Ur days=2;tool:dry;"
    assert server.post("/detokenize", {"tokens": got["tokens"]})[1]["prompt"] == want


def test_developer_is_system_where_the_template_does_not_know_it(chat):
    talk = [{"role": "developer", "content": "Be brief."}, TALK[1]]
    assert chat.post("/tokenize", {"messages": talk})[1] == chat.post("/tokenize", {"messages": TALK})[1]


def test_control_tokens_of_users_are_text(chat, oracle):
    special = next(t for t in oracle.all_special_tokens)
    ids = chat.post("/tokenize", {"messages": [{"role": "user", "content": special}]})[1]["tokens"]
    assert oracle.convert_tokens_to_ids(special) not in ids


def test_an_answer_is_that_of_its_prompt(chat, client):
    ids = chat.post("/tokenize", {"messages": TALK})[1]["tokens"]
    text = client.completions.create(model="tiny", prompt=ids, max_tokens=20, temperature=0).choices[0].text
    answer = client.chat.completions.create(model="tiny", messages=TALK, max_tokens=20, temperature=0)
    assert answer.choices[0].message.content == text and answer.choices[0].message.role == "assistant"
    assert answer.usage.prompt_tokens == len(ids) and answer.usage.completion_tokens == 20
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
    newer = client.chat.completions.create(
        model="tiny", messages=TALK, max_tokens=3, max_completion_tokens=20, temperature=0
    )
    assert newer.choices[0].message.content == text
    with client.chat.completions.stream(model="tiny", messages=TALK, max_tokens=20, temperature=0) as stream:
        for _ in stream:
            pass
        final = stream.current_completion_snapshot
    assert final.choices[0].message.content == text and final.choices[0].finish_reason == "length"


def test_without_a_limit_the_plans_own_counts(atlas, folders, small_plan_of, client):
    answer = client.chat.completions.create(model="tiny", messages=TALK, temperature=0)
    own = json.loads(atlas("info", small_plan_of(folders["parts"]), "--json").stdout)["max_new_tokens"]
    assert answer.usage.completion_tokens == own > 100 and answer.choices[0].finish_reason == "length"


def test_logprobs(client):
    answer = client.chat.completions.create(model="tiny", messages=TALK, max_tokens=6, temperature=0, logprobs=True)
    rows = answer.choices[0].logprobs.content
    assert "".join(r.token for r in rows) == answer.choices[0].message.content
    assert all(bytes(r.bytes).decode() == r.token and -30 < r.logprob <= 0 and r.top_logprobs == [] for r in rows)
    streamed = client.chat.completions.create(
        model="tiny", messages=TALK, max_tokens=6, temperature=0, logprobs=True, stream=True
    )
    seen = [r for c in streamed if c.choices[0].logprobs for r in c.choices[0].logprobs.content]
    assert seen == rows


def test_golden_stream(chat):
    body = chat.stream(
        "/v1/chat/completions",
        {"messages": TALK, "max_tokens": 2, "temperature": 0, "n": 1, "stream_options": {"include_usage": True}},
    )
    text = re.sub(r'"id":"chatcmpl-[0-9a-f]{24}"', '"id":"ID"', body.decode())
    text = re.sub(r'"created":\d{10}', '"created":0', text)
    text = re.sub(r'"system_fingerprint":"[0-9a-f]{12}"', '"system_fingerprint":"ROOT"', text)
    words = re.findall(r'"delta":\{"content":("[^"]*")\}', text)
    head = 'data: {"id":"ID","object":"chat.completion.chunk","created":0,"model":"tiny","system_fingerprint":"ROOT","choices":['

    def chunk(delta, finish="null"):
        return head + f'{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}],"usage":null}}\n\n'

    n = len(chat.post("/tokenize", {"messages": TALK})[1]["tokens"])
    assert (
        text
        == "".join(
            [
                chunk('{"role":"assistant","content":""}'),
                *(chunk(f'{{"content":{w}}}') for w in words),
                chunk("{}", '"length"'),
                head
                + f'],"usage":{{"prompt_tokens":{n},"completion_tokens":2,"total_tokens":{n + 2},"prompt_tokens_details":'
                '{"cached_tokens":0},"completion_tokens_details":{"reasoning_tokens":0}}}\n\n',
                "data: [DONE]\n\n",
            ]
        )
        and len(words) == 2
    )


def test_golden_logprobs(chat):
    """Each token with its bytes and as many others as were asked for."""
    asked = {"messages": TALK, "max_tokens": 1, "temperature": 0, "logprobs": True, "top_logprobs": 2}
    status, _, body = chat.ask("POST", "/v1/chat/completions", json.dumps(asked))
    token = r'\{"token":"[^"]*","logprob":-\d+(\.\d+)?,"bytes":\[\d+(,\d+)*\]'
    assert status == 200 and re.search(
        r'"logprobs":\{"content":\[%s,"top_logprobs":\[%s\},%s\}\]\}\],"refusal":null\},"finish_reason":"length"\}\],"usage"'
        % (token, token, token),
        body.decode(),
    )
    events = chat.stream("/v1/chat/completions", asked).decode().split("\n\n")
    assert len(events) == 5 and events[3:] == ["data: [DONE]", ""]
    assert re.search(r'\{"index":0,"delta":\{"content":"[^"]*"\},"logprobs":\{"content":\[%s' % token, events[1])
    assert '"delta":{},"logprobs":null,"finish_reason":"length"' in events[2]


def test_golden_answer(chat):
    status, _, body = chat.ask(
        "POST", "/v1/chat/completions", json.dumps({"messages": TALK, "max_tokens": 2, "temperature": 0})
    )
    assert status == 200 and re.fullmatch(
        r'\{"id":"chatcmpl-[0-9a-f]{24}","object":"chat\.completion","created":\d{10},"model":"tiny","system_fingerprint":'
        r'"[0-9a-f]{12}","choices":\[\{"index":0,"message":\{"role":"assistant","content":"[^"]*","refusal":null\},"logprobs":'
        r'null,"finish_reason":"length"\}\],"usage":\{"prompt_tokens":\d+,"completion_tokens":2,"total_tokens":\d+,'
        r'"prompt_tokens_details":\{"cached_tokens":0\},"completion_tokens_details":\{"reasoning_tokens":0\}\}\}',
        body.decode(),
    )


def test_the_template_refuses(chat):
    status, answer = chat.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "refuse me"}]})
    assert (
        status == 400 and answer["error"]["param"] == "messages" and "that cannot be said" in answer["error"]["message"]
    )


def test_a_conversation_longer_than_the_context(chat):
    status, answer = chat.post("/v1/chat/completions", {"messages": [{"role": "user", "content": "word " * 2000}]})
    assert (
        status == 400
        and answer["error"]["code"] == "context_length_exceeded"
        and answer["error"]["param"] == "messages"
    )


def test_top_logprobs(client):
    """At temperature 0 the drawn token is the first alternative, and its log probability that of the token."""
    answer = client.chat.completions.create(
        model="tiny", messages=TALK, max_tokens=6, temperature=0, logprobs=True, top_logprobs=20
    )
    for row in answer.choices[0].logprobs.content:
        assert len(row.top_logprobs) == 20 and row.top_logprobs[0].token == row.token
        assert row.top_logprobs[0].logprob == row.logprob
        found = [t.logprob for t in row.top_logprobs]
        assert found == sorted(found, reverse=True) and sum(2.718281828**x for x in found) <= 1.0001
    plain = client.chat.completions.create(model="tiny", messages=TALK, max_tokens=6, temperature=0)
    assert plain.choices[0].message.content == answer.choices[0].message.content
    streamed = client.chat.completions.create(
        model="tiny", messages=TALK, max_tokens=6, temperature=0, logprobs=True, top_logprobs=20, stream=True
    )
    seen = [r for c in streamed if c.choices[0].logprobs for r in c.choices[0].logprobs.content]
    assert seen == answer.choices[0].logprobs.content


def test_answers_side_by_side(client):
    """n of them in one stream: each with its role first and its reason last, and the texts, seeds and scores of n
    requests."""
    asked = {"model": "tiny", "messages": TALK, "max_tokens": 12, "temperature": 1, "logprobs": True}
    alone = [client.chat.completions.create(**asked, seed=50 + i).choices[0] for i in range(2)]
    whole = client.chat.completions.create(**asked, seed=50, n=2)
    assert [c.message.content for c in whole.choices] == [c.message.content for c in alone]
    assert [c.logprobs for c in whole.choices] == [c.logprobs for c in alone]
    stream = client.chat.completions.create(
        **asked, seed=50, n=2, stream=True, stop=["never"], stream_options={"include_usage": True}
    )
    seen = {0: [], 1: []}
    for chunk in stream:
        if chunk.choices:
            seen[chunk.choices[0].index].append(chunk.choices[0])
    assert chunk.choices == [] and chunk.usage == whole.usage
    for i, choices in seen.items():
        assert choices[0].delta.role == "assistant" and choices[0].delta.content == ""
        assert "".join(c.delta.content or "" for c in choices) == alone[i].message.content
        assert [c.finish_reason for c in choices] == [None] * (len(choices) - 1) + [alone[i].finish_reason]
        assert choices[-1].delta.content is None and choices[-1].delta.role is None


@pytest.mark.parametrize(
    "fields,param",
    [
        ({"chat_template_kwargs": 1}, "chat_template_kwargs"),
        ({"chat_template_kwargs": {"messages": []}}, "chat_template_kwargs"),
        ({"reasoning_effort": 1}, "reasoning_effort"),
        ({"add_generation_prompt": "x"}, "add_generation_prompt"),
        ({"continue_final_message": 3}, "continue_final_message"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"logprobs": 1}, "logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
    ],
    ids=str,
)
def test_wrong_fields(chat, fields, param):
    status, answer = chat.post("/v1/chat/completions", {"messages": TALK} | fields)
    assert status == 400 and answer["error"]["param"] == param


def test_parts_are_joined_for_a_template_that_takes_texts(atlas, small_plan_of, folders, start):
    server = start(small_plan_of(folders["simple"]))
    parts = [{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}]
    got = server.post("/tokenize", {"messages": parts, "add_generation_prompt": False})[1]["tokens"]
    assert got == server.post("/tokenize", {"prompt": "user: a\nb\n", "add_special_tokens": False})[1]["tokens"]
