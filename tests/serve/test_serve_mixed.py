"""Mixed steps of `atlas serve`: prompts and running answers in one step, texts as without, and where there are none."""

from __future__ import annotations

import threading
import time

import pytest
from test_serve_life import request

OPTIONS = "[runtime]\nslots = 4\nmax_context = 512\n[phases]\ngrid = %d\nprefill = [64]\ndecode = [4]\n"


def prompt(n, salt=0):
    return [3 + (7 * i + salt) % 500 for i in range(n)]


@pytest.fixture(scope="module")
def compiled(plan_of, tmp_path_factory):
    """compiled(fixture, text): its plan without kernels; text: more of MODEL.toml."""

    def make(fixture, text=""):
        toml = tmp_path_factory.mktemp("mixed") / "MODEL.toml"
        toml.write_text(OPTIONS % (16 if fixture == "llama-trained" else 64) + text)
        return plan_of(fixture, "--model", toml, "--target", "none")

    return make


@pytest.fixture(scope="module")
def plan(compiled):
    return compiled("llama-trained")


def beside(server, fields, n_prompts):
    """Texts of prompts that come while a long answer runs, all of whose tokens are awaited as well; and that text."""
    long = fields | {"prompt": prompt(20), "max_tokens": 300}
    texts = {}

    def ask(key, of):
        status, got = server.post("/v1/completions", of)
        assert status == 200, got
        texts[key] = got["choices"][0]["text"]

    threads = [threading.Thread(target=ask, args=("long", long))]
    threads[0].start()
    server.settles("requests_running", 1)
    while not server.metric("generation_tokens_total"):
        time.sleep(0.005)
    for i in range(n_prompts):
        of = fields | {"prompt": prompt(90 + i, i), "max_tokens": 4 + i, "seed": i}
        threads.append(threading.Thread(target=ask, args=(i, of)))
        threads[-1].start()
        time.sleep(0.01)
    for thread in threads:
        thread.join()
    return texts


@pytest.mark.parametrize("sampling", [{"temperature": 0}, {"temperature": 0.8, "top_p": 0.9, "frequency_penalty": 0.3}])
def test_texts_are_those_of_steps_of_one_kind(plan, start, sampling):
    """On the reference device, whose rows do not depend on what else is in a step."""
    fields, texts = {"ignore_eos": True, "seed": 5} | sampling, {}
    for how in "off", "on":
        server = start(plan, "--mixed", how, "--max-gap", 32)
        texts[how] = beside(server, fields, 8)
        assert ("mixed" in {phase for phase, _ in server.steps()}) == (how == "on")
        assert server.stop() == 0
    assert texts["on"] == texts["off"] and len(texts["on"]) == 9


def test_each_answer_has_a_token_in_every_step_of_a_prompt(plan, start):
    """A prompt of 400 is 25 cells of 16. With room for two cells beside two answers, it is read in 13 mixed steps, in
    none of its own and without a decode step in between."""
    server = start(plan, "--mixed", "on", "--max-gap", 34)
    fields = {"prompt": prompt(8), "max_tokens": 480, "temperature": 0, "ignore_eos": True, "stream": True}
    with server.raw(request(fields)), server.raw(request(fields)):
        server.settles("requests_running", 2)
        while server.metric("generation_tokens_total") < 4:
            time.sleep(0.005)
        before = server.steps()
        status, _ = server.post("/v1/completions", {"prompt": prompt(400), "max_tokens": 1, "ignore_eos": True})
        after = server.steps()
        assert status == 200 and server.metric("requests_running") == 2
    mixed = {kind: n - before.get(kind, 0) for kind, n in after.items()}
    assert sum(n for (phase, _), n in mixed.items() if phase == "mixed") == 13
    assert sum(n for (phase, _), n in mixed.items() if phase == "prefill") == 0


def test_clients_that_leave_in_the_middle(plan, start):
    """During a mixed step's prompt, and during an answer that such steps carry: what is left ends as it would."""
    server = start(plan, "--mixed", "on", "--max-gap", 20)
    fields = {"max_tokens": 200, "temperature": 0, "ignore_eos": True}
    _, alone = server.post("/v1/completions", fields | {"prompt": prompt(30)})
    kept = {}
    thread = threading.Thread(
        target=lambda: kept.update(server.post("/v1/completions", fields | {"prompt": prompt(30)})[1])
    )
    thread.start()
    server.settles("requests_running", 1)
    answer = server.raw(request(fields | {"prompt": prompt(16, 1), "stream": True}))
    assert answer.recv(15).startswith(b"HTTP/1.1 200")
    reading = server.raw(request(fields | {"prompt": prompt(300, 2), "stream": True}))
    server.settles("requests_running", 3)
    answer.close()
    reading.close()
    thread.join()
    server.settles("requests_running", 0)
    assert kept["choices"][0]["text"] == alone["choices"][0]["text"]
    assert server.metric('cancelled_total{why="client"}') == 2
    assert server.metric("slots_used") == server.metric("kv_pages_used") == 0
    assert server.stop() == 0


@pytest.mark.parametrize(
    "fixture, text, options, why",
    [
        (
            "llama-trained",
            "[numerics]\ninvariant = true\n",
            [],
            "the plan has [numerics] invariant = true, and its prompts and answers have kernels of two orders",
        ),
        (
            "qwen3_5_moe-trained",
            "[speculate]\nrows = 2\n",
            ["--speculate", "mtp"],
            "a row that is mixed in has no drafts; speculate = off goes with it",
        ),
    ],
)
def test_where_steps_are_never_mixed(compiled, atlas, start, fixture, text, options, why):
    """They are refused by name where they are asked for, and elsewhere not made."""
    plan = compiled(fixture, text)
    run = atlas("serve", plan, "--device", "cpu", "--port", 0, "--mixed", "on", *options, timeout=60)
    assert run.returncode == 4 and f"error[UNSUPPORTED]: mixed = on: {why}\n" in run.stderr
    server = start(plan, *options)
    assert len(beside(server, {"temperature": 0, "ignore_eos": True}, 3)) == 4
    assert "mixed" not in {phase for phase, _ in server.steps()}
    assert server.stop() == 0
