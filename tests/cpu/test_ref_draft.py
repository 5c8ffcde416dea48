"""Ops of steps that draft and verify. What rows and states should be is said in numpy; what a verify step draws is that
of op sample, called for one row after the other as decoding does."""

from __future__ import annotations

import numpy as np
import pytest

from test_ref_ops import bf16, blank, mask_words, normal, ref, rng, rule_words  # noqa: F401  (ref is a fixture)


def ints(*values):
    return np.array(values, np.int32)


def test_verify_rows(ref):  # noqa: F811
    """Slot 2 with its drafts, slot 0, which has ended, and an idle slot."""
    got = ref(
        "verify_rows",
        row_slot=ints(2, 2, 2, 0, 0, 0, -1, -1, -1),
        slot_token=ints(-1, 5, 7),
        slot_len=ints(9, 8, 40),
        slot_draft=ints([1, 2], [3, 4], [11, 12]),
        row_token=blank(9, kind=np.int32),
        row_pos=blank(9, kind=np.int32),
    )
    assert got["row_token"].tolist() == [7, 11, 12, 0, 0, 0, 0, 0, 0]
    assert got["row_pos"].tolist() == [40, 41, 42, 0, 1, 2, 0, 0, 0]


def test_draft_rows(ref):  # noqa: F811
    got = ref(
        "draft_rows",
        row_slot=ints(2, 0, -1, 1),
        slot_token=ints(-1, 5, 7),
        slot_len=ints(9, 8, 40),
        row_token=blank(4, kind=np.int32),
        row_pos=blank(4, kind=np.int32),
    )
    assert got["row_token"].tolist() == [7, 0, 0, 5]
    assert got["row_pos"].tolist() == [39, 0, 0, 7]


def test_embed_next_token(ref):  # noqa: F811
    table = bf16(normal(rng(), 9, 4))
    got = ref("embed_next_token", row_next=ints(3, 0, 8), table=table, x=blank(3, 4), dtypes={"table": "bf16"})
    assert np.array_equal(got["x"], table[[3, 0, 8]])


def test_join(ref):  # noqa: F811
    x, y = normal(rng(), 3, 5), normal(rng(2), 3, 2)
    assert np.array_equal(ref("join", x=x, y=y, z=blank(3, 7))["z"], np.concatenate((x, y), 1))


def test_hold_and_recall(ref):  # noqa: F811
    x, held = normal(rng(), 6, 4), normal(rng(2), 3, 4)
    rows = {"step": ints(5, 0, 0, 0), "row_slot": ints(1, 1, 1, 0, -1, 2), "row_pos": ints(7, 8, 9, 3, 0, 5)}
    got = ref("hold", x=x, held=held, **rows)["held"]
    assert np.array_equal(got, np.stack((x[3], x[2], held[2])))  # the last row of each slot; slot 2 is beyond the step
    got = ref("hold", x=x, held=held, slot_len=ints(8, 9, 6), **rows)["held"]
    assert np.array_equal(got, np.stack((held[0], x[1], held[2])))  # the row before position 9; no row fits slot 0
    got = ref("recall", row_slot=ints(2, -1, 0), held=held, y=blank(3, 4))["y"]
    assert np.array_equal(got, np.stack((held[2], np.zeros(4), held[0])))


def versions(state, later, slot, version):
    return state[slot] if version == 0 else later[slot, version - 1]


