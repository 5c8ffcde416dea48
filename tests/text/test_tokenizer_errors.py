"""Wrong tokenizer files: each gets its exact message and exit code 4, never a crash or a guess."""

import copy
import json

import pytest
from tokdump import Refused

ROWS = 9
GOOD = {
    "version": "1.0",
    "truncation": None,
    "padding": None,
    "added_tokens": [
        {
            "id": 7,
            "content": "<s>",
            "single_word": False,
            "lstrip": False,
            "rstrip": False,
            "normalized": False,
            "special": True,
        }
    ],
    "normalizer": None,
    "pre_tokenizer": {"type": "Split", "pattern": {"Regex": "\\s+"}, "behavior": "Isolated", "invert": False},
    "post_processor": None,
    "decoder": {"type": "Fuse"},
    "model": {
        "type": "BPE",
        "unk_token": "<unk>",
        "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4, "abc": 5, " ": 6},
        "merges": [["a", "b"], ["ab", "c"]],
    },
}


def put(path, value):
    """A change: the value at a path of keys; ... as value removes it."""

    def change(j):
        *way, last = path
        for key in way:
            j = j[key]
        if value is ...:
            del j[last]
        else:
            j[last] = value

    return change


def split(pattern, kind="Regex", behavior="Isolated"):
    return put(["pre_tokenizer"], {"type": "Split", "pattern": {kind: pattern}, "behavior": behavior, "invert": False})


def added(**change):
    return put(["added_tokens", 0], {**GOOD["added_tokens"][0], **change})


def template(**change):
    return put(
        ["post_processor"],
        {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {"<s>": {"id": "<s>", "ids": [7], "tokens": ["<s>"]}},
            **change,
        },
    )


