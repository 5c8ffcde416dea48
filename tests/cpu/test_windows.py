"""Attention windows on the reference device: around their edges, from row to row, and in verify steps.

The fixtures mistral-window, whose layers all see five positions, and qwen3-window, of whose three the second sees all
and the others twenty, are among those of test_golden.py too. A prompt's last row is that of a longer one which begins
with it, so the golden of 13 tokens, which keeps every row, is one of all prompts up to it.
"""

from __future__ import annotations

import itertools
import json
import pathlib
import sys

import numpy as np
import pytest
from test_golden import FIXTURES, TOLERANCE, config, dump, golden, graph_of, relative_error  # noqa: F401

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mkckpt"))
import forward  # noqa: E402

NGRAM = """\
[runtime]
slots = 4
max_context = 256

[phases]
prefill = [16]
decode = [1, 4]

[speculate]
drafter = "ngram"
rows = {rows}
"""


def window(name):
    return config(name)["sliding_window"]


def tokens_of(atlas, plan, ids, n, *words):
    run = atlas(
        "run", plan, "--tokens", ",".join(map(str, ids)), "-n", n, "--temperature", 0, "--repetition-penalty", 1,
        "--device", "cpu", "--json", "-q", *words,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    told = json.loads(run.stdout)
    return told["results"][0]["tokens"], told.get("speculate")


@pytest.mark.parametrize("more", ["w - 1", "w", "w + 1", "2 w + 3"])
def test_prompts_around_a_window(atlas, graph_of, tmp_path, more):  # noqa: F811
    """Against transformers, each layer and the logits of the last row."""
    want, w = golden("mistral-window"), window("mistral-window")
    n = {"w - 1": w - 1, "w": w, "w + 1": w + 1, "2 w + 3": 2 * w + 3}[more]
    ids = want["p0.input_ids"].reshape(-1)[:n]
    assert len(ids) == n
    got = dump(atlas, graph_of("mistral-window"), ids, tmp_path / "out.safetensors")
    for layer in range(2):
        rows = want[f"p0.hidden.{layer + 1}"]
        assert np.max(np.abs(got[f"l{layer}.out"][-1] - rows[n - 1])) <= TOLERANCE * np.max(np.abs(rows))
    assert relative_error(got["logits"], want["p0.logits"][:n]) <= TOLERANCE


@pytest.mark.parametrize("name", ["mistral-window", "qwen3-window"])
@pytest.mark.parametrize("n", [1, 4, 17, 43])
def test_answers_cross_the_edge(atlas, graph_of, name, n):  # noqa: F811
    """Greedy tokens after prompts that end before the window does and behind it, against the forward pass in numpy,
    which has no cache; not beyond a tie, nor beyond an id of no token, which is never drawn."""
    folder = FIXTURES / name
    ids = golden(name)["p1.input_ids"].reshape(-1)[:n].tolist()
    c, w = forward.load_config(folder), forward.load_weights(folder)
    want, _ = forward.greedy(c, w, ids, 24, need=1e-3)
    want = list(itertools.takewhile(lambda token: token <= c["eos_token_id"], want))
    got, _ = tokens_of(atlas, graph_of(name), ids, 24)
    n_clear = min(len(want), len(got))
    assert n_clear >= 4 and got[:n_clear] == want[:n_clear]


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize("name", ["mistral-window", "qwen3-window"])
def test_verify_steps_across_the_edge(atlas, plan_of, tmp_path, name, rows):
    """Drafts are verified in steps of some rows, each with a window of its own: the tokens are those of transformers,
    and a long answer is the one without drafts."""
    options = tmp_path / "MODEL.toml"
    options.write_text(NGRAM.format(rows=rows))
    plan = plan_of(name, "--target", "none", "--model", options)
    want = golden(name)
    ids, greedy = want["p0.input_ids"].reshape(-1), want["p0.greedy"].tolist()
    plain, _ = tokens_of(atlas, plan, ids, 200, "--speculate", "off")
    drafted, told = tokens_of(atlas, plan, ids, 200, "--speculate", "ngram")
    assert drafted == plain and plain[: len(greedy)] == greedy[: len(plain)]
    assert told["accepted"] > 0