@pytest.mark.parametrize("from_version", [0, 1, 2])
@pytest.mark.parametrize("taps", [1, 3])
def test_conv_verify(ref, taps, from_version):  # noqa: F811
    """Each version is what op causal_conv leaves behind so many rows; a step may be shorter than there are versions."""
    g, cols, n = rng(taps), 6, taps * 6
    x, w = normal(g, 6, cols), bf16(normal(g, cols, 1, taps + 1))
    conv, later = normal(g, 3, n), normal(g, 3, 2, n)
    got = ref(
        "conv_verify",
        {"TAPS": taps},
        step=ints(5, 0, 0, 0),
        x=x,
        w=w,
        row_slot=ints(2, 2, 2, 0, 0, 1),
        slot_version=ints(0, 0, from_version),
        conv=conv,
        conv_later=later,
        y=blank(6, cols),
        dtypes={"w": "bf16"},
    )
    assert not got["y"][5].any()
    for slot, first, rows, version in (2, 0, 3, from_version), (0, 3, 2, 0):
        state = conv.copy()
        state[slot] = versions(conv, later, slot, version)
        for j in range(rows):
            one = ref(
                "causal_conv",
                {"TAPS": taps},
                step=ints(1, 0, 0, 0),
                x=x[first + j : first + j + 1],
                w=w,
                row_slot=ints(slot),
                conv=state,
                y=blank(1, cols),
                dtypes={"w": "bf16"},
            )
            state = one["conv"]
            assert np.array_equal(got["y"][first + j], one["y"][0])
            assert np.array_equal(versions(got["conv"], got["conv_later"], slot, j), state[slot])
    assert np.array_equal(got["conv"][1], conv[1]) and np.array_equal(got["conv_later"][1], later[1])
    assert np.array_equal(got["conv_later"][0, 1], later[0, 1])


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("parts", [1, 2])
@pytest.mark.parametrize("from_version", [0, 1, 2])
def test_delta_verify(ref, parts, from_version, state_dtype):  # noqa: F811
    nk, nv, dk, dv = 1, 3, 4, 5
    g, n, attrs = rng(3), nv * dk * dv, {"NK": nk, "NV": nv, "DK": dk, "DV": dv}
    qkv, a, b = normal(g, 6, 2 * nk * dk + nv * dv), normal(g, 6, nv), normal(g, 6, nv)
    fixed = {"a_log": normal(g, nv), "dt_bias": normal(g, nv)}
    delta, later = normal(g, 3, n), normal(g, 3, 2, n)
    got = ref(
        "delta_verify",
        attrs,
        parts,
        step=ints(5, 0, 0, 0),
        qkv=qkv,
        a=a,
        b=b,
        row_slot=ints(2, 2, 2, 0, 0, 1),
        slot_version=ints(0, 0, from_version),
        delta=delta,
        delta_later=later,
        o=blank(6, nv * dv),
        state_dtype=state_dtype,
        **fixed,
    )
    assert not got["o"][5].any()
    for slot, first, rows, version in (2, 0, 3, from_version), (0, 3, 2, 0):
        state = delta.copy()
        state[slot] = versions(delta, later, slot, version)
        for j in range(rows):
            t = slice(first + j, first + j + 1)
            one = ref(
                "delta_rule",
                attrs,
                step=ints(1, 0, 0, 0),
                qkv=qkv[t],
                a=a[t],
                b=b[t],
                row_slot=ints(slot),
                delta=state,
                o=blank(1, nv * dv),
                state_dtype=state_dtype,
                **fixed,
            )
            state = one["delta"]
            assert np.array_equal(got["o"][first + j], one["o"][0])
            assert np.array_equal(versions(got["delta"], got["delta_later"], slot, j), state[slot])
    assert np.array_equal(got["delta"][1], delta[1]) and np.array_equal(got["delta_later"][1], later[1])


