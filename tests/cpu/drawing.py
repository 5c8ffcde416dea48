"""How tokens are drawn, by numpy from the definitions in runtime/cpu/ref_slots.c, and requests that are drawn again.

What atlas_request_start takes is run by tests/cpu/request_run.c; `check` draws each token of an answer anew from the
scores of atlas_score: penalties, bias, least length, temperature, cuts and Philox's noise.
"""

from __future__ import annotations

import json
import subprocess

import numpy as np

RUNNING, STOP, LENGTH = 0, 1, 2
DEFAULTS = {
    "min_new": 0,
    "ignore_stops": 0,
    "top_logprobs": 0,
    "top_k": 0,
    "temperature": 0,
    "top_p": 1,
    "min_p": 0,
    "repetition": 1,
    "presence": 0,
    "frequency": 0,
    "seed": 0,
    "stops": [],
    "bias": {},
    "mask": 0,
}


def philox(counter, key):
    """Philox4x32-10 with Python integers, from the paper's definition."""
    c, k = list(counter), list(key)
    for _ in range(10):
        p0, p1 = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(p1 >> 32) ^ c[1] ^ k[0], p1 & 0xFFFFFFFF, (p0 >> 32) ^ c[3] ^ k[1], p0 & 0xFFFFFFFF]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c


