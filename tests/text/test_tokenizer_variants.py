"""Every component and option, each put into one of the small tokenizers, against `tokenizers`."""

import json
import re

import auto
import corpus
import pytest

tokenizers = pytest.importorskip("tokenizers")

P1 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
P3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
P5 = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+|"
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*|\p{N}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
CL100K = (
    r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|"
    r"\s*[\r\n]|\s+(?!\S)|\s"
)
# Constructs that no tokenizer above uses, so that the matcher is tried as a whole.
ODD = (
    r"(?:ab|a)(?:bc|c){1,2}|(a|b)+c|[a-c\-x]{2,4}d?|x(?=[yz])|\x41\x{1F600}?|\u00e9+|[^\D]{2}|\P{L}\p{^N}|"
    r"(?:\s|é)*?".replace("*?", "{1,3}")
    + r"|.$"
)

BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}


def regex(pattern, behavior="Isolated", invert=False, kind="Regex"):
    return {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": invert}


def chain(*steps):
    return {"type": "Sequence", "pretokenizers": list(steps)}


def metaspace(**options):
    return {"type": "Metaspace", "replacement": "▁", **options}


def added(id_, content, **flags):
    return {
        "id": id_,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": False,
        **flags,
    }


def decoders(*steps):
    return {"type": "Sequence", "decoders": list(steps)}


REPLACE = {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}
VARIANTS = {}
for _name, _pattern in {"p1": P1, "p3": P3, "p5": P5, "cl100k": CL100K, "odd": ODD}.items():
    VARIANTS[_name] = ("llama3", {"pre_tokenizer": chain(regex(_pattern), BYTE_LEVEL)})
for _behavior in ("Isolated", "Removed", "MergedWithPrevious", "MergedWithNext", "Contiguous"):
    for _invert in (False, True):
        VARIANTS[f"{_behavior}-{_invert}"] = (
            "llama3",
            {"pre_tokenizer": chain(regex(r"\s|[,.]|the", _behavior, _invert), BYTE_LEVEL)},
        )
    VARIANTS[f"{_behavior}-string"] = (
        "llama3",
        {"pre_tokenizer": chain(regex("e.", _behavior, kind="String"), BYTE_LEVEL)},
    )
for _regex in (False, True):
    for _space in (False, True):
        VARIANTS[f"byte-level-{_regex}-{_space}"] = (
            "llama3",
            {
                "pre_tokenizer": {
                    "type": "ByteLevel",
                    "add_prefix_space": _space,
                    "trim_offsets": True,
                    "use_regex": _regex,
                }
            },
        )
for _digits in (False, True):
    VARIANTS[f"digits-{_digits}"] = (
        "llama3",
        {
            "pre_tokenizer": chain(
                {"type": "Digits", "individual_digits": _digits},
                dict(BYTE_LEVEL, add_prefix_space=True, use_regex=True),
            )
        },
    )
for _scheme in ("always", "first", "never"):
    for _split in (False, True):
        VARIANTS[f"metaspace-{_scheme}-{_split}"] = (
            "llama2",
            {
                "normalizer": None,
                "pre_tokenizer": metaspace(prepend_scheme=_scheme, split=_split),
                "decoder": metaspace(prepend_scheme=_scheme, split=_split),
            },
        )
VARIANTS["metaspace-after-split"] = (
    "llama2",
    {
        "normalizer": None,
        "pre_tokenizer": chain(regex("[,.]", "Removed"), metaspace(prepend_scheme="first", split=True)),
        "decoder": metaspace(),
    },
)
VARIANTS["metaspace-old"] = (
    "llama2",
    {
        "normalizer": None,
        "pre_tokenizer": metaspace(add_prefix_space=False, prepend_scheme="never"),
        "decoder": decoders(metaspace(add_prefix_space=True), {"type": "ByteFallback"}, {"type": "Fuse"}),
    },
)
for _form in ("NFC", "NFD", "NFKC", "NFKD"):
    VARIANTS[_form] = ("llama3", {"normalizer": {"type": _form}})
VARIANTS["normalizers"] = (
    "llama2",
    {
        "normalizer": {
            "type": "Sequence",
            "normalizers": [
                {"type": "NFKC"},
                {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": "▁"},
                {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "▁▁"}]},
                {"type": "Replace", "pattern": {"String": "ab"}, "content": ""},
                {"type": "Replace", "pattern": {"String": "the"}, "content": "thé"},
            ],
        }
    },
)
for _name, _model in {
    "unk": {"byte_fallback": False, "fuse_unk": False},
    "unk-fused": {"byte_fallback": False, "fuse_unk": True},
    "no-unk": {"byte_fallback": False, "unk_token": None},
    "fallback-no-fuse": {"fuse_unk": False},
    "ignore-merges": {"ignore_merges": True},
}.items():
    VARIANTS[_name] = ("llama2", {"model": _model})
