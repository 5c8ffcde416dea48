"""The configs of well-known dense models as they are published: read without a mistake, and without a word about it.

Some are of tests/published/; published.json holds others key for key, among them the ones that name the same thing in two
ways. The weights are holes of the right shapes in a sparse file.
"""

import json
import math
import pathlib
import re
import shutil
import struct

import pytest

HERE = pathlib.Path(__file__).resolve().parent
OTHERS = (
    "meta-llama-Llama-3.2-1B",
    "meta-llama-Llama-3.1-8B-Instruct",
    "Qwen-Qwen2.5-0.5B",
    "Qwen-Qwen2.5-7B-Instruct",
    "Qwen-Qwen3-0.6B",
    "Qwen-Qwen3-4B",
    "mistralai-Mistral-7B-v0.1",
    "mistralai-Mistral-7B-v0.3",
)
PUBLISHED = json.loads((HERE / "published.json").read_text(encoding="utf-8")) | {
    name: json.loads((HERE.parent / "published" / f"{name}.json").read_text(encoding="utf-8")) for name in OTHERS
}
TARGETS = "sm_80,sm_89,sm_90a,sm_100a,sm_120a,sm_121a"


def tensor_shapes(config):
    hidden, ffn = config["hidden_size"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q, kv = head_dim * config["num_attention_heads"], head_dim * config["num_key_value_heads"]
    shapes = {"model.embed_tokens.weight": [config["vocab_size"], hidden], "model.norm.weight": [hidden]}
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = [config["vocab_size"], hidden]
    for i in range(config["num_hidden_layers"]):
        layer = {
            "input_layernorm.weight": [hidden],
            "post_attention_layernorm.weight": [hidden],
            "self_attn.q_proj.weight": [q, hidden],
            "self_attn.k_proj.weight": [kv, hidden],
            "self_attn.v_proj.weight": [kv, hidden],
            "self_attn.o_proj.weight": [hidden, q],
            "mlp.gate_proj.weight": [ffn, hidden],
            "mlp.up_proj.weight": [ffn, hidden],
            "mlp.down_proj.weight": [hidden, ffn],
        }
        if config["model_type"] == "qwen2":
            layer |= {f"self_attn.{x}_proj.bias": [n] for x, n in (("q", q), ("k", kv), ("v", kv))}
        if config["model_type"] == "qwen3":
            layer |= {f"self_attn.{x}_norm.weight": [head_dim] for x in "qk"}
        shapes |= {f"model.layers.{i}.{name}": shape for name, shape in layer.items()}
    return shapes


def write_holes(path, shapes):
    header, at = {"__metadata__": {"format": "pt"}}, 0
    for name, shape in shapes.items():
        end = at + 2 * math.prod(shape)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, end]}
        at = end
    text = json.dumps(header).encode()
    with open(path, "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)


@pytest.mark.parametrize("name", PUBLISHED)
def test_published(atlasc, tmp_path, name):
    files = PUBLISHED[name]
    for file, content in files.items():
        (tmp_path / file).write_text(json.dumps(content, indent=2), encoding="utf-8")
    config = files["config.json"]
    write_holes(tmp_path / "model.safetensors", tensor_shapes(config))
    run = atlasc(tmp_path, "--dry-run", "--stop-after", "pick-kernels", "--target", TARGETS, "-d", "t")
    assert run.returncode == 0, run.stderr
    # without those on built-in times of a template that has changed since
    notes = [line for line in run.stderr.splitlines() if "note[A0704]" not in line]
    scaling = config.get("rope_scaling") or {}
    reach = int(config["max_position_embeddings"] * (scaling["factor"] if scaling.get("type") == "yarn" else 1))
    if reach > 4096:
        assert re.fullmatch(
            rf"{tmp_path}/config\.json:\d+:\d+: note\[A0309\]: the model can read {reach} tokens; this plan's context is 4096, the default of "
            rf"family {config['model_type']}: --context N changes it",
            notes.pop(0),
        )
    assert notes == [f"{tmp_path}: note[A0506]: no tokenizer.json: the plan takes token ids only"]
    rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
    kind = rope.get("rope_type", rope.get("type", "default"))
    theta = rope.get("rope_theta", config.get("rope_theta", 10000))
    assert re.search(rf"^rope +{kind}  theta {theta:.17g}\b", run.stdout, re.M)
    ends = [config["eos_token_id"], files.get("generation_config.json", {}).get("eos_token_id", [])]
    ends = sorted({i for e in ends for i in (e if isinstance(e, list) else [e])})
    assert re.search(rf"^tokens .* eos {' '.join(map(str, ends))}  ", run.stdout, re.M)
    window = config.get("sliding_window") if config["model_type"] == "mistral" else None
    windows = set(re.findall(r"^layers .*  window (\d+)", run.stdout, re.M))
    assert windows == {str(window or 0)}


# What slow tokenizers write into tokenizer_config.json besides the tokens: "no limit" is 10^30 there.
SLOW = {
    "model_max_length": 1000000000000000019884624838656,
    "sp_model_kwargs": {},
    "legacy": False,
    "pad_token": None,
    "add_prefix_space": None,
    "clean_up_tokenization_spaces": False,
    "spaces_between_special_tokens": False,
    "use_default_system_prompt": False,
    "additional_special_tokens": [],
    "chat_template": "{{ bos_token }}",
}


@pytest.mark.parametrize("name", ["deepseek", "gemma", "llama2", "llama3"])
def test_published_tokenizer_config(atlasc, repo, tmp_path, name):
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(repo / "tests" / "fixtures" / "tokenizers" / name / file, tmp_path)
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps(json.loads(path.read_text(encoding="utf-8")) | SLOW, indent=2), encoding="utf-8")
    config = PUBLISHED["meta-llama-Llama-3.2-1B"]["config.json"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    write_holes(tmp_path / "model.safetensors", tensor_shapes(config))
    run = atlasc(tmp_path, "--stop-after", "read-text", "-d", "t")
    told = re.findall(r"(?:note|error)\[(A\d{4})\]", run.stderr)  # its ids, and a class that builds parts itself
    assert run.returncode == 0 and set(told) <= {"A0309", "A0510", "A0512"}, run.stderr
    assert re.search(r"tokenizer \d{4,} bytes  chat_template 15 bytes$", run.stdout, re.M)
