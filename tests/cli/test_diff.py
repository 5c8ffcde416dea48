"""`atlas diff`: what a changed key of MODEL.toml changes in the plan, no more and no less, with reasons."""

from __future__ import annotations

import json
import shutil

import pytest
from atlasc_texts import fixture_options

MODEL = "llama"


@pytest.fixture(scope="module")
def diff(atlas):
    def run(a, b):
        done = atlas("diff", a, b, "--json")
        assert done.stderr == ""
        got = json.loads(done.stdout)
        assert got["schema_version"] == 1 and done.returncode == (0 if got["equal"] else 1)
        return got

    return run


def slots(got):
    """(phase, op) of every changed launch, of all targets."""
    return {(p["phase"], s["op"]) for t in got["targets"] for p in t["phases"] for s in p["slots"]}


def launches(atlas, plan, word):
    """(phase, op) of every launch whose kernel has the constant, by the audit."""
    audit = json.loads(atlas("audit", plan, "--json").stdout)
    return {
        (p["phase"], entry["op"])
        for t in audit["targets"]
        for p in t["phases"]
        for entry in p["launches"]
        if any(d.split("=")[0] in word for d in entry["defines"].split())
    }


def test_a_plan_equals_itself(atlas, small_plan_of):
    plan = small_plan_of(MODEL)
    run = atlas("diff", plan, plan)
    assert (run.returncode, run.stdout, run.stderr) == (0, "the plans are equal\n", "")


def test_a_pages_size_touches_what_knows_pages(atlas, small_plan_of, diff):
    a, b = small_plan_of(MODEL), small_plan_of(MODEL, page=32)
    got = diff(a, b)
    assert got["options"] == [{"name": "kv.page", "a": "16", "b": "32"}] and got["weights"] == got["sections"] == []
    assert slots(got) == launches(atlas, a, {"PAGE", "PAGES", "MAX_PAGES"}) != set()
    for target in got["targets"]:
        for phase in target["phases"]:
            assert phase["launches"][0] == phase["launches"][1]
            for slot in phase["slots"]:
                assert any(r.startswith("MAX_PAGES ") and " -> " in r for r in slot["reasons"])
                if phase["phase"] != "acquire":
                    assert slot["layers"] == [0, 1] and "PAGE 16 -> 32" in slot["reasons"]
    text = atlas("diff", a, b).stdout
    assert text.startswith("option   kv.page                      16 -> 32\ntarget   sm_90a\n")
    assert "\n            PAGE 16 -> 32\n" in text


def test_weights_of_layers_are_folded(atlas, small_plan_of):
    """Scales of every layer's cache are one line; with --all each has its own, as in JSON."""
    a, b = (small_plan_of("llama-trained", "--target", "none", dtype=f'"{dtype}"') for dtype in ("bf16", "fp8"))
    weights = json.loads(atlas("diff", a, b, "--json").stdout)["weights"]
    assert len(weights) == 4
    lines = [line for line in atlas("diff", a, b).stdout.splitlines() if line.startswith("weight")]
    assert lines == ["weight   atlas.model.layers.0-3.self_attn.kv_scale none -> f32 [2,1], 4 weights"]
    lines = [line for line in atlas("diff", a, b, "--all").stdout.splitlines() if line.startswith("weight")]
    assert [line.split() for line in lines] == [["weight", w["name"], "none", "->", *w["b"].split()] for w in weights]


def test_weights_that_differ_in_some_layers(atlas, small_plan_of, tmp_path, repo):
    """Only layers whose weights differ are named; a weight alone keeps its hashes."""
    changed = tmp_path / "changed"
    shutil.copytree(repo / "tests/fixtures/llama-trained", changed)
    data = bytearray((changed / "model.safetensors").read_bytes())
    size = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + size])
    for layer in (0, 2, 3):
        for name in ("self_attn.o_proj", "mlp.down_proj") if layer else ("self_attn.o_proj",):
            data[8 + size + table[f"model.layers.{layer}.{name}.weight"]["data_offsets"][0]] ^= 1
    data[8 + size + table["model.norm.weight"]["data_offsets"][0]] ^= 1
    (changed / "model.safetensors").write_bytes(data)
    plans = [small_plan_of(m, "--target", "none") for m in ("llama-trained", changed)]
    lines = [line.split() for line in atlas("diff", *plans).stdout.splitlines() if line.startswith("weight")]
    assert sorted((line[1], line[-2:]) for line in lines if line[-1] == "weights") == [
        ("model.layers.0,2-3.self_attn.o_proj.weight", ["3", "weights"]),
        ("model.layers.2-3.mlp.down_proj.weight", ["2", "weights"]),
    ]
    [norm] = [line for line in lines if line[1] == "model.norm.weight"]
    assert norm[4] != norm[8] and len(norm[4]) == len(norm[8]) == 16


def test_what_no_kernel_sees_touches_no_launch(small_plan_of, diff):
    got = diff(small_plan_of(MODEL), small_plan_of(MODEL, temperature="0.5"))
    assert got["options"] == [{"name": "sampling.temperature", "a": "0", "b": "0.5"}] and got["targets"] == []