VARIANTS["half-fallback"] = ("llama2", {"drop": ["<0xE2>", "<0xF0>", "<0xD0>"]})
VARIANTS["decoder-none"] = ("llama2", {"decoder": None})
VARIANTS["decoder-fuse"] = ("llama2", {"decoder": decoders(REPLACE, {"type": "Fuse"})})
VARIANTS["decoder-strip-each"] = (
    "llama2",
    {"decoder": decoders(REPLACE, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, {"type": "ByteFallback"})},
)
VARIANTS["decoder-strip-3"] = (
    "llama3",
    {
        "decoder": decoders(
            {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
            {"type": "Strip", "content": "e", "start": 3, "stop": 0},
        )
    },
)
VARIANTS["added-flags"] = (
    "llama3",
    {
        "added": [
            dict(content="the", single_word=True),
            dict(content="wheel", lstrip=True, rstrip=True),
            dict(content="<x>", lstrip=True, special=True),
            dict(content="<xx>", rstrip=True),
            dict(content="<x><x"),
            dict(content="🇩🇪"),
            dict(content="\n"),
            dict(content=" \n ", rstrip=True),
            dict(content="a", single_word=True),
            dict(content="1", normalized=True, single_word=True),
        ]
    },
)
VARIANTS["added-normalized"] = (
    "llama2",
    {
        "added": [
            dict(content="the", normalized=True),
            dict(content="a b", normalized=True, special=True),
            dict(content="▁", normalized=True),
            dict(content="Hello", normalized=True, lstrip=True, rstrip=True),
            dict(content="<x>", special=True),
        ]
    },
)
VARIANTS["added-old-llama"] = ("llama2", {"normalized": True})
MORE_LINES = [
    "<x>the wheel<x>",
    "  wheel  <xx>  <x> ",
    "the other them the",
    "athe thea",
    "<x><x><x>",
    "a b a",
    "ab",
    " a b",
    "Hello  the ▁ x",
    "\n \n \n<xx>\n\n x",
    " <x> <x> ",
    "the\u200cthe",
    "wheel\u3000wheel",
    "abab x",
    "<s>the</s>",
    "<s> a",
    "a<s>",
    " <s>",
    "▁<s>",
    "xyd xzd ab abc abcc abbc",
    "AAA\U0001f600",
    "a1a11a",
    "Ⓐa the_ the- the",
    "don't",
    "wheel",
    "x\nwheel\n\n",
]


def build(small, folder, base, change):
    j = json.loads((small / base / "tokenizer.json").read_text(encoding="utf-8"))
    for key in ("normalizer", "pre_tokenizer", "decoder"):
        if key in change:
            j[key] = change[key]
    j["model"].update(change.get("model", {}))
    for token in change.get("drop", []):
        id_ = j["model"]["vocab"].pop(token)
        last = max(j["model"]["vocab"], key=j["model"]["vocab"].get)
        j["model"]["vocab"][last] = id_
    if change.get("normalized"):
        for token in j["added_tokens"]:
            token["normalized"] = True
    vocab = j["model"]["vocab"]
    next_id = len(vocab) + sum(t["content"] not in vocab for t in j["added_tokens"])
    for token in change.get("added", []):
        known = token["content"] in vocab
        j["added_tokens"].append(added(vocab.get(token["content"], next_id), **token))
        next_id += not known
    (folder / "tokenizer.json").write_text(json.dumps(j, ensure_ascii=False), encoding="utf-8")
    return next_id


def test_all_lines_are_there():
    assert len(VARIANTS) > 45


@pytest.mark.parametrize("name", VARIANTS)
def test_variant(name, small, tmp_path, tokdump):
    base, change = VARIANTS[name]
    rows = build(small, tmp_path, base, change)
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    lines = MORE_LINES + corpus.lines()[:400] + corpus.lines()[400::23]
    expected = [e.ids for e in reference.encode_batch_fast(lines, add_special_tokens=False)]
    got = tokdump.encode(tmp_path, rows, lines)
    wrong = [i for i in range(len(lines)) if expected[i] != got[i]]
    assert not wrong, [(ascii(lines[i][:60]), expected[i][:20], got[i][:20]) for i in wrong[:4]] + [len(wrong)]
    for skip in (False, True):
        texts = [reference.decode(ids, skip_special_tokens=skip).encode() for ids in expected]
        back = tokdump.decode(tmp_path, rows, expected, skip)
        wrong = [i for i in range(len(lines)) if texts[i] != back[i]]
        assert not wrong, [(expected[i][:9], texts[i][:60], back[i][:60]) for i in wrong[:4]] + [len(wrong)]
        streamed = tokdump.decode(tmp_path, rows, expected, skip, kind="s")
        assert [b"".join(chunks) for chunks in streamed] == back


CONFIGS = [
    {},
    {"add_bos_token": False},
    {"add_bos_token": True},
    {"add_eos_token": True},
    {"add_bos_token": False, "add_eos_token": False},
    {"add_bos_token": True, "bos_token": "<|eot_id|>"},
]


bos_and_eos = [
    pytest.mark.parametrize("template", [True, False]),
    pytest.mark.parametrize("config", CONFIGS, ids=json.dumps),
]


def build_config(small, folder, config, template):
    """llama3 with or without its template; returns what tokenizer_config.json says."""
    build(small, folder, "llama3", {})
    if not template:
        j = json.loads((folder / "tokenizer.json").read_text())
        j["post_processor"] = j["post_processor"]["processors"][0]
        (folder / "tokenizer.json").write_text(json.dumps(j))
    config = {"bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>", **config}
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    return config


@bos_and_eos[0]
@bos_and_eos[1]
def test_bos_and_eos(config, template, small, tmp_path, tokdump):
    """The post-processor of tokenizer.json decides, whatever tokenizer_config.json says; a note says so."""
    config = build_config(small, tmp_path, config, template)
    reference = tokenizers.Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    texts = ["the wheel", ""]
    assert tokdump.encode(tmp_path, 1000, texts, add_special=True) == [reference.encode(text).ids for text in texts]
    bos = template and config["bos_token"] == "<|begin_of_text|>"
    notes = tokdump.run(tmp_path, 1000, tmp_path / "image").stderr.decode()
    for key, does in (("add_bos_token", bos), ("add_eos_token", False)):
        says = config.get(key, does)
        line = (
            re.escape(str(tmp_path)) + rf"/tokenizer_config.json:1:\d+: note\[A0503\]: {key}: {str(says).lower()}, but "
            f"the post_processor of tokenizer.json {'adds' if does else 'does not add'} this token, and it decides\n"
        )
        assert bool(re.search(line, notes)) == (says != does)


@bos_and_eos[0]
@bos_and_eos[1]
def test_bos_and_eos_as_transformers(config, template, small, tmp_path, tokdump):
    pytest.importorskip("transformers")
    build_config(small, tmp_path, config, template)
    reference = auto.load(tmp_path)
    assert tokdump.encode(tmp_path, 1000, ["the wheel"], add_special=True) == [reference("the wheel").input_ids]
