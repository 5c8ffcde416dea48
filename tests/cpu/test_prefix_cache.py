"""On the reference device the start of prompts that is kept changes no bit of a text: alone nothing is kept, in the
rounds two prompts in three begin like one before (tests/cpu/isolate_run.c).

Pages of 16 tokens and a grid of 32 or, of models with recurrent states, 64; pools with room for what comes again and of one context; salts, prompts that leave
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
    assert told["compared"] > 12 and told["cancelled"] > 0, told
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


@pytest.mark.parametrize("words", [[], ["mixed", "gap=32"]])
def test_drafts_by_ngrams(build_dir, atlasc, repo, tmp_path, words):
    """Where the host drafts it knows the whole prompt, read or not."""
    toml, plan = tmp_path / "ngram.toml", tmp_path / "ngram.bin"
    toml.write_text(
        "[runtime]\nslots = 4\nmax_context = 256\n[kv]\npage = 16\npool_tokens = 4096\n[phases]\nprefill = [64]\n"
        'grid = 32\ndecode = [4]\n[speculate]\ndrafter = "ngram"\nrows = 3\n'
    )
    done = atlasc("tests/fixtures/llama-trained", "--model", toml, "--target", "none", "-o", plan, "-q")
    assert done.returncode == 0, done.stderr
    told = isolate(build_dir, plan, "off" if "mixed" in words else "ngram", words)
    assert told["reused"] > 1000 and (told["drafts"] > 0) == (not words), told


@pytest.mark.parametrize(
    "fixture, snapshots, pool, how, words, least",
    [
        ("qwen3_5_moe-trained", 1, 4096, "mtp", [], 0),
        ("qwen3_5_moe-trained", 16, 4096, "off", ["mixed", "gap=64"], 300),
        ("qwen3_5_moe-trained", 16, 336, "mtp", ["pages", "gap=64"], 0),
        ("qwen3_5", 16, 4096, "mtp", [], 300),
        ("qwen3_next", 16, 4096, "off", ["pages", "mixed"], 64),
    ],
)
def test_recurrent_states(build_dir, small_plan_of, fixture, snapshots, pool, how, words, least):
    """A prompt goes on from a snapshot of the states, whose number is the plan's."""
    rows = {"rows": 3} if fixture != "qwen3_next" else {}
    changes = PLAN | rows | {"grid": 64, "max_context": 320, "pool_tokens": pool, "snapshots": snapshots}
    told = isolate(build_dir, small_plan_of(fixture, "--target", "none", **changes), how, words, "1-1", 2)
    assert (told["drafts"] > 0) == (how == "mtp") and told["reused"] >= least, told


def test_without_snapshots_there_is_no_cache(build_dir, atlas, small_plan_of):
    plan = small_plan_of("qwen3_5", "--target", "none", **PLAN | {"grid": 64}, snapshots=0)
    words = [build_dir / "tests" / "isolate_run", plan, "cpu", "off", "1", "2", "1-1", "prefix"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=60)
    why = "prefix_cache = on: the plan keeps no snapshots of recurrent states and windows: [cache] snapshots = 0"
    assert done.returncode == 2 and why in done.stderr, done.stderr
    served = atlas("serve", plan, "--device", "cpu", "--port", "0", "--prefix-cache", "on")
    assert served.returncode == 4 and why in served.stderr, served.stderr
