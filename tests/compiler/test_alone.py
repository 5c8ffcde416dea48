"""`[kernels] fuse = false`: every op of the graph is a launch of its own, for every fixture and target, and the model
stays what it is."""

import json
import os
import pathlib
import re

import pytest

from safetensors import safe_open

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
FAMILIES = sorted(p.parent.name for p in FIXTURES.glob("*/golden.safetensors"))
TARGETS = ["sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a", "sm_121a"]
# what a graph op becomes where it does not keep its name
BECOMES = {
    "linear": {"linear", "linear_rows"},
    "rmsnorm": {"norm_rows"},
    "attention": {"attention", "attention_rows"},
    "experts": {"group_rows", "experts_up", "experts_down_rows", "sum_terms"},
}
PHASES = {"prefill": "p", "decode": "d", "draft": "D", "verify": "V"}


@pytest.fixture
def alone(tmp_path):
    """The MODEL.toml of a fixture with fusions off, and other lines."""

    def written(name, line="fuse = false"):
        path = tmp_path / f"{name}.toml"
        path.write_text((FIXTURES / name / "MODEL.toml").read_text() + f"\n[kernels]\n{line}\n")
        return path

    return written


def ops_of_graph(atlasc, name, toml):
    """The ops of each phase, in order, by the printed graph."""
    run = atlasc(FIXTURES / name, "--model", toml, "--target", "sm_90a", "-d", "g", "--stop-after", "build-graph")
    assert run.returncode == 0, run.stderr
    ops = re.findall(r"^op +-?\d+ +(\w+) +([pdaDV-]+) ", run.stdout, re.M)
    return {phase: [op for op, marks in ops if mark in marks] for phase, mark in PHASES.items()}


def quick(*names):
    """All fixtures, of which these are tried in every run."""
    return [name if name in names else pytest.param(name, marks=pytest.mark.long) for name in FAMILIES]


@pytest.mark.parametrize(
    "name", quick("llama", "qwen2", "llama-f16", "llama-nvfp4-ct", "llama-int4-awq", "qwen3_next", "qwen3_5_moe")
)
def test_every_op_is_alone(atlasc, alone, name):
    """Each op of a phase's graph is there, in the same order, and nothing else."""
    toml = alone(name)
    graph = ops_of_graph(atlasc, name, toml)
    for target in TARGETS:
        run = atlasc(FIXTURES / name, "--model", toml, "--target", target, "-d", "k", "--stop-after", "pick-kernels")
        assert run.returncode == 0, run.stderr
        parts = re.split(r"^phase +\S+ (\w+) rows \d+ outs \d+$", run.stdout, flags=re.M)
        seen = 0
        for phase, text in zip(parts[1::2], parts[2::2]):
            if phase not in PHASES:
                continue
            lowered = re.findall(r"^  -?\d+ +(\w+) ", text, re.M)
            want = list(graph[phase])
            while want:
                becomes = BECOMES.get(want[0], {want[0]})
                assert lowered and lowered[0] in becomes, (target, phase, want[0], lowered[:1])
                n = len(becomes) if want[0] == "experts" else 1
                assert set(lowered[:n]) <= becomes
                lowered, want, seen = lowered[n:], want[1:], seen + 1
            assert not lowered
        assert seen > 0


def tokens(atlas, plan, ids, n):
    run = atlas(
        "run", plan, "--tokens", ",".join(map(str, ids)), "-n", n, "--temperature", 0, "--repetition-penalty", 1,
        "--device", "cpu", "--speculate", "off", "--json", "-q",
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)["results"][0]["tokens"]


@pytest.mark.parametrize("name", quick("llama", "qwen3_moe"))
def test_plan_computes_the_graph(plan_of, atlas, alone, name):
    """Opening a plan compares what its launches mean with the graph; the reference device, which reads that graph, makes
    the tokens of transformers."""
    plan = plan_of(name, "--model", alone(name), "--target", "sm_90a")
    audit = json.loads(atlas("audit", plan, "--json").stdout)
    launches = [
        op["op"] for phase in audit["targets"][0]["phases"] if phase["phase"] != "probe" for op in phase["launches"]
    ]
    assert "linear_rows" in launches and not {"norm_linear", "linear_residual", "attention_step"} & set(launches)
    with safe_open(FIXTURES / name / "golden.safetensors", "numpy") as golden:
        want = golden.get_tensor("p0.greedy").reshape(-1).tolist()[:8]
        assert tokens(atlas, plan, golden.get_tensor("p0.input_ids").reshape(-1).tolist(), len(want)) == want


@pytest.mark.parametrize("name", quick("llama", "qwen3_5"))
def test_a_session_opens_and_steps(plan_of, atlas, alone, name, build_dir):
    """On the fake driver, with drafts where a head makes them. Steps whose rows all have outs read no out_row then."""
    plan = plan_of(name, "--model", alone(name), "--target", "sm_90a")
    fake = {**os.environ, "LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"}
    run = atlas("run", plan, "--device", "cuda", "--tokens", "1,2,3", "-n", 4, env=fake)
    assert run.returncode == 0, run.stderr


def test_the_plan_records_it(atlasc, alone, tmp_path, atlas):
    for line, want in (("fuse = false", "false"), ("fuse = true", "true")):
        plan = tmp_path / "plan.bin"
        run = atlasc(FIXTURES / "llama", "--model", alone("llama", line), "--target", "none", "-o", plan, "-q")
        assert run.returncode == 0, run.stderr
        audit = json.loads(atlas("audit", plan, "--json").stdout)
        assert f'"kernels.fuse": "{want}"' in json.dumps(audit)


def test_other_values_are_refused(atlasc, alone):
    toml = alone("llama", 'fuse = "no"')
    run = atlasc(FIXTURES / "llama", "--model", toml, "--target", "none", "--dry-run")
    assert run.returncode == 4
    line = toml.read_text().splitlines().index('fuse = "no"') + 1
    assert f'{toml}:{line}:8: error[A0303]: kernels.fuse = "no": expected true or false' in run.stderr
