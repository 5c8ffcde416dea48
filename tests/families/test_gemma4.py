"""What Gemma-4 has and no family had: layers around their window, in pieces of prompts and in steps that verify; keys and
values of other layers; what checkpoints of its E-series carry and no op reads."""

from __future__ import annotations

import json
import pathlib
import shutil

import numpy as np
import pytest
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ["gemma4", "gemma4-moe", "gemma4-ple"]
WINDOW = 16
TOLERANCE = 1e-5
SMALL = """\
[runtime]
slots = 3
max_context = 256

[kv]
page = 16

[phases]
prefill = [16]
decode = [1, 3]
"""
NGRAM = SMALL + '\n[speculate]\ndrafter = "ngram"\nrows = 3\n'


def plan_with(plan_of, tmp_path, name, options):
    (tmp_path / "MODEL.toml").write_text(options)
    return plan_of(HERE / name, "--target", "none", "--model", tmp_path / "MODEL.toml")


def logits_of(atlas, plan, ids, folder):
    ids = ",".join(map(str, ids))
    done = atlas("dump", plan, "--tokens", ids, "--device", "cpu", "-o", folder / "d.safetensors", "-q")
    assert done.returncode == 0, done.stderr
    return load_file(folder / "d.safetensors")["logits"]


def answers_of(atlas, plan, prompts, n, *words):
    """Greedy tokens after each of the prompts, which share steps."""
    out = []
    for ids in prompts:
        ids = ",".join(map(str, ids))
        done = atlas(
            "run", plan, "--tokens", ids, "-n", n, "--temperature", 0, "--device", "cpu", "--json", "-q", *words
        )
        assert done.returncode == 0, done.stderr
        told = json.loads(done.stdout)
        out.append(told["results"][0]["tokens"])
    return out, told.get("speculate")


@pytest.mark.parametrize("n", [WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW + 3])
@pytest.mark.parametrize("name", NAMES)
def test_prompts_around_the_window(atlas, plan_of, tmp_path, name, n):
    """Read in pieces of 16 rows: what a layer of another's keys sees was written by steps before."""
    want = load_file(HERE / name / "golden.safetensors")
    got = logits_of(atlas, plan_with(plan_of, tmp_path, name, SMALL), want["prompt"][:n], tmp_path)
    assert got.shape == (n, want["logits"].shape[1])
    assert np.max(np.abs(got - want["logits"][:n])) < TOLERANCE * np.max(np.abs(want["logits"]))


@pytest.mark.parametrize("name", NAMES)
def test_verify_steps(atlas, plan_of, tmp_path, name):
    """Drafts by n-grams, whose steps cap logits as well: the text is that without drafts, and of transformers."""
    plan = plan_with(plan_of, tmp_path, name, NGRAM)
    want = load_file(HERE / name / "golden.safetensors")
    prompts = [want["prompt"].tolist(), [5, 6, 7, 5, 6, 7, 5, 6]]
    plain, _ = answers_of(atlas, plan, prompts, 150, "--speculate", "off")
    drafted, told = answers_of(atlas, plan, prompts, 150, "--speculate", "ngram")
    assert drafted == plain and plain[0][:16] == want["tokens"].tolist()
    assert told["drafts"] > 0


def graph_text(atlasc, folder, *words):
    done = atlasc(folder, "--target", "none", "--stop-after", "build-graph", "-d", "g", *words)
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


def test_layers_that_read_others_keep_nothing(atlasc):
    """Six layers, three caches: no pages, no writes, no weights of keys and values of the others."""
    lines = graph_text(atlasc, HERE / "gemma4-ple")
    assert [line.split()[1] for line in lines if line.startswith("tensor  kv.")] == ["kv.0", "kv.1", "kv.2"]
    ops = [line.split() for line in lines if line.startswith("op ")]
    assert [op[1] for op in ops if op[2] == "kv_write"] == ["0", "1", "2"]
    read = [next(w for w in op if w.startswith("kv=")) for op in ops if op[2] == "attention"]
    assert read == ["kv=kv.0", "kv=kv.1", "kv=kv.2", "kv=kv.1", "kv=kv.1", "kv=kv.2"]
    assert not any(
        f"layers.{layer}.self_attn.{m}" in line for line in lines for layer in (3, 4, 5) for m in ("k_", "v_")
    )


def test_a_format_of_keys_is_that_of_the_layer_that_has_them(atlasc, tmp_path):
    (tmp_path / "MODEL.toml").write_text('[[kv.layers]]\nlayers = "1"\ndtype = "fp8"\n')
    lines = graph_text(atlasc, HERE / "gemma4-ple", "--model", tmp_path / "MODEL.toml")
    read = [line for line in lines if line.startswith("op ") and " attention " in line and "kv=kv.1 " in line]
    assert len(read) == 3 and all("kv_scale=" in line for line in read)
    (tmp_path / "MODEL.toml").write_text('[[kv.layers]]\nlayers = "4"\ndtype = "fp8"\n')
    done = atlasc(HERE / "gemma4-ple", "--target", "none", "--dry-run", "--model", tmp_path / "MODEL.toml")
    assert done.returncode == 4
    said = "error[A0304]: kv.layers: layer 4 reads the keys and values of layer 1: name that one"
    assert said in done.stderr, done.stderr


def test_unread_keys_of_a_checkpoint(atlasc, atlas, tmp_path):
    """Files of the E-series have k_proj, v_proj and k_norm of layers that read others': transformers leaves them out."""
    folder = tmp_path / "m"
    shutil.copytree(HERE / "gemma4-ple", folder)
    raw = load_raw(folder / "model.safetensors")
    for name in ("k_proj.weight", "v_proj.weight", "k_norm.weight"):
        raw[f"model.layers.4.self_attn.{name}"] = raw[f"model.layers.1.self_attn.{name}"]
    save_raw(folder / "model.safetensors", raw)
    done = atlasc(folder, "--target", "none", "-o", tmp_path / "p.bin")
    assert done.returncode == 0, done.stderr
    said = "note[A0605]: model.layers.4.self_attn.k_proj.weight and 2 more are not read: layer 4 has the keys and values of"
    assert said in done.stderr, done.stderr
    want = load_file(folder / "golden.safetensors")
    got = logits_of(atlas, tmp_path / "p.bin", want["prompt"], tmp_path)
    assert np.max(np.abs(got - want["logits"])) < TOLERANCE * np.max(np.abs(want["logits"]))


def load_raw(path):
    """Tensors as (dtype, shape, bytes): numpy has no bfloat16."""
    data = path.read_bytes()
    size = int.from_bytes(data[:8], "little")
    header, body = json.loads(data[8 : 8 + size]), data[8 + size :]
    header.pop("__metadata__", None)
    return {k: (v["dtype"], v["shape"], body[slice(*v["data_offsets"])]) for k, v in header.items()}


def save_raw(path, tensors):
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
