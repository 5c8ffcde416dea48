"""`atlasc --random-weights`: a config.json becomes a plan that runs, without a checkpoint."""

import json
import math
import re

import msgpack
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import plan_file

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
    done = atlasc(
        folder,
        "--random-weights",
        "-o",
        folder / "plan.bin",
        "--cache-dir",
        kernel_cache,
        *ALL,
        "-d",
        "g",
        "--stop-after",
        "build-graph",
    )
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


@pytest.mark.parametrize(
    "fixture, quant",
    [
        *((f, "") for f in ("llama", "mistral", "qwen3-nested", "qwen3_moe", "qwen3_5_moe")),
        *(("llama", f) for f in ("fp8-block", "fp8-tensor", "fp8-channel", "nvfp4", "mxfp4")),
    ],
)
def test_made_at_open_are_those_that_would_be_embedded(fixture, quant, repo, atlasc, atlas, kernel_cache, folder):
    """The same answers by bits; and the plan holds nothing of the weights but how they are made."""
    config = json.loads((repo / "tests/fixtures" / fixture / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config))
    small = SMALL.replace("[16]", "[64]", 1)  # what the grid of Gated DeltaNet asks for
    (folder / "MODEL.toml").write_text(small)
    if quant:
        (folder / "MODEL.toml").write_text(small + f'[quant]\n"lm_head" = "{quant}"\n"*.down_proj" = "{quant}"\n')
    plans = {}
    for how in "embed", "ref":
        plans[how] = folder / f"{how}.bin"
        done = atlasc(
            folder,
            "--random-weights",
            "--seed",
            5,
            "--weights",
            how,
            "-o",
            plans[how],
            "--cache-dir",
            kernel_cache,
            "--target",
            "none",
        )
        assert done.returncode == 0, done.stderr
    results = {how: run_of(atlas, plan) for how, plan in plans.items()}
    assert results["embed"] == results["ref"]
    data = {how: plan.read_bytes() for how, plan in plans.items()}
    for each in data.values():
        plan_file.check(each)  # all hashes, by another program
    graphs = {how: msgpack.unpackb(plan_file.take_apart(each)["graph"]) for how, each in data.items()}
    named = {how: {w["name"]: w for w in g["weights"]} for how, g in graphs.items()}
    assert named["embed"].keys() == named["ref"].keys()
    for name, w in named["ref"].items():
        other = named["embed"][name]
        assert (w["dtype"], w["shape"], w["bytes"], other["made"]) == (
            other["dtype"],
            other["shape"],
            other["bytes"],
            "no",
        )
        assert w["made"] != "no" or w["hash"] == other["hash"]
    made = {w["made"] for w in named["ref"].values()}
    wanted = {
        "": {"no", "numbers"},
        "fp8-block": {"e4m3_scales"},
        "fp8-channel": {"e4m3_scales"},
        "fp8-tensor": {"e4m3_scale"},
        "nvfp4": {"e2m1_scales", "e2m1_scale"},
        "mxfp4": {"e2m1_scales"},
    }[quant]
    assert made == {"no", "numbers"} | wanted | ({"codes"} if quant else set())
    held = len(plan_file.take_apart(data["ref"])["weights"])
    assert held == max(w["offset"] + w["bytes"] for w in named["ref"].values() if w["made"] == "no")


def test_made_at_open_is_told_and_never_signed(atlas, atlasc, kernel_cache, folder, tmp_path):
    plan, embedded = folder / "ref.bin", folder / "embedded.bin"
    words = (folder, "--random-weights", "--seed", 11, "--cache-dir", kernel_cache, *ALL)
    assert atlasc(*words, "--weights", "ref", "-o", plan).returncode == 0
    assert atlasc(*words, "-o", embedded).returncode == 0
    info = json.loads(atlas("info", plan, "--json").stdout)
    assert (info["weights"], info["random_seed"]) == ("made", "11")
    assert re.search(r"^weights +\d+ bytes, random, made at open from seed 11$", atlas("info", plan).stdout, re.M)
    assert re.search(r"^weights +\d+ bytes, embedded, random, made from seed 11$", atlas("info", embedded).stdout, re.M)
    (tmp_path / "key.pem").write_bytes(
        Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    before = plan.read_bytes()
    run = atlas("sign", plan, "--key", tmp_path / "key.pem")
    assert (run.returncode, run.stderr) == (
        4,
        f"atlas sign: error: {plan}: its weights are random and made when it is opened: a signature cannot cover them\n",
    )
    assert plan.read_bytes() == before
    policy = tmp_path / "policy.toml"
    policy.write_text("[plan]\nrandom_weights = false\n")
    for made in plan, embedded:
        run = atlas("audit", made, "--check", policy)
        assert (run.returncode, run.stdout) == (
            1,
            f"{policy}:2: plan.random_weights: the weights are random, made from seed 11\n1 violation\n",
        )
    run = atlas("verify", plan, "--rebuild", "--checkpoint", folder)
    assert run.returncode == 0, run.stdout + run.stderr
    run = atlas("verify", plan, "--against", embedded, "--tokens", "1,2,3", "--device", "cpu")
    assert run.returncode == 0, run.stdout + run.stderr


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
    assert refused(atlasc, folder, "--random-weights", "--weights", "ref", "--sign", "key.pem") == (
        2,
        [
            "atlasc: error[A0101]: --sign with --random-weights --weights ref: a signature cannot cover weights that are "
            "made when the plan is opened"
        ],
    )
    assert refused(atlasc, folder, "--seed", "1") == (2, ["atlasc: error[A0101]: --seed needs --random-weights"])
    for seed in ("-1", "x", str(1 << 64)):
        assert refused(atlasc, folder, "--random-weights", "--seed", seed) == (
            2,
            [f"atlasc: error[A0101]: --seed {seed}: expected a whole number below 2^64"],
        )
    assert refused(atlasc, file) == (4, [f"{file}: error[A0104]: not a folder: give the checkpoint's folder"])
    file.write_text(json.dumps({k: v for k, v in config.items() if k != "torch_dtype"}))
    assert refused(atlasc, folder, "--random-weights") == (
        4,
        [f"{file}: error[A0202]: torch_dtype is missing: --random-weights needs it"],
    )
    file.write_text(json.dumps(config | {"torch_dtype": "int8"}, indent=1))
    code, lines = refused(atlasc, folder, "--random-weights")
    assert code == 4 and len(lines) == 1
    assert lines[0].endswith('error[A0203]: torch_dtype = "int8": expected bfloat16, float16 or float32')
    assert re.search(r"config.json:\d+:\d+: ", lines[0])
