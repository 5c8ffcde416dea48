"""The official `openai` client against `atlas serve` on the reference device."""

from __future__ import annotations

import asyncio

import openai
import pytest
from server import text_of

PROMPT = "In the beginning"


@pytest.fixture(scope="module")
def client(served):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{served.port}/v1", api_key="none", max_retries=0)


def greedy(client, **more):
    return client.completions.create(**{"model": "tiny", "prompt": PROMPT, "max_tokens": 20, "temperature": 0} | more)


def test_a_text_is_that_of_run(atlas, trained, client):
    answer = greedy(client)
    assert answer.choices[0].text == text_of(atlas, trained, PROMPT, 20, "--temperature", 0)
    assert answer.choices[0].finish_reason == "length" and answer.choices[0].index == 0
    assert answer.object == "text_completion" and answer.model == "tiny" and answer.id.startswith("cmpl-")
    assert answer.usage.prompt_tokens == 4 and answer.usage.completion_tokens == 20 and answer.usage.total_tokens == 24


def test_plan_settings_decide_what_a_request_leaves_out(atlas, trained, client):
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=20, seed=7)
    assert answer.choices[0].text == text_of(atlas, trained, PROMPT, 20, "--seed", 7)
    assert len(client.completions.create(model="tiny", prompt=PROMPT).choices[0].text.split()) > 4
    assert client.completions.create(model="tiny", prompt=PROMPT).usage.completion_tokens <= 16


@pytest.mark.parametrize("options,words", [
    ({"temperature": 1.3, "seed": 5}, ["--temperature", 1.3, "--seed", 5]),
    ({"temperature": 0.9, "top_p": 0.8, "seed": 2}, ["--temperature", 0.9, "--top-p", 0.8, "--seed", 2]),
    ({"temperature": 0.9, "seed": -1}, ["--temperature", 0.9, "--seed", (1 << 64) - 1]),
    ({"temperature": 1, "presence_penalty": 1.5, "frequency_penalty": 0.5},
     ["--temperature", 1, "--presence-penalty", 1.5, "--frequency-penalty", 0.5]),
    ({"temperature": 1, "extra_body": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2}},
     ["--temperature", 1, "--top-k", 5, "--min-p", 0.1, "--repetition-penalty", 1.2])], ids=str)
def test_sampling(atlas, trained, client, options, words):
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=24, **options)
    assert answer.choices[0].text == text_of(atlas, trained, PROMPT, 24, *words)


def test_n_answers_have_seeds_one_after_the_other(atlas, trained, client):
    answer = client.completions.create(model="tiny", prompt=[PROMPT, "And the LORD"], max_tokens=16, temperature=1,
                                       seed=40, n=2)
    texts = [text_of(atlas, trained, p, 16, "--temperature", 1, "--seed", s)
             for p in (PROMPT, "And the LORD") for s in (40, 41)]
    assert [c.index for c in answer.choices] == [0, 1, 2, 3] and [c.text for c in answer.choices] == texts
    pieces = ["", ""]
    for chunk in client.completions.create(model="tiny", prompt=PROMPT, max_tokens=16, temperature=1, seed=40, n=2,
                                           stream=True):
        pieces[chunk.choices[0].index] += chunk.choices[0].text
    assert pieces == texts[:2]


def test_prompts_of_ids(client, served):
    ids = served.post("/tokenize", {"prompt": PROMPT})[1]["tokens"]
    assert greedy(client, prompt=ids).choices[0].text == greedy(client).choices[0].text
    two = greedy(client, prompt=[ids, ids])
    assert [c.text for c in two.choices] == [greedy(client).choices[0].text] * 2 and two.usage.prompt_tokens == 8


def test_stream(client):
    whole = greedy(client)
    chunks = list(greedy(client, stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].text for c in chunks if c.choices) == whole.choices[0].text
    assert [c.choices[0].finish_reason for c in chunks[:-1]] == [None] * (len(chunks) - 2) + ["length"]
    assert chunks[-2].choices[0].text == "" and chunks[-1].choices == [] and chunks[-1].usage == whole.usage
    assert {c.id for c in chunks} == {chunks[0].id} and all(c.usage is None for c in chunks[:-1])
    each = list(greedy(client, stream=True, extra_body={"stream_options": {"continuous_usage_stats": True}}))
    assert [c.usage.completion_tokens for c in each][-2:] == [20, 20] and each[0].usage.completion_tokens == 1


