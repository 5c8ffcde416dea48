"""Lists that repeat no item: what is written repeats none, at every step something may follow, and every list without
repetitions can be written."""

from __future__ import annotations

import itertools
import json
import random

import jsonschema
import pytest
from probe import Refused, bits
from test_masks import draw

RECORD = {"type": "object", "properties": {"k": {"enum": ["a", "b"]}, "n": {"type": "integer", "minimum": 0, "maximum": 1}},
          "required": ["k"], "additionalProperties": False}  # fmt: skip
ITEMS = {
    "enum": {"enum": ["x1", "y1", "x2", 1, 1.5, None, "x"]},
    "beginnings": {"enum": ["a", "ab", "abc", "b"]},
    "digits": {"type": "integer", "minimum": 0, "maximum": 12},
    "numbers": {"type": "number"},
    "words": {"type": "string", "pattern": "^[ab]{1,2}$"},
    "strings": {"type": "string", "maxLength": 2},
    "records": RECORD,
    "booleans": {"type": ["boolean", "null"]},
    "lists": {"type": "array", "items": {"enum": [1, 2]}, "uniqueItems": True},
    "lists that may repeat": {"type": "array", "items": {"enum": [1, 2]}, "maxItems": 2},
    "either": {"anyOf": [{"type": "string", "maxLength": 1}, {"enum": [1, 2]}, RECORD]},
    "any": True,
}
TRIED = {f"unique {name}": {"type": "array", "items": items, "uniqueItems": True} for name, items in ITEMS.items()} | {
    "object": {"type": "object", "properties": {"a": {"type": "string", "pattern": "^[a-z]{0,90}$"}, "b": {"type": "array",
               "items": RECORD, "uniqueItems": True}}, "required": ["a", "b"], "additionalProperties": {"type": "number"}},
    "any": {"type": "object"},
}  # fmt: skip
VALUES = ["x1", "y1", "x2", "x", 1, 1.5, None, "a", "ab", "abc", "b", "bb", 0, 12, 2, 100, True, False, [1], [2], [1, 2], [2, 1],
          [1, 1], [], {"k": "a"}, {"k": "b"}, {"k": "a", "n": 0}, {"k": "a", "n": 1}, -0.5, "", 'é"']  # fmt: skip


