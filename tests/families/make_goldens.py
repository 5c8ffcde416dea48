#!/usr/bin/env python3
"""Weights and goldens of the folders beside this file, from their config.json: needs torch and transformers.

    tests/families/make_goldens.py olmo2...

Random weights in bf16, large enough that a mistake shows; no norm is 1, no bias 0. What transformers makes of them in
float32 goes to golden.safetensors: prompt [P] i64, hidden.<l> [P, H] of each layer but the last, logits [P, V] f32,
tokens [N] i64, greedy. The seed is the first one of which no step is a near tie, and no router's choice on which the
text hangs: it is the same with noise of bf16's size in every layer. Tensors have the names of the hub.
Where config.json says MXFP4, codes and scales of experts are drawn, and what they are worth is what transformers says.
"""

import pathlib
import sys
import tempfile

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers import AutoConfig
from transformers.integrations.mxfp4 import convert_moe_packed_tensors

PROMPT, TOKENS, MARGIN = 41, 16, 0.05
NOISE, DRAWS = 0.006, 8
SELECTION_BIASES = ("e_score_correction_bias", "router_bias")
TURNED = ("gpt_oss", "llama4")  # have experts' matrices [E, inputs, outputs]
TRANSPOSED = ("experts.gate_up_proj", "experts.down_proj")  # as the hub has them, and transformers does not write them
OF_IMAGES = (".visual.", "vision_model.", "vit_large_projector.", "multi_modal_projector.")


def value_of(name, p, noise, embedding, large, is_turned):
    """Around what the class starts with, where that is a norm; a selection bias decides some choices and not all."""
    if "norm" in name:
        around = float(p.float().mean().round())
        last = name.endswith((".norm.weight", "model.norm.weight")) and "layers" not in name
        return around + 0.3 * noise + ((1 / embedding - 1) * large if last else 0)
    if name.endswith("e_score_correction_bias"):
        return 0.3 * noise
    if name.endswith(("layer_scalar", "router.scale", "per_expert_scale")):
        return 1 + 0.3 * noise
    if name.endswith("sinks"):
        return 1 + noise
    if name.endswith("experts.gate_up_proj") and is_turned:  # some of what it makes is clamped
        return noise * 4 / p.shape[-2] ** 0.5
    if name.endswith("experts.down_proj") and p.ndim == 3:
        return noise * 1.5 / p.shape[-1] ** 0.5
    if name.endswith("bias"):
        return 0.5 * noise
    if "embed" in name:
        return noise * embedding
    return noise * 1.5 / p.shape[-1] ** 0.5


def layer_scaling(model):
    return next((m.scaling for m in model.modules() if hasattr(m, "q_norm")), None)


