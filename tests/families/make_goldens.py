#!/usr/bin/env python3
"""Weights and goldens of the folders beside this file, from their config.json: needs torch and transformers.

    tests/families/make_goldens.py olmo2...

Random weights in bf16, large enough that a mistake shows; no norm is 1. What transformers makes of them in float32 goes
to golden.safetensors: prompt [P] i64, hidden.<l> [P, H] of each layer but the last, logits [P, V] f32, tokens [N] i64,
greedy. The seed is the first one of which no step is a near tie.
"""

import json
import pathlib
import sys

import torch
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM

PROMPT, TOKENS, MARGIN = 41, 16, 0.05


def fill(model, seed):
    g = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, p in model.named_parameters():
            noise = torch.randn(p.shape, generator=g)
            value = (
                1 + 0.3 * noise if "norm" in name else noise if "embed" in name else noise * 1.5 / p.shape[-1] ** 0.5
            )
            p.copy_(value.to(torch.bfloat16).to(torch.float32))


def golden(model, vocab, seed):
    g = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, vocab, (1, PROMPT), generator=g)
    with torch.no_grad():
        out = model(ids, output_hidden_states=True, use_cache=False)
        got, margin = [], 1e9
        for _ in range(TOKENS):
            top = (
                model(torch.cat([ids, torch.tensor([got], dtype=torch.long)], 1), use_cache=False).logits[0, -1].topk(2)
            )
            got.append(int(top.indices[0]))
            margin = min(margin, float(top.values[0] - top.values[1]))
    tensors = {f"hidden.{layer}": h[0].contiguous() for layer, h in enumerate(out.hidden_states[1:-1])}
    tensors |= {"prompt": ids[0], "logits": out.logits[0].contiguous(), "tokens": torch.tensor(got)}
    return tensors, margin, len(set(got))


def main(names):
    for name in names:
        folder = pathlib.Path(__file__).parent / name
        config = AutoConfig.from_pretrained(folder, attn_implementation="eager")
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32).eval()
        end = json.loads((folder / "config.json").read_text())["eos_token_id"]
        for seed in range(1000):
            fill(model, seed)
            tensors, margin, distinct = golden(model, config.vocab_size, seed)
            if margin > MARGIN and distinct > TOKENS // 2 and end not in tensors["tokens"].tolist():
                break
        weights = {k: v.to(torch.bfloat16).contiguous() for k, v in model.state_dict().items()}
        save_file(weights, folder / "model.safetensors", {"format": "pt"})
        save_file(tensors, folder / "golden.safetensors", {"made_by": "transformers in float32", "seed": str(seed)})
        print(name, "seed", seed, "margin", round(margin, 3), "tokens", tensors["tokens"].tolist())


main(sys.argv[1:])
