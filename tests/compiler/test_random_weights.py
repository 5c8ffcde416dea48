"""`atlasc --random-weights`: a config.json becomes a plan that runs, without a checkpoint."""

import json
import math
import re

import pytest

FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "qwen3-nested"]
SMALL = "[runtime]\nslots = 2\nmax_context = 64\n[kv]\npage = 16\n[phases]\nprefill = [16]\ndecode = [2]\n"
ALL = ["--target", "sm_80"]


def shape_of(repo, fixture, **changes):
    """The fixture's config.json with one layer."""
    config = json.loads((repo / "tests/fixtures" / fixture / "config.json").read_text())
    inner = config.get("text_config", config)
    inner.update({"num_hidden_layers": 1} | changes)
    if "layer_types" in inner:
        inner["layer_types"] = inner["layer_types"][:1]
    return config


@pytest.fixture
def folder(repo, tmp_path):
    (tmp_path / "MODEL.toml").write_text(SMALL)
    (tmp_path / "config.json").write_text(json.dumps(shape_of(repo, "llama")))
    return tmp_path


def run_of(atlas, plan):
    done = atlas("run", plan, "--tokens", "1,2,3", "-n", 12, "--device", "cpu", "--json", "-q")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)["results"][0]


@pytest.mark.parametrize("fixture", FAMILIES)
def test_every_family(fixture, repo, atlasc, atlas, kernel_cache, folder):
    (folder / "config.json").write_text(json.dumps(shape_of(repo, fixture)))
    plan = folder / "plan.bin"
    done = atlasc(folder, "--random-weights", "-o", plan, "--cache-dir", kernel_cache, *ALL)
    assert done.returncode == 0, done.stderr
    result = run_of(atlas, plan)
    logprobs = result["logprobs"]
    assert len(set(result["tokens"])) > 3  # neither silence nor one token for ever
    assert all(math.isfinite(x) and x < -0.1 for x in logprobs)
    info = json.loads(atlas("info", plan, "--json").stdout)
    assert info["weights"] == "embed" and info["n_layers"] == 1
    audit = json.loads(atlas("audit", plan, "--json").stdout)
    assert audit["options"]["weights.random_seed"] == "0"


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
@pytest.mark.parametrize("key", ["torch_dtype", "dtype"])
def test_dtype_is_that_of_the_config(dtype, key, repo, atlasc, atlas, kernel_cache, folder):
    config = shape_of(repo, "llama")
    del config["torch_dtype"]
    (folder / "config.json").write_text(json.dumps(config | {key: dtype}))
    done = atlasc(folder, "--random-weights", "-o", folder / "plan.bin", "--cache-dir", kernel_cache, *ALL)
    assert done.returncode == 0, done.stderr
    done = atlasc(folder, "--random-weights", "-o", folder / "plan.bin", "--cache-dir", kernel_cache, *ALL, "-d", "g",
                  "--stop-after", "build-graph")
    short = {"bfloat16": "bf16", "float16": "f16", "float32": "f32"}[dtype]
    assert re.search(rf"model.layers.0.mlp.up_proj.weight .*{short}", done.stdout)
    run_of(atlas, folder / "plan.bin")


def test_same_seed_same_bytes(atlasc, kernel_cache, folder):
    plans = {}
    for name, words in {"one": ["-j", 1], "two": ["-j", 2], "file": [], "seed": ["--seed", 1]}.items():
        plan = folder / f"{name}.bin"
        source = folder / "config.json" if name == "file" else folder
        done = atlasc(source, "--random-weights", "-o", plan, "--cache-dir", kernel_cache, *ALL, *words)
        assert done.returncode == 0, done.stderr
        plans[name] = plan.read_bytes()
    assert plans["one"] == plans["two"] == plans["file"]
    assert plans["seed"] != plans["one"] and len(plans["seed"]) == len(plans["one"])


def test_a_config_of_another_name(repo, atlasc, atlas, kernel_cache, tmp_path):
    (tmp_path / "MODEL.toml").write_text(SMALL)
    (tmp_path / "small.json").write_text(json.dumps(shape_of(repo, "qwen2")))
    done = atlasc("small.json", "--random-weights", "-o", "plan.bin", "--cache-dir", kernel_cache, *ALL, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    run_of(atlas, tmp_path / "plan.bin")


def refused(atlasc, *words):
    done = atlasc(*words, "--dry-run")
    return done.returncode, [line for line in done.stderr.splitlines() if "error[" in line]


def test_refusals(repo, atlasc, folder):
    config = shape_of(repo, "llama")
    file = folder / "config.json"
    assert refused(atlasc, folder, "--random-weights", "--weights", "ref") == (2, [
        "atlasc: error[A0101]: --weights ref with --random-weights: there are no files to refer to"])
    assert refused(atlasc, folder, "--seed", "1") == (2, [
        "atlasc: error[A0101]: --seed is of --random-weights, which is not given"])
    for seed in ("-1", "x", str(1 << 64)):
        assert refused(atlasc, folder, "--random-weights", "--seed", seed) == (2, [
            f"atlasc: error[A0101]: --seed {seed}: expected a whole number below 2^64"])
    assert refused(atlasc, file) == (4, [f"{file}: error[A0104]: not a folder: give the checkpoint's folder"])
    file.write_text(json.dumps({k: v for k, v in config.items() if k != "torch_dtype"}))
    assert refused(atlasc, folder, "--random-weights") == (4, [
        f"{file}: error[A0202]: torch_dtype is missing: --random-weights needs it"])
    file.write_text(json.dumps(config | {"torch_dtype": "int8"}, indent=1))
    code, lines = refused(atlasc, folder, "--random-weights")
    assert code == 4 and len(lines) == 1
    assert lines[0].endswith('error[A0203]: torch_dtype = "int8": expected bfloat16, float16 or float32')
    assert re.search(r"config.json:\d+:\d+: ", lines[0])
