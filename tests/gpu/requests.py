"""Requests on a GPU, half of them masked, drawn again by numpy from its own scores: python tests/gpu/requests.py PLAN off|mtp|mixed [TOLERANCE]

Scores come from the kernels of prompts, answers from those of decoding and, in mixed steps, of prompts of other buckets,
so two scores that lie close may change places: one token in twenty may be another, and log probabilities may be
TOLERANCE (0.25) off. With inf, for plans whose kernels quantise rows or route them to experts, neither is bounded. Bans,
least lengths, ends and lengths, how many alternatives there are, and the drawn token's among them, hold exactly.
"""

import pathlib
import sys
import tempfile

import numpy as np

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(REPO / "tests" / "cpu"))
from drawing import answer, check, some_requests  # noqa: E402

tolerance = float(sys.argv[3]) if len(sys.argv) > 3 else 0.25
n_tokens = n_others = n_top = 0
with tempfile.TemporaryDirectory() as folder:
    for seed in range(4):
        g = np.random.default_rng(seed)
        plan, how, where = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(folder)
        plan_info, _, _ = answer(REPO / "build", where, plan, "cuda", how, [{"tokens": [5, 6], "max_new": 1}])
        requests = list(some_requests(g, plan_info["vocab"], 24))
        for request in requests[1::2]:  # by masks of one token in 2 to 60
            request |= {"mask": int(g.integers(2, 60))}
        _, made, scores = answer(REPO / "build", where, plan, "cuda", how, requests)
        for request, events, of in zip(requests, made, scores):
            n_others += check(request, plan_info, events, of, tolerance)
            n_tokens += len(events)
            n_top += sum(len(e["top"]) for e in events)
print(f"{n_tokens} tokens, {n_others} of them others, {n_top} alternatives")
sys.exit(n_others * 20 > n_tokens and tolerance < float("inf"))
