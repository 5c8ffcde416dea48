"""Layers of experts on a GPU: which launches stand for them, in every format, and what is refused.

Up to 64 rows of a step stream the experts they chose, up to 256 of an answer's where all experts queue up, and more are
put in order first.
"""

import json
import pathlib
import subprocess
import sys

import pytest
from atlasc_texts import launches

REPO = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(REPO / "tests" / "mkckpt"))
import mkckpt  # noqa: E402

AS_THEY_COME = ["norm_route", "experts_up", "experts_down"]
IN_ORDER = ["norm_route", "group_rows", "experts_up", "experts_down_rows", "sum_experts"]
DTYPES = {"moe-fp8": "e4m3", "moe-nvfp4": "e2m1"}


def atlasc(build_dir, *words):
    return subprocess.run([build_dir / "atlasc", *map(str, words)], capture_output=True, text=True, timeout=600)


def layers(dump):
    """{(phase, rows): [(op, operands) of layer 0]} of a dump of fuse or pick-kernels."""
    return {key: [(x.op, x.operands) for x in found if x.layer == 0] for key, found in launches(dump).items()}


def kernels(dump, phase=""):
    """Names of the kernels of a dump of pick-kernels, of all phases or of those of one kind."""
    return {x.kernel for (kind, _), found in launches(dump).items() for x in found if kind.startswith(phase)}


def checkpoint(folder, recipe, **changed):
    mkckpt.build({**mkckpt.recipes()[recipe], **changed}).write(folder)
    return folder


def test_launches_of_a_layer(build_dir, tmp_path):
    """The plan of the fixture: six launches a layer in decode, of which the experts are three."""
    plan = tmp_path / "plan.bin"
    done = atlasc(
        build_dir,
        REPO / "tests/fixtures/qwen3_moe",
        "-o",
        plan,
        "-q",
        "--target",
        "sm_90a",
        "--cache-dir",
        build_dir / "kernel-cache",
    )
    assert done.returncode == 0, done.stderr
    audit = subprocess.run([build_dir / "atlas", "audit", plan, "--json"], capture_output=True, text=True, timeout=60)
    for phase in json.loads(audit.stdout)["targets"][0]["phases"]:
        if phase["phase"] not in ("prefill", "decode"):
            continue
        ops = [x["op"] for x in phase["launches"] if x["layers"] == [0, 1]]
        if phase["phase"] == "decode":
            assert ops == ["norm_linear", "attention_step", "linear_residual"] + AS_THEY_COME
        else:
            assert ops[-3:] == AS_THEY_COME if phase["rows"] <= 64 else ops[-5:] == IN_ORDER


@pytest.mark.parametrize("recipe", ["qwen3_moe", *DTYPES])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a"])
def test_every_format_has_kernels(build_dir, tmp_path, recipe, target):
    """From one row to long prompts: a kernel for each op, nothing left unfused."""
    folder, options = checkpoint(tmp_path / recipe, recipe), tmp_path / "MODEL.toml"
    options.write_text("[runtime]\nslots = 32\nmax_context = 256\n")
    done = atlasc(
        build_dir,
        folder,
        "--model",
        options,
        "--target",
        target,
        "--dry-run",
        "--stop-after",
        "pick-kernels",
        "-d",
        "k",
    )
    assert done.returncode == 0, done.stderr
    assert "not fused" not in done.stdout
    phases = layers(done.stdout)
    rows_seen = [rows for kind, rows in phases if kind == "decode"]
    assert min(rows_seen) == 1 and max(rows_seen) == 32
    for (kind, rows), ops in phases.items():
        if kind not in ("prefill", "decode"):
            continue
        names = [name for name, _ in ops]
        assert names[-3:] == AS_THEY_COME if rows <= 64 else names[-5:] == IN_ORDER
        for name, operands in ops:
            if name == "experts_up":
                assert operands["gate_up"].endswith(DTYPES.get(recipe, "bf16"))
                assert ("pair" in operands) == (rows > 64) == ("expert" not in operands)


