"""A refusal names what is false, and where it stands: file and line of each template's contract."""

from __future__ import annotations

import pathlib
import re

TOML = """[model]
family = "llama"
[runtime]
slots = 2
max_context = 512
[phases]
prefill = [16]
decode = [2]
[[kernels.pin]]
op = "norm_linear"
template = "gemm_norm"
"""


def place(repo: pathlib.Path, template: str, start: str) -> str:
    """Of the one line of the template's file that begins so."""
    (path,) = (repo / "kernels/templates").glob(f"*/{template}.cu")
    file = str(path.relative_to(repo))
    lines = (repo / file).read_text(encoding="utf-8").splitlines()
    (at,) = [n for n, line in enumerate(lines, 1) if line.strip().startswith(start)]
    return f"({file}:{at})"


def test_each_candidate_has_its_place(atlasc, repo, tmp_path):
    """A pin of a template whose predicate is false for two rows."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(TOML)
    done = atlasc("tests/fixtures/llama", "--model", toml, "--target", "sm_90a", "--dry-run", "-q")
    assert done.returncode == 3
    message, *lines = done.stderr.splitlines()
    assert message == (
        f"{toml}:9:11: error[A0701]: this pin of gemm_norm leaves no admissible kernel for norm_linear (layer 0, "
        "decode rows 2, sm_90a)"
    )
    assert (
        "    gemm_norm: rejected ROWS >= 9 is false: ROWS = 2 " + place(repo, "gemm_norm", "PREFER(ROWS >= 9)") in lines
    )
    assert (
        "    gemv_norm: rejected w: model.layers.0.self_attn.q_proj.weight (+2) is bf16, which WT does not take "
        + place(repo, "gemv_norm", "IN(WT, w,")
    ) in lines
    rejected = [line for line in lines if ": rejected " in line]
    assert len(rejected) > 3
    for line in rejected:
        assert re.search(r" \(kernels/templates/\w+/(\w+)\.cu:[1-9][0-9]*\)$", line)[1] == line.split()[0].rstrip(
            ":"
        ), line


def test_a_ban_is_blamed_once(atlasc, tmp_path):
    """Whatever the layers and buckets: one line at the ban, without kernels that would be rejected anyway."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(
        "[phases]\nprefill = [16]\ndecode = [1, 2, 4]\n[runtime]\nslots = 4\nmax_context = 512\n"
        '[[kernels.ban]]\ntemplate = "attn_step"\n'
    )
    done = atlasc("tests/fixtures/llama", "--model", toml, "--target", "sm_90a", "--dry-run", "-q")
    assert (done.returncode, done.stderr) == (
        3,
        (
            f"{toml}:7:11: error[A0701]: this ban of attn_step leaves no admissible kernel for attention_step (layer 0, decode "
            "rows 1, sm_90a)\n"
        ),
    )


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
