"""One-stream decode beside `transformers` on the same card, A-B-A-B in one run.

    python tests/gpu/peer_transformers.py BUILD CONFIG PLAN

CONFIG is a config.json, PLAN was compiled for it with random weights. Both sides read a prompt of 128 random tokens
and then make 512 greedy ones (context 128 to 640), in bf16. The peer is a model of CONFIG with random weights, a
static KV cache, its decode step compiled by torch.compile (reduce-overhead: CUDA graphs), tokens kept on the device.
Each side runs twice, in turns; each run is the best of two passes after a warm-up. What is printed: the median of each
side, its spread (the two runs over each other) and the ratio. A spread above 3 % makes the comparison void: exit 1.
"""

import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM, StaticCache

PROMPT, NEW, PASSES = 128, 512, 2


def ours(build, plan, ids):
    rates = []
    for _ in range(PASSES):
        done = subprocess.run(
            [
                build / "atlas",
                "run",
                plan,
                "--tokens",
                ",".join(map(str, ids)),
                "-n",
                str(NEW),
                "--temperature",
                "0",
                "--device",
                "cuda",
                "--json",
            ],
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise SystemExit(f"atlas run: exit {done.returncode}\n{done.stderr}")
        rates.append(float(re.search(r"([0-9.]+) tokens/s", done.stderr).group(1)))
    return max(rates)


class Peer:
    def __init__(self, config):
        torch.manual_seed(1)
        self.config = AutoConfig.for_model(**json.loads(config.read_text()))
        with torch.device("cuda"):
            self.model = AutoModelForCausalLM.from_config(self.config, dtype=torch.bfloat16).eval()
        self.step = torch.compile(self.one, mode="reduce-overhead", fullgraph=True)

    def one(self, token, position, cache):
        logits = self.model(
            token, cache_position=position, position_ids=position[None], past_key_values=cache, use_cache=True
        ).logits
        return logits[:, -1:].argmax(-1)

    @torch.inference_mode()
    def rate(self, ids, new=NEW):
        cache = StaticCache(config=self.config, max_cache_len=PROMPT + NEW + 1)
        at = torch.arange(len(ids), device="cuda")
        token = self.one(torch.tensor([ids], device="cuda"), at, cache)
        position = torch.tensor([len(ids)], device="cuda")
        torch.cuda.synchronize()
        start = time.perf_counter()
        for _ in range(new):
            token = self.step(token, position, cache).clone()
            position += 1
        torch.cuda.synchronize()
        return new / (time.perf_counter() - start)


def main():
    build, config, plan = (pathlib.Path(a).resolve() for a in sys.argv[1:])
    vocab = json.loads(config.read_text())["vocab_size"]
    ids = torch.randint(0, vocab, (PROMPT,), generator=torch.Generator().manual_seed(2)).tolist()
    peer = Peer(config)
    peer.rate(ids, 16)
    peer.rate(ids, 16)
    ours(build, plan, ids)
    runs = {"atlas": [], "transformers": []}
    for _ in range(2):
        runs["atlas"].append(ours(build, plan, ids))
        runs["transformers"].append(max(peer.rate(ids) for _ in range(PASSES)))
    print(
        f"{config.stem}, bf16, one stream, greedy, context {PROMPT} to {PROMPT + NEW}; transformers "
        f"{transformers.__version__}, torch {torch.__version__}, static cache, torch.compile reduce-overhead"
    )
    worst = 0.0
    for name, rates in runs.items():
        spread = max(rates) / min(rates) - 1
        worst = max(worst, spread)
        print(
            f"{name:13s} {statistics.median(rates):8.1f} tok/s   runs {', '.join(f'{r:.1f}' for r in rates)}   "
            f"spread {100 * spread:.1f} %"
        )
    ratio = statistics.median(runs["atlas"]) / statistics.median(runs["transformers"])
    print(f"ratio {ratio:.2f}" + ("" if worst <= 0.03 else f": void, runs of one side are {100 * worst:.1f} % apart"))
    return worst > 0.03


if __name__ == "__main__":
    sys.exit(main())