@pytest.mark.parametrize("state_dtype", ["f32", "bf16"])
@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize("from_version", [0, 2])
def test_delta_verify_step(ref, apart, from_version, state_dtype):  # noqa: F811
    """Row after row what delta_step does, from the slot's version on; the last slot's rows are cut off by the step."""
    g, nk, nv, dk, dv, taps, drafts = rng(5), 2, 4, 8, 6, 3, 2
    mixed, values = 2 * nk * dk + nv * dv, nv * dv
    attrs = {"NK": nk, "NV": nv, "DK": dk, "DV": dv, "TAPS": taps, "EPS": 1e-6}
    x = normal(g, 9, mixed + values + (0 if apart else 2 * nv))
    ba = normal(g, 9, 2 * nv) if apart else None
    fixed = {
        "conv_w": bf16(normal(g, mixed, 1, taps + 1)),
        "a_log": normal(g, nv),
        "dt_bias": normal(g, nv),
        "norm": normal(g, dv),
    }
    state = {"conv": normal(g, 3, taps * mixed), "delta": normal(g, 3, nv * dk * dv)}
    later = {f"{k}_later": normal(g, 3, drafts, a.shape[1]) for k, a in state.items()}
    got = ref(
        "delta_verify_step",
        attrs,
        step=ints(8, 0, 0, 0),
        x=x,
        ba=ba,
        row_slot=ints(2, 2, 2, -1, -1, -1, 0, 0, 0),
        slot_version=ints(0, 1, from_version),
        readers=np.zeros((9, nk), np.int32),
        y=blank(9, values),
        dtypes={"conv_w": "bf16"},
        state_dtype=state_dtype,
        **fixed,
        **state,
        **later,
    )
    for slot, first, rows, version in (2, 0, 3, from_version), (0, 6, 2, 0):
        now = {k: a.copy() for k, a in state.items()}
        for k in now:
            now[k][slot] = versions(state[k], later[f"{k}_later"], slot, version)
        for j in range(rows):
            t = slice(first + j, first + j + 1)
            one = ref(
                "delta_step",
                attrs,
                step=ints(1, 0, 0, 0),
                x=x[t],
                ba=ba[t] if apart else None,
                row_slot=ints(slot),
                readers=np.zeros((1, nk), np.int32),
                y=blank(1, values),
                dtypes={"conv_w": "bf16"},
                state_dtype=state_dtype,
                **fixed,
                **now,
            )
            now = {k: one[k] for k in now}
            assert np.array_equal(got["y"][first + j], one["y"][0])
            for k in now:
                assert np.array_equal(versions(got[k], got[f"{k}_later"], slot, j), now[k][slot])
    for k, a in state.items():
        assert np.array_equal(got[k][1], a[1]) and np.array_equal(got[f"{k}_later"][0, 1], later[f"{k}_later"][0, 1])
    assert not got["readers"].any()


@pytest.mark.parametrize("gated, rotate, window", [(0, 0, 0), (1, 0, 0), (0, 1, 0), (1, 1, 0), (0, 0, 2), (1, 1, 5)])
def test_attention_verify(ref, gated, rotate, window):  # noqa: F811
    """Row after row what attention_step does. Slot 0 has ended, and its length means nothing; the last row of slot 1 is
    cut off by the step."""
    g, nh, nkv, hdim, page = rng(6), 4, 2, 16, 4
    attrs = {
        "HDIM": hdim,
        "NH": nh,
        "NKV": nkv,
        "GATED": gated,
        "PAGE": page,
        "SCALE": 0.3,
        "WINDOW": window,
        "ROTARY": 12,
        "ROTATE": rotate,
        "ROPE_FACTOR": 1.1,
        "EPS": 1e-6,
        "NORM_ONE": 1,
    }
    qkv = normal(g, 12, (nh + 2 * nkv + gated * nh) * hdim)
    fixed = {
        "q_norm": normal(g, hdim),
        "k_norm": normal(g, hdim),
        "inv_freq": np.abs(normal(g, 6)),
        "page_table": ints([5, 0, 2], [1, 4, 3], [6, 7, 8]),
    }
    kv, lengths = normal(g, 9, 2, nkv, page, hdim), ints(7, 6, 3)

    def own(rows):
        return {
            "part": blank(rows, nh, 3, hdim),
            "part_ml": blank(rows, nh, 3, 2),
            "arrived": np.zeros((rows, nh), np.int32),
            "o": blank(rows, nh * hdim),
        }

    got = ref(
        "attention_verify",
        attrs | {"EACH": 3},
        step=ints(11, 0, 0, 0),
        qkv=qkv,
        kv=kv,
        slot_len=lengths,
        row_slot=ints(2, 2, 2, -1, -1, -1, 0, 0, 0, 1, 1, 1),
        slot_token=ints(-1, 5, 7),
        **fixed,
        **own(12),
    )
    for slot, first, rows, start in (2, 0, 3, 3), (0, 6, 3, 0), (1, 9, 2, 6):
        for j in range(rows):
            t = slice(first + j, first + j + 1)
            lengths[slot] = start + j
            one = ref(
                "attention_step",
                attrs,
                step=ints(1, 0, 0, 0),
                qkv=qkv[t],
                kv=kv,
                slot_len=lengths,
                row_slot=ints(slot),
                slot_token=ints(5, 5, 7),
                **fixed,
                **own(1),
            )
            kv = one["kv"]
            assert np.array_equal(got["o"][first + j], one["o"][0])
    assert np.array_equal(got["kv"], kv) and not got["arrived"].any()


