"""The prefix cache through HTTP: what is reported of it, who shares with whom, and that texts are those without it."""

from __future__ import annotations

import concurrent.futures
import json
import random
import shutil
import subprocess
import sys

import anthropic
import openai
import pytest
from server import read_answer

GRID = 64  # of the plan: prompts may begin at its multiples


@pytest.fixture(scope="module")
def plan(small_plan_of):
    return small_plan_of("llama-trained", "--target", "none", slots=4, decode="[4]", max_context=320, grid=GRID)


def ids(seed, n):
    made = random.Random(seed)
    return [made.randrange(3, 500) for _ in range(n)]


def client_of(server):
    return openai.OpenAI(base_url=f"http://127.0.0.1:{server.port}/v1", api_key="none", max_retries=0)


def complete(client, prompt, **fields):
    fields = {"model": client.models.list().data[0].id, "max_tokens": 8, "temperature": 0, "logprobs": 1} | fields
    return client.completions.create(prompt=prompt, **fields)


def cached(answer):
    return answer.usage.prompt_tokens_details.cached_tokens


def said(answer):
    return [(c.index, c.text, c.logprobs.token_logprobs, c.finish_reason) for c in answer.choices]


def test_a_second_request_reads_what_is_its_own(start, plan):
    """Whole cells of the grid are found, never the whole prompt; the answer is the same to the last logprob."""
    server = start(plan)
    client, prompt = client_of(server), ids(1, 2 * GRID + 9)
    first = complete(client, prompt)
    assert (cached(first), first.usage.prompt_tokens) == (0, len(prompt))
    again = complete(client, prompt)
    assert (cached(again), again.usage.prompt_tokens) == (2 * GRID, len(prompt)) and said(again) == said(first)
    assert cached(complete(client, prompt[: 2 * GRID])) == GRID
    assert cached(complete(client, prompt[: GRID + 1] + ids(2, 50))) == GRID
    assert cached(complete(client, prompt[: GRID - 1] + ids(2, 50))) == 0
    *_, last = complete(client, prompt, stream=True, stream_options={"include_usage": True})
    assert cached(last) == 2 * GRID
    assert server.metric("prefix_cache_hits_total") == 2 * GRID * 2 + GRID * 2
    assert server.metric("prefix_cache_queries_total") == 3 * len(prompt) + 2 * GRID + GRID + 51 + GRID + 49
    assert server.metric("prefix_cache_pages") > 0 and server.metric("prefix_cache_evicted_total") == 0
    line = server.requests()[-1]
    assert (line["prompt_tokens"], line["cached_tokens"]) == (len(prompt), 2 * GRID)
    assert server.stop() == 0


def test_answers_of_one_prompt_read_it_once(start, plan):
    """n answers are those of n requests with seeds of their own; the prompt is read by the first."""
    server, alone = start(plan), start(plan, "--prefix-cache", "off")
    prompt, fields = ids(3, 3 * GRID), {"temperature": 1.0, "max_tokens": 12}
    answer = complete(client_of(server), prompt, n=4, seed=7, **fields)
    assert cached(answer) == 0 and server.metric("prefix_cache_hits_total") == 3 * 2 * GRID
    others = [complete(client_of(alone), prompt, seed=7 + i, **fields) for i in range(4)]
    assert [s[1:] for s in said(answer)] == [said(other)[0][1:] for other in others]
    assert alone.metric("prefix_cache_queries_total") == 0 and all(cached(other) == 0 for other in others)
    assert server.stop() == alone.stop() == 0


def test_salts_share_nothing(start, plan):
    server = start(plan)
    client, prompt = client_of(server), ids(4, 2 * GRID)
    for salt in (None, "a", "b"):
        extra = {"extra_body": {"cache_salt": salt}}
        assert [cached(complete(client, prompt, **extra)) for _ in range(2)] == [0, GRID], salt
    for salt, word in ((1, "expected a string"), ("", "is empty")):
        status, answer = server.post("/v1/completions", {"prompt": prompt, "cache_salt": salt})
        assert (status, answer["error"]["param"]) == (400, "cache_salt") and word in answer["error"]["message"], answer
    assert server.stop() == 0


