"""Masks beside those of llguidance, and the documents that they allow before `jsonschema`.

A text is written token by token, each drawn at random of our mask. In front of each the two masks must be equal. Two
differences are meant. Where only one text can follow, llguidance allows but the tokens that an encoder would take for
it; every token that we allow besides must be one that it takes. And formats and bounded numbers are narrower here, so
there ours must be among theirs, and `jsonschema` is the judge of what we allow."""

from __future__ import annotations

import json
import random
import re
import unicodedata

import jsonschema
import llguidance
import llguidance.numpy
import numpy as np
import pytest
from probe import Refused, bits
from schemas import OURS, WRITTEN, random_schema

POLICY = {"whitespace_flexible": False, "item_separator": ",\x20?", "key_separator": ":\x20?"}
N_RANDOM = 200 - len(WRITTEN)
STEPS = 120


def peer_of(vocabulary, schema):
    source = dict(schema) | {"x-guidance": POLICY}
    matcher = llguidance.LLMatcher(vocabulary.peer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(source)))
    assert not matcher.is_error(), matcher.get_error()
    return matcher


def peer_mask(vocabulary, matcher):
    mask = llguidance.numpy.allocate_token_bitmask(1, vocabulary.n_ids)
    llguidance.numpy.fill_next_token_bitmask(matcher, mask, 0)
    mask = mask[0].view(np.uint32).copy()
    for token in vocabulary.left_out:  # tokens that we never allow: added ones
        mask[token // 32] &= ~np.uint32(1 << (token % 32))
    return mask


def in_escape(text):
    """Does it end within "\\uXXXX"? In keys that a schema does not name llguidance lets it be any character."""
    return re.search(rb"(?<!\\)(\\\\)*\\u[0-9a-fA-F]{0,3}$", text) is not None


def compare(vocabulary, matcher, ours, where):
    theirs = peer_mask(vocabulary, matcher)
    if np.array_equal(ours, theirs):
        return
    extra, missing = bits(ours & ~theirs), bits(theirs & ~ours)
    if in_escape(where):
        missing = []
    missing = [t for t in missing if "\\u" not in vocabulary.text(t)]
    assert len(missing) == 0, f"{where}: llguidance also allows {[vocabulary.text(t) for t in missing[:9]]}"
    for token in extra:
        taken = matcher.deep_copy().try_consume_tokens([int(token)])
        assert taken == 1, f"{where}: {vocabulary.text(token)!r} is allowed here alone"


def draw(rng, vocabulary, mask, whole):
    """Mostly what ends something, so that texts come to an end."""
    ids = bits(mask)
    assert len(ids), "nothing may follow"
    if whole and rng.random() < 0.3:
        return vocabulary.end
    ids = ids[ids != vocabulary.end]
    if len(ids) == 0:
        return vocabulary.end
    few = [int(rng.choice(ids)) for _ in range(6)]
    closing = [t for t in few if any(c in vocabulary.text(t) for c in '"]}')]
    return rng.choice(closing if closing and rng.random() < 0.7 else few)


def write(rng, vocabulary, matcher=None):
    """A text of the grammar, None where it did not end in time; wrong turns are tried on the way."""
    probe, text = vocabulary.probe, b""
    for _ in range(STEPS):
        mask, whole, over, _ = probe.mask()
        if matcher:
            compare(vocabulary, matcher, mask, text)
        assert bool(mask[vocabulary.end // 32] >> (vocabulary.end % 32) & 1) == whole
        wrong = rng.randrange(vocabulary.n_ids)
        if not mask[wrong // 32] >> (wrong % 32) & 1:
            assert wrong in vocabulary.silent or probe.tokens([wrong]) == 0, (text, wrong)
        token = draw(rng, vocabulary, mask, whole)
        if token == vocabulary.end:
            assert whole
            return text
        assert not over and probe.tokens([token]) == 1
        assert not matcher or matcher.consume_token(token)
        text += vocabulary.bytes(token)
    return None


def judge(text, schema):
    value = json.loads(text.decode())
    checker = jsonschema.Draft202012Validator.FORMAT_CHECKER
    jsonschema.Draft202012Validator(schema, format_checker=checker).validate(value)


def check(vocabulary, schema, seed, texts, beside):
    rng, ended = random.Random(seed), 0
    vocabulary.probe.schema(schema)
    for _ in range(texts):
        vocabulary.probe.again()
        text = write(rng, vocabulary, peer_of(vocabulary, schema) if beside else None)
        ended += text is not None
        if text is not None:
            judge(text, schema)
    return ended


@pytest.mark.parametrize("number", range(len(WRITTEN)))
def test_masks_of_each_keyword(vocabulary, number):
    check(vocabulary, WRITTEN[number], number, 4, True)


def test_masks_of_random_schemas(vocabulary):
    ended = 0
    for seed in range(N_RANDOM):
        schema = random_schema(random.Random(seed))
        ended += check(vocabulary, schema, seed, 2, True)
    assert ended > N_RANDOM  # of twice as many


@pytest.mark.parametrize("expression", ["[a-zé ,]{2,60}", "([A-Za-z0-9]{1,40}[.@-]){1,5}", "(ab?|\\d{2,30})*x{3,9}"])
def test_masks_do_not_depend_on_those_before(vocabulary, expression):
    """A mask is made of that of a state before where the two are nearly alike: it is the one that a grammar without
    any before makes."""
    probe, rng = vocabulary.probe, random.Random(4)
    schema = {"type": "string", "pattern": f"^{expression}$"}
    for _ in range(3):
        tokens, masks = [], []
        probe.schema(schema)
        for _ in range(30):
            masks.append(probe.mask()[0])
            ids = bits(masks[-1])
            if len(ids) == 0 or ids[0] == vocabulary.end:
                break
            tokens.append(int(rng.choice(ids[ids != vocabulary.end])))
            assert probe.tokens(tokens[-1:]) == 1
        for n, mask in enumerate(masks):
            probe.schema(schema)
            assert probe.tokens(tokens[:n]) == n and np.array_equal(probe.mask()[0], mask), tokens[:n]


def test_masks_of_long_texts(vocabulary):
    """Steps and states that a text forgets, and memory that it has of a text of another grammar, change no mask: one that is
    asked for masks all the way has those of one that is only pushed."""
    probe, text = vocabulary.probe, '{"k":[-1.5,"é\\n",{"":['.encode() * 160 + b'[true,{"a"'
    masks = {}
    probe.schema({"type": "object"})
    for n in range(2, len(text), 2):
        assert probe.bytes(text[n - 2 : n])
        masks[n] = probe.mask()[0]
    for other in (
        {"type": "array", "items": {"type": "integer"}},
        {"type": "object", "properties": {"k": {"const": "x"}}},
    ):
        probe.schema(other)
        for _ in range(3):
            write(random.Random(5), vocabulary)
            probe.again()
    probe.schema({"type": "object"})
    for n in range(2, len(text), 194):
        probe.again()
        assert probe.bytes(text[:n])
        assert np.array_equal(probe.mask()[0], masks[n]), text[:n]


# Bytes that only lead on, between others that do not; the length of what they repeat.
LEADING = [
    ("[a-z0-9]+(-[a-z0-9]+)*", {}, "abc-d3", None),
    ("[A-Za-zÀ-ÿ ,.'-]{2,200}", {}, "é, e.", 200),
    ("[A-Za-zÀ-ÿ ,.'-]+", {"minLength": 2, "maxLength": 77}, "e é", 77),
    ("[A-Z]{3}[a-z_]{40}x?", {}, "ABC", 43),
    ("([a-z]{1,20}[.]){1,4}[A-Za-z]{2,35}", {}, "a.ab", None),
    ("[ -~]{0,90}", {}, "#!", 90),
    ("-{0,150}[0-9 ]{0,150}", {}, "", None),
]


@pytest.mark.parametrize("pattern,more,begin,most", LEADING)
def test_masks_near_the_end_of_a_count(vocabulary, pattern, more, begin, most):
    """Sets of tokens that are taken as a whole are cut where few characters are left."""
    schema = {"type": "string", "pattern": f"^{pattern}$"} | more
    probe = vocabulary.probe
    for left in (0, 1, 2, 3, 5, 8, 15, 16, 17, 30, 31, 32, 33, 34, 50, 70) if most else (0,):
        text = ('"' + begin + "e" * (most - left - len(begin) if most else 0)).encode()
        probe.schema(schema)
        assert probe.bytes(text)
        source = schema | {"x-guidance": POLICY}
        matcher = llguidance.LLMatcher(
            vocabulary.peer, llguidance.LLMatcher.grammar_from_json_schema(json.dumps(source))
        )
        for byte in text:  # a token of each byte: the text that the masks follow is the same
            assert matcher.consume_token(vocabulary.of_one_byte(byte))
        compare(vocabulary, matcher, probe.mask()[0], text)


@pytest.mark.parametrize("number", range(len(OURS)))
def test_documents_of_what_is_ours_alone(vocabulary, number):
    assert check(vocabulary, OURS[number], number, 12, False) > 0


def test_texts_that_a_schema_has(vocabulary):
    """The other direction: values that `jsonschema` takes can be written, those that it refuses cannot."""
    cases = [
        ({"type": "integer", "minimum": -20, "maximum": 1234}, range(-130, 1400)),
        ({"type": "number", "exclusiveMinimum": -1.5, "maximum": 2.25}, [i / 8 for i in range(-30, 40)]),
        ({"type": "number", "minimum": 0.05, "exclusiveMaximum": 20}, [i / 100 for i in range(-20, 2100, 7)]),
        ({"type": "integer", "multipleOf": 12}, range(-150, 400)),
        ({"type": "number", "multipleOf": 0.05}, ["0.05", "0.1", "0.12", "3", "3.15", "3.151", "-0.35", "0.350"]),
        ({"type": "string", "minLength": 2, "maxLength": 3}, ["", "a", "ab", "é😀", '"\\', "abc", "a\nb", "abcd"]),
        ({"type": "string", "pattern": "b+"}, ["", "b", "abba", "a", "\n b \u2028"]),
        ({"type": "string", "pattern": "^a|b$"}, ["a", "ax", "xb", "b", "xbx", "xa"]),
        ({"type": "array", "maxItems": 2}, [[], [1], [1, [2]], [1, 2, 3]]),
    ]
    for schema, values in cases:
        vocabulary.probe.schema(schema)
        for value in values:
            text = (
                value
                if isinstance(value, str) and schema["type"] == "number"
                else json.dumps(value, ensure_ascii=False)
            )
            wanted = jsonschema.Draft202012Validator(schema).is_valid(json.loads(text))
            if schema.get("multipleOf") == 0.05:
                wanted = float(text) * 100 % 5 < 1e-9 or 5 - float(text) * 100 % 5 < 1e-9
                wanted = wanted and len(text.partition(".")[2]) <= 2
            vocabulary.probe.again()
            taken = vocabulary.probe.bytes(text.replace('", "', '","').encode())
            whole = taken and vocabulary.probe.mask()[1]
            assert whole == wanted, (schema, text)


def test_expressions_are_those_of_python(vocabulary):
    expressions = ["a*b|c", "(ab)+", "[^a-y]{2}", "a{2,3}?", "\\d+\\.\\d", "(?:x|)y", "[\\]a-]", "\\u0061[\\x62]", "a|",
                   "(?P<n>a)b?", "é+", "\\s\\S", "[a-c-]+", "(?=a)[a-c]+", "(?!ab)[abc]+", "a(?!b)[abc]*|x", "(?=.*c)(?=.*a).+",
                   "(?!a$)[ab]{1,3}", "([abc](?!b))?[a-c]*", "(?=a|b)(?!bb).{2}", "(?:(?=x)[x-z]|(?!y)b){1,2}"]  # fmt: skip
    alphabet = ["a", "b", "c", "x", "y", "z", "1", "2", ".", "]", "-", " ", "é"]
    rng = random.Random(1)
    for expression in expressions:
        vocabulary.probe.compile("r", expression)
        for _ in range(300):
            text = "".join(rng.choice(alphabet) for _ in range(rng.randrange(5)))
            vocabulary.probe.again()
            whole = vocabulary.probe.bytes(text.encode()) if text else True
            whole = whole and vocabulary.probe.mask()[1]
            assert whole == bool(re.fullmatch(expression, text)), (expression, text)


@pytest.mark.parametrize(
    "name", ["L", "Lu", "Letter", "gc=Ll", "N", "Nd", "General_Category=Number", "P", "M", "S", "Sc", "Z", "Zs", "LC"]
)
def test_classes_of_unicode_are_those_of_python(vocabulary, name):
    """Of letters of many scripts, alone, without them and within brackets, in expressions and in patterns of strings."""
    short = {"Letter": "L", "General_Category=Number": "N"}.get(name, name.removeprefix("gc="))
    points = [
        *range(0x20, 0x7F),
        *range(0xA0, 0x600, 7),
        *range(0x900, 0x3100, 61),
        0x4E2D,
        0xAC00,
        0x1D400,
        0x1F600,
        0x2028,
    ]
    ways = [(rf"\p{{{name}}}", "", True), (rf"\P{{{name}}}", "", False), (rf"[\p{{{name}}}_-]", "_-", True),
            (rf"[^\p{{{name}}}x]", "x", False)]  # fmt: skip
    for (way, extra, is_in), kind in zip(ways, "rsrs", strict=True):
        vocabulary.probe.compile(kind, way if kind == "r" else json.dumps({"type": "string", "pattern": f"^{way}$"}))
        for c in map(chr, points):
            category = unicodedata.category(c)
            if category == "Cn":
                continue
            has = category in ("Lu", "Ll", "Lt") if short == "LC" else category.startswith(short)
            wanted = (has or c in extra) == is_in
            vocabulary.probe.again()
            text = c if kind == "r" else json.dumps(c, ensure_ascii=False)
            assert (vocabulary.probe.bytes(text.encode()) and vocabulary.probe.mask()[1]) == wanted, (way, c)


LOOKING = ["^(?!aws:)[a-z:]+$", "(?!^[0-9]+$)^[0-9a-c]{1,3}$", "^(?=.{2,3}$)[ab1]+", "(?!a)b", "(?=b)", "^(^(?=a)|1)(?!.*--)",
           "^[ab]{0,200}$", "^1[ab]{50,90}$", "[ab]{1,99}", "^[ab]{2,70}", "c{2,60}$"]  # fmt: skip


@pytest.mark.parametrize("pattern", LOOKING)
def test_patterns_are_those_of_python(vocabulary, pattern):
    schema, rng, seen = {"type": "string", "pattern": pattern}, random.Random(pattern), set()
    vocabulary.probe.schema(schema)
    parts = ["a", "b", "c", "1", "-", "--", "aws:", "é", "a" * 30, "b" * 33, "1" + "a" * 49, '"', "bb"]
    for _ in range(250):
        text = "".join(rng.choice(parts) for _ in range(rng.randrange(6)))
        vocabulary.probe.again()
        taken = vocabulary.probe.bytes(json.dumps(text, ensure_ascii=False).encode()) and vocabulary.probe.mask()[1]
        assert taken == bool(re.search(pattern, text)), text
        seen.add(taken)
    assert len(seen) == 2


COUNTED = [("^arn:.*$", 20, 2048), ("^[a-zé]+(-[a-z]+)*$", 1, 5000), ("^x(ab)?[0-9]{2}$", 0, 5000), ("^(abcd)*$", 0, 3000),
           ("^[a-c]{3,}$", 1500, 1502), ("a|é\\\\", 4, 4000)]  # fmt: skip
LONG = ["arn:", "arn:" + "x" * 16, "arn:" + "é" * 2044, "arn:" + "é" * 2045, "a-b", "a" * 5000, "a" * 5001, "xab12", "x12",
        "x123", "abcd" * 750, "abcd" * 751, "xaé\\", "é\\", "abc" * 500, "abc" * 500 + "a", "abc" * 501]  # fmt: skip


@pytest.mark.parametrize("pattern,lo,hi", COUNTED)
def test_counts_beside_a_pattern(vocabulary, pattern, lo, hi):
    """Counts that would take too many states as part of the automaton."""
    schema = {"type": "string", "pattern": pattern, "minLength": lo, "maxLength": hi}
    judge, ended = jsonschema.Draft202012Validator(schema), check(vocabulary, schema, 1, 12, False)
    assert ended or lo > 1000
    for text in LONG:
        vocabulary.probe.again()
        taken = vocabulary.probe.bytes(json.dumps(text, ensure_ascii=False).encode()) and vocabulary.probe.mask()[1]
        assert bool(taken) == judge.is_valid(text), text[:20]


@pytest.mark.parametrize(
    "source,pointer,words",
    [
        ({"not": {"format": "date"}}, "/not/format", "format is not supported in not"),
        ({"type": "object", "not": {"propertyNames": {"maxLength": 3}}}, "/not/propertyNames", "what it forbids"),
        ({"type": "integer", "not": {"multipleOf": 2}}, "/not/multipleOf", "not supported in not"),
        ({"type": "array", "items": {"uniqueItems": True, "contains": {}}}, "/items/contains", "next to uniqueItems"),
        ({"type": "array", "contains": {}, "minContains": 200, "maxItems": 200}, "/maxItems", "next to contains"),
        ({"if": {}, "then": False}, "", "nothing can match"),
        ({"dependentRequired": {"a": 1}, "type": "object"}, "/dependencies", "a list of strings"),
        ({"properties": {"a/~": {"type": "strin"}}}, "/properties/a~1~0/type", "a type of JSON"),
        ({"$defs": {"x": {"pattern": "\\b"}}, "$ref": "#/$defs/x"}, "/pattern", "borders of words"),
        ({"pattern": "\\p{Script=Greek}"}, "/pattern", "only general categories"),
        ({"pattern": "[\\p{L]"}, "/pattern", "'}' is expected"),
        ({"pattern": "\\pL"}, "/pattern", "'{' is expected"),
        ({"$ref": "other.json"}, "/$ref", "a place of this schema"),
        ({"$ref": "#"}, "", "nothing can match"),
        ({"allOf": [{"$ref": "#"}]}, "/allOf", "lead back"),
        ({"type": "object", "minProperties": -1}, "/minProperties", "a whole number"),
        ({"properties": []}, "/properties", "an object is expected"),
        ({"anyOf": []}, "/anyOf", "a list of schemas"),
        ({"multipleOf": 0}, "/multipleOf", "a number above 0"),
        ({"patternProperties": {x: {"minimum": i} for i, x in enumerate("abcdefgh")}}, "/patternProperties", "too many of"),
        ("7", "", "a schema is expected"),
        ("[", "", "no JSON"),
        ({"enum": []}, "", "nothing can match"),
        ({"enum": 5}, "/enum", "1 to 4096"),
        ({"type": "string", "minLength": 3, "maxLength": 2}, "", "nothing can match"),
    ],
    ids=str,
)  # fmt: skip
def test_what_is_refused(vocabulary, source, pointer, words):
    with pytest.raises(Refused) as refused:
        vocabulary.probe.schema(source)
    assert refused.value.args[0].startswith(pointer) and words in refused.value.args[1], refused.value.args


@pytest.mark.parametrize("expression", ["", "()", "a{0}", "(?:)*$"])
def test_an_expression_of_the_empty_text_alone_is_refused(vocabulary, expression):
    """No token can be drawn for it, and the end is not always one that may be."""
    with pytest.raises(Refused, match="only the empty text"):
        vocabulary.probe.compile("r", expression)


def test_hostile_sources_end_in_time(vocabulary):
    import time

    deep = "[" * 1000 + "]" * 1000
    nested = {"type": "null"}
    for _ in range(200):
        nested = {"anyOf": [nested, {"type": "array", "items": nested}]} if _ < 12 else {"items": nested}
    many = {"type": "object", "properties": {f"k{i}": {"type": "string"} for i in range(1500)}}
    product = {"allOf": [{"anyOf": [{"minLength": i} for i in range(40)]} for _ in range(6)]}
    meeting = {"oneOf": [{"properties": {f"k{i}": {"type": "string"}, f"k{i + 1}": {"minimum": i}}} for i in range(60)]}
    wide = {"type": "string", "pattern": "^[^:]{0,1023}:[^;]{0,1023}:[^x]{0,1023}$", "maxLength": 2048}
    sources = [("s", json.dumps(meeting)), ("s", json.dumps(wide)), ("s", deep), ("s", json.dumps(nested)), ("s", json.dumps(many)), ("s", json.dumps(product)),
               ("r", "(a|b)*a(a|b){40}"), ("r", "(" * 40 + ")" * 40), ("r", "((a{500}){500}){500}"),
               ("r", "((((){65535}){65535}){65535}){65535}"), ("r", "((|a?){60000}){60000}"), ("r", "a" + "*" * 65000),
               ("r", "a" + "{1}" * 20000), ("s", json.dumps({"type": "string", "pattern": "b" + "+?" * 30000})),
               ("s", json.dumps({"type": "string", "pattern": "^.{1,300}$", "maxLength": 100000})),
               ("c", json.dumps(["x" * 15] * 4096)),
               ("s", json.dumps({"type": "number", "minimum": 1e-300, "maximum": 1e300}))]  # fmt: skip
    for kind, source in sources:
        began = time.monotonic()
        try:
            vocabulary.probe.compile(kind, source)
            vocabulary.probe.mask()
        except Refused as refused:
            assert refused.args[1]
        assert time.monotonic() - began < 3, source[:60]


LONG = [
    {"type": "string", "format": "email"},
    {"type": "string", "format": "hostname"},
    {"type": "string", "format": "uri"},
    {"type": "string", "pattern": "^[A-Za-zÀ-ÿ ,.'-]{2,70}$"},
    {"type": "string", "pattern": "^[a-z ]*$", "minLength": 50, "maxLength": 60},
    {"type": "string", "pattern": '^x[a-z\\\\"é]{0,60}yz$'},
    {"type": "string", "pattern": "^[a-z]{1,60}(\\.[a-z]{1,60})*$"},
]


@pytest.mark.parametrize("schema", LONG, ids=lambda s: s.get("format") or s["pattern"])
def test_masks_of_counts_are_what_can_be_pushed(vocabulary, schema):
    """Near the ends of counts and far from them: a token is in the mask if and only if the text takes it."""
    probe = vocabulary.probe
    probe.schema({"type": "array", "items": schema})
    opener = vocabulary.of_one_byte(ord("["))
    for number in range(2):
        draw = random.Random(number)
        text = [opener]
        probe.again()
        assert probe.tokens(text) == 1
        for step in range(70):
            mask, *_ = probe.mask()
            allowed = [int(t) for t in bits(mask) if t != vocabulary.end]
            if not allowed:
                break
            if step in (3, 9) or step > 40 + number * 3 and step % 7 == 0:
                for token in range(vocabulary.n_ids):
                    if token == vocabulary.end:
                        continue
                    probe.again()
                    taken = probe.tokens([*text, token])
                    assert (taken == len(text) + 1) == (token in allowed), (vocabulary.text(token), step)
                probe.again()
                assert probe.tokens(text) == len(text)
            plain = [
                t for t in allowed if vocabulary.text(t).isalpha()
            ]  # a long run, so that counts come to their ends
            text.append(draw.choice(plain if plain and draw.random() < 0.97 else allowed))
            assert probe.tokens(text[-1:]) == 1