def test_keep_draft(ref):  # noqa: F811
    """Slot 1 keeps its second draft, slot 0 its first; the third row is idle, slot 2 has ended long ago."""
    got = ref(
        "keep_draft",
        drawn=ints(5, -1, 9, 8),
        row_slot=ints(1, 0, -1, 2),
        slot_len=ints(6, 8, 30),
        slot_draft=ints([1, 2], [3, 4], [7, 7]),
        row_token=ints(0, 1, 2, 3),
        row_pos=ints(8, 5, 0, 0),
    )
    assert got["slot_draft"].tolist() == [[0, 2], [3, 5], [7, 7]]
    assert got["row_token"].tolist() == [5, 0, 2, 3]
    assert got["row_pos"].tolist() == [9, 6, 0, 0]


class Verify:
    """Two slots of four rows, each with logits of its own, drawn and accepted; and what decoding makes of them."""

    V = 12

    def __init__(
        self,
        ref,  # noqa: F811
        seed,
        hit,
        greedy=False,
        stops=(),
        capacity=100,
        ended=False,
        bad=None,  # noqa: F811
        rules=(),
        keeps_on=False,
        allowed=None,
    ):
        g, v = rng(seed), self.V
        self.ref, self.stops = ref, ints(*stops, -1)
        self.logits = 2 * normal(g, 8, v)
        if bad is not None:
            self.logits[bad] = np.nan
        self.sampling = np.tile(np.float32([0 if greedy else 0.8, 0.95, 0.01, 1.3, 0.5, 0.25, 0, 0]), (2, 1))
        self.limits = np.tile(ints(9, seed, 0, capacity, 0, 0, 0, 0), (2, 1))
        self.limits[0, 7] = len(rules) + (keeps_on << 16) + ((allowed is not None) << 17)
        bits = np.zeros((2, 4, v), bool)  # of each row
        if allowed is not None:
            bits[0, : len(allowed)] = allowed
        self.masks, later = mask_words(bits[:, 0]), mask_words(bits[:, 1:].reshape(6, v))
        self.masks_later = later.reshape(2, 3, -1)
        self.rules = rule_words(2, 0, rules)
        self.counts = g.integers(0, 2, (2, v)).astype(np.int32)
        self.slot_token, self.slot_len = ints(-1 if ended else 3, 4), ints(20, 62)
        self.row_slot, self.row_pos = ints(*[0] * 4, *[1] * 4), ints(*range(20, 24), *range(62, 66))
        self.plain = [self.decode(slot, 4) for slot in (0, 1)]
        self.drafts = np.zeros((2, 3), np.int32)
        for slot in (0, 1):  # what decoding makes, then another token
            made = [token for token, _, _ in self.plain[slot]] or [0]
            for i in range(3):
                right = i < hit[slot] and i < len(made)
                self.drafts[slot, i] = max(made[i], 0) if right else (max(made[min(i, len(made) - 1)], 0) + 1) % v

    def decode(self, slot, n):
        """Rows of the slot, sampled one after the other."""
        counts, token, length, out = self.counts.copy(), self.slot_token.copy(), self.slot_len.copy(), []
        ring = np.zeros((2, 256), np.int32)
        for j in range(n):
            t = 4 * slot + j
            got = self.ref(
                "sample",
                {"N_VALID": self.V},
                step=ints(1, 1, 0, 0),
                logits=self.logits[t : t + 1],
                out_row=ints(0),
                row_slot=ints(slot),
                row_pos=self.row_pos[t : t + 1],
                sampling=self.sampling,
                limits=self.limits,
                rules=self.rules,
                masks=np.where(np.arange(2)[:, None] == slot, self.masks_later[:, j - 1], 0) if j else self.masks,
                stop_tokens=self.stops,
                counts=counts,
                slot_token=token,
                slot_len=length,
                ring=ring,
            )
            counts, token, length, ring = (got[k] for k in ("counts", "slot_token", "slot_len", "ring"))
            entry = ring.reshape(2, 64, 4)[slot, (self.row_pos[t] + 1) % 64]
            if token[slot] < 0 and self.slot_token[slot] < 0:
                return []
            out.append((int(entry[1]), int(entry[2]) & 255, entry[3:].view(np.float32)[0]))
            if token[slot] < 0:
                break
        return out

    def run(self):
        tokens = np.stack([ints(t, *d) for t, d in zip(self.slot_token, self.drafts)]).reshape(8)
        fixed = {
            "step": ints(8, 8, 0, 0),
            "row_slot": self.row_slot,
            "row_pos": self.row_pos,
            "limits": self.limits,
            "rules": self.rules,
        }
        drawn = self.ref(
            "draw",
            {"N_VALID": self.V, "AHEAD": 1},
            logits=self.logits,
            sampling=self.sampling,
            masks=self.masks,
            masks_later=self.masks_later,
            counts=self.counts,
            slot_token=self.slot_token,
            slot_len=self.slot_len,
            slot_draft=self.drafts,
            drawn=blank(8, kind=np.int32),
            drawn_logprob=blank(8),
            **fixed,
        )
        got = self.ref(
            "accept",
            drawn=drawn["drawn"],
            drawn_logprob=drawn["drawn_logprob"],
            row_token=tokens,
            stop_tokens=self.stops,
            counts=self.counts,
            slot_token=self.slot_token,
            slot_len=self.slot_len,
            slot_version=ints(2, 2),
            ring=np.full((2, 256), -5, np.int32),
            row_next=blank(8, kind=np.int32),
            **fixed,
        )
        assert np.array_equal(got["row_next"], np.maximum(drawn["drawn"], 0))
        return got

    def check(self, hit):
        got, ring = self.run(), None
        ring = got["ring"].reshape(2, 64, 4)
        for slot in (0, 1):
            made = self.plain[slot]
            n = min(len(made), hit[slot] + 1)
            places = [(self.slot_len[slot] + 1 + i) % 64 for i in range(n)]
            assert (np.delete(ring[slot], places, 0) == -5).all()
            for i, place in enumerate(places):
                position, token, word, bits = ring[slot, place]
                assert (position, token) == (self.slot_len[slot] + 1 + i, made[i][0])
                assert word & 255 == (4 if i + 1 < n else made[i][1])
                assert np.array_equal(np.int32(bits).view(np.float32), made[i][2], equal_nan=True)
            change = np.zeros(self.V, int)
            for token, _, _ in made[:n]:
                change[token] += token >= 0
            assert np.array_equal(got["counts"][slot] - self.counts[slot], change)
            assert got["slot_len"][slot] == self.slot_len[slot] + n
            assert got["slot_version"][slot] == (n - 1 if n else 2)
            if n:
                assert got["slot_token"][slot] == (-1 if made[n - 1][1] else made[n - 1][0])
        return got


