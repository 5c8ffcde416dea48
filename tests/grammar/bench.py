#!/usr/bin/env python3
"""Times of masks, next to llguidance in the same run on the same texts.

    build/venv/bin/python tests/grammar/bench.py --build-dir build FOLDER...

Each FOLDER has the tokenizer.json of a real model. A row is a schema: microseconds of masks in texts that both allow. The
first text of a grammar meets its states for the first time, later ones have met most of them; what is made where a grammar
is compiled does not count. Each of our masks is measured in several runs, each by a process of its own in which nothing
was met before, and the least counts: other work of the machine is not in it. Times are of the processor, by the thread that
makes the mask; those of llguidance are of one run, by the clock, of its call from Python, which adds about a microsecond."""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import tempfile
import time

import llguidance
import llguidance.numpy
import numpy as np
import tokenizers
from probe import Probe, bits
from test_masks import POLICY

RECORD = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "age": {"type": "integer"},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 20}},
        "kind": {"enum": ["person", "place", "thing"]},
    },
    "required": ["name", "age", "tags", "kind"],
    "additionalProperties": False,
}
FORMATS = ["date-time", "uuid", "email", "uri", "ipv4", "ipv6"]
SCHEMAS = {
    "record": RECORD,
    "list of records": {"type": "array", "items": RECORD, "minItems": 2},
    "any object": {"type": "object"},
    "map of strings": {"type": "object", "properties": {"id": {"type": "integer"}}, "required": ["id"],
                       "additionalProperties": {"type": "string"}},
    "patterns": {"type": "object", "properties": {"slug": {"type": "string", "pattern": "^[a-z0-9]+(-[a-z0-9]+)*$"},
                 "code": {"type": "string", "pattern": "^[A-Z]{3}-\\d{4,8}$"}}, "required": ["slug", "code"],
                 "additionalProperties": False},
    "counted pattern": {"type": "array", "items": {"type": "string", "pattern": "^[A-Za-zÀ-ÿ ,.'-]{2,200}$"}},
    "formats": {"type": "object", "properties": {f: {"type": "string", "format": f} for f in FORMATS},
                "required": FORMATS, "additionalProperties": False},
    "alternatives": {"type": "array", "items": {"anyOf": [{"type": "string"}, {"type": "number"}, {"type": "null"},
                     {"type": "object", "properties": {"k": {"type": "string"}}, "additionalProperties": False}]}},
}  # fmt: skip
TEXTS, STEPS, LIMIT = 6, 80, 50


def write(probe, peer, n_ids, end, schema):
    """Texts of tokens that both allow, and microseconds of llguidance's masks."""
    source = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema | {"x-guidance": POLICY}))
    mask = llguidance.numpy.allocate_token_bitmask(1, n_ids)
    texts, theirs = [], {}
    probe.schema(schema)
    for number in range(TEXTS):
        rng = random.Random(number)
        matcher = llguidance.LLMatcher(peer, source)
        probe.again()
        texts.append([])
        for step in range(STEPS):
            mine, *_ = probe.mask()
            began = time.perf_counter_ns()
            llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
            theirs[number, step] = (time.perf_counter_ns() - began) / 1e3
            both = bits(mine & mask[0].view(np.uint32))
            both = both[both != end]
            if len(both) == 0:
                break
            token = int(both[rng.randrange(len(both))])
            assert probe.tokens([token]) == 1 and matcher.consume_token(token)
            texts[-1].append(token)
    return texts, theirs


def measure(probe, schema, texts, ours):
    """Microseconds of our masks of these texts, from a grammar that has seen none: the least so far of each."""
    probe.schema(schema)
    for number, text in enumerate(texts):
        probe.again()
        for step, token in enumerate([*text, None][:STEPS]):
            took = probe.mask()[3] / 1e3
            ours[number, step] = min(took, ours.get((number, step), took))
            assert token is None or probe.tokens([token]) == 1


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    print(f"microseconds of a mask: median / 99 % / largest, each mask the least of {args.repeat} runs; first: of a grammar's first "
          f"text, later: of five others; above: masks of more than {LIMIT}")  # fmt: skip
    for folder in args.folders:
        text = (folder / "tokenizer.json").read_text()
        tokenizer = tokenizers.Tokenizer.from_str(text)
        n_ids = tokenizer.get_vocab_size() + 200
        end = max(t["id"] for t in json.loads(text)["added_tokens"] if t["special"])
        peer = llguidance.LLTokenizer(text, n_vocab=n_ids, eos_token=end)
        with tempfile.TemporaryDirectory() as temporary:
            image = pathlib.Path(temporary) / "image"
            subprocess.run([args.build_dir / "tests/tokdump", folder, str(n_ids), image], check=True, stdout=-3)
            print(f"\n{folder.name}, {tokenizer.get_vocab_size()} tokens")
            print(f"{'':18}{'first':>19}{'later':>19}{'above':>12}{'llguidance, all':>24}{'ratio':>8}")
            for name, schema in SCHEMAS.items():
                ours = {}
                for run in range(args.repeat):
                    probe = Probe(args.build_dir / "tests/grammar_probe", image, n_ids, end)
                    if run == 0:
                        texts, theirs = write(probe, peer, n_ids, end, schema)
                    measure(probe, schema, texts, ours)
                    probe.close()
                first = [t for (number, _), t in ours.items() if number == 0]
                later = [t for (number, _), t in ours.items() if number]
                cells = "".join(f"{cell(times):>{width}}" for times, width in ((first, 19), (later, 19)))
                above = f"{sum(t > LIMIT for t in ours.values())} of {len(ours)}"
                ratio = statistics.mean(theirs.values()) / statistics.mean(ours.values())
                print(f"{name:18}{cells}{above:>12} {cell(theirs.values()):>23}{ratio:8.1f}", flush=True)


def cell(times):
    times = sorted(times)
    return f"{statistics.median(times):.1f} / {times[int(len(times) * 0.99)]:.0f} / {times[-1]:.0f}"


if __name__ == "__main__":
    main()
