"""The official `openai` client against `atlas serve` on the reference device."""

from __future__ import annotations

import asyncio
import json
import math
import shutil
import subprocess
import sys

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


@pytest.mark.parametrize(
    "options,words",
    [
        ({"temperature": 1.3, "seed": 5}, ["--temperature", 1.3, "--seed", 5]),
        ({"temperature": 0.9, "top_p": 0.8, "seed": 2}, ["--temperature", 0.9, "--top-p", 0.8, "--seed", 2]),
        ({"temperature": 0.9, "seed": -1}, ["--temperature", 0.9, "--seed", (1 << 64) - 1]),
        (
            {"temperature": 1, "presence_penalty": 1.5, "frequency_penalty": 0.5},
            ["--temperature", 1, "--presence-penalty", 1.5, "--frequency-penalty", 0.5],
        ),
        (
            {"temperature": 1, "extra_body": {"top_k": 5, "min_p": 0.1, "repetition_penalty": 1.2}},
            ["--temperature", 1, "--top-k", 5, "--min-p", 0.1, "--repetition-penalty", 1.2],
        ),
    ],
    ids=str,
)
def test_sampling(atlas, trained, client, options, words):
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=24, **options)
    assert answer.choices[0].text == text_of(atlas, trained, PROMPT, 24, *words)


def test_n_answers_have_seeds_one_after_the_other(atlas, trained, client):
    answer = client.completions.create(
        model="tiny", prompt=[PROMPT, "And the LORD"], max_tokens=16, temperature=1, seed=40, n=2
    )
    texts = [
        text_of(atlas, trained, p, 16, "--temperature", 1, "--seed", s)
        for p in (PROMPT, "And the LORD")
        for s in (40, 41)
    ]
    assert [c.index for c in answer.choices] == [0, 1, 2, 3] and [c.text for c in answer.choices] == texts
    pieces = ["", ""]
    for chunk in client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=16, temperature=1, seed=40, n=2, stream=True
    ):
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
        stop = text[at : at + length]
        answer = greedy(client, max_tokens=40, stop=["never", stop], stream=stream)
        choices = [c.choices[0] for c in answer] if stream else answer.choices
        assert "".join(c.text for c in choices) == text[: text.index(stop)] and choices[-1].finish_reason == "stop"
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


def test_top_logprobs(client):
    whole = greedy(client, max_tokens=8, logprobs=5).choices[0].logprobs
    for token, logprob, top in zip(whole.tokens, whole.token_logprobs, whole.top_logprobs, strict=True):
        assert 3 < len(top) <= 5 and max(top, key=top.get) == token and top[token] == logprob


def test_scores_of_a_prompt(client):
    """echo with logprobs: a greedy answer, sent back as a prompt, has the log probabilities it was drawn with, which the
    device's sampler added up and not the host."""
    made = greedy(client, max_tokens=30, logprobs=5).choices[0]
    text = PROMPT + made.text
    whole = greedy(client, prompt=text, max_tokens=0, echo=True, logprobs=5)
    found = whole.choices[0].logprobs
    assert (whole.choices[0].text, whole.choices[0].finish_reason, whole.usage.completion_tokens) == (text, "length", 0)
    assert found.tokens[4:] == made.logprobs.tokens and "".join(found.tokens) == text
    assert found.token_logprobs[4:] == pytest.approx(made.logprobs.token_logprobs, abs=2e-5)
    assert found.token_logprobs[0] is None and found.top_logprobs[0] is None
    assert found.text_offset == [sum(map(len, found.tokens[:i])) for i in range(34)]
    for token, logprob, top in list(zip(found.tokens, found.token_logprobs, found.top_logprobs, strict=True))[4:]:
        assert max(top, key=top.get) == token and max(top.values()) == logprob  # as lm-eval looks for greedy tokens
    answered = greedy(client, prompt=text, max_tokens=3, echo=True, logprobs=5).choices[0]
    assert answered.logprobs.token_logprobs[:34] == found.token_logprobs and len(answered.logprobs.tokens) == 37
    assert answered.logprobs.text_offset[34] == len(text) and answered.text.startswith(text)
    streamed = list(greedy(client, prompt=text, max_tokens=3, echo=True, logprobs=5, stream=True))
    parts = [c.choices[0].logprobs for c in streamed if c.choices[0].logprobs]
    assert sum((p.token_logprobs for p in parts), []) == answered.logprobs.token_logprobs
    assert sum((p.text_offset for p in parts), []) == answered.logprobs.text_offset
    assert "".join(c.choices[0].text for c in streamed) == answered.text


