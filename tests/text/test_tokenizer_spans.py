"""Control tokens inside spans alone, against the `tokenizers` library.

The library cannot mark spans. So a text is cut where a control token lies in a span, the pieces between are encoded with
encode_special_tokens, which takes control tokens for letters, and the ids of the tokens put between them.
"""

import json
import random

import auto
import pytest
import tokenizers

pytest.importorskip("transformers")


@pytest.fixture(scope="module")
def loaded():
    cache = {}

    def load(folder):
        if folder not in cache:
            cache[folder] = auto.load(folder).backend_tokenizer
            cache[folder].encode_special_tokens = True
        return cache[folder]

    return load


def by_hand(reference, parts, special):
    """Ids of [(text, is the template's)]: control tokens of the template's parts stand alone."""
    ids, gap = [], ""

    def flush():
        nonlocal gap
        ids.extend(reference.encode(gap, add_special_tokens=False).ids if gap else [])
        gap = ""

    for text, ours in parts:
        at = 0
        while at < len(text):
            found = max((s for s in special if ours and text.startswith(s, at)), key=len, default=None)
            if found is None:
                gap += text[at]
                at += 1
                continue
            flush()
            ids.append(reference.token_to_id(found))
            at += len(found)
    flush()
    return ids


def drawn(draw, ours, theirs):
    """Parts of a text, [(text, is the template's)], no two of the template's beside each other."""
    parts = []
    for _ in range(draw.randrange(1, 6)):
        is_ours = draw.random() < 0.5 and not (parts and parts[-1][1])
        parts.append(("".join(draw.choice(ours if is_ours else theirs) for _ in range(draw.randrange(1, 6))), is_ours))
    return parts


def marked(parts):
    """The text in bytes, and the spans of the template's parts."""
    text, spans = b"", []
    for part, ours in parts:
        if ours:
            spans.append((len(text), len(text) + len(part.encode())))
        text += part.encode()
    return text, spans


@pytest.mark.parametrize("tokenizer", ["qwen3", "gpt-oss", "llama3", "gemma", "deepseek"], indirect=True)
def test_spans(tokenizer, tokdump, loaded):
    folder, rows = tokenizer
    reference = loaded(folder)
    added = reference.get_added_tokens_decoder().values()
    special = [t.content for t in added if t.special and not (t.lstrip or t.rstrip or t.single_word or t.normalized)]
    assert special
    draw = random.Random(7)
    plain = ["Hello", " ", "\n", "world!", "日本", "é", "<|", "|>", special[0][:-1], special[0][1:], "1 2"]
    words = [*special[:12], *special[:12], *plain]
    pairs, expected = [], []
    for _ in range(300):
        parts = drawn(draw, words, words)
        pairs.append(marked(parts))
        expected.append(by_hand(reference, parts, special))
    got = tokdump.encode_spans(folder, rows, pairs)
    wrong = [(p, e, g) for p, e, g in zip(pairs, expected, got) if e != g]
    assert not wrong, (len(wrong), wrong[:3])


def test_normalised(small, tokdump, tmp_path):
    """Control tokens that are found in normalised text: where nobody else writes one, ids are the library's; where others
    do, there are as many as the template wrote."""
    folder, rows = tmp_path, 2000
    made = json.loads((small / "llama2" / "tokenizer.json").read_text())
    made["normalizer"] = {
        "type": "Sequence",
        "normalizers": [{"type": "NFC"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}],
    }
    made["pre_tokenizer"] = None
    for token in made["added_tokens"]:
        token["normalized"] = True
    (folder / "tokenizer.json").write_text(json.dumps(made))
    reference = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    special = [t.content for t in reference.get_added_tokens_decoder().values() if t.special and t.normalized]
    assert special
    draw, words = random.Random(8), ["Hello", " ", "e\u0301", "\u0301x", "日本", "<", ">", "s>", " a b "]
    parts = [drawn(draw, special + words, words) for _ in range(300)]
    whole = ["".join(p for p, _ in one) for one in parts]
    sound = [
        (one, text)
        for one, text in zip(parts, whole)
        if sum(text.count(s) for s in special) == sum(p.count(s) for p, ours in one if ours for s in special)
    ]
    assert len(sound) > 200
    got = tokdump.encode_spans(folder, rows, [marked(one) for one, _ in sound])
    assert got == [reference.encode(text, add_special_tokens=False).ids for _, text in sound]
    parts = [drawn(draw, special + words, special + words) for _ in range(300)]
    ids = {reference.token_to_id(s) for s in special}
    for one, got in zip(parts, tokdump.encode_spans(folder, rows, [marked(one) for one in parts])):
        assert sum(i in ids for i in got) == sum(p.count(s) for p, ours in one if ours for s in special), one


@pytest.mark.parametrize("tokenizer", ["llama3", "llama2"], indirect=True)
def test_ends(tokenizer, tokdump):
    """All of a text in a span is the text with control tokens, none of it the one without; bytes that are no UTF-8 move
    no span."""
    folder, rows = tokenizer
    texts = ["<s>Hi</s>", "<|begin_of_text|>a<|eot_id|>", "x"]
    whole = tokdump.encode_spans(folder, rows, [(t, [(0, len(t))]) for t in texts])
    assert whole == tokdump.encode(folder, rows, texts, parse_special=True)
    none = tokdump.encode_spans(folder, rows, [(t, []) for t in texts])
    assert none == tokdump.encode(folder, rows, texts, parse_special=False)
    for token in ("<s>", "<|eot_id|>"):
        bad = b"\xff\xf0\x90" + token.encode() + b"\xff" + token.encode()
        good = bad.decode(errors="replace")
        at = 3 + len(token)
        for spans, moved in (
            ([(3, at)], [(6, 6 + len(token))]),
            ([(at + 1, len(bad))], [(9 + len(token), 9 + 2 * len(token))]),
        ):
            assert tokdump.encode_spans(folder, rows, [(bad, spans)]) == tokdump.encode_spans(
                folder, rows, [(good, moved)]
            )
