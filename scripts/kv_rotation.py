"""What a cache in codes costs a Llama if keys and queries are rotated before keys are rounded, in torch alone.

    python scripts/kv_rotation.py CHECKPOINT TEXT [TOKENS]

transformers in float32; keys behind rope, and values, are rounded by torch to e4m3 (fp8) or to e2m1 with a scale in
e4m3 for each 16 (nvfp4), all other scales 1. Rotated: keys and queries times a normalised Hadamard matrix of the head
dim, which changes no product of theirs, but spreads what stands in few channels over all. A row: mean and least cosine
of the last 256 positions' logits with those of a cache that is not rounded.
"""
import sys

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

LAST, GROUP = 256, 16
E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6])
how = {"round": None, "rotated": False}


def fp8(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def nvfp4(x):
    groups = x.reshape(*x.shape[:-1], -1, GROUP)
    scale = fp8((groups.abs().amax(-1, keepdim=True) / 6).clamp(min=2 ** -9))
    y = groups / scale
    nearest = torch.bucketize(y.abs().contiguous(), (E2M1[1:] + E2M1[:-1]) / 2)
    return (y.sign() * E2M1[nearest] * scale).reshape(x.shape)


def hadamard(n):
    h = torch.ones(1, 1)
    while len(h) < n:
        h = torch.cat([torch.cat([h, h], 1), torch.cat([h, -h], 1)])
    return h / n ** 0.5


def attention(module, query, key, value, _mask, scaling=None, **_):
    if how["rotated"]:
        h = hadamard(key.shape[-1])
        query, key = query @ h, key @ h
    if how["round"]:
        key, value = how["round"](key), how["round"](value)
    each = query.shape[1] // key.shape[1]
    y = torch.nn.functional.scaled_dot_product_attention(
        query, key.repeat_interleave(each, 1), value.repeat_interleave(each, 1), is_causal=True, scale=scaling)
    return y.transpose(1, 2).contiguous(), None


@torch.no_grad()
def main():
    ALL_ATTENTION_FUNCTIONS["rounded"] = attention
    model = AutoModelForCausalLM.from_pretrained(sys.argv[1], dtype=torch.float32).eval()
    model.config._attn_implementation = "rounded"
    with open(sys.argv[2], encoding="utf-8") as f:
        ids = AutoTokenizer.from_pretrained(sys.argv[1])(f.read())["input_ids"]
    n = int(sys.argv[3]) if len(sys.argv) > 3 else 8192
    ids = torch.tensor([(ids * (n // len(ids) + 1))[:n]])

    def logits(rounding, rotated):
        how.update(round=rounding, rotated=rotated)
        return model(ids, use_cache=False, logits_to_keep=LAST).logits[0]

    exact = logits(None, False)
    for rounding in fp8, nvfp4:
        for rotated in False, True:
            cosine = torch.cosine_similarity(logits(rounding, rotated), exact, dim=-1)
            print(f"{rounding.__name__:6} {'rotated' if rotated else 'plain':8} {cosine.mean():.6f} {cosine.min():.6f}",
                  flush=True)


if __name__ == "__main__":
    main()
