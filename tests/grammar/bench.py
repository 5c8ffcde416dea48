#!/usr/bin/env python3
"""Times of masks, next to llguidance in the same run on the same texts.

    build/venv/bin/python tests/grammar/bench.py --build-dir build FOLDER...

Each FOLDER has the tokenizer.json of a real model. A row is a schema: microseconds of a mask, median and largest over the
tokens of texts that both allow. The first text of a grammar meets its states for the first time, later ones have met most
of them; what is made where a grammar is compiled does not count. Times here are of the processor, by the thread that makes
the mask; those of llguidance are by the clock, of its call from Python, which adds about a microsecond."""

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
TEXTS, STEPS = 6, 80


def run(probe, peer, n_ids, end, schema):
    source = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema | {"x-guidance": POLICY}))
    mask = llguidance.numpy.allocate_token_bitmask(1, n_ids)
    times = {"first": ([], []), "later": ([], [])}
    probe.schema(schema)
    for number in range(TEXTS):
        rng = random.Random(number)
        matcher = llguidance.LLMatcher(peer, source)
        probe.again()
        ours, theirs = times["later" if number else "first"]
        for _ in range(STEPS):
            mine, _, _, took = probe.mask()
            began = time.perf_counter_ns()
            llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
            theirs.append((time.perf_counter_ns() - began) / 1e3)
            ours.append(took / 1e3)
            both = bits(mine & mask[0].view(np.uint32))
            both = both[both != end]
            if len(both) == 0:
                break
            token = int(both[rng.randrange(len(both))])
            assert probe.tokens([token]) == 1 and matcher.consume_token(token)
    return times


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("folders", nargs="+", type=pathlib.Path)
    args = parser.parse_args()
    print("microseconds of a mask: median / largest; first: of a grammar's first text, later: of five others")
    for folder in args.folders:
        text = (folder / "tokenizer.json").read_text()
        tokenizer = tokenizers.Tokenizer.from_str(text)
        n_ids = tokenizer.get_vocab_size() + 200
        end = max(t["id"] for t in json.loads(text)["added_tokens"] if t["special"])
        peer = llguidance.LLTokenizer(text, n_vocab=n_ids, eos_token=end)
        with tempfile.TemporaryDirectory() as temporary:
            image = pathlib.Path(temporary) / "image"
            subprocess.run([args.build_dir / "tests/tokdump", folder, str(n_ids), image], check=True, stdout=-3)
            probe = Probe(args.build_dir / "tests/grammar_probe", image, n_ids, end)
            print(f"\n{folder.name}, {tokenizer.get_vocab_size()} tokens")
            print(f"{'':20}{'first':>18}{'llguidance':>18}{'later':>18}{'llguidance':>18}{'ratio':>8}")
            for name, schema in SCHEMAS.items():
                times = run(probe, peer, n_ids, end, schema)
                cells = [f"{statistics.median(t):.1f} / {max(t):.0f}" for kind in times.values() for t in kind]
                mean = [statistics.mean(a + b) for a, b in zip(times["first"], times["later"], strict=True)]
                print(f"{name:20}" + "".join(f"{c:>18}" for c in cells) + f"{mean[1] / mean[0]:8.1f}")
            probe.close()


if __name__ == "__main__":
    main()
