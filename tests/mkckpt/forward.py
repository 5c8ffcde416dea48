"""A float32 reference of all families in plain numpy.

It reads a checkpoint folder and computes hidden states and logits one whole sequence at a time: no cache, no
batching, no tricks. It is an oracle that needs neither torch nor our own code: goldens made with `transformers`
are compared with it in the tests, so a golden that no longer belongs to its weights is noticed.

Formulas follow the public `transformers` model files: RMSNorm w * x / rms(x); half-split rotary embedding; rope
types default, linear, llama3 and yarn; grouped-query attention where head h reads KV head h // (nh / nkv). Gated
DeltaNet is its recurrence, a position at a time; behind the positions of "bf16_behind" in the configuration, which no
file has, its state becomes the nearest bf16. Experts: each row through the TOP_K most probable ones.
"""

import json
import math
import os

import numpy as np

import quant
from container import decode, read_safetensors


def load_config(folder):
    """config.json flattened: text_config merged over the top level, rope settings under one name."""
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        top = json.load(f)
    c = {**top, **top.get("text_config", {})}
    rope = dict(c.get("rope_parameters") or {})
    if not rope:
        rope = dict(c.get("rope_scaling") or {})
        rope["rope_theta"] = c.get("rope_theta", 10000.0)
    rope["rope_type"] = rope.get("rope_type", rope.get("type", "default"))
    c["rope"] = rope
    c.setdefault("num_key_value_heads", c["num_attention_heads"])
    c["head_dim"] = c.get("head_dim") or c["hidden_size"] // c["num_attention_heads"]
    c["tied"] = top.get("tie_word_embeddings", c.get("tie_word_embeddings", False))
    return c


def load_weights(folder):
    """name -> float32 array, from one file or from the shards that the index names; codes with their scales applied."""
    index = os.path.join(folder, "model.safetensors.index.json")
    if os.path.exists(index):
        with open(index, encoding="utf-8") as f:
            files = sorted(set(json.load(f)["weight_map"].values()))
    else:
        files = ["model.safetensors"]
    stored = {}
    for name in files:
        for key, tensor in read_safetensors(os.path.join(folder, name)).items():
            stored[key.replace("model.language_model.", "model.", 1)] = tensor
    out = {key: decode(raw, dtype, shape) for key, (dtype, shape, raw) in stored.items()}
    for module in quant.coded_modules(stored):
        out[f"{module}.weight"] = quant.dequantise(module, stored, quant.block_of(folder))
    return out


