"""Schemas for tests: those written for one keyword each, and random ones."""

from __future__ import annotations

import random

# Each shows a keyword, or a pair that meets. Values of all of them can be written by llguidance, too.
WRITTEN = [
    {"type": "string"},
    {"type": "string", "maxLength": 0},
    {"type": "string", "minLength": 3},
    {"type": "string", "minLength": 2, "maxLength": 5},
    {"type": "string", "pattern": "^[a-z]{2,4}-[0-9]+$"},
    {"type": "string", "pattern": "^(foo|bar)?x*$"},
    {"type": "string", "pattern": "^[A-Za-z ,.é-]{2,60}$"},
    {"type": "string", "pattern": "^([a-z]{1,20}-){2}[0-9]{3,40}$"},
    {"type": "string", "pattern": "ab"},
    {"type": "string", "pattern": "^ab", "maxLength": 6},
    {"type": "string", "pattern": "^[^a-z\"]*$"},
    {"type": "string", "pattern": "^\\d{3}(-\\d{4})?$"},
    {"type": "string", "enum": ["a", "ab", "b\"c", "é"]},
    {"enum": [1, 2.5, "x", None, True]},
    {"const": "only"},
    {"const": 42},
    {"const": {"a": [1, "x"], "b": {}}},
    {"type": "integer"},
    {"type": "number"},
    {"type": "boolean"},
    {"type": "null"},
    {"type": ["string", "null"]},
    {"type": ["integer", "boolean", "array"], "items": {"type": "null"}},
    {"type": "array"},
    {"type": "array", "items": {"type": "integer"}},
    {"type": "array", "items": {"type": "boolean"}, "minItems": 2},
    {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": 2},
    {"type": "array", "prefixItems": [{"type": "integer"}, {"type": "string"}], "items": False},
    {"type": "array", "prefixItems": [{"type": "null"}], "items": {"type": "boolean"}, "minItems": 1, "maxItems": 3},
    {"type": "array", "maxItems": 0},
    {"type": "object"},
    {"type": "object", "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "integer"}},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}}, "additionalProperties": False},
    {"type": "object", "properties": {"a": {}, "ab": {}, "b": {}}, "required": ["ab"], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "integer"}}, "additionalProperties": {"type": "boolean"}},
    {"type": "object", "properties": {"é\"": {"type": "null"}}, "required": ["é\""], "additionalProperties": False},
    {"type": "object", "properties": {"a": {"type": "null"}}, "required": ["a", "b"]},
    {"anyOf": [{"type": "integer"}, {"type": "string", "maxLength": 3}]},
    {"anyOf": [{"type": "object", "properties": {"a": {"const": 1}}, "required": ["a"], "additionalProperties": False},
               {"type": "object", "properties": {"a": {"const": 2}}, "required": ["a"], "additionalProperties": False},
               {"type": "array", "items": {"enum": ["x", "y"]}}]},
    {"oneOf": [{"type": "boolean"}, {"type": "null"}, {"type": "array", "items": {"type": "null"}}]},
    {"allOf": [{"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]},
               {"type": "object", "properties": {"b": {"type": "null"}}, "required": ["b"]}]},
    {"allOf": [{"type": "string", "minLength": 2}, {"maxLength": 3}]},
    {"$defs": {"n": {"type": "integer"}}, "type": "array", "items": {"$ref": "#/$defs/n"}},
    {"$defs": {"n": {"type": "object", "properties": {"v": {"type": "boolean"}, "c": {"type": "array",
     "items": {"$ref": "#/$defs/n"}}}, "required": ["v"], "additionalProperties": False}}, "$ref": "#/$defs/n"},
    {"type": "object", "properties": {"kids": {"type": "array", "items": {"$ref": "#"}}}, "required": ["kids"],
     "additionalProperties": False},
    {"type": "object", "patternProperties": {"^x_": {"type": "integer"}}, "additionalProperties": False},
    {"type": "object", "properties": {"n": {"type": "object", "properties": {"m": {"type": "array", "items":
     {"type": "object", "properties": {"k": {"enum": ["one", "two"]}}, "required": ["k"],
      "additionalProperties": False}}}, "required": ["m"], "additionalProperties": False}}, "required": ["n"],
     "additionalProperties": False},
]  # fmt: skip

# Here the languages differ by design, so that of two answers one is of ours alone, or of theirs: numbers between
# bounds (exponents, signs of zero), multiples, formats (ours are narrower).
OURS = [
    {"type": "integer", "minimum": 3, "maximum": 1234},
    {"type": "integer", "minimum": -20, "exclusiveMaximum": 5},
    {"type": "integer", "minimum": 0},
    {"type": "integer", "maximum": -7},
    {"type": "integer", "exclusiveMinimum": 9, "maximum": 10},
    {"type": "number", "minimum": 0, "maximum": 1},
    {"type": "number", "exclusiveMinimum": -2.5, "maximum": 10.25},
    {"type": "number", "exclusiveMinimum": 0},
    {"type": "number", "maximum": -0.125},
    {"type": "number", "minimum": 1e-3, "exclusiveMaximum": 1.5e3},
    {"type": "integer", "multipleOf": 7},
    {"type": "number", "multipleOf": 0.25},
    {"type": "number", "multipleOf": 0.01, "minimum": 1, "maximum": 2},
    {"type": "integer", "multipleOf": 5, "minimum": 12, "maximum": 44},
    *({"type": "string", "format": f} for f in ("date", "time", "date-time", "duration", "email", "hostname", "ipv4",
                                                "ipv6", "uuid", "uri", "json-pointer")),
    {"type": "object", "propertyNames": {"pattern": "^[A-C]+$"}, "additionalProperties": {"type": "integer"},
     "minProperties": 1},
    {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "null"}, "c": {"type": "boolean"}},
     "additionalProperties": {"type": "string", "maxLength": 2}, "minProperties": 2, "maxProperties": 3},
    {"type": "object", "properties": {"a": {}, "b": {}, "c": {}}, "additionalProperties": False, "minProperties": 2},
    {"type": "object", "properties": {"x_a": {"minimum": 2}}, "patternProperties": {"^x": {"type": "integer"},
     "y$": {"type": "integer"}}, "additionalProperties": {"type": "null"}},
    {"properties": {"a": {"type": "string", "minLength": 2}}, "allOf": [{"properties": {"a": {"maxLength": 3},
     "b": {"type": "null"}}, "required": ["a", "b"]}], "type": "object"},
    {"type": "object", "properties": {"k": {"type": "string"}}, "required": ["k"], "oneOf": [
        {"properties": {"k": {"const": "a"}, "n": {"type": "integer"}}, "required": ["n"]},
        {"properties": {"k": {"enum": ["b", "c"]}}}], "additionalProperties": True},
    {"minimum": 5, "maxLength": 2, "maxItems": 1, "maxProperties": 1},
    {"type": "string", "enum": ["é\n", "\u0001\u007f", "\\/"]},
]  # fmt: skip


