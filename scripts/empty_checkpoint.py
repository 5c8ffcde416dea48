"""A checkpoint of a published model's shape without weights, for what reads none: atlasc --candidates, atlas tune.

    python scripts/empty_checkpoint.py CONFIG DIR

CONFIG is a config.json. DIR gets it with as few layers as have every kernel that the others have, and, of a dense
decoder in bf16, a model.safetensors whose weights are the holes of a sparse file: others have weights that must be
numbers, which --random-weights makes. There is no tokenizer.
"""

import json
import os
import pathlib
import struct
import sys


def weights(shape):
    """Name and dims of every tensor of a dense decoder."""
    hidden, ffn, vocab = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    head_dim = shape.get("head_dim", hidden // shape["num_attention_heads"])
    q, kv = shape["num_attention_heads"] * head_dim, shape["num_key_value_heads"] * head_dim
    tensors = {"model.embed_tokens.weight": [vocab, hidden], "model.norm.weight": [hidden]}
    for layer in range(shape["num_hidden_layers"]):
        at = f"model.layers.{layer}."
        for part, rows, cols in (
            ("self_attn.q_proj", q, hidden),
            ("self_attn.k_proj", kv, hidden),
            ("self_attn.v_proj", kv, hidden),
            ("self_attn.o_proj", hidden, q),
            ("mlp.gate_proj", ffn, hidden),
            ("mlp.up_proj", ffn, hidden),
            ("mlp.down_proj", hidden, ffn),
        ):
            tensors[f"{at}{part}.weight"] = [rows, cols]
        tensors[at + "input_layernorm.weight"] = [hidden]
        tensors[at + "post_attention_layernorm.weight"] = [hidden]
    if not shape["tie_word_embeddings"]:
        tensors["lm_head.weight"] = [vocab, hidden]
    return tensors


def main():
    source, folder = map(pathlib.Path, sys.argv[1:])
    config = json.loads(source.read_text(encoding="utf-8"))
    text = config.get("text_config", config)
    text["num_hidden_layers"] = text.get("full_attention_interval", 2)
    os.makedirs(folder, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config, indent=2), encoding="utf-8")
    if "quantization_config" in config or "num_experts" in text or "full_attention_interval" in text:
        return
    entries, end = {}, 0
    for name, dims in weights(config).items():
        begin, end = end, end + 2 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        entries[name] = dict(dtype="BF16", shape=dims, data_offsets=[begin, end])
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(f.tell() + end)


if __name__ == "__main__":
    main()
