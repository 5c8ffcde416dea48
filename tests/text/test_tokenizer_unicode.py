"""The Unicode data of compiled tokenizers, asked about every character, against `tokenizers`:
general categories, white space, numbers, word characters, and the four normal forms."""

import json

import corpus
import pytest

tokenizers = pytest.importorskip("tokenizers")

CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co".split()
# Five patterns tell all categories apart: the one numbered k is in the patterns of k's bits.
PATTERNS = ["[" + "".join(rf"\p{{{c}}}" for k, c in enumerate(CATEGORIES, 1) if k >> bit & 1) + "]" for bit in range(5)]
PATTERNS += [r"\s", r"[^\S]", r"\d", r"\P{L}", r"[\p{L}\p{M}]", "(?i:s)", "(?i:[K-m])", "."]
ADDED = {
    "id": 2,
    "content": "xx",
    "single_word": False,
    "lstrip": False,
    "rstrip": False,
    "normalized": False,
    "special": False,
}


def write(folder, vocab, **parts):
    j = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": None,
        **parts,
        "model": {"type": "BPE", "unk_token": "<unk>", "vocab": vocab, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(j))
    return tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))


def first_difference(points, expected, got):
    assert len(expected) == len(got)
    if expected == got:
        return None
    return next(hex(cp) for cp, a, b in zip(points, expected, got) if a != b)


@pytest.mark.parametrize("pattern", PATTERNS)
def test_patterns(pattern, tmp_path, tokdump):
    """What a pattern matches becomes "x", all else is unknown: one id a code point."""
    reference = write(
        tmp_path, {"<unk>": 0, "x": 1}, normalizer={"type": "Replace", "pattern": {"Regex": pattern}, "content": "x"}
    )
    points = corpus.scalars()
    text = "".join(map(chr, points))
    expected = reference.encode(text, add_special_tokens=False).ids
    assert len(expected) == len(points) and 1 < sum(expected) < len(points)
    assert first_difference(points, expected, tokdump.encode(tmp_path, 3, [text])[0]) is None


def test_numbers(tmp_path, tokdump):
    reference = write(
        tmp_path, {"<unk>": 0, "x": 1, "ab": 2}, pre_tokenizer={"type": "Digits", "individual_digits": True}
    )
    points = corpus.scalars()
    # One unknown token for each piece when unknown symbols fuse: a digit cuts its surroundings in three.
    j = json.loads((tmp_path / "tokenizer.json").read_text())
    j["model"]["fuse_unk"] = True
    (tmp_path / "tokenizer.json").write_text(json.dumps(j))
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    lines = [
        "x".join("é" + chr(cp) + "é" for cp in points[i : i + 4096] if chr(cp) != "x")
        for i in range(0, len(points), 4096)
    ]
    expected = [e.ids for e in reference.encode_batch_fast(lines, add_special_tokens=False)]
    got = tokdump.encode(tmp_path, 3, lines)
    assert [i for i in range(len(lines)) if expected[i] != got[i]] == []
    assert sum(map(len, expected)) > 2 * len(points) + 1500


@pytest.mark.parametrize("flags", [{"single_word": True}, {"lstrip": True, "rstrip": True}], ids=str)
def test_beside_added_tokens(flags, tmp_path, tokdump):
    """Word characters and white space on both sides of an added token, every code point in turn."""
    reference = write(tmp_path, {"<unk>": 0, "é": 1}, added_tokens=[{**ADDED, **flags}])
    points = corpus.scalars()
    lines = ["é".join(f" {chr(cp)}xx .xx{chr(cp)} " for cp in points[i : i + 128]) for i in range(0, len(points), 128)]
    expected = [e.ids for e in reference.encode_batch_fast(lines, add_special_tokens=False)]
    got = tokdump.encode(tmp_path, 3, lines)
    assert [i for i in range(len(lines)) if expected[i] != got[i]] == []


@pytest.mark.parametrize("form", ["NFC", "NFD", "NFKC", "NFKD"])
def test_normal_forms(form, tmp_path, tokdump):
    """Every code point alone, and among marks of low and high classes; the result is seen byte by byte."""
    vocab = {chr(c): i for i, c in enumerate(list(range(33, 127)) + list(range(161, 173)) + list(range(174, 324)))}
    vocab["<unk>"] = 256
    assert len(vocab) == 257
    reference = write(
        tmp_path,
        vocab,
        normalizer={"type": form},
        pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False},
    )
    changing = [cp for cp in corpus.scalars() if not 0x3400 <= cp < 0x9F00 and not 0x20000 <= cp < 0x2F700]
    normal = getattr(tokenizers.normalizers, form)()
    lines = []
    for i in range(0, len(changing), 512):
        run = [chr(cp) for cp in changing[i : i + 512]]
        lines.append("\n".join(run))
        lines.append("".join("e" + c + "\u0334\u0301" + c + "\u1161" for c in run))
    got = tokdump.encode(tmp_path, 257, lines)
    byte_of = {i: b for b, c in tokenizers_bytes().items() for i in [vocab[c]]}
    for line, ids in zip(lines, got):
        assert bytes(byte_of[i] for i in ids) == normal.normalize_str(line).encode()
    assert reference.encode(lines[3]).ids == got[3]


def tokenizers_bytes():
    """byte -> character of the byte-level alphabet, as the GPT-2 paper's code defines it."""
    kept = list(range(33, 127)) + list(range(161, 173)) + list(range(174, 256))
    rest = [b for b in range(256) if b not in kept]
    return {**{b: chr(b) for b in kept}, **{b: chr(256 + i) for i, b in enumerate(rest)}}
