"""Schemas that programs write: those of the official client's own types, by pydantic.

Of 1,000 of them at most 5 % may be refused. Each is written once at random beside llguidance, and `jsonschema` judges
the text; where a schema has formats or bounds of numbers (test_masks.py), only the latter. A short run takes
twenty. `--long` writes tests/grammar/results/corpus.txt."""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import pathlib
import pkgutil
import random
import statistics

import llguidance
import openai.types
import pydantic
import pytest
from probe import Refused
from test_masks import POLICY, judge, write

RESULTS = pathlib.Path(__file__).parent / "results" / "corpus.txt"
OURS_ALONE = ("format", "minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf")


def models(modules):
    for module in modules:
        for name, model in sorted(vars(importlib.import_module(module)).items()):
            if inspect.isclass(model) and issubclass(model, pydantic.BaseModel) and model.__module__ == module:
                yield f"{module}.{name}", model


@functools.cache
def corpus(n):
    """n different schemas, always the same ones: of modules in an order of their own, of which few are read for few."""
    modules = sorted(module.name for module in pkgutil.walk_packages(openai.types.__path__, "openai.types."))
    random.Random(1).shuffle(modules)
    found = {}
    for name, model in models(modules):
        schema = model.model_json_schema()
        text = json.dumps(schema, sort_keys=True)
        if len(text) <= 65536:
            found.setdefault(text, (name, schema))
        if len(found) == n:
            return list(found.values())
    raise AssertionError(f"there are but {len(found)} schemas")


def keys(schema):
    if isinstance(schema, dict):
        yield from schema
        for value in schema.values():
            yield from keys(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from keys(value)


def peer_of(vocabulary, schema):
    """None: llguidance refuses it, or what it allows differs by design."""
    if any(key in OURS_ALONE for key in keys(schema)):
        return None
    source = schema | {"x-guidance": POLICY | {"coerce_one_of": True}}
    try:
        grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(source))
        matcher = llguidance.LLMatcher(vocabulary.peer, grammar)
    except ValueError:
        return None
    return None if matcher.is_error() else matcher


def run(vocabulary, schemas):
    counts = {"schemas": len(schemas), "refused": 0, "beside llguidance": 0, "refused by llguidance or meant to differ": 0,
              "texts that ended": 0}  # fmt: skip
    times = []
    for number, (name, schema) in enumerate(schemas):
        try:
            vocabulary.probe.schema(schema)
        except Refused as refused:
            counts["refused"] += 1
            print(name, refused.args)
            continue
        matcher = peer_of(vocabulary, schema)
        counts["beside llguidance" if matcher else "refused by llguidance or meant to differ"] += 1
        text = write(random.Random(number), vocabulary, matcher)
        if text is not None:
            counts["texts that ended"] += 1
            judge(text, schema)
        vocabulary.probe.again()
        times.append(vocabulary.probe.mask()[3] / 1e3)
    assert counts["refused"] <= 0.05 * len(schemas)
    return counts, statistics.median(times)


def test_some(vocabulary):
    counts, _ = run(vocabulary, corpus(20))
    assert counts["beside llguidance"] > 3 and counts["texts that ended"] > 3


@pytest.mark.long
def test_all(vocabulary, request):
    counts, _ = run(vocabulary, corpus(1000))
    RESULTS.parent.mkdir(exist_ok=True)
    lines = [f"{value:6d} {name}" for name, value in counts.items()]
    with RESULTS.open("w" if request.node.name.endswith("[llama3]") else "a") as out:
        out.write(f"{request.node.callspec.params['vocabulary']}\n" + "\n".join(lines) + "\n")