NORMALIZERS = "accepted are NFC, NFD, NFKC, NFKD, Replace, Prepend, Sequence"
PRE_TOKENIZERS = "accepted are Split, ByteLevel, Digits, Metaspace, Sequence"
DECODERS = "accepted are ByteLevel, Replace, ByteFallback, Fuse, Strip, Metaspace, Sequence"
KEYS = "known are version truncation padding added_tokens normalizer pre_tokenizer post_processor decoder model"
CASES = {
    # Shape of the file
    "version": (put(["version"], "2.0"), "A0502", 'version: "2.0" is not supported; accepted is 1.0'),
    "no version": (put(["version"], ...), "A0504", "version: nothing where a string is expected"),
    "unknown part": (put(["vision"], {}), "A0502", f'top level: unknown key "vision"; {KEYS}'),
    "no model": (put(["model"], ...), "A0504", "model: expected an object"),
    # Model
    "unigram": (put(["model", "type"], "Unigram"), "A0502", 'model.type: "Unigram" is not supported; accepted is BPE'),
    "vocab list": (
        put(["model", "vocab"], [["a", -1.5]]),
        "A0504",
        "model.vocab: expected an object of tokens and ids",
    ),
    "dropout": (put(["model", "dropout"], 0.1), "A0502", "model.dropout: not supported; accepted is null"),
    "prefix": (
        put(["model", "continuing_subword_prefix"], "##"),
        "A0502",
        "model.continuing_subword_prefix: not supported; accepted is null",
    ),
    "flag": (put(["model", "fuse_unk"], "yes"), "A0504", "model.fuse_unk: a string where a boolean is expected"),
    "same id twice": (put(["model", "vocab", "c"], 2), "A0503", 'model.vocab["c"]: id 2 belongs to "b", too'),
    "id too large": (
        put(["model", "vocab", "c"], 9),
        "A0503",
        'model.vocab["c"]: id 9 is not below 9, the rows of the embedding',
    ),
    "ids too large": (
        lambda t: t["model"]["vocab"].update({"b": 9, "c": 10, "ab": 11}),
        "A0503",
        'model.vocab["b"]: id 9 is not below 9, the rows of the embedding, nor are 2 others',
    ),
    "id negative": (
        put(["model", "vocab", "c"], -1),
        "A0504",
        'model.vocab["c"]: expected an id, an integer that is not negative',
    ),
    "no bytes": (
        lambda j: j.update(
            pre_tokenizer={"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
            model={"type": "BPE", "vocab": {"<|endoftext|>": 0}, "merges": []},
        ),
        "A0503",
        "model.vocab: no token for any of the 256 bytes: every text would be lost",
    ),
    "id text": (
        put(["model", "vocab", "c"], "3"),
        "A0504",
        'model.vocab["c"]: expected an id, an integer that is not negative',
    ),
    "unk missing": (
        put(["model", "unk_token"], "<x>"),
        "A0503",
        'model.unk_token: "<x>" is not a token of the vocabulary',
    ),
    # Merges
    "merge of nothing": (
        put(["model", "merges", 1], ["ab", "x"]),
        "A0503",
        'model.merges[1]: "x" is not a token of the vocabulary',
    ),
    "merge makes nothing": (
        put(["model", "merges", 1], ["b", "c"]),
        "A0503",
        'model.merges[1]: "bc" is not a token of the vocabulary',
    ),
    "merge twice": (
        put(["model", "merges", 1], ["a", "b"]),
        "A0503",
        "model.merges[1]: the same pair as the merge of rank 0",
    ),
    "merge of three": (
        put(["model", "merges", 0], ["a", "b", "c"]),
        "A0504",
        "model.merges[0]: expected a pair of strings, like the first merge",
    ),
    "merge mixed": (
        put(["model", "merges", 1], "ab c"),
        "A0504",
        "model.merges[1]: expected a pair of strings, like the first merge",
    ),
    "merge not a string": (
        put(["model", "merges"], ["a b", ["ab", "c"]]),
        "A0504",
        "model.merges[1]: expected a string, like the first merge",
    ),
    "merge no space": (
        put(["model", "merges"], ["ab"]),
        "A0503",
        'model.merges[0]: "ab": expected two tokens with one space between',
    ),
    "merge two spaces": (
        put(["model", "merges"], ["a b c"]),
        "A0503",
        'model.merges[0]: "a b c": expected two tokens with one space between',
    ),
    # Added tokens
    "added id": (added(id=8), "A0503", 'added_tokens[0]: "<s>" has id 8; expected 7, the next free one'),
    "added other id": (added(content="a"), "A0503", 'added_tokens[0]: "a" has id 7 here and 1 in the vocabulary'),
    "added too large": (added(id=99), "A0503", 'added_tokens[0]: "<s>" has id 99; expected 7, the next free one'),
    "added empty": (added(content=""), "A0503", "added_tokens[0].content: 0 bytes; expected 1 to 1024"),
    "added no flag": (
        put(["added_tokens", 0, "lstrip"], ...),
        "A0504",
        "added_tokens[0].lstrip: nothing where a boolean is expected",
    ),
    "added twice": (
        lambda j: j["added_tokens"].append({**j["added_tokens"][0]}),
        "A0503",
        'added_tokens[1]: "<s>" is added twice',
    ),
    # Steps
    "normalizer": (
        put(["normalizer"], {"type": "Lowercase"}),
        "A0502",
        f'normalizer: type "Lowercase" is not supported; {NORMALIZERS}',
    ),
    "nested normalizer": (
        put(
            ["normalizer"],
            {
                "type": "Sequence",
                "normalizers": [{"type": "NFC"}, {"type": "Strip", "strip_left": True, "strip_right": True}],
            },
        ),
        "A0502",
        f'normalizer.normalizers[1]: type "Strip" is not supported; {NORMALIZERS}',
    ),
    "two forms": (
        put(["normalizer"], {"type": "Sequence", "normalizers": [{"type": "NFC"}, {"type": "NFKD"}]}),
        "A0502",
        "normalizer.normalizers[1]: two different Unicode normal forms in one normalizer",
    ),
    "pre-tokenizer": (
        put(["pre_tokenizer"], {"type": "Whitespace"}),
        "A0502",
        f'pre_tokenizer: type "Whitespace" is not supported; {PRE_TOKENIZERS}',
    ),
    "behavior": (
        split("a", behavior="Merged"),
        "A0502",
        'pre_tokenizer.behavior: "Merged" is not supported; accepted are Isolated, Removed, '
        "MergedWithPrevious, MergedWithNext, Contiguous",
    ),
    "after byte level": (
        put(
            ["pre_tokenizer"],
            {
                "type": "Sequence",
                "pretokenizers": [
                    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
                    {"type": "Digits", "individual_digits": True},
                ],
            },
        ),
        "A0502",
        "pre_tokenizer.pretokenizers[1]: a step after ByteLevel; ByteLevel must be the last",
    ),
    "option": (
        put(["pre_tokenizer"], {"type": "Digits", "individual_digits": True, "roman": True}),
        "A0502",
        'pre_tokenizer: unknown key "roman"; known are type individual_digits',
    ),
    "scheme": (
        put(["pre_tokenizer"], {"type": "Metaspace", "replacement": "_", "prepend_scheme": "last"}),
        "A0502",
        'pre_tokenizer.prepend_scheme: "last" is not supported; accepted are always, first, never',
    ),
    "replacement": (
        put(["pre_tokenizer"], {"type": "Metaspace", "replacement": "__"}),
        "A0504",
        'pre_tokenizer.replacement: "__" where one character is expected',
    ),
    "decoder": (
        put(["decoder"], {"type": "WordPiece"}),
        "A0502",
        f'decoder: type "WordPiece" is not supported; {DECODERS}',
    ),
    "decoder order": (
        put(["decoder"], {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "ByteFallback"}]}),
        "A0502",
        'decoder.decoders[1]: "ByteFallback" after ByteLevel, ByteFallback or Fuse',
    ),
    "post-processor": (
        put(["post_processor"], {"type": "BertProcessing"}),
        "A0502",
        'post_processor: type "BertProcessing" is not supported; accepted are ByteLevel, TemplateProcessing, Sequence',
    ),
    "template token": (
        template(special_tokens={}),
        "A0503",
        'post_processor.single[0].SpecialToken: "<s>" is not among special_tokens',
    ),
    "template id": (
        template(special_tokens={"<s>": {"id": "<s>", "ids": [8], "tokens": ["<s>"]}}),
        "A0503",
        'post_processor.special_tokens["<s>"].ids[0]: not the id of a token',
    ),
    "template without text": (
        template(single=[]),
        "A0502",
        "post_processor.single: a single template without Sequence A",
    ),
    # Patterns
    "pattern kind": (
        put(["pre_tokenizer", "pattern"], "a"),
        "A0504",
        "pre_tokenizer.pattern: expected an object with one key, String or Regex",
    ),
    "empty pattern": (split("", "String"), "A0502", "pre_tokenizer.pattern: an empty pattern"),
}
for _pattern, _why in {
    r"[\p{L}&&[^\p{Han}]]": "the intersection && at byte 6 of the pattern",
    r"(?<=a)b": "a group of a kind that is not supported (lookbehind, atomic, named, flags) at byte 1 of the pattern",
    r"(?<!a)b": "a group of a kind that is not supported (lookbehind, atomic, named, flags) at byte 1 of the pattern",
    r"(?>a)b": "a group of a kind that is not supported (lookbehind, atomic, named, flags) at byte 1 of the pattern",
    r"(a)\g<1>": "an escape that is not supported at byte 4 of the pattern",
    r"(a)\1": "an escape that is not supported at byte 4 of the pattern",
    r"\bfoo": "an escape that is not supported at byte 1 of the pattern",
    r"\p{Han}+": "a property that is not a general category at byte 3 of the pattern",
    r"[[:alpha:]]": "a class inside a class at byte 1 of the pattern",
    r"[z-a]": "a range that ends before it starts at byte 4 of the pattern",
    r"a+?": "a lazy or doubled repetition at byte 2 of the pattern",
    r"a{1,2}+": "a lazy or doubled repetition at byte 6 of the pattern",
    r"(a+)*b*": "a pattern that can match nothing at byte 7 of the pattern",
    r"(a*)*b": "a repetition of what can match nothing at byte 5 of the pattern",
    r"^a": "an unexpected ^ * + ? { } or ] at byte 0 of the pattern",
    r"a(b": "a group without ) at byte 3 of the pattern",
    r"a)b": "an unexpected ) at byte 1 of the pattern",
    r"[a": "a class without ] at byte 2 of the pattern",
    r"a{2000}": "a repetition of more than 1000 at byte 5 of the pattern",
    r"(?i:é)": "a character outside ASCII inside (?i: ) at byte 6 of the pattern",
    r"(?i:ss)": "ss, st, ff, fi or fl inside (?i: ) at byte 4 of the pattern",
    r"a(?=bc)": "a lookahead at more than one character at byte 7 of the pattern",
}.items():
    CASES[_pattern] = (split(_pattern), "A0502", f'pre_tokenizer.pattern: {_why} is not supported: "{_pattern}"')