def test_scores_of_many_prompts(atlas, trained, client, served, tmp_path):
    """Each has its own, beside answers; their mean is the perplexity that `atlas perplexity` says."""
    text = "In the beginning God created the heaven and the earth. And the earth was without form, and void."
    ids = served.post("/tokenize", {"prompt": text})[1]["tokens"]
    prompts = [ids, ids[:7], ids[:1], ids[:12]]
    answers = greedy(client, prompt=prompts, max_tokens=1, echo=True, logprobs=0, n=2).choices
    assert [a.index for a in answers] == list(range(8))
    for a in answers:
        n = len(prompts[a.index // 2])
        assert a.logprobs.token_logprobs[1:n] == pytest.approx(answers[0].logprobs.token_logprobs[1:n], abs=1e-6)
        assert len(a.logprobs.tokens) == n + 1
    (tmp_path / "text").write_text(text)
    run = atlas("perplexity", trained, "-f", tmp_path / "text", "--device", "cpu", "--json")
    assert run.returncode == 0, run.stderr
    mean = sum(answers[0].logprobs.token_logprobs[1 : len(ids)]) / (len(ids) - 1)
    assert math.exp(-mean) == pytest.approx(json.loads(run.stdout)["perplexity"], rel=1e-4)


def test_no_tokens_are_asked_for(served):
    for more in ({}, {"echo": True}, {"logprobs": 1}):
        status, answer = served.post("/v1/completions", {"prompt": PROMPT, "max_tokens": 0} | more)
        assert status == 400 and answer["error"]["param"] == "max_tokens"


def test_bytes_that_are_no_text_have_names_of_their_own(small_plan_of, start):
    server = start(small_plan_of("llama"))
    asked = {"prompt": [5, 6, 7], "max_tokens": 60, "temperature": 1.5, "seed": 3, "logprobs": 5, "ignore_eos": True}
    _, _, body = server.ask("POST", "/v1/completions", json.dumps(asked).encode())

    def once(pairs):
        assert len({k for k, _ in pairs}) == len(pairs)
        return dict(pairs)

    got = json.loads(body, object_pairs_hook=once)["choices"][0]["logprobs"]
    assert any(t.startswith("bytes:\\x") for t in got["tokens"]) and len(got["tokens"]) == 60


def test_bias(client, served):
    """100 makes a token certain and -100 forbids it; a greedy text goes on with the next best."""
    ids = served.post("/tokenize", {"prompt": " king", "add_special_tokens": False})[1]["tokens"]
    assert greedy(client, max_tokens=4, logit_bias={str(ids[0]): 100}).choices[0].text == " king" * 4
    text = greedy(client, max_tokens=12).choices[0].text
    first = served.post("/tokenize", {"prompt": text, "add_special_tokens": False})[1]["tokens"][0]
    other = greedy(client, max_tokens=12, logit_bias={str(first): -100}).choices[0].text
    assert (
        other != text
        and first not in served.post("/tokenize", {"prompt": other, "add_special_tokens": False})[1]["tokens"]
    )
    assert greedy(client, max_tokens=12, logit_bias={"7": 0}).choices[0].text == text


def test_least_length_and_ignored_stops(client, served):
    """The comma ends each answer by stop_token_ids; min_tokens puts that off, ignore_eos does not."""
    ids = served.post("/tokenize", {"prompt": ",", "add_special_tokens": False})[1]["tokens"]
    early = greedy(client, max_tokens=40, extra_body={"stop_token_ids": ids})
    assert early.choices[0].finish_reason == "stop" and early.usage.completion_tokens < 20
    late = greedy(client, max_tokens=40, extra_body={"stop_token_ids": ids, "min_tokens": 25})
    assert late.usage.completion_tokens > 25 and "," not in late.choices[0].text
    ignored = greedy(client, max_tokens=40, extra_body={"stop_token_ids": ids, "ignore_eos": True})
    assert ignored.usage == early.usage
    full = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=505, temperature=1.5, seed=4, extra_body={"ignore_eos": True}
    )
    assert full.usage.completion_tokens == 505 and full.choices[0].finish_reason == "length"


def test_the_stop_string_is_shown_on_request(client):
    text = greedy(client, max_tokens=40).choices[0].text
    stop = text[9:14]
    kept = greedy(client, max_tokens=40, stop=stop, extra_body={"include_stop_str_in_output": True})
    assert kept.choices[0].text == text[: text.index(stop)] + stop and kept.choices[0].finish_reason == "stop"


def test_load_generator(served, repo, tmp_path):
    """tests/gpu/load.py, against the reference device: all answers have their length, alone and beside others."""
    run = subprocess.run(
        [
            sys.executable,
            repo / "tests/gpu/load.py",
            "--url",
            f"http://127.0.0.1:{served.port}",
            "--prompt",
            "40",
            "--answer",
            "8",
            "--vocab",
            "2048",
            "--lowest",
            "10",
            "--in-flight",
            "3",
            "--rate",
            "20",
            "--requests",
            "12",
            "--text-equals-solo",
            "--json",
            tmp_path / "rows",
        ],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    rows = json.loads((tmp_path / "rows").read_text())["rows"]
    assert [r["row"] for r in rows] == ["3 in flight", "20 a second"] and all(r["errors"] == 0 for r in rows)
    assert all(
        r["tokens_s"] == pytest.approx(8 * r["requests_s"]) and 0 < r["gap_p50_ms"] <= r["gap_p99_ms"] for r in rows
    )
    assert "0 of 12 texts differ" in run.stdout


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
        client.chat.completions.create(
            model="tiny",
            messages=[{"role": "user", "content": "hello"}],
            tools=[{"type": "function", "function": {"name": "f"}}],
        )
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


def test_a_tight_pool_of_pages_changes_no_text(atlas, small_plan_of, start):
    """Eight long answers in a pool for two contexts: all come to their ends, and each text is its own."""
    plan = small_plan_of("llama-trained", slots=8, decode="[8]", pool_tokens=1024)
    server = start(plan, "--name", "tiny")

    async def all_of_them():
        client = openai.AsyncOpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)
        kwargs = {
            "model": "tiny",
            "prompt": PROMPT,
            "max_tokens": 400,
            "temperature": 1.2,
            "extra_body": {"ignore_eos": True},
        }
        return await asyncio.gather(*(client.completions.create(seed=i, **kwargs) for i in range(8)))

    answers = asyncio.run(all_of_them())
    assert all(a.usage.completion_tokens == 400 for a in answers)
    alone = start(plan, "--name", "tiny")
    for i in (0, 3, 7):
        asked = {"prompt": PROMPT, "max_tokens": 400, "temperature": 1.2, "ignore_eos": True, "seed": i}
        assert alone.post("/v1/completions", asked)[1]["choices"][0]["text"] == answers[i].choices[0].text
    server.settles("kv_pages_used", 0)
    assert server.metric("requests_aside") == 0 and server.metric("kv_pages_total") == 64


def test_a_plan_without_a_tokenizer(repo, atlas, plan_of, start, tmp_path):
    """Ids in; a stream has a chunk for each token, whose text is empty, and what needs text is refused."""
    folder = tmp_path / "llama-trained"
    shutil.copytree(
        repo / "tests" / "fixtures" / "llama-trained", folder, ignore=shutil.ignore_patterns("tokenizer*", "special*")
    )
    server = start(plan_of(folder, "--target", "none"))
    events = server.stream("/v1/completions", {"prompt": [5, 6, 7], "max_tokens": 6, "ignore_eos": True}).decode()
    assert events.count('"text":"","logprobs":null,"finish_reason":null') == 6 and '"finish_reason":"length"' in events
    for path, body in (
        ("/v1/completions", {"prompt": "a"}),
        ("/tokenize", {"prompt": "a"}),
        ("/detokenize", {"tokens": [1]}),
    ):
        status, answer = server.post(path, body)
        assert status == 400 and "the plan holds no tokenizer" in answer["error"]["message"]
