"""Plans of Gated DeltaNet and gated attention: what becomes a launch, and that every launch has a kernel."""

import json
import pathlib
import re
import subprocess

import pytest
from atlasc_texts import launches

SHAPE = pathlib.Path(__file__).resolve().parent.parent / "gpu" / "shapes" / "qwen3.5-27b-fp8.json"
MLP = ["norm_swiglu", "linear_residual"]
MLP_OF_CODES = ["norm_rows_fp8", "linear_swiglu_fp8", "linear_residual"]


@pytest.mark.parametrize("target, state", [("sm_90a", ""), ("sm_80", ""), ("sm_90a", "bf16")])
def test_a_dense_fixture_compiles(atlas, small_plan_of, target, state):
    """With a kernel for every launch, seven of them in a decode layer at most, and state zeroed for each new sequence."""
    plan = small_plan_of("qwen3_5", "--target", target, prefill="[2, 16, 128]", state=state)
    phases = json.loads(atlas("audit", plan, "--json").stdout)["targets"][0]["phases"]
    for phase in phases:
        ops = [launch["op"] for launch in phase["launches"]]
        assert all(
            f" ST={state or 'f32'} " in launch["defines"]
            for launch in phase["launches"]
            if launch["op"].startswith("delta")
        )
        if phase["phase"] == "decode":
            layers = [launch["layers"] for launch in phase["launches"]]
            assert all(1 < layers.count([i, i]) <= 7 for i in range(3))
            assert ops.count("delta_step") == 2 and ops.count("attention_step") == 1
        if phase["phase"] == "prefill":
            assert ops.count("conv_rows") == ops.count("delta_rows") == 2 and ops.count("gate_rows") == 1
        if phase["phase"] == "acquire":
            assert ops.count("zero_slots") == 4
    assert {"prefill", "decode", "acquire"} <= {phase["phase"] for phase in phases}


@pytest.mark.parametrize("target, apart", [("sm_90a", [16, 128]), ("sm_80", []), ("sm_100a", [])])
def test_chunks_are_solved_apart(atlas, small_plan_of, target, apart):
    """On Hopper, in buckets of more rows than go one after the other. The walk reads what was solved, and the plan's
    reader finds that it means the rule."""
    plan = small_plan_of("qwen3_5_moe-trained", "--target", target, prefill="[2, 16, 128]")
    rows = {}
    for phase in json.loads(atlas("audit", plan, "--json").stdout)["targets"][0]["phases"]:
        if phase["phase"] == "prefill":
            rows[phase["rows"]] = {launch["op"] for launch in phase["launches"] if launch["op"].startswith("delta")}
    assert list(rows) == [2, 16, 128]
    assert all(rows[n] == ({"delta_solve", "delta_walk"} if n in apart else {"delta_rows"}) for n in rows)


