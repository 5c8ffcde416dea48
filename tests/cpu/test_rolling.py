"""Layers with a window keep the keys and values of that alone, in pages of each slot (artifacts/rolling.h): on the reference
device no bit of a layer's output or of a text changes, and memory is what the windows need.

Each model is compiled twice, with `[kv] rolling` true and false. The second is what tests/families and tests/cpu compare
with transformers.
"""

from __future__ import annotations

import json
import math
import pathlib
import random
import re
import shutil
import subprocess

import pytest
from safetensors.numpy import load_file

REPO = pathlib.Path(__file__).resolve().parents[2]
CONTEXT, PAGE, WINDOW, TILE = 512, 16, 20, 128
FIXTURES = ["mistral-window", "qwen3-window"]
FAMILIES = ["gemma3", "olmo3", "exaone4", "laguna", "llama4", "phi3", "gpt_oss", "step3p5", "gemma4", "gemma4-ple"]
SLOTS = 4


def pages_of(window, rows, page=PAGE):
    """A window, what a tile begins with before it, and a step's rows are there at once."""
    return math.ceil((window - 1 + TILE - 1 + rows) / page)


def folder_of(name, tmp_path):
    """The checkpoint, of a longer context, with a window of 20 where its own is its context."""
    if name in FIXTURES:
        return REPO / "tests" / "fixtures" / name
    folder = tmp_path / name
    shutil.copytree(REPO / "tests" / "families" / name, folder)
    path = folder / "config.json"
    config = json.loads(path.read_text())
    text = config.get("text_config", config)
    window = "attention_chunk_size" if "attention_chunk_size" in text else "sliding_window"
    text |= {"max_position_embeddings": CONTEXT, window: WINDOW}
    path.write_text(json.dumps(config))
    return folder


def toml_of(rolling, prefill="[32]", page=PAGE, snapshots=2, pool=0, slots=SLOTS, more=""):
    return (
        f"[runtime]\nslots = {slots}\nmax_context = {CONTEXT}\n"
        f"[kv]\npage = {page}\npool_tokens = {pool}\nrolling = {rolling}\n"
        f"[cache]\nsnapshots = {snapshots}\n[phases]\nprefill = {prefill}\ngrid = 16\ndecode = [{slots}]\n{more}"
    )


@pytest.fixture
def plans(atlasc, tmp_path):
    """The plan with and the one without."""

    def made(name, **how):
        folder = folder_of(name, tmp_path)
        found = []
        for rolling in "true", "false":
            toml, plan = tmp_path / f"{rolling}.toml", tmp_path / f"{rolling}.bin"
            toml.write_text(toml_of(rolling, **how))
            done = atlasc(folder, "--model", toml, "--target", "none", "-o", plan, "-q")
            assert done.returncode == 0, done.stderr
            found.append(plan)
        return found

    return made


def shapes_of(atlasc, folder, toml):
    """Pages of each layer's cache and its page table; of the pool; of snapshots."""
    done = atlasc(folder, "--model", toml, "--target", "none", "--dry-run", "-d", "g")
    assert done.returncode == 0, done.stderr
    caches = {int(k): int(n) for k, n in re.findall(r"^tensor  kv\.(\d+) .*\[(\d+),2,", done.stdout, re.M)}
    tables = dict(re.findall(r"^op +(\d+) +attention .* page_table=(\S+) ", done.stdout, re.M))
    windows = {int(k): int(n) for k, n in re.findall(r"^op +(\d+) +attention .* window=(\d+)", done.stdout, re.M)}
    [pool] = re.findall(r"^graph .* pages (\d+)", done.stdout, re.M)
    return caches, {int(k): t for k, t in tables.items()}, windows, int(pool)


