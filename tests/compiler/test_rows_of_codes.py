"""Rows of long prompts are codes where all weights that read them are e4m3 and the target multiplies codes by codes.

What must stand in a phase follows from the formats of the checkpoint alone; nothing is compiled.
"""

import pathlib
import re
import subprocess
import sys

import pytest
from atlasc_texts import launches

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import mkckpt  # noqa: E402

CODES = [
    "norm_rows_fp8",
    "linear_rows",
    "rope_write",
    "attention",
    "quant_rows",
    "linear_residual",
    "norm_rows_fp8",
    "linear_swiglu_fp8",
    "linear_residual",
]
MAKES_CODES = {"norm_rows_fp8", "quant_rows", "linear_swiglu_fp8"}


@pytest.fixture
def lowered(build_dir, tmp_path):
    def run(recipe, target, options=""):
        """[(phase, rows, [(op, operands) of layer 0])] of a recipe's checkpoint, with this MODEL.toml."""
        folder = tmp_path / recipe
        if not folder.exists():
            mkckpt.build(mkckpt.recipes()[recipe]).write(folder)
        model = tmp_path / "MODEL.toml"
        model.write_text(options)
        command = [build_dir / "atlasc", folder, "--model", model, "--target", target]
        done = subprocess.run(
            [*command, "--dry-run", "--stop-after", "fuse", "-d", "f"],
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert done.returncode == 0, done.stderr
        phases = [
            (kind, rows, [(x.op, x.operands) for x in all_launches if x.layer == 0])
            for (kind, rows), all_launches in launches(done.stdout).items()
        ]
        assert any(kind == "decode" for kind, _, _ in phases)
        return phases

    return run


@pytest.mark.parametrize("recipe", ["llama-fp8-channel-ct", "llama-fp8-tensor-ct"])
def test_codes_from_the_first_norm_to_the_last_product(lowered, recipe):
    for kind, rows, ops in lowered(recipe, "sm_90a"):
        names = [name for name, _ in ops]
        if kind == "prefill" and rows > 64:
            assert names[-9:] == CODES
            for name, operands in ops[-9:]:
                assert ("x_scale" in operands) == name.startswith("linear")
                assert operands.get("x", "").endswith("e4m3") == name.startswith("linear")
                assert ("y_scale" in operands) == (name in MAKES_CODES)
        else:
            assert not MAKES_CODES & set(names)


@pytest.mark.parametrize(
    "recipe, target",
    [
        ("llama-fp8-channel-ct", "sm_80"),  # no instruction
        ("llama-fp8-block-f32", "sm_90a"),  # blocks of 32 x 64
        ("llama-nvfp4-ct", "sm_90a"),
    ],
)
def test_no_codes_elsewhere(lowered, recipe, target):
    for _, _, ops in lowered(recipe, target):
        assert not MAKES_CODES & {name for name, _ in ops}
        assert all("x_scale" not in operands for _, operands in ops)


def test_a_mixture_has_codes_where_it_may(lowered):
    """FP8 attention beside an NVFP4 MLP: the swiglu's rows stay bf16."""
    wide = [ops for kind, rows, ops in lowered("qwen3-nvfp4-mixed", "sm_90a") if kind == "prefill" and rows > 64]
    assert wide
    for ops in wide:
        names = [name for name, _ in ops]
        assert "quant_rows" in names and "linear_swiglu_fp8" not in names
        assert [("x_scale" in operands) for name, operands in ops if name == "linear_residual"] == [True, False]


@pytest.mark.parametrize("first", [0, 2, 8])
def test_answers_have_codes_where_model_toml_says_so(lowered, first):
    """numerics.fp8_rows is about decode and verify; without it their rows stay bf16, whatever their number."""
    options = "[runtime]\nslots = 8\n[phases]\ndecode = [1, 2, 4, 8]\n"
    options += f"[numerics]\nfp8_rows = {first}\n" if first else ""
    seen = {}
    for kind, rows, ops in lowered("llama-fp8-channel-ct", "sm_90a", options):
        names = [name for name, _ in ops]
        if kind == "decode":
            seen[rows] = bool(MAKES_CODES & set(names))
            if seen[rows]:
                assert [name for name in names if name not in ("embed_next", "attention_step")] == [
                    name for name in CODES if name not in ("rope_write", "attention")
                ]
        elif kind == "prefill":
            assert bool(MAKES_CODES & set(names)) == (rows > 64)
    assert seen == {rows: first > 0 and rows >= first for rows in (1, 2, 4, 8)}


def test_drafts_and_their_verify_steps_have_them_alike(lowered):
    options = (
        "[runtime]\nslots = 4\n[phases]\ndecode = [1, 4]\n[numerics]\nfp8_rows = 4\n[speculate]\nrows = 2\n"
        '[quant]\n"*.mlp.*" = "fp8-channel"\n'
    )
    phases = lowered("qwen3_5", "sm_90a", options)
    seen = {(kind, rows): bool(MAKES_CODES & {name for name, _ in ops}) for kind, rows, ops in phases}
    assert {k: v for k, v in seen.items() if k[0] in ("decode", "verify")} == {
        ("decode", 1): False,
        ("decode", 4): True,
        ("verify", 2): False,
        ("verify", 8): True,
    }


@pytest.mark.parametrize("recipe, products", [("llama-fp8-block", 2), ("llama-nvfp4-ct", 1)])
def test_the_probe_has_a_product_of_codes_where_others_are(build_dir, tmp_path, recipe, products):
    """What rate products of codes by codes have is measured by one of them."""
    mkckpt.build(mkckpt.recipes()[recipe]).write(tmp_path / "m")
    done = subprocess.run(
        [build_dir / "atlasc", tmp_path / "m", "--dry-run", "--stop-after", "fuse", "-d", "f"],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert len(re.findall(r"\blinear_residual\b", done.stdout[done.stdout.index(" probe rows 8192") :])) == products


EXPERTS_OF_CODES = ["norm_route", "group_rows", "gather_codes", "experts_up_fp8", "experts_down_fp8", "sum_experts"]


@pytest.mark.parametrize("recipe", ["moe-fp8-wide", "moe-fp8-shared"])
def test_experts_of_codes(lowered, recipe):
    """Long prompts gather codes for their experts, and what these make on the way up is codes; other phases do not."""
    seen = set()
    for kind, rows, ops in lowered(recipe, "sm_90a"):
        names = [name for name, _ in ops]
        if kind == "prefill" and rows > 64:
            assert names[-6:] == EXPERTS_OF_CODES
            of = dict(ops[-6:])
            assert of["experts_up_fp8"]["x"] == of["gather_codes"]["y"] and "[" in of["experts_up_fp8"]["h_scale"]
            assert of["experts_down_fp8"]["h"] == of["experts_up_fp8"]["h"]
            seen.add(rows)
        else:
            assert not {"gather_codes", "experts_up_fp8", "experts_down_fp8"} & set(names)
    assert seen


@pytest.mark.parametrize(
    "recipe, target",
    [
        ("moe-fp8-wide", "sm_80"),  # no instruction
        ("moe-fp8-narrow", "sm_90a"),  # the shared expert is narrower than the others
        ("moe-fp8", "sm_90a"),  # blocks of 32 x 32
        ("moe-nvfp4", "sm_90a"),
    ],
)
def test_no_experts_of_codes_elsewhere(lowered, recipe, target):
    for kind, rows, ops in lowered(recipe, target):
        names = {name for name, _ in ops}
        assert "gather_codes" not in names
        assert kind != "prefill" or rows <= 64 or {"experts_up", "experts_down_rows"} <= names
