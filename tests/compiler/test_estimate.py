"""`atlasc --estimate`: the memory of the plan to come, to the byte, without compiling or writing anything."""

from __future__ import annotations

import json


def test_the_items_are_what_the_plan_says(atlasc, atlas, small_plan_of, repo, tmp_path):
    toml = tmp_path / "small.toml"
    toml.write_text("[runtime]\nslots = 2\n[kv]\npage = 16\n[phases]\nprefill = [16]\ndecode = [2]\n")
    plan = small_plan_of("llama")
    run = atlasc("tests/fixtures/llama", "--model", toml, "--estimate", "--json", "-o", tmp_path / "none.bin")
    assert run.returncode == 0 and not (tmp_path / "none.bin").exists()
    [got] = json.loads(run.stdout)["targets"]
    arenas = json.loads(atlas("audit", plan, "--json").stdout)["targets"][0]["arena_bytes"]
    items = {i["item"]: i["bytes"] for i in got["items"]}
    assert got["device_bytes"] == arenas["weights"] + arenas["state"] + arenas["scratch"]
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