CASES["long"] = (split("a" * 5000, "Regex"), "A0502", "pre_tokenizer.pattern.Regex: longer than 4096 bytes")
CASES["bomb"] = (
    split("((a{900}){900}){900}"),
    "A0502",
    "pre_tokenizer.pattern: a program of more than 4096 instructions at byte 20 of the pattern "
    'is not supported: "((a{900}){900}){900}"',
)
CASES["deep"] = (
    split("(" * 100 + "a" + ")" * 100),
    "A0502",
    'pre_tokenizer.pattern: groups nested too deeply at byte 32 of the pattern is not supported: "' + "(" * 57 + '..."',
)


def diagnostics(tokdump, folder, rows=ROWS):
    with pytest.raises(Refused) as refused:
        tokdump.run(folder, rows, folder / "image")
    code, text = refused.value.args
    assert code == 4 and not (folder / "image").exists()
    return text


@pytest.mark.parametrize("name", CASES)
def test_refused(name, tokdump, tmp_path):
    change, code, message = CASES[name]
    j = copy.deepcopy(GOOD)
    change(j)
    (tmp_path / "tokenizer.json").write_text(json.dumps(j), encoding="utf-8")
    assert f"{tmp_path}/tokenizer.json: error[{code}]: {message}\n" in diagnostics(tokdump, tmp_path)


