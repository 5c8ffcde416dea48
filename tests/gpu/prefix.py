#!/usr/bin/env python3
"""The prefix cache of `atlas serve`, on and off: first tokens, the time of all requests, and whether texts are the same.

    tests/gpu/prefix.py PLAN                          one after the other and 64 at once, on the GPU
    tests/gpu/prefix.py PLAN --device cpu --requests 12 --shared 128 --own 20 --answer 4 --in-flight 1,4

Each request has the same first --shared tokens and --own of its own; the first one of a server reads all, and is not
counted. A row: tokens found, seconds of all, milliseconds to the first token on average, p50 and p99. With the cache the first token is
to come in the time of a prompt of --own tokens, and of the texts only as many may differ as the plan's numerics let differ
(docs/prefix-cache.md); in a plan with [numerics] invariant, and on the reference device, none: that is exit code 1.
Standard library alone.
"""

from __future__ import annotations

import argparse
import concurrent.futures
import http.client
import json
import pathlib
import random
import re
import subprocess
import sys
import time

REPO = pathlib.Path(__file__).resolve().parent.parent.parent


class Server:
    """`atlas serve` of the plan with --prefix-cache as given, from its start until `stop`."""

    def __init__(self, args, cache: str):
        command = [args.atlas, "serve", args.plan, "--device", args.device, "--port", "0", "--max-queue", "4096"]
        self.process = subprocess.Popen(
            [*command, "--prefix-cache", cache], stderr=subprocess.PIPE, stdout=subprocess.DEVNULL, text=True
        )
        self.port = 0
        for line in self.process.stderr:
            found = re.search(r'"listening","text":"http://[^"]*:(\d+)', line)
            self.port = int(found[1]) if found else self.port
            if '"event":"ready"' in line:
                break
        else:
            sys.exit("prefix.py: the server did not start")
        self.drain = concurrent.futures.ThreadPoolExecutor(1)
        self.drain.submit(lambda: [None for _ in self.process.stderr])

    def get(self, path: str) -> str:
        connection = http.client.HTTPConnection("127.0.0.1", self.port)
        connection.request("GET", path)
        return connection.getresponse().read().decode()

    def metric(self, name: str) -> float:
        return float(re.search(rf"^atlas_{name} (\S+)$", self.get("/metrics"), re.M)[1])

    def stop(self) -> None:
        self.process.terminate()
        if self.process.wait() != 0:
            sys.exit("prefix.py: the server ended with an error")


def ask(server: Server, prompt: list[int], n: int) -> tuple[float, str, int]:
    """(milliseconds to the first token, the text and its log probabilities, tokens that were found)."""
    fields = {"prompt": prompt, "max_tokens": n, "temperature": 0, "stream": True, "ignore_eos": True, "logprobs": 0}
    fields |= {"stream_options": {"include_usage": True}}
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    began, first, text, found = time.perf_counter(), 0.0, [], 0
    connection.request("POST", "/v1/completions", json.dumps(fields), {"Content-Type": "application/json"})
    answer = connection.getresponse()
    if answer.status != 200:
        sys.exit(f"prefix.py: {answer.status} {answer.read().decode()}")
    for line in answer:
        if line.startswith(b"data: {"):
            chunk = json.loads(line[6:])
            if chunk.get("usage"):
                found = chunk["usage"]["prompt_tokens_details"]["cached_tokens"]
            for choice in chunk["choices"]:
                logs = choice["logprobs"]
                if logs and logs["tokens"]:
                    first = first or time.perf_counter()
                    text.append(f"{logs['tokens']} {logs['token_logprobs']}")
    return 1e3 * (first - began), "\n".join(text), found


def row(args, cache: str, in_flight: int, prompts: list[list[int]]) -> tuple[list[str], float, bool]:
    """(texts, average milliseconds to the first token, whether `usage` and /metrics tell the same)."""
    server = Server(args, cache)
    ask(server, prompts[0][: args.shared] + [3] * args.own, 1)
    found = server.metric("prefix_cache_hits_total")
    began = time.perf_counter()
    with concurrent.futures.ThreadPoolExecutor(in_flight) as pool:
        answers = list(pool.map(lambda p: ask(server, p, args.answer), prompts))
    seconds = time.perf_counter() - began
    first = sorted(ms for ms, _, _ in answers)
    found, told = server.metric("prefix_cache_hits_total") - found, sum(n for _, _, n in answers)
    mean = sum(first) / len(first)
    print(
        f"{cache:<4} {in_flight:>9} {found:>9.0f} {seconds:>9.2f} {mean:>9.2f} {first[len(first) // 2]:>9.2f} "
        f"{first[len(first) * 99 // 100]:>9.2f}" + ("" if told == found else f" but usage tells {told}"),
        flush=True,
    )
    server.stop()
    return [text for _, text, _ in answers], mean, told == found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("plan")
    parser.add_argument("--atlas", default=str(REPO / "build" / "atlas"))
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--requests", type=int, default=200)
    parser.add_argument("--shared", type=int, default=1024)
    parser.add_argument("--own", type=int, default=64)
    parser.add_argument("--answer", type=int, default=16)
    parser.add_argument("--in-flight", default="1,64")
    parser.add_argument("--at-least", default="0,0", help="times that first tokens are to be sooner, on average")
    args = parser.parse_args()
    info = json.loads(subprocess.run([args.atlas, "info", args.plan, "--json"], capture_output=True, check=True).stdout)
    made = random.Random(1)
    shared = [made.randrange(3, info["vocab"]) for _ in range(args.shared)]
    prompts = [shared + [made.randrange(3, info["vocab"]) for _ in range(args.own)] for _ in range(args.requests)]
    print(f"{args.requests} prompts of {args.shared} shared and {args.own} own tokens, {args.answer} tokens of answer")
    print("cache in flight     found   seconds     first   first50   first99")
    differ, good = 0, True
    for in_flight, least in zip(map(int, args.in_flight.split(",")), map(float, args.at_least.split(","))):
        (on, on_ms, same), (off, off_ms, _) = (row(args, cache, in_flight, prompts) for cache in ("on", "off"))
        differ += sum(a != b for a, b in zip(on, off))
        print(f"     {in_flight:>9} first tokens {off_ms / on_ms:.2f} times sooner")
        good &= same and off_ms >= least * on_ms
    print(f"texts that differ in a token or a bit of a log probability: {differ}")
    return 0 if good and not (differ and (args.device == "cpu" or info["invariant"])) else 1


if __name__ == "__main__":
    sys.exit(main())
