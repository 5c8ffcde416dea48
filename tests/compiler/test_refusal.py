"""A refusal names what is false, with file and line of the contract, and all buckets and layers that it is about."""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import pytest

TOML = """[model]
family = "llama"
[runtime]
slots = 4
max_context = 512
[phases]
prefill = [16]
decode = [1, 2, 4]
"""
PIN = (
    TOML
    + """[[kernels.pin]]
op = "norm_linear"
template = "gemv_norm"
"""
)
BAN = (
    TOML
    + """[[kernels.ban]]
template = "attn_step"
"""
)


def place(repo: pathlib.Path, name: str, start: str) -> str:
    """Of the one line of that file of kernels/templates that begins so."""
    (file,) = (repo / "kernels/templates").rglob(name)
    lines = file.read_text(encoding="utf-8").splitlines()
    (at,) = [n for n, line in enumerate(lines, 1) if line.strip().startswith(start)]
    return f"({file.relative_to(repo)}:{at})"


def refusal(atlasc, tmp_path, text, *words):
    """(MODEL.toml, first line, the others)"""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(text)
    done = atlasc("tests/fixtures/llama", "--model", toml, "--target", "sm_90a", "--dry-run", "-q", *words)
    assert done.returncode == 3, done.stderr
    first, *lines = done.stderr.splitlines()
    return toml, first, lines


def test_a_pin_says_what_its_template_lacks(atlasc, repo, tmp_path):
    """Of the pinned template alone, with file and line; --verbose has the others, each with its place."""
    toml, first, lines = refusal(atlasc, tmp_path, PIN)
    assert first == (
        f"{toml}:9:11: error[A0701]: this pin of gemv_norm leaves no admissible kernel for norm_linear (prefill rows "
        "16, all decode buckets, all layers, sm_90a)"
    )
    why = "rejected w: model.layers.0.self_attn.q_proj.weight (+2) is bf16, which WT does not take"
    assert lines == [f"    gemv_norm: {why} " + place(repo, "operands.cuh", "IN(WT, w,")]
    toml, again, lines = refusal(atlasc, tmp_path, PIN, "--verbose")
    assert again == first and len(lines) > 20
    for line in lines:
        template = line.split()[0].rstrip(":")
        place_of = re.search(r": rejected .* \(kernels/templates/\w+/(\w+)\.cuh?:[1-9][0-9]*\)$", line)
        of = (template, re.sub("_[a-z]+$", "_contract", template), "operands")  # its own file, or its family's fragment
        assert place_of[1] in of if place_of else line.endswith(": excluded by the pin at MODEL.toml:9"), line


def test_a_ban_is_blamed_once(atlasc, tmp_path):
    """Whatever the layers and buckets: one line at the ban. What it excludes is listed with --verbose."""
    toml, first, lines = refusal(atlasc, tmp_path, BAN)
    where = "all decode buckets, all layers, sm_90a"
    said = "error[A0701]: this ban of attn_step leaves no admissible kernel for attention_step"
    assert (first, lines) == (f"{toml}:9:11: {said} ({where})", [])
    toml, first, lines = refusal(atlasc, tmp_path, BAN, "-v")
    assert first == f"{toml}:9:11: {said} ({where})"
    assert any(line.startswith("    attn_step ") and line.endswith(": banned at MODEL.toml:9") for line in lines)
    assert all(line.startswith(("    attn_step ", "    attn_step_extra")) for line in lines)


@pytest.mark.parametrize(
    "narrowed,where",
    [
        ('layers = "1"', "all decode buckets, layer 1"),
        ('phase = "decode"', "all decode buckets, all layers"),
    ],
)
def test_a_ban_of_some_layers(atlasc, tmp_path, narrowed, where):
    toml, first, lines = refusal(atlasc, tmp_path, BAN + narrowed + "\n")
    assert first.endswith(f"for attention_step ({where}, sm_90a)") and lines == []


def test_two_bans_are_both_named(atlasc, tmp_path):
    """One is not enough: a kernel that its contract only does not prefer takes the place."""
    toml = tmp_path / "MODEL.toml"
    ban = '[[kernels.ban]]\ntemplate = "{}"\n'
    toml.write_text(TOML + ban.format("stream_norm"))
    words = ("--model", toml, "--target", "sm_90a", "--stop-after", "pick-kernels", "-d", "k", "-q")
    done = atlasc("tests/fixtures/llama", *words)
    assert done.returncode == 0 and "gemm_norm" in done.stdout.split("phase   sm_90a decode rows 1 ")[1], done.stderr
    toml, first, lines = refusal(atlasc, tmp_path, TOML + ban.format("stream_norm") + ban.format("gemm_norm"))
    assert first == (
        f"{toml}:11:11: error[A0701]: this ban of gemm_norm leaves no admissible kernel for norm_linear (prefill rows "
        "16, all decode buckets, all layers, sm_90a)"
    )
    assert lines == ["    and the ban of stream_norm at MODEL.toml:9"]