def test_the_good_one_is_good(tokdump, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD))
    assert tokdump.encode(tmp_path, ROWS, ["abc<s>x a"]) == [[5, 7, 0, 6, 1]]


TEXTS = {
    "empty": (b"", "1:1: error[A0501]: '[' or '{' expected near end of file"),
    "null": (b"null", "1:4: error[A0501]: '[' or '{' expected near 'null'"),
    "list": (b"[]", "1:1: error[A0501]: expected an object"),
    "cut": (b'{"version": "1.0",\n "model": {"vo', "2:14: error[A0501]: premature end of input near '\"vo'"),
    "twice": (
        b'{"model": {"vocab": {"a": 0,\n"b": 1, "a": 2}}}',
        "2:11: error[A0501]: duplicate object key near '\"a\"'",
    ),
    "behind": (b"{} {}", "1:4: error[A0501]: end of file expected near '{'"),
    "not UTF-8": (b'{"a": "\xff"}', "1:8: error[A0501]: not UTF-8: byte 0xff at offset 7"),
    "comma": (b'{"a": 1,}', "1:9: error[A0501]: string or '}' expected near '}'"),
}
FILE_NAMES = ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"]
MARKED = "UTF-16 or UTF-32, by its byte-order mark: save the file as UTF-8"
BYTES = {
    "utf-8-sig": ("1:1", "starts with a byte-order mark: save the file without it"),
    "utf-16": ("1:1", MARKED),
    "utf-32": ("1:1", MARKED),
    "utf-16-le": ("1:2", "NUL byte at offset 1"),
    "utf-16-be": ("1:1", "NUL byte at offset 0"),
    "latin-1": ("1:3", "not UTF-8: byte 0xe9 at offset 2"),
}


@pytest.mark.parametrize("name", TEXTS)
def test_not_json(name, tokdump, tmp_path):
    data, message = TEXTS[name]
    (tmp_path / "tokenizer.json").write_bytes(data)
    assert f"{tmp_path}/tokenizer.json:{message}" in diagnostics(tokdump, tmp_path)


@pytest.mark.parametrize("file", FILE_NAMES)
@pytest.mark.parametrize("encoding", BYTES)
def test_one_rule_for_the_bytes_of_all_files(encoding, file, tokdump, tmp_path):
    place, message = BYTES[encoding]
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD))
    (tmp_path / file).write_bytes('{"é": 1}'.encode(encoding))
    assert diagnostics(tokdump, tmp_path) == f"{tmp_path}/{file}:{place}: error[A0501]: {message}\n"


def test_cut_everywhere(tokdump, tmp_path):
    """A file cut off anywhere is refused with a place."""
    text = json.dumps(GOOD).encode()
    for n in range(0, len(text) - 1, 29):
        (tmp_path / "tokenizer.json").write_bytes(text[:n])
        assert "error[A0501]: " in diagnostics(tokdump, tmp_path)


