"""`atlasc --estimate`: the memory of the plan to come, to the byte, without compiling or writing anything."""

from __future__ import annotations

import json
import re
import shutil

MIB2 = 2 << 20  # the driver's pieces


def test_the_items_are_what_the_plan_says(atlasc, atlas, small_plan_of, repo, tmp_path):
    toml = tmp_path / "small.toml"
    toml.write_text("[runtime]\nslots = 2\n[kv]\npage = 16\n[phases]\nprefill = [64]\ndecode = [2]\n")
    plan = small_plan_of("llama")
    run = atlasc("tests/fixtures/llama", "--model", toml, "--estimate", "--json", "-o", tmp_path / "none.bin")
    assert run.returncode == 0 and not (tmp_path / "none.bin").exists()
    [got] = json.loads(run.stdout)["targets"]
    told = json.loads(atlas("memory", plan, "--device", "cpu", "--json").stdout)
    assert {k: told[k] for k in got} == got and told["measured"] is None  # but for code, whose size is known then
    arenas = json.loads(atlas("audit", plan, "--json").stdout)["targets"][0]["arena_bytes"]
    items = {i["item"]: i["bytes"] for i in got["items"]}
    exact = sum(arenas[a] for a in ("weights", "state", "scratch", "io"))
    assert exact < MIB2 and items["ends of allocations"] == MIB2 - exact  # all share one piece
    assert got["device_bytes"] == MIB2 + items["kernels"] + items["graphs"]
    assert items["kernels"] % MIB2 == items["graphs"] % MIB2 == 0
    assert items["weights"] == arenas["weights"] and items["scratch"] == arenas["scratch"]
    config = json.loads((repo / "tests/fixtures/llama/config.json").read_text())
    heads, layers = config["num_key_value_heads"], config["num_hidden_layers"]
    dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    assert items["keys and values"] == 2 * 2 * 2 * config["max_position_embeddings"] * heads * dim * layers
    assert 0 <= items["padding and counters"] < 65536
    assert [i["bytes"] for i in got["items"]] == sorted(items.values(), reverse=True)
    text = atlasc("tests/fixtures/llama", "--model", toml, "--estimate").stdout
    assert text.startswith("sm_90a: ") and f"{items['weights']} bytes" in text


def test_no_weight_is_read(atlasc, tmp_path, repo):
    """Values that would be refused when read do not matter here: the header alone is."""
    folder = tmp_path / "model"
    folder.mkdir()
    for file in (repo / "tests/fixtures/llama").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin:] = b"\xff" * (len(data) - begin)
    weights.write_bytes(data)
    run = atlasc(folder, "--estimate")
    assert run.returncode == 0 and "keys and values" in run.stdout


def test_a_budget_too_small_is_refused_before_a_weight_is_read(atlasc, atlas, kernel_cache, plan_of, repo, tmp_path):
    """The checkpoint's numbers are NaN, which would be told, and the plan's are not there at all."""
    largest = r"the largest: kernels 4\.0 MiB, graphs 2\.0 MiB, [a-z ]+ \d+\.\d MiB"
    folder = tmp_path / "model"
    shutil.copytree(repo / "tests/fixtures/llama", folder)
    weights = folder / "model.safetensors"
    data = bytearray(weights.read_bytes())
    begin = 8 + int.from_bytes(data[:8], "little")
    data[begin:] = b"\xff" * (len(data) - begin)
    weights.write_bytes(data)
    plan = plan_of("llama", "--weights", "ref")
    run = atlasc(folder, "-o", tmp_path / "plan.bin", "--cache-dir", kernel_cache, "--memory-budget", "1MiB")
    assert run.returncode == 7 and not (tmp_path / "plan.bin").exists()
    assert re.search(
        r"^atlasc: error\[A0804\]: sm_90a: \d+\.\d MiB on the device, the budget is 1\.0 MiB; " + largest, run.stderr
    )
    assert "NaN" not in run.stderr
    assert atlasc(folder, "--estimate", "--memory-budget", 1 << 20).returncode == 7
    assert atlasc(folder, "--estimate", "--memory-budget", "1GiB").returncode == 0
    run = atlas("run", plan, "-p", "x", "--memory-budget", "1MiB", "--weights", tmp_path / "nowhere")
    assert run.returncode == 7 and re.search(largest, run.stderr)
    run = atlas("run", plan, "-p", "x", "--memory-budget", "1GiB", "--weights", tmp_path / "nowhere")
    assert run.returncode == 5 and "nowhere" in run.stderr
    for command in (["run", plan, "-p", "x"], ["memory", plan]):
        run = atlas(*command, "--memory-budget", "1 GB")
        assert run.returncode == 2 and "expected bytes, or a number of KiB, MiB or GiB" in run.stderr
    assert atlasc(folder, "--memory-budget", "lots").returncode == 2


def test_several_targets_and_none(atlas, atlasc, tmp_path):
    plan = tmp_path / "none.bin"
    assert atlasc("tests/fixtures/llama", "--target", "none", "-o", plan).returncode == 0
    run = atlas("memory", plan, "--device", "cpu")
    assert run.returncode == 4 and "takes no device memory" in run.stderr


def test_snapshots_are_only_of_models_that_have_states(atlasc, atlas, tmp_path):
    """[cache] snapshots takes memory for each state of a slot, and none of a model without states."""
    toml, sizes = tmp_path / "some.toml", {}
    for fixture in ("llama", "qwen3_5"):
        for n in (0, 3, 4096):
            toml.write_text(f"[cache]\nsnapshots = {n}\n")
            run = atlasc(f"tests/fixtures/{fixture}", "--model", toml, "--estimate", "--json")
            [got] = json.loads(run.stdout)["targets"]
            sizes[fixture, n] = {i["item"]: i["bytes"] for i in got["items"]}.get("snapshots of states", 0)
            said = atlasc(f"tests/fixtures/{fixture}", "--model", toml, "--estimate").stdout
            assert ("snapshots" in said) == (sizes[fixture, n] > 0)
    assert sizes["llama", 0] == sizes["llama", 3] == sizes["llama", 4096] == sizes["qwen3_5", 0] == 0
    assert 0 < sizes["qwen3_5", 3] * 4096 == sizes["qwen3_5", 4096] * 3


def test_snapshots_beyond_any_card_are_refused(atlasc, repo, tmp_path):
    """2 GB of states in each of 4,096 snapshots, at the line that asks for them; nothing is written."""
    shape = json.loads((repo / "tests/gpu/shapes/qwen3.6-35b-a3b-fp8.json").read_text())
    shape["text_config"]["linear_num_value_heads"] = 1024
    (tmp_path / "big.json").write_text(json.dumps(shape))
    toml, plan = tmp_path / "big.toml", tmp_path / "big.bin"
    words = [
        tmp_path / "big.json",
        "--random-weights",
        "--weights",
        "ref",
        "--target",
        "none",
        "--model",
        toml,
        "-o",
        plan,
    ]
    toml.write_text("# as many as there may be\n[cache]\nsnapshots = 4096\n")
    run = atlasc(*words, "-q")
    states = 30 * (
        1024 * 128 * 128 * 4 + 3 * (2 * 16 * 128 + 1024 * 128) * 2
    )  # of each layer, and its convolution's rows
    refused = f"{toml}:3:13: error[A0801]: cache.snapshots = 4096 of {states} bytes each: more than any card has\n"
    assert (run.returncode, run.stderr.splitlines(True)[-1], plan.exists()) == (7, refused, False)
    toml.write_text("[cache]\nsnapshots = 2\n")
    assert atlasc(*words, "-q").returncode == 0
