#!/usr/bin/env python3
"""Train the small model with a drafting head of tests/fixtures/qwen3_5_moe-trained on the King James Version.

    python scripts/train_tiny.py extract TEXT          the text, from Debian's `bible` command (package bible-kjv)
    python scripts/train_mtp.py train TEXT FOLDER      tokenizer and model; some ten minutes on one processor
    python scripts/train_mtp.py oracle FOLDER          what the head drafts: mtp.safetensors

The model is a Qwen3.5 with experts of 1.2 million parameters, of the class in transformers, and the head that drafts
the token after the next, which transformers leaves out and which stands below in plain torch (Head): a projection of
the next token's embedding and of the model's normed last row, a layer with gated attention, and the model's own
vocabulary head behind a norm. Both are trained together, the head to predict one token further. A vocabulary of 512
byte pairs spells most words in several tokens, which a small head can foresee. As in train_tiny.py the Book of Ruth is
kept out of training; its beginning is heldout.txt. The committed files are the reference: another machine gives an
equally good model with other bits.

oracle writes, for a prompt of 48 tokens of heldout.txt and one of 13: pN.input_ids I64 [T]; pN.next I64 [1], the
likeliest token behind it; and for draft i = 1, 2, 3 the logits pN.logits.i F32 [vocab] and the token pN.draft.i I64 [1]
that they make likeliest. Weights are those of the file, computed with in float32.

train needs torch, transformers, tokenizers and numpy.
"""

import argparse
import os
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "mkckpt"))
sys.path.insert(0, HERE)

import train_tiny  # noqa: E402

VOCAB = 512
WINDOW = 512
PIECE = 192  # tokens of a training row
SHAPE = {
    "hidden_size": 128, "num_hidden_layers": 4, "num_attention_heads": 2, "num_key_value_heads": 1, "head_dim": 64,
    "max_position_embeddings": WINDOW, "rms_norm_eps": 1e-6, "vocab_size": VOCAB, "tie_word_embeddings": False,
    "hidden_act": "silu", "attention_bias": False, "num_experts": 8, "num_experts_per_tok": 2,
    "moe_intermediate_size": 32, "shared_expert_intermediate_size": 64, "norm_topk_prob": True,
    "linear_num_key_heads": 2, "linear_num_value_heads": 4, "linear_key_head_dim": 64, "linear_value_head_dim": 64,
    "linear_conv_kernel_dim": 4, "full_attention_interval": 2,
    "layer_types": ["linear_attention", "full_attention", "linear_attention", "full_attention"],
    "rope_parameters": {"rope_theta": 10000.0, "rope_type": "default", "partial_rotary_factor": 0.25},
}  # fmt: skip
PROMPTS = (48, 13)
DRAFTS = 3


def write_config(folder):
    ids = {"bos_token_id": None, "eos_token_id": 0, "pad_token_id": 0}
    config = {
        "architectures": ["Qwen3_5MoeForCausalLM"], "model_type": "qwen3_5_moe_text", "dtype": "bfloat16", **ids,
        **SHAPE,
        "attn_output_gate": True, "mamba_ssm_dtype": "float32", "mtp_num_hidden_layers": 1,
        "mtp_use_dedicated_embeddings": False,
    }  # fmt: skip
    train_tiny.write_json(os.path.join(folder, "config.json"), dict(sorted(config.items())))
    train_tiny.write_json(os.path.join(folder, "generation_config.json"), {"eos_token_id": 0, "pad_token_id": 0})
    end = train_tiny.END
    train_tiny.write_json(
        os.path.join(folder, "tokenizer_config.json"),
        {"add_bos_token": False, "eos_token": end, "pad_token": end, "unk_token": end, "model_max_length": WINDOW,
         "tokenizer_class": "PreTrainedTokenizerFast"},
    )  # fmt: skip


def base_model():
    from transformers import Qwen3_5MoeForCausalLM, Qwen3_5MoeTextConfig

    config = Qwen3_5MoeTextConfig(**SHAPE, eos_token_id=0, pad_token_id=0, attn_implementation="eager")
    return Qwen3_5MoeForCausalLM(config)