def inverse_frequencies(c):
    """(inv_freq [head_dim / 2], factor on cos and sin) of the rope type."""
    rope = c["rope"]
    part = rope.get("partial_rotary_factor", c.get("partial_rotary_factor", 1.0))
    d = int(c["head_dim"] * part)
    theta = float(rope.get("rope_theta", c.get("rope_theta", 10000.0)))
    inv = 1.0 / theta ** (np.arange(0, d, 2, dtype=np.float64) / d)
    kind, factor = rope["rope_type"], float(rope.get("factor", 1.0))
    if kind == "default":
        return inv, 1.0
    if kind == "linear":
        return inv / factor, 1.0
    original = rope.get("original_max_position_embeddings") or c["max_position_embeddings"]
    if kind == "llama3":
        wavelength = 2 * math.pi / inv
        low, high = rope["low_freq_factor"], rope["high_freq_factor"]
        blend = np.clip((original / wavelength - low) / (high - low), 0.0, 1.0)
        return (1 - blend) * inv / factor + blend * inv, 1.0
    if kind == "yarn":

        def turns_at(n):
            return d * math.log(original / (n * 2 * math.pi)) / (2 * math.log(theta))

        low, high = turns_at(rope.get("beta_fast") or 32.0), turns_at(rope.get("beta_slow") or 1.0)
        if rope.get("truncate", True):
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, d - 1)
        ramp = np.clip((np.arange(d // 2) - low) / max(high - low, 0.001), 0, 1)
        scale = rope.get("attention_factor")
        if scale is None:

            def mscale(s):
                return 0.1 * s * math.log(factor) + 1.0 if factor > 1 else 1.0

            a, b = rope.get("mscale"), rope.get("mscale_all_dim")
            scale = mscale(a) / mscale(b) if a and b else mscale(1.0)
        return inv / factor * ramp + inv * (1 - ramp), float(scale)
    raise ValueError(f"rope type {kind}")


def rms_norm(x, weight, eps):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + np.float32(eps)) * weight


def rotate(x, cos, sin):
    """Half-split rotary embedding; x [T, heads, head_dim], cos and sin [T, 1, head_dim / 2]."""
    turned, rest = np.split(x, [2 * cos.shape[-1]], axis=-1)
    a, b = np.split(turned, 2, axis=-1)
    return np.concatenate([a * cos - b * sin, b * cos + a * sin, rest], axis=-1)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def is_hybrid(c):
    return "linear_num_key_heads" in c


def norm_of(c, x, weight):
    """The family's norm of hidden states and heads: weights of the hybrids are stored less one."""
    return rms_norm(x, weight + np.float32(1) if is_hybrid(c) else weight, c["rms_norm_eps"])


def window_of(c, layer):
    """Positions that a row of the layer sees, itself included; None: all before it. As the classes of transformers say
    it: `layer_types` where there is one, else all layers of mistral, and of qwen those from max_window_layers on."""
    if not c.get("sliding_window") or not c.get("use_sliding_window", True):
        return None
    types = c.get("layer_types")
    windowed = types[layer] == "sliding_attention" if types else layer >= c.get("max_window_layers", 0)
    return c["sliding_window"] if windowed else None


def attention(c, w, prefix, x, cos, sin, window=None):
    """Causal grouped-query attention; x [T, hidden] -> [T, hidden]."""
    t, nh, nkv, d = x.shape[0], c["num_attention_heads"], c["num_key_value_heads"], c["head_dim"]

    def project(name, heads):
        y = x @ w[f"{prefix}{name}_proj.weight"].T
        bias = w.get(f"{prefix}{name}_proj.bias")
        return (y if bias is None else y + bias).reshape(t, heads, d)

    gate = None
    if is_hybrid(c):
        q, gate = np.split((x @ w[f"{prefix}q_proj.weight"].T).reshape(t, nh, 2 * d), 2, axis=-1)
    else:
        q = project("q", nh)
    k, v = project("k", nkv), project("v", nkv)
    if f"{prefix}q_norm.weight" in w:
        q, k = norm_of(c, q, w[f"{prefix}q_norm.weight"]), norm_of(c, k, w[f"{prefix}k_norm.weight"])
    q, k = rotate(q, cos, sin), rotate(k, cos, sin)
    k, v = np.repeat(k, nh // nkv, axis=1), np.repeat(v, nh // nkv, axis=1)
    score = np.einsum("thd,shd->hts", q, k) * np.float32(d**-0.5)
    position = np.arange(t)
    hidden = position[None, :] > position[:, None]
    if window:
        hidden |= position[:, None] - position[None, :] >= window
    score = np.where(hidden[None], np.float32(-np.inf), score)
    p = np.exp(score - score.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    y = np.einsum("hts,shd->thd", p, v)
    if gate is not None:
        y = y * sigmoid(gate)
    y = y.reshape(t, nh * d) @ w[f"{prefix}o_proj.weight"].T
    bias = w.get(f"{prefix}o_proj.bias")
    return y if bias is None else y + bias


def delta_inputs(c, w, prefix, x):
    """q, k [T, nk, dk], v, z [T, nv, dv] and b, a [T, nv], before the convolution; Qwen3-Next has them by key head."""
    nk, nv, dk, dv = (c[f"linear_{n}"] for n in ("num_key_heads", "num_value_heads", "key_head_dim", "value_head_dim"))
    t, r = x.shape[0], nv // nk
    if f"{prefix}in_proj_qkvz.weight" in w:
        qkvz = (x @ w[f"{prefix}in_proj_qkvz.weight"].T).reshape(t, nk, -1)
        q, k, v, z = np.split(qkvz, [dk, 2 * dk, 2 * dk + r * dv], axis=-1)
        b, a = np.split((x @ w[f"{prefix}in_proj_ba.weight"].T).reshape(t, nk, 2 * r), 2, axis=-1)
        return q, k, v.reshape(t, nv, dv), z.reshape(t, nv, dv), b.reshape(t, nv), a.reshape(t, nv)
    q, k, v = np.split(x @ w[f"{prefix}in_proj_qkv.weight"].T, [nk * dk, 2 * nk * dk], axis=-1)
    z, b, a = (x @ w[f"{prefix}in_proj_{n}.weight"].T for n in "zba")
    return q.reshape(t, nk, dk), k.reshape(t, nk, dk), v.reshape(t, nv, dv), z.reshape(t, nv, dv), b, a


def nearest_bf16(x):
    """Eight bits of mantissa, ties to even."""
    mantissa, exponent = np.frexp(x)
    return np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8).astype(np.float32)


def delta_net(c, w, prefix, x):
    """Gated DeltaNet; x [T, hidden] -> [T, hidden]."""
    t = x.shape[0]
    q, k, v, z, b, a = delta_inputs(c, w, prefix, x)
    nk, dk, nv, dv = *q.shape[1:], *v.shape[1:]
    mixed = np.concatenate([part.reshape(t, -1) for part in (q, k, v)], axis=-1)
    taps = w[f"{prefix}conv1d.weight"][:, 0]
    width = taps.shape[1]
    padded = np.concatenate([np.zeros((width - 1, mixed.shape[1]), np.float32), mixed])
    mixed = sum(padded[j : j + t] * taps[:, j] for j in range(width))
    mixed = mixed * sigmoid(mixed)
    q, k, v = np.split(mixed, [nk * dk, 2 * nk * dk], axis=-1)
    q, k, v = q.reshape(t, nk, dk), k.reshape(t, nk, dk), v.reshape(t, nv, dv)
    q = q / np.sqrt((q * q).sum(-1, keepdims=True) + np.float32(1e-6)) * np.float32(dk**-0.5)
    k = k / np.sqrt((k * k).sum(-1, keepdims=True) + np.float32(1e-6))
    q, k = np.repeat(q, nv // nk, axis=1), np.repeat(k, nv // nk, axis=1)
    decay = np.exp(-np.exp(w[f"{prefix}A_log"]) * np.logaddexp(0, a + w[f"{prefix}dt_bias"]))
    state, out = np.zeros((nv, dk, dv), np.float32), []
    for n in range(t):
        state = state * decay[n][:, None, None]
        change = sigmoid(b[n])[:, None] * (v[n] - np.einsum("hkv,hk->hv", state, k[n]))
        state = state + k[n][:, :, None] * change[:, None, :]
        out.append(np.einsum("hkv,hk->hv", state, q[n]))
        if n in c.get("bf16_behind", ()):
            state = nearest_bf16(state)
    y = rms_norm(np.stack(out), w[f"{prefix}norm.weight"], c["rms_norm_eps"]) * z * sigmoid(z)
    return y.reshape(t, nv * dv).astype(np.float32) @ w[f"{prefix}out_proj.weight"].T


def experts(c, w, prefix, x):
    """The most probable experts of each row, and the shared one where there is one."""
    logits = x @ w[f"{prefix}gate.weight"].T
    p = np.exp(logits - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    chosen = np.argsort(-p, axis=-1, kind="stable")[:, : c["num_experts_per_tok"]]
    out = np.zeros_like(x)
    for t, ids in enumerate(chosen):
        share = p[t, ids] / (p[t, ids].sum() if c.get("norm_topk_prob", True) else 1)
        for e, s in zip(ids, share):
            if f"{prefix}experts.gate_up_proj" in w:
                gate, up = np.split(x[t] @ w[f"{prefix}experts.gate_up_proj"][e].T, 2)
                out[t] += s * ((gate * sigmoid(gate) * up) @ w[f"{prefix}experts.down_proj"][e].T)
            else:
                out[t] += s * mlp(w, f"{prefix}experts.{e}.", x[t])
    if f"{prefix}shared_expert_gate.weight" in w:
        out += sigmoid(x @ w[f"{prefix}shared_expert_gate.weight"].T) * mlp(w, f"{prefix}shared_expert.", x)
    return out


def mlp(w, prefix, x):
    """SwiGLU with optional biases."""

    def linear(name, u):
        y = u @ w[f"{prefix}{name}_proj.weight"].T
        bias = w.get(f"{prefix}{name}_proj.bias")
        return y if bias is None else y + bias

    gate = linear("gate", x)
    return linear("down", gate / (1 + np.exp(-gate)) * linear("up", x))


def forward(c, w, ids):
    """ids [T] -> ([hidden after the embedding, after layer 0, ...] each [T, hidden], logits [T, vocab])."""
    ids = np.asarray(ids)
    inv, scale = inverse_frequencies(c)
    angle = np.arange(len(ids), dtype=np.float32)[:, None] * inv.astype(np.float32)[None, :]
    cos = (np.cos(angle) * np.float32(scale))[:, None, :]
    sin = (np.sin(angle) * np.float32(scale))[:, None, :]
    x = w["model.embed_tokens.weight"][ids]
    states = [x]
    for layer in range(c["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        h = norm_of(c, x, w[p + "input_layernorm.weight"])
        if f"{p}linear_attn.A_log" in w:
            x = x + delta_net(c, w, p + "linear_attn.", h)
        else:
            x = x + attention(c, w, p + "self_attn.", h, cos, sin, window_of(c, layer))
        h = norm_of(c, x, w[p + "post_attention_layernorm.weight"])
        x = x + (experts(c, w, p + "mlp.", h) if f"{p}mlp.gate.weight" in w else mlp(w, p + "mlp.", h))
        states.append(x)
    head = w["model.embed_tokens.weight"] if c["tied"] else w["lm_head.weight"]
    return states, norm_of(c, x, w["model.norm.weight"]) @ head.T


def greedy(c, w, ids, count, need=-math.inf):
    """(count tokens chosen by the largest logit, smallest gap between the two largest logits met).

    Stops early, with fewer tokens, at a gap below `need`."""
    start, ids, margin = len(ids), list(ids), math.inf
    while len(ids) < start + count and margin >= need:
        last = forward(c, w, ids)[1][-1]
        second, first = np.partition(last, -2)[-2:]
        margin = min(margin, float(first - second))
        ids.append(int(np.argmax(last)))
    return ids[start:], margin
