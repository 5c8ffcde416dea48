"""Every reference op against numpy formulas in float64, written from artifacts/ops.h alone.

The ops run in build/tests/ref_run (ref_run.c). Nothing here calls our own code to say what is right.
"""

from __future__ import annotations

import pathlib
import re
import subprocess

import numpy as np
import pytest

from drawing import gumbel, kept_by, philox

REPO = pathlib.Path(__file__).resolve().parents[2]


def op_rows():
    """op -> [(role, operand)], read from the table itself, so that a changed row is noticed here."""
    command = ["cc", "-E", "-P", "-I", REPO, "-x", "c", REPO / "artifacts/ops.h"]
    text = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rows = {}
    for name, body in re.findall(r"\bOP\((\w+),(.*?)\)\n(?=OP\(|\s|$)", text, flags=re.S):
        rows[name] = re.findall(r"\b(IN|IN_OPT|INOUT|INOUT_OPT|OUT)\(\w+, (\w+),", body)
    return rows


ROWS = op_rows()


def bf16(x):
    """float32 -> bf16 values by truncation, kept as float32."""
    return (np.asarray(x, np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


def test_relu_squared(ref):
    x = np.array([[-2, -0.0, 0.5, 3, np.inf, -np.inf, np.nan, 1e-30]], np.float32)
    got = ref("relu_squared", x=x, y=blank(1, 8))["y"]
    assert np.array_equal(got, [[0, 0, 0.25, 9, np.inf, 0, np.nan, 0]], equal_nan=True)


def test_scale_rows(ref):
    x, share = normal(rng(), 3, 8), normal(rng(2), 3, 1)
    assert np.array_equal(ref("scale_rows", x=x, share=share, y=blank(3, 8))["y"], x * share)


def nearest_bf16(x):
    """The same to nearest, ties to even."""
    mantissa, exponent = np.frexp(np.asarray(x, np.float32))
    return np.ldexp(np.rint(np.ldexp(mantissa, 8)), exponent - 8).astype(np.float32)


def encode(a, dtype):
    if dtype == "bf16":
        return (np.ascontiguousarray(a, np.float32).view(np.uint32) >> 16).astype(np.uint16).tobytes()
    return np.ascontiguousarray(a, {"f32": np.float32, "f16": np.float16, "i32": np.int32}[dtype]).tobytes()


@pytest.fixture(scope="session")
def ref(build_dir):
    program = build_dir / "tests" / "ref_run"

    def call(op, attrs=(), parts=1, dtypes=(), state_dtype="f32", models=(), ranks=0, **operands):
        """Runs the op; operands by name (None or left out = absent). Returns {name: array} of what it may write. state_dtype:
        what delta stands for; models: operands that stand for bf16."""
        dtypes = dict(dtypes)
        head, data, back = [f"op {op} {parts}"], b"", []
        head += [f"attr {k} {float(v)!r}" for k, v in dict(attrs).items()]
        for role, name in ROWS[op]:
            a = operands.pop(name, None)
            if a is None:
                head.append("arg -")
                continue
            a = np.asarray(a)
            dtype = dtypes.get(name, "i32" if a.dtype.kind in "iu" else "f32")
            head.append(f"arg {dtype} " + " ".join(map(str, a.shape)))
            data += encode(a, dtype)
            if role in ("INOUT", "INOUT_OPT", "OUT"):
                back.append((name, a.shape, np.int32 if dtype == "i32" else np.float32))
        assert not operands, f"{op} has no operand {list(operands)}"
        head += [f"models {name}" for name in [*models, *(["delta"] if state_dtype != "f32" else [])]]
        head += [f"ranks {ranks}"] if ranks else []
        run = subprocess.run(
            [program], input="\n".join(head + ["end", ""]).encode() + data, capture_output=True, timeout=60
        )
        assert run.returncode == 0, run.stderr.decode()
        out, at = {}, 0
        for name, shape, kind in back:
            n = int(np.prod(shape)) * 4
            out[name] = np.frombuffer(run.stdout[at : at + n], kind).reshape(shape).copy()
            at += n
        assert at == len(run.stdout)
        return out

    return call


def rng(seed=1):
    return np.random.default_rng(seed)


def normal(g, *shape):
    return g.standard_normal(shape).astype(np.float32)


def blank(*shape, kind=np.float32):
    """What an output holds before: a value no formula gives."""
    return np.full(shape, 12345 if kind == np.int32 else np.float32(-7e7), kind)


def close(a, b, tol=2e-7):
    a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
    assert np.all(np.isfinite(a))
    assert np.max(np.abs(a - b), initial=0) <= tol * max(np.max(np.abs(b), initial=0), 1e-30)


# Formulas ---------------------------------------------------------------------------------------


def np_rmsnorm(x, w, eps, one=0):
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, -1, keepdims=True) + np.float32(eps)) * (w.astype(np.float64) + one)


def np_rope(x, pos, inv_freq, hdim, factor=1.0, neighbours=False):
    """Half-split rotation as a complex product; or of neighbours."""
    rows = x.shape[0]
    half = len(inv_freq)
    h = x.astype(np.float64).reshape(rows, -1, hdim)
    angle = (np.asarray(pos, np.float32)[:, None] * np.asarray(inv_freq, np.float32)).astype(np.float64)
    turn = (np.exp(1j * angle) * np.float32(factor))[:, None, :]
    if neighbours:
        z = (h[..., 0 : 2 * half : 2] + 1j * h[..., 1 : 2 * half : 2]) * turn
        turned = np.stack([z.real, z.imag], -1).reshape(*z.shape[:-1], 2 * half)
        return np.concatenate([turned, h[..., 2 * half :]], -1).reshape(rows, -1)
    z = (h[..., :half] + 1j * h[..., half : 2 * half]) * turn
    return np.concatenate([z.real, z.imag, h[..., 2 * half :]], -1).reshape(rows, -1)


def np_hadamard(hdim):
    """The matrix that rotates a head: of each power of two in its size, the largest first, over the root of that."""
    whole, at = np.zeros((hdim, hdim)), 0
    for n in (2**i for i in reversed(range(hdim.bit_length())) if hdim >> i & 1):
        ones = np.array([[bin(d & i).count("1") for i in range(n)] for d in range(n)])
        whole[at : at + n, at : at + n] = (-1.0) ** ones / np.sqrt(n)
        at += n
    return whole


def np_silu(x):
    x = x.astype(np.float64)
    return x * 0.5 * (1 + np.tanh(x / 2))


class Paged:
    """A pool of pages in random order with two or more slots, and the same keys and values unpaged."""

    def __init__(self, g, slots, nkv, page, hdim, max_pages):
        self.table = g.permutation(slots * max_pages + 3)[: slots * max_pages].reshape(slots, max_pages)
        self.table = self.table.astype(np.int32)
        self.kv = normal(g, slots * max_pages + 3, 2, nkv, page, hdim)
        self.page = page

    def rows(self, slot, n):
        """[2, n, nkv, hdim]: keys and values of positions 0..n-1."""
        pages = self.kv[self.table[slot]]  # [max_pages, 2, nkv, page, hdim]
        flat = pages.transpose(1, 0, 3, 2, 4).reshape(2, -1, pages.shape[2], pages.shape[4])
        return flat[:, :n].astype(np.float64)


def seen(window):
    return {"WINDOW": abs(window), "CHUNKED": int(window < 0)}