def write(vocabulary, rng, steps=150):
    """Half of the tokens repeat what the text has already, which is where repetitions come from."""
    text, used = b"", []
    for _ in range(steps):
        mask, whole, over, _ = vocabulary.probe.mask()
        again = [t for t in used if mask[t // 32] >> (t % 32) & 1]
        token = rng.choice(again) if again and rng.random() < 0.6 else draw(rng, vocabulary, mask, whole)
        if token == vocabulary.end:
            assert whole
            return text
        assert not over and vocabulary.probe.tokens([token]) == 1, (text, token)
        used.append(token)
        text += vocabulary.bytes(token)
    return None


@pytest.mark.parametrize("bounds", [{}, {"minItems": 2, "maxItems": 3}], ids=["any number", "2 or 3"])
@pytest.mark.parametrize("name", ITEMS)
def test_written(vocabulary, name, bounds):
    schema = {"type": "array", "items": ITEMS[name], "uniqueItems": True} | bounds
    judge, rng, ended = jsonschema.Draft202012Validator(schema), random.Random(name), 0
    vocabulary.probe.schema(schema)
    for _ in range(20):
        vocabulary.probe.again()
        text = write(vocabulary, rng)
        if text is not None:
            judge.validate(json.loads(text))
            ended += 1
    assert ended > 3
    one = jsonschema.Draft202012Validator(ITEMS[name])
    some = [v for v in VALUES if one.is_valid(v)]
    lists = [[], *([v] for v in some), *map(list, itertools.product(some, repeat=2))]
    lists += [[rng.choice(some) for _ in range(3)] for _ in range(100)]
    for value in lists:
        if name == "any" and any(isinstance(v, dict) and len(v) > 1 for v in value):
            continue  # of keys that the schema does not name, one alone is written here
        vocabulary.probe.again()
        text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        can = vocabulary.probe.bytes(text.encode()) and vocabulary.probe.mask()[1]
        assert can == judge.is_valid(value), text


@pytest.mark.parametrize("name", ["enum", "beginnings", "words", "records"])
def test_all_values_can_be_used(vocabulary, name):
    """A list of every value there is ends: no item is begun that none is left for."""
    schema = {"type": "array", "items": ITEMS[name], "uniqueItems": True}
    n = {"enum": 7, "beginnings": 4, "words": 6, "records": 6}[name]
    vocabulary.probe.schema(schema | {"minItems": n})
    for seed in range(10):
        vocabulary.probe.again()
        text = write(vocabulary, random.Random(seed), 400)
        assert len(json.loads(text)) == n


def test_masks_are_what_bytes_may_follow(vocabulary):
    """Every token of a mask, and no other one, is taken, also such as end two items at once."""
    schema = {
        "type": "array",
        "items": {"anyOf": [{"type": "integer"}, {"type": "string"}, {"type": "array"}]},
        "uniqueItems": True,
    }
    vocabulary.probe.schema(schema)
    rng = random.Random(2)
    signs = [
        t for t in range(vocabulary.n_ids) if set(vocabulary.text(t)) & set(',]"[0') and t not in vocabulary.silent
    ]
    for start in ("", "[", "[1,2,", "[1,2,1", '["a","', '["a"', "[[],[", "[[],[1", '["a, b","', "[[1],[2],["):
        vocabulary.probe.again()
        assert not start or vocabulary.probe.bytes(start.encode())
        allowed = set(bits(vocabulary.probe.mask()[0]).tolist())
        for token in rng.sample(signs, min(len(signs), 400)):
            if token == vocabulary.end:
                continue
            vocabulary.probe.again()
            assert not start or vocabulary.probe.bytes(start.encode())
            assert (vocabulary.probe.tokens([token]) == 1) == (token in allowed), (start, vocabulary.text(token))


def test_what_cannot_differ_is_refused(vocabulary):
    with pytest.raises(Refused, match="nothing can match"):
        vocabulary.probe.schema({"type": "array", "items": {"type": "boolean"}, "uniqueItems": True, "minItems": 3})
    two = [{"type": "object", "properties": {"a": {}, "b": {}}}, {"type": "object", "properties": {"b": {}, "a": {}}}]
    with pytest.raises(Refused, match="another order"):
        vocabulary.probe.schema({"type": "array", "items": {"anyOf": two}, "uniqueItems": True})


@pytest.mark.parametrize("name", TRIED)
def test_what_is_tried_leaves_no_trace(vocabulary, name):
    """Tokens that are tried and taken back, those that fit and those that do not: masks and texts are those without."""
    probe = vocabulary.probe
    probe.schema(TRIED[name])
    for number in range(3):
        texts = []
        for tries in (False, True):
            rng, text, masks = random.Random(number), [], []
            others = random.Random(-number)
            probe.again()
            for _ in range(60):
                mask, whole, over, _ = probe.mask()
                masks.append((mask.tobytes(), whole, over))
                if over:
                    break
                if tries:
                    some = [
                        others.choice(bits(mask)),
                        *(others.choice([*text[-9:], others.choice(bits(mask))]) for _ in range(3)),
                    ]
                    taken = probe.tries([int(t) for t in some])
                    assert taken > 0 or int(some[0]) == vocabulary.end
                    if others.random() < 0.5:
                        assert probe.mask()[0].tobytes() == mask.tobytes()
                token = draw(rng, vocabulary, mask, whole)
                if token == vocabulary.end:
                    break
                assert probe.tokens([token]) == 1
                text.append(int(token))
            texts.append((text, masks))
        assert texts[0] == texts[1]
