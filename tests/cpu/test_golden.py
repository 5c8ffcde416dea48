"""The reference device against `transformers`: logits, every layer's output, greedy tokens, perplexity.

Each folder of tests/fixtures with a golden.safetensors is compiled and run on `--device cpu`. The goldens were
computed by transformers in float32 (their metadata says how), so both sides compute the same function and
only the order of additions differs.
"""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest

from drawing import STOP, answer
from safetensors import safe_open
from safetensors.numpy import load_file

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
GOLDEN = sorted(p.parent.name for p in FIXTURES.glob("*/golden.safetensors"))
TOLERANCE = 1e-5  # largest error relative to the largest magnitude of the tensor; about 1e-6 is measured
EDGES = [0, 62, 63, 64, 126, 128]  # positions of which p2 keeps what it gives: make_fixtures.py


def golden(name):
    """All tensors but those in bf16, which numpy does not have."""
    with safe_open(FIXTURES / name / "golden.safetensors", "numpy") as f:
        return {k: f.get_tensor(k) for k in f.keys() if f.get_slice(k).get_dtype() != "BF16"}


def config(name):
    top = json.loads((FIXTURES / name / "config.json").read_text())
    return top.get("text_config", top)


def relative_error(got, want):
    assert got.shape == want.shape
    return float(np.max(np.abs(got.astype(np.float64) - want)) / np.max(np.abs(want)))


@pytest.fixture(scope="session")
def graph_of(small_plan_of):
    """The plan of a fixture without kernels: the reference device reads the graph alone."""
    return lambda name: small_plan_of(name, "--target", "none")


def dump(atlas, plan, ids, path):
    run = atlas("dump", plan, "--tokens", ",".join(map(str, ids)), "--hidden", "--device", "cpu", "-o", path, "-q")
    assert run.returncode == 0, run.stderr
    assert run.stdout == run.stderr == ""
    return load_file(path)


def test_there_are_goldens():
    assert len(GOLDEN) >= 10


@pytest.mark.parametrize("prompt", ["p0", "p1"])
@pytest.mark.parametrize("name", GOLDEN)
def test_layers_and_logits(atlas, graph_of, tmp_path, name, prompt, record_property):
    want = golden(name)
    ids = want[f"{prompt}.input_ids"].reshape(-1)
    got = dump(atlas, graph_of(name), ids, tmp_path / "out.safetensors")
    assert np.array_equal(got["tokens"], ids)
    errors = {}
    layers = sorted(int(k.split(".")[-1]) for k in want if k.startswith(f"{prompt}.hidden."))
    for k in layers:
        if k > 0:  # 0 is the embedding
            rows = want[f"{prompt}.hidden.{k}"]
            errors[f"layer {k - 1}"] = relative_error(got[f"l{k - 1}.out"][-len(rows) :], rows)
    logits = want[f"{prompt}.logits"]
    errors["logits"] = relative_error(got["logits"][-len(logits) :], logits)
    record_property("errors", str(errors))
    print(name, prompt, {k: f"{v:.1e}" for k, v in errors.items()})
    assert len(errors) == config(name)["num_hidden_layers"] + 1
    assert max(errors.values()) <= TOLERANCE, errors
    assert np.array_equal(got["logits"][-len(logits) :].argmax(-1), logits.argmax(-1))


@pytest.mark.parametrize("prompt", ["p0", "p1"])
@pytest.mark.parametrize("name", GOLDEN)
def test_greedy_tokens(atlas, graph_of, name, prompt):
    """Token by token through the decode phase, from ids: no tokenizer is involved."""
    want = golden(name)
    ids, greedy = want[f"{prompt}.input_ids"].reshape(-1), want[f"{prompt}.greedy"].tolist()
    run = atlas(
        "run",
        graph_of(name),
        "--tokens",
        ",".join(map(str, ids)),
        "-n",
        len(greedy),
        "--temperature",
        0,
        "--repetition-penalty",
        1,
        "--device",
        "cpu",
        "--json",
        "-q",
    )
    assert run.returncode == 0, run.stderr
    result = json.loads(run.stdout)["results"][0]
    got = result["tokens"]
    assert len(got) == len(greedy) or result["finish"] == "stop"
    assert got == greedy[: len(got)]


@pytest.mark.parametrize("name", GOLDEN)
def test_greedy_tokens_while_prompts_arrive(build_dir, graph_of, tmp_path, name):
    """Two slots, and an answer ends in the middle of another one: the next prompt is read in steps that make tokens of
    the answer as well, which stay those of transformers."""
    want = golden(name)
    prompts, greedy = ([want[f"{p}.{k}"].reshape(-1).tolist() for p in ("p0", "p1")] for k in ("input_ids", "greedy"))
    order = [0, 1, 0, 1, 1, 0]
    requests = [
        {"tokens": prompts[p], "max_new": len(greedy[p]) - 3 * (k % 4), "repetition": 1} for k, p in enumerate(order)
    ]
    _, made, _ = answer(build_dir, tmp_path, graph_of(name), "cpu", "mixed", requests)
    for p, request, events in zip(order, requests, made):
        tokens = [e["token"] for e in events]
        assert len(tokens) == request["max_new"] or events[-1]["finish"] == STOP
        assert tokens == greedy[p][: len(tokens)]


def carries_state(name):
    return "linear_num_key_heads" in config(name)


@pytest.mark.parametrize("edge", range(len(EDGES)))
@pytest.mark.parametrize("name", [n for n in GOLDEN if carries_state(n)])
def test_chunks(atlas, graph_of, tmp_path, name, edge):
    """A prompt of 1 to 129 tokens, which the reference device reads 64 at a time, gives at its last position what a
    longer one gave there that was read at once."""
    want, n = golden(name), EDGES[edge] + 1
    got = dump(atlas, graph_of(name), want["p2.input_ids"].reshape(-1)[:n], tmp_path / "out.safetensors")
    for layer in range(config(name)["num_hidden_layers"]):
        rows = want[f"p2.hidden.{layer + 1}"]
        assert np.max(np.abs(got[f"l{layer}.out"][-1] - rows[edge])) <= TOLERANCE * np.max(np.abs(rows))
    assert np.max(np.abs(got["logits"][-1] - want["p2.logits"][edge])) <= TOLERANCE * np.max(np.abs(want["p2.logits"]))


def test_perplexity(atlas, graph_of):
    """Within 0.1 % of transformers on text the model has not seen, in windows of the same length."""
    name = "llama-trained"
    want = golden(name)
    run = atlas(
        "perplexity",
        graph_of(name),
        "-f",
        FIXTURES / name / "heldout.txt",
        "--window",
        config(name)["max_position_embeddings"],
        "--device",
        "cpu",
        "--json",
        "-q",
        timeout=300,
    )
    assert run.returncode == 0, run.stderr
    got = json.loads(run.stdout)
    assert got["scored"] == len(want["nll"])
    assert abs(got["perplexity"] / float(want["perplexity"][0]) - 1) < 1e-3
    assert abs(got["nats_per_token"] - float(want["nll"].astype(np.float64).mean())) < 1e-4
