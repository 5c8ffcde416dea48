"""On the reference device the start of prompts that is kept changes no bit of a text: alone nothing is kept, in the
rounds two prompts in three begin like one before (tests/cpu/isolate_run.c).

Pages of 16 tokens and a grid of 32; pools with room for what comes again and of one context; salts, prompts that leave
nothing or use nothing, cancelled ones and others that are set aside are among them.
"""

from __future__ import annotations

import json
import subprocess

import pytest

PLAN = {"slots": 4, "decode": "[4]", "max_context": 256, "page": 16, "grid": 32}


def isolate(build_dir, plan, how, words, seeds="1-2", rounds=3):
    done = subprocess.run(
        [build_dir / "tests" / "isolate_run", plan, "cpu", how, str(rounds), "12", seeds, *words, "prefix"],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["differed"] == told["scores_differed"] == 0, told
    assert told["compared"] > 20 and told["cancelled"] > 3, told
    return told


@pytest.mark.parametrize("words", [[], ["gap=1"], ["mixed", "gap=64"]])
def test_texts_are_those_without(build_dir, small_plan_of, words):
    plan = small_plan_of("llama-trained", "--target", "none", pool_tokens=4096, **PLAN)
    told = isolate(build_dir, plan, "off", words)
    assert told["reused"] > 1000 and told["evicted"] == 0, told


@pytest.mark.parametrize("words", [["pages"], ["pages", "mixed", "gap=32"]])
def test_in_a_pool_of_one_context(build_dir, small_plan_of, words):
    plan = small_plan_of("llama-trained", "--target", "none", pool_tokens=256, **PLAN)
    told = isolate(build_dir, plan, "off", words)
    assert told["reused"] > 0 and told["evicted"] > 50 and told["set_aside"] > 3, told