HITS = [(0, 0), (3, 0), (1, 2), (2, 3), (3, 3)]


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("hit", HITS)
def test_draw_and_accept(ref, hit, greedy):  # noqa: F811
    """The ring of slot 1 wraps."""
    for seed in range(4):
        Verify(ref, seed, hit, greedy).check(hit)


@pytest.mark.parametrize("hit", HITS)
def test_ends_among_accepted_rows(ref, hit):  # noqa: F811
    """A stop token, the end of the context, scores that are no numbers, a sequence that had ended before."""
    for seed in range(3):
        made = Verify(ref, seed, hit).plain
        for k in range(4):
            stop = made[0][k][0]
            assert any(done == 1 for _, done, _ in Verify(ref, seed, hit, stops=(stop,)).plain[0])
            Verify(ref, seed, hit, stops=(stop,)).check(hit)
            Verify(ref, seed, hit, capacity=21 + k).check(hit)
            Verify(ref, seed, hit, bad=k).check(hit)
        Verify(ref, seed, hit, ended=True).check(hit)
        Verify(ref, seed, (0, 0), bad=0).check((0, 0))


@pytest.mark.parametrize("greedy", [True, False])
def test_rules_in_rows_of_drafts(ref, greedy):  # noqa: F811
    """Each row has a position of its own: what is not drawn below one may be in the row after it."""
    ends = bans = 0
    for seed in range(40):
        g, hit = rng(900 + seed), HITS[seed % len(HITS)]
        rules = [
            (v, g.choice([0, 0, 2, -2, 50, -np.inf]), g.integers(19, 26), v % 5 == seed % 5)
            for v in g.permutation(12)[:8]
        ]
        how = dict(hit=hit, greedy=greedy, rules=rules, keeps_on=seed % 2 == 0, stops=(int(g.integers(12)),))
        v = Verify(ref, seed, **how)
        v.check(hit)
        ends += any(done == 1 and token == rule[0] and rule[3] for token, done, _ in v.plain[0] for rule in rules)
        for token, value, before, _ in rules:
            for j, (drawn, _, _) in enumerate(v.plain[0]):
                assert drawn != token or (value > -np.inf and 21 + j >= before)
                bans += drawn == token
    assert ends > 3 and bans > 9