def test_many_at_once_say_what_each_says_alone(start, plan):
    """Requests that begin alike and others, some of which end early, through both servers."""
    jobs = []
    for i in range(24):
        prompt = ids(10 + i % 3, GRID * (1 + i % 3)) + ids(100 + i, 1 + 5 * (i % 7))
        jobs.append({"prompt": prompt, "temperature": i % 2, "seed": i, "max_tokens": 3 + i % 9})
    answers = []
    for option in ("on", "off"):
        server = start(plan, "--prefix-cache", option)
        client = client_of(server)
        with concurrent.futures.ThreadPoolExecutor(12) as pool:
            answers.append(list(pool.map(lambda job, c=client: said(complete(c, **job)), jobs)))
        assert (server.metric("prefix_cache_hits_total") > 15 * GRID) == (option == "on")
        assert server.stop() == 0
    assert answers[0] == answers[1]


@pytest.mark.parametrize("cache", ["on", "off"])
def test_prompts_that_are_kept_start_first_and_nobody_starves(start, small_plan_of, cache):
    """One slot, which is taken: of those that wait the kept ones go first, eight of them before the same other one."""
    plan = small_plan_of("llama-trained", "--target", "none", slots=1, decode="[1]", pool_tokens=2048, grid=GRID)
    server = start(plan, "--prefix-cache", cache, "--max-queue", 32)
    kept = ids(6, 2 * GRID)
    complete(client_of(server), [*kept, 5])

    def send(name, prompt, **fields):
        body = json.dumps({"prompt": prompt, "temperature": 0, "ignore_eos": True} | fields).encode()
        head = f"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nx-request-id: {name}\r\nContent-Length: {len(body)}\r\n\r\n"
        return server.raw(head.encode() + body)

    sockets = [send("first", ids(7, 9), max_tokens=500, stream=True)]
    server.settles("slots_used", 1)
    names = ["new", *(f"kept-{i}" for i in range(11)), "also-new"]
    for i, name in enumerate(names):
        prompt = ids(50 + i, 40) if "new" in name else [*kept, *ids(50 + i, 9)]
        sockets.append(send(name, prompt, max_tokens=1))
        server.settles("requests_waiting", i + 1)
    for s in sockets:
        assert read_answer(s).startswith(b"HTTP/1.1 200")
        s.close()
    assert server.stop() == 0  # then each has its line
    lines = [line for line in server.requests() if line["id"] in names]
    assert [line["cached_tokens"] for line in lines] == [
        2 * GRID if cache == "on" and "kept" in line["id"] else 0 for line in lines
    ]
    if cache == "on":
        names.insert(8, names.pop(0))
    assert [line["id"] for line in lines] == names


def test_drafts_are_those_of_a_prompt_that_was_read(start, small_plan_of):
    """The head's keys are in the pages, the states in a snapshot: after a hit as many drafts count."""
    plan = small_plan_of(
        "qwen3_5_moe-trained",
        "--target",
        "none",
        slots=4,
        decode="[4]",
        max_context=320,
        grid=GRID,
        rows=3,
        snapshots=4,
    )
    server = start(plan)
    client, prompt, counted = client_of(server), ids(5, 2 * GRID + 30), []
    for i in range(3):
        before = [server.metric(name) for name in ("drafts_total", "accepted_total")]
        answer = complete(client, prompt, max_tokens=40)
        counted.append(
            [server.metric(name) - was for name, was in zip(("drafts_total", "accepted_total"), before)]
            + [said(answer)]
        )
        assert cached(answer) == (2 * GRID if i else 0)
    assert counted[0][0] > counted[0][1] > 0 and counted[0] == counted[1] == counted[2]
    assert server.metric("prefix_cache_snapshots") == 1
    assert server.stop() == 0