def test_a_pin_of_what_is_only_not_preferred(atlas, plan_of, repo, tmp_path):
    """It is chosen, and says so; readers of the plan compute the same."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(PIN.replace("gemv_norm", "gemm_norm") + 'phase = "decode"\n')
    plan = plan_of("llama", "--model", toml, "--target", "sm_90a")
    text = atlas("audit", plan, "--json").stdout
    phases = json.loads(text)["targets"][0]["phases"]
    ops = [x for p in phases if p["phase"] == "decode" for x in p["launches"] if x["op"] == "norm_linear"]
    assert len(ops) == 3
    for launch, rows in zip(ops, (1, 2, 4)):
        chosen = next(c for c in launch["candidates"] if c["verdict"] == "chosen")
        assert (chosen["template"], chosen["cost_from"]) == ("gemm_norm", "pin")
        assert chosen["reason"] == f"not preferred: ROWS >= 9 is false: ROWS = {rows}"
    recheck = [sys.executable, repo / "tests/audit/recheck.py"]
    run = subprocess.run(recheck, input=text, capture_output=True, text=True, timeout=300)
    assert run.stdout.endswith(" verdicts, 0 disagreements\n"), run.stdout


@pytest.mark.parametrize(
    "model,template,phase,tunables",
    [
        ("llama", "attn_step", "decode", "WARPS = 8, STAGES = 2, SPLITS = 8, CLUSTER = 8"),
        pytest.param(
            *("llama-hd256", "attn_step", "decode", "WARPS = 2, STAGES = 2, CLUSTER = 4, SPLITS = 4"),
            marks=pytest.mark.long,
        ),
        pytest.param(*("llama", "gemm_norm", "decode", "BM = 128, BN = 128"), marks=pytest.mark.long),
        pytest.param(*("llama", "gemm_residual", "prefill", "BM = 16, BN = 128"), marks=pytest.mark.long),
        ("qwen3_moe", "route_tiles", "prefill", "PARTS = 8"),
    ],
)
def test_taste_excludes_no_pin(atlas, plan_of, tmp_path, model, template, phase, tunables):
    """What is only not worth while is no reason to refuse a kernel: it compiles, and the plan says what it lacks."""
    toml = tmp_path / "MODEL.toml"
    pin = f'[[kernels.pin]]\ntemplate = "{template}"\nphase = "{phase}"\ntunables = {{ {tunables} }}\n'
    toml.write_text(TOML.replace('"llama"', f'"{model.split("-")[0]}"') + pin)
    plan = plan_of(model, "--model", toml, "--target", "sm_90a")
    phases = json.loads(atlas("audit", plan, "--json").stdout)["targets"][0]["phases"]
    found = [c for p in phases if p["phase"] == phase for x in p["launches"] for c in x["candidates"]]
    chosen = [c for c in found if c["verdict"] == "chosen" and c["template"] == template]
    assert chosen
    for c in chosen:
        assert set(tunables.replace(" = ", "=").split(", ")) <= set(c["tunables"].split()), c
        assert c["cost_from"] == "pin" and c["reason"].startswith("not preferred: "), c


def test_pruned_needs_candidates(atlasc):
    run = atlasc("tests/fixtures/llama", "--pruned")
    assert (run.returncode, run.stderr) == (2, "atlasc: error[A0101]: --pruned needs --candidates\n")


def test_equal_buckets_are_refused_once(atlasc, repo, tmp_path):
    """An op without a kernel for its dtypes is one error for each set of dtypes, however many buckets there are."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(
        "[phases]\nprefill = [16, 64]\ndecode = [1, 2, 4]\n[runtime]\nslots = 4\nmax_context = 512\n"
        '[[kernels.ban]]\ntemplate = "attn_step"\n[[kernels.ban]]\ntemplate = "gemv_norm"\n'
        '[[kernels.ban]]\ntemplate = "stream_norm"\n'
    )
    done = atlasc("tests/fixtures/llama", "--model", toml, "--target", "sm_90a", "--dry-run", "-q")
    heads = [line for line in done.stderr.splitlines() if "error[A0701]" in line]
    assert done.returncode == 3 and len(heads) == len(set(h.split(" (")[0] for h in heads)), done.stderr
