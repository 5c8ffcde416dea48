#!/usr/bin/env python3
"""What `transformers` makes of a cache in codes: logits with keys and values rounded as a cache keeps them.

    python scripts/kv_goldens.py tests/fixtures/llama-trained        (needs torch, transformers, tokenizers)

The model runs in float32 on the CPU. Behind rope, keys and values become codes and numbers again: e4m3 by torch's own
float8_e4m3fn, of x / scale; e2m1 in groups of 16 of a head, each with a scale in e4m3 of its largest |x| / scale / 6, by
the list of its eight sizes. Scales of keys and values of a head are those that the file holds too. Rotated, queries and
keys are multiplied by the Hadamard matrix before. kv.safetensors gets input_ids, the scales, and of the last 32 positions
logits.plain, logits.e4m3, logits.e2m1, logits.e4m3.rotated, logits.e2m1.rotated.
"""

import pathlib
import sys

import torch
from safetensors.torch import save_file
from tokenizers import Tokenizer
from transformers import LlamaForCausalLM
from transformers.models.llama import modeling_llama

SIZES = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
ROWS, CONTEXT = 32, 500


def e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def e2m1(x):
    """Nearest of SIZES, of two as near the one whose code is even."""
    sizes = SIZES.to(x.device)
    distance = (x.abs().unsqueeze(-1) - sizes).abs()
    nearest = distance == distance.amin(-1, keepdim=True)
    even = nearest & (torch.arange(8, device=x.device) % 2 == 0)
    code = torch.where(even.any(-1), even.int().argmax(-1), nearest.int().argmax(-1))
    return sizes[code] * torch.where(torch.signbit(x), -1.0, 1.0)


def hadamard(head_dim):
    """For each power of two in head_dim, the largest first, the Hadamard matrix over the root of its size."""
    blocks = []
    for n in (2**i for i in reversed(range(head_dim.bit_length())) if head_dim >> i & 1):
        h = torch.ones(1, 1)
        while len(h) < n:
            h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
        blocks.append(h / n**0.5)
    return torch.block_diag(*blocks)


def kept(x, scale, kind):
    """x [batch, heads, rows, head_dim] as the cache gives it back; scale [heads]."""
    scale = scale.view(1, -1, 1, 1)
    if kind == "plain":
        return x
    if kind == "e4m3":
        return e4m3(x / scale) * scale
    groups = x.unflatten(-1, (-1, 16))
    scale = scale.unsqueeze(-1)
    block = e4m3((groups.abs().amax(-1, keepdim=True) / scale / 6).clamp(min=2.0**-9))
    return (e2m1(groups / (block * scale)) * block * scale).flatten(-2)


def main():
    folder = pathlib.Path(sys.argv[1])
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").eval()
    text = (folder / "heldout.txt").read_text(encoding="utf-8")
    ids = torch.tensor([Tokenizer.from_file(str(folder / "tokenizer.json")).encode(text).ids[:CONTEXT]])
    heads, layers = model.config.num_key_value_heads, model.config.num_hidden_layers
    out = {"input_ids": ids[0].to(torch.int32)}
    for layer in range(layers):  # not the best ones: each another
        for i, name in enumerate(("k_scale", "v_scale")):
            out[f"model.layers.{layer}.self_attn.{name}"] = (0.03 + 0.01 * layer + 0.02 * i) * torch.ones(heads)
    plain = modeling_llama.eager_attention_forward
    kind, rotate = "plain", False
    h = hadamard(model.config.head_dim)

    def attention(module, query, key, value, *args, **more):
        at = f"model.layers.{module.layer_idx}.self_attn."
        if rotate:
            query, key = query @ h, key @ h
        return plain(
            module, query, kept(key, out[at + "k_scale"], kind), kept(value, out[at + "v_scale"], kind), *args, **more
        )

    modeling_llama.eager_attention_forward = attention
    names = {"plain": ("plain", False)} | {
        kind + ".rotated" * r: (kind, r) for r in (False, True) for kind in ("e4m3", "e2m1")
    }
    for name, (kind, rotate) in names.items():
        with torch.no_grad():
            out[f"logits.{name}"] = model(ids).logits[0, -ROWS:].contiguous()
    for name in names:
        cosine = torch.nn.functional.cosine_similarity(out["logits.plain"], out[f"logits.{name}"], -1)
        print(f"{name}: mean cosine {cosine.mean():.6f}, least {cosine.min():.6f}")
    save_file(out, folder / "kv.safetensors")


if __name__ == "__main__":
    main()