def pack(p, exponent, g):
    """Codes [E,N,K/32,16] and scales [E,N,K/32] in the place of p [E,K,N], about 3 times 2^exponent."""
    experts, k, n = p.shape
    blocks = torch.randint(0, 256, (experts, n, k // 32, 16), generator=g, dtype=torch.uint8)
    scales = torch.randint(126 + exponent, 129 + exponent, (experts, n, k // 32), generator=g, dtype=torch.uint8)
    p.copy_(convert_moe_packed_tensors(blocks, scales, dtype=torch.float32))
    return blocks, scales


def fill_experts(model, seed):
    """What is stored of each experts' tensor, by name."""
    g = torch.Generator().manual_seed(seed)
    stored = {}
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(("experts.gate_up_proj", "experts.down_proj")):
                stored[name] = pack(p, -3 if "gate_up" in name else -4, g)
    return stored


def fill(model, seed):
    """Of a tied head small embeddings, else a token would be followed by itself for ever."""
    g = torch.Generator().manual_seed(seed)
    embedding = 0.1 if model.config.get_text_config().tie_word_embeddings else 1.0
    if any("embed_scale" in name for name, _ in model.named_buffers()):
        embedding /= model.config.get_text_config().hidden_size ** 0.5
    large = 0.25 if getattr(model.config.get_text_config(), "final_logit_softcapping", None) else 0.1  # so that it caps
    is_turned = model.config.model_type.startswith(TURNED)
    with torch.no_grad():
        for name, p in [*model.named_parameters(), *model.named_buffers()]:
            if "embed_scale" in name:  # in bf16, as the weights are
                p.copy_(p.to(torch.bfloat16).float())
            elif not name.endswith("inv_freq"):
                noise = torch.randn(p.shape, generator=g)
                value = value_of(name, p, noise, embedding, large, is_turned)
                if name.endswith("q_norm.weight"):  # of a class that divides no scores: as large as if it did
                    value = value * (p.shape[0] ** -0.5 if layer_scaling(model) == 1 else 1)
                p.copy_(value.to(torch.bfloat16).to(torch.float32))


def saved(model, packed):
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        tensors = load_file(pathlib.Path(folder) / "model.safetensors")
    tensors = {
        k: v.mT if k.endswith(TRANSPOSED) and "qwen3_vl_moe" in model.config.model_type else v
        for k, v in tensors.items()
    }
    experts = {f"{k}_{part}": t for k in packed for part, t in zip(("blocks", "scales"), packed[k], strict=True)}
    return experts | {
        k: v.float().contiguous() if k.endswith(SELECTION_BIASES) else v.to(torch.bfloat16).contiguous()
        for k, v in tensors.items()
        if not any(part in k for part in OF_IMAGES) and k not in packed
    }


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


def is_steady(model, tensors):
    """Are the tokens the same where each layer's output is another by NOISE?"""
    g = torch.Generator().manual_seed(0)
    ids, tokens = tensors["prompt"], tensors["tokens"]

    def disturb(_module, _inputs, out):
        hidden = out[0] if isinstance(out, tuple) else out
        hidden = hidden * (1 + NOISE * torch.randn(hidden.shape, generator=g))
        return (hidden, *out[1:]) if isinstance(out, tuple) else hidden

    hooks = [
        m.register_forward_hook(disturb) for name, m in model.named_modules() if name.split(".")[-2:-1] == ["layers"]
    ]
    with torch.no_grad():
        texts = [model(torch.cat([ids, tokens])[None], use_cache=False).logits[0].argmax(-1) for _ in range(DRAWS)]
    for hook in hooks:
        hook.remove()
    return all(torch.equal(text[len(ids) - 1 : -1], tokens) for text in texts)


def main(names):
    for name in names:
        folder = pathlib.Path(__file__).parent / name
        config = AutoConfig.from_pretrained(folder, attn_implementation="eager")
        model_class = getattr(transformers, config.architectures[0])
        text = config.get_text_config()
        is_packed = (getattr(config, "quantization_config", None) or {}).get("quant_method") == "mxfp4"
        if is_packed:
            del config.quantization_config
        ends = {text.eos_token_id} if isinstance(text.eos_token_id, int) else set(text.eos_token_id or ())
        for seed in range(1000):
            model = model_class(config).eval().to(torch.float32)
            fill(model, seed)
            packed = fill_experts(model, seed) if is_packed else {}
            for module in model.modules():  # later versions read it, 5.17 has a number
                if hasattr(module, "limit") and hasattr(config, "swiglu_limit"):
                    module.limit = config.swiglu_limit
            tensors, margin, distinct = golden(model, text.vocab_size, seed)
            is_text = distinct > TOKENS // 2 and not ends & set(tensors["tokens"].tolist())
            if margin > MARGIN and is_text and is_steady(model, tensors):
                break
        save_file(saved(model, packed), folder / "model.safetensors", {"format": "pt"})
        save_file(tensors, folder / "golden.safetensors", {"made_by": "transformers in float32", "seed": str(seed)})
        for file in folder.glob("*.safetensors"):
            file.chmod(0o644)
        print(name, "seed", seed, "margin", round(margin, 3), "tokens", tensors["tokens"].tolist())


if __name__ == "__main__":
    main(sys.argv[1:])