@pytest.mark.parametrize("greedy", [True, False])
@pytest.mark.parametrize("n_masks", [1, 2, 3, 4])
def test_rows_of_a_masked_slot(ref, greedy, n_masks):  # noqa: F811
    """Each row draws by a mask of its own; a draft whose row has none counts for nothing; slot 1 goes on without."""
    for seed in range(4):
        allowed = [np.arange(12) % 3 == (seed + j) % 3 for j in range(n_masks)]
        for hit in HITS:
            v = Verify(ref, seed, hit, greedy, allowed=allowed)
            assert all(mask[token] for mask, (token, _, _) in zip(allowed, v.plain[0]))
            v.check((min(hit[0], n_masks - 1), hit[1]))


def test_rules_of_listed_columns(ref):  # noqa: F811
    """The head draws from columns of some ids: rules of others count for nothing."""
    logits, ids = normal(rng(), 1, 6), ints(1, 2, 4, 5, 8, 9)
    order = [int(ids[v]) for v in logits[0].argsort()[::-1]]

    def drawn(*rules):
        got = ref(
            "draw",
            {"N_VALID": 6, "AHEAD": 2},
            step=ints(1, 1, 0, 0),
            logits=logits,
            ids=ids,
            row_slot=ints(0),
            row_pos=ints(29),
            sampling=np.float32([[0, 1, 0, 1, 0, 0, 0, 0]]),
            limits=ints([0, 0, 0, 90, 0, 0, 0, len(rules)]),
            rules=rule_words(1, 0, rules),
            counts=ints([0] * 12),
            slot_token=ints(2),
            slot_len=ints(30),
            slot_draft=ints([0, 0]),
            drawn=ints(99),
            drawn_logprob=blank(1),
        )
        assert np.array_equal(got["logits"], logits)
        return int(got["drawn"][0])

    assert drawn() == order[0]
    assert drawn((0, 100, 0, 0), (3, 100, 0, 0), (10, 100, 0, 0), (11, 100, 0, 0), (-1, 100, 0, 0)) == order[0]
    assert drawn((order[0], -np.inf, 0, 0), (order[1], 0, 32, 0)) == order[2]
    assert drawn((order[0], -np.inf, 0, 0), (order[1], 0, 31, 0)) == order[1]
    for token in order:
        assert drawn((token, 100, 0, 0)) == token


