"""Random schemas in which all keywords meet, with `jsonschema` as the judge in both directions: what the automaton
writes is valid, and what is valid can be written. Of objects any order of the members may be the one."""

from __future__ import annotations

import itertools
import json
import math
import random
import re

import jsonschema
import pytest
from keywords import near, schema_of_all, value
from probe import Refused
from test_masks import write

CHECKER = jsonschema.Draft202012Validator.FORMAT_CHECKER
ORDERS = 720
# of names that the schema does not know only one counts for it, as the same may come twice; where items must differ, only
# one is written
COUNTED = re.compile(r'"minProperties": [2-9]|"uniqueItems": true')

# what a schema may break by means of a member without a name is not written
LEFT_OUT = re.compile(
    r'"minProperties": [2-9]|"uniqueItems": true|"(additional|pattern|unevaluated)Properties"|"propertyNames"|"maxProperties"'
)


def judge_of(schema):
    return jsonschema.Draft202012Validator(schema, format_checker=CHECKER)


def quoted(text):
    """A string as the automaton writes it."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def texts(of):
    """All ways to write a value."""
    if isinstance(of, dict):
        for order in itertools.permutations(of):
            for members in itertools.product(*(list(texts(of[key])) for key in order)):
                yield "{" + ",".join(f"{quoted(key)}:{text}" for key, text in zip(order, members, strict=True)) + "}"
    elif isinstance(of, list):
        for items in itertools.product(*(list(texts(item)) for item in of)):
            yield "[" + ",".join(items) + "]"
    else:
        yield quoted(of) if isinstance(of, str) else json.dumps(of)


def orders(of):
    """How many texts() gives."""
    if isinstance(of, dict):
        return math.factorial(len(of)) * math.prod(orders(v) for v in of.values())
    return math.prod(orders(item) for item in of) if isinstance(of, list) else 1


def can_write(probe, of):
    for text in texts(of):
        probe.again()
        if probe.bytes(text.encode()) and probe.mask()[1]:
            return True
    return False


def written(vocabulary, rng, judge):
    """Values of texts drawn at random; each is valid."""
    for _ in range(6):
        vocabulary.probe.again()
        text = write(rng, vocabulary)
        if text is None:
            continue
        got = json.loads(text.decode())
        judge.validate(got)
        if "Infinity" not in json.dumps(got):
            yield got


def check(vocabulary, seed, counts, conditions):
    rng = random.Random(seed)
    schema = schema_of_all(rng, conditions)
    if isinstance(schema, bool):
        return
    judge, values = judge_of(schema), []
    try:
        vocabulary.probe.schema(schema)
    except Refused as refused:
        counts["refused"] += 1
        if "nothing can match" in refused.args[1] and not COUNTED.search(json.dumps(schema)):
            assert not any(judge.is_valid(value(rng)) for _ in range(60)), schema
        return
    try:
        values = list(written(vocabulary, rng, judge))
        counts["written"] += len(values)
        for _ in range(25):
            one = near(rng, rng.choice(values)) if values and rng.random() < 0.6 else value(rng)
            if orders(one) > ORDERS:
                continue
            wanted, can = judge.is_valid(one), can_write(vocabulary.probe, one)
            if wanted and not can and (COUNTED if not conditions else LEFT_OUT).search(json.dumps(schema)):
                continue
            assert can == wanted, (seed, schema, one, wanted)
            counts["valid"] += wanted
    except RecursionError:  # of the judge, in a schema that leads back to itself
        return


def run(vocabulary, seeds, conditions=False):
    counts = {"refused": 0, "written": 0, "valid": 0}
    for seed in seeds:
        try:
            check(vocabulary, seed, counts, conditions)
        except jsonschema.ValidationError as invalid:
            raise AssertionError(
                f"seed {seed}: {schema_of_all(random.Random(seed), conditions)} allowed {invalid.message}"
            ) from None
    assert counts["refused"] < 0.4 * len(seeds) and min(counts["written"], counts["valid"]) > len(seeds), counts


def test_some(vocabulary):
    run(vocabulary, range(150))


def test_some_with_conditions(vocabulary):
    run(vocabulary, range(10000, 10150), True)


@pytest.mark.long
def test_many_with_conditions(vocabulary):
    run(vocabulary, range(10150, 14000), True)


@pytest.mark.long
def test_many(vocabulary):
    run(vocabulary, range(150, 4000))


CASES = [  # schema, texts that are of it, texts that are not
    ({"type": "string", "pattern": "^z", "format": "uuid"}, None, None),
    ({"enum": ["", "x"], "pattern": "^x", "maxLength": 0}, None, None),
    ({"propertyNames": {"type": "integer"}, "type": "object"}, ["{}"], ['{"a":1}']),
    ({"type": "integer", "maximum": 2**63 - 1}, ["9223372036854775807"], ["9223372036854775808", "9223372036854775900"]),
    ({"type": "integer", "minimum": -(2**63)}, ["-9223372036854775808"], ["-9223372036854775809"]),
    ({"type": "integer", "exclusiveMinimum": 2**53 + 1}, ["9007199254740994"], ["9007199254740993"]),
    ({"allOf": [{"prefixItems": [{"type": ["string", "integer"]}]}, {"items": {"type": "integer"}, "type": "array"}]},
     ["[1,2]"], ['["a",2]', '["a"]']),
    ({"allOf": [{"prefixItems": [{"type": "null"}]}, {"prefixItems": [{}, {"const": 2}], "type": "array"}]},
     ["[null,2,3]"], ["[1,2]", "[null,3]"]),
    ({"allOf": [{"type": "object", "properties": {"a": {"type": "null"}}}], "unevaluatedProperties": False},
     ["{}", '{"a":null}'], ['{"b":1}', '{"a":1}']),
    ({"$ref": "#/$defs/x", "properties": {"b": {}}, "unevaluatedProperties": False,
      "$defs": {"x": {"type": "object", "properties": {"a": {}}}}}, ['{"b":1,"a":1}'], ['{"c":1}']),
    ({"anyOf": [{"properties": {"a": {}}, "required": ["a"]}, {"properties": {"b": {}}}], "type": "object",
      "unevaluatedProperties": False}, ['{"a":1}', '{"b":1}', "{}"], ['{"c":1}']),
    ({"type": "object", "minProperties": 2, "properties": {"k": {}}}, ['{"k":1,"x":1}'], ['{"x":1,"x":2}', '{"k":1}']),
    ({"not": {"type": ["string", "integer"]}, "maxProperties": 1, "maximum": 5},
     ["null", "true", "1.5", "[]", '{"a":1}'], ['"a"', "1", "2.0", "5.5", '{"a":1,"b":2}']),
    ({"type": "string", "not": {"pattern": "^(a|b)"}, "maxLength": 3}, ['"c"', '"ca"', '""'], ['"a"', '"bcd"']),
    ({"type": "number", "not": {"enum": [1, 2.5, "x"]}}, ["2", "2.51", "-1"], ["1", "1.0", "2.5", "2.50", "1.00"]),
    ({"type": "object", "not": {"required": ["a", "b"]}, "properties": {"a": {}, "b": {}}},
     ["{}", '{"a":1}', '{"b":1,"c":1}'], ['{"a":1,"b":1}', '{"a":1,"c":1,"b":2}']),
    ({"properties": {"kind": {"enum": ["a", "b"]}}, "required": ["kind"], "type": "object",
      "if": {"properties": {"kind": {"const": "a"}}}, "then": {"required": ["n"]}, "else": {"maxProperties": 1}},
     ['{"kind":"a","n":1}', '{"kind":"b"}'], ['{"kind":"a"}', '{"kind":"b","n":1}']),
    ({"oneOf": [{"required": ["a"]}, {"required": ["b"]}], "type": "object", "properties": {"a": {}, "b": {}}},
     ['{"a":1}', '{"b":1}', '{"a":1,"c":1}'], ["{}", '{"a":1,"b":1}']),
    ({"oneOf": [{"type": "number"}, {"type": "integer", "minimum": 3}, {"type": "string", "maxLength": 2}]},
     ["1", "2", "2.5", '"ab"'], ["3", "7", '"abc"']),
    ({"type": "array", "contains": {"const": 1}, "maxItems": 3}, ["[1]", "[2,1]", "[2,2,1]", "[1,1]"], ["[]", "[2]"]),
    ({"type": "array", "not": {"items": {"type": "integer"}}}, ['["a"]', '[1,"a"]', "[1,1.5]"], ["[]", "[1]", "[1,2.0]"]),
    ({"type": "array", "contains": {"type": "integer"}, "minContains": 2, "maxContains": 3, "maxItems": 4},
     ["[1,2]", '[1,"a",2]', '["a",1,2,3]'], ["[1]", "[]", "[1,2,3,4]", '["a",1,"b","c"]']),
    ({"type": "array", "prefixItems": [{"type": "string"}], "contains": {"const": 1}, "minContains": 0, "maxContains": 1},
     ["[]", '["a"]', '["a",1]', '["a",2,1,3]'], ["[1]", '["a",1,1]']),
    ({"type": "array", "uniqueItems": True, "contains": {"type": "integer", "minimum": 5}, "minContains": 2},
     ["[5,6]", '["a",5,7]'], ["[5]", "[5,5]", "[5,4]"]),
    ({"type": "array", "allOf": [{"prefixItems": [{"type": "null"}]}], "unevaluatedItems": {"type": "boolean"}},
     ["[]", "[null]", "[null,true]"], ["[true]", "[null,null]"]),
    ({"type": "array", "contains": {"const": 1}, "unevaluatedItems": False}, ["[1]", "[1,1]"], ["[]", "[2]", "[1,2]"]),
    ({"type": "array", "allOf": [{"items": {"type": "integer"}}], "unevaluatedItems": False}, ["[1]", "[]"], ['["a"]']),
    ({"type": "array", "anyOf": [{"prefixItems": [{"const": 1}, True], "minItems": 2}, {"prefixItems": [True]}],
      "unevaluatedItems": False}, ["[2]", "[1,2]"], ["[2,2]", "[1,2,3]"]),
    ({"type": "object", "patternProperties": {"^a": {"type": "integer"}, "b$": {"minimum": 5}}},
     ['{"a":1}', '{"ab":5}', '{"b":"x"}', '{"c":null}'], ['{"ab":4}', '{"ab":"x"}', '{"a":"x"}', '{"b":1}']),
    ({"type": "object", "allOf": [{"patternProperties": {"^a": {"type": "integer"}}}, {"patternProperties": {
      "^ab": {"minimum": 5}, "^a": {"maximum": 9}}}]}, ['{"a":1}', '{"ab":9}'], ['{"ab":4}', '{"a":10}', '{"a":null}']),
    ({"oneOf": [{"properties": {"k": {"const": "a"}}, "required": ["k", "n"]}, {"properties": {"k": {"const": "b"}}},
      {"properties": {"k": {"const": "c"}}, "required": ["k"]}], "type": "object"},
     ['{"k":"a","n":1}', '{"k":"b"}', '{"k":"c"}', "{}"], ['{"k":"d"}', '{"k":"a"}']),
    ({"dependentRequired": {"a": ["b"]}, "type": "object", "properties": {"a": {}, "b": {}}},
     ["{}", '{"b":1}', '{"a":1,"b":1}'], ['{"a":1}', '{"a":1,"c":1}']),
    ({"dependentSchemas": {"a": {"maxProperties": 1}}, "type": "object"}, ["{}", '{"b":1,"c":1}', '{"a":1}'],
     ['{"a":1,"b":1}']),
    ({"type": "object", "properties": {"k": {"$ref": "#", "minProperties": 1}}}, ['{"k":{"k":{"x":1}}}'], ['{"k":{}}']),
]  # fmt: skip


@pytest.mark.parametrize("number", range(len(CASES)))
def test_keywords_that_meet(vocabulary, number):
    schema, valid, invalid = CASES[number]
    judge = judge_of(schema)
    if valid is None:
        with pytest.raises(Refused, match="nothing can match"):
            vocabulary.probe.schema(schema)
        return
    vocabulary.probe.schema(schema)
    for text in valid + invalid:
        vocabulary.probe.again()
        whole = vocabulary.probe.bytes(text.encode()) and vocabulary.probe.mask()[1]
        assert judge.is_valid(json.loads(text)) == (text in valid) == whole, text


@pytest.mark.parametrize(
    "schema,pointer,words",
    [
        ({"propertyNames": {"not": {"format": "date"}}}, "/propertyNames/not/format", "format is not"),
        ({"type": "object", "required": "a"}, "/required", "a list of strings"),
        ({"type": "object", "required": {"a": 1}}, "/required", "a list of strings"),
        ({"type": "object", "not": {"const": {"a": 1}}}, "/not/const", "objects and lists"),
        ({"const": [1, 1], "uniqueItems": True}, "", "nothing can match"),
        ({"oneOf": [{"const": 1}, {"const": 1.0}]}, "", "nothing can match"),
        ({"type": "object", "minProperties": 2}, "/minProperties", "more than one property that is not named"),
        ({"allOf": [{"prefixItems": 5}, {"type": "array"}]}, "/allOf/0/prefixItems", "a list of schemas"),
        ({"properties": {"é" * 150: {"$dynamicRef": "#"}}}, "/properties/éé", "$dynamicRef is not"),
        ({"properties": {"x" + "é" * 150: {"$dynamicRef": "#"}}}, "/properties/xéé", "$dynamicRef is not"),
        ({"enum": [[1]], "unevaluatedItems": False}, "/unevaluatedItems", "it is not supported here"),
        ({"$ref": "#/" + "é" * 100}, "/$ref", "there is no schema"),
        ({"$ref": "#/x" + "é" * 100}, "/$ref", "there is no schema"),
    ],
)
def test_what_would_not_be_enforced_is_refused(vocabulary, schema, pointer, words):
    with pytest.raises(Refused) as refused:
        vocabulary.probe.schema(schema)
    where, why = refused.value.args
    assert where.startswith(pointer) and words in why, refused.value.args
    assert "\ufffd" not in where + why  # cut between characters
