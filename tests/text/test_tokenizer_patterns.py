"""Random regular expressions of the dialect that is understood, on random text, against `tokenizers`."""

import json
import random

import pytest

tokenizers = pytest.importorskip("tokenizers")

N_PATTERNS = 150
POINTS = "abcABksSK é\u0301\n\t1٣½_-.中\u017f\u212a\u3000'"
ATOMS = [
    "a",
    "b",
    "c",
    "é",
    "中",
    r"\.",
    r"\-",
    "'",
    r"\n",
    r"\s",
    r"\S",
    r"\d",
    r"\D",
    ".",
    r"\p{L}",
    r"\p{Lu}",
    r"\P{L}",
    r"\p{^N}",
    r"\p{M}",
    r"\x61",
    r"\u00e9",
    r"\x{4e2d}",
    "[abc]",
    "[^abc]",
    r"[^\s\p{L}]",
    r"[\p{Lu}\p{N}_]",
    "[a-cé-中]",
    r"[\S]",
    r"[^\S\n]",
    r"[\]\-a]",
    "[a-]",
    "(?i:k)",
    "(?i:[a-b])",
    "(?i:Sb)",
    "(?i:a|bc)",
]


def random_pattern(rng, depth=0):
    parts = []
    for _ in range(rng.randint(1, 4)):
        kind = rng.random()
        if kind < 0.2 and depth < 3:
            atom = rng.choice(["(?:%s)", "(%s)"]) % random_pattern(rng, depth + 1)
            repeat = rng.choice(["", "", "", "?", "{1,2}", "{2}", "*", "+"])
        elif kind < 0.27:
            parts.append(rng.choice(["(?=%s)", "(?!%s)"]) % rng.choice(["a", r"\s", r"\S", "[bc]", r"\p{L}"]))
            continue
        elif kind < 0.3:
            atom, repeat = "$", ""
        else:
            atom = rng.choice(ATOMS)
            repeat = rng.choice(["", "", "", "?", "*", "+", "{2}", "{1,3}", "{2,}", "{,2}", "++", "?+", "*+"])
            if repeat in ("++", "?+", "*+") and atom in ("(?i:Sb)", "(?i:a|bc)"):
                repeat = "+"  # possessive groups are not understood
        parts.append(atom + repeat)
    return "".join(parts) + ("|" + random_pattern(rng, depth + 1) if rng.random() < 0.4 and depth < 3 else "")


def test_random_patterns(small, tmp_path, tokdump):
    rng = random.Random(20260202)
    base = json.loads((small / "llama3" / "tokenizer.json").read_text(encoding="utf-8"))
    tried = refused = 0
    while tried < N_PATTERNS:
        pattern = random_pattern(rng)
        folder = tmp_path / str(tried + refused)
        folder.mkdir()
        base["pre_tokenizer"]["pretokenizers"][0] = {
            "type": "Split",
            "pattern": {"Regex": pattern},
            "behavior": "Removed",
            "invert": rng.random() < 0.5,
        }
        (folder / "tokenizer.json").write_text(json.dumps(base), encoding="utf-8")
        texts = ["".join(rng.choices(POINTS, k=rng.randint(1, 40))) for _ in range(60)]
        try:
            got = tokdump.encode(folder, 2000, texts)
        except Exception as error:  # what can match nothing is refused, rightly; nothing else here is
            assert "can match nothing" in error.args[1], (pattern, error.args[1])
            refused += 1
            continue
        reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
        expected = [e.ids for e in reference.encode_batch_fast(texts, add_special_tokens=False)]
        wrong = [i for i in range(len(texts)) if expected[i] != got[i]]
        assert not wrong, (pattern, texts[wrong[0]], expected[wrong[0]], got[wrong[0]])
        tried += 1
    assert refused < 2 * N_PATTERNS