def norm(x, w):
    """RMSNorm that multiplies by 1 + w."""
    import torch

    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + SHAPE["rms_norm_eps"]) * (1 + w)


def turn(x, positions):
    """Rope of the first quarter of each head's elements; x [batch, tokens, heads, head_dim]."""
    import torch

    rope = SHAPE["rope_parameters"]
    n = int(SHAPE["head_dim"] * rope["partial_rotary_factor"])
    frequency = rope["rope_theta"] ** (-torch.arange(0, n, 2).float() / n)
    angle = (positions.float()[:, None] * frequency)[None, :, None, :]
    a, b, rest = x[..., : n // 2], x[..., n // 2 : n], x[..., n:]
    return torch.cat((a * angle.cos() - b * angle.sin(), b * angle.cos() + a * angle.sin(), rest), -1)


def make_head():
    """Parameters of the head by the names that they have in the file."""
    import torch

    h, n, hd = SHAPE["hidden_size"], SHAPE["num_attention_heads"], SHAPE["head_dim"]
    kv, e = SHAPE["num_key_value_heads"], SHAPE["num_experts"]
    width, shared = SHAPE["moe_intermediate_size"], SHAPE["shared_expert_intermediate_size"]
    layer = {
        "input_layernorm.weight": (h,), "post_attention_layernorm.weight": (h,),
        "self_attn.q_proj.weight": (2 * n * hd, h),
        "self_attn.k_proj.weight": (kv * hd, h), "self_attn.v_proj.weight": (kv * hd, h),
        "self_attn.o_proj.weight": (h, n * hd), "self_attn.q_norm.weight": (hd,), "self_attn.k_norm.weight": (hd,),
        "mlp.gate.weight": (e, h), "mlp.experts.gate_up_proj": (e, 2 * width, h),
        "mlp.experts.down_proj": (e, h, width),
        "mlp.shared_expert.gate_proj.weight": (shared, h), "mlp.shared_expert.up_proj.weight": (shared, h),
        "mlp.shared_expert.down_proj.weight": (h, shared), "mlp.shared_expert_gate.weight": (1, h),
    }  # fmt: skip
    shapes = {"mtp.fc.weight": (h, 2 * h)}
    shapes |= {f"mtp.{x}.weight": (h,) for x in ("pre_fc_norm_embedding", "pre_fc_norm_hidden", "norm")}
    shapes |= {f"mtp.layers.0.{name}": shape for name, shape in layer.items()}
    make = {name: torch.zeros(s) if len(s) == 1 else 0.02 * torch.randn(s) for name, s in shapes.items()}
    return {name: torch.nn.Parameter(x) for name, x in make.items()}


def attend(w, x, positions, kept):
    """Gated attention of rows at positions, behind the keys and values in `kept` (a pair or None); and the new pair."""
    import torch

    b, t, _ = x.shape
    n, hd, kv = SHAPE["num_attention_heads"], SHAPE["head_dim"], SHAPE["num_key_value_heads"]
    q, gate = (x @ w["self_attn.q_proj.weight"].T).view(b, t, n, 2 * hd).chunk(2, -1)
    k = (x @ w["self_attn.k_proj.weight"].T).view(b, t, kv, hd)
    v = (x @ w["self_attn.v_proj.weight"].T).view(b, t, kv, hd)
    q = turn(norm(q, w["self_attn.q_norm.weight"]), positions)
    k = turn(norm(k, w["self_attn.k_norm.weight"]), positions)
    if kept is not None:
        k, v = torch.cat((kept[0], k), 1), torch.cat((kept[1], v), 1)
    scores = torch.einsum("bthd,bshd->bhts", q, k.repeat_interleave(n // kv, 2)) * hd**-0.5
    seen = torch.arange(k.shape[1])[None, :] <= positions[:, None]
    share = scores.masked_fill(~seen, float("-inf")).softmax(-1)
    out = torch.einsum("bhts,bshd->bthd", share, v.repeat_interleave(n // kv, 2)) * torch.sigmoid(gate)
    return out.reshape(b, t, n * hd) @ w["self_attn.o_proj.weight"].T, (k, v)


def experts(w, x):
    """Every expert of every row, most of them with a share of nothing."""
    import torch
    from torch.nn.functional import silu

    p = (x @ w["mlp.gate.weight"].T).softmax(-1)
    top, ids = p.topk(SHAPE["num_experts_per_tok"], -1)
    share = torch.zeros_like(p).scatter(-1, ids, top / top.sum(-1, keepdim=True))
    gate, up = torch.einsum("bth,enh->bten", x, w["mlp.experts.gate_up_proj"]).chunk(2, -1)
    y = torch.einsum("bten,ehn,bte->bth", silu(gate) * up, w["mlp.experts.down_proj"], share)
    one = silu(x @ w["mlp.shared_expert.gate_proj.weight"].T) * (x @ w["mlp.shared_expert.up_proj.weight"].T)
    one = one @ w["mlp.shared_expert.down_proj.weight"].T
    return y + torch.sigmoid(x @ w["mlp.shared_expert_gate.weight"].T) * one


def head(w, embedded, hidden, positions, kept=None):
    """Rows that predict: embedded [batch, tokens, hidden_size] of the tokens behind the positions, hidden of the
    positions themselves (normed), or of the head's own rows before. Returns them normed, and keys and values."""
    import torch

    layer = {name[13:]: x for name, x in w.items() if name.startswith("mtp.layers.0.")}
    both = (norm(embedded, w["mtp.pre_fc_norm_embedding.weight"]), norm(hidden, w["mtp.pre_fc_norm_hidden.weight"]))
    x = torch.cat(both, -1) @ w["mtp.fc.weight"].T
    y, kept = attend(layer, norm(x, layer["input_layernorm.weight"]), positions, kept)
    x = x + y
    x = x + experts(layer, norm(x, layer["post_attention_layernorm.weight"]))
    return norm(x, w["mtp.norm.weight"]), kept


def losses(model, w, piece):
    """Mean cross-entropy of the model and of its head; piece [batch, tokens]."""
    import torch
    from torch.nn.functional import cross_entropy

    hidden = model.model(piece[:, :-1], use_cache=False).last_hidden_state
    logits = model.lm_head(hidden)
    main = cross_entropy(logits.flatten(0, 1), piece[:, 1:].flatten())
    t = piece.shape[1] - 2
    y, _ = head(w, model.model.embed_tokens(piece[:, 1:-1]), hidden[:, :-1], torch.arange(t))
    drafted = model.lm_head(y)
    with torch.no_grad():
        same = (drafted.argmax(-1) == logits[:, 1:].argmax(-1)).float().mean()
    return main, cross_entropy(drafted.flatten(0, 1), piece[:, 2:].flatten()), same


def train(chapters, tokenizer, steps, batch):
    import torch

    torch.manual_seed(1611)
    data = torch.tensor(train_tiny.join(tokenizer, chapters))
    model, w = base_model(), make_head()
    parameters = [*model.parameters(), *w.values()]
    print(f"{sum(p.numel() for p in parameters)} parameters, {len(data)} tokens, {steps} steps", flush=True)
    groups = [{"params": [p for p in parameters if p.ndim > 1], "weight_decay": 0.1},
              {"params": [p for p in parameters if p.ndim <= 1], "weight_decay": 0.0}]  # fmt: skip
    optimizer = torch.optim.AdamW(groups, lr=4e-3, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 4e-3, steps, pct_start=0.08, div_factor=20)
    generator = torch.Generator().manual_seed(1611)
    for step in range(steps):
        at = torch.randint(len(data) - PIECE, (batch,), generator=generator)
        main, drafted, same = losses(model, w, torch.stack([data[a : a + PIECE] for a in at]))
        optimizer.zero_grad(set_to_none=True)
        (main + 0.5 * drafted).backward()
        torch.nn.utils.clip_grad_norm_(parameters, 1.0)
        optimizer.step()
        schedule.step()
        if step % 25 == 24:
            print(f"step {step}: loss {main:.3f}, of the head {drafted:.3f}, same token {same:.2f}", flush=True)
    return model.eval(), w


def save(model, w, folder):
    import torch
    from container import Tensor, write_safetensors

    tensors = []
    for name, p in sorted({**model.state_dict(), **w}.items()):
        bits = p.detach().to(torch.bfloat16).contiguous().view(torch.int16).numpy()
        tensors.append(Tensor(name, "BF16", tuple(p.shape), bits.tobytes()))
    write_safetensors(os.path.join(folder, "model.safetensors"), tensors, {"format": "pt"})


def oracle(folder):
    """The drafts behind a prompt, from the weights in the file."""
    import numpy as np
    import torch
    from container import Tensor, write_safetensors
    from safetensors.torch import load_file
    from tokenizers import Tokenizer

    weights = {name: x.float() for name, x in load_file(os.path.join(folder, "model.safetensors")).items()}
    w = {name: x for name, x in weights.items() if name.startswith("mtp.")}
    model = base_model().eval()
    model.load_state_dict({name: x for name, x in weights.items() if name not in w})
    with open(os.path.join(folder, "heldout.txt"), encoding="utf-8") as f:
        text = Tokenizer.from_file(os.path.join(folder, "tokenizer.json")).encode(f.read()).ids
    out = {}
    for p, n in enumerate(PROMPTS):
        ids = text[100 * p : 100 * p + n]
        with torch.no_grad():
            hidden = model.model(torch.tensor([ids]), use_cache=False).last_hidden_state
            tokens = [*ids[1:], int(model.lm_head(hidden)[0, -1].argmax())]
            out[f"p{p}.input_ids"], out[f"p{p}.next"] = np.array(ids), np.array(tokens[-1:])
            y, kept = head(w, model.model.embed_tokens(torch.tensor([tokens])), hidden, torch.arange(n))
            for i in range(1, DRAFTS + 1):
                logits = model.lm_head(y[:, -1:])[0, 0]
                draft = logits.argmax().view(1)
                out[f"p{p}.logits.{i}"], out[f"p{p}.draft.{i}"] = logits.numpy(), draft.numpy()
                y, kept = head(w, model.model.embed_tokens(draft[None]), y[:, -1:], torch.tensor([n + i - 1]), kept)
    kinds = {np.dtype(np.int64): "I64", np.dtype(np.float32): "F32"}
    tensors = [Tensor(name, kinds[x.dtype], x.shape, x.tobytes()) for name, x in sorted(out.items())]
    write_safetensors(os.path.join(folder, "mtp.safetensors"), tensors, {})
    print({name: x.tolist() for name, x in out.items() if x.size == 1})


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("train", "oracle"))
    parser.add_argument("paths", nargs="+", metavar="TEXT FOLDER")
    parser.add_argument("--steps", type=int, default=450)
    parser.add_argument("--batch", type=int, default=8)
    args = parser.parse_args()
    folder = args.paths[-1]
    if args.what == "oracle":
        return oracle(folder)
    if len(args.paths) != 2:
        parser.error("train needs TEXT and FOLDER")
    os.makedirs(folder, exist_ok=True)
    chapters, held = train_tiny.read_chapters(args.paths[0])
    heldout = "\n".join(held).encode()[:4096]
    with open(os.path.join(folder, "heldout.txt"), "wb") as f:
        f.write(heldout[: heldout.rindex(b"\n") + 1])
    write_config(folder)
    train_tiny.VOCAB = VOCAB
    tokenizer = train_tiny.train_tokenizer(chapters, folder)
    model, w = train(chapters, tokenizer, args.steps, args.batch)
    save(model, w, folder)
    return oracle(folder)


if __name__ == "__main__":
    main()
