"""Ops of experts and of Gated DeltaNet against numpy in float64, as test_ref_ops.py has it for the others."""

from __future__ import annotations

import numpy as np
import pytest

from test_ref_ops import bf16, blank, close, nearest_bf16, normal, np_silu, ref, rng  # noqa: F401  (ref is a fixture)


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
    got = ref(
        "route",
        {"TOPK": active, "NORM_TOPK": norm},
        logits=logits,
        expert=blank(9, active, kind=np.int32),
        share=blank(9, active),
    )
    p = np.exp(logits.astype(np.float64) - logits.max(-1, keepdims=True))
    p /= p.sum(-1, keepdims=True)
    want = np.argsort(-p, -1, kind="stable")[:, :active]
    assert np.array_equal(got["expert"], want)
    share = np.take_along_axis(p, want, -1)
    close(got["share"], share / (share.sum(-1, keepdims=True) if norm else 1))


def test_scale_shares(ref):  # noqa: F811
    """A factor of the expert, after what the shares add up to."""
    g = rng(5)
    share, w = np.abs(normal(g, 6, 3)), normal(g, 7)
    expert = g.integers(0, 7, (6, 3)).astype(np.int32)
    got = ref("scale_shares", share=share, expert=expert, w=w, y=blank(6, 3))["y"]
    close(got, share.astype(np.float64) * w[expert])


def np_route_sigmoid(logits, bias, active, norm, groups, top, eps, scale):
    """Glm4MoeTopkRouter of transformers, in float64."""
    s = 1 / (1 + np.exp(-logits.astype(np.float64)))
    c = s + bias
    of = c.reshape(len(s), groups, -1)
    sums = np.sort(of, -1)[..., -2:].sum(-1)
    chosen = np.argsort(-sums, -1, kind="stable")[:, :top]
    mask = np.full(sums.shape, -np.inf)
    np.put_along_axis(mask, chosen, 0, -1)
    c = (of + mask[..., None]).reshape(s.shape)
    want = np.argsort(-c, -1, kind="stable")[:, :active]
    share = np.take_along_axis(s, want, -1)
    return want, (share / (share.sum(-1, keepdims=True) + eps) if norm else share) * scale


@pytest.mark.parametrize("norm", [0, 1])
@pytest.mark.parametrize("spread", [0.0, 0.3, 30.0])
@pytest.mark.parametrize(
    ("experts", "active", "groups", "top"), [(1, 1, 1, 1), (8, 3, 4, 2), (128, 8, 1, 1), (160, 8, 8, 4)]
)
def test_route_sigmoid(ref, experts, active, groups, top, spread, norm):  # noqa: F811
    """A bias of any size chooses experts and is no part of their shares, not even where it is far above what a sigmoid
    can be: shares found again by taking the bias away would be none."""
    g = rng(experts)
    logits, bias = 3 * normal(g, 9, experts), (spread * normal(g, experts)).astype(np.float32)
    attrs = {
        "TOPK": active,
        "NORM_TOPK": norm,
        "GROUPS": groups,
        "TOP_GROUPS": top,
        "SHARE_EPS": 1e-20,
        "SHARE_SCALE": 2.5,
    }
    got = ref("route_sigmoid", attrs, logits=logits, bias=bias, expert=blank(9, active, kind=np.int32),
              share=blank(9, active))  # fmt: skip
    want, share = np_route_sigmoid(logits, bias.astype(np.float64), active, norm, groups, top, 1e-20, 2.5)
    assert np.array_equal(got["expert"], want)
    close(got["share"], share)


def test_route_sigmoid_ties(ref):  # noqa: F811
    logits = np.array([[1, 2, 2, 0, 2, 0], [4, 4, 4, 4, 4, 4]], np.float32)
    attrs = {"TOPK": 2, "NORM_TOPK": 1, "GROUPS": 3, "TOP_GROUPS": 1, "SHARE_EPS": 0, "SHARE_SCALE": 1}
    got = ref("route_sigmoid", attrs, logits=logits, bias=None, expert=blank(2, 2, kind=np.int32), share=blank(2, 2))
    assert got["expert"].tolist() == [[1, 0], [0, 1]]


def test_route_ties(ref):  # noqa: F811
    logits = np.array([[1, 2, 2, 0, 2], [4, 4, 4, 4, 4]], np.float32)
    got = ref("route", {"TOPK": 3, "NORM_TOPK": 1}, logits=logits, expert=blank(2, 3, kind=np.int32), share=blank(2, 3))
    assert got["expert"].tolist() == [[1, 2, 4], [0, 1, 2]]
    close(got["share"], np.full((2, 3), 1 / 3))


