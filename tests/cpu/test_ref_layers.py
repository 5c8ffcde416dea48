"""Ops of experts and of Gated DeltaNet against numpy in float64, as test_ref_ops.py has it for the others."""

from __future__ import annotations

import numpy as np
import pytest

from test_ref_ops import bf16, blank, close, normal, np_silu, ref, rng  # noqa: F401  (ref is a fixture)


def np_sigmoid(x):
    return 0.5 * (1 + np.tanh(np.asarray(x, np.float64) / 2))


@pytest.mark.parametrize("gates", [1, 3, 12])
def test_sigmoid_gate(ref, gates):  # noqa: F811
    g = rng(gates)
    x, gate = normal(g, 5, 12), 3 * normal(g, 5, gates)
    got = ref("sigmoid_gate", x=x, gate=gate, y=blank(5, 12))
    close(got["y"], x * np.repeat(np_sigmoid(gate), 12 // gates, 1))


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("experts,active", [(1, 1), (7, 3), (128, 8), (5, 5)])
def test_route(ref, experts, active, norm):  # noqa: F811
    g = rng(experts)
    logits = 3 * normal(g, 9, experts)
    got = ref("route", {"TOPK": active, "NORM_TOPK": norm}, logits=logits, expert=blank(9, active, kind=np.int32),
              share=blank(9, active))
    p = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    want = np.argsort(-p, -1, kind="stable")[:, :active]
    assert np.array_equal(got["expert"], want)
    share = np.take_along_axis(p, want, -1)
    close(got["share"], share / (share.sum(-1, keepdims=True) if norm else 1))


def test_route_ties(ref):  # noqa: F811
    logits = np.array([[1, 2, 2, 0, 2], [4, 4, 4, 4, 4]], np.float32)
    got = ref("route", {"TOPK": 3, "NORM_TOPK": 1}, logits=logits, expert=blank(2, 3, kind=np.int32), share=blank(2, 3))
    assert got["expert"].tolist() == [[1, 2, 4], [0, 1, 2]]
    close(got["share"], np.full((2, 3), 1 / 3))


def np_experts(x, expert, share, gate_up, down):
    out = np.zeros(x.shape, np.float64)
    for t in range(len(x)):
        for e, s in zip(expert[t], share[t]):
            gate, up = np.split(gate_up[e].astype(np.float64) @ x[t], 2)
            out[t] += s.astype(np.float64) * (down[e].astype(np.float64) @ (np_silu(gate) * up))
    return out


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("rows,k,n,experts,active", [(1, 16, 8, 4, 2), (5, 24, 40, 6, 3), (3, 7, 5, 1, 1)])
def test_experts(ref, rows, k, n, experts, active, parts):  # noqa: F811
    g = rng(rows)
    x, gate_up, down = normal(g, rows, k), bf16(normal(g, experts, 2 * n, k)), bf16(normal(g, experts, k, n))
    expert = np.stack([g.permutation(experts)[:active] for _ in range(rows)]).astype(np.int32)
    share = g.random((rows, active), np.float32)
    got = ref("experts", {"TOPK": active}, parts, x=x, expert=expert, share=share, gate_up=gate_up, down=down,
              y=blank(rows, k), dtypes={"gate_up": "bf16", "down": "bf16"})
    close(got["y"], np_experts(x, expert, share, gate_up, down), 1e-6)


@pytest.mark.parametrize("n,block_n,block_k", [(8, 4, 8), (10, 4, 6), (6, 6, 32)])
def test_experts_with_scales(ref, n, block_n, block_k):  # noqa: F811
    """Gate and up have blocks of their own, the last of which may be cut off."""
    g, experts, k = rng(n), 3, 12
    across = lambda a, b: -(-a // b)  # noqa: E731
    x, gate_up, down = normal(g, 2, k), normal(g, experts, 2 * n, k), normal(g, experts, k, n)
    scales = g.random((experts, 2 * across(n, block_n), across(k, block_k)), np.float32) + np.float32(0.5)
    down_scales = g.random((experts, across(k, block_n), across(n, block_k)), np.float32) + np.float32(0.5)
    row, down_row = g.random((experts, 2 * n), np.float32), g.random((experts, k), np.float32)
    expert, share = np.array([[0, 2], [1, 0]], np.int32), np.array([[0.3, 0.7], [0.5, 0.5]], np.float32)

    def spread(s, rows, cols):
        return np.repeat(np.repeat(s, block_n, -2)[..., :rows, :], block_k, -1)[..., :cols]

    halves = np.split(scales, 2, 1)
    real = gate_up * np.concatenate([spread(h, n, k) for h in halves], 1) * row[..., None]
    real_down = down * spread(down_scales, k, n) * down_row[..., None]
    got = ref("experts", {"TOPK": 2, "BLOCK_N": block_n, "BLOCK_K": block_k}, x=x, expert=expert, share=share,
              gate_up=gate_up, gate_up_scale=scales, gate_up_row_scale=row, down=down, down_scale=down_scales,
              down_row_scale=down_row, y=blank(2, k))
    close(got["y"], np_experts(x, expert, share, real, real_down), 1e-6)


def in_pieces(call, lengths, states, **rows):
    """The op called for one piece of the rows after the other, as a prompt is read; states carried on."""
    out, at = [], 0
    for n in lengths:
        piece = {name: a[at:at + n] for name, a in rows.items()}
        got = call(n, states, **piece)
        states = {name: got[name] for name in states}
        out.append(next(v for k, v in got.items() if k not in states))
        at += n
    return np.concatenate(out), states


@pytest.mark.parametrize("lengths", [[9], [1] * 9, [2, 5, 2], [8, 1]])
@pytest.mark.parametrize("taps", [1, 3])
def test_causal_conv(ref, lengths, taps):  # noqa: F811
    """In whatever pieces a prompt comes; other slots and idle rows are left alone."""
    g, cols, slots = rng(taps), 6, 3
    x, w, start = normal(g, 9, cols), bf16(normal(g, cols, 1, taps + 1)), normal(g, slots, taps * cols)

    def call(n, states, x):
        pad = np.concatenate([x, normal(g, 2, cols)])  # one idle by its slot, one by the count
        return ref("causal_conv", {"TAPS": taps}, step=np.array([n + 1, 0, 1, 0], np.int32), x=pad, w=w,
                   row_slot=np.array([1] * n + [-1, 2], np.int32), conv=states["conv"], y=blank(n + 2, cols),
                   dtypes={"w": "bf16"})

    def cut(n, states, x):
        got = call(n, states, x)
        assert not got["y"][n:].any()
        return {"conv": got["conv"], "y": got["y"][:n]}

    y, states = in_pieces(cut, lengths, {"conv": start}, x=x)
    padded = np.concatenate([start[1].reshape(taps, cols), x]).astype(np.float64)
    want = sum(padded[j:j + 9] * w[:, 0, j].astype(np.float64) for j in range(taps + 1))
    close(y, np_silu(want))
    assert np.array_equal(states["conv"][1].reshape(taps, cols), padded[-taps:].astype(np.float32))
    assert np.array_equal(states["conv"][[0, 2]], start[[0, 2]])


def np_delta(q, k, v, g, beta, state):
    """One head by the triangular form: with G the summed logs of decay and A[i,j] = beta_i k_i.k_j e^(G_i - G_j), j < i,
    the changes U solve (1 + A) U = beta (v - e^G k S). Nothing is computed row after row."""
    total = np.cumsum(g)
    decay = np.exp(np.minimum(total[:, None] - total[None, :], 0))
    a = np.tril(beta[:, None] * (k @ k.T) * decay, -1)
    change = np.linalg.solve(np.eye(len(k)) + a, beta[:, None] * (v - np.exp(total)[:, None] * (k @ state)))
    o = np.exp(total)[:, None] * (q @ state) + np.tril(q @ k.T * decay) @ change
    return o, np.exp(total[-1]) * state + (k * np.exp(total[-1] - total)[:, None]).T @ change


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("lengths", [[11], [1] * 11, [3, 7, 1]])
@pytest.mark.parametrize("nk,nv,dk,dv", [(1, 1, 4, 4), (2, 4, 8, 5), (1, 3, 5, 8)])
def test_delta_rule(ref, lengths, nk, nv, dk, dv, parts):  # noqa: F811
    g, rows, slots = rng(nv), 11, 3
    qkv, a, b = normal(g, rows, 2 * nk * dk + nv * dv), 2 * normal(g, rows, nv), 2 * normal(g, rows, nv)
    a[2] = 30  # beyond where softplus is the number itself
    a_log, dt_bias, start = normal(g, nv), normal(g, nv), normal(g, slots, nv * dk * dv)

    def call(n, states, qkv, a, b):
        idle = lambda x: np.concatenate([x, x[:1], x[:1]])  # noqa: E731
        got = ref("delta_rule", {"NK": nk, "NV": nv, "DK": dk, "DV": dv}, parts, qkv=idle(qkv), a=idle(a), b=idle(b),
                  step=np.array([n + 1, 0, 1, 0], np.int32), a_log=a_log, dt_bias=dt_bias, delta=states["delta"],
                  row_slot=np.array([1] * n + [-1, 2], np.int32), o=blank(n + 2, nv * dv))
        assert not got["o"][n:].any()
        return {"delta": got["delta"], "o": got["o"][:n]}

    o, states = in_pieces(call, lengths, {"delta": start}, qkv=qkv, a=a, b=b)
    assert np.array_equal(states["delta"][[0, 2]], start[[0, 2]])
    x = qkv.astype(np.float64)
    q, k = (x[:, i * nk * dk:(i + 1) * nk * dk].reshape(rows, nk, dk) for i in range(2))
    v = x[:, 2 * nk * dk:].reshape(rows, nv, dv)
    q, k = (z / np.sqrt((z * z).sum(-1, keepdims=True) + 1e-6) for z in (q, k))
    for h in range(nv):
        rate = -np.exp(a_log[h].astype(np.float64)) * np.logaddexp(0, (a[:, h] + dt_bias[h].astype(np.float64)))
        want, after = np_delta(q[:, h * nk // nv] * dk ** -0.5, k[:, h * nk // nv], v[:, h], rate, np_sigmoid(b[:, h]),
                               start[1].astype(np.float64).reshape(nv, dk, dv)[h])
        close(o[:, h * dv:(h + 1) * dv], want, 2e-6)
        close(states["delta"][1].reshape(nv, dk, dv)[h], after, 2e-6)


def test_gated_norm(ref):  # noqa: F811
    g = rng()
    x, z, w = normal(g, 4, 15), normal(g, 4, 15), normal(g, 5)
    got = ref("gated_norm", {"HDIM": 5, "EPS": 1e-6}, x=x, z=z, w=w, y=blank(4, 15))
    h = x.astype(np.float64).reshape(4, 3, 5)
    want = (h / np.sqrt((h * h).mean(-1, keepdims=True) + np.float32(1e-6)) * w).reshape(4, 15) * np_silu(z)
    close(got["y"], want)


def test_zero_slots(ref):  # noqa: F811
    state = normal(rng(), 4, 6)
    got = ref("zero_slots", acquire=np.array([0, 1, 0, 1], np.int32), state=state)
    assert not got["state"][[1, 3]].any()
    assert np.array_equal(got["state"][[0, 2]], state[[0, 2]])