def test_the_other_way_round(small_plan_of, diff):
    """a against b says what b against a says, with the sides exchanged."""
    a, b = small_plan_of(MODEL), small_plan_of(MODEL, slots=4, decode="[1, 4]")
    there, back = diff(a, b), diff(b, a)
    assert slots(there) == slots(back)
    assert [(o["name"], o["a"], o["b"]) for o in there["options"]] == [
        (o["name"], o["b"], o["a"]) for o in sorted(back["options"], key=lambda o: o["name"])
    ]
    phases = {(p["phase"], p["rows"]): p["in"] for p in there["targets"][0]["phases"]}
    assert phases["decode", 2] == [True, False] and phases["decode", 1] == phases["decode", 4] == [False, True]


def test_order_of_targets_does_not_count(small_plan_of, diff):
    a, b = (small_plan_of(MODEL, "--target", t) for t in ("sm_90a,sm_80", "sm_80,sm_90a"))
    got = diff(a, b)
    assert got["targets"] == []
    got = diff(a, small_plan_of(MODEL))
    assert [(t["target"], t["in"]) for t in got["targets"]] == [("sm_80", [True, False])]


def test_another_choice_has_the_ledgers_word(atlas, plan_of, small_plan_of, repo, tmp_path, diff):
    """A pin moves one op of one layer; the reason is what the other ledger says of each kernel."""
    a = small_plan_of(MODEL)
    audit = json.loads(atlas("audit", a, "--json").stdout)
    [decode] = [p for p in audit["targets"][0]["phases"] if p["phase"] == "decode"]
    entry = next(e for e in decode["launches"] if sum(c["verdict"] == "slower" for c in e["candidates"]))
    slower = next(c for c in entry["candidates"] if c["verdict"] == "slower")
    text = (repo / "models" / "defaults.toml").read_text()
    for key, value in {
        "prefill": "[64]",
        "decode": "[2]",
        "slots": "2",
        "page": "16",
        "ignore": "[]",
        "max_context": str(
            json.loads((repo / "tests/fixtures" / MODEL / "config.json").read_text())["max_position_embeddings"]
        ),
    }.items():
        text = "\n".join(f"{key} = {value}" if line.startswith(f"{key} = ") else line for line in text.split("\n"))
    tunables = ", ".join(f"{k} = {v}" for k, v in (t.split("=") for t in slower["tunables"].split()))
    toml = tmp_path / "pin.toml"
    toml.write_text(
        f'{text}\n[[kernels.pin]]\ntemplate = "{slower["template"]}"\nop = "{entry["op"]}"\n'
        f'phase = "decode"\nlayers = "1-1"\ntunables = {{ {tunables} }}\n'
    )
    got = diff(a, plan_of(MODEL, "--model", toml))
    assert [o["name"] for o in got["options"]] == ["kernels.pin.000"]
    [slot] = [s for p in got["targets"][0]["phases"] for s in p["slots"]]
    assert slot["layers"] == [1, 1] and slot["op"] == entry["op"]
    assert slot["b"]["tunables"] == slower["tunables"] and slot["b"]["cost_from"] == "pin"
    assert f"a: {slower['template']} {slower['tunables']} has {slower['cost_us']:.2f} us (model)" in slot["reasons"]
    assert (
        any(
            r.startswith(f"b: {slot['a']['template']} ") and "banned: by the pin at pin.toml:" in r
            for r in slot["reasons"]
        )
        and "chosen by a pin in b" in slot["reasons"]
    )


def test_a_change_of_order_is_the_first_reason(atlas, plan_of, tmp_path, diff):
    """An invariant plan with weights in FP8 against a free one: where an op adds in another order, both orders, in text
    and JSON, before other operands."""
    plans = []
    for invariant, quant in ((False, ""), (True, '[quant]\n"*" = "fp8-channel"\n')):
        toml = tmp_path / f"{invariant}.toml"
        text = fixture_options(MODEL, invariant=invariant, slots=16, extra=quant, prefill=[64], decode=[1, 16])
        toml.write_text(text, encoding="utf-8")
        plans.append(plan_of(MODEL, "--model", toml))
    got = diff(*plans)
    assert {"name": "numerics.invariant", "a": "false", "b": "true"} in got["options"]
    changed = 0
    for slot in (s for p in got["targets"][0]["phases"] for s in p["slots"]):
        orders = [slot[side]["order"] for side in "ab"]
        assert (slot["reasons"][0] == f"adds as {orders[0]} -> {orders[1]}") == (orders[0] != orders[1])
        changed += orders[0] != orders[1]
    assert changed
    assert " adds as " in atlas("diff", *plans).stdout


def test_a_weight_and_a_missing_plan(atlas, small_plan_of, diff, tmp_path):
    got = diff(small_plan_of(MODEL), small_plan_of("llama-f32"))
    assert {w["name"] for w in got["weights"]} >= {"model.layers.0.mlp.up_proj.weight"}
    assert all(w["a"] != w["b"] for w in got["weights"])
    run = atlas("diff", small_plan_of(MODEL), tmp_path / "none.bin")
    assert run.returncode == 5 and "none.bin: No such file" in run.stderr and run.stdout == ""
