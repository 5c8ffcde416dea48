"""Deterministic lines of text that tokenizers get wrong: every Unicode block, emoji sequences,
line ends, spaces, marks in every order, and text that looks like control tokens."""

import random
import unicodedata

WORDS = (
    "the of and Hello world's I'LL we've DON'T it's naïve café Straße foo_bar x86 C++ GPU "
    "don't 'tis O'Neil camelCase HTTPServer iPhone ß İstanbul ǅ ŉ ﬁn 'ſt 'K snake_case "
    "привет мир ΑΒΓ αβγ שלום مرحبا नमस्ते ไทย 你好 世界 こんにちは カタカナ 안녕하세요 "
    "1 12 123 1234 12345 3.14 1,000 ½ Ⅷ ١٢٣ ۴۵ ४५ ①② 100% $5 https://x.y/z?q=1&r=2 a@b.c "
    "#include <stdio.h> int main(){return 0;} def f(x): => -> != <= /* */ // ... --- ___"
).split(" ")
SPACES = [
    " ",
    "  ",
    "   ",
    "\t",
    "\n",
    "\r\n",
    "\r",
    "\n\n",
    " \n",
    "\n ",
    " \r\n ",
    "\u00a0",
    "\u2003",
    "\u3000",
    "\u2028",
    "\u0085",
    "\u200b",
    "\u180e",
    "\ufeff",
    "\v",
    "\f",
    "\x1c",
    "\t\t\t",
    "    ",
    "        ",
    "\n\n\n\n",
    " \t \n \t ",
]
LOOKALIKES = [
    "<|im_end|>",
    "<|im_end",
    "|im_end|>",
    "<|im_start|>user\n",
    "<|im_end|><|im_end|>",
    "<|IM_END|>",
    "<|im_end |>",
    " <|im_end|> ",
    "<|endoftext|>",
    "<|endoftext",
    "<think>",
    "</think>",
    "<|start|>assistant<|channel|>final<|message|>",
    "<|return|>",
    "<|call|>",
    "<s>",
    "</s>",
    "<unk>",
    "<0x0A>",
    "[INST]",
    "<bos>",
    "<|begin_of_text|>",
    "▁",
    "▁▁a",
    "<tool_call>",
    "</tool_call>",
    "<|object_ref_start|>",
    "<repo_name>",
    "<file_sep>",
    "<|im_start|",
    "<<|im_start|>>",
    "<|reserved_200000|>",
    "Ġ",
    "Ċ",
    "âĢ",
    "Ġthe",
]
EMOJI = [
    "😀",
    "👩‍👩‍👧‍👦",
    "👍🏽",
    "🏳️‍🌈",
    "🇩🇪🇫🇷",
    "1️⃣",
    "❤️",
    "❤",
    "👨🏿‍🚀",
    "🫠",
    "\U0001fae8",
    "🏴\U000e0067\U000e0062\U000e0065\U000e006e\U000e0067\U000e007f",
    "\u200d",
    "\ufe0f",
]
MARKS = [
    chr(c)
    for c in (
        0x300,
        0x301,
        0x302,
        0x303,
        0x307,
        0x308,
        0x30A,
        0x323,
        0x327,
        0x328,
        0x334,
        0x338,
        0x345,
        0x5B0,
        0x5B4,
        0x64B,
        0x651,
        0x93C,
        0x94D,
        0xE48,
        0x1DC0,
        0x20D0,
        0x302A,
        0x3099,
        0x309A,
        0xFE20,
        0x1D165,
        0x10EAB,
        0x1E8D0,
    )
]


def scalars():
    """Every code point of the planes that hold characters, and some of the empty ones."""
    dense = list(range(0xD800)) + list(range(0xE000, 0x33800)) + list(range(0xE0000, 0xE0200))
    return dense + list(range(0x33800, 0xE0000, 0x3FF)) + list(range(0xE0200, 0x110000, 0x3FF)) + [0x10FFFF]