def np_gelu(x):
    return x / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def np_experts(x, expert, share, gate_up, down, limit=np.inf, act=np_silu):
    out = np.zeros(x.shape, np.float64)
    for t in range(len(x)):
        for e, s in zip(expert[t], share[t]):
            gate, up = np.split(gate_up[e].astype(np.float64) @ x[t], 2)
            h = np.minimum(act(gate), limit) * np.clip(up, -limit, limit)
            out[t] += s.astype(np.float64) * (down[e].astype(np.float64) @ h)
    return out


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("rows,k,n,experts,active", [(1, 16, 8, 4, 2), (5, 24, 40, 6, 3), (3, 7, 5, 1, 1)])
def test_experts(ref, rows, k, n, experts, active, parts):  # noqa: F811
    g = rng(rows)
    x, gate_up, down = normal(g, rows, k), bf16(normal(g, experts, 2 * n, k)), bf16(normal(g, experts, k, n))
    expert = np.stack([g.permutation(experts)[:active] for _ in range(rows)]).astype(np.int32)
    share = g.random((rows, active), np.float32)
    got = ref(
        "experts",
        {"TOPK": active},
        parts,
        x=x,
        expert=expert,
        share=share,
        gate_up=gate_up,
        down=down,
        y=blank(rows, k),
        dtypes={"gate_up": "bf16", "down": "bf16"},
    )
    close(got["y"], np_experts(x, expert, share, gate_up, down), 1e-6)


def test_experts_limited(ref):  # noqa: F811
    """As one op, and in the launches of it: up in the order of experts, then down. A row in no use stays as it is."""
    g, rows, k, n, experts, active = rng(3), 5, 24, 40, 6, 3
    x, gate_up, down = normal(g, rows, k), normal(g, experts, 2 * n, k), normal(g, experts, k, n)
    expert = np.stack([g.permutation(experts)[:active] for _ in range(rows)]).astype(np.int32)
    share = g.random((rows, active), np.float32)
    attrs, step = {"TOPK": active, "GATE_LIMIT": 0.75}, np.array([rows - 1, 0, 0, 0], np.int32)
    got = ref(
        "experts_limited", attrs, 3, x=x, expert=expert, share=share, gate_up=gate_up, down=down, y=blank(rows, k)
    )
    want = np_experts(x, expert, share, gate_up, down, 0.75)
    close(got["y"], want, 1e-6)
    assert np.max(np.abs(want - np_experts(x, expert, share, gate_up, down))) > 0.1
    order = ref("group_rows", attrs, step=step, expert=expert, pair=blank(rows * active, kind=np.int32),
                first=blank(experts + 1, kind=np.int32))  # fmt: skip
    h = ref("experts_up_limited", attrs, 3, n=x, share=share, **order, gate_up=gate_up, h=blank(rows, active * n))["h"]
    y = ref("experts_down_rows", attrs, step=step, h=h, **order, down=down, y=blank(rows, active, k))["y"]
    close(y[:-1].sum(1), want[:-1], 1e-6)
    assert np.all(h[-1] == blank(1))
    as_they_come = ref("experts_up_limited", attrs, 3, step=step, n=x, expert=expert, share=share, gate_up=gate_up,
                       h=blank(rows, active * n))["h"]  # fmt: skip
    assert np.array_equal(as_they_come, h)


def test_experts_gelu(ref):  # noqa: F811
    """As one op, and in the launches of it."""
    g, rows, k, n, experts, active = rng(4), 5, 24, 40, 6, 3
    x, gate_up, down = normal(g, rows, k), normal(g, experts, 2 * n, k), normal(g, experts, k, n)
    expert = np.stack([g.permutation(experts)[:active] for _ in range(rows)]).astype(np.int32)
    share, attrs = g.random((rows, active), np.float32), {"TOPK": active}
    step = np.array([rows, 0, 0, 0], np.int32)
    got = ref("experts_gelu", attrs, 3, x=x, expert=expert, share=share, gate_up=gate_up, down=down, y=blank(rows, k))
    want = np_experts(x, expert, share, gate_up, down, act=np_gelu)
    close(got["y"], want, 1e-6)
    assert np.max(np.abs(want - np_experts(x, expert, share, gate_up, down))) > 0.1
    order = ref("group_rows", attrs, step=step, expert=expert, pair=blank(rows * active, kind=np.int32),
                first=blank(experts + 1, kind=np.int32))  # fmt: skip
    h = ref("experts_up_gelu", attrs, 3, n=x, share=share, **order, gate_up=gate_up, h=blank(rows, active * n))["h"]
    y = ref("experts_down_rows", attrs, step=step, h=h, **order, down=down, y=blank(rows, active, k))["y"]
    close(y.sum(1), want, 1e-6)
    as_they_come = ref("experts_up_gelu", attrs, 3, step=step, n=x, expert=expert, share=share, gate_up=gate_up,
                       h=blank(rows, active * n))["h"]  # fmt: skip
    assert np.array_equal(as_they_come, h)
    z = ref("experts_down", attrs, step=step, h=h, expert=expert, down=down, z=blank(rows, k))["z"]
    close(z, want, 1e-6)


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
    got = ref(
        "experts",
        {"TOPK": 2, "BLOCK_N": block_n, "BLOCK_K": block_k},
        x=x,
        expert=expert,
        share=share,
        gate_up=gate_up,
        gate_up_scale=scales,
        gate_up_row_scale=row,
        down=down,
        down_scale=down_scales,
        down_row_scale=down_row,
        y=blank(2, k),
    )
    close(got["y"], np_experts(x, expert, share, real, real_down), 1e-6)


