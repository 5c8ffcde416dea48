#!/usr/bin/env python3
"""Load of an OpenAI-compatible server: requests a second, first tokens and gaps, for N in flight or R a second.

    tests/gpu/load.py --url http://127.0.0.1:8080 --in-flight 4,16,64 --rate 2,8,16 --prompt 1024 --answer 256
    tests/gpu/load.py --url ... --text-equals-solo       each text again alone, greedy: must be the same
    tests/gpu/load.py --url ... --beside 32 --rate 5 --even --prompt 4096 --answer 16   answers beside prompts

Standard library alone, one process, asyncio. Prompts are token ids (`--vocab` says below which; seeded, no two alike) in
Completions streams, so that any server counts the same tokens; `ignore_eos` is sent, so that every answer has its
length. A row's figures: requests that ended, errors, requests a second, tokens of answers a second, milliseconds to the
first token (a new connection included: GET /health shows what that takes) and between tokens, each p50 and p99, over the
requests that began after the warm-up; steady: tokens a second while all of them
answer and no prompt waits, which there is where --requests equals --in-flight (--warm-up 0). `--json FILE` has all.
Arrivals of --rate are Poisson, from the seed, or with --even equally far apart.

--beside N: N other answers run throughout each row of --rate, from before its first request on, and are to end after
its last one. A second line has the gaps between their tokens while requests came, the longest too, and the seconds from
the first of them to the end of the last: all of these the device is busy, so that of equal work the shorter is cheaper.

--repeating: answers are of two ids, by their bias and at a temperature of 1 the first one mostly. So also with random weights
drafts by n-grams are right, about two in three.

--structured P: of 100 requests P are held to a schema, whose texts are longer than any answer. A second line has the gaps
of these and of the others.
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import json
import random
import sys
import time
import urllib.parse


SCHEMA = {
    "type": "array",
    "minItems": 1000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string", "maxLength": 40},
            "age": {"type": "integer"},
            "kind": {"enum": ["person", "place", "thing"]},
            "code": {"type": "string", "pattern": "^[A-Z]{3}-[0-9]{4,8}$"},
        },
        "required": ["name", "age", "kind", "code"],
        "additionalProperties": False,
    },
}


class Answer:
    """One request: when it began, when each token came (seconds), its text; `error` says why it is none."""

    def __init__(self):
        self.began = time.perf_counter()
        self.pieces: list[tuple[float, bytes]] = []  # of the stream as they came, not read yet
        self.line = b""
        self.times: list[float] = []
        self.text = ""
        self.error = ""
        self.done = self.structured = False

    def read(self):
        """Reads what came. That takes longer than taking it, and so it waits until nothing is timed any more."""
        for when, piece in self.pieces:
            *lines, self.line = (self.line + piece).split(b"\n")
            for line in lines:
                if line.startswith(b"data: [DONE]"):
                    self.done = True
                elif line.startswith(b"data: "):
                    self.read_chunk(when, json.loads(line[6:]))
        self.pieces = []

    def read_chunk(self, when, chunk):
        if "error" in chunk:
            self.error = str(chunk["error"])
        elif chunk.get("choices") and not chunk["choices"][0].get("finish_reason"):
            self.times.append(when)
            self.text += chunk["choices"][0]["text"]

    def end(self):
        try:
            self.read()
        except (ValueError, LookupError) as e:
            self.error = self.error or repr(e)
        if not self.done:
            self.error = self.error or "the stream ended early"


def is_structured(args, number):
    """Is request `number` held to the schema?"""
    return number * 37 % 100 < args.structured


async def ask(args, prompt, tokens=None, began=None, structured=False) -> Answer:
    """Streams one completion over a connection of its own, of args.answer tokens or so many; `began`: released at the first, or the end."""
    answer = Answer()
    answer.structured = structured
    fields = {
        "prompt": prompt,
        "max_tokens": tokens or args.answer,
        "temperature": args.temperature,
        "seed": 1,
        "stream": True,
    }
    if args.model:
        fields["model"] = args.model
    if args.ignore_eos:
        fields["ignore_eos"] = True
    if structured:
        fields["structured_outputs"] = {"json": SCHEMA}
    if args.repeating:
        fields |= {"temperature": 1, "logit_bias": {str(args.lowest): 100, str(args.lowest + 1): 98}}
    body = json.dumps(fields).encode()
    url = urllib.parse.urlsplit(args.url)
    head = (
        f"POST {url.path.rstrip('/')}/v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n"
    )
    if args.key:
        head += f"Authorization: Bearer {args.key}\r\n"
    writer = None
    try:
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 80, limit=1 << 20)
        writer.write(head.encode() + b"\r\n" + body)
        status = (await reader.readline()).split()[1:2]
        while (await reader.readline()).strip():
            pass
        if status != [b"200"]:
            answer.error = f"status {status}: {(await reader.read(300)).decode(errors='replace')}"
            return answer
        while piece := await reader.read(1 << 16):
            answer.pieces.append((time.perf_counter(), piece))
            if b"[DONE]" in piece:
                break
            if began and not answer.times:
                answer.read()
                if answer.times:
                    began.release()
    except (OSError, ValueError, IndexError) as e:
        answer.error = repr(e)
    finally:
        if began and not answer.times:
            began.release()
        if writer:
            writer.close()
    return answer


async def exchange(args) -> float | None:
    """Milliseconds of GET /health over a connection of its own: what client and connection take; None: not served."""
    url = urllib.parse.urlsplit(args.url)
    began = time.perf_counter()
    try:
        reader, writer = await asyncio.open_connection(url.hostname, url.port or 80)
        writer.write(f"GET /health HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: close\r\n\r\n".encode())
        status = (await reader.readline()).split()[1:2]
        writer.close()
    except OSError:
        return None
    return 1e3 * (time.perf_counter() - began) if status == [b"200"] else None


async def exchanges(args):
    return [await exchange(args) for _ in range(40)]


def prompt_of(args, number, length=None):
    """Ids of request `number`, the first --shared of which are those of all."""
    draw, all_of = random.Random(args.seed * 1_000_003 + number), random.Random(args.seed)
    n = length or args.prompt
    shared = [all_of.randrange(args.lowest, args.vocab) for _ in range(min(args.shared, n))]
    return shared + [draw.randrange(args.lowest, args.vocab) for _ in range(n - len(shared))]


async def in_flight(args, n, total):
    """`total` requests, n of them at any time."""
    answers, numbers = [], iter(range(total))

    async def one_after_the_other():
        for number in numbers:
            answers.append(await ask(args, prompt_of(args, number), structured=is_structured(args, number)))

    await asyncio.gather(*(one_after_the_other() for _ in range(n)))
    return answers


async def at_rate(args, rate, total, prompts=None):
    """`total` requests that arrive as a Poisson process of `rate` a second, or evenly, whatever is still running."""
    prompts = prompts or [prompt_of(args, number) for number in range(total)]  # made before any time counts
    draw, tasks, due = random.Random(args.seed), [], time.perf_counter()
    for number, prompt in enumerate(prompts):
        await asyncio.sleep(max(0, due - time.perf_counter()))
        tasks.append(asyncio.create_task(ask(args, prompt, structured=is_structured(args, number))))
        due += 1 / rate if args.even else draw.expovariate(rate)
    return await asyncio.gather(*tasks)


async def beside(args, rate, total):
    """at_rate while args.beside other answers run: the answers of both."""
    began = asyncio.Semaphore(0)
    prompts = [prompt_of(args, number) for number in range(total)]  # making them would be a gap between tokens
    others = [
        asyncio.create_task(ask(args, prompt_of(args, -1 - i, args.beside_prompt), args.beside_answer, began))
        for i in range(args.beside)
    ]
    for _ in others:
        await began.acquire()
    answers = await at_rate(args, rate, total, prompts)
    return answers, await asyncio.gather(*others)


def percentile(values, p):
    """The value below which p percent lie; NaN of none."""
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p / 100))] if values else float("nan")


def steady(good):
    """Tokens a second from when all answers had begun to when the first of them ended; None: there was no such time."""
    begin, end = max(a.times[0] for a in good), min(a.times[-1] for a in good)
    return sum(begin < t <= end for a in good for t in a.times) / (end - begin) if end > begin else None


def figures(answers, warm_up):
    """What a row says of its answers, in the units of its names."""
    answers = sorted(answers, key=lambda a: a.began)[warm_up:]
    good = [a for a in answers if not a.error and a.times]
    if not good:
        return {"ended": 0, "errors": len(answers)}
    seconds = max(a.times[-1] for a in good) - min(a.began for a in good)
    first = [1e3 * (a.times[0] - a.began) for a in good]
    gaps = [1e3 * (b - a) for x in good for a, b in zip(x.times, x.times[1:])]
    return {
        "ended": len(good),
        "errors": len(answers) - len(good),
        "requests_s": len(good) / seconds,
        "tokens_s": sum(len(a.times) for a in good) / seconds,
        "steady_tokens_s": steady(good),
        "first_p50_ms": percentile(first, 50),
        "first_p99_ms": percentile(first, 99),
        "gap_p50_ms": percentile(gaps, 50),
        "gap_p99_ms": percentile(gaps, 99),
    }


def figures_structured(answers):
    """Of answers held to the schema, and of the others, those of the warm-up too."""
    row = {}
    for name, structured in (("structured", True), ("free", False)):
        some = [a for a in answers if not a.error and a.structured == structured]
        gaps = [1e3 * (b - a) for x in some for a, b in zip(x.times, x.times[1:])]
        row |= {f"{name}_answers": len(some), f"{name}_gap_p50_ms": percentile(gaps, 50)}
        row |= {f"{name}_gap_mean_ms": sum(gaps) / len(gaps) if gaps else float("nan")}
        row |= {f"{name}_gap_p99_ms": percentile(gaps, 99)}
    return row


def figures_beside(answers, others):
    """Of the answers beside: gaps that end between the first request and the last one's first token."""
    good = [a for a in others if not a.error and a.times]
    ended = [a for a in answers if not a.error and a.times]
    if len(good) < len(others) or not ended:
        return {"beside_errors": len(others) - len(good)}
    begin, end = min(a.began for a in ended), max(a.times[0] for a in ended)
    gaps = [1e3 * (b - a) for x in good for a, b in zip(x.times, x.times[1:]) if begin <= b <= end]
    return {
        "beside_errors": 0,
        "beside_gaps": len(gaps),
        "beside_gap_p50_ms": percentile(gaps, 50),
        "beside_gap_p99_ms": percentile(gaps, 99),
        "beside_gap_max_ms": max(gaps),
        "beside_over_20ms": sum(gap > 20 for gap in gaps),
        "beside_over_30ms": sum(gap > 30 for gap in gaps),
        "beside_outlast": min(a.times[-1] for a in good) > max(a.times[-1] for a in ended),
        "beside_seconds": max(a.times[-1] for a in good + ended) - min(a.times[0] for a in good),
    }


