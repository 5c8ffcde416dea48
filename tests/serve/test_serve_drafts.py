"""Steps that verify drafts, in /metrics and /v1/plan: each rung of the ladder is a bucket of its own."""

from __future__ import annotations

import json

import pytest

OPTIONS = "[runtime]\nslots = 4\nmax_context = 512\n[phases]\nprefill = [64]\ndecode = [2, 4]\n"
LADDER = '[speculate]\ndrafter = "ngram"\nngram = [1, 3]\nladder = [[2, 4], [4, 2]]\n'  # of 2x4 and of 4x2 rows: 8


@pytest.fixture(scope="module")
def plan(plan_of, tmp_path_factory):
    toml = tmp_path_factory.mktemp("ladder") / "MODEL.toml"
    toml.write_text(OPTIONS + LADDER)
    return plan_of("llama-trained", "--model", toml, "--target", "none")


def ask(server, n):
    """n answers at once to a prompt that repeats itself, in whose texts nearly every token was there before."""
    prompt = [400 + i % 7 for i in range(40)]
    fields = {"prompt": [prompt] * n, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
    status, got = server.post("/v1/completions", fields)
    assert status == 200 and len(got["choices"]) == n, got


def test_rungs_of_equal_rows_are_counted_apart(plan, start):
    server = start(plan)
    ask(server, 1)
    alone = {bucket for phase, bucket in server.steps() if phase == "verify"}
    assert "4x4" in alone and not any(bucket.endswith("x2") for bucket in alone), alone
    ask(server, 4)
    together = {bucket for phase, bucket in server.steps() if phase == "verify"}
    assert together - alone == {"4x2"}, together
    assert server.metric("drafts_total") > 0 and server.stop() == 0


def test_the_plan_tells_how_it_drafts(plan, start, atlas):
    info = json.loads(atlas("info", plan, "--json").stdout)
    server = start(plan)
    told = server.get("/v1/plan")[1]
    for name in ("drafter", "ladder", "verify_rows"):
        assert told[name] == info[name], name
    assert (told["drafter"], told["ladder"]) == ("ngram", [[2, 4], [4, 2]])
    assert told["mixed"] is False and server.stop() == 0
    server = start(plan, "--speculate", "off")
    assert server.get("/v1/plan")[1]["mixed"] is True and server.stop() == 0
    assert info["mixed"] is False and "mixed steps" not in atlas("info", plan).stdout  # it has kernels for no GPU