def test_draws_of_the_head(ref):  # noqa: F811
    """AHEAD 2: by the random numbers of the position that the draft is for, penalised by the drafts before it."""
    logits = normal(rng(), 1, 12)
    common = dict(
        sampling=np.float32([[0.8, 1, 0, 1.5, 0, 0, 0, 0]]),
        limits=ints([0, 7, 0, 90, 0, 0, 0, 0]),
        counts=np.zeros((1, 12), np.int32),
        slot_token=ints(2),
        slot_len=ints(30),
        step=ints(1, 1, 0, 0),
        row_slot=ints(0),
        rules=rule_words(1, 0, ()),
    )
    for draft in range(12):
        for i in (0, 1):  # the first and the second draft
            got = ref(
                "draw",
                {"N_VALID": 12, "AHEAD": 2},
                logits=logits,
                row_pos=ints(29 + i),
                slot_draft=ints([draft, 5]),
                drawn=ints(99),
                drawn_logprob=blank(1),
                **common,
            )
            counts = common["counts"].copy()
            counts[0, draft] += i
            plain = common | {"counts": counts, "slot_len": ints(30 + i)}
            same = ref(
                "draw",
                {"N_VALID": 12, "AHEAD": 1},
                logits=logits,
                row_pos=ints(30 + i),
                slot_draft=ints([0, 0]),
                drawn=ints(99),
                drawn_logprob=blank(1),
                **plain,
            )
            assert np.array_equal(got["logits"], same["logits"]) and got["drawn"] == same["drawn"]


def test_nothing_is_drawn_for_prompts_that_are_scored(ref):  # noqa: F811
    logits = normal(rng(), 2, 5)
    got = ref(
        "draw",
        {"N_VALID": 5, "AHEAD": 1},
        step=ints(1, 1, 0, 1),
        logits=logits,
        row_slot=ints(0, 0),
        row_pos=ints(4, 5),
        sampling=np.ones((1, 8), np.float32),
        limits=ints([0] * 8),
        rules=rule_words(1, 0, ()),
        counts=ints([0] * 5),
        slot_token=ints(1),
        slot_len=ints(4),
        slot_draft=ints([1]),
        drawn=ints(9, 9),
        drawn_logprob=blank(2),
    )
    assert np.array_equal(got["logits"], logits) and not got["drawn"].any()


def test_acquire_starts_with_version_0(ref):  # noqa: F811
    zero = np.zeros((2, 8), np.int32)
    got = ref(
        "acquire",
        acquire=ints(0, 1),
        new_sampling=np.zeros((2, 8), np.float32),
        new_limits=zero,
        new_pages=ints([0], [0]),
        new_rules=np.zeros(1536, np.int32),
        rules=np.zeros((2, 1536), np.int32),
        slot_len=ints(3, 3),
        slot_token=ints(3, 3),
        counts=ints([1], [1]),
        sampling=np.zeros((2, 8), np.float32),
        limits=zero,
        page_table=ints([0], [0]),
        slot_version=ints(2, 2),
    )
    assert got["slot_version"].tolist() == [2, 0]