@pytest.mark.parametrize("name", FIXTURES + FAMILIES)
def test_pages_are_what_windows_need(atlasc, tmp_path, name):
    toml = tmp_path / "m.toml"
    folder = folder_of(name, tmp_path)
    toml.write_text(toml_of("true"))
    caches, tables, windows, pool = shapes_of(atlasc, folder, toml)
    assert windows and pool == SLOTS * CONTEXT // PAGE
    for layer, n in caches.items():
        rolls = windows.get(layer, 0) > 0
        assert n == (SLOTS * pages_of(windows[layer], 32) if rolls else pool), (layer, n)
        assert tables[layer] == ("atlas.rolling_table" if rolls else "page_table")
    toml.write_text(toml_of("false"))
    caches, tables, _, pool = shapes_of(atlasc, folder, toml)
    assert set(caches.values()) == {pool} and set(tables.values()) == {"page_table"}


@pytest.mark.parametrize(
    "changes",
    [
        {"prefill": "[512]"},  # a step may have a whole text
        {"pool": CONTEXT},  # all slots share less than their windows
        {"snapshots": 20},  # which would take what is saved
    ],
)
def test_where_pages_of_the_pool_are_fewer(atlasc, tmp_path, changes):
    toml = tmp_path / "m.toml"
    toml.write_text(toml_of("true", **changes))
    caches, tables, _, pool = shapes_of(atlasc, folder_of("olmo3", tmp_path), toml)
    assert set(caches.values()) == {pool} and set(tables.values()) == {"page_table"}


@pytest.mark.parametrize("name", FIXTURES + FAMILIES)
@pytest.mark.parametrize("prefill", ["[16]", "[16, 64, 128]"])
def test_every_layer_has_the_same_bits(atlas, plans, tmp_path, name, prefill):
    """Of a text that is longer than the pages of a slot, in steps of all sizes; and of one that is shorter than the window."""
    both = plans(name, prefill=prefill)
    draw = random.Random(7)
    for n in 11, 450:
        ids = ",".join(str(draw.randrange(100)) for _ in range(n))
        dumps, texts = [], []
        for i, plan in enumerate(both):
            out = tmp_path / f"{i}.safetensors"
            done = atlas("dump", plan, "--tokens", ids, "--hidden", "--device", "cpu", "-o", out, "-q")
            assert done.returncode == 0, done.stderr
            dumps.append(load_file(out))
            done = atlas("run", plan, "--tokens", ids, "-n", 40, "--device", "cpu", "--json")
            assert done.returncode == 0, done.stderr
            texts.append(json.loads(done.stdout)["results"][0]["tokens"])
        assert dumps[0].keys() == dumps[1].keys()
        assert all((dumps[0][k] == dumps[1][k]).all() for k in dumps[0])
        assert texts[0] == texts[1]