def test_no_file(tokdump, tmp_path):
    assert f"{tmp_path}/tokenizer.json: error[A0102]" in diagnostics(tokdump, tmp_path)


def test_every_mistake_is_told(tokdump, tmp_path):
    j = copy.deepcopy(GOOD)
    j["model"]["vocab"]["c"] = 99
    j["normalizer"] = {"type": "Nmt"}
    j["pre_tokenizer"] = {"type": "BertPreTokenizer"}
    (tmp_path / "tokenizer.json").write_text(json.dumps(j))
    text = diagnostics(tokdump, tmp_path)
    assert text.count("error[") == 3 and "Nmt" in text and "BertPreTokenizer" in text and "id 99" in text


def token(content):
    return {"content": content, "normalized": False, "special": True}


OBJECT = 'expected a string or an object with "__type": "AddedToken"'
SIDE = 'expected "left" or "right"'
NOT_DONE = "this feature is not implemented"
# Of tokenizer_config.json: what is wrong, where ($ in the text), and the message.
CONFIGS = {
    "a number": ('{"bos_token": $7}', "A0504", f"bos_token = 7: {OBJECT}"),
    "no type": ('{"eos_token": ${"content": "<s>"}}', "A0504", f'eos_token = {{"content": "<s>"}}: {OBJECT}'),
    "no content": ('{"eos_token": ${"__type": "AddedToken"}}', "A0504", "eos_token: content is missing"),
    "content": ('{"eos_token": {"__type": "AddedToken", "content": $3}}', "A0504", "content = 3: expected a string"),
    "flag": (
        '{"eos_token": {"__type": "AddedToken", "content": "<s>", "lstrip": $1}}',
        "A0504",
        "lstrip = 1: expected true or false",
    ),
    "normalized": (
        '{"added_tokens_decoder": {"7": {"content": "<s>", "normalized": $null}}}',
        "A0504",
        "normalized = null: expected true or false",
    ),
    "decoder": ('{"added_tokens_decoder": $[]}', "A0504", "added_tokens_decoder = []: expected a table"),
    "decoder null": ('{"added_tokens_decoder": $null}', "A0504", "added_tokens_decoder = null: expected a table"),
    "decoder key": (
        '{"added_tokens_decoder": {"<s>": ${"content": "<s>"}}}',
        "A0504",
        'added_tokens_decoder["<s>"]: expected the id as the key, up to eight digits',
    ),
    "decoder value": (
        '{"added_tokens_decoder": {"7": $"<s>"}}',
        "A0504",
        'added_tokens_decoder["7"] = "<s>": expected an object',
    ),
    "extra": (
        '{"extra_special_tokens": $"<x>"}',
        "A0504",
        'extra_special_tokens = "<x>": expected a list of tokens or an object of named ones',
    ),
    "extra element": ('{"extra_special_tokens": ["<x>", $5]}', "A0504", f"extra_special_tokens[1] = 5: {OBJECT}"),
    "extra value": ('{"extra_special_tokens": {"image_token": $[]}}', "A0504", f"image_token = []: {OBJECT}"),
    "additional": (
        '{"additional_special_tokens": [${"content": "<x>"}]}',
        "A0504",
        f'additional_special_tokens[0] = {{"content": "<x>"}}: {OBJECT}',
    ),
    "specific": (
        '{"model_specific_special_tokens": $["<x>"]}',
        "A0504",
        'model_specific_special_tokens = ["<x>"]: expected a table',
    ),
    "side": ('{"padding_side": $"middle"}', "A0504", f'padding_side = "middle": {SIDE}'),
    "other side": ('{"truncation_side": $null}', "A0504", f"truncation_side = null: {SIDE}"),
    "class": (
        '{"tokenizer_class": $"CohereTokenizerFast"}',
        "A0507",
        'tokenizer_class = "CohereTokenizerFast": this class builds parts of the tokenizer itself, which is not '
        "implemented; expected one of PreTrainedTokenizerFast, Qwen2Tokenizer, Qwen3_5Tokenizer, LlamaTokenizer, "
        "GemmaTokenizer, GPT2Tokenizer, GPTNeoXTokenizer",
    ),
    "class of no text": ('{"tokenizer_class": $["x"]}', "A0504", 'tokenizer_class = ["x"]: expected a string'),
    "code": (
        '{"auto_map": {"AutoTokenizer": $["a.B", null]}}',
        "A0508",
        "auto_map names Python code of the checkpoint: it is never run",
    ),
    "old code": (
        '{"auto_map": $["a.B", null]}',
        "A0508",
        "auto_map names Python code of the checkpoint: it is never run",
    ),
    "split": ('{"split_special_tokens": $true}', "A0508", f"split_special_tokens = true: {NOT_DONE}"),
    "regex": ('{"fix_mistral_regex": $true}', "A0508", f"fix_mistral_regex = true: {NOT_DONE}"),
    "other file": (
        '{"fast_tokenizer_files": $["tokenizer.4.json"]}',
        "A0508",
        f'fast_tokenizer_files = ["tokenizer.4.json"]: {NOT_DONE}',
    ),
    "inputs": ('{"init_inputs": $[1]}', "A0508", f"init_inputs = [1]: {NOT_DONE}"),
    "clean": (
        '{"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output": $true}',
        "A0508",
        f"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output = true: {NOT_DONE}",
    ),
    "mark": ("$\ufeff{}", "A0501", "starts with a byte-order mark: save the file without it"),
    "twice": ('{"eos_token": "<s>", $"eos_token": "<s>"}', "A0501", "the key eos_token occurs twice"),
    "zero": ('{"eos_token": "a\\u0000b$"}', "A0501", "a text with \\u0000 in it (byte 24)"),
    "list": ("$[]", "A0501", "a list: expected an object"),
    "too long": (
        '{"eos_token": $"' + "x" * 1025 + '"}',
        "A0503",
        '"' + "x" * 57 + '...": 1025 bytes; expected at most 1024',
    ),
    "space": (
        '{"tokenizer_class": "GPT2Tokenizer", "add_prefix_space": $null}',
        "A0504",
        "add_prefix_space = null: expected true or false",
    ),
}
FILES = {
    "map key": (
        "special_tokens_map.json",
        '{"colour": $"red"}',
        "A0504",
        "colour: expected the name of a special token, one that ends in _token",
    ),
    "map value": ("special_tokens_map.json", '{"eos_token": $["<s>"]}', "A0504", f'eos_token = ["<s>"]: {OBJECT}'),
    "map list": (
        "special_tokens_map.json",
        '{"additional_special_tokens": [${"content": "<x>"}]}',
        "A0504",
        f'additional_special_tokens[0] = {{"content": "<x>"}}: {OBJECT}',
    ),
    "map extra": (
        "special_tokens_map.json",
        '{"extra_special_tokens": [${"content": "<x>", "special": true}]}',
        "A0504",
        "extra_special_tokens: an object that says whether it is special",
    ),
    "map mark": (
        "special_tokens_map.json",
        "$\ufeff{}",
        "A0501",
        "starts with a byte-order mark: save the file without it",
    ),
    "added id": ("added_tokens.json", '{"<x>": $"7"}', "A0504", '<x> = "7": expected an id'),
    "added half": ("added_tokens.json", '{"<x>": $7.5}', "A0504", "<x> = 7.5: expected an id"),
    "added below": ("added_tokens.json", '{"<x>": $-1}', "A0504", "<x> = -1: expected an id"),
    "added list": ("added_tokens.json", '$["<x>"]', "A0501", "a list: expected an object"),
    "tokenizer mark": (
        "tokenizer.json",
        "$\ufeff{}",
        "A0501",
        "starts with a byte-order mark: save the file without it",
    ),
    **{name: ("tokenizer_config.json", *rest) for name, rest in CONFIGS.items()},
}


