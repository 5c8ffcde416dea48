#!/usr/bin/env python3
"""Schemas that others wrote, from packages and folders: how many are refused, why, and whether what is written is valid.

    build/venv/bin/python tests/grammar/corpus.py --build-dir build NAME=FOLDER... [-n 400] [--texts 1]

FOLDER has JSON files: of an unpacked package of PyPI (pip download --no-deps; unzip), of SchemaStore, or of the JSON Schema
Test Suite, whose files hold many schemas. Of each origin at most -n are taken, always the same. Left out are those that
are no JSON schema by their own draft, that have more than 64 KiB, and that refer to another file, which a request cannot
have. Each schema is compiled, and texts of it are written at random, which `jsonschema` judges if they end. The table has
the reasons of those that were refused, and how many llguidance refuses. Where xgrammar is installed, of which only its
grammars are used and nothing of torch, it has how many that refuses, and how many of our texts it takes."""

import argparse
import collections
import contextlib
import hashlib
import importlib.util
import json
import os
import pathlib
import random
import re
import signal
import subprocess
import sys
import tempfile
from unittest import mock

import jsonschema
import llguidance
import tokenizers
from transformers.convert_slow_tokenizer import bytes_to_unicode
from probe import Probe, Refused, bits
from test_masks import POLICY

LARGEST = 64 << 10
MARKS = ("$schema", "type", "properties", "$ref", "anyOf", "oneOf", "allOf", "definitions", "enum")


def files_of(folder):
    for path in sorted(folder.rglob("*.json")):
        try:
            yield path, json.loads(path.read_text())
        except (ValueError, OSError, RecursionError):
            continue


def schemas_of(folder):
    for path, found in files_of(folder):
        if isinstance(found, list):  # the test suite
            for case in found:
                if isinstance(case, dict) and "tests" in case and isinstance(case.get("schema"), dict):
                    yield f"{path.parent.name}/{path.name}: {case.get('description', '')}", case["schema"]
        elif isinstance(found, dict) and any(mark in found for mark in MARKS):
            yield str(path.relative_to(folder)), found


def leads_away(schema):
    """Does it refer to another file, or by means of names that are resolved outside of it?"""
    if isinstance(schema, list):
        return any(leads_away(one) for one in schema)
    if not isinstance(schema, dict):
        return False
    ref = schema.get("$ref")
    if isinstance(ref, str) and not (ref == "#" or ref.startswith("#/")):
        return True
    return any(leads_away(v) for k, v in schema.items() if k not in ("enum", "const", "default", "examples"))


def points_to_nothing(schema, root):
    if isinstance(schema, list):
        return any(points_to_nothing(one, root) for one in schema)
    if not isinstance(schema, dict):
        return False
    ref = schema.get("$ref")
    if isinstance(ref, str) and ref.startswith("#/"):
        at = root
        for part in ref[2:].split("/"):
            part = part.replace("~1", "/").replace("~0", "~")
            at = (
                at.get(part)
                if isinstance(at, dict)
                else at[int(part)]
                if isinstance(at, list) and part.isdigit() and int(part) < len(at)
                else None
            )
        if at is None and "%" not in ref:
            return True
    return any(
        points_to_nothing(v, root) for k, v in schema.items() if k not in ("enum", "const", "default", "examples")
    )


def is_usable(schema):
    text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
    if len(text.encode("utf-8", "surrogatepass")) > LARGEST or leads_away(schema) or points_to_nothing(schema, schema):
        return False
    try:
        jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator).check_schema(schema)
    except (jsonschema.SchemaError, RecursionError, re.error):
        return False
    return True


def corpus(folder, most):
    found = {}
    for name, schema in schemas_of(folder):
        key = hashlib.sha256(json.dumps(schema, sort_keys=True).encode()).hexdigest()
        found.setdefault(key, (name, schema))
    some = [found[key] for key in sorted(found)]
    kept = []
    for name, schema in some:
        if len(kept) == most:
            break
        if is_usable(schema):
            kept.append((name, schema))
    return kept


def reason(refused):
    pointer, why = refused.args
    key = next((p for p in reversed(pointer.split("/")) if p and not p.isdigit()), "")
    return re.sub(r"\d+", "N", re.sub(r", at byte \d+", "", why))[:90], key


def peer_takes(peer, schema):
    source = schema | {"x-guidance": POLICY | {"coerce_one_of": True}}
    try:
        matcher = llguidance.LLMatcher(peer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(source)))
    except ValueError:
        return False
    return not matcher.is_error()


def open_xgrammar():
    """A function that says of a schema and our texts of it how many xgrammar takes; None: it refuses the schema. None where
    it is not installed. It may end its process or take long, so each schema has a process of its own."""
    if not importlib.util.find_spec("xgrammar"):
        return None
    for name in ("torch", "transformers", "triton"):  # imported, but not needed by grammars
        if not importlib.util.find_spec(name):
            sys.modules[name] = mock.MagicMock(Tensor=type("Tensor", (), {}), __version__="2")
    with contextlib.redirect_stderr(None):
        import xgrammar
    tokens = xgrammar.TokenizerInfo([bytes([b]) for b in range(256)] + [b"</s>"], stop_token_ids=[256])
    compiler = xgrammar.GrammarCompiler(tokens)

    def says(schema, texts):
        compiled = compiler.compile_json_schema(json.dumps(schema), any_whitespace=True, strict_mode=False)
        takes = 0
        for text in texts:
            matcher = xgrammar.GrammarMatcher(compiled, terminate_without_stop_token=True)
            takes += matcher.accept_string(text) and matcher.is_terminated()
        return takes

    def ask(schema, texts, seconds=20):
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            signal.alarm(seconds)
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            with contextlib.suppress(BaseException):
                os.write(writer, bytes([says(schema, texts)]))
            os._exit(0)
        os.close(writer)
        said = os.read(reader, 1)
        os.close(reader)
        os.waitpid(child, 0)
        return said[0] if said else None

    return ask


