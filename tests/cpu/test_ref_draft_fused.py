"""Fused ops of steps that draft and verify, against numpy formulas written from artifacts/ops.h; draws, whose formula is
that of op draw, against that op."""

from __future__ import annotations

import numpy as np
import pytest

from test_ref_ops import (  # noqa: F401  (ref: a fixture)
    STEP,
    blank,
    mask_words,
    close,
    heads_of_step,
    normal,
    np_rmsnorm,
    ref,
    rng,
    rule_words,
)

EPS, NORMS = 1e-5, {"EPS": 1e-5, "NORM_ONE": 1}


def ints(*values):
    return np.array(values, np.int32)


def head(g, cols):
    """What a head reads besides rows: table, its two norms."""
    return {"table": normal(g, 9, cols), "embedding_norm": normal(g, cols), "hidden_norm": normal(g, cols)}


def joined(weights, tokens, rows):
    """Both normed, side by side, as a head reads them."""
    return np.concatenate(
        (
            np_rmsnorm(weights["table"][tokens].astype(np.float64), weights["embedding_norm"], EPS, 1),
            np_rmsnorm(np.asarray(rows, np.float64), weights["hidden_norm"], EPS, 1),
        ),
        1,
    )


def test_embed_verify(ref):  # noqa: F811
    table = normal(rng(), 13, 4)
    got = ref(
        "embed_verify",
        row_slot=ints(2, 2, 2, 0, 0, 0, -1, -1, -1),
        slot_token=ints(-1, 5, 7),
        slot_len=ints(9, 8, 40),
        slot_draft=ints([1, 2], [3, 4], [11, 12]),
        table=table,
        row_token=blank(9, kind=np.int32),
        row_pos=blank(9, kind=np.int32),
        x=blank(9, 4),
    )
    assert got["row_token"].tolist() == [7, 11, 12, 0, 0, 0, 0, 0, 0]
    assert got["row_pos"].tolist() == [40, 41, 42, 0, 1, 2, 0, 0, 0]
    assert np.array_equal(got["x"], table[[7, 11, 12, 0, 0, 0, 0, 0, 0]])


def test_draft_first(ref):  # noqa: F811
    """Slot 0 has ended, slot 1 never had a token; the third row is idle."""
    g = rng()
    weights, held = head(g, 12), normal(g, 3, 12)
    got = ref(
        "draft_first",
        NORMS,
        row_slot=ints(2, 0, -1),
        slot_token=ints(-1, 5, 7),
        slot_len=ints(9, 0, 40),
        held=held,
        row_token=blank(3, kind=np.int32),
        row_pos=blank(3, kind=np.int32),
        draft_len=blank(3, kind=np.int32),
        z=blank(3, 24),
        **weights,
    )
    assert got["row_token"].tolist() == [7, 0, 0] and got["row_pos"].tolist() == [39, 0, 0]
    assert got["draft_len"].tolist() == [8, 0, 39]
    close(got["z"], joined(weights, [7, 0, 0], np.stack((held[2], held[0], np.zeros(12)))), 1e-6)


def test_draft_next(ref):  # noqa: F811
    g = rng()
    weights, x, norm = head(g, 12), normal(g, 3, 12), normal(g, 12)
    got = ref("draft_next", NORMS, x=x, norm=norm, row_token=ints(3, 0, 8), z=blank(3, 24), **weights)
    close(got["z"], joined(weights, [3, 0, 8], np_rmsnorm(x.astype(np.float64), norm, EPS, 1)), 1e-6)


@pytest.mark.parametrize("lengths", [None, [8, 9, 6]])
def test_follow_rows(ref, lengths):  # noqa: F811
    """Held is a slot's last row, or that before its length; the last row is beyond the step."""
    g = rng()
    weights, x, norm, held = head(g, 12), normal(g, 6, 12), normal(g, 12), normal(g, 3, 12)
    got = ref(
        "follow_rows",
        NORMS,
        step=ints(5, 0, 0, 0),
        x=x,
        norm=norm,
        row_next=ints(3, 0, 8, 1, 0, 2),
        held=held,
        row_slot=ints(1, 1, 1, 0, -1, 2),
        row_pos=ints(7, 8, 9, 3, 0, 5),
        z=blank(6, 24),
        slot_len=None if lengths is None else ints(*lengths),
        **weights,
    )
    rows = np_rmsnorm(x.astype(np.float64), norm, EPS, 1)
    close(got["z"][:4], joined(weights, [3, 0, 8, 1], rows[:4]), 1e-6)
    want = (rows[3], rows[2], held[2]) if lengths is None else (held[0], rows[1], held[2])
    close(got["held"], np.stack(want), 1e-6)