def numbers(text):
    return [float(word) for word in text.split(",") if word]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--model", default=None, help="name that requests carry (default: none)")
    parser.add_argument("--key", default="", help="API key")
    parser.add_argument("--in-flight", default="4,16,64", type=numbers)
    parser.add_argument("--rate", default="2,8,16", type=numbers, help="requests a second")
    parser.add_argument(
        "--requests", type=int, default=0, help="of a row (default: 4 for each in flight, --seconds of a rate)"
    )
    parser.add_argument(
        "--warm-up", type=int, default=-1, help="first requests that do not count (default: those in flight, 2 s)"
    )
    parser.add_argument("--even", action="store_true", help="requests of --rate arrive equally far apart")
    parser.add_argument("--beside", type=int, default=0, help="other answers that run throughout a row of --rate")
    parser.add_argument("--beside-prompt", type=int, default=128, help="tokens of their prompts")
    parser.add_argument("--beside-answer", type=int, default=1024, help="and of these answers")
    parser.add_argument("--prompt", type=int, default=1024, help="tokens")
    parser.add_argument("--shared", type=int, default=0, help="first tokens that all prompts have in common")
    parser.add_argument("--answer", type=int, default=256, help="tokens")
    parser.add_argument("--vocab", type=int, default=32000, help="ids are below")
    parser.add_argument("--lowest", type=int, default=1000, help="and not below this one, to miss control tokens")
    parser.add_argument("--structured", type=int, default=0, help="of 100 requests these are held to a schema")
    parser.add_argument("--repeating", action="store_true", help="answers repeat themselves")
    parser.add_argument("--seconds", type=float, default=20, help="of a row of --rate")
    parser.add_argument("--temperature", type=float, default=0)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--no-ignore-eos", dest="ignore_eos", action="store_false")
    parser.add_argument("--text-equals-solo", action="store_true")
    parser.add_argument("--json", help="file for all figures and flags")
    args = parser.parse_args()
    rows, bad = [], 0
    empty = [ms for ms in asyncio.run(exchanges(args))[8:] if ms is not None]
    if empty:
        print(f"GET /health over a new connection, as each request has one: p50 {percentile(empty, 50):.2f} ms")
    print(
        f"{'row':<14}{'ended':>6}{'err':>5}{'req/s':>8}{'tok/s':>9}{'first p50':>11}{'p99':>9}{'gap p50':>9}{'p99':>9} ms  steady tok/s"
    )
    for kind, run, values in (("in flight", in_flight, args.in_flight), ("a second", at_rate, args.rate)):
        for value in values:
            total = args.requests or int(value * (4 if run is in_flight else args.seconds)) or 1
            warm_up = (
                args.warm_up if args.warm_up >= 0 else min(total // 3, int(value * (1 if run is in_flight else 2)))
            )
            gc.collect()
            gc.freeze()  # a collection in the middle would look like a gap
            gc.disable()
            answers, others = (
                asyncio.run(
                    beside(args, value, total)
                    if run is at_rate and args.beside
                    else run(args, int(value) if run is in_flight else value, total)
                ),
                [],
            )
            if run is at_rate and args.beside:
                answers, others = answers
            gc.enable()
            for answer in [*answers, *others]:
                answer.end()
            row = {"row": f"{value:g} {kind}", "requests": total, "warm_up": warm_up} | figures(answers, warm_up)
            if args.structured:
                row |= figures_structured(answers)
            if others:
                row |= figures_beside(answers, others)
                bad += row["beside_errors"]
            rows.append(row)
            bad += row["errors"]
            print(
                f"{row['row']:<14}{row['ended']:>6}{row['errors']:>5}"
                + (
                    "{requests_s:>8.2f}{tokens_s:>9.0f}{first_p50_ms:>11.1f}{first_p99_ms:>9.1f}{gap_p50_ms:>9.2f}{gap_p99_ms:>9.2f}".format(
                        **row
                    )
                    + (f"{row['steady_tokens_s']:>12.0f}" if row["steady_tokens_s"] else "")
                    if row["ended"]
                    else ""
                ),
                flush=True,
            )
            for name in ("structured", "free") if args.structured else ():
                print(
                    f"  {row[name + '_answers']} {name}: gaps mean {row[name + '_gap_mean_ms']:.2f}, "
                    f"p50 {row[name + '_gap_p50_ms']:.2f}, p99 {row[name + '_gap_p99_ms']:.2f} ms",
                    flush=True,
                )
            if others and not row["beside_errors"]:
                print(
                    "  beside {}: gaps p50 {beside_gap_p50_ms:.2f}, p99 {beside_gap_p99_ms:.2f}, longest {beside_gap_max_ms:.2f} ms; "
                    "{beside_over_20ms} of {beside_gaps} above 20 ms, {beside_over_30ms} above 30; {beside_seconds:.3f} s{}".format(
                        len(others), "" if row["beside_outlast"] else ", not to the last request's end", **row
                    ),
                    flush=True,
                )
            for error in sorted({a.error for a in answers + list(others) if a.error})[:3]:
                print(f"  {error}", file=sys.stderr)
            if args.text_equals_solo and run is in_flight:
                solo = asyncio.run(in_flight(args, 1, min(total, 16)))
                for answer in solo:
                    answer.end()
                texts = {a.text for a in answers}
                different = sum(a.text not in texts for a in solo)
                bad += different
                print(f"  {different} of {len(solo)} texts differ from those alone", flush=True)
    if args.json:
        with open(args.json, "w", encoding="utf-8") as f:
            json.dump({"flags": vars(args), "health_p50_ms": percentile(empty, 50), "rows": rows}, f, indent=1)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