def test_the_next_turn_goes_on_before_what_asked_for_an_answer(start, small_plan_of, repo, tmp_path):
    """The prompt ends in <think>, which the next turn has not: where a cell ends in that, states are kept a cell before."""
    folder = tmp_path / "qwen3_5_moe-trained"
    shutil.copytree(repo / "tests" / "fixtures" / "qwen3_5_moe-trained", folder)
    asks = "'<|im_start|>assistant\\n<think>\\n'"
    turns = "{{ '<|im_start|>' + m.role + '\\n' + m.content + '<|im_end|>\\n' }}"
    template = (
        f"{{% for m in messages %}}{turns}{{% endfor %}}{{% if add_generation_prompt %}}{{{{ {asks} }}}}{{% endif %}}"
    )
    (folder / "chat_template.jinja").write_text(template)
    server = start(
        small_plan_of(folder, "--target", "none", slots=2, max_context=512, grid=GRID, rows=1, snapshots=16),
        "--name",
        "any",
    )
    client, seen = client_of(server), []
    tail = len(server.post("/tokenize", {"prompt": "<|im_end|>\n<|im_start|>assistant\n<think>\n"})[1]["tokens"])
    for more in range(70):
        talk = [{"role": "user", "content": "In the beginning " * 9 + "of it " * more}]
        n = server.post("/tokenize", {"messages": talk})[1]["count"]
        in_tail = (n - 1) // GRID - (n - tail) // GRID
        if seen.count(in_tail) == 3:
            continue
        seen.append(in_tail)
        salt = {"extra_body": {"cache_salt": str(more)}, "max_tokens": 3}
        assert cached(client.chat.completions.create(model="any", messages=talk, **salt)) == 0
        talk += [{"role": "assistant", "content": "so"}, {"role": "user", "content": "And?"}]
        assert cached(client.chat.completions.create(model="any", messages=talk, **salt)) == (n - tail) // GRID * GRID
    assert sorted(seen) == [0, 0, 0, 1, 1, 1] and server.stop() == 0


def test_the_script_for_gpus_runs(atlas, plan, repo):
    """tests/gpu/prefix.py, on the reference device: texts are the same, and tokens are found."""
    sizes = {"requests": 6, "shared": GRID, "own": 9, "answer": 3, "in-flight": "1,3"}
    words = [w for name, value in sizes.items() for w in (f"--{name}", str(value))]
    script = [sys.executable, repo / "tests/gpu/prefix.py", plan, "--atlas", str(atlas), "--device", "cpu", *words]
    done = subprocess.run(script, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if line.startswith(("on", "off"))]
    assert [row[:3] for row in rows] == [
        ["on", "1", str(6 * GRID)],
        ["off", "1", "0"],
        ["on", "3", str(6 * GRID)],
        ["off", "3", "0"],
    ], done.stdout


def test_all_apis_report_it(start, talking):
    """The same conversation through each API, by official clients: whole cells before the last token are found."""
    server = start(talking, "--name", "tiny")
    client = client_of(server)
    claude = anthropic.Anthropic(base_url=f"http://127.0.0.1:{server.port}", api_key="none", max_retries=0)
    said = [{"role": "user", "content": "In the beginning God created the heaven and the earth. " * 6}]

    def chat():
        usage = client.chat.completions.create(model="tiny", messages=said, max_tokens=2).usage
        return usage.prompt_tokens_details.cached_tokens, usage.prompt_tokens

    def responses():
        usage = client.responses.create(model="tiny", input=said, max_output_tokens=2).usage
        return usage.input_tokens_details.cached_tokens, usage.input_tokens

    def messages():
        usage = claude.messages.create(model="tiny", messages=said, max_tokens=2).usage
        return usage.cache_read_input_tokens, usage.cache_read_input_tokens + usage.input_tokens

    cached_first, n = chat()
    assert cached_first == 0 and n > GRID
    assert [chat(), responses(), messages()] == [((n - 1) // GRID * GRID, n)] * 3
    assert server.stop() == 0