def random_schema(rng: random.Random, depth: int = 0) -> dict:
    """A schema of keywords that both sides write alike."""
    kinds = ["string", "integer", "number", "boolean", "null", "enum", "const", "pattern"]
    kinds += ["object", "array", "anyOf", "tuple"] * (2 if depth < 3 else 0)
    kind = rng.choice(kinds)
    if kind == "string":
        lo = rng.choice([0, 0, 1, 4])
        bounds = {"minLength": lo} if lo else {}
        return {"type": "string"} | bounds | ({"maxLength": lo + rng.randrange(9)} if rng.random() < 0.5 else {})
    if kind == "pattern":
        part = [rng.choice(["[a-c]", "\\d", "x?", "(ab|c)", "[^x-z ]", "\\w{1,3}", "-*"]) for _ in range(4)]
        return {"type": "string", "pattern": "^" + "".join(part) + "$"}
    if kind == "enum":
        values = ["red", "green", "re", 1, 10, 1.5, None, False, "a b", ""]
        return {"enum": rng.sample(values, rng.randrange(1, 6))}
    if kind == "const":
        return {"const": rng.choice(["x", 7, True, None, 'long text with "quotes"'])}
    if kind == "anyOf":
        return {"anyOf": [random_schema(rng, depth + 1) for _ in range(rng.randrange(2, 4))]}
    if kind == "array":
        lo = rng.choice([0, 0, 1, 2])
        bounds = {"minItems": lo} if lo else {}
        bounds |= {"maxItems": lo + rng.randrange(4)} if rng.random() < 0.5 else {}
        return {"type": "array", "items": random_schema(rng, depth + 1)} | bounds
    if kind == "tuple":
        n = rng.randrange(1, 4)
        return {"type": "array", "prefixItems": [random_schema(rng, depth + 1) for _ in range(n)], "items": False,
                "minItems": rng.randrange(n + 1)}  # fmt: skip
    if kind == "object":
        names = rng.sample(["a", "ab", "b", "name", "n", "value", "x y", "ü"], rng.randrange(5))
        return {
            "type": "object",
            "properties": {n: random_schema(rng, depth + 1) for n in names},
            "required": [n for n in names if rng.random() < 0.5],
            "additionalProperties": rng.choice([False, False, False, {"type": "integer"}]),
        }
    return {"type": kind}
