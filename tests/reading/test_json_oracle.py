"""The JSON reader against Python's json: what we accept means the same there and holds no name twice."""

import json
import random

import pytest
from readers import Reader, mutate, same

SOUND = [
    b"{}",
    b' {"a": 1, "b": [true, false, null], "c": {"d": "e\\n\\u00e9"}}\n',
    b'{\n  "hidden_size": 64,\n  "eps": 1e-05,\n  "list": [[], {}, [1, -2, 3.5]],\n  "big": 9223372036854775807\n}\n',
    '{"ключ": "значение 😀", "t": "\\ud83d\\ude00"}'.encode(),
    b'{"x": NaN, "y": [Infinity, -Infinity], "z": {"__float__": "NaN"}, "s": "NaN"}',
    b'{"nested": {"nested": {"nested": {"nested": [[[[{"k": "v"}]]]]}}}}',
    b'{"s": "quote \\" brace } bracket ] comma , colon : backslash \\\\", "after": 1}',
]
TOKENS = [b"{", b"}", b"[", b"]", b":", b",", b'"', b"\\", b"NaN", b"Infinity", b"-", b"0", b"1e5", b"null", b'"a": 1,',
          b"\\u0000", b"\\ud800", b"\xff", b"\0", b"\n", b" ", b"/**/", b"true", b"00", b".5", b"1e999", b"\xef\xbb\xbf"]  # fmt: skip


class Twice(Exception):
    pass


def no_repeats(pairs):
    if len({k for k, _ in pairs}) != len(pairs):
        raise Twice
    if len(pairs) == 1 and pairs[0][0] == "__float__" and pairs[0][1] in ("NaN", "Infinity", "-Infinity"):
        return {"nonfinite": None}
    return dict(pairs)


def oracle(raw):
    """The value, or None when the text is no JSON object with distinct names."""
    try:
        value = json.loads(raw.decode("utf-8-sig"), object_pairs_hook=no_repeats,
                           parse_constant=lambda word: {"nonfinite": None})  # fmt: skip
    except (ValueError, Twice, RecursionError):
        return None
    return value if isinstance(value, dict) else None


def strip_words(value):
    """{"nonfinite": spelling} without the spelling, which the boxed form has otherwise."""
    if isinstance(value, dict):
        return {k: None if k == "nonfinite" else strip_words(v) for k, v in value.items()}
    return [strip_words(v) for v in value] if isinstance(value, list) else value


@pytest.fixture(scope="module")
def reader(build_dir):
    return Reader(build_dir, "json")


def test_sound_documents_are_accepted(reader):
    for raw, got in zip(SOUND, reader.documents(SOUND), strict=True):
        assert "error" not in got, (raw, got)
        assert same(strip_words(got["value"]), oracle(raw)), raw


def test_mutated_documents(reader):
    rng = random.Random(30)
    raws = [mutate(rng, rng.choice(SOUND), TOKENS) for _ in range(20000)]
    accepted = 0
    for raw, got in zip(raws, reader.documents(raws), strict=True):
        if "error" in got:
            assert got["error"][3] == "A0201" and got["error"][1] >= 1, raw
            continue
        expected = oracle(raw)
        assert expected is not None, f"json refuses {raw!r}"
        assert same(strip_words(got["value"]), expected), raw
        accepted += 1
    assert accepted > 1000


def test_refused_only_for_a_reason(reader):
    """Generated sound documents, in random layouts, are all accepted."""
    rng = random.Random(31)

    def value(depth):
        kind = rng.randrange(8 if depth < 5 else 6)
        if kind < 6:
            return [rng.randint(-(2**63), 2**63 - 1), rng.uniform(-1, 1), True, None, "tekst é\n", ""][kind]
        if kind == 6:
            return [value(depth + 1) for _ in range(rng.randrange(4))]
        return {f"k{i}": value(depth + 1) for i in range(rng.randrange(4))}

    values = [{"v": value(0)} for _ in range(2000)]
    texts = [json.dumps(v, indent=rng.choice([None, 1, 4]), ensure_ascii=rng.random() < 0.5).encode() for v in values]
    for expected, got in zip(values, reader.documents(texts), strict=True):
        assert same(got["value"], expected)


def test_places_point_at_values(reader):
    """Every value's place is where its spelling stands, whatever stands before it."""
    for raw in SOUND:
        lines = raw.decode().split("\n")
        for line, column, source in reader.one(raw)["places"]:
            first = source.split("\n")[0]
            assert lines[line - 1][column - 1 :].startswith(first), (raw, line, column, source)
