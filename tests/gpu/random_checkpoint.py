"""A checkpoint of a real model's shape with random weights, made where it is used.

    python tests/gpu/random_checkpoint.py llama-3.2-1b DIR
    python tests/gpu/random_checkpoint.py --empty llama-3.2-1b DIR

Weights are normal with standard deviation 1 / sqrt(fan in), norms are near one: activations keep their size, and
nothing is zero, so that a timing is that of real data. There is no tokenizer: prompts are token ids.

With --empty the weights are the holes of a sparse file, and there are two layers, for what reads no weight: atlas tune.
"""
import json
import os
import pathlib
import struct
import sys

SHAPES = pathlib.Path(__file__).resolve().parent / "shapes"  # config.json of the published models


def random_weights(folder, shape):
    import torch
    from safetensors.torch import save_file
    device = "cuda" if torch.cuda.is_available() else "cpu"
    random = torch.Generator(device).manual_seed(1)

    def matrix(rows, cols):
        values = torch.randn(rows, cols, generator=random, device=device) / cols**0.5
        return values.to(torch.bfloat16).cpu()

    def norm(n):
        return (1 + 0.1 * torch.randn(n, generator=random, device=device)).to(torch.bfloat16).cpu()

    tensors = weights(shape, matrix, norm)
    tensors["model.embed_tokens.weight"] *= 8
    save_file(tensors, os.path.join(folder, "model.safetensors"), metadata={"format": "pt"})


def no_weights(folder, shape):
    entries, end = {}, 0
    for name, dims in weights(shape, lambda rows, cols: [rows, cols], lambda n: [n]).items():
        begin, end = end, end + 2 * dims[0] * (dims[1] if len(dims) > 1 else 1)
        entries[name] = dict(dtype="BF16", shape=dims, data_offsets=[begin, end])
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    with open(os.path.join(folder, "model.safetensors"), "wb") as f:
        f.write(struct.pack("<Q", len(header)) + header)
        f.truncate(f.tell() + end)


def weights(shape, matrix, norm):
    hidden, ffn, vocab = shape["hidden_size"], shape["intermediate_size"], shape["vocab_size"]
    head_dim = shape.get("head_dim", hidden // shape["num_attention_heads"])
    q, kv = shape["num_attention_heads"] * head_dim, shape["num_key_value_heads"] * head_dim
    tensors = {"model.embed_tokens.weight": matrix(vocab, hidden), "model.norm.weight": norm(hidden)}
    for l in range(shape["num_hidden_layers"]):
        at = f"model.layers.{l}."
        for part, rows, cols in (("self_attn.q_proj", q, hidden), ("self_attn.k_proj", kv, hidden),
                                 ("self_attn.v_proj", kv, hidden), ("self_attn.o_proj", hidden, q),
                                 ("mlp.gate_proj", ffn, hidden), ("mlp.up_proj", ffn, hidden),
                                 ("mlp.down_proj", hidden, ffn)):
            tensors[f"{at}{part}.weight"] = matrix(rows, cols)
        tensors[at + "input_layernorm.weight"] = norm(hidden)
        tensors[at + "post_attention_layernorm.weight"] = norm(hidden)
    if not shape["tie_word_embeddings"]:
        tensors["lm_head.weight"] = matrix(vocab, hidden)
    return tensors


def main():
    name, folder = sys.argv[-2:]
    empty = sys.argv[1] == "--empty"
    config = json.loads((SHAPES / f"{name}.json").read_text())
    if empty:
        config["num_hidden_layers"] = 2
    os.makedirs(folder, exist_ok=True)
    (no_weights if empty else random_weights)(folder, config)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump(config, f, indent=2)


if __name__ == "__main__":
    main()