def in_pieces(call, lengths, states, **rows):
    """The op called for one piece of the rows after the other, as a prompt is read; states carried on."""
    out, at = [], 0
    for n in lengths:
        piece = {name: a[at : at + n] for name, a in rows.items()}
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
        return ref(
            "causal_conv",
            {"TAPS": taps},
            step=np.array([n + 1, 0, 1, 0], np.int32),
            x=pad,
            w=w,
            row_slot=np.array([1] * n + [-1, 2], np.int32),
            conv=states["conv"],
            y=blank(n + 2, cols),
            dtypes={"w": "bf16"},
        )

    def cut(n, states, x):
        got = call(n, states, x)
        assert not got["y"][n:].any()
        return {"conv": got["conv"], "y": got["y"][:n]}

    y, states = in_pieces(cut, lengths, {"conv": start}, x=x)
    padded = np.concatenate([start[1].reshape(taps, cols), x]).astype(np.float64)
    want = sum(padded[j : j + 9] * w[:, 0, j].astype(np.float64) for j in range(taps + 1))
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
        got = ref(
            "delta_rule",
            {"NK": nk, "NV": nv, "DK": dk, "DV": dv},
            parts,
            qkv=idle(qkv),
            a=idle(a),
            b=idle(b),
            step=np.array([n + 1, 0, 1, 0], np.int32),
            a_log=a_log,
            dt_bias=dt_bias,
            delta=states["delta"],
            row_slot=np.array([1] * n + [-1, 2], np.int32),
            o=blank(n + 2, nv * dv),
        )
        assert not got["o"][n:].any()
        return {"delta": got["delta"], "o": got["o"][:n]}

    o, states = in_pieces(call, lengths, {"delta": start}, qkv=qkv, a=a, b=b)
    assert np.array_equal(states["delta"][[0, 2]], start[[0, 2]])
    x = qkv.astype(np.float64)
    q, k = (x[:, i * nk * dk : (i + 1) * nk * dk].reshape(rows, nk, dk) for i in range(2))
    v = x[:, 2 * nk * dk :].reshape(rows, nv, dv)
    q, k = (z / np.sqrt((z * z).sum(-1, keepdims=True) + 1e-6) for z in (q, k))
    for h in range(nv):
        rate = -np.exp(a_log[h].astype(np.float64)) * np.logaddexp(0, (a[:, h] + dt_bias[h].astype(np.float64)))
        want, after = np_delta(
            q[:, h * nk // nv] * dk**-0.5,
            k[:, h * nk // nv],
            v[:, h],
            rate,
            np_sigmoid(b[:, h]),
            start[1].astype(np.float64).reshape(nv, dk, dv)[h],
        )
        close(o[:, h * dv : (h + 1) * dv], want, 2e-6)
        close(states["delta"][1].reshape(nv, dk, dv)[h], after, 2e-6)


@pytest.mark.parametrize("fused", [False, True])
@pytest.mark.parametrize("lengths", [[6], [1] * 6, [4, 2], [1, 5]])
def test_a_state_of_bf16(ref, lengths, fused):  # noqa: F811
    """Rounded behind the last row of its slot in a step; that is all that differs from f32, and rows do not see it. Two
    slots have rows in each step; one stays as it is."""
    g, nk, nv, dk, dv, slots = rng(len(lengths)), 1, 2, 4, 6, 4
    dims, mixed, values = {"NK": nk, "NV": nv, "DK": dk, "DV": dv}, 2 * nk * dk + nv * dv, nv * dv
    fixed = {"a_log": normal(g, nv), "dt_bias": normal(g, nv)}
    states = {"f32": nearest_bf16(normal(g, slots, nv * dk * dv))}
    states["bf16"] = states["f32"].copy()
    start = states["f32"].copy()
    for n in lengths:
        qkv, x = normal(g, 2 * n, mixed), normal(g, 2 * n, mixed + values + 2 * nv)
        rows = dict(step=np.array([2 * n, 0, 2, 0], np.int32), row_slot=np.array([3] * n + [1] * n, np.int32))
        out = {}
        for kind in states:
            if fused:
                seg = np.array([[0, n, 3, 0], [n, n, 1, 0]] + [[0] * 4] * 2, np.int32)
                got = ref(
                    "delta_rows",
                    dims | {"EPS": 1e-6},
                    qkv=qkv,
                    x=x,
                    seg=seg,
                    norm=fixed["a_log"].repeat(3),
                    delta=states["bf16"],
                    y=blank(2 * n, values),
                    state_dtype=kind,
                    **rows,
                    **fixed,
                )
            else:
                got = ref(
                    "delta_rule",
                    dims,
                    qkv=qkv,
                    a=x[:, :nv],
                    b=x[:, nv : 2 * nv],
                    delta=states["bf16"],
                    o=blank(2 * n, values),
                    state_dtype=kind,
                    **rows,
                    **fixed,
                )
            out[kind] = got
        assert np.array_equal(out["bf16"].get("o", 0), out["f32"].get("o", 0))
        assert np.array_equal(out["bf16"].get("y", 0), out["f32"].get("y", 0))
        states["bf16"] = out["bf16"]["delta"]
        assert np.array_equal(states["bf16"], nearest_bf16(out["f32"]["delta"]))
        assert not np.array_equal(states["bf16"], out["f32"]["delta"])
    assert np.array_equal(states["bf16"][[0, 2]], start[[0, 2]])


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


def layer_of_experts(g, rows, shared_width, block=4):
    """Operands of a layer's experts with block scales of all weights; rows choose unevenly, the last is in no use."""
    k, n, experts, active = 12, 8, 5, 3
    across = lambda a, b: -(-a // b)  # noqa: E731
    scale = lambda *shape: g.random(shape, np.float32) + np.float32(0.5)  # noqa: E731
    o = {
        "n": normal(g, rows, k),
        "residual": normal(g, rows, k),
        "step": np.array([rows - 1, 0, 0, 0], np.int32),
        "expert": np.stack([g.permutation(experts)[:active] for _ in range(rows)]).astype(np.int32),
        "share": g.random((rows, active + bool(shared_width)), np.float32),
        "gate_up": normal(g, experts, 2 * n, k),
        "gate_up_scale": scale(experts, 2 * across(n, block), across(k, block)),
        "gate_up_row_scale": scale(experts, 2 * n),
        "down": normal(g, experts, k, n),
        "down_scale": scale(experts, across(k, block), across(n, block)),
        "down_row_scale": scale(experts, k),
    }
    if shared_width:
        o |= {
            "shared": normal(g, 2 * shared_width, k),
            "shared_row_scale": scale(2 * shared_width),
            "shared_scale": scale(2 * across(shared_width, 3), across(k, 5)),
            "shared_down": normal(g, k, shared_width),
            "shared_down_row_scale": scale(k),
            "shared_down_scale": scale(across(k, 3), across(shared_width, 5)),
        }
    return o, {"TOPK": active, "BLOCK_N": block, "BLOCK_K": block, "SHARED_BLOCK_N": 3, "SHARED_BLOCK_K": 5}


def operands(o, words, **more):
    return {name: o[name] for name in words.split() if name in o} | more


@pytest.mark.parametrize("shared_width", [0, 7])
def test_fused_experts_are_the_graph_s(ref, shared_width):  # noqa: F811
    """As they come and put in order: both are experts, the shared one's linears and the sums of these."""
    rows = 6
    o, attrs = layer_of_experts(rng(shared_width), rows, shared_width)
    k, n, active = o["n"].shape[1], o["down"].shape[2], attrs["TOPK"]
    width = active * n + shared_width
    graph = ref(
        "experts",
        attrs,
        **operands(o, "expert gate_up gate_up_scale gate_up_row_scale down down_scale down_row_scale"),
        x=o["n"],
        share=o["share"][:, :active].copy(),
        y=blank(rows, k),
    )["y"]
    want = o["residual"] + graph.astype(np.float64)
    if shared_width:
        block = {"BLOCK_N": 3, "BLOCK_K": 5}
        halves = [
            ref(
                "linear",
                block,
                x=o["n"],
                w=o["shared"][i * shared_width : (i + 1) * shared_width],
                w_scale=np.split(o["shared_scale"], 2)[i],
                w_row_scale=np.split(o["shared_row_scale"], 2)[i],
                y=blank(rows, shared_width),
            )["y"]
            for i in range(2)
        ]
        h = ref("swiglu", gate=halves[0], up=halves[1], y=blank(rows, shared_width))["y"]
        y = ref(
            "linear",
            block,
            x=h,
            w=o["shared_down"],
            w_scale=o["shared_down_scale"],
            w_row_scale=o["shared_down_row_scale"],
            y=blank(rows, k),
        )["y"]
        want += o["share"][:, active:] * y.astype(np.float64)
    up = "step n share gate_up gate_up_scale gate_up_row_scale shared shared_scale shared_row_scale"
    down = "step down down_scale down_row_scale shared_down shared_down_scale shared_down_row_scale"
    h = ref("experts_up", attrs, **operands(o, up + " expert"), h=blank(rows, width))["h"]
    z = ref("experts_down", attrs, **operands(o, down + " expert residual"), h=h, z=blank(rows, k))["z"]
    close(z[:-1], want[:-1], 1e-6)
    assert np.all(h[-1] == blank(1)) and np.all(z[-1] == blank(1)), "a row in no use"
    order = ref(
        "group_rows",
        attrs,
        **operands(o, "step expert"),
        pair=blank(rows * active, kind=np.int32),
        first=blank(6, kind=np.int32),
    )
    sorted_h = ref("experts_up", attrs, 3, **operands(o, up), **order, h=blank(rows, width))["h"]
    assert np.array_equal(sorted_h, h)
    y = ref(
        "experts_down_rows", attrs, 3, **operands(o, down), **order, h=h, y=blank(rows, active + bool(shared_width), k)
    )["y"]
    summed = ref("sum_experts", step=o["step"], y=y, residual=o["residual"], z=blank(rows, k))["z"]
    assert np.array_equal(summed[:-1], z[:-1])
    in_parts = ref("experts_down", attrs, 7, **operands(o, down + " expert residual"), h=h, z=blank(rows, k))["z"]
    assert np.array_equal(in_parts, z)


CLAMPED = {"GATE_SLOPE": 1.702, "GATE_LIMIT": 1.5}


def np_clamped(x, expert, share, w):
    """By the text of gpt-oss: even rows are gates, odd ones what they are multiplied with; all products have biases."""
    out = np.zeros(x.shape, np.float64)
    for t in range(len(x)):
        for e, s in zip(expert[t], share[t]):
            both = w["gate_up"][e].astype(np.float64) @ x[t] + w["gate_up_bias"][e]
            gate, up = np.minimum(both[0::2], 1.5), np.clip(both[1::2], -1.5, 1.5)
            h = (up + 1) * gate / (1 + np.exp(-np.float64(np.float32(1.702)) * gate))
            out[t] += s.astype(np.float64) * (w["down"][e].astype(np.float64) @ h + w["down_bias"][e])
    return out


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize(
    ("rows", "k", "n", "experts", "active"), [(1, 16, 8, 4, 2), (5, 24, 40, 6, 3), (3, 8, 4, 1, 1)]
)
def test_clamped_experts(ref, rows, k, n, experts, active, parts):  # noqa: F811
    """The op, and the launches that it becomes; with blocks of scales, which go on from gate to up."""
    g = rng(rows)
    block_n, block_k = 3, 8
    across = lambda a, b: -(-a // b)  # noqa: E731
    spread = lambda s, r, c: np.repeat(np.repeat(s, block_n, -2)[..., :r, :], block_k, -1)[..., :c]  # noqa: E731
    w = {"gate_up": normal(g, experts, 2 * n, k), "gate_up_bias": normal(g, experts, 2 * n),
         "down": normal(g, experts, k, n), "down_bias": normal(g, experts, k)}  # fmt: skip
    scales = {f"{name}_scale": g.random((experts, across(r, block_n), across(c, block_k)), np.float32) + np.float32(0.5)
              for name, r, c in (("gate_up", 2 * n, k), ("down", k, n))}  # fmt: skip
    real = w | {"gate_up": w["gate_up"] * spread(scales["gate_up_scale"], 2 * n, k),
                "down": w["down"] * spread(scales["down_scale"], k, n)}  # fmt: skip
    x, share = normal(g, rows, k), g.random((rows, active), np.float32)
    expert = np.stack([g.permutation(experts)[:active] for _ in range(rows)]).astype(np.int32)
    attrs = CLAMPED | {"TOPK": active, "BLOCK_N": block_n, "BLOCK_K": block_k}
    want = np_clamped(x, expert, share, real)
    got = ref("experts_clamped", attrs, parts, x=x, expert=expert, share=share, **w, **scales, y=blank(rows, k))["y"]
    close(got, want, 1e-6)
    order = ref("group_rows", attrs, step=np.array([rows, 0, 0, 0], np.int32), expert=expert,
                pair=blank(rows * active, kind=np.int32), first=blank(experts + 1, kind=np.int32))  # fmt: skip
    order = {name: order[name] for name in ("pair", "first")}
    up = {name: a for name, a in (w | scales).items() if name.startswith("gate_up")}
    down = {name: a for name, a in (w | scales).items() if name.startswith("down")}
    h = ref("experts_up_clamped", attrs, parts, n=x, share=share, **order, **up, h=blank(rows, active * n))["h"]
    y = ref("experts_down_biased", attrs, parts, h=h, share=share, **order, **down, y=blank(rows, active, k))["y"]
    close(y.astype(np.float64).sum(1), want, 1e-6)
    step, residual = np.array([rows, 0, 0, 0], np.int32), normal(g, rows, k)
    as_they_come = ref("experts_up_clamped", attrs, parts, step=step, n=x, expert=expert, share=share, **up,
                       h=blank(rows, active * n))["h"]  # fmt: skip
    assert np.array_equal(as_they_come, h)
    z = ref("experts_down", attrs, parts, step=step, h=h, expert=expert, share=share, **down, residual=residual,
            z=blank(rows, k))["z"]  # fmt: skip
    close(z, want + residual, 1e-6)


def test_clamps_of_experts_keep_what_is_no_number(ref):  # noqa: F811
    """As torch.clamp does: a fault in the weights must not look like a large activation."""
    k, n = 8, 4
    bias = np.zeros((1, 2 * n), np.float32)
    bias[0, 2], bias[0, 5] = np.nan, np.nan  # the gate of column 1, what the gate of column 2 is multiplied with
    first, step = np.zeros((1, 1), np.int32), np.array([1, 0, 0, 0], np.int32)
    attrs = CLAMPED | {"TOPK": 1, "BLOCK_N": 3, "BLOCK_K": 8}
    h = ref("experts_up_clamped", attrs, step=step, n=normal(rng(), 1, k), expert=first, share=np.ones((1, 1), np.float32),
            gate_up=normal(rng(), 1, 2 * n, k), gate_up_bias=bias, h=blank(1, n))["h"]  # fmt: skip
    assert np.array_equal(np.isnan(h), [[False, True, True, False]])


def test_group_rows(ref):  # noqa: F811
    expert = np.array([[4, 0], [0, 4], [2, 0], [1, 3]], np.int32)
    got = ref(
        "group_rows",
        {"TOPK": 2},
        step=np.array([3, 0, 0, 0], np.int32),
        expert=expert,
        pair=blank(8, kind=np.int32),
        first=blank(6, kind=np.int32),
    )
    assert got["pair"].tolist() == [1, 2, 5, 4, 0, 3, -1, -1]
    assert got["first"].tolist() == [0, 3, 3, 4, 4, 6]


@pytest.mark.parametrize("has_shared, has_bias", [(False, False), (True, False), (False, True)])
def test_norm_route(ref, has_shared, has_bias):  # noqa: F811
    """What the graph's ops leave, one after the other, and the share of the expert that all rows go to."""
    g, rows, k, experts, active = rng(), 5, 16, 7, 3
    attrs = {"EPS": 1e-6, "NORM_ONE": 1, "TOPK": active, "NORM_TOPK": 1}
    x, norm, router, gate = normal(g, rows, k), normal(g, k), normal(g, experts, k), normal(g, 1, k)
    bias = normal(g, experts) if has_bias else None
    got = ref(
        "norm_route",
        attrs,
        step=np.array([rows, 0, 0, 0], np.int32),
        x=x,
        norm=norm,
        router=router,
        router_bias=bias,
        shared_gate=gate if has_shared else None,
        routed=np.zeros(rows, np.int32),
        n=blank(rows, k),
        logits=blank(rows, experts),
        expert=blank(rows, active, kind=np.int32),
        share=blank(rows, active + has_shared),
    )
    n = ref("rmsnorm", attrs, x=x, w=norm, y=blank(rows, k))["y"]
    logits = ref("linear", x=n, w=router, bias=bias, y=blank(rows, experts))["y"]
    route = ref("route", attrs, logits=logits, expert=blank(rows, active, kind=np.int32), share=blank(rows, active))
    assert np.array_equal(got["n"], n) and np.array_equal(got["logits"], logits)
    assert np.array_equal(got["expert"], route["expert"]) and np.array_equal(got["share"][:, :active], route["share"])
    assert np.all(got["routed"] == 0)
    if has_shared:
        close(got["share"][:, active:], np_sigmoid(n.astype(np.float64) @ gate[0].astype(np.float64))[:, None], 1e-6)


@pytest.mark.parametrize("has_shared", [False, True])
def test_norm_route_sigmoid(ref, has_shared):  # noqa: F811
    """As published: the share of the expert that all rows go to is 1 for each of them."""
    g, rows, k, experts, active = rng(8), 5, 16, 8, 3
    attrs = {"EPS": 1e-6, "TOPK": active, "NORM_TOPK": 1, "GROUPS": 2, "TOP_GROUPS": 1, "SHARE_EPS": 1e-20,
             "SHARE_SCALE": 2.5}  # fmt: skip
    x, norm, router, bias = normal(g, rows, k), normal(g, k), normal(g, experts, k), normal(g, experts)
    got = ref("norm_route_sigmoid", attrs, step=np.array([rows, 0, 0, 0], np.int32), x=x, norm=norm, router=router,
              bias=bias, routed=np.zeros(rows, np.int32), n=blank(rows, k), logits=blank(rows, experts),
              expert=blank(rows, active, kind=np.int32), share=blank(rows, active + has_shared))  # fmt: skip
    n = x.astype(np.float64) / np.sqrt(np.mean(x.astype(np.float64) ** 2, 1, keepdims=True) + 1e-6) * norm
    close(got["n"], n, 1e-6)
    close(got["logits"], n @ router.T.astype(np.float64), 1e-6)
    want, share = np_route_sigmoid(got["logits"], bias.astype(np.float64), active, 1, 2, 1, 1e-20, 2.5)
    assert np.array_equal(got["expert"], want)
    close(got["share"][:, :active], share, 1e-6)
    assert np.all(got["share"][:, active:] == 1)


def test_norm_route_scaled(ref):  # noqa: F811
    """Logits times a factor, and shares times what their expert has."""
    g, rows, k, experts, active = rng(9), 5, 16, 8, 3
    attrs = {"EPS": 1e-6, "TOPK": active, "NORM_TOPK": 1, "FACTOR": 0.25}
    x, norm, router, by = normal(g, rows, k), normal(g, k), normal(g, experts, k), normal(g, experts)
    got = ref("norm_route_scaled", attrs, step=np.array([rows, 0, 0, 0], np.int32), x=x, norm=norm, router=router,
              by=by, routed=np.zeros(rows, np.int32), logits=blank(rows, experts),
              expert=blank(rows, active, kind=np.int32), share=blank(rows, active))  # fmt: skip
    n = x.astype(np.float64) / np.sqrt(np.mean(x.astype(np.float64) ** 2, 1, keepdims=True) + 1e-6) * norm
    logits = n @ router.T.astype(np.float64) / 4
    close(got["logits"], logits, 1e-6)
    order = np.argsort(-logits, axis=1)[:, :active]
    assert np.array_equal(got["expert"], order)
    weight = np.exp(np.take_along_axis(logits, order, 1))
    close(got["share"], weight / weight.sum(1, keepdims=True) * by[order], 1e-6)


@pytest.mark.parametrize("has_factor", [False, True])
def test_norm_residual(ref, has_factor):  # noqa: F811
    g, rows, k = rng(10), 4, 24
    x, norm, residual, factor = normal(g, rows, k), normal(g, k), normal(g, rows, k), np.array([0.5], np.float32)
    got = ref("norm_residual", {"EPS": 1e-6, "NORM_ONE": 1}, step=np.array([rows, 0, 0, 0], np.int32), x=x, norm=norm,
              residual=residual, factor=factor if has_factor else None, z=blank(rows, k))  # fmt: skip
    n = x.astype(np.float64) / np.sqrt(np.mean(x.astype(np.float64) ** 2, 1, keepdims=True) + 1e-6) * (1.0 + norm)
    close(got["z"], (residual + n) * (0.5 if has_factor else 1), 1e-6)


def test_norm_geglu(ref):  # noqa: F811
    g, rows, k, n = rng(11), 4, 24, 10
    x, norm, gate, up = normal(g, rows, k), normal(g, k), normal(g, n, k), normal(g, n, k)
    got = ref("norm_geglu", {"EPS": 1e-6}, step=np.array([rows, 0, 0, 0], np.int32), x=x, norm=norm, gate=gate, up=up,
              y=blank(rows, n))  # fmt: skip
    y = x.astype(np.float64) / np.sqrt(np.mean(x.astype(np.float64) ** 2, 1, keepdims=True) + 1e-6) * norm
    close(got["y"], np_gelu(y @ gate.T) * (y @ up.T), 1e-5)


def test_gate_rows(ref):  # noqa: F811
    g = rng()
    x, gates = normal(g, 5, 12), normal(g, 5, 30)
    got = ref("gate_rows", step=np.array([4, 0, 0, 0], np.int32), x=x, gates=gates, y=blank(5, 12))
    close(got["y"], x * np_sigmoid(gates[:, 18:]))


@pytest.mark.parametrize("apart", [False, True])
def test_fused_delta_layers(ref, apart):  # noqa: F811
    """delta_step, and conv_rows with delta_rows, are their graph ops on columns of joined tensors."""
    g, nk, nv, dk, dv, taps, slots = rng(), 2, 4, 8, 6, 3, 3
    mixed, values = 2 * nk * dk + nv * dv, nv * dv
    dims = {"NK": nk, "NV": nv, "DK": dk, "DV": dv, "EPS": 1e-6}
    x, ba = normal(g, 5, mixed + values + (0 if apart else 2 * nv)), normal(g, 5, 2 * nv)
    b, a = np.split(ba if apart else x[:, mixed + values :], 2, 1)
    w, norm, a_log, dt_bias = bf16(normal(g, mixed, 1, taps + 1)), normal(g, dv), normal(g, nv), normal(g, nv)
    slot, step = np.array([2, 0, -1, 1, 0], np.int32), np.array([4, 0, 3, 0], np.int32)
    start = {"conv": normal(g, slots, taps * mixed), "delta": normal(g, slots, nv * dk * dv)}

    turned = ref(
        "causal_conv",
        {"TAPS": taps},
        step=step,
        x=x[:, :mixed],
        w=w,
        row_slot=slot,
        conv=start["conv"],
        y=blank(5, mixed),
        dtypes={"w": "bf16"},
    )
    rule = ref(
        "delta_rule",
        {k: v for k, v in dims.items() if k != "EPS"},
        step=step,
        qkv=turned["y"],
        a=a,
        b=b,
        a_log=a_log,
        dt_bias=dt_bias,
        row_slot=slot,
        delta=start["delta"],
        o=blank(5, values),
    )
    want = ref(
        "gated_norm", {"HDIM": dv, "EPS": 1e-6}, x=rule["o"], z=x[:, mixed : mixed + values], w=norm, y=blank(5, values)
    )["y"]

    shared = dict(step=step, x=x, ba=ba if apart else None, a_log=a_log, dt_bias=dt_bias, norm=norm, row_slot=slot)
    one = ref(
        "delta_step",
        dims | {"TAPS": taps},
        conv_w=w,
        **shared,
        **start,
        readers=np.zeros((5, nk), np.int32),
        y=blank(5, values),
        dtypes={"conv_w": "bf16"},
    )
    assert np.array_equal(one["y"], want) and not one["readers"].any()
    assert np.array_equal(one["conv"], turned["conv"]) and np.array_equal(one["delta"], rule["delta"])

    seg = np.array([[0, 1, 2, 0], [1, 1, 0, 0], [3, 1, 1, 0]], np.int32)
    conv = ref(
        "conv_rows",
        {"TAPS": taps},
        step=step,
        x=x,
        conv_w=w,
        row_slot=slot,
        seg=seg,
        conv=start["conv"],
        y=blank(5, mixed),
        dtypes={"conv_w": "bf16"},
    )
    assert all(np.array_equal(conv[k], turned[k]) for k in ("conv", "y"))
    rows = ref("delta_rows", dims, qkv=conv["y"], seg=seg, delta=start["delta"], y=blank(5, values), **shared)
    assert np.array_equal(rows["y"], want) and np.array_equal(rows["delta"], rule["delta"])


@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("apart", [True, False])
@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_chunks_solved_apart(ref, apart, kind, parts):  # noqa: F811
    """delta_solve is the triangular form in numpy; delta_walk of what it leaves is delta_rows, row after row."""
    g, nk, nv, dk, dv, slots, lengths = rng(parts), 1, 2, 8, 6, 4, [1, 130, 64, 63]
    mixed, values, rows = 2 * nk * dk + nv * dv, nv * dv, sum(lengths) + 2
    dims = {"NK": nk, "NV": nv, "DK": dk, "DV": dv}
    qkv, x, ba = normal(g, rows, mixed), normal(g, rows, mixed + values + 2 * nv * (not apart)), normal(g, rows, 2 * nv)
    a_log, dt_bias, norm, start = (
        normal(g, nv),
        normal(g, nv),
        normal(g, dv),
        nearest_bf16(normal(g, slots, nv * dk * dv)),
    )
    firsts = np.cumsum([0] + lengths[:-1])
    seg = np.array([[t, n, 3 - s, 0] for s, (t, n) in enumerate(zip(firsts, lengths))], np.int32)
    slot = np.concatenate([np.repeat(seg[:, 2], lengths), [-1, -1]]).astype(np.int32)
    step = np.array([rows - 2, 0, 4, 0], np.int32)
    heads = dict(step=step, qkv=qkv, x=x, seg=seg)
    rule = dict(ba=ba if apart else None, a_log=a_log, dt_bias=dt_bias)
    solved = {"solved": blank(rows, nv * 64), "scores": blank(rows, nv * 64), "factors": blank(rows, nv * 4)}
    got = ref("delta_solve", dims, parts, **heads, **rule, **solved)
    b, a = (z.astype(np.float64) for z in np.split(ba if apart else x[:, mixed + values :], 2, 1))
    lengths_of = lambda z: np.sqrt((z * z).sum(-1, keepdims=True) + 1e-6)  # noqa: E731
    for t, n in [(t + i, min(64, n - i)) for t, n in zip(firsts, lengths) for i in range(0, n, 64)]:
        q, k = (qkv[t : t + n, i * dk : (i + 1) * dk].astype(np.float64) for i in range(2))
        q_length, k_length = lengths_of(q) * dk**0.5, lengths_of(k)
        for h in range(nv):
            beta = np_sigmoid(b[t : t + n, h])[:, None]
            total = np.cumsum(-np.exp(a_log[h].astype(np.float64)) * np.logaddexp(0, a[t : t + n, h] + dt_bias[h]))[
                :, None
            ]
            decay = np.tril(np.exp(np.minimum(total - total.T, 0)))
            unit = k / k_length
            inverse = np.linalg.inv(np.eye(n) + np.tril(beta * (unit @ unit.T) * decay, -1)) * beta.T
            close(got["solved"][t : t + n, h * 64 : h * 64 + n], inverse, 1e-6)
            close(got["scores"][t : t + n, h * 64 : h * 64 + n], (q / q_length) @ unit.T * decay, 1e-6)
            assert not got["solved"][t : t + n, h * 64 + n : (h + 1) * 64].any()
            factors = np.concatenate([np.exp(total) / k_length, np.exp(total) / q_length, 1 / k_length, total], 1)
            close(got["factors"][t : t + n, h * 4 : h * 4 + 4], factors, 1e-6)
    rest = dict(norm=norm, row_slot=slot, delta=start, y=blank(rows, values), state_dtype=kind)
    want = ref("delta_rows", dims | {"EPS": 1e-6}, parts, **heads, **rule, **rest)
    made = {name: got[name] for name in solved}
    walked = ref("delta_walk", dims | {"EPS": 1e-6}, parts, **heads, **made, **rest)
    close(walked["y"][: rows - 2], want["y"][: rows - 2], 2e-2 if kind == "bf16" else 1e-5)
    close(walked["delta"], want["delta"], 1e-2 if kind == "bf16" else 1e-5)
    assert np.array_equal(walked["delta"][[0]], nearest_bf16(walked["delta"][[0]])) or kind == "f32"
