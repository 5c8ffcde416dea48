"""A checkpoint of a real model's shape with random weights, made where it is used.

    python tests/gpu/random_checkpoint.py llama-3.2-1b DIR
    python tests/gpu/random_checkpoint.py --empty llama-3.2-1b DIR

Weights are normal with standard deviation 1 / sqrt(fan in), norms are near one: activations keep their size, and
nothing is zero, so that a timing is that of real data. There is no tokenizer: prompts are token ids.

With --empty the weights are the holes of a sparse file, and there are two layers, for what reads no weight: atlas tune.
"""
import json
import os
import struct
import sys

SHAPES = {  # config.json of the published models
    "smollm2-135m": dict(hidden_size=576, num_hidden_layers=30, num_attention_heads=9, num_key_value_heads=3,
                         intermediate_size=1536, vocab_size=49152, rope_theta=100000.0, tie_word_embeddings=True,
                         max_position_embeddings=8192),
    "llama-3.2-1b": dict(hidden_size=2048, num_hidden_layers=16, num_attention_heads=32, num_key_value_heads=8,
                         head_dim=64, intermediate_size=8192, vocab_size=128256, rope_theta=500000.0,
                         tie_word_embeddings=True, max_position_embeddings=131072,
                         rope_scaling=dict(rope_type="llama3", factor=32.0, low_freq_factor=1.0,
                                           high_freq_factor=4.0, original_max_position_embeddings=8192)),
    "llama-3.1-8b": dict(hidden_size=4096, num_hidden_layers=32, num_attention_heads=32, num_key_value_heads=8,
                         intermediate_size=14336, vocab_size=128256, rope_theta=500000.0,
                         tie_word_embeddings=False, max_position_embeddings=131072,
                         rope_scaling=dict(rope_type="llama3", factor=8.0, low_freq_factor=1.0,
                                           high_freq_factor=4.0, original_max_position_embeddings=8192)),
}


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
    shape = dict(SHAPES[name], **({"num_hidden_layers": 2} if empty else {}))
    os.makedirs(folder, exist_ok=True)
    (no_weights if empty else random_weights)(folder, shape)
    config = dict(architectures=["LlamaForCausalLM"], model_type="llama", hidden_act="silu", rms_norm_eps=1e-5,
                  attention_bias=False, mlp_bias=False, torch_dtype="bfloat16", bos_token_id=None,
                  eos_token_id=None, **shape)
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as f:
        json.dump({k: v for k, v in config.items() if v is not None}, f, indent=2)


if __name__ == "__main__":
    main()
