"""Experts and Gated DeltaNet, whole models of them: recipes of tests/mkckpt on the reference device against the numpy
forward pass, which gets each module's values from the tensors alone and reads every prompt at once."""

from __future__ import annotations

import json
import pathlib
import sys

import numpy as np
import pytest

from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import forward  # noqa: E402
import mkckpt  # noqa: E402
import quant  # noqa: E402
from container import decode, read_safetensors  # noqa: E402

SMALL = "[runtime]\nslots = 2\nmax_context = 192\n[phases]\nprefill = [64]\ndecode = [1, 2]\n"


def values(folder, knob):
    tensors, out = read_safetensors(folder / "model.safetensors"), {}
    for name, (dtype, shape, raw) in tensors.items():
        module, _, part = name.rpartition(".")
        if part in ("weight", "weight_packed") and len(shape) == 2:
            block = quant.full_knob(knob["quant"])["block"] if knob["quant"] else None
            out[f"{module}.weight"] = quant.dequantise(module, tensors, block).astype(np.float32)
        elif not part.startswith(("weight_scale", "input_scale")):
            out[name] = decode(raw, dtype, shape)
    return out


@pytest.mark.parametrize("weights", ["embed", "ref"])
@pytest.mark.parametrize("name", ["moe-fp8", "moe-nvfp4", "hybrid-fp8", "mtp-of-next"])
def test_values(atlasc, atlas, tmp_path, name, weights):
    knob, folder, plan = mkckpt.recipes()[name], tmp_path / "m", tmp_path / "m.bin"
    mkckpt.make(name, folder)
    (tmp_path / "small.toml").write_text(SMALL)
    run = atlasc(folder, "--target", "none", "--model", tmp_path / "small.toml", "--weights", weights, "-o", plan, "-q")
    assert run.returncode == 0, run.stderr
    c, ids = forward.load_config(folder), [(7 * i + 3) % 290 + 10 for i in range(20)]
    states, logits = forward.forward(c, values(folder, knob), ids)
    where = ("--weights", folder) if weights == "ref" else ()
    run = atlas(
        "dump",
        plan,
        "--tokens",
        ",".join(map(str, ids)),
        "--hidden",
        "--device",
        "cpu",
        "-o",
        tmp_path / "out.safetensors",
        "-q",
        *where,
    )
    assert run.returncode == 0, run.stderr
    got = load_file(tmp_path / "out.safetensors")
    for layer, state in enumerate(states[1:]):
        assert np.max(np.abs(got[f"l{layer}.out"] - state)) <= 2e-5 * np.max(np.abs(state)), layer
    assert np.max(np.abs(got["logits"] - logits)) <= 2e-5 * np.max(np.abs(logits))


FAMILIES = ["qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"]
EDGES = [1, 63, 64, 65, 127, 129]  # the reference device reads 64 tokens at a time


@pytest.fixture(scope="module")
def model_of(atlasc, tmp_path_factory):
    """(plan, config, weights, ids, states, logits) of a recipe and 140 tokens."""
    made = {}

    def model(name):
        if name not in made:
            at = tmp_path_factory.mktemp("model")
            mkckpt.make(name, at / "m")
            (at / "small.toml").write_text(SMALL)
            run = atlasc(at / "m", "--target", "none", "--model", at / "small.toml", "-o", at / "m.bin", "-q")
            assert run.returncode == 0, run.stderr
            c, w = forward.load_config(at / "m"), forward.load_weights(at / "m")
            ids = [(37 * i * i + 11 * i + 3) % 290 + 10 for i in range(140)]
            made[name] = at / "m.bin", c, w, ids, *forward.forward(c, w, ids)
        return made[name]

    return model


@pytest.mark.parametrize("n", EDGES)
@pytest.mark.parametrize("name", FAMILIES)
def test_chunks(atlas, model_of, tmp_path, name, n):
    plan, _, _, ids, states, logits = model_of(name)
    run = atlas(
        "dump",
        plan,
        "--tokens",
        ",".join(map(str, ids[:n])),
        "--hidden",
        "--device",
        "cpu",
        "-o",
        tmp_path / "out.safetensors",
        "-q",
    )
    assert run.returncode == 0, run.stderr
    got = load_file(tmp_path / "out.safetensors")
    for layer, state in enumerate(states[1:]):
        assert np.max(np.abs(got[f"l{layer}.out"] - state[:n])) <= 2e-5 * np.max(np.abs(state)), layer
    assert np.max(np.abs(got["logits"] - logits[:n])) <= 2e-5 * np.max(np.abs(logits))


@pytest.mark.parametrize("name", FAMILIES)
def test_decode_goes_on_where_the_prompt_ended(atlas, model_of, name):
    """Greedy tokens of the decode phase are those of whole forward passes."""
    plan, c, w, ids, _, _ = model_of(name)
    want, margin = forward.greedy(c, w, ids[:65], 12, 1e-3)
    assert margin > 1e-3 or len(want) > 4, "a tie: another prompt"
    run = atlas(
        "run",
        plan,
        "--tokens",
        ",".join(map(str, ids[:65])),
        "-n",
        12,
        "--temperature",
        0,
        "--device",
        "cpu",
        "--json",
        "-q",
    )
    assert run.returncode == 0, run.stderr
    got = json.loads(run.stdout)["results"][0]
    n = len(want) - (margin <= 1e-3)
    assert got["tokens"][:n] == want[:n] or (got["finish"] == "stop" and got["tokens"] == want[: len(got["tokens"])])


@pytest.mark.parametrize("name", FAMILIES)
def test_slots_are_alone(atlas, model_of, tmp_path, name):
    """Prompts that take turns in two slots give what each gives by itself: a slot is taken without what was in it."""
    plan, texts = model_of(name)[0], ["the first", "a", "and the third of them all", "x y z", "the first", "so it was"]
    (tmp_path / "prompts").write_text("\n".join(texts) + "\n")
    options = ("-n", 9, "--temperature", 0, "--device", "cpu", "--json", "-q")
    run = atlas("run", plan, "-f", tmp_path / "prompts", *options)
    assert run.returncode == 0, run.stderr
    together = [r["tokens"] for r in json.loads(run.stdout)["results"]]
    alone = [json.loads(atlas("run", plan, "-p", text, *options).stdout)["results"][0]["tokens"] for text in texts]
    assert together == alone
    assert together[0] == together[4] and len({tuple(t) for t in together}) > 2