@pytest.mark.parametrize("stream", [False, True])
def test_stop_strings(client, stream):
    text = greedy(client, max_tokens=40).choices[0].text
    for at, length in ((0, 3), (9, 5), (14, 11)):
        stop = text[at:at + length]
        answer = greedy(client, max_tokens=40, stop=["never", stop], stream=stream)
        choices = [c.choices[0] for c in answer] if stream else answer.choices
        assert "".join(c.text for c in choices) == text[:text.index(stop)] and choices[-1].finish_reason == "stop"
    answer = greedy(client, max_tokens=40, stop=text + "!", stream=stream)
    choices = [c.choices[0] for c in answer] if stream else answer.choices
    assert "".join(c.text for c in choices) == text and choices[-1].finish_reason == "length"


def test_stop_token_ids(client, served):
    text = greedy(client, max_tokens=12).choices[0].text
    ids = served.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"]
    answer = greedy(client, max_tokens=12, extra_body={"stop_token_ids": [ids[3]]})
    assert answer.choices[0].finish_reason == "stop" and text.startswith(answer.choices[0].text)
    assert answer.usage.completion_tokens == ids.index(ids[3]) + 1


def test_logprobs(client):
    whole = greedy(client, max_tokens=8, logprobs=0)
    found = whole.choices[0].logprobs
    assert "".join(found.tokens) == whole.choices[0].text and len(found.tokens) == 8
    assert all(-30 < x <= 0 for x in found.token_logprobs)
    assert found.text_offset == [sum(map(len, found.tokens[:i])) for i in range(8)]
    streamed = list(greedy(client, max_tokens=8, logprobs=0, stream=True))
    parts = [c.choices[0].logprobs for c in streamed if c.choices[0].logprobs]
    assert sum((p.tokens for p in parts), []) == found.tokens
    assert sum((p.token_logprobs for p in parts), []) == found.token_logprobs
    assert sum((p.text_offset for p in parts), []) == found.text_offset


def test_echo(client):
    text = greedy(client).choices[0].text
    assert greedy(client, echo=True).choices[0].text == PROMPT + text
    assert "".join(c.choices[0].text for c in greedy(client, echo=True, stream=True)) == PROMPT + text


def test_models(client, served):
    assert [m.id for m in client.models.list()] == ["tiny", "org/alias"]
    assert client.models.retrieve("tiny").owned_by == "atlas"
    assert client.models.retrieve("org/alias").id == "org/alias"
    assert served.get("/v1/models/org%2Falias")[1]["id"] == "org/alias"
    assert greedy(client, model="org/alias").model == "tiny"
    with pytest.raises(openai.NotFoundError) as e:
        greedy(client, model="gpt-9")
    assert e.value.code == "model_not_found" and e.value.param == "model"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("gpt-9")


def test_fingerprint_is_the_plan(atlas, trained, client, served):
    root = atlas("info", trained, "--json").stdout.split('"root": "')[1][:64]
    assert greedy(client).system_fingerprint == root[:12]
    assert served.get("/v1/plan")[1]["root"] == root


def test_errors_are_the_clients_classes(client):
    with pytest.raises(openai.BadRequestError) as e:
        greedy(client, prompt="word " * 3000)
    assert e.value.code == "context_length_exceeded" and "512" in e.value.message and e.value.param == "prompt"
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}])
    assert e.value.param == "messages" and e.value.message.endswith("the plan has no chat template")
    with pytest.raises(openai.BadRequestError) as e:
        client.chat.completions.create(model="tiny", messages=[{"role": "user", "content": "hello"}],
                                       tools=[{"type": "function", "function": {"name": "f"}}])
    assert e.value.param == "tools"
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="tiny", input="x")


def test_32_clients_say_what_each_says_alone(atlas, wide, start):
    """Every text with 32 clients at once is that of `atlas run` with the prompt alone; no slot is lost."""
    server = start(wide, "--name", "tiny", "--max-queue", 64)
    prompts = [f"{PROMPT} {'of the king ' * (i % 5)}{i}" for i in range(32)]

    async def all_of_them():
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)

        async def one(i):
            kwargs = {"model": "tiny", "prompt": prompts[i], "max_tokens": 20, "temperature": 0.8, "seed": i}
            if i % 2:
                return (await client.completions.create(**kwargs)).choices[0].text
            return "".join([c.choices[0].text async for c in await client.completions.create(stream=True, **kwargs)])

        return await asyncio.gather(*map(one, range(32)))

    texts = asyncio.run(all_of_them())
    for i in range(0, 32, 3):
        assert texts[i] == text_of(atlas, wide, prompts[i], 20, "--temperature", 0.8, "--seed", i)
    assert len(set(texts)) > 16
    server.settles("slots_used", 0)
    server.settles("kv_pages_used", 0)
    assert server.stop() == 0