def lower(build_dir, *options):
    """{(phase, rows): {layer: [(op, operands)]}} of the FP8 shape, in which b and a alone are bf16."""
    done = subprocess.run(
        [
            build_dir / "atlasc",
            SHAPE,
            "--random-weights",
            "--target",
            "sm_90a",
            "--dry-run",
            "--stop-after",
            "fuse",
            "-d",
            "f",
            *options,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    phases = {}
    for key, found in launches(done.stdout).items():
        layers = phases[key] = {}
        for x in (x for x in found if x.layer >= 0):
            layers.setdefault(x.layer, []).append((x.op, x.operands))
    return phases


@pytest.fixture(scope="module")
def lowered(build_dir):
    return lower(build_dir)


def names(ops):
    return [op for op, _ in ops]


def test_products_of_two_formats_behind_one_norm(lowered):
    """Each of the groups that can be joined is a product: with the norm inside, or on rows as it likes them."""
    for (kind, rows), layers in lowered.items():
        if kind == "decode":
            products = ["norm_linear_narrow"] if rows <= 16 else ["norm_linear", "norm_linear"]
            assert names(layers[0]) == [*products, "delta_step", "linear_residual", *MLP]
            assert names(layers[3]) == ["norm_linear", "attention_step", "linear_residual", *MLP]
            delta = layers[0][len(products)][1]
            assert delta["x"] == layers[0][0][1]["y"]
            assert delta["ba"] == layers[0][len(products) - 1][1]["y_narrow" if rows <= 16 else "y"]
        elif kind == "prefill" and rows > 64:
            assert names(layers[0]) == [
                "norm_rows_fp8",
                "linear_rows",
                "norm_rows",
                "linear_rows",
                "conv_rows",
                "delta_solve",
                "delta_walk",
                "quant_rows",
                "linear_residual",
                *MLP_OF_CODES,
            ]
            assert "x_scale" in layers[0][1][1] and "x_scale" not in layers[0][3][1]
            assert names(layers[3]) == [
                "norm_rows_fp8",
                "linear_rows",
                "rope_write",
                "attention",
                "gate_rows",
                "quant_rows",
                "linear_residual",
                *MLP_OF_CODES,
            ]


def test_all_buckets_of_an_invariant_plan_solve_apart(build_dir, tmp_path):
    """A row has the same bits in each, and kernels of such orders are found."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text("[numerics]\ninvariant = true\n[phases]\nprefill = [2, 64, 512]\n", encoding="utf-8")
    phases = lower(build_dir, "--model", toml, "--stop-after", "pick-kernels")
    found = [set(names(layers[0])) for (kind, _), layers in phases.items() if kind == "prefill"]
    assert len(found) == 3 and all({"delta_solve", "delta_walk"} <= ops for ops in found)


@pytest.mark.parametrize("target", ["sm_90a", "sm_80"])
def test_narrow_columns_are_those_of_the_graph(atlas, small_plan_of, tmp_path, target):
    """The plan's reader compares what its launches compute with the graph; here the gates are bf16, the rest rows of FP8."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(
        "[runtime]\nslots = 1\n[phases]\nprefill = [64]\ndecode = [1]\n[speculate]\nrows = 1\n[quant]\n"
        'in_proj_qkv = "fp8-channel"\nin_proj_z = "fp8-channel"\n',
        encoding="utf-8",
    )
    plan = small_plan_of("qwen3_5_moe-trained", "--target", target, "--model", toml)
    phases = json.loads(atlas("audit", plan, "--json").stdout)["targets"][0]["phases"]
    decode = next(phase for phase in phases if phase["phase"] == "decode")
    assert [x["layers"] for x in decode["launches"] if x["op"] == "norm_linear_narrow"] == [[0, 0], [2, 2]]


def test_products_of_an_invariant_plan_stay_apart(build_dir, tmp_path):
    """Their kernels are those of all buckets, and only few rows have narrow columns in a launch of others."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text("[numerics]\ninvariant = true\n[phases]\ndecode = [1, 16]\n", encoding="utf-8")
    phases = lower(build_dir, "--model", toml)
    found = [names(layers[0])[:2] for (kind, _), layers in phases.items() if kind == "decode"]
    assert found == [["norm_linear", "norm_linear"]] * 2


@pytest.fixture(scope="module")
def verified(build_dir, tmp_path_factory):
    """The same of verify phases of a plan that drafts."""
    toml = tmp_path_factory.mktemp("verify") / "MODEL.toml"
    toml.write_text("[speculate]\nrows = 3\n", encoding="utf-8")
    return {key: layers for key, layers in lower(build_dir, "--model", toml).items() if key[0] == "verify"}


def test_verify_layers_have_the_launches_of_decode(lowered, verified):
    """With rows of a slot in place of one, so at most seven launches a layer, or nine where norms stand apart; states and their versions are touched by
    one launch, and each layer counts readers for itself."""
    assert verified and len(verified) == sum(kind == "decode" for kind, _ in lowered)
    for (_, rows), layers in verified.items():
        for layer in range(64):
            as_decoded = {"delta_verify_step": "delta_step", "attention_verify": "attention_step"}
            ops = [as_decoded.get(op, op) for op in names(layers[layer])]
            assert rows > 16 or ops == names(lowered["decode", 1][layer])
            assert len(ops) <= (7 if rows <= 16 else 9)
        delta = next(operands for op, operands in layers[0] if op == "delta_verify_step")
        assert delta["x"].endswith("bf16") and f"[{rows}," in delta["x"] and delta["ba"] != "-"
        assert [delta[k].split("[")[0] for k in ("conv_later", "delta_later", "slot_version")] == [
            "conv_later.0",
            "delta_later.0",
            "slot_version",
        ]
        readers = [operands["readers"] for ops in layers.values() for op, operands in ops if op == "delta_verify_step"]
        assert len(readers) == len(set(readers)) == 48


def test_verify_layers_add_in_the_order_of_decode(build_dir, tmp_path):
    """SPLITS and WARPS of attention, WARPS of Gated DeltaNet: those of decode's kernels for as many sequences."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text("[speculate]\nrows = 3\n", encoding="utf-8")
    done = subprocess.run(
        [
            build_dir / "atlasc",
            SHAPE,
            "--random-weights",
            "--target",
            "sm_90a",
            "--dry-run",
            "--stop-after",
            "pick-kernels",
            "-d",
            "k",
            "--model",
            toml,
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    found = {}
    for phase, of_phase in launches(done.stdout).items():
        for x in of_phase:
            if kind := re.match(r"(attn|delta)_", x.kernel):
                found.setdefault((*phase, kind[1]), set()).add((x.grid[2], x.block))
    decoded = [key for key in found if key[0] == "decode"]
    assert len(decoded) > 4
    for _, rows, kind in decoded:
        assert found["verify", 3 * rows, kind] == found["decode", rows, kind]


def test_state_that_is_touched_early_is_a_layer_s_own(lowered):
    readers = [
        operands["readers"]
        for (kind, rows), layers in lowered.items()
        if (kind, rows) == ("decode", 1)
        for ops in layers.values()
        for op, operands in ops
        if op == "delta_step"
    ]
    assert len(readers) == len(set(readers)) == 48