@pytest.mark.parametrize(
    "recipe, target, queue_up",
    [
        ("moe-fp8", "sm_90a", True),
        ("moe-fp8-shared", "sm_90a", True),
        ("moe-fp8-narrow", "sm_90a", False),  # the shared expert is narrower than the others
        ("moe-fp8", "sm_80", False),  # too little shared memory for the terms of 256 rows
        ("qwen3_moe", "sm_90a", False),  # not measured
        ("moe-nvfp4", "sm_90a", False),
    ],
)
def test_rows_of_an_answer_queue_up(build_dir, tmp_path, recipe, target, queue_up):
    """From 9 to 256 rows of decode by one queue of experts in FP8; other ways end at 64. Prompts do too."""
    folder, options = checkpoint(tmp_path / recipe, recipe), tmp_path / "MODEL.toml"
    options.write_text(
        "[phases]\nprefill = [64, 128]\ndecode = [1, 8, 9, 64, 65, 256, 512]\n"
        "[runtime]\nslots = 512\nmax_context = 256\n"
    )
    words = ["--target", target, "--dry-run", "--stop-after", "pick-kernels", "-d", "k"]
    done = atlasc(build_dir, folder, "--model", options, *words)
    assert done.returncode == 0, done.stderr
    phases = layers(done.stdout)
    assert [name for name, _ in phases["prefill", 64]][-3:] == AS_THEY_COME
    assert "group_rows" in dict(phases["prefill", 128])
    for (kind, rows), ops in phases.items():
        if kind == "decode":
            most = 256 if queue_up else 64
            assert [name for name, _ in ops][-3:] == AS_THEY_COME if rows <= most else "group_rows" in dict(ops)
    for (kind, rows), found in launches(done.stdout).items():
        if kind != "decode":
            continue
        used = {x.kernel.split("_experts_")[0] for x in found if "_experts_" in x.kernel}
        can_queue = recipe in ("moe-fp8", "moe-fp8-shared", "moe-nvfp4")
        if rows <= 8:
            assert used == {"stream"}
        elif rows <= (256 if queue_up else 64):
            assert used == ({"queue"} if can_queue else {"stream"})
        else:
            assert not {"queue", "stream"} & used


@pytest.mark.parametrize("dtype", ["F16", "F32"])
def test_wide_weights_are_put_in_order(build_dir, tmp_path, dtype):
    """What no kernel streams goes through tiles, however few the rows are."""
    folder = checkpoint(tmp_path / "m", "qwen3_moe", dtype=dtype)
    done = atlasc(build_dir, folder, "--target", "sm_90a", "--dry-run", "--stop-after", "pick-kernels", "-d", "k")
    assert done.returncode == 0, done.stderr
    for (kind, _), ops in layers(done.stdout).items():
        assert kind not in ("prefill", "decode") or [name for name, _ in ops][-5:] == IN_ORDER


@pytest.mark.parametrize("recipe", ["qwen3_next", "qwen3_5_moe"])
def test_the_shared_expert_goes_with_the_others(build_dir, tmp_path, recipe):
    folder = checkpoint(tmp_path / recipe, recipe)
    done = atlasc(build_dir, folder, "--target", "sm_90a", "--dry-run", "--stop-after", "fuse", "-d", "f")
    assert done.returncode == 0, done.stderr
    shared = {**mkckpt.MOE, **mkckpt.recipes()[recipe]["moe"]}["shared"]
    for (kind, rows), ops in layers(done.stdout).items():
        if kind not in ("prefill", "decode"):
            continue
        names = [name for name, _ in ops]
        assert names[-3:] == AS_THEY_COME if rows <= 64 else names[-5:] == IN_ORDER
        assert not {"sigmoid_gate", "swiglu", "route", "experts"} & set(names)
        by_name = dict(ops)
        assert "shared_gate" in by_name["norm_route"]
        assert f"[{2 * shared},64]" in by_name["experts_up"]["shared"]


@pytest.mark.parametrize("recipe", ["qwen3_moe", "moe-fp8", "moe-nvfp4", "qwen3_5_moe"])
@pytest.mark.parametrize("target", ["sm_80", "sm_89", "sm_90a"])
@pytest.mark.parametrize("most", [256, 512])
def test_all_rows_of_an_invariant_plan_go_one_way(build_dir, tmp_path, recipe, target, most):
    """As they come, up to 256; a router and experts that add in one order for every number of rows."""
    folder, options = checkpoint(tmp_path / recipe, recipe), tmp_path / "MODEL.toml"
    options.write_text(
        f"[phases]\ndecode = [1, 9, {most}]\n[runtime]\nslots = {most}\nmax_context = 256\n"
        "[numerics]\ninvariant = true\n"
    )
    words = ["--target", target, "--dry-run", "--stop-after", "pick-kernels", "-d", "k"]
    done = atlasc(build_dir, folder, "--model", options, *words)
    assert done.returncode == 0, done.stderr
    decode = {rows: ops for (kind, rows), ops in layers(done.stdout).items() if kind == "decode"}
    assert sorted(decode) == [1, 9, most]
    want = AS_THEY_COME if most <= 256 else IN_ORDER
    for ops in decode.values():
        assert [name for name, _ in ops][-len(want) :] == want
    assert {name for name in kernels(done.stdout, "decode") if name.startswith("route_")} == {"route_rows"}