@pytest.mark.parametrize("norms, rotate", [(False, 0), (True, 0), (True, 1)])
def test_keys_write(ref, norms, rotate):  # noqa: F811
    """What rope_write makes of k and v, from rows that hold these alone."""
    attrs, operands, paged, q, kv = heads_of_step(norms)
    attrs["ROTATE"] = rotate
    if rotate:
        kv = ref("rope_write", attrs, **operands, q=blank(*q.shape))["kv"]
        assert not np.allclose(kv, paged.kv)
    cols = attrs["NH"] * attrs["HDIM"]
    keys = operands["qkv"][:, cols:].copy()
    left_out = ("qkv", "q_norm")
    got = ref(
        "keys_write",
        {k: v for k, v in attrs.items() if k != "NH"},
        keys=keys,
        **{k: v for k, v in operands.items() if k not in left_out},
    )
    close(got["kv"], kv, 1e-6)


def drawing(g, rows, vocab):
    """Rows of three slots, the second ended; greedy, drawn, greedy with a penalty on what was said and drafted."""
    sampling = np.zeros((3, 8), np.float32)
    sampling[:, 1] = sampling[:, 3] = 1
    sampling[1, 0], sampling[2, 5] = 0.8, 3
    counts = np.zeros((3, vocab), np.int32)
    counts[2, 4] = 2
    limits = np.zeros((3, 8), np.int32)
    limits[:, 3] = 100
    return dict(
        step=ints(rows, 0, 0, 0),
        rules=rule_words(3, 0, ()),
        logits=normal(g, rows, vocab),
        best=blank(rows, 1, 2),
        best_id=np.zeros((rows, 1), np.int32),
        sampling=sampling,
        limits=limits,
        counts=counts,
        slot_draft=ints([1, 2], [3, 4], [5, 6]),
    )


@pytest.mark.parametrize("ended", [False, True])
def test_draw_best(ref, ended):  # noqa: F811
    operands = drawing(rng(), 6, 8) | dict(
        row_slot=ints(2, 2, 0, 0, 1, -1),
        row_pos=ints(9, 10, 4, 5, 7, 0),
        slot_token=ints(7, -1 if ended else 3, 2),
        slot_len=ints(4, 7, 9),
    )
    out = dict(drawn=blank(6, kind=np.int32), drawn_logprob=blank(6))
    operands["masks"] = mask_words(np.arange(24).reshape(3, 8) % 2 == 0)
    operands["limits"][1, 7] = 1 << 17
    got = ref("draw_best", {"N_VALID": 7, "AHEAD": 1}, **operands, **out)
    rest = {k: v for k, v in operands.items() if k not in ("best", "best_id")}
    want = ref("draw", {"N_VALID": 7, "AHEAD": 1}, **rest, **out)
    assert np.array_equal(got["drawn"], want["drawn"]) and np.array_equal(got["drawn_logprob"], want["drawn_logprob"])
    assert got["drawn"][2:4].tolist() == operands["logits"][2:4, :7].argmax(1).tolist()  # greedy
    penalised = operands["logits"][:2, :7].copy()
    penalised[:, 4] -= 6  # 3 for each time it was said
    penalised[1, 5] -= 3  # the draft before it counts
    assert got["drawn"][:2].tolist() == penalised.argmax(1).tolist()
    assert got["drawn"][4] % 2 == 0