def gumbel(n, position, seed):
    key = [seed & 0xFFFFFFFF, seed >> 32]
    words = [philox([v, position, 0, 0], key) for v in range((n + 3) // 4)]
    x = np.array(sum(words, [])[:n], np.float64)
    return -np.log(-np.log1p(-np.minimum((x + 0.5) / 2**32, 1 - 2**-24)))


def kept_by(z, top_k=0, top_p=1.0, min_p=0.0):
    """Which ids stay, in the order top-k, top-p, min-p, by sorting."""
    keep = np.ones(len(z), bool)
    if top_k:
        keep &= z >= np.sort(z)[::-1][min(top_k, len(z)) - 1]
    if top_p < 1:
        p = np.where(keep, np.exp(z - z.max()), 0)
        p /= p.sum()
        order = np.argsort(-z, kind="stable")
        order = order[keep[order]]
        mass = np.cumsum(p[order])
        keep &= z >= z[order[np.searchsorted(mass, np.float32(top_p))]]
    if min_p:
        keep &= np.exp(z - z.max()) >= np.float32(min_p)
    return keep


def line_of(request):
    words = {k: v for k, v in request.items() if k not in ("stops", "bias", "tokens")}
    words["tokens"] = ",".join(map(str, request["tokens"]))
    if request.get("stops"):
        words["stops"] = ",".join(map(str, request["stops"]))
    if request.get("bias"):
        words["bias"] = ",".join(f"{t}:{v}" for t, v in request["bias"].items())
    return " ".join(f"{k}={v}" for k, v in words.items())


def answer(build_dir, folder, plan, device, how, requests):
    """What the plan says of itself, each request's events, and the scores of its text; how: off, mtp or mixed."""
    done = subprocess.run(
        [build_dir / "tests" / "request_run", plan, device, how, folder / "scores"],
        input="\n".join(map(line_of, requests)) + "\n",
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr
    plan_info, *events = map(json.loads, done.stdout.splitlines())
    made = [[e for e in events if e["request"] == i] for i in range(len(requests))]
    scores, at, out = np.fromfile(folder / "scores", np.float32).reshape(-1, plan_info["vocab"]), 0, []
    for request, of in zip(requests, made):
        n = len(request["tokens"]) + len(of) - 1
        out.append(scores[at : at + n])
        at += n
    assert at == len(scores)
    return plan_info, made, out


def some_requests(g, vocab, n):
    for _ in range(n):
        r = {
            "tokens": g.integers(3, vocab, g.integers(4, 20)).tolist(),
            "max_new": int(g.integers(6, 22)),
            "seed": int(g.integers(1 << 40)),
            "top_logprobs": int(g.choice([0, 0, 1, 5, 20])),
        }
        if g.random() < 0.7:
            r |= {
                "temperature": float(g.choice([0.7, 1, 1.6])),
                "top_p": float(g.choice([1, 0.9, 0.5])),
                "top_k": int(g.choice([0, 0, 5, 40])),
                "min_p": float(g.choice([0, 0.05])),
            }
        if g.random() < 0.4:
            r |= {"repetition": 1.25, "presence": 0.5, "frequency": 0.25}
        if g.random() < 0.8:
            tokens = g.permutation(vocab)[: g.integers(1, min(vocab, 300))].tolist()
            r["bias"] = {t: float(g.choice([-np.inf, -100, -3, 0.5, 2, 5])) for t in tokens}
        if g.random() < 0.7:
            r["stops"] = g.integers(0, vocab, g.integers(20, 65)).tolist()
        yield r | {"min_new": int(g.choice([0, 0, 3, 10, 40])), "ignore_stops": int(g.integers(2))}


def penalised(scores, said, prompt, r):
    """Scores in float32, one rounding each."""
    logits = scores.copy()
    for v in {v for v in [*said, *prompt] if v < len(scores)}:  # a prompt may have ids that are never drawn
        logits[v] = (
            logits[v] / np.float32(r["repetition"]) if logits[v] > 0 else logits[v] * np.float32(r["repetition"])
        )
        if said.count(v):
            logits[v] = logits[v] - np.float32(r["presence"]) - np.float32(r["frequency"]) * np.float32(said.count(v))
    return logits


def check(request, plan_info, events, scores, tolerance):
    """Everything but which token was drawn must hold; log probabilities and ranks within the tolerance. Returns how many
    tokens are not those that numpy draws."""
    r, n, prompt = DEFAULTS | request, plan_info["drawable"], request["tokens"]
    ends = set(r["stops"]) | (set() if r["ignore_stops"] else set(plan_info["stops"]))
    said, n_others = [], 0
    for k, e in enumerate(events):
        logits = penalised(scores[len(prompt) + k - 1][:n], said, prompt, r)
        biased = logits.copy()
        for token, value in r["bias"].items():
            if token < n:
                biased[token] += np.float32(value)
        if r["mask"]:
            allowed = (np.arange(n) * 7919 + (len(prompt) + k) * 104729) % r["mask"] == 0
            biased[~allowed] = -np.inf
        if k < r["min_new"]:
            biased[[t for t in ends if 0 <= t < n]] = -np.inf
        if r["temperature"]:
            z = (biased / np.float32(r["temperature"])).astype(np.float64)
            keep = kept_by(z, r["top_k"], r["top_p"], r["min_p"])
            drawn = int(np.where(keep, z + gumbel(n, len(prompt) + k, r["seed"]), -np.inf).argmax())
        else:
            drawn = int(biased.argmax())
        token = e["token"]
        n_others += token != drawn
        assert 0 <= token < n and biased[token] > -np.inf, (k, e)
        exact = logits.astype(np.float64)
        exact -= np.log(np.exp(exact - exact.max()).sum()) + exact.max()
        order = np.lexsort((np.arange(n), -logits))[: r["top_logprobs"]]
        top = [t for t, _ in e["top"]]
        assert abs(e["logprob"] - exact[token]) < tolerance
        assert len(set(top)) == len(top) == min(r["top_logprobs"], n)
        assert (np.abs(np.array([p for _, p in e["top"]]) - exact[top]) <= tolerance).all()
        assert (np.abs(exact[top] - exact[order]) <= tolerance).all()
        assert all(p == e["logprob"] for t, p in e["top"] if t == token)
        said.append(token)
        is_last = k + 1 == len(events)
        assert e["finish"] == (STOP if token in ends else LENGTH if is_last else RUNNING), (k, e)
        assert is_last or token not in ends
    assert len(events) == r["max_new"] or said[-1] in ends
    return n_others
