"""On the reference device a text is its own: the same alone and beside others that come and go, with drafts or without.

Rounds of prompts go through four slots in shuffled orders (tests/cpu/isolate_run.c); tests/gpu/run.sh does more of them
on a GPU.
"""

from __future__ import annotations

import json
import subprocess

import pytest


@pytest.mark.parametrize("how, rows", [("off", 3), ("mtp", 2), ("mtp", 3), ("mtp", 4)])
def test_text_does_not_depend_on_neighbours(build_dir, small_plan_of, how, rows):
    plan = small_plan_of("qwen3_5_moe-trained", "--target", "none", slots=4, decode="[4]", max_context=192, rows=rows)
    done = subprocess.run(
        [build_dir / "tests" / "isolate_run", plan, "cpu", how, "2", "8", f"{rows}-{rows + 1}"],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["differed"] == told["scores_differed"] == 0, told
    assert told["compared"] > 12 and told["cancelled"] > 2 and told["scored"] > 2, told
    assert (told["accepted"] > 0) == (how == "mtp"), told


@pytest.mark.parametrize(
    "how, rows, words",
    [
        ("off", 3, ["gap=1"]),
        ("mtp", 3, ["pages", "gap=128"]),
        ("off", 3, ["mixed", "gap=1"]),
        ("off", 1, ["mixed", "pages"]),
    ],
)
def test_nor_on_turns_and_pages(build_dir, small_plan_of, how, rows, words):
    """Prompts and answers take turns, or are in one step; pages are taken as needed in a pool of one context, so that many
    are set aside."""
    plan = small_plan_of(
        "qwen3_5_moe-trained",
        "--target",
        "none",
        slots=4,
        decode="[4]",
        max_context=192,
        rows=rows,
        pool_tokens=208 if "pages" in words else 0,
    )
    done = subprocess.run(
        [build_dir / "tests" / "isolate_run", plan, "cpu", how, "2", "8", "2-3", *words],
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["differed"] == told["scores_differed"] == 0, told
    assert told["compared"] > 12 and (told["set_aside"] > 3) == ("pages" in words), told
    assert (told["mixed"] > 20) == ("mixed" in words), told
