"""The TOML reader against Python's tomllib: what we accept means the same there, what it refuses we refuse."""

import random
import tomllib

import pytest
from readers import Reader, mutate, same

SOUND = [
    b"",
    b"a = 1\n",
    b"# comment only",
    b'[model]\nfamily = "llama"\n\n[runtime]\nslots = 8 # eight\nmax_context = 4_096\n',
    b"a.b.c = 1\na.b.d = [1, 2, [3, 'x']]\n",
    b"[a.b]\nx = -0\n[a]\ny = +7\n[a.c]\nz = 0x1F\n",
    b"[[k.pin]]\nt = 'a'\nlayers = [0, 1,\n  2, # two\n]\n[[k.pin]]\nt = \"b\"\nu = { W = 8, S = 2 }\n[k.pin.more]\nq=1\n",
    b"f = [1.5, -2e3, 1e-5, 6.02_2e+23, 0.0]\ni = [0o17, 0b1_01, 0xdead_beef, 9223372036854775807]\n",
    b'"quoted key" = "a\\tb\\n\\u00e9\\U0001F600\\"\\\\"\n\'lit.key\' = \'c:\\no\\escape\'\n',
    b"t = true\r\nf = false\r\n[x]\r\ny = []\r\nz = {}\r\n",
    "ключ = 1".encode().replace("ключ".encode(), b'"\xd0\xba"') + b"\n",
    b"fruit.apple.color = 1\nfruit.apple.taste.sweet = true\n[fruit.apple.texture]\nsmooth = true\n",
    b"p = { a.b = 1, a.c = { d = 'e' } }\n",
    b"[d]\nk = [ { x = 1 }, { x = 2, y = [ [ ], [ 1 ] ] } ]\n",
]
TOKENS = [b"[", b"]", b"[[", b"]]", b"{", b"}", b"=", b",", b".", b"\n", b"\r\n", b"\r", b"#", b'"', b"'", b'"""', b"'''",
          b"true", b"inf", b"nan", b"1979-05-27", b"07:32:00", b"_", b"0x", b"1e5", b"\\u0000", b"\\ud800", b"\\x41",
          b"\xff", b"\xed\xa0\x80", b"\0", b"\x7f", b"\t", b" ", b"a.b", b"[a]\n", b"[[a]]\n", b"[a.b]\n", b"a = 1\n",
          b"a.b = 1\n", b"0", b"-", b"+", b"99999999999999999999"]  # fmt: skip


def oracle(raw):
    try:
        return tomllib.loads(raw.decode())
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError, ValueError):
        return None


def word(rng):
    return rng.choice(["a", "b", "key", "Key-2", "x_1", "007", '"q k"', "'l.k'"])


def value(rng, depth=0):
    kinds = [
        lambda: str(rng.randint(-(2**63), 2**63 - 1)),
        lambda: str(rng.randint(0, 9)),
        lambda: repr(rng.uniform(-1e9, 1e9)),
        lambda: rng.choice(["true", "false"]),
        lambda: '"' + rng.choice(["", "x", "\\n\\t", "é😀", "\\u0041", "#no comment", "[]"]) + '"',
        lambda: "'" + rng.choice(["", "raw\\", "a b"]) + "'",
    ]
    if depth < 4:
        space = lambda: rng.choice(["", " ", "\n", " # c\n"])  # noqa: E731
        kinds.append(
            lambda: "[" + ",".join(space() + value(rng, depth + 1) + space() for _ in range(rng.randrange(4))) + "]"
        )
        kinds.append(lambda: "{" + ", ".join(f"k{i} = {value(rng, 9)}" for i in range(rng.randrange(4))) + "}")
    return rng.choice(kinds)()


def document(rng):
    """Mostly sound; a repeated key makes some of them wrong, which the oracle decides."""
    lines = []
    for _ in range(rng.randrange(12)):
        kind = rng.randrange(8)
        path = ".".join(word(rng) for _ in range(rng.randint(1, 3)))
        lines.append(f"[{path}]" if kind == 0 else f"[[{path}]]" if kind == 1 else f"{path} = {value(rng)}")
    return "\n".join(lines).encode() + rng.choice([b"", b"\n", b"\r\n"])


@pytest.fixture(scope="module")
def toml(build_dir):
    return Reader(build_dir, "toml")


def test_sound_documents_are_accepted(toml):
    for raw, got in zip(SOUND, toml.documents(SOUND), strict=True):
        assert "error" not in got, (raw, got)
        assert same(got["value"], oracle(raw)), raw


def compare(toml, raws):
    accepted = refused = stricter = 0
    for raw, got in zip(raws, toml.documents(raws), strict=True):
        expected = oracle(raw)
        if "error" in got:
            _, line, column, code, text = got["error"]
            assert code == "A0301" and line >= 1 and column >= 1 and text, raw
            refused += 1
            stricter += expected is not None
        else:
            assert expected is not None, f"tomllib refuses {raw!r}"
            assert same(got["value"], expected), raw
            accepted += 1
    return accepted, refused, stricter


def test_generated_documents(toml):
    rng = random.Random(20)
    accepted, refused, stricter = compare(toml, [document(rng) for _ in range(6000)])
    assert accepted > 1500 and refused > 500
    assert stricter < 60  # a header's table extended by dots, which TOML leaves open


def test_mutated_documents(toml):
    rng = random.Random(21)
    accepted, refused, _ = compare(toml, [mutate(rng, rng.choice(SOUND), TOKENS) for _ in range(20000)])
    assert accepted > 2000 and refused > 5000


def test_places_point_at_values(toml):
    raw = b"[a]\nx = 12 # c\n\xc3\xa9 = 1\n".replace(b"\xc3\xa9", b'"\xc3\xa9\xc3\xa9"') + b"y = [true,\n   'z']\n"
    places = {source: (line, column) for line, column, source in toml.one(raw)["places"]}
    assert places["12"] == (2, 5) and places["1"] == (3, 8) and places["true"] == (4, 6) and places["'z'"] == (5, 4)