def write(probe, vocab, end, rng, steps=200):
    """A text drawn at random, mostly of tokens that end something; None where it did not end in time."""
    text = b""
    for _ in range(steps):
        mask, whole, _, _ = probe.mask()
        ids = bits(mask)
        if whole and (rng.random() < 0.5 or list(ids) == [end]):
            return text
        ids = ids[ids != end]
        assert len(ids), text
        few = [int(rng.choice(ids)) for _ in range(8)]
        closing = [t for t in few if any(c in vocab[t] for c in b'"]}')]
        token = rng.choice(closing if closing and rng.random() < 0.8 else few)
        assert probe.tokens([token]) == 1, (text, token)
        text += vocab[token]
    return None


def judge(schema, text):
    """None: the judge itself cannot read the schema."""
    kind = jsonschema.validators.validator_for(schema, jsonschema.Draft202012Validator)
    try:
        return kind(schema).is_valid(json.loads(text))
    except (re.error, RecursionError):
        return None


def examine(probe, vocab, end, peer, other, schemas, texts, counts):
    for number, (name, schema) in enumerate(schemas):
        counts["schemas"] += 1
        took = peer_takes(peer, schema)
        counts["llguidance refuses"] += not took
        try:
            probe.schema(schema)
        except Refused as refused:
            counts["refused"] += 1
            counts["refused by both"] += not took
            counts["xgrammar refuses"] += bool(other) and other(schema, []) is None
            yield reason(refused)[0]
            continue
        valid = []
        if "properties" in schema and "type" not in schema:  # else most texts are short ones of no object
            try:
                probe.schema({"type": "object"} | schema)
                schema = {"type": "object"} | schema
            except Refused:
                probe.schema(schema)
        for seed in range(texts):
            probe.again()
            text = write(probe, vocab, end, random.Random(f"{number} {seed}"))
            good = None if text is None else judge(schema, text)
            counts["texts judged"] += good is not None
            counts["texts not valid"] += good is False
            if good is False:
                print(f"NOT VALID {name}: {text[:300]}", file=sys.stderr)
            valid += [text] if good else []
        takes = other(schema, valid) if other else 0
        counts["xgrammar refuses"] += takes is None
        counts["texts for xgrammar"] += 0 if takes is None else len(valid)
        counts["xgrammar takes"] += takes or 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build-dir", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("-n", type=int, default=400, help="schemas of each origin")
    parser.add_argument("--texts", type=int, default=1, help="written of each schema")
    parser.add_argument("origins", nargs="+", metavar="NAME=FOLDER")
    args = parser.parse_args()
    folder = pathlib.Path(__file__).parent.parent / "fixtures" / "tokenizers" / "llama3"
    text = (folder / "tokenizer.json").read_text()
    tokenizer = tokenizers.Tokenizer.from_str(text)
    n_ids = tokenizer.get_vocab_size()
    end = [t["id"] for t in json.loads(text)["added_tokens"] if t["special"]][-1]
    of_char = {char: byte for byte, char in bytes_to_unicode().items()}
    vocab = [bytes(of_char.get(c, 63) for c in tokenizer.id_to_token(i) or "") for i in range(n_ids)]
    peer = llguidance.LLTokenizer(text, n_vocab=n_ids, eos_token=end)
    reasons, rows, other = collections.Counter(), [], open_xgrammar()
    with tempfile.TemporaryDirectory() as temporary:
        image = pathlib.Path(temporary) / "image"
        subprocess.run([args.build_dir / "tests/tokdump", folder, str(n_ids), image], check=True, stdout=-3)
        probe = Probe(args.build_dir / "tests/grammar_probe", image, n_ids, end)
        for origin in args.origins:
            name, _, path = origin.partition("=")
            counts = collections.Counter()
            schemas = corpus(pathlib.Path(path), args.n)
            reasons.update(examine(probe, vocab, end, peer, other, schemas, args.texts, counts))
            rows.append((name, counts))
        probe.close()
    rows.append(("all", sum((counts for _, counts in rows), collections.Counter())))
    names = ["schemas", "refused", "llguidance refuses", "refused by both", "texts judged", "texts not valid"]
    names += ["xgrammar refuses", "texts for xgrammar", "xgrammar takes"] if other else []
    print(f"{'':22}" + "".join(f"{n:>20}" for n in names))
    for name, counts in rows:
        print(f"{name:22}" + "".join(f"{counts[n]:20d}" for n in names))
    print("\nwhy refused")
    for why, n in reasons.most_common():
        print(f"{n:6d} {why}")


if __name__ == "__main__":
    main()
