"""Decode steps of families other than Llama's and Qwen's: which launches a layer has, and that they compute what the
graph means. Few rows stream their experts, one launch chooses them, a norm after a product is added where it is made."""

import pathlib
import subprocess

import pytest
from atlasc_texts import launches

REPO = pathlib.Path(__file__).resolve().parents[2]
FAMILIES = REPO / "tests" / "families"
EXPERTS = ["experts_up", "experts_down"]
# Of the last layer, from the product of its attention on.
AFTER_ATTENTION = {
    "gpt_oss-mxfp4": ["linear_residual", "norm_route", "experts_up_clamped", "experts_down"],
    "mixtral": ["linear_residual", "norm_route", *EXPERTS],
    "minimax_m2": ["linear_residual", "norm_route_sigmoid", *EXPERTS],
    "laguna": ["linear_residual", "norm_route_sigmoid", *EXPERTS],
    "glm4_moe": ["linear_residual", "norm_route_sigmoid", *EXPERTS],
    "gemma3": ["linear_rows", "norm_residual", "norm_geglu", "linear_rows", "norm_residual"],
    "olmo3": ["linear_rows", "norm_residual", "linear_swiglu", "linear_rows", "norm_residual"],
    "exaone4": ["linear_rows", "norm_residual", "linear_swiglu", "linear_rows", "norm_residual"],
    "gemma4-moe": [
        "linear_rows",
        "norm_residual",
        "norm_geglu",
        "linear_rows",
        "norm_rows",
        "norm_rows",
        "norm_route_scaled",
        "experts_up_gelu",
        "experts_down",
        "norm_residual",
        "norm_residual",
    ],
}


def atlasc(build_dir, *words):
    done = subprocess.run([build_dir / "atlasc", *map(str, words)], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", AFTER_ATTENTION)
def test_launches_of_a_layer(build_dir, name):
    """At one row; up to 64 rows stream experts, and of prompts all rows do what they did."""
    dump = atlasc(build_dir, FAMILIES / name, "--target", "sm_90a", "--stop-after", "pick-kernels", "-d", "k")
    phases = {key: [x for x in found if x.layer >= 0] for key, found in launches(dump).items()}
    one = phases["decode", 1]
    ops = [x.op for x in one if x.layer == sorted({x.layer for x in one})[-2]]  # the head is the one after it
    assert ops[-len(AFTER_ATTENTION[name]) :] == AFTER_ATTENTION[name]
    for (kind, rows), found in phases.items():
        if kind == "decode" and rows <= 64:
            assert not {"group_rows", "route", "route_sigmoid"} & {x.op for x in found}
            assert all("expert" in x.operands for x in found if x.op.startswith("experts_up"))


def test_gates_of_heads_leave_q_k_and_v_joined(build_dir):
    """What reads a gate takes no columns of a joined tensor; q, k and v are one product beside it all the same."""
    dump = atlasc(build_dir, FAMILIES / "laguna", "--target", "sm_90a", "--stop-after", "pick-kernels", "-d", "k")
    for (kind, _), found in launches(dump).items():
        ops = [x.op for x in found]
        if kind == "decode":
            assert "attention_step" in ops and "softplus_gate" in ops and "head_norm" not in ops


def test_an_invariant_plan_streams_no_gates(build_dir, tmp_path):
    """Gate and up without a norm, and with gelu, are streamed in an order that many rows do not have."""
    (tmp_path / "MODEL.toml").write_text("[numerics]\ninvariant = true\n")
    for name in ("gemma3", "olmo3"):
        dump = atlasc(build_dir, FAMILIES / name, "--model", tmp_path / "MODEL.toml", "--target", "sm_90a",
                      "--stop-after", "pick-kernels", "-d", "k")  # fmt: skip
        ops = {x.op for (kind, _), found in launches(dump).items() for x in found if kind == "decode"}
        assert "norm_residual" in ops and not {"norm_geglu", "linear_swiglu"} & ops


@pytest.mark.parametrize("name", ["exaone4", pytest.param("olmo3", marks=pytest.mark.long)])
def test_plans_compute_what_their_graph_means(build_dir, tmp_path, name):
    """Launches by what their ops mean, on memory full of NaN, against the reference device."""
    plan = tmp_path / "p.bin"
    atlasc(build_dir, FAMILIES / name, "-o", plan, "-q", "--target", "sm_90a", "--cache-dir",
           build_dir / "kernel-cache")  # fmt: skip
    done = subprocess.run([build_dir / "tests" / "plan_play", plan], capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
