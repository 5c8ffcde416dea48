"""Every two references of a kind in a real plan are swapped (swap_run.c), and the reader refuses the plan unless it
computes the same: what artifacts/twice_check.c lists as beyond comparison, and nothing else."""

import re
import subprocess

import msgpack
import pytest
from plan_file import take_apart

COUNTERS = {"arrived", "readers", "routed"}  # zero before and after each launch: any place does
MUST_TRY = {
    "args_of_a_launch",
    "args_of_two_launches",
    "args_alike",
    "offsets_of_bufs",
    "tensors_of_bufs",
    "kernels_of_launches",
    "layers_of_launches",
    "made_layers_of_launches",
    "decisions_of_launches",
    "cubins_of_kernels",
    "constants_of_kernels",
    "operands_of_an_op",
    "operands_of_two_ops",
    "ops_of_the_graph",
    "weights_of_tensors",
    "offsets_of_weights",
    "names_of_tensors",
}


def stored_names(sections):
    """Names of graph tensors that a buffer of some phase stores."""
    return {
        buf["name"]
        for name, body in sections.items()
        if name.startswith("plan.")
        for phase in msgpack.unpackb(body)["phases"]
        for buf in phase["bufs"]
        if buf["tensor"] >= 0
    }


def is_harmless(line, stored):
    """Does the swapped plan compute the same, or is there nothing in the plan to compare with?"""
    kind, place = line.split(" ", 1)
    if kind == "offsets_of_bufs":  # inputs of acquire alone, which the host writes where the plan says; counters
        phase, names = re.fullmatch(r"(\S+)\[\d+\] buffers (.*)", place).groups()
        names = names.split(" and ")
        return (phase == "acquire" and all(n == "acquire" or n.startswith("new_") for n in names)) or all(
            n.split(".")[-1] in COUNTERS for n in names
        )
    if kind in ("args_of_two_launches", "args_alike"):
        return "zero_slots state" in place or place.split(" ")[-1] in COUNTERS  # which is cleared first; counters
    if kind == "cubins_of_kernels":
        return True  # of one template, since each holds its entry
    if kind == "operands_of_two_ops":
        return "(zero_slots)" in place or "(draw) operand 12" in place  # probabilities of drafts, which are not read
    if kind == "names_of_tensors":
        return not stored & set(re.fullmatch(r"tensors (\S+) and (\S+)", place).groups())
    return False


def check(build_dir, plan, most):
    run = subprocess.run(
        [build_dir / "tests" / "swap_run", plan, str(most)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    tried = {line.split()[0]: int(line.split()[1]) for line in run.stdout.splitlines() if line[0] != " "}
    refused = sum(int(line.split()[2]) for line in run.stdout.splitlines() if line[0] != " ")
    stored = stored_names(take_apart(plan.read_bytes()))
    accepted = [line.strip() for line in run.stdout.splitlines() if line[0] == " "]
    assert not [line for line in accepted if not is_harmless(line, stored)]
    assert not {kind for kind in MUST_TRY if not tried[kind]}
    assert refused > 0.8 * sum(tried.values())


@pytest.mark.parametrize("model", ["llama", "qwen3_5", "qwen3_moe"])
def test_swapped_references_are_refused(build_dir, small_plan_of, model):
    check(build_dir, small_plan_of(model), 40)


@pytest.mark.long
@pytest.mark.parametrize(
    "model",
    [
        "llama",
        "qwen2",
        "qwen3",
        "qwen3_5",
        "qwen3_5_moe",
        "qwen3_moe",
        "qwen3_next",
        "llama-fp8-block",
        "llama-nvfp4-modelopt",
        "llama-int4-awq",
        "qwen3-nvfp4-mixed",
        "../families/gpt_oss-mxfp4",
        "../families/laguna",
        "../families/gemma4-moe",
    ],
)
def test_more_swapped_references_are_refused(build_dir, plan_of, model):
    check(build_dir, plan_of(model), 1500)


def test_gate_and_up(build_dir, atlas, small_plan_of, tmp_path):
    """The two weights of decode that only their names tell apart, in a plan that is sealed again."""
    from plan_file import put_together  # noqa: PLC0415

    plan = small_plan_of("llama")
    data = plan.read_bytes()
    sections = take_apart(data)
    body = msgpack.unpackb(sections["plan.sm_90a"])
    phase = next(p for p in body["phases"] if p["kind"] == "decode")
    bufs = {b["name"].split(".mlp.")[-1]: b for b in phase["bufs"] if "layers.0.mlp" in b["name"]}
    gate, up = bufs["gate_proj.weight"], bufs["up_proj.weight"]
    gate["offset"], up["offset"] = up["offset"], gate["offset"]
    other = tmp_path / "other.bin"
    other.write_bytes(put_together(data[:12], sections | {"plan.sm_90a": msgpack.packb(body)}))
    run = atlas("info", other)
    launch = next(i for i, row in enumerate(phase["launches"]) if row["op"] == "norm_swiglu")
    assert run.returncode == 6 and run.stderr.splitlines()[0] == (
        f"atlas info: error[MALFORMED]: {other}: decode[2] launch {launch} (norm_swiglu): l0.h is not what the graph "
        "computes: of model.layers.0.mlp.up_proj.weight, where the graph has model.layers.0.mlp.gate_proj.weight"
    )
