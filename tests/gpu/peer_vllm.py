#!/usr/bin/env python3
"""Many streams, prompts and the start beside vLLM, on the same card in one run.

    tests/gpu/peer_vllm.py [--streams 1,16,64] [--prompts 2048,8192] [--temperature T] BUILD CONFIG PLAN

CONFIG is a config.json, PLAN was compiled for it with random weights and has room for the streams, for example by
`tests/gpu/streams.sh plans many`. vLLM makes random weights too (load_format="dummy"), with its own defaults but for
prefix caching, which is off. Decode: tok/s of all streams together after prompts of 128 random token ids, from the
time of 65 tokens less the time of 1; the median of three. Prompts: tok/s until the first token. Start: from
construction to the first token, without imports. The table is what tests/gpu/results/peer-vllm.txt has.

Exit code: 0 measured; 5 vLLM is not installed, or `atlas bench` fails.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import tempfile
import time

PROMPT, NEW, REPS = 128, 64, 3


def names(streams, prompts):
    """The rows, as `atlas bench --only` names them."""
    return [f"tg{NEW}@{PROMPT}x{n}" for n in streams] + [f"pp{n}" for n in prompts]


def measure_atlas(build, plan, rows, temperature):
    """{row: tok/s} of the rows for which the plan has room; the start in seconds."""
    with tempfile.NamedTemporaryFile(suffix=".json") as out:
        command = [
            build / "atlas",
            "bench",
            plan,
            "--only",
            ",".join(rows),
            "--tokens",
            NEW,
            "--temperature",
            temperature,
            "--json",
            out.name,
        ]
        done = subprocess.run([*map(str, command), "-q"], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if done.returncode:
            print(f"peer_vllm.py: atlas bench ends with exit code {done.returncode}: {done.stdout}", file=sys.stderr)
            raise SystemExit(5)
        result = json.loads(pathlib.Path(out.name).read_text())
    start = sum(result["start"][key] for key in ("open_ms", "session_ms", "first_token_ms")) / 1e3
    return {row["name"]: row["tokens_s"] for row in result["rows"] if "tokens_s" in row}, start


class Vllm:
    def __init__(self, vllm, config, streams, prompts):
        self.vllm, self.vocab = vllm, config.get("text_config", config)["vocab_size"]
        self.random = random.Random(1)
        with tempfile.TemporaryDirectory() as folder:
            pathlib.Path(folder, "config.json").write_text(json.dumps(config))
            start = time.perf_counter()
            self.llm = vllm.LLM(
                model=folder,
                load_format="dummy",
                skip_tokenizer_init=True,
                enable_prefix_caching=False,
                max_num_seqs=max([*streams, 1]),
                max_model_len=max([*prompts, PROMPT]) + NEW + 8,
            )
            self.seconds(1, PROMPT, 1, 0)
            self.start = time.perf_counter() - start

    def seconds(self, n_streams, n_prompt, n_tokens, temperature):
        """Wall time of one batch; every stream makes n_tokens."""
        prompts = [
            {"prompt_token_ids": [self.random.randrange(self.vocab) for _ in range(n_prompt)]} for _ in range(n_streams)
        ]
        how = self.vllm.SamplingParams(temperature=temperature, max_tokens=n_tokens, ignore_eos=True, detokenize=False)
        start = time.perf_counter()
        made = self.llm.generate(prompts, how, use_tqdm=False)
        took = time.perf_counter() - start
        if any(len(one.outputs[0].token_ids) != n_tokens for one in made):
            raise SystemExit("peer_vllm.py: vLLM ended an answer early")
        return took

    def rates(self, streams, prompts, temperature):
        found = {}
        for n in streams:
            self.seconds(n, PROMPT, 1 + NEW, temperature)  # warm
            found[f"tg{NEW}@{PROMPT}x{n}"] = statistics.median(
                n * NEW / (self.seconds(n, PROMPT, 1 + NEW, temperature) - self.seconds(n, PROMPT, 1, temperature))
                for _ in range(REPS)
            )
        for n in prompts:
            self.seconds(1, n, 1, temperature)
            found[f"pp{n}"] = n / statistics.median(self.seconds(1, n, 1, temperature) for _ in range(REPS))
        return found


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description="many streams beside vLLM")
    parser.add_argument("--streams", type=numbers, default=[1, 16, 32, 64, 256])
    parser.add_argument("--prompts", type=numbers, default=[2048, 8192])
    parser.add_argument("--temperature", type=float, default=0)
    for name in ("build", "config", "plan"):
        parser.add_argument(name, type=pathlib.Path)
    args = parser.parse_args()
    try:
        import vllm
    except ImportError as error:
        print(f"peer_vllm.py: vLLM is not installed: {error}", file=sys.stderr)
        return 5
    config = json.loads(args.config.read_text())
    rows = names(args.streams, args.prompts)
    ours, our_start = measure_atlas(
        args.build, args.plan, rows, args.temperature
    )  # first: vLLM keeps the memory it takes
    peer = Vllm(vllm, config, args.streams, args.prompts)
    theirs = peer.rates(args.streams, args.prompts, args.temperature)
    print(f"{args.config.stem}, random weights, temperature {args.temperature:g}; vLLM {vllm.__version__}; tok/s")
    print(f"{'row':16s} {'vLLM':>10s} {'atlas':>10s} {'ratio':>7s}")
    for row in rows:
        mine = ours.get(row)
        print(
            f"{row:16s} {theirs[row]:10.0f} "
            + (f"{mine:10.0f} {mine / theirs[row]:7.2f}" if mine else f"{'-':>10s} {'-':>7s}")
        )
    print(f"{'start, seconds':16s} {peer.start:10.1f} {our_start:10.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