def isolate(build_dir, plan, how, words):
    done = subprocess.run(
        [build_dir / "tests" / "isolate_run", plan, "cpu", how, "2", "8", "1-2", "rows=110", *words],
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["differed"] == told["scores_differed"] == 0 and told["longest"] > 200, told
    return told


FEW = {"slots": 3, "pool": CONTEXT + 32, "prefill": "[16]", "snapshots": 0}  # pages
NGRAM = '[speculate]\ndrafter = "ngram"\nrows = 4\n'


@pytest.mark.parametrize(
    "name, how, words, changes",
    [
        ("mistral-window", "off", [], {}),
        ("mistral-window", "off", ["mixed", "gap=32"], {}),
        ("olmo3", "off", ["pages", "made=280"], FEW),
        ("olmo3", "off", ["pages", "mixed", "gap=16", "made=280"], FEW),
        ("olmo3", "off", ["prefix"], {"snapshots": 6}),
        ("mistral-window", "off", ["prefix", "mixed", "gap=16"], {"snapshots": 1}),
        ("olmo3", "off", ["prefix", "pages"], FEW | {"pool": CONTEXT + 512, "snapshots": 4}),
        ("qwen3-window", "ngram", ["prefix", "gap=16"], {"more": NGRAM}),
    ],
)
def test_texts_among_others(build_dir, plans, name, how, words, changes):
    """Alone and in random loads, which differ: texts come and go, are set aside, drafted, begin like others."""
    with_windows, without = (isolate(build_dir, plan, how, words) for plan in plans(name, **changes))
    assert with_windows["alone"] == without["alone"]
    told = with_windows
    assert (told["reused"] > 0) == ("prefix" in words) and (told["mixed"] > 20) == ("mixed" in words), told
    assert (told["set_aside"] > 1) == (words[:1] == ["pages"]) and (told["drafts"] > 0) == (how == "ngram"), told


def test_prefixes_need_snapshots(build_dir, atlas, plans):
    with_windows, without = plans("mistral-window", snapshots=0)
    why = "prefix_cache = on: the plan keeps no snapshots of recurrent states and windows: [cache] snapshots = 0"
    for plan, is_refused in (with_windows, True), (without, False):
        words = [build_dir / "tests" / "isolate_run", plan, "cpu", "off", "1", "2", "1-1", "prefix"]
        done = subprocess.run(words, capture_output=True, text=True, timeout=60)
        assert (done.returncode == 2 and why in done.stderr) == is_refused, done.stderr


GEMMA = {
    "model_type": "gemma3_text", "architectures": ["Gemma3ForCausalLM"], "hidden_size": 5376, "num_hidden_layers": 62,
    "intermediate_size": 21504, "num_attention_heads": 32, "num_key_value_heads": 16, "head_dim": 128,
    "query_pre_attn_scalar": 168, "sliding_window": 1024, "max_position_embeddings": 131072, "vocab_size": 262208,
    "rope_theta": 1000000.0, "rope_local_base_freq": 10000.0, "rms_norm_eps": 1e-6, "hidden_activation": "gelu_pytorch_tanh",
    "rope_scaling": {"factor": 8.0, "rope_type": "linear"}, "torch_dtype": "bfloat16", "eos_token_id": 1, "bos_token_id": 2,
}  # fmt: skip


@pytest.mark.parametrize("context", [32768, 131072])
def test_gemma3_27b(atlasc, tmp_path, context):
    """Two slots: 10 of its 62 layers see the whole context, the others 1,024 positions; docs/families.md has the numbers."""
    sizes = {}
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text(json.dumps(GEMMA))
    for rolling in "true", "false":
        toml = tmp_path / f"{rolling}.toml"
        toml.write_text(
            f"[runtime]\nslots = 2\nmax_context = {context}\n[kv]\nrolling = {rolling}\n[cache]\nsnapshots = 4\n"
            "[phases]\nprefill = [2048]\ndecode = [2]\n"
        )
        done = atlasc(tmp_path / "m", "--model", toml, "--random-weights", "--target", "sm_90a", "--estimate", "--json")
        assert done.returncode == 0, done.stderr
        [target] = json.loads(done.stdout)["targets"]
        sizes[rolling] = {i["item"]: i["bytes"] for i in target["items"]}
    line = 2 * 16 * 128 * 2  # bytes of a position in a layer
    pages = pages_of(1024, 2048, 64)
    assert sizes["true"]["keys and values"] == 10 * 2 * context * line
    assert sizes["true"]["keys in windows"] == 52 * 2 * pages * 64 * line
    assert sizes["true"]["snapshots of states"] == 4 * 52 * 18 * 64 * line
    assert sizes["false"]["keys and values"] == 62 * 2 * context * line
    assert "keys in windows" not in sizes["false"] and "snapshots of states" not in sizes["false"]


def test_calibration_sees_the_whole_text(atlasc, tmp_path):
    """Scales are those of all keys, whatever the plan that will read them keeps."""
    text, scales = tmp_path / "t.txt", []
    text.write_text("In the beginning was the word, and then another. " * 30)
    for rolling in "true", "false":
        toml, out = tmp_path / "m.toml", tmp_path / f"{rolling}.safetensors"
        toml.write_text(toml_of(rolling))
        done = atlasc(
            "calibrate", REPO / "tests/fixtures/mistral-window", "--model", toml, "--text", text, "-o", out, "-q"
        )
        assert done.returncode == 0, done.stderr
        scales.append(out.read_bytes())
    assert scales[0] == scales[1]
