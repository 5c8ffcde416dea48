"""Bias, least length, stop tokens and alternatives of whole texts, drawn again by numpy (tests/cpu/drawing.py).

Requests run beside each other on the reference device, plain, in mixed steps and with drafts; tests/gpu/run.sh does the same on a GPU.
"""

from __future__ import annotations

import numpy as np
import pytest

from drawing import LENGTH, STOP, answer, check, some_requests


@pytest.mark.parametrize(
    "fixture, how",
    [
        ("llama-trained", "off"),
        ("llama-trained", "mixed"),
        ("qwen3_5_moe-trained", "off"),
        ("qwen3_5_moe-trained", "mixed"),
        ("qwen3_5_moe-trained", "mtp"),
    ],
)
def test_answers_are_what_their_scores_say(build_dir, small_plan_of, tmp_path, fixture, how):
    more = {"rows": 3} if how == "mtp" else {}
    plan = small_plan_of(fixture, "--target", "none", slots=4, decode="[4]", max_context=192, **more)
    g = np.random.default_rng(11)
    greedy = {"tokens": [5, 60, 7], "max_new": 12, "ignore_stops": 1}
    plan_info, [plain], _ = answer(build_dir, tmp_path, plan, "cpu", how, [greedy])
    requests = [greedy | {"stops": [e["token"]], "min_new": k} for k, e in enumerate(plain) if k % 4 == 2]
    requests += some_requests(g, plan_info["vocab"], 14)
    _, made, scores = answer(build_dir, tmp_path, plan, "cpu", how, requests)
    assert sum(check(request, plan_info, events, of, 2e-5) for request, events, of in zip(requests, made, scores)) == 0
    # every second one by masks, which come late: a token is one of 2 to 60
    masked = [r | {"mask": int(g.integers(2, 60))} if i % 2 else r for i, r in enumerate(requests)]
    _, made_by_masks, scores = answer(build_dir, tmp_path, plan, "cpu", how, masked)
    assert sum(check(r, plan_info, events, of, 2e-5) for r, events, of in zip(masked, made_by_masks, scores)) == 0
    assert made_by_masks[::2] == made[::2] and made_by_masks[1::2] != made[1::2]
    finishes = [events[-1]["finish"] for events in made]
    assert STOP in finishes and LENGTH in finishes and any(e["top"] for events in made for e in events)


@pytest.mark.parametrize(
    "fixture, how",
    [
        ("llama-trained", "off"),
        ("llama-trained", "mixed"),
        pytest.param("qwen3_5_moe-trained", "mtp", marks=pytest.mark.long),
    ],
)
def test_masks_on_a_gpu(build_dir, small_plan_of, tmp_path, monkeypatch, fixture, how):
    """Here the fake driver, beside sequences without masks, which draw what they draw beside others."""
    more = {"rows": 3} if how == "mtp" else {}
    prefill = "[64]" if how == "off" else "[64, 128]"
    shape = {"slots": 4, "decode": "[4]", "prefill": prefill, "max_context": 192} | more
    plan = small_plan_of(fixture, "--target", "sm_90a", **shape)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(build_dir / "tests-gpu" / "fake"))
    monkeypatch.setenv("FAKE_CUDA_CC", "9.0")
    g = np.random.default_rng(5)
    free = list(some_requests(g, {"llama-trained": 2048}.get(fixture, 512), 12))
    for r in free[::3]:  # of several steps
        r["tokens"] = r["tokens"] * (100 // len(r["tokens"]))
    masked = [r | {"mask": int(g.integers(2, 60))} if i % 2 else r for i, r in enumerate(free)]
    plan_info, plain, _ = answer(build_dir, tmp_path, plan, "cuda", how, free)
    _, made, scores = answer(build_dir, tmp_path, plan, "cuda", how, masked)
    # the fake rounds as kernels do, so some draws differ from those of the scores of a prompt
    of_masks = list(zip(masked, made, scores))[1::2]
    others = sum(check(r, plan_info, events, of, 0.1) for r, events, of in of_masks)
    assert others <= 0.1 * sum(len(events) for _, events, _ in of_masks), others
    if how == "off":  # a row of a mixed step goes through kernels of prompts, by load
        assert made[::2] == plain[::2]
