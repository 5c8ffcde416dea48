"""The goldens made with `transformers` belong to the weights beside them.

The numpy reference of forward.py shares nothing with torch, so agreement means that both read the checkpoint in
the same way (rope scaling, biases, norms, head sizes, tying, codes and their scales), and that no golden was left behind
by a newer weight.
"""

import math
import pathlib

import forward
import numpy as np
import pytest
from container import decode, read_safetensors

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
FOLDERS = sorted(p.parent for p in FIXTURES.glob("*/golden.safetensors") if (p.parent / "config.json").exists())


def load_golden(folder):
    return {name: decode(raw, dtype, shape) for name, (dtype, shape, raw)
            in read_safetensors(folder / "golden.safetensors").items()}  # fmt: skip


def close(got, want):
    """Largest difference in units of the largest value."""
    return float(np.max(np.abs(got - want)) / np.max(np.abs(want)))


def test_every_fixture_has_a_golden():
    folders = {p.parent.name for p in FIXTURES.glob("*/config.json")}
    assert folders - {f.name for f in FOLDERS} == set()
    assert len(folders) >= 16


def test_fixtures_stay_small():
    assert sum(p.stat().st_size for p in FIXTURES.rglob("*") if p.is_file()) < 18 << 20


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
@pytest.mark.parametrize("prompt", ["p0", "p1"])
def test_forward(folder, prompt):
    c, w, golden = forward.load_config(folder), forward.load_weights(folder), load_golden(folder)
    states, logits = forward.forward(c, w, golden[f"{prompt}.input_ids"])
    rows = len(golden[f"{prompt}.logits"])
    assert len(states) == sum(name.startswith(f"{prompt}.hidden.") for name in golden)
    for i, state in enumerate(states):
        assert close(state[-rows:], golden[f"{prompt}.hidden.{i}"]) < 2e-5, f"hidden {i}"
    assert close(logits[-rows:], golden[f"{prompt}.logits"]) < 2e-5
    if prompt == "p0":
        error = close(golden["p0.logits_bf16"], golden["p0.logits"])
        # with experts, also where a rounded router chooses others
        assert 1e-4 < error < (0.5 if "num_experts" in c else 0.1), (
            "the bfloat16 run must differ, by bfloat16's rounding"
        )


@pytest.mark.parametrize("folder", FOLDERS, ids=lambda f: f.name)
@pytest.mark.parametrize("prompt", ["p0", "p1"])
def test_greedy(folder, prompt):
    c, w, golden = forward.load_config(folder), forward.load_weights(folder), load_golden(folder)
    ids, answer = golden[f"{prompt}.input_ids"], golden[f"{prompt}.greedy"]
    least = float(golden[f"{prompt}.margin"].min())
    if least > 0.01:  # every token is the largest logit after those before it: one pass instead of one a token
        logits = forward.forward(c, w, [*ids, *answer[:-1]])[1][len(ids) - 1 :]
        assert np.argmax(logits, axis=-1).tolist() == answer.tolist()
        second, first = np.partition(logits, -2)[:, -2:].T
        assert math.isclose(np.min(first - second), least, abs_tol=2e-3)
    assert folder.name.endswith("-trained") or least > 0.05, "random fixtures are chosen to be clear of ties"


@pytest.mark.parametrize("name", ["llama-trained", "qwen3_5_moe-trained"])
def test_perplexity_of_the_trained_model(name):
    tokenizers = pytest.importorskip("tokenizers")
    folder = FIXTURES / name
    c, w, golden = forward.load_config(folder), forward.load_weights(folder), load_golden(folder)
    text = (folder / "heldout.txt").read_text(encoding="utf-8")
    ids = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids
    window, losses = c["max_position_embeddings"], []
    for at in range(0, len(ids) - 1, window - 1):
        piece = ids[at : at + window]
        logits = forward.forward(c, w, piece)[1][:-1].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        losses += list(np.log(np.exp(logits).sum(axis=-1)) - logits[np.arange(len(piece) - 1), piece[1:]])
    assert np.max(np.abs(losses - golden["nll"])) < 1e-3
    perplexity = math.exp(np.mean(losses))
    assert math.isclose(perplexity, float(golden["perplexity"][0]), rel_tol=1e-4)
    assert perplexity < c["vocab_size"] / 30, "a trained model"