@pytest.mark.parametrize("ids", [[0, 1, 2, 3, 4, 5], [1, 2, 4, 5, 8, 9]], ids=["first", "listed"])
@pytest.mark.parametrize("top_k, top_p, min_p", [(0, 1, 0), (3, 1, 0), (0, 0.7, 0.1)])
def test_draw_of_some_ids(ref, ids, top_k, top_p, min_p):  # noqa: F811
    """What it is of all ids where the others can't be: tokens, log probabilities, penalties, noise."""
    g, vocab, rows = rng(5), 12, 300
    operands = drawing(g, rows, vocab) | dict(
        row_slot=np.resize(ints(0, 1, 2), rows),
        slot_token=ints(7, 3, 2),
        slot_len=ints(4, 7, 9),
        row_pos=np.resize(ints(4, 7, 9, 5, 8, 10), rows),
    )
    operands["sampling"][:, 0], operands["sampling"][:, 1], operands["sampling"][:, 2] = (0, 0.8, 1.3), top_p, min_p
    operands["sampling"][1:, 3:6] = 1.3, 0.4, 0.6
    operands["limits"][:, 0], operands["limits"][:, 1] = top_k, (5, 6, 7)
    operands["counts"][:, ids[3]] = 1, 2, (1 << 30) + 1
    del operands["best"], operands["best_id"]
    out = dict(drawn=blank(rows, kind=np.int32), drawn_logprob=blank(rows))
    few = operands | dict(logits=operands["logits"][:, ids].copy(), ids=None if ids[-1] == 5 else ints(*ids))
    operands["logits"][:, [v for v in range(vocab) if v not in ids]] = -np.inf
    got, want = (
        ref("draw", {"N_VALID": 6, "AHEAD": 2}, **few, **out),
        ref("draw", {"N_VALID": 12, "AHEAD": 2}, **operands, **out),
    )
    assert set(got["drawn"]) <= set(ids) and len(set(got["drawn"])) >= 5
    assert np.array_equal(got["drawn"], want["drawn"])
    close(got["drawn_logprob"], want["drawn_logprob"], 1e-6)
    greedy = got["drawn"][0::3]
    assert greedy.tolist() == np.array(ids)[few["logits"][0::3].argmax(1)].tolist()


@pytest.mark.parametrize("ids", [[0, 1, 2, 2, 5, 6], [0, 1, 2, 4, 5, 12], [-1, 1, 2, 4, 5, 6]])
def test_a_table_that_is_none_draws_nothing(ref, ids):  # noqa: F811
    operands = drawing(rng(), 2, 12) | dict(
        row_slot=ints(0, 2), slot_token=ints(7, 3, 2), slot_len=ints(4, 7, 9), row_pos=ints(4, 9), ids=ints(*ids)
    )
    del operands["best"], operands["best_id"]
    operands["logits"] = operands["logits"][:, :6].copy()
    got = ref("draw", {"N_VALID": 6, "AHEAD": 2}, **operands, drawn=blank(2, kind=np.int32), drawn_logprob=blank(2))
    assert got["drawn"].tolist() == [0, 0]


def test_draw_draft_of_listed_ids(ref):  # noqa: F811
    operands = drawing(rng(2), 3, 8) | dict(row_slot=ints(2, 0, 1), slot_token=ints(7, -1, 2), slot_len=ints(4, 7, 9))
    operands |= dict(logits=operands["logits"][:, :5].copy(), ids=ints(0, 2, 3, 5, 7))
    operands["logits"][0, 3] = operands["logits"][0].max() + 1
    got = ref(
        "draw_draft",
        {"N_VALID": 5, "AHEAD": 2},
        **operands,
        row_token=ints(1, 1, 1),
        row_pos=ints(9, 3, 0),
        draft_len=ints(3, 6, 9),
    )
    penalised = operands["logits"].copy()
    penalised[0, 3] -= 3  # 5 is slot 2's draft before; 4, which was said, has no column
    best = operands["ids"][penalised.argmax(1)]
    assert got["row_token"].tolist()[:2] == best[:2].tolist()
    assert got["slot_draft"].tolist() == [[best[1], 2], [3, 4], [5, best[0]]]


def test_draw_draft(ref):  # noqa: F811
    """Slot 2 keeps its second draft and slot 0 its first; slot 1 has ended, and the last row is idle."""
    operands = drawing(rng(2), 4, 8) | dict(
        row_slot=ints(2, 0, 1, -1), slot_token=ints(7, -1, 2), slot_len=ints(4, 7, 9)
    )
    operands["sampling"][:, 5] = 0
    got = ref(
        "draw_draft",
        {"N_VALID": 7, "AHEAD": 2},
        **operands,
        row_token=ints(1, 1, 1, 1),
        row_pos=ints(9, 3, 0, 0),
        draft_len=ints(3, 6, 9),
    )
    best = operands["logits"][:, :7].argmax(1)
    assert got["slot_draft"].tolist() == [[best[1], 2], [3, 4], [5, best[0]]]
    assert got["row_token"].tolist()[:2] == best[:2].tolist() and got["row_pos"].tolist()[:2] == [10, 4]
    assert got["draft_len"].tolist() == [4, 6, 10]
