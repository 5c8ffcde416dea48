"""What bf16 alone costs a shape of random weights: transformers in bfloat16 beside transformers in float32.

    python3 tests/gpu/bf16_loss.py tests/gpu/shapes/qwen3.6-35b-a3b-fp8.json --tokens 4

The weights are drawn as `atlasc --random-weights` draws them: matrices of deviation 1 / sqrt(columns), norms 1 with one
of 0.1, other vectors 0.02. They are bf16 for both sides, so that only the arithmetic differs. One layer at a time is
made, on a GPU if there is one. Columns: least and median cosine of the rows; experts of them that float32 did not
choose.
"""

from __future__ import annotations

import argparse
import copy
import importlib
import json
import pathlib

import torch
import transformers

MODULES = {"qwen3_5_moe": "Qwen3_5Moe"}


def draw(layer, generator):
    for name, p in layer.named_parameters():
        mean = 1.0 if "norm" in name and p.dim() == 1 else 0.0
        deviation = p.shape[-1] ** -0.5 if p.dim() > 1 else 0.1 if mean else 0.02
        p.data.normal_(mean, deviation, generator=generator)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("shape", type=pathlib.Path)
    parser.add_argument("--tokens", type=int, default=4)
    parser.add_argument("--layers", type=int, help="the first so many; default: all")
    args = parser.parse_args()
    data = json.loads(args.shape.read_text())
    kind = data["model_type"]
    name = MODULES[kind]
    config_of = importlib.import_module(f"transformers.models.{kind}.configuration_{kind}")
    code = importlib.import_module(f"transformers.models.{kind}.modeling_{kind}")
    config = getattr(config_of, name + "TextConfig")(**data["text_config"])
    config._attn_implementation = "sdpa"
    config._experts_implementation = "eager"
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    generator = torch.Generator(device).manual_seed(1)
    torch.backends.cuda.matmul.allow_tf32 = False
    rotary = getattr(code, name + "TextRotaryEmbedding")(config).to(device)
    place = torch.arange(args.tokens, device=device).expand(3, 1, -1)  # of text, image height and width
    exact = torch.empty(1, args.tokens, config.hidden_size, device=device)
    exact.normal_(0, config.hidden_size**-0.5, generator=generator)
    rounded = exact = exact.bfloat16().float()
    rounded = rounded.bfloat16()
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, {device.type}, {args.tokens} tokens")
    print(f"{'layer':6} {'cosine':>11} {'median':>11} {'other experts':>14}")
    for i in range(args.layers or config.num_hidden_layers):
        with torch.device(device):
            layer = getattr(code, name + "DecoderLayer")(config, i).to(torch.bfloat16).eval()
        draw(layer, generator)
        chosen = []
        layer.mlp.gate.register_forward_hook(lambda _m, _i, out: chosen.append(out[-1].view(args.tokens, -1)))
        both = []
        for x, side in (rounded, layer), (exact, copy.deepcopy(layer).float()):
            with torch.no_grad():
                y = side(x, position_embeddings=rotary(x, place), attention_mask=None, position_ids=place[0])
            both.append(y[0] if isinstance(y, tuple) else y)
        rounded, exact = both
        cosines = torch.cosine_similarity(rounded.double(), exact.double(), dim=-1).flatten().sort().values
        other = sum(len(set(a.tolist()) - set(b.tolist())) for a, b in zip(*chosen))
        print(f"{i:<6} {cosines[0]:11.8f} {cosines[len(cosines) // 2]:11.8f} {other:7} of {chosen[0].numel()}")


if __name__ == "__main__":
    main()