def np_attention(q, paged, slot, pos, nh, nkv, scale, window=0, sinks=None):
    """window: what a row sees, 0 = all, below 0 = its own of chunks of that many."""
    k, v = paged.rows(slot, pos + 1)
    first = pos - pos % -window if window < 0 else -window
    k, v = k[first:], v[first:]
    q = q.astype(np.float64).reshape(nh, -1)
    k, v = np.repeat(k, nh // nkv, 1), np.repeat(v, nh // nkv, 1)
    s = np.einsum("hd,phd->hp", q, k) * np.float64(np.float32(scale))
    if sinks is not None:  # scores of a position without a value
        s, v = np.concatenate([s, sinks[:, None]], 1), np.concatenate([v, np.zeros_like(v[:1])])
    p = np.exp(s - s.max(-1, keepdims=True))
    return np.einsum("hp,phd->hd", p / p.sum(-1, keepdims=True), v)


# Rows ----------------------------------------------------------------------------------------------


def test_every_op_has_a_test():
    texts = [path.read_text() for path in pathlib.Path(__file__).parent.glob("test_*.py")]
    tested = set(re.findall(r'ref\(\s*"(\w+)"', "".join(texts)))
    assert len(ROWS) >= 20
    assert set(ROWS) <= tested


@pytest.mark.parametrize("dtype", ["f32", "bf16", "f16"])
def test_embed(ref, dtype):
    g = rng()
    table = bf16(normal(g, 11, 13)) if dtype != "f16" else normal(g, 11, 13).astype(np.float16).astype(np.float32)
    token = np.array([10, 0, 3, 3], np.int32)
    got = ref("embed", row_token=token, table=table, x=blank(4, 13), dtypes={"table": dtype})
    assert np.array_equal(got["x"], table[token])


def test_f16_special_values(ref):
    """Every f16 bit pattern that is a number, subnormals and infinities included, is read exactly."""
    bits = np.arange(65536, dtype=np.uint16).view(np.float16)
    table = bits[~np.isnan(bits)].reshape(-1, 2)
    token = np.arange(len(table), dtype=np.int32)
    got = ref("embed", row_token=token, table=table, x=blank(len(table), 2), dtypes={"table": "f16"})
    assert np.array_equal(got["x"], table.astype(np.float32))


@pytest.mark.parametrize("cols", [1, 7, 8, 64, 577])
@pytest.mark.parametrize("one", [0, 1])
def test_rmsnorm(ref, cols, one):
    g = rng(cols)
    x, w = normal(g, 3, cols) * 5, bf16(normal(g, cols))
    x[1] = 0
    got = ref("rmsnorm", {"EPS": 1e-5, "NORM_ONE": one}, x=x, w=w, y=blank(3, cols), dtypes={"w": "bf16"})
    close(got["y"], np_rmsnorm(x, w, 1e-5, one))


@pytest.mark.parametrize("rows,k,n", [(1, 1, 1), (2, 7, 3), (17, 513, 5), (40, 1024, 9)])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize("bias", [False, True])
def test_linear(ref, rows, k, n, dtype, bias):
    g = rng(rows)
    x, w, b = normal(g, rows, k), bf16(normal(g, n, k)), bf16(normal(g, n)) if bias else None
    got = ref("linear", x=x, w=w, bias=b, y=blank(rows, n), dtypes={"w": dtype, "bias": dtype})
    close(got["y"], x.astype(np.float64) @ w.astype(np.float64).T + (b if bias else 0))


@pytest.mark.parametrize("parts", [2, 3, 7])
def test_parts_give_the_same_bits(ref, parts):
    g = rng(parts)
    x, w = normal(g, 5, 100), normal(g, 6, 100)
    whole = ref("linear", x=x, w=w, y=blank(5, 6))["y"]
    assert np.array_equal(whole, ref("linear", parts=parts, x=x, w=w, y=blank(5, 6))["y"])
    one_row = ref("linear", x=x[3:4], w=w, y=blank(1, 6))["y"]
    assert np.array_equal(whole[3:4], one_row)  # nor does a row depend on its neighbours


def test_head_norm(ref):
    g = rng()
    x, w = normal(g, 4, 3 * 16), normal(g, 16)
    got = ref("head_norm", {"HDIM": 16, "EPS": 1e-6, "NORM_ONE": 0}, x=x, w=w, y=blank(4, 48))
    close(got["y"], np_rmsnorm(x.reshape(4, 3, 16), w, 1e-6).reshape(4, 48))


@pytest.mark.parametrize("rotary", [16, 8])
@pytest.mark.parametrize("factor", [1.0, 1.3])
@pytest.mark.parametrize("neighbours", [False, True])
def test_rope(ref, rotary, factor, neighbours):
    g = rng()
    x, freq = normal(g, 5, 2 * 16), (10000.0 ** (-np.arange(rotary // 2) / (rotary // 2))).astype(np.float32)
    pos = np.array([0, 1, 77, 4095, 1000003], np.int32)
    got = ref(
        "rope",
        {"HDIM": 16, "ROTARY": rotary, "ROPE_FACTOR": factor, "NEIGHBOURS": int(neighbours)},
        x=x,
        inv_freq=freq,
        row_pos=pos,
        y=blank(5, 32),
    )
    close(got["y"], np_rope(x, pos, freq, 16, factor, neighbours))
    assert np.array_equal(got["y"][0], x[0]) or factor != 1


@pytest.mark.parametrize(
    ("hdim", "rotary"), [(16, 16), (32, 8), (64, 64), (72, 72), (80, 80), (96, 24), (128, 128), (256, 64)]
)
def test_rotated_rope(ref, hdim, rotary):
    """Products of two heads stay as they are."""
    g, h = rng(), np_hadamard(hdim)
    x, freq = normal(g, 5, 3 * hdim), (10000.0 ** (-np.arange(rotary // 2) / (rotary // 2))).astype(np.float32)
    operands = dict(x=x, inv_freq=freq, row_pos=np.array([0, 1, 77, 4095, 9], np.int32), y=blank(5, 3 * hdim))
    plain, got = (
        ref("rope", {"HDIM": hdim, "ROTARY": rotary, "ROTATE": i, "ROPE_FACTOR": 1.1}, **operands)["y"].reshape(
            5, 3, hdim
        )
        for i in (0, 1)
    )
    assert np.allclose(h @ h.T, np.eye(hdim), atol=1e-12) and np.array_equal(h, h.T)
    close(got, plain.astype(np.float64) @ h, 3e-7)
    close(
        np.sum(got[:, 0].astype(np.float64) * got[:, 1], -1),
        np.sum(plain[:, 0].astype(np.float64) * plain[:, 1], -1),
        1e-6,
    )


def test_add_swiglu(ref):
    g = rng()
    x, y = normal(g, 3, 50) * 10, normal(g, 3, 50)
    assert np.array_equal(ref("add", x=x, y=y, z=blank(3, 50))["z"], x + y)
    close(ref("swiglu", gate=x, up=y, y=blank(3, 50))["y"], np_silu(x) * y)
    big = np.array([[-200.0, 200.0, 0.0]], np.float32)
    got = ref("swiglu", gate=big, up=np.ones_like(big), y=blank(1, 3))["y"]
    assert np.allclose(got, [[0, 200, 0]])


def test_swiglu_limited(ref):
    """The gate is limited after silu, above alone, and what it multiplies on both sides; a NaN stays one."""
    gate = np.array([[6.0, 6.0, -9.0, 0.5, np.nan, 1.0]], np.float32)
    up = np.array([[-9.0, 0.5, 9.0, 9.0, 1.0, np.nan]], np.float32)
    got = ref("swiglu_limited", {"GATE_LIMIT": 2.0}, gate=gate, up=up, y=blank(1, 6))["y"]
    silu = np_silu(gate.astype(np.float64))
    close(got[:, :4], np.array([[-4.0, 1.0, silu[0, 2] * 2, silu[0, 3] * 2]]))
    assert np.isnan(got[:, 4:]).all()


def test_geglu(ref):
    """The tanh form: that with erf differs by 5e-4."""
    g = rng()
    x, up = normal(g, 3, 50) * 4, normal(g, 3, 50)
    z = x.astype(np.float64)
    want = z / 2 * (1 + np.tanh(np.sqrt(2 / np.pi) * (z + 0.044715 * z**3))) * up
    close(ref("geglu", gate=x, up=up, y=blank(3, 50))["y"], want)


def test_scale(ref):
    x = normal(rng(), 3, 50)
    for factor in (0.5, 73.5):
        close(ref("scale", {"FACTOR": factor}, x=x, y=blank(3, 50))["y"], factor * x.astype(np.float64))


@pytest.mark.parametrize("ranks", [1, 2, 4, 8])
def test_sum_ranks(ref, ranks):
    """In the order of ranks and in f32, so in no other; the bias once."""
    g = rng()
    part, bias = normal(g, ranks, 3, 20) * 100, normal(g, 20)
    want = part[0].copy()
    for r in range(1, ranks):
        want += part[r]
    assert np.array_equal(ref("sum_ranks", ranks=ranks, part=part, z=blank(3, 20))["z"], want)
    assert np.array_equal(ref("sum_ranks", ranks=ranks, part=part, bias=bias, z=blank(3, 20))["z"], want + bias)


@pytest.mark.parametrize("ranks", [1, 2, 4])
def test_gather_ranks(ref, ranks):
    part = normal(rng(), ranks, 3, 5)
    got = ref("gather_ranks", {"RANKS": ranks}, ranks=ranks, part=part, z=blank(3, 5 * ranks))["z"]
    assert np.array_equal(got, np.concatenate(list(part), axis=1))


def test_peers_of_a_rank_alone(ref):
    """The launches that exchange parts, where no other rank is: the arena stays as it is."""
    g = rng()
    part, bias, residual = normal(g, 3, 8), normal(g, 8), normal(g, 3, 8)
    step, peers = np.array([3, 3, 0, 0], np.int32), np.zeros(64, np.int32)
    got = ref("sum_peers", step=step, part=part, bias=bias, residual=residual, peers=peers, z=blank(3, 8))
    assert np.array_equal(got["z"], part + bias + residual) and not got["peers"].any()
    got = ref("gather_peers", {"RANKS": 2}, step=step, part=part, peers=peers, z=blank(3, 16))
    assert np.array_equal(got["z"], np.concatenate([part, part], 1)) and not got["peers"].any()


def test_own_experts(ref):
    expert = np.array([[0, 7, 3], [2, 4, 5]], np.int32)
    owned = [
        ref("own_experts", {"OWN": 2}, rank=np.array([r], np.int32), expert=expert, own=blank(2, 3, kind=np.int32))[
            "own"
        ]
        for r in range(4)
    ]
    assert np.array_equal(owned[0], [[0, -1, -1], [-1, -1, -1]]) and np.array_equal(owned[2], [[-1] * 3, [-1, 0, 1]])
    assert np.array_equal(sum(np.where(o < 0, 0, o + 2 * r) for r, o in enumerate(owned)), expert)


def test_whole_experts_of_a_rank(ref):
    """Pairs of other ranks are in no order, and what lies at their terms is not read."""
    expert = np.array([[1, -1], [-1, 0], [-1, -1], [0, 1]], np.int32)
    step = np.array([3, 3, 0, 0], np.int32)
    got = ref("group_own", {"TOPK": 2}, step=step, expert=expert, pair=blank(8, kind=np.int32),
              first=blank(3, kind=np.int32))  # fmt: skip
    assert got["pair"].tolist() == [3, 0, -1, -1, -1, -1, -1, -1] and got["first"].tolist() == [0, 1, 2]
    y = normal(rng(), 4, 2, 8)
    y[expert < 0] = np.nan
    z = ref("sum_own", {"TOPK": 2}, step=np.array([4, 4, 0, 0], np.int32), expert=expert, y=y, z=blank(4, 8))["z"]
    close(z, np.nansum(y.astype(np.float64), 1))


@pytest.mark.parametrize("one", [0, 1])
@pytest.mark.parametrize("copies", [1, 2])
def test_norm_of_cut_rows(ref, one, copies):
    """Each rank's columns, which `copies` ranks have: together they are the norm of the whole row."""
    g = rng()
    x, w, eps = normal(g, 3, 32) * 3, normal(g, 32), 1e-5
    parts = [x[:, 8 * r : 8 * r + 8] for r in range(4) for _ in range(copies)]
    means = [ref("mean_squares", x=p, y=blank(3, 1))["y"] for p in parts]
    m = np.sum(means, axis=0, dtype=np.float32)
    attrs = {"EPS": eps, "NORM_ONE": one, "RANKS": 4 * copies}
    weights = [w[8 * r : 8 * r + 8] for r in range(4) for _ in range(copies)]
    got = [ref("norm_mean", attrs, x=p, m=m, w=v, y=blank(3, 8))["y"] for p, v in zip(parts, weights)]
    close(np.concatenate(got[::copies], axis=1), np_rmsnorm(x, w, eps, one), 5e-7)


def test_scale_by_a_weight(ref):
    x = normal(rng(), 3, 50)
    for factor in (0.25, -1.5):
        got = ref("scale_by", x=x, w=np.array([factor], np.float32), y=blank(3, 50))["y"]
        close(got, factor * x.astype(np.float64))


@pytest.mark.parametrize(("first", "n"), [(0, 50), (0, 1), (20, 13), (49, 1)])
def test_columns(ref, first, n):
    x = normal(rng(), 3, 50)
    assert np.array_equal(ref("columns", {"FIRST": first}, x=x, y=blank(3, n))["y"], x[:, first : first + n])


@pytest.mark.parametrize("gates", [1, 5, 20])
def test_softplus_gate(ref, gates):
    g = rng()
    x, gate = normal(g, 3, 20), 20 * normal(g, 3, gates)
    got = ref("softplus_gate", x=x, gate=gate, y=blank(3, 20))["y"]
    close(got, x * np.repeat(np.logaddexp(0, gate.astype(np.float64)), 20 // gates, axis=1))


def test_soft_cap(ref):
    x = normal(rng(), 3, 50) * 40
    for cap in (30.0, 0.5):
        got = ref("soft_cap", {"CAP": cap}, x=x, y=blank(3, 50))["y"]
        close(got, cap * np.tanh(x.astype(np.float64) / cap))
        assert np.abs(got).max() <= cap


def test_sum_terms(ref):
    y = normal(rng(), 4, 3, 16)
    close(ref("sum_terms", step=STEP, y=y, z=blank(4, 16))["z"], y.astype(np.float64).sum(1))


def test_gather(ref):
    g = rng()
    x = normal(g, 5, 9)
    got = ref("gather", x=x, out_row=np.array([4, -1, 0, 4], np.int32), y=blank(4, 9))["y"]
    assert np.array_equal(got, np.stack([x[4], 0 * x[0], x[0], x[4]]))


# Slots ----------------------------------------------------------------------------------------------


def test_slot_rows(ref):
    got = ref(
        "slot_rows",
        row_slot=np.array([2, -1, 0, 1], np.int32),
        slot_token=np.array([5, -1, 7], np.int32),
        slot_len=np.array([50, 60, 70], np.int32),
        row_token=blank(4, kind=np.int32),
        row_pos=blank(4, kind=np.int32),
    )
    assert got["row_token"].tolist() == [7, 0, 5, 0] and got["row_pos"].tolist() == [70, 0, 50, 0]


@pytest.mark.parametrize("flags", [0, 1])
def test_note_prompt(ref, flags):
    counts = np.zeros((2, 6), np.int32)
    counts[1, 4] = 3
    want = counts.copy()
    if not flags:
        want[1, 4] |= 1 << 30
        want[0, 2] |= 1 << 30
    got = ref(
        "note_prompt",
        step=np.array([3, 0, 0, flags], np.int32),
        row_token=np.array([4, 2, 1, 5], np.int32),
        row_slot=np.array([1, 0, -1, 0], np.int32),
        counts=counts,
    )
    assert np.array_equal(got["counts"], want)


def test_acquire(ref):
    g = rng()
    old = {
        "slot_len": g.integers(1, 9, 3),
        "slot_token": g.integers(1, 9, 3),
        "counts": g.integers(1, 9, (3, 7)),
        "limits": g.integers(1, 9, (3, 8)),
        "page_table": g.integers(1, 9, (3, 4)),
    }
    old = {k: v.astype(np.int32) for k, v in old.items()} | {"sampling": normal(g, 3, 8)}
    old["rules"] = g.integers(1, 9, (3, 1536)).astype(np.int32)
    new = {
        "new_sampling": normal(g, 3, 8),
        "new_limits": g.integers(10, 19, (3, 8)).astype(np.int32),
        "new_rules": g.integers(10, 19, 1536).astype(np.int32),
        "new_pages": g.integers(10, 19, (3, 4)).astype(np.int32),
    }
    got = ref("acquire", acquire=np.array([0, 1, 0], np.int32), **old, **new)
    want = {k: v.copy() for k, v in old.items()}
    for k in ("slot_len", "slot_token", "counts"):
        want[k][1] = 0
    for k, n in (("sampling", "new_sampling"), ("limits", "new_limits"), ("page_table", "new_pages")):
        want[k][1] = new[n][1]
    want["rules"][1] = new["new_rules"]
    for k in want:
        assert np.array_equal(got[k], want[k]), k


# Attention --------------------------------------------------------------------------------------------

HEADS = [(2, 2, 4, 16), (9, 3, 8, 64), (7, 1, 2, 80)]  # n_heads, n_kv_heads, page, head_dim
STEP = np.array([4, 0, 0, 0], np.int32)  # rows in use of 5


def rows_of_slots(page):
    """Five rows: three slots, one of slot -1, one beyond the step."""
    return np.array([1, 0, -1, 2, 0], np.int32), np.array([3 * page - 1, 0, 5, page, 2], np.int32)


@pytest.mark.parametrize("nh,nkv,page,hdim", HEADS)
def test_kv_write(ref, nh, nkv, page, hdim):
    g = rng(nh)
    paged = Paged(g, 3, nkv, page, hdim, 3)
    slot, pos = rows_of_slots(page)
    k, v = normal(g, 5, nkv * hdim), normal(g, 5, nkv * hdim)
    got = ref(
        "kv_write",
        {"HDIM": hdim, "NKV": nkv, "PAGE": page},
        step=STEP,
        k=k,
        v=v,
        row_slot=slot,
        row_pos=pos,
        page_table=paged.table,
        kv=paged.kv,
    )["kv"]
    want = paged.kv.copy()
    for t in (0, 1, 3):
        p = paged.table[slot[t], pos[t] // page]
        want[p, 0, :, pos[t] % page] = k[t].reshape(nkv, hdim)
        want[p, 1, :, pos[t] % page] = v[t].reshape(nkv, hdim)
    assert np.array_equal(got, want)


@pytest.mark.parametrize("nh,nkv,page,hdim", HEADS)
@pytest.mark.parametrize("parts", [1, 3])
@pytest.mark.parametrize("window", [0, 1, 3, 8, 100, -3, -8])
def test_attention(ref, nh, nkv, page, hdim, parts, window):
    g = rng(nh)
    paged, scale = Paged(g, 3, nkv, page, hdim, 3), hdim**-0.5
    slot, pos = rows_of_slots(page)
    q = normal(g, 5, nh * hdim) * 4
    got = ref(
        "attention",
        {"HDIM": hdim, "NH": nh, "NKV": nkv, "PAGE": page, "SCALE": scale, **seen(window)},
        parts=parts,
        step=STEP,
        q=q,
        kv=paged.kv,
        row_slot=slot,
        row_pos=pos,
        page_table=paged.table,
        o=blank(5, nh * hdim),
    )["o"]
    for t in (0, 1, 3):
        want = np_attention(q[t], paged, slot[t], pos[t], nh, nkv, scale, window)
        close(got[t].reshape(nh, hdim), want, 1e-6)
    assert not got[2].any() and not got[4].any()


@pytest.mark.parametrize("nh, nkv, hdim, page", [(4, 2, 8, 4), (6, 1, 16, 2)])
@pytest.mark.parametrize("window", [0, 5, -4])
def test_attention_rows(ref, nh, nkv, hdim, page, window):
    """attention, of rows that belong to no segment."""
    g = rng(nh)
    paged, scale = Paged(g, 3, nkv, page, hdim, 3), hdim**-0.5
    slot, pos = rows_of_slots(page)
    q = normal(g, 5, nh * hdim) * 4
    got = ref(
        "attention_rows",
        {"HDIM": hdim, "NH": nh, "NKV": nkv, "PAGE": page, "SCALE": scale, **seen(window)},
        step=STEP,
        q=q,
        kv=paged.kv,
        row_slot=slot,
        row_pos=pos,
        page_table=paged.table,
        o=blank(5, nh * hdim),
    )["o"]
    for t in (0, 1, 3):
        want = np_attention(q[t], paged, slot[t], pos[t], nh, nkv, scale, window)
        close(got[t].reshape(nh, hdim), want, 1e-6)
    assert not got[2].any() and not got[4].any()


@pytest.mark.parametrize("op", ["attention", "attention_rows"])
@pytest.mark.parametrize("window", [0, 3])
@pytest.mark.parametrize("size", [0.5, 90])
def test_attention_with_sinks(ref, op, window, size):
    """A softmax of one score more, whose weight is then left out; also where it is far above all others."""
    g, nh, nkv, page, hdim = rng(7), 4, 2, 4, 8
    paged, scale = Paged(g, 3, nkv, page, hdim, 3), hdim**-0.5
    slot, pos = rows_of_slots(page)
    q, sinks = normal(g, 5, nh * hdim) * 4, bf16(normal(g, nh) * size)
    attrs = {"HDIM": hdim, "NH": nh, "NKV": nkv, "PAGE": page, "SCALE": scale, **seen(window)}
    got = ref(op, attrs, step=STEP, q=q, kv=paged.kv, row_slot=slot, row_pos=pos, page_table=paged.table, sinks=sinks,
              o=blank(5, nh * hdim), dtypes={"sinks": "bf16"})["o"]  # fmt: skip
    for t in (0, 1, 3):
        want = np_attention(q[t], paged, slot[t], pos[t], nh, nkv, scale, window, sinks)
        assert np.max(np.abs(got[t].reshape(nh, hdim) - want)) < 1e-6 * max(1, np.max(np.abs(want)))


E4M3 = np.array([m * 2.0**-9 if e == 0 else (8 + m) * 2.0 ** (e - 10) for e in range(16) for m in range(8)][:-1])
E2M1 = np.array([0, 0.5, 1, 1.5, 2, 3, 4, 6])


def nearest(grid, x):
    """The value of the grid nearest to x: of two as near the one of even index, beyond the last the last."""
    a = np.minimum(np.abs(np.asarray(x, np.float64)), grid[-1])[..., None]
    order = np.where(np.arange(len(grid)) % 2 == 0, 0, 1e-30)
    value = grid[np.argmin(np.abs(a - grid) + np.where(np.isnan(a), 0, order), -1)]
    return np.where(np.isnan(x), np.nan, np.copysign(value, x))


def as_kept(x, scale, is_narrow):
    """x [..., hdim] as a cache keeps it: what its codes are worth, and the block scales."""
    x, scale = np.asarray(x, np.float32), np.float32(scale)[..., None]
    if not is_narrow:
        return nearest(E4M3, x / scale), None
    runs = x.reshape(*x.shape[:-1], -1, 16)
    block = np.maximum(nearest(E4M3, np.abs(runs).max(-1) / scale / np.float32(6)), 2.0**-9).astype(np.float32)
    return nearest(E2M1, runs / (block * scale)[..., None]).reshape(x.shape), block


def as_rows_of_codes(x):
    """What the codes of rows are worth, and their scales [blocks, rows]."""
    x = np.asarray(x, np.float32)
    blocks = -(-x.shape[1] // 128)
    runs = np.pad(x, ((0, 0), (0, blocks * 128 - x.shape[1]))).reshape(len(x), blocks, 128)
    scale = np.nanmax(np.abs(runs), -1) / np.float32(448)
    scale = np.where(scale < np.float32(2.0**-100), np.float32(1), scale)
    with np.errstate(invalid="ignore"):
        codes = nearest(E4M3, runs / scale[..., None])
    return codes.reshape(len(x), -1)[:, : x.shape[1]], np.ascontiguousarray(scale.T)


def blank_codes(rows, cols):
    return {"y": blank(rows, cols), "y_scale": blank(-(-cols // 128), rows)}


def worth(codes, scale):
    return codes.astype(np.float64) * np.repeat(scale.T, 128, 1)[:, : codes.shape[1]]


@pytest.mark.parametrize("cols", [1, 128, 200, 256])
def test_rows_of_codes(ref, cols):
    x = normal(rng(cols), 6, cols) * 10.0 ** np.arange(-12, 12, 4, dtype=np.float32)[:, None]
    x[1], x[2] = 0, 1e-40
    x[4, cols // 2] = np.nan
    want, scale = as_rows_of_codes(x)
    for got in (
        ref("quantise", x=x, **blank_codes(6, cols)),
        ref("quant_rows", step=STEP, x=x, **blank_codes(6, cols)),
    ):
        assert np.array_equal(got["y_scale"], scale)
        assert np.array_equal(got["y"], want, equal_nan=True)
    assert np.isnan(want).sum() == 1 and np.all(scale[:, 1:3] == 1) and not want[1:3].any()
    back = ref("dequantise", x=want, x_scale=scale, y=blank(6, cols))["y"]
    assert np.array_equal(back, (want.astype(np.float32) * np.repeat(scale.T, 128, 1)[:, :cols]), equal_nan=True)
    whole = np.delete(np.arange(6), [2, 4])
    assert np.all(
        np.abs(back - x)[whole] <= np.abs(x[whole]) / 16 + 2.0**-10 * np.repeat(scale.T, 128, 1)[whole, :cols]
    )


def test_an_infinity_is_no_code(ref):
    x = normal(rng(), 1, 130)
    x[0, 3] = np.inf
    got = ref("quantise", x=x, **blank_codes(1, 130))
    assert np.isnan(got["y"][0, 3]) and not got["y"][0, 4:128].any() and np.isinf(got["y_scale"][0, 0])
    assert np.array_equal(got["y"][0, 128:], as_rows_of_codes(x[:, 128:])[0][0])


def as_rows_of_e2m1(x):
    """What the codes of rows are worth, the scales of their runs of 16 and those of the rows."""
    x = np.asarray(x, np.float32)
    runs = np.pad(x, ((0, 0), (0, -x.shape[1] % 16))).reshape(len(x), -1, 16)
    row = np.abs(x).max(1) / np.float32(2688)
    row = np.where(row < np.float32(2.0**-100), np.float32(1), row)
    block = nearest(E4M3, np.abs(runs).max(-1) / row[:, None] / np.float32(6))
    block = np.maximum(block, 2.0**-9).astype(np.float32)
    codes = nearest(E2M1, runs / (block * row[:, None])[..., None])
    return codes.reshape(len(x), -1)[:, : x.shape[1]], block, row


def blank_e2m1(rows, cols):
    return {"y": blank(rows, cols), "y_block": blank(rows, -(-cols // 16)), "y_row_scale": blank(rows)}


@pytest.mark.parametrize("cols", [1, 16, 40, 128])
def test_rows_of_e2m1(ref, cols):
    x = normal(rng(cols), 6, cols) * 10.0 ** np.arange(-12, 12, 4, dtype=np.float32)[:, None]
    x[1], x[2] = 0, 1e-40
    codes, block, row = as_rows_of_e2m1(x)
    for got in (
        ref("quantise_fp4", x=x, **blank_e2m1(6, cols)),
        ref("quant_rows_fp4", step=np.array([6, 0, 0, 0], np.int32), x=x, **blank_e2m1(6, cols)),
    ):
        assert np.array_equal(got["y_row_scale"], row) and np.array_equal(got["y_block"], block)
        assert np.array_equal(got["y"], codes)
    assert np.all(row[1:3] == 1) and not codes[1:3].any()
    back = ref("dequantise_fp4", x=codes, x_block=block, x_row_scale=row, y=blank(6, cols))["y"]
    scale = np.repeat(block, 16, 1)[:, :cols]
    assert np.array_equal(back, codes.astype(np.float32) * scale * row[:, None])
    whole = np.delete(np.arange(6), [1, 2])
    assert np.all(np.abs(back - x)[whole] <= (1.07 * scale * row[:, None])[whole])  # half of the widest step, 4 to 6


def test_normed_rows_of_e2m1(ref):
    g = rng(3)
    x, norm = bf16(normal(g, 3, 96)), bf16(normal(g, 96))
    attrs, step = {"EPS": 1e-5, "NORM_ONE": 0}, np.array([3, 0, 0, 0], np.int32)
    got = ref("norm_rows_fp4", attrs, step=step, x=x, norm=norm, **blank_e2m1(3, 96))
    normed = ref("rmsnorm", attrs, x=x, w=norm, y=blank(3, 96))["y"]
    codes, block, row = as_rows_of_e2m1(normed)
    assert np.array_equal(got["y_row_scale"], row) and np.array_equal(got["y_block"], block)
    assert np.array_equal(got["y"], codes)


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("nh,nkv,page,hdim", HEADS)
def test_kv_write_codes(ref, nh, nkv, page, hdim, is_narrow):
    g = rng(nh)
    paged = Paged(g, 3, nkv, page, hdim, 3)
    slot, pos = rows_of_slots(page)
    k, v = (normal(g, 5, nkv, hdim) * 4.0 ** g.integers(-5, 5, (5, nkv, 1)) for _ in range(2))
    scale = (2 ** (normal(g, 2, nkv) - 4)).astype(np.float32)
    k[0, 0, 3], v[0, 0, :16], v[1, 0, 5] = np.nan, 0, np.inf
    block = np.ones(paged.kv.shape[:-1] + (hdim // 16,), np.float32) if is_narrow else None
    got = ref(
        "kv_write",
        {"HDIM": hdim, "NKV": nkv, "PAGE": page},
        step=STEP,
        k=k.reshape(5, -1),
        v=v.reshape(5, -1),
        row_slot=slot,
        row_pos=pos,
        page_table=paged.table,
        kv=paged.kv,
        kv_scale=scale,
        kv_block=block,
    )
    want, want_block = paged.kv.copy(), block.copy() if is_narrow else None
    for t in (0, 1, 3):
        p = paged.table[slot[t], pos[t] // page]
        for half, x in enumerate((k[t], v[t])):
            want[p, half, :, pos[t] % page], b = as_kept(x, scale[half], is_narrow)
            if is_narrow:
                want_block[p, half, :, pos[t] % page] = b
    if is_narrow:
        assert np.array_equal(got["kv_block"], want_block, equal_nan=True)
        kept = ~np.isnan(np.repeat(want_block, 16, -1))  # a code says nothing where its block is not a number
        assert np.array_equal(got["kv"][kept], want[kept]) and np.isnan(want_block).sum() == 1
    else:
        assert np.array_equal(got["kv"], want, equal_nan=True) and np.isnan(want).sum() == 1


@pytest.mark.parametrize("is_narrow", [False, True])
@pytest.mark.parametrize("nh,nkv,page,hdim", HEADS)
def test_attention_codes(ref, nh, nkv, page, hdim, is_narrow):
    g = rng(nh)
    paged, factor = Paged(g, 3, nkv, page, hdim, 3), hdim**-0.5
    slot, pos = rows_of_slots(page)
    q, scale = normal(g, 5, nh * hdim) * 4, (2 ** normal(g, 2, nkv)).astype(np.float32)
    codes, block = as_kept(paged.kv, scale[:, :, None], is_narrow)
    codes = codes.astype(np.float32)
    paged.kv = codes * (np.repeat(block, 16, -1) if is_narrow else 1) * scale[:, :, None, None]
    got = ref(
        "attention",
        {"HDIM": hdim, "NH": nh, "NKV": nkv, "PAGE": page, "SCALE": factor},
        step=STEP,
        q=q,
        kv=codes,
        kv_scale=scale,
        kv_block=block,
        row_slot=slot,
        row_pos=pos,
        page_table=paged.table,
        o=blank(5, nh * hdim),
    )["o"]
    for t in (0, 1, 3):
        close(got[t].reshape(nh, hdim), np_attention(q[t], paged, slot[t], pos[t], nh, nkv, factor), 1e-6)
    assert not got[2].any() and not got[4].any()


# The logits stage ----------------------------------------------------------------------------------------


def test_philox_known_answers():
    """The vectors that come with the authors' Random123 library."""
    ones = 0xFFFFFFFF
    assert philox([0] * 4, [0] * 2) == [0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8]
    assert philox([ones] * 4, [ones] * 2) == [0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD]
    assert philox([0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344], [0xA4093822, 0x299F31D0]) == [
        0xD16CFE09,
        0x94FDCCEB,
        0x5001E420,
        0x24126EA1,
    ]


def rule_words(slots, slot, rules):
    """Rules of a slot: (token, value, position below which it is not drawn, whether it ends the sequence)."""
    words = np.full((slots, 384, 4), 1, np.int32)  # what is behind a slot's last rule counts for nothing
    for i, (token, value, before, is_end) in enumerate(rules):
        words[slot, i] = token, np.float32(value).view(np.int32), before, is_end
    return words.reshape(slots, 1536)


def mask_words(allowed):
    """Bits of bools [slots, n], 32 in a word."""
    bits = np.asarray(allowed)
    padded = np.pad(bits, ((0, 0), (0, -bits.shape[1] % 32)))
    return np.packbits(padded, axis=1, bitorder="little").view("<u4").astype(np.uint32).view(np.int32)


class Sampler:
    """One out row of slot 1 of 2; position of the row is 9."""

    def __init__(
        self,
        ref,
        logits,
        n_valid=None,
        seed=0,
        stops=(3,),
        capacity=100,
        counts=None,
        flags=0,
        top_k=0,
        ended=False,
        temperature=1.0,
        top_p=1.0,
        min_p=0.0,
        repetition=1.0,
        presence=0.0,
        frequency=0.0,
        pos=9,
        rules=(),
        keeps_on=False,
        allowed=None,
    ):
        n = len(logits)
        self.counts = np.zeros((2, n), np.int32) if counts is None else counts
        sampling = np.zeros((2, 8), np.float32)
        sampling[1] = [temperature, top_p, min_p, repetition, presence, frequency, 0, 0]
        limits = np.zeros((2, 8), np.int64)
        limits[1, :4] = [top_k, seed & 0xFFFFFFFF, seed >> 32, capacity]
        limits[1, 7] = len(rules) + (keeps_on << 16) + ((allowed is not None) << 17)
        operands = dict(
            step=np.array([3, 2, 0, flags], np.int32),
            logits=np.stack([logits, np.full(n, 5), np.full(n, 5)]).astype(np.float32),
            out_row=np.array([2, -1, 2], np.int32),
            row_slot=np.array([0, -1, 1, 0], np.int32),
            row_pos=np.array([1, 2, pos, 0], np.int32),
            sampling=sampling,
            limits=limits.astype(np.uint32).view(np.int32),
            rules=rule_words(2, 1, rules),
            masks=mask_words([np.zeros(n, bool), np.zeros(n, bool) if allowed is None else allowed]),
            stop_tokens=np.array(stops, np.int32),
            counts=self.counts,
            slot_token=np.array([7, -1 if ended else 7], np.int32),
            slot_len=np.array([1, pos], np.int32),
            ring=np.full((2, 64, 4), -5, np.int32).reshape(2, 256),
        )
        got = ref("sample", {"N_VALID": n_valid or n}, **operands)
        fused = ref(
            "sample_best",
            {"N_VALID": n_valid or n},
            best=blank(3, 1, 2),
            best_id=np.zeros((3, 1), np.int32),
            **operands,
        )
        assert all(np.array_equal(got[k], fused[k], equal_nan=got[k].dtype == np.float32) for k in got)
        self.__dict__.update({k: v for k, v in got.items()})
        ring = got["ring"].reshape(2, 64, 4)
        entry = ring[1, (pos + 1) % 64].copy()
        ring[1, (pos + 1) % 64] = -5
        assert (ring == -5).all()  # one entry and nothing else
        self.is_drawn = entry.tolist() != [-5] * 4
        if not self.is_drawn:
            assert np.array_equal(got["counts"], self.counts) and self.slot_len.tolist() == [1, pos]
            assert self.slot_token.tolist() == [7, -1 if ended else 7]
            return
        position, self.token, word, bits = entry.tolist()
        seal = (position * 0x9E3779B1 + self.token * 0x85EBCA77 + bits * 0xC2B2AE3D) & 0xFFFFFFFF
        seal = ((seal ^ seal >> 15) * 0x27D4EB2F & 0xFFFFFF00) >> 8
        self.done = word & 0xFF
        assert (word & 0xFFFFFFFF) >> 8 == seal  # artifacts/ring.h
        self.logprob = entry[3:].view(np.float32)[0]
        assert position == pos + 1 and self.slot_len.tolist() == [1, pos + 1]
        assert self.slot_token.tolist() == [7, -1 if self.done else self.token]
        change = self.counts.copy() * 0
        if self.token >= 0:
            change[1, self.token] = 1
        before = np.zeros((2, n), np.int32) if counts is None else counts
        assert np.array_equal(got["counts"] - before, change)


def test_sample_greedy(ref):
    logits = np.array([0, 3, -1, 3, 9, 2], np.float32)
    s = Sampler(ref, logits, n_valid=4, temperature=0)  # 9 is padding; 1 wins the tie with 3
    assert s.token == 1 and s.done == 0
    valid = logits[:4].astype(np.float64)
    assert abs(s.logprob - (valid[1] - np.log(np.exp(valid).sum()))) < 1e-6


@pytest.mark.parametrize("capacity,stops,done", [(100, (3,), 0), (11, (3,), 0), (10, (3,), 2), (10, (0, 2), 1)])
def test_sample_done(ref, capacity, stops, done):
    s = Sampler(ref, np.array([0, 1, 5, 0], np.float32), temperature=0, capacity=capacity, stops=stops)
    assert (s.token, s.done) == (2, done)


def test_sample_score_only(ref):
    logits = normal(rng(), 12)
    s = Sampler(ref, logits, flags=1)
    assert not s.is_drawn and np.array_equal(s.logits[0], logits)


def test_sample_nothing_for_an_ended_slot(ref):
    logits = normal(rng(), 12)
    s = Sampler(ref, logits, ended=True)
    assert not s.is_drawn and np.array_equal(s.logits[0], logits)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("bad", [np.nan, np.inf, "all"])
def test_sample_of_no_numbers(ref, bad, temperature):
    """No token, and the sequence ends; -inf alone is fine as long as something is left."""
    logits = normal(rng(3), 12)
    logits[2:5] = -np.inf
    assert Sampler(ref, logits, temperature=temperature).token not in (2, 3, 4)
    logits[0 if bad != "all" else slice(None)] = -np.inf if bad == "all" else bad
    s = Sampler(ref, logits, temperature=temperature, capacity=10, stops=(-1,))
    assert s.is_drawn and s.token == -1 and s.done == 3 and np.isnan(s.logprob)


def test_ring_wraps(ref):
    for pos in (1, 62, 63, 64, 200):
        assert Sampler(ref, np.array([0, 9, 1], np.float32), temperature=0, pos=pos, capacity=500).token == 1


def test_sample_penalties(ref):
    g = rng(4)
    logits = normal(g, 40) * 3
    counts = np.zeros((2, 40), np.int32)
    counts[1, ::3] = 1 << 30
    counts[1, ::4] += g.integers(1, 5, 10).astype(np.int32)
    s = Sampler(ref, logits, counts=counts.copy(), temperature=0, repetition=1.3, presence=0.4, frequency=0.25)
    want = logits.astype(np.float64)
    for v in range(40):
        generated = counts[1, v] % (1 << 30)
        if counts[1, v]:
            want[v] = want[v] / 1.3 if want[v] > 0 else want[v] * 1.3
        if generated:
            want[v] -= 0.4 + 0.25 * generated
    close(s.logits[0], want, 3e-7)
    assert s.token == want.argmax()
    assert abs(s.logprob - (want.max() - np.log(np.exp(want).sum()))) < 1e-5


@pytest.mark.parametrize(
    "cuts",
    [
        {},
        {"top_k": 1},
        {"top_k": 5},
        {"top_p": 0.3},
        {"top_p": 0.9},
        {"min_p": 0.2},
        {"top_k": 20, "top_p": 0.8},
        {"top_k": 12, "top_p": 0.95, "min_p": 0.1},
    ],
)
@pytest.mark.parametrize("temperature", [0.7, 2.0])
def test_sample_draws(ref, cuts, temperature):
    g = rng(8)
    for seed in (0, 1, (5 << 32) + 7, 2**64 - 1):
        logits = normal(g, 50) * 2
        logits[10] = logits[20]  # a tie may sit at a threshold
        s = Sampler(ref, logits, seed=seed, temperature=temperature, **cuts)
        z = logits.astype(np.float64) / temperature
        score = np.where(kept_by(z, **cuts), z + gumbel(50, 10, seed), -np.inf)
        assert s.token == score.argmax()


@pytest.mark.parametrize(
    "cuts",
    [
        {},
        {"top_k": 4},
        {"top_p": 0.6},
        {"min_p": 0.1},
        {"temperature": 0},
        {"repetition": 1.4, "presence": 0.5, "frequency": 0.1},
    ],
)
def test_rules_of_single_tokens(ref, cuts):
    """Scores change for the draw alone, behind the penalties: logits and log probability are those without rules."""
    for seed in range(20):
        g = rng(seed)
        logits, counts = normal(g, 60) * 2, np.zeros((2, 60), np.int32)
        counts[1, ::7] = 2
        tokens = g.permutation(64)[:30]  # a few are no tokens
        values = g.choice([0, 0, 2.5, -3, 100, -100, -np.inf], 30)
        before = g.choice([0, 0, 9, 10, 11, 500], 30)
        rules = list(zip(tokens, values, before, g.integers(0, 2, 30)))
        how = {"seed": seed, "n_valid": 50, "stops": (-1,), "temperature": 0.8} | cuts
        s = Sampler(ref, logits, rules=rules, counts=counts.copy(), **how)
        plain = Sampler(ref, logits, counts=counts.copy(), **how)
        assert np.array_equal(s.logits, plain.logits)
        biased = plain.logits[0, :50].copy()
        for token, value, position, _ in rules:
            if token < 50:
                biased[token] = -np.inf if 10 < position else biased[token] + np.float32(value)
        z = biased.astype(np.float64) / (how["temperature"] or 1)
        noise = gumbel(50, 10, seed) if how["temperature"] else 0
        kept = kept_by(z, **{k: v for k, v in cuts.items() if k in ("top_k", "top_p", "min_p")})
        assert s.token == np.where(kept, z + noise, -np.inf).argmax()
        exact = plain.logits[0, :50].astype(np.float64)
        assert abs(s.logprob - (exact[s.token] - np.log(np.exp(exact).sum()))) < 1e-5
        assert s.done == any(token == s.token and is_end for token, _, _, is_end in rules)


@pytest.mark.parametrize(
    "cuts",
    [
        {},
        {"top_k": 4},
        {"top_p": 0.6},
        {"min_p": 0.1},
        {"temperature": 0},
        {"repetition": 1.4, "presence": 0.5, "frequency": 0.1},
        {"rules": [(v, -2.5 if v % 3 else -np.inf, 0, 0) for v in range(0, 60, 2)], "top_k": 9},
    ],
)
def test_masked_draws(ref, cuts):
    """A bit each, behind penalties and rules, for the draw alone; one word is not whole, and its last bits are set."""
    for seed in range(20):
        g = rng(seed)
        logits, counts = normal(g, 60) * 2, np.zeros((2, 60), np.int32)
        counts[1, ::7] = 2
        allowed = g.random(60) < g.choice([0.5, 0.9, 0.1])
        allowed[g.integers(0, 50)] = allowed[50:] = True
        how = {"seed": seed, "n_valid": 50, "stops": (-1,), "temperature": 0.8} | cuts
        s = Sampler(ref, logits, counts=counts.copy(), allowed=allowed, **how)
        plain = Sampler(ref, logits, counts=counts.copy(), **how)
        assert np.array_equal(s.logits, plain.logits)
        biased = plain.logits[0, :50].copy()
        for token, value, _, _ in cuts.get("rules", ()):
            if token < 50:
                biased[token] += np.float32(value)
        z = biased.astype(np.float64) / (how["temperature"] or 1)
        z[~allowed[:50]] = -np.inf
        if z.max() == -np.inf:
            assert (s.token, s.done) == (-1, 3) and np.isnan(s.logprob)
            continue
        noise = gumbel(50, 10, seed) if how["temperature"] else 0
        kept = kept_by(z, **{k: v for k, v in cuts.items() if k in ("top_k", "top_p", "min_p")})
        assert s.token == np.where(kept, z + noise, -np.inf).argmax() and allowed[s.token]
        exact = plain.logits[0, :50].astype(np.float64)
        assert abs(s.logprob - (exact[s.token] - np.log(np.exp(exact).sum()))) < 1e-5


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_masks_of_one_token_and_of_none(ref, temperature):
    logits = normal(rng(3), 40)
    worst = int(logits.argmin())
    s = Sampler(ref, logits, temperature=temperature, allowed=np.arange(40) == worst, top_k=1)
    exact = logits.astype(np.float64)
    assert s.token == worst and abs(s.logprob - (exact[worst] - np.log(np.exp(exact).sum()))) < 1e-5
    s = Sampler(ref, logits, temperature=temperature, allowed=np.zeros(40, bool))
    assert (s.token, s.done) == (-1, 3) and np.isnan(s.logprob) and np.array_equal(s.logits[0], logits)


@pytest.mark.parametrize(
    "rules, keeps_on, capacity, done",
    [
        ([], False, 100, 1),
        ([], True, 100, 0),
        ([(2, 0, 0, 1)], True, 100, 1),
        ([(1, 0, 0, 1)], True, 100, 0),
        ([(1, 0, 0, 1)], True, 10, 2),
        ([(2, 0, 0, 1)], True, 10, 1),
        ([(2, 0, 0, 0)], False, 100, 1),
    ],
)
def test_which_tokens_end_a_sequence(ref, rules, keeps_on, capacity, done):
    s = Sampler(
        ref,
        np.array([0, 1, 5, 0], np.float32),
        temperature=0,
        capacity=capacity,
        stops=(3, 2),
        rules=rules,
        keeps_on=keeps_on,
    )
    assert (s.token, s.done) == (2, done)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
def test_rules_that_leave_no_token(ref, temperature):
    logits = normal(rng(3), 12)
    rules = [(v, -np.inf if v % 2 else 0, 0 if v % 2 else 11, 0) for v in range(12)]
    s = Sampler(ref, logits, temperature=temperature, rules=rules, stops=(-1,))
    assert (s.token, s.done) == (-1, 3) and np.isnan(s.logprob) and np.array_equal(s.logits[0], logits)
    assert Sampler(ref, logits, temperature=temperature, rules=rules[:4] + rules[5:]).token == 4
    assert Sampler(ref, logits, temperature=temperature, rules=rules, pos=10).token % 2 == 0


def test_top_k_keeps_ties(ref):
    logits = np.array([1, 5, 5, 5, 0], np.float32)
    seen = {Sampler(ref, logits, seed=seed, top_k=2).token for seed in range(40)}
    assert seen == {1, 2, 3}


def test_sample_follows_the_distribution(ref):
    """Chi-square of 800 draws over positions and seeds."""
    p = np.array([0.5, 0.25, 0.15, 0.1])
    hits = np.zeros(4)
    for i in range(800):
        hits[Sampler(ref, np.log(p).astype(np.float32), seed=i % 20, pos=i // 20, stops=(-1,)).token] += 1
    assert ((hits - 800 * p) ** 2 / (800 * p)).sum() < 16.3  # 0.1 % point, 3 degrees of freedom


# Fused ops: the formulas of their rows, from numpy again ---------------------------------------------------


def test_embed_next(ref):
    g = rng()
    table = normal(g, 9, 12)
    got = ref(
        "embed_next",
        row_slot=np.array([1, -1, 0], np.int32),
        slot_token=np.array([8, 3], np.int32),
        slot_len=np.array([4, 6], np.int32),
        table=table,
        row_token=blank(3, kind=np.int32),
        row_pos=blank(3, kind=np.int32),
        x=blank(3, 12),
    )
    assert got["row_token"].tolist() == [3, 0, 8] and got["row_pos"].tolist() == [6, 0, 4]
    assert np.array_equal(got["x"], table[[3, 0, 8]])


def test_embed_prompt(ref):
    g = rng()
    table, token = normal(g, 9, 12), np.array([8, 3, 3], np.int32)
    got = ref(
        "embed_prompt",
        step=np.array([2, 1, 1, 0], np.int32),
        row_token=token,
        row_slot=np.array([1, 0, 0], np.int32),
        table=table,
        counts=np.zeros((2, 9), np.int32),
        x=blank(3, 12),
    )
    assert np.array_equal(got["x"], table[token])
    assert np.argwhere(got["counts"]).tolist() == [[0, 3], [1, 8]] and got["counts"].max() == 1 << 30


@pytest.mark.parametrize("bias", [False, True])
def test_norm_linear_and_residual(ref, bias):
    g = rng()
    x, norm, w, r = normal(g, 3, 40), normal(g, 40), bf16(normal(g, 7, 40)), normal(g, 3, 7)
    b = normal(g, 7) if bias else None
    dtypes = {"w": "bf16"}
    got = ref(
        "norm_linear",
        {"EPS": 1e-5, "NORM_ONE": 1},
        step=STEP,
        x=x,
        norm=norm,
        w=w,
        bias=b,
        y=blank(3, 7),
        dtypes=dtypes,
    )
    close(got["y"], np_rmsnorm(x, norm, 1e-5, 1) @ w.T.astype(np.float64) + (b if bias else 0), 5e-7)
    got = ref("linear_rows", step=STEP, x=x, w=w, bias=b, y=blank(3, 7), dtypes=dtypes)
    close(got["y"], x.astype(np.float64) @ w.T.astype(np.float64) + (b if bias else 0), 5e-7)
    got = ref("linear_residual", step=STEP, x=x, w=w, bias=b, residual=r, z=blank(3, 7), dtypes=dtypes)
    close(got["z"], r + x.astype(np.float64) @ w.T.astype(np.float64) + (b if bias else 0), 5e-7)


@pytest.mark.parametrize("bias", [False, True])
def test_norm_linear_narrow(ref, bias):
    g = rng()
    x, norm, w, few = normal(g, 3, 40), normal(g, 40), bf16(normal(g, 7, 40)), bf16(normal(g, 2, 40))
    b = normal(g, 7) if bias else None
    got = ref(
        "norm_linear_narrow",
        {"EPS": 1e-5, "NORM_ONE": 1},
        step=STEP,
        x=x,
        norm=norm,
        w=w,
        bias=b,
        w_narrow=few,
        y=blank(3, 7),
        y_narrow=blank(3, 2),
        dtypes={"w": "bf16", "w_narrow": "bf16"},
    )
    n = np_rmsnorm(x, norm, 1e-5, 1)
    close(got["y"], n @ w.T.astype(np.float64) + (b if bias else 0), 5e-7)
    close(got["y_narrow"], n @ few.T.astype(np.float64), 5e-7)


@pytest.mark.parametrize("one", [0, 1])
def test_norm_rows(ref, one):
    x, norm = normal(rng(), 3, 24), normal(rng(), 24)
    got = ref("norm_rows", {"EPS": 1e-5, "NORM_ONE": one}, step=STEP, x=x, norm=norm, y=blank(3, 24))
    close(got["y"], np_rmsnorm(x, norm, 1e-5, one), 5e-7)


@pytest.mark.parametrize("bias", [False, True])
def test_norm_swiglu(ref, bias):
    g = rng()
    x, norm, gate, up = normal(g, 3, 24), normal(g, 24), normal(g, 10, 24), normal(g, 10, 24)
    gb, ub = (normal(g, 10), normal(g, 10)) if bias else (None, None)
    got = ref(
        "norm_swiglu",
        {"EPS": 1e-5, "NORM_ONE": 0},
        step=STEP,
        x=x,
        norm=norm,
        gate=gate,
        up=up,
        gate_bias=gb,
        up_bias=ub,
        y=blank(3, 10),
    )
    apart = ref("linear_swiglu", step=STEP, x=x, gate=gate, up=up, gate_bias=gb, up_bias=ub, y=blank(3, 10))
    a, b = x @ gate.T + (gb if bias else 0), x @ up.T + (ub if bias else 0)
    close(apart["y"], np_silu(a) * b, 1e-6)
    n = np_rmsnorm(x, norm, 1e-5)
    a, b = n @ gate.T + (gb if bias else 0), n @ up.T + (ub if bias else 0)
    close(got["y"], np_silu(a) * b, 1e-6)


def test_products_of_codes(ref):
    """Rows of codes in, and out of the swiglu and the norm."""
    g, attrs = rng(), {"BLOCK_N": 128, "BLOCK_K": 128}
    x, x_scale = as_rows_of_codes(normal(g, 3, 200) * 30)
    w, up = (nearest(E4M3, normal(g, 144, 200) * 50) for _ in range(2))
    w_scale, up_scale = (np.exp2(normal(g, 2, 2) - 9).astype(np.float32) for _ in range(2))
    r, norm = normal(g, 3, 144), normal(g, 200)

    def spread(scale):
        return np.repeat(np.repeat(scale.astype(np.float64), 128, 0)[:144], 128, 1)[:, :200]

    a, b = (worth(x, x_scale) @ (c * spread(s)).T for c, s in ((w, w_scale), (up, up_scale)))
    rows = {"step": STEP, "x": x, "x_scale": x_scale}
    got = ref("linear_rows", attrs, **rows, w=w, w_scale=w_scale, y=blank(3, 144))
    close(got["y"], a, 1e-6)
    got = ref("linear_residual", attrs, **rows, w=w, w_scale=w_scale, residual=r, z=blank(3, 144))
    close(got["z"], r + a, 1e-6)
    got = ref(
        "linear_swiglu_fp8", attrs, **rows, gate=w, up=up, gate_scale=w_scale, up_scale=up_scale, **blank_codes(3, 144)
    )
    _, scale = as_rows_of_codes(np_silu(a) * b)
    close(got["y_scale"], scale, 1e-5)
    close(worth(got["y"], got["y_scale"]), np_silu(a) * b, 0.04)
    x = normal(g, 3, 200)
    got = ref("norm_rows_fp8", {"EPS": 1e-5, "NORM_ONE": 1}, step=STEP, x=x, norm=norm, **blank_codes(3, 200))
    want, scale = as_rows_of_codes(np_rmsnorm(x, norm, 1e-5, 1))
    close(got["y_scale"], scale, 1e-6)
    assert np.mean(got["y"] != want) < 0.01


@pytest.mark.parametrize("has_shared", [False, True])
def test_experts_of_codes(ref, has_shared):
    """Rows in the order of experts as codes, through both products; one row is in no use, one expert has none."""
    g, rows, k, n, active, experts = rng(), 4, 160, 144, 2, 5
    expert, share = np.array([[4, 0], [0, 4], [2, 0], [1, 3]]), np.abs(normal(g, rows, active + has_shared))
    pair, first = np.array([1, 2, 5, 4, 0, 3, -1, -1], np.int32), np.array([0, 3, 3, 4, 4, 6], np.int32)
    x = normal(g, rows, k)
    order = [(p // active, p, expert.flat[p]) for p in pair[:6]]
    if has_shared:
        order += [None, None] + [(t, t, experts) for t in range(3)]
    all_rows, attrs = rows * (active + has_shared), {"TOPK": active, "BLOCK_N": 128, "BLOCK_K": 128}
    attrs |= {"SHARED_BLOCK_N": 128, "SHARED_BLOCK_K": 128}
    step = np.array([3, 0, 0, 0], np.int32)
    got = ref("gather_codes", {"TOPK": active}, step=step, x=x, pair=pair, **blank_codes(all_rows, k))
    codes, scale = as_rows_of_codes(x)
    for i, of in enumerate(order):
        if of:
            assert np.array_equal(got["y"][i], codes[of[0]]) and np.array_equal(got["y_scale"][:, i], scale[:, of[0]])

    def matrices(count, high, wide, pieces):
        blocks = -(-high // 128)
        w = nearest(E4M3, normal(g, count, pieces * high, wide) * 50)
        s = np.exp2(np.round(normal(g, count, pieces * blocks, -(-wide // 128))) - 9).astype(np.float32)
        spread = np.repeat(np.repeat(s.astype(np.float64), 128, 1), 128, 2)[:, :, :wide]
        spread = np.concatenate([spread[:, p * blocks * 128 :][:, :high] for p in range(pieces)], 1)
        return w, s, w * spread

    up, up_scale, up_worth = matrices(experts + 1, n, k, 2)
    down, down_scale, down_worth = matrices(experts + 1, k, n, 1)
    shared = {"shared": up[experts], "shared_scale": up_scale[experts]} if has_shared else {}
    rows_in = {"x": got["y"], "x_scale": got["y_scale"]}
    h = ref(
        "experts_up_fp8",
        attrs,
        step=step,
        **rows_in,
        share=share,
        pair=pair,
        first=first,
        gate_up=up[:experts],
        gate_up_scale=up_scale[:experts],
        **shared,
        h=blank(all_rows, n),
        h_scale=blank(2, all_rows),
    )
    shared = {"shared_down": down[experts], "shared_down_scale": down_scale[experts]} if has_shared else {}
    y = ref(
        "experts_down_fp8",
        attrs,
        step=step,
        **h,
        pair=pair,
        first=first,
        down=down[:experts],
        down_scale=down_scale[:experts],
        **shared,
        y=blank(rows, active + has_shared, k),
    )["y"]
    in_rows, places = worth(codes, scale), set()
    for i, of in enumerate(order):
        if not of:
            continue
        t, p, e = of
        j = active if e == experts else p % active
        gate, value = np.split(up_worth[e] @ in_rows[t], 2)
        want = share[t, j] * np_silu(gate) * value
        close(worth(h["h"][i : i + 1], h["h_scale"][:, i : i + 1])[0], want, 0.04)
        close(y[t, j], down_worth[e] @ worth(h["h"][i : i + 1], h["h_scale"][:, i : i + 1])[0], 1e-5)
        places.add((t, j))
    idle = [(t, j) for t in range(rows) for j in range(active + has_shared) if (t, j) not in places]
    assert idle and all(np.all(y[t, j] == blank(1)) for t, j in idle)


@pytest.mark.parametrize("cap", [0, 2.5])
def test_norm_logits(ref, cap):
    g = rng()
    x, norm, w = normal(g, 4, 24), normal(g, 24), normal(g, 13, 24)
    got = ref(
        "norm_logits",
        {"EPS": 1e-5, "NORM_ONE": 0, "N_VALID": 10, "CAP": cap},
        step=STEP,
        x=x,
        out_row=np.array([3, -1, 1], np.int32),
        norm=norm,
        w=w,
        logits=blank(3, 13),
        best=blank(3, 4, 2),
        best_id=np.zeros((3, 4), np.int32),
    )
    want = np_rmsnorm(x, norm, 1e-5) @ w.T
    want = np.stack([want[3], 0 * want[0], want[1]])
    close(got["logits"], cap * np.tanh(want / cap) if cap else want, 5e-7)
    for p in range(3):  # parts of four ids: the third has two that exist, the fourth none
        part = got["logits"][:, 4 * p : min(4 * p + 4, 10)]
        assert np.array_equal(got["best_id"][:, p], 4 * p + part.argmax(1))
        assert np.array_equal(got["best"][:, p, 0], part.max(1))
        close(got["best"][:, p, 1], np.exp(part - part.max(1, keepdims=True)).sum(1), 1e-6)
    assert np.all(np.isneginf(got["best"][:, 3, 0])) and not got["best"][:, 3, 1].any()


def test_logits_of_rows_that_are_written_first(ref):
    """norm_outs, then linear_logits of these rows."""
    g = rng()
    x, norm, w = normal(g, 4, 24), normal(g, 24), normal(g, 13, 24)
    out_row = np.array([3, -1, 1], np.int32)
    rows = ref("norm_outs", {"EPS": 1e-5, "NORM_ONE": 1}, step=STEP, x=x, out_row=out_row, norm=norm, y=blank(3, 24))[
        "y"
    ]
    want = np_rmsnorm(x, norm, 1e-5, 1)
    close(rows, np.stack([want[3], 0 * want[0], want[1]]), 5e-7)
    best = {"best": blank(3, 4, 2), "best_id": np.zeros((3, 4), np.int32)}
    got = ref("linear_logits", {"N_VALID": 10}, step=STEP, x=rows, w=w, logits=blank(3, 13), **best)
    close(got["logits"], rows @ w.T, 5e-7)
    for p in range(3):
        part = got["logits"][:, 4 * p : min(4 * p + 4, 10)]
        assert np.array_equal(got["best_id"][:, p], 4 * p + part.argmax(1))
        close(got["best"][:, p, 1], np.exp(part - part.max(1, keepdims=True)).sum(1), 1e-6)


def heads_of_step(norms, v_norm=False, v_is_k=False, whole=False):
    """Operands of rope_write, and what it makes of the rows in use: q, k, v [row, head, element], the cache."""
    g = rng()
    nh, nkv, page, hdim = 4, 2, 4, 16
    paged = Paged(g, 3, nkv, page, hdim, 3)
    slot, pos = rows_of_slots(page)
    qkv, freq = normal(g, 5, (nh + 2 * nkv) * hdim), (100.0 ** (-np.arange(6) / 6)).astype(np.float32)
    qn, kn = (
        (normal(g, (nh if whole else 1) * hdim), normal(g, (nkv if whole else 1) * hdim)) if norms else (None, None)
    )
    vn = normal(g, hdim) if v_norm else None
    attrs = {
        "HDIM": hdim,
        "NH": nh,
        "NKV": nkv,
        "PAGE": page,
        "ROTARY": 12,
        "ROPE_FACTOR": 1.1,
        "EPS": 1e-6,
        "NORM_ONE": 0,
        "V_IS_K": int(v_is_k),
    } | ({"NORM_WHOLE": 1} if whole else {})
    operands = dict(
        step=STEP,
        qkv=qkv[:, : (nh + nkv) * hdim] if v_is_k else qkv,
        q_norm=qn,
        k_norm=kn,
        v_norm=vn,
        inv_freq=freq,
        row_slot=slot,
        row_pos=pos,
        page_table=paged.table,
        kv=paged.kv,
    )
    heads = qkv.reshape(5, -1, hdim).astype(np.float64)
    q, k, v = heads[:, :nh], heads[:, nh : nh + nkv], heads[:, nh : nh + nkv] if v_is_k else heads[:, nh + nkv :]
    if v_norm:
        v = np_rmsnorm(v, vn, 1e-6)
    if norms and whole:
        q, k = (np_rmsnorm(a.reshape(5, -1), w, 1e-6) for a, w in ((q, qn), (k, kn)))
    elif norms:
        q, k = np_rmsnorm(q, qn, 1e-6), np_rmsnorm(k, kn, 1e-6)
    q, k = (np_rope(a.reshape(5, -1), pos, freq, hdim, 1.1) for a in (q, k))
    want = paged.kv.copy()
    for t in (0, 1, 3):
        p = paged.table[slot[t], pos[t] // page]
        want[p, 0, :, pos[t] % page] = k[t].reshape(nkv, hdim)
        want[p, 1, :, pos[t] % page] = v[t]
    return attrs, operands, paged, q, want


def from_slots(operands, page):
    """Operands of attention_step: as those of rope_write, with each row's position where the state of its slot says.
    The slot that stands at position 0 has ended, so its length means nothing."""
    tokens, lengths = np.array([-1, 4, 4], np.int32), np.array([9, 3 * page - 1, page], np.int32)
    rest = {k: v for k, v in operands.items() if k != "row_pos"}
    return rest | dict(slot_token=tokens, slot_len=lengths)


@pytest.mark.parametrize("norms", [False, True])
@pytest.mark.parametrize("of_values", [(False, False), (True, False), (False, True), (True, True)])
def test_rope_write(ref, norms, of_values):
    """of_values: they are normed, and what k_proj gives."""
    attrs, operands, _, q, kv = heads_of_step(norms, *of_values)
    got = ref("rope_write", attrs, **operands, q=blank(*q.shape))
    close(got["q"][[0, 1, 3]], q[[0, 1, 3]], 1e-6)
    close(got["kv"], kv, 1e-6)


@pytest.mark.parametrize("is_narrow", [False, True])
def test_fused_codes(ref, is_narrow):
    """rope_write and attention_step write and read codes as kv_write and attention do."""
    attrs, operands, paged, q, kv = heads_of_step(True)
    nh, scale = attrs["NH"], np.array([[0.5, 0.25], [0.01, 0.02]], np.float32)
    codes, block = as_kept(paged.kv, scale[:, :, None], is_narrow)
    operands |= dict(kv=codes.astype(np.float32), kv_scale=scale, kv_block=block)
    turned = ref("rope_write", attrs, **operands, q=blank(*q.shape))
    step = ref(
        "attention_step",
        {**attrs, "SCALE": 0.3},
        **from_slots(operands, attrs["PAGE"]),
        part=blank(5, nh, 3, 16),
        part_ml=blank(5, nh, 3, 2),
        arrived=np.zeros((5, nh), np.int32),
        o=blank(*q.shape),
    )
    want, want_block = as_kept(kv, scale[:, :, None], is_narrow)
    for name, a in (("kv", want), ("kv_block", want_block)):
        if a is not None:
            assert np.mean(turned[name] == a) > 0.99 and np.array_equal(turned[name], step[name])
    look = ref(
        "attention",
        {k: attrs[k] for k in ("HDIM", "NH", "NKV", "PAGE")} | {"SCALE": 0.3},
        step=STEP,
        q=turned["q"],
        kv=turned["kv"],
        kv_scale=scale,
        kv_block=turned.get("kv_block"),
        o=blank(*q.shape),
        **{k: operands[k] for k in ("row_slot", "row_pos", "page_table")},
    )
    assert np.array_equal(look["o"], step["o"])


@pytest.mark.parametrize("is_narrow", [None, False, True])
def test_fused_rotation(ref, is_narrow):
    """With ROTATE rope_write and attention_step write rotated keys; of a cache that rounds nothing, answers stay."""
    attrs, operands, paged, q, kv = heads_of_step(True)
    nh, hdim, scale = attrs["NH"], attrs["HDIM"], np.array([[0.5, 0.25], [0.01, 0.02]], np.float32)
    h = np_hadamard(hdim)
    was, kv = paged.kv.copy(), kv.copy()
    for a in (was, kv):
        a[:, 0] = a[:, 0] @ h
    plain = ref(
        "attention_step",
        {**attrs, "SCALE": 0.3},
        **from_slots(operands, attrs["PAGE"]),
        part=blank(5, nh, 3, 16),
        part_ml=blank(5, nh, 3, 2),
        arrived=np.zeros((5, nh), np.int32),
        o=blank(*q.shape),
    )
    want, want_block = kv, None
    operands["kv"] = was
    if is_narrow is not None:
        codes, block = as_kept(was, scale[:, :, None], is_narrow)
        operands |= dict(kv=codes.astype(np.float32), kv_scale=scale, kv_block=block)
        want, want_block = as_kept(kv, scale[:, :, None], is_narrow)
    attrs["ROTATE"] = 1
    turned = ref("rope_write", attrs, **operands, q=blank(*q.shape))
    step = ref(
        "attention_step",
        {**attrs, "SCALE": 0.3},
        **from_slots(operands, attrs["PAGE"]),
        part=blank(5, nh, 3, 16),
        part_ml=blank(5, nh, 3, 2),
        arrived=np.zeros((5, nh), np.int32),
        o=blank(*q.shape),
    )
    close(turned["q"][[0, 1, 3]], (q.reshape(5, nh, hdim) @ h).reshape(5, -1)[[0, 1, 3]], 1e-6)
    assert np.array_equal(turned["kv"], step["kv"])
    if is_narrow is None:
        close(step["kv"], want, 1e-6)
        close(step["o"], plain["o"], 3e-6)
    else:
        for name, a in (("kv", want), ("kv_block", want_block)):
            assert a is None or np.mean(step[name] == a) > 0.99
        assert 1e-6 < np.max(np.abs(step["o"] - plain["o"]))


@pytest.mark.parametrize("norms, whole", [(False, False), (True, False), (True, True)])
@pytest.mark.parametrize("window", [0, 1, 4, -3])
def test_attention_step(ref, norms, whole, window):
    """whole: norms of q and k are over all heads of a row."""
    attrs, operands, paged, q, kv = heads_of_step(norms, whole=whole)
    nh, nkv = attrs["NH"], attrs["NKV"]
    part, ml = blank(5, nh, 3, 16), blank(5, nh, 3, 2)
    got = ref(
        "attention_step",
        {**attrs, "SCALE": 0.3, **seen(window)},
        **from_slots(operands, attrs["PAGE"]),
        part=part,
        part_ml=ml,
        arrived=np.zeros((5, nh), np.int32),
        o=blank(*q.shape),
    )
    close(got["kv"], kv, 1e-6)
    paged.kv = kv
    for t in (0, 1, 3):
        want = np_attention(q[t], paged, operands["row_slot"][t], operands["row_pos"][t], nh, nkv, 0.3, window)
        close(got["o"][t].reshape(nh, -1), want, 2e-6)
    assert not got["o"][2].any() and not got["o"][4].any()
    assert not got["arrived"].any() and np.array_equal(got["part"], part, equal_nan=True)


def test_rope_write_of_neighbours(ref):
    attrs, operands, paged, q, kv = heads_of_step(True)
    halves = ref("rope_write", attrs, **operands, q=blank(*q.shape))
    normed = ref("rope_write", attrs | {"ROTARY": 0}, **operands | {"inv_freq": None}, q=blank(*q.shape))
    got = ref("rope_write", attrs | {"NEIGHBOURS": 1}, **operands, q=blank(*q.shape))
    want = np_rope(normed["q"], operands["row_pos"], operands["inv_freq"], attrs["HDIM"], 1.1, True)
    close(got["q"][[0, 1, 3]], want[[0, 1, 3]], 1e-6)
    assert not np.allclose(got["q"], halves["q"])


def test_a_step_rounds_where_rows_are_bf16(ref):
    """Scores of unscaled heads are large, and roundings of q and k with them: they count where the rows stand for bf16."""
    attrs, operands, paged, q, kv = heads_of_step(True)
    call = dict(
        part=blank(5, 4, 3, 16), part_ml=blank(5, 4, 3, 2), arrived=np.zeros((5, 4), np.int32), o=blank(*q.shape)
    )
    operands = from_slots(operands, attrs["PAGE"])
    got = ref("attention_step", attrs | {"SCALE": 8.0}, models=["qkv"], **operands, **call)
    paged.kv = np.where(kv == paged.kv, kv, nearest_bf16(kv))
    slot, pos = rows_of_slots(attrs["PAGE"])
    for t in (0, 1, 3):
        want = np_attention(nearest_bf16(q[t]), paged, slot[t], pos[t], 4, 2, 8.0)
        close(got["o"][t].reshape(4, -1), want, 2e-5)
    plain = ref("attention_step", attrs | {"SCALE": 8.0}, **operands, **call)
    assert np.max(np.abs(plain["o"][:2] - got["o"][:2])) > 1e-3


@pytest.mark.parametrize("op", ["attention_step", "attention_verify"])
@pytest.mark.parametrize("of_values", [(True, False), (True, True)])
def test_a_step_with_sinks_and_normed_values(ref, op, of_values):
    attrs, operands, paged, q, kv = heads_of_step(True, *of_values)
    nh, sinks = attrs["NH"], bf16(normal(rng(3), attrs["NH"]) * 3)
    operands = from_slots(operands, attrs["PAGE"])
    if op == "attention_verify":  # of a slot the first of two rows: the second is idle
        two = {"qkv": np.repeat(operands["qkv"], 2, 0), "row_slot": np.full(10, -1, np.int32)}
        two["row_slot"][::2] = np.where(np.arange(5) < STEP[0], operands["row_slot"], -1)
        operands |= two | {"step": np.array([10, 0, 0, 0], np.int32)}
        attrs = attrs | {"EACH": 2}
    rows = len(operands["row_slot"])
    call = dict(part=blank(rows, nh, 3, 16), part_ml=blank(rows, nh, 3, 2), arrived=np.zeros((rows, nh), np.int32))
    got = ref(op, attrs | {"SCALE": 0.3, "WINDOW": 0}, **operands, sinks=sinks, **call, o=blank(rows, q.shape[1]),
              dtypes={"sinks": "bf16"})  # fmt: skip
    close(got["kv"], kv, 1e-6)
    paged.kv = kv
    slot, pos = rows_of_slots(attrs["PAGE"])
    for t in (0, 1, 3):
        want = np_attention(q[t], paged, slot[t], pos[t], nh, attrs["NKV"], 0.3, 0, sinks)
        close(got["o"][t * rows // 5].reshape(nh, -1), want, 2e-6)


def test_gated_attention(ref):
    """With a gate behind v, rope_write does what it does without, and attention_step multiplies by its sigmoid."""
    attrs, operands, _, q, _ = heads_of_step(True)
    nh = attrs["NH"]
    gate = normal(rng(7), *q.shape)
    gated = operands | {"qkv": np.concatenate([operands["qkv"], gate], 1)}
    plain, turned = (
        ref("rope_write", attrs | {"GATED": i}, **o, q=blank(*q.shape)) for i, o in enumerate((operands, gated))
    )
    assert all(np.array_equal(plain[k], turned[k]) for k in plain)
    plain, got = (
        ref(
            "attention_step",
            {**attrs, "SCALE": 0.3, "GATED": i},
            **from_slots(o, attrs["PAGE"]),
            part=blank(5, nh, 3, 16),
            part_ml=blank(5, nh, 3, 2),
            arrived=np.zeros((5, nh), np.int32),
            o=blank(*q.shape),
        )
        for i, o in enumerate((operands, gated))
    )
    close(got["o"], plain["o"] / (1 + np.exp(-gate.astype(np.float64))), 1e-6)
    assert np.array_equal(got["kv"], plain["kv"])


def test_read_probe(ref):
    x = rng().integers(-(2**31), 2**31, 3 * 8192, np.int64).astype(np.int32)
    got = ref("read_probe", {}, x=x, part=np.zeros(3, np.int32))
    assert np.array_equal(got["part"], np.bitwise_xor.reduce(x.reshape(3, 8192), 1))


def test_gather_by_nccl(ref):
    """Alone the part is that of all ranks; of several the library has put them one after the other."""
    g = rng()
    part, made = normal(g, 3, 8), normal(g, 2, 3, 8)
    step, several = np.array([3, 3, 0, 0], np.int32), np.array([2] + [0] * 63, np.int32)
    for peers, of in ((np.zeros(64, np.int32), [part, part]), (several, list(made))):
        all_of = made.reshape(6, 8).copy()
        got = ref("gather_nccl", {"RANKS": 2}, step=step, part=part, peers=peers, all=all_of, z=blank(3, 16))
        assert np.array_equal(got["z"], np.concatenate(of, axis=1))
        assert np.array_equal(got["all"], np.concatenate(of))


def test_sum_by_nccl(ref):
    """Alone the part is the sum; of several ranks the library has made it."""
    g = rng()
    part, residual, made = normal(g, 3, 8), normal(g, 3, 8), normal(g, 3, 8)
    step, several = np.array([3, 3, 0, 0], np.int32), np.array([2] + [0] * 63, np.int32)
    for peers, want in ((np.zeros(64, np.int32), part), (several, made)):
        got = ref("sum_nccl", step=step, part=part, residual=residual, peers=peers, sum=made.copy(), z=blank(3, 8))
        assert np.array_equal(got["z"], want + residual) and np.array_equal(got["sum"], want)