def test_the_router_of_an_invariant_plan_by_measured_times(build_dir, tmp_path):
    """A table that has times of another router only does not make it the router of few rows."""
    options = tmp_path / "MODEL.toml"
    options.write_text("[runtime]\nslots = 64\nmax_context = 512\n[numerics]\ninvariant = true\n")
    shape = REPO / "tests/gpu/shapes/qwen3.6-35b-a3b-fp8.json"
    words = ["--random-weights", "--weights", "ref", "--target", "sm_90a", "--dry-run", "--stop-after", "pick-kernels"]
    done = atlasc(build_dir, shape, "--model", options, *words, "-d", "k")
    assert done.returncode == 0, done.stderr
    used = kernels(done.stdout, "decode")
    assert {"route_rows", "stream_experts_up", "stream_experts_down"} <= used
    assert not {"route_tiles", "gemm_experts_up", "gemm_experts_down"} & used


def test_halves_of_two_formats(build_dir, tmp_path):
    """NVFP4 on the way up, plain on the way down."""
    recipe = mkckpt.recipes()["moe-nvfp4"]
    quant = {**recipe["quant"], "formats": {"*.down_proj": "plain", **recipe["quant"]["formats"]}}
    folder = checkpoint(tmp_path / "m", "moe-nvfp4", quant=quant)
    done = atlasc(build_dir, folder, "--target", "sm_90a", "--dry-run", "--stop-after", "pick-kernels", "-d", "k")
    assert done.returncode == 0, done.stderr
    for (kind, rows), ops in layers(done.stdout).items():
        if kind in ("prefill", "decode"):
            names = [name for name, _ in ops]
            assert names[-3:] == AS_THEY_COME if rows <= 64 else names[-5:] == IN_ORDER


def test_a_router_of_codes_is_not_fused(build_dir, tmp_path):
    """What chooses is read from codes by a kernel of its own, and the printed ops say why no fusion covers it."""
    recipe = {**mkckpt.recipes()["moe-fp8"]}
    formats = {"*.mlp.gate": "fp8-tensor", **recipe["quant"]["formats"]}
    folder = checkpoint(tmp_path / "m", "moe-fp8", quant={**recipe["quant"], "formats": formats})
    done = atlasc(build_dir, folder, "--target", "sm_90a", "--dry-run", "--stop-after", "pick-kernels", "-d", "k")
    assert done.returncode == 0, done.stderr
    assert "not fused: model.layers.0.mlp.gate.weight has scales: routers are not read from codes" in done.stdout
    for (kind, _), ops in layers(done.stdout).items():
        if kind in ("prefill", "decode"):
            names = [name for name, _ in ops]
            assert "norm_route" not in names and {"linear", "route", "sum_terms"} <= set(names)


@pytest.mark.parametrize("shape", ["qwen3-30b-a3b", "qwen3-30b-a3b-fp8"])
def test_real_shapes(build_dir, tmp_path, shape):
    """A config of a real model, of few layers: a kernel for every op of every bucket."""
    config = json.loads((REPO / f"tests/gpu/shapes/{shape}.json").read_text())
    config["num_hidden_layers"] = 2
    (tmp_path / "config.json").write_text(json.dumps(config))
    done = atlasc(
        build_dir,
        tmp_path / "config.json",
        "--random-weights",
        "--target",
        "sm_90a",
        "--dry-run",
        "--stop-after",
        "pick-kernels",
        "-d",
        "k",
    )
    assert done.returncode == 0, done.stderr
    used = kernels(done.stdout)
    prompts = (
        {"gather_codes", "wgmma_experts_up", "wgmma_experts_down"}
        if shape.endswith("fp8")
        else {"gemm_experts_up", "gemm_experts_down"}
    )
    assert {
        "route_rows",
        "route_tiles",
        "group_rows",
        "stream_experts_up",
        "stream_experts_down",
        "sum_experts",
        *prompts,
    } <= used