@pytest.mark.parametrize("name", FILES)
def test_small_file_refused(name, tokdump, tmp_path):
    file, text, code, message = FILES[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD), encoding="utf-8")
    if "GPT2" in text:
        byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
        (tmp_path / "tokenizer.json").write_text(json.dumps({**GOOD, "pre_tokenizer": byte_level}), encoding="utf-8")
    (tmp_path / file).write_text(text.replace("$", ""), encoding="utf-8")
    place = f"{tmp_path}/{file}:1:{text.index('$') + 1}"
    assert diagnostics(tokdump, tmp_path, 1000) == f"{place}: error[{code}]: {message}\n"


def test_every_mistake_of_the_config_is_told(tokdump, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD))
    config = {
        "bos_token": 1,
        "padding_side": "up",
        "split_special_tokens": True,
        "tokenizer_class": 5,
        "extra_special_tokens": [1, 2],
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config))
    assert diagnostics(tokdump, tmp_path).count("error[") == 6


# Accepted, and told.
NOTES = {
    "other id": (
        {"added_tokens_decoder": {"3": token("<s>")}},
        "",
        "tokenizer_config.json:1:32",
        "A0510",
        '"<s>" gets id 7, as in transformers, although its entry says 3: it is a token already',
    ),
    "next id": (
        {"added_tokens_decoder": {"12": token("<t>")}},
        "",
        "tokenizer_config.json:1:33",
        "A0510",
        '"<t>" gets id 8, as in transformers, although its entry says 12: it is the next one',
    ),
    "other ids": (
        {"added_tokens_decoder": {"12": token("<t>"), "13": token("<u>"), "14": token("<v>")}},
        "",
        "tokenizer_config.json:1:33",
        "A0510",
        '"<t>" gets id 8, as in transformers, although its entry says 12: it is '
        "the next one; 2 more get another id than their entry says",
    ),
    "pattern": (
        {"pretokenize_regex": "a+"},
        "",
        "tokenizer_config.json:1:23",
        "A0510",
        "pretokenize_regex is not used, as in transformers: text is split by what tokenizer.json has",
    ),
    "pattern of a class": (
        {"tokenizer_class": "LlamaTokenizer", "pretokenize_regex": "\\s+"},
        "",
        "tokenizer_config.json:1:60",
        "A0510",
        "pretokenize_regex is not used, as in transformers: text is split by what LlamaTokenizer has",
    ),
    "unknown": (
        {"shape": 1, "colour": "red"},
        "",
        "tokenizer_config.json:1:11",
        "A0509",
        "unknown keys are not used: shape, colour",
    ),
    "class": (
        {"tokenizer_class": "LlamaTokenizer"},
        "",
        "tokenizer.json",
        "A0510",
        "as in transformers, LlamaTokenizer builds these parts itself, and those of the file are not used: "
        "pre_tokenizer, decoder, model.fuse_unk, model.byte_fallback",
    ),
    "class of bytes": (
        {"tokenizer_class": "GPT2Tokenizer"},
        "",
        "tokenizer.json",
        "A0510",
        "GPT2Tokenizer is a class for bytes, but the vocabulary is one of characters: tokenizer.json is used unchanged",
    ),
    "left out": (
        {"tokenizer_class": "LlamaTokenizer", "added_tokens_decoder": {}, "bos_token": None},
        "",
        "tokenizer.json",
        "A0510",
        "1 entries of added_tokens are missing in added_tokens_decoder of tokenizer_config.json "
        'and are ignored, as in transformers with LlamaTokenizer; the first is "<s>"',
    ),
    "pad": (
        {"pad_token": "[PAD]", "extra_special_tokens": ["<x>"]},
        8,
        "tokenizer.json",
        "A0511",
        '2 added tokens have no row of the vocabulary (8), the first is "[PAD]" with id 8: never generated, and an '
        "error in a prompt",
    ),
    "pad alone": (
        {"pad_token": "[PAD]"},
        8,
        "tokenizer.json",
        "A0511",
        '1 added token has no row of the vocabulary (8), the first is "[PAD]" with id 8: never generated, and '
        "an error in a prompt",
    ),
}


@pytest.mark.parametrize("value", ["\\s+", None, 3])
def test_a_pattern_that_is_the_files(value, tokdump, tmp_path):
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD))
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"pretokenize_regex": value}))
    assert tokdump.run(tmp_path, ROWS, tmp_path / "image").stderr == b""


@pytest.mark.parametrize("name", NOTES)
def test_small_file_told(name, tokdump, tmp_path):
    config, rows, place, code, message = NOTES[name]
    (tmp_path / "tokenizer.json").write_text(json.dumps(GOOD), encoding="utf-8")
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(config), encoding="utf-8")
    told = tokdump.run(tmp_path, rows or 1000, tmp_path / "image").stderr.decode()
    assert f"{tmp_path}/{place}: note[{code}]: {message}\n" in told