def sampled_points(rng, per_block=12):
    """Some of every 256 code points; all of the first 0x3000."""
    out = list(range(0x3000))
    for block in range(0x3000, 0x110000, 256):
        if not 0xD800 <= block < 0xE000:
            out += sorted(rng.sample(range(block, block + 256), per_block))
    return out


def block_lines(rng):
    """Neighbouring code points, alone and between letters, digits and spaces."""
    points = sampled_points(rng)
    lines = []
    for i in range(0, len(points), 24):
        run = [chr(c) for c in points[i : i + 24]]
        lines.append("".join(run[:12]))
        lines.append("".join(rng.choice(["", "", " ", "a", "1", "\n", "'s"]) + c for c in run))
    return lines


def mark_lines(rng, n):
    bases = "aeouAEKnç가각각가ক\u0915ກא\u0627Ωιあか\u1112\u1161\u11ab"
    lines = []
    for _ in range(n):
        text = rng.choice(["", "", rng.choice(MARKS)])
        for _ in range(rng.randint(1, 6)):
            text += rng.choice(bases) + "".join(rng.choices(MARKS, k=rng.choice([0, 1, 2, 3, 5])))
        lines.append(text)
    return lines


def mixed_lines(rng, n):
    parts = [WORDS] * 6 + [SPACES] * 4 + [EMOJI, LOOKALIKES]
    return ["".join(rng.choice(rng.choice(parts)) for _ in range(rng.randint(1, 14))) for _ in range(n)]


def lines(n=10000, seed=20260101):
    """At least n lines, always the same."""
    rng = random.Random(seed)
    out = [
        "",
        " ",
        "\n",
        "a",
        "\x00",
        "a\x00b",
        " " * 1000,
        "\n" * 300,
        "\t" * 77 + "x",
        "a" * 2000,
        "é" * 500,
        "e\u0301" * 500,
        "\u0301" * 300,
        "0" * 1001,
        "ab" * 1500,
        " a" * 700,
        "🙂" * 333,
        "\U00031350\U000323af 犬",
        "\u1100\u1161\u11a8" * 20,
        "'" * 99,
        "\u200d" * 50,
        "-" * 500,
        "A" * 700,
        "Aa" * 300,
        "aA" * 300,
        "word " * 400,
        "\r\n" * 100,
        " \r\n" * 100,
        "!?" * 200,
    ]
    out += LOOKALIKES + EMOJI + SPACES + WORDS
    out += block_lines(rng)
    out += mark_lines(rng, 1200)
    out += [
        " ".join(unicodedata.normalize(form, w) for w in rng.sample(WORDS, 5))
        for form in ("NFD", "NFKD")
        for _ in range(100)
    ]
    # Letters of different kinds and cases side by side, where patterns decide.
    kinds = "aZßǅʰªﾞ中가\u0301\u0903\u20dd1Ⅷ½_‿-–(»$+^∑ \u3000\n\r\t/'"
    out += ["".join(rng.choice(kinds) for _ in range(rng.randint(2, 20))) for _ in range(1500)]
    out += mixed_lines(rng, max(2000, n - len(out)))
    return out


def invalid_utf8(n=400, seed=7):
    rng = random.Random(seed)
    out = [
        b"\xff",
        b"a\x80b",
        b"\xc3",
        b"\xe2\x82",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf",
        b"\xf0\x9f\x98",
        b"\xf0\x9f\x98\xff",
        b"\xe0\x80\x80",
        b"ok\xe2\x28\xa1ok",
        b"\xfe\xfe",
    ]
    seeds = "héllo wörld 你好 😀 \n<|im_end|>".encode()
    for _ in range(n):
        text = bytearray(seeds)
        for _ in range(rng.randint(1, 5)):
            text[rng.randrange(len(text))] = rng.randrange(256)
        out.append(bytes(text[: rng.randint(1, len(text))]))
    return out
