"""Folders with a tokenizer, in every way their small files can say something: named variants and random ones."""

import json
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "mkckpt"))
import tokfile  # noqa: E402

MERGES = 30


def token(content, **flags):
    return {
        "content": content,
        "lstrip": False,
        "normalized": False,
        "rstrip": False,
        "single_word": False,
        "special": True,
        **flags,
    }


def typed(content, **flags):
    return {"__type": "AddedToken", **token(content, **flags)}


class Folder:
    """Contents of the files of a folder; None = the file is absent."""

    def __init__(self, kind="qwen2", model_type="qwen3"):
        self.tokenizer, self.config, _ = tokfile.make(kind, MERGES)
        self.config.pop("chat_template", None)
        if kind == "smollm":
            self.config["tokenizer_class"] = "GPT2Tokenizer"  # as SmolLM2 has
        self.model = {"model_type": model_type}
        self.map = self.added = None
        self.n = tokfile.token_count(self.tokenizer)  # the next free id
        self.full_decoder()

    def full_decoder(self):
        self.config["added_tokens_decoder"] = {
            str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in self.tokenizer["added_tokens"]
        }

    @property
    def decoder(self):
        return self.config["added_tokens_decoder"]

    def old(self):
        """As written before there was an added_tokens_decoder."""
        del self.config["added_tokens_decoder"]
        return self

    def write(self, folder):
        for name, value in {
            "tokenizer.json": self.tokenizer,
            "tokenizer_config.json": self.config,
            "config.json": self.model,
            "special_tokens_map.json": self.map,
            "added_tokens.json": self.added,
        }.items():
            if value is not None:
                (folder / name).write_text(json.dumps(value), encoding="utf-8")

    def contents(self):
        """Every text that may be an added token somewhere."""
        found = {t["content"] for t in self.tokenizer["added_tokens"]}

        def walk(value):
            if isinstance(value, dict):
                for v in value.values():
                    walk(v)
            elif isinstance(value, list):
                for v in value:
                    walk(v)
            elif isinstance(value, str):
                found.add(value)

        for file in (self.config, self.map, self.added):
            walk(file)
        return sorted({*found, *(self.added or {})} - {""})


CASES = {}


def case(make):
    CASES[make.__name__.replace("_", " ")] = make
    return make


def with_config(name, kind="qwen2", model_type="qwen3", old=False, **keys):
    """A variant that sets keys of tokenizer_config.json; ... removes one."""

    def make():
        f = Folder(kind, model_type)
        if old:
            f.old()
        for key, value in keys.items():
            if value is ...:
                f.config.pop(key, None)
            else:
                f.config[key] = value
        return f

    CASES[name] = make


# added_tokens_decoder
@case
def seven_tokens_in_the_config_alone():
    f = Folder(model_type="qwen3_5")
    for i, name in enumerate(
        [
            "<|audio_start|>",
            "<|audio_end|>",
            "<tts_pad>",
            "<tts_text_bos>",
            "<tts_text_eod>",
            "<tts_text_bos_single>",
            "<|audio_pad|>",
        ]
    ):
        f.decoder[str(f.n + i)] = token(name)
    return f


@case
def the_same_for_a_file_as_it_stands():
    f = seven_tokens_in_the_config_alone()
    f.config["tokenizer_class"] = "PreTrainedTokenizerFast"
    return f


@case
def numbers_with_a_gap():
    f = Folder()
    f.decoder[str(f.n + 5)] = token("<gap>")
    f.decoder[str(f.n + 2)] = token("<first>")
    return f


@case
def numbers_of_the_vocabulary():
    f = Folder()
    f.decoder["5"] = token("<five>")
    f.decoder["299"] = token("the")
    return f


@case
def other_flags_than_the_file():
    f = Folder()
    for i, flags in enumerate([{"lstrip": True}, {"rstrip": True, "special": False}, {"single_word": True}]):
        f.decoder[str(f.n - 3 + i)].update(flags)
    return f


@case
def other_flags_for_a_file_as_it_stands():
    f = other_flags_than_the_file()
    f.config["tokenizer_class"] = "PreTrainedTokenizerFast"
    f.config["eos_token"] = f.config["pad_token"] = None
    return f


@case
def normalized_with_a_class():
    f = Folder()
    f.decoder[str(f.n)] = token("<norm>", normalized=True, special=False)
    f.decoder[str(f.n + 1)] = {"content": "<bare>"}
    f.decoder[str(f.n + 2)] = {"content": "<bare special>", "special": True}
    return f


@case
def normalized_words_of_many_scripts():
    """As add_tokens of the library makes them: in the normal form of the text they are sought in."""
    f = Folder()
    for i, word in enumerate(
        [
            "được",
            "한국어",
            "각",
            "नमस्ते",
            "क़",
            "e\u0301",
            "a\u0323\u0307\u0301",
            "\u1112\u1161\u11ab",
            "ệ\u0316",
            "\u212b",
            "日本",
            "\ufb01",
            "\u0958x",
            "\u0344",
            "다\u11a8",
            "\U0001d15e",
        ]
    ):
        f.decoder[str(f.n + i)] = token(word, normalized=True, special=False)
    return f


@case
def without_the_tokens_of_the_file():
    f = Folder()
    f.config["added_tokens_decoder"] = {}
    return f


@case
def one_token_left_out():
    f = Folder()
    del f.decoder[str(f.n - 2)]
    return f


@case
def empty_for_a_file_as_it_stands():
    f = without_the_tokens_of_the_file()
    f.config["tokenizer_class"] = "PreTrainedTokenizerFast"
    return f


@case
def an_empty_text_and_an_unknown_field():
    f = Folder()
    f.decoder[str(f.n)] = {**token(""), "colour": "red"}
    f.decoder[str(f.n + 1)] = {**token("<after>"), "colour": "red"}
    return f


@case
def made_special_by_a_name():
    f = Folder(model_type="llama")
    f.config["tokenizer_class"] = "PreTrainedTokenizerFast"
    f.decoder[str(f.n)] = {"content": "<mask>"}
    f.decoder[str(f.n + 1)] = {"content": "<image>", "lstrip": True}
    f.config["mask_token"] = "<mask>"
    f.config["image_token"] = "<image>"
    return f


@case
def pad_behind_all():
    f = Folder(model_type="llama")
    f.config.update(tokenizer_class="PreTrainedTokenizerFast", pad_token="[PAD]")
    return f


# Special tokens of the config
with_config("extra list", extra_special_tokens=["<x1>", "<x2>"])
with_config("extra list of objects", extra_special_tokens=[typed("<x1>", rstrip=True, special=False), "<x2>", "<x1>"])
with_config("extra object", extra_special_tokens={"image_token": "<img>", "audio_token": typed("<aud>", lstrip=True)})
with_config("extra object over a name", extra_special_tokens={"eos_token": "<end>", "x": "<x>"})
with_config("extra null", extra_special_tokens=None)
with_config("extra empty", extra_special_tokens=[])
with_config("extra empty object", extra_special_tokens={})
with_config("additional list", additional_special_tokens=["<x1>", "<|im_end|>", "<x2>"])
with_config("additional object", additional_special_tokens={"b_token": "<b>", "a_token": "<a>"})
with_config("additional beside extra", extra_special_tokens=["<x1>"], additional_special_tokens=["<x2>"])
with_config("additional beside null extra", extra_special_tokens=None, additional_special_tokens=["<x2>"])
with_config("additional of the vocabulary", additional_special_tokens=["the", "Ġthe", "waters"])
with_config("specific", model_specific_special_tokens={"image_token": "<img>", "z": typed("<z>", special=False)})
with_config(
    "specific beside an object",
    model_specific_special_tokens={"image_token": "<img>"},
    extra_special_tokens={"y": "<y>"},
)
with_config("specific beside a name", model_specific_special_tokens={"image_token": "<img>"}, my_token="<my>")
with_config("own names", z_token="<z>", a_token=typed("<a>", single_word=True), y_token="<y>", b_token=typed("<b>"))
with_config("own name null", image_token=None)
with_config(
    "own name beside the same extra", a_token=typed("<a1>"), c_token="<c>", extra_special_tokens={"a_token": "<a2>"}
)
with_config(
    "all seven",
    bos_token="<b>",
    eos_token="<e>",
    unk_token="<u>",
    sep_token="<s>",
    pad_token="<p>",
    cls_token="<c>",
    mask_token="<m>",
)
with_config(
    "all seven as it stands",
    model_type="llama",
    tokenizer_class="PreTrainedTokenizerFast",
    mask_token="<m>",
    cls_token="<c>",
    pad_token="<p>",
    sep_token="<s>",
    unk_token="<u>",
    eos_token="<e>",
    bos_token="<b>",
)
with_config(
    "all seven null",
    bos_token=None,
    eos_token=None,
    unk_token=None,
    sep_token=None,
    pad_token=None,
    cls_token=None,
    mask_token=None,
)
with_config(
    "objects",
    bos_token=typed("<b>", lstrip=True),
    mask_token=typed("<m>", lstrip=True, special=False),
    eos_token=typed("<|im_end|>", rstrip=True),
)
with_config(
    "objects without flags",
    model_type="llama",
    tokenizer_class="TokenizersBackend",
    bos_token={"__type": "AddedToken", "content": "<b>"},
    mask_token={"__type": "AddedToken", "content": "<M x>", "normalized": True},
)
with_config("one text for two names", eos_token="<e>", pad_token=typed("<e>", lstrip=True), mask_token="<e>")
with_config(
    "one text for a default and two names",
    model_type="qwen3_5",
    tokenizer_class="Qwen3_5Tokenizer",
    unk_token=...,
    eos_token="the",
    pad_token="and",
    sep_token=typed("<|endoftext|>", lstrip=True, special=False),
    mask_token="<|endoftext|>",
    added_tokens_decoder={},
)
with_config("empty text", bos_token="", extra_special_tokens=["", "<x>"])
with_config("a name of the vocabulary", bos_token="the", eos_token="and")
with_config("defaults of the class", eos_token=..., pad_token=..., unk_token=...)
with_config("defaults of GPT2", "smollm", "llama", eos_token=..., pad_token=..., unk_token=..., bos_token=...)
with_config("defaults of Llama", "spm", "llama", eos_token=..., unk_token=..., bos_token=...)
with_config("defaults of NeoX", "smollm", "llama", tokenizer_class="GPTNeoXTokenizer", pad_token=...)
with_config("white space inside", extra_special_tokens=["a b", " x", "x ", "\n", "日本", "e\u0301"])
with_config("texts within each other", extra_special_tokens=["<a>", "<a><b>", "<a><b><c>", "<", "a"])

# Classes
for _type in ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe"):
    for _class in (
        None,
        "PreTrainedTokenizerFast",
        "Qwen2Tokenizer",
        "Qwen2TokenizerFast",
        "Qwen3_5Tokenizer",
        "TokenizersBackend",
        "GPT2TokenizerFast",
        "GPTNeoXTokenizer",
        "NobodysTokenizer",
    ):
        with_config(f"{_type} of {_class}", model_type=_type, tokenizer_class=_class or ...)
for _type in ("llama", "mistral", "qwen3"):
    for _class in (None, "LlamaTokenizer", "LlamaTokenizerFast", "PreTrainedTokenizerFast"):
        with_config(f"characters, {_type} of {_class}", "spm", _type, tokenizer_class=_class or ...)
for _type in ("exaone4", "glm4_moe", "laguna", "minimax_m2", "olmo3", "phi3", "qwen3_vl", "seed_oss", "smollm3"):
    for _class in (None, "Qwen2Tokenizer", "GPT2TokenizerFast"):
        with_config(f"{_type} of {_class}", model_type=_type, tokenizer_class=_class or ...)
for _type in ("gemma3", "gemma3_text", "mixtral", "phi3"):
    for _class in (None, "GemmaTokenizer", "GemmaTokenizerFast", "LlamaTokenizer", "PreTrainedTokenizerFast"):
        with_config(f"characters, {_type} of {_class}", "spm", _type, tokenizer_class=_class or ...)
for _space in (None, True, False):
    for _legacy in (None, True, False, ...):
        with_config(
            f"Llama with add_prefix_space {_space}, legacy {_legacy}",
            "spm",
            "llama",
            add_prefix_space=_space,
            legacy=_legacy,
        )
    with_config(f"Qwen2 with add_prefix_space {_space}", add_prefix_space=_space)
    with_config(
        f"as it stands with add_prefix_space {_space}",
        model_type="llama",
        add_prefix_space=_space,
        tokenizer_class="PreTrainedTokenizerFast",
    )
with_config("GPT2 with add_prefix_space", "smollm", "llama", add_prefix_space=True)
with_config("NeoX with add_prefix_space", "smollm", "llama", add_prefix_space=True, tokenizer_class="GPTNeoXTokenizer")


@case
def class_of_config_json():
    f = Folder(model_type="llama")
    del f.config["tokenizer_class"]
    f.model["tokenizer_class"] = "Qwen3_5Tokenizer"
    return f


@case
def ignore_merges_with_a_class():
    f = Folder("llama3", "llama")
    f.config["tokenizer_class"] = "GPT2Tokenizer"
    return f


# Keys that change nothing, and those that decide in tokenizer.json
with_config(
    "harmless",
    model_max_length=10**30,
    clean_up_tokenization_spaces=True,
    errors="replace",
    use_fast=False,
    processor_class="X",
    padding_side="left",
    truncation_side="left",
    name_or_path="somewhere",
    sp_model_kwargs={},
    spaces_between_special_tokens=False,
    do_lower_case=True,
    max_length=2,
    stride=1,
    split_special_tokens=False,
    model_input_names=["input_ids"],
    use_default_system_prompt=True,
    pad_token_type_id=3,
    return_token_type_ids=False,
    response_schema={},
    backend="tokenizers",
)
with_config("ends that the config wants", add_bos_token=True, add_eos_token=True, bos_token="<|endoftext|>")
with_config("ends that the config does not want", "llama3", "llama", add_bos_token=False, add_eos_token=True)
with_config("ends that are texts", add_bos_token="the", add_eos_token="<y>")
with_config("ends of a Llama", "spm", "llama", add_bos_token=False, add_eos_token=True)
with_config("no code", auto_map={"AutoProcessor": "x.Y"}, init_inputs=[], fast_tokenizer_files=[])


@case
def padding_and_truncation():
    f = Folder(model_type="llama")
    f.config.update(tokenizer_class="PreTrainedTokenizerFast", pad_token=...)
    del f.config["pad_token"]
    f.tokenizer["padding"] = {
        "strategy": {"Fixed": 20},
        "direction": "Left",
        "pad_to_multiple_of": None,
        "pad_id": 0,
        "pad_type_id": 0,
        "pad_token": "[PAD]",
    }
    f.tokenizer["truncation"] = {"direction": "Right", "max_length": 4, "strategy": "LongestFirst", "stride": 0}
    return f


@case
def padding_with_a_class():
    f = padding_and_truncation()
    f.config["tokenizer_class"] = "Qwen2Tokenizer"
    return f


# The old files
with_config("no list of tokens", old=True)
with_config(
    "no list, as it stands", model_type="llama", old=True, tokenizer_class="PreTrainedTokenizerFast", mask_token="<m>"
)


@case
def no_config_at_all():
    f = Folder().old()
    f.config = None
    return f


@case
def map_of_all_forms():
    f = Folder().old()
    f.map = {
        "bos_token": "<b>",
        "mask_token": {"content": "<m>", "lstrip": True, "normalized": True, "rstrip": False, "single_word": False},
        "additional_special_tokens": ["<x1>", "<x2>"],
        "eos_token": {"content": "<|im_end|>"},
        "z_token": {"content": "<z>"},
        "y_token": "<y>",
        "cls_token": None,
    }
    return f


@case
def map_unread_beside_a_list_of_tokens():
    f = Folder()
    f.map = {"bos_token": "<b>", "additional_special_tokens": ["<x1>"]}
    f.added = {"<q>": f.n}
    return f


@case
def map_and_extra():
    f = Folder().old()
    f.config["additional_special_tokens"] = ["<c1>"]
    f.config["w_token"] = "<w>"
    f.map = {
        "additional_special_tokens": ["<x1>"],
        "extra_special_tokens": ["<c1>", "<x3>", {"content": "<x4>"}],
        "v_token": "<v>",
        "w_token": "<ww>",
    }
    return f


@case
def map_fills_names_that_are_null():
    f = Folder().old()
    f.config.update(a_token=None, b_token=None, c_token=None, extra_special_tokens={"c_token": "<c>", "d": "<d>"})
    f.map = {"x_token": "<x>", "b_token": "<b>", "a_token": "<a>"}
    return f


@case
def map_with_extra_object():
    f = Folder().old()
    f.map = {"extra_special_tokens": {"k": "<k>"}, "pad_token": "<pp>"}
    return f


@case
def added_tokens_json():
    f = Folder().old()
    f.added = {"<late>": f.n + 1, "<early>": f.n, "<m>": f.n + 2, "<x1>": f.n + 3, "<t>": f.n + 4}
    f.config.update(mask_token="<m>", additional_special_tokens=["<x1>"], sep_token=typed("<t>"))
    return f


@case
def added_tokens_json_against_the_file():
    f = Folder(model_type="llama").old()
    f.config["tokenizer_class"] = "PreTrainedTokenizerFast"
    f.added = {"<|other|>": f.n - 1, "<new>": 3, "<|im_start|>": f.n + 9}
    return f


@case
def two_texts_with_one_number():
    f = Folder(model_type="llama").old()
    f.added = {"<a>": f.n, "<b>": f.n, "<c>": f.n + 1}
    f.config.update(
        tokenizer_class="PreTrainedTokenizerFast",
        bos_token=typed("<a>", lstrip=True, special=False),
        mask_token=typed("<b>", rstrip=True),
    )
    return f


@case
def normalized_and_not():
    """Two special tokens of one text: the later flags, but the text of the first."""
    f = Folder("spm", "mistral")
    f.config.update(
        pad_token=typed("<x>", normalized=True),
        mask_token="<x>",
        sep_token="<y>",
        cls_token=typed("<y>", normalized=True),
    )
    return f


@case
def added_tokens_json_and_map():
    f = Folder().old()
    f.added = {"<t>": f.n, "<u>": f.n + 1, "<x>": f.n + 2}
    f.config["sep_token"] = typed("<t>")
    f.map = {"sep_token": {"content": "<t>"}, "additional_special_tokens": ["<x>"], "unk_token": "<u>"}
    return f


# Both kinds of vocabularies
with_config(
    "characters with extras",
    "spm",
    "llama",
    extra_special_tokens=["<x1>", "▁<x2>", "<x3> "],
    tokenizer_class="PreTrainedTokenizerFast",
)


@case
def characters_with_normalized_tokens():
    f = Folder("spm", "llama")
    f.config["tokenizer_class"] = "PreTrainedTokenizerFast"
    f.decoder[str(f.n)] = token("the end", normalized=True, special=False)
    f.decoder[str(f.n + 1)] = token("<n>", normalized=True)
    return f


@case
def a_vocabulary_that_starts_with_its_added_tokens():
    f = Folder("smollm", "llama")
    f.config["additional_special_tokens"] = ["<|im_start|>", "<|im_end|>", "<new>"]
    f.decoder[str(f.n)] = token("<newer>")
    return f


# Random ones ------------------------------------------------------------------------------------------------------

NAMES = [
    "bos_token",
    "eos_token",
    "unk_token",
    "sep_token",
    "pad_token",
    "cls_token",
    "mask_token",
    "image_token",
    "x_token",
]
TEXTS = [
    "<a>",
    "<b>",
    "<c>",
    "<d> ",
    " <e>",
    "<f",
    "<a><b>",
    "the",
    "Ġthe",
    "and",
    "▁the",
    "a",
    "",
    "[PAD]",
    "<|im_end|>",
    "<|im_start|>",
    "<|endoftext|>",
    "<s>",
    "</s>",
    "<unk>",
    "w w",
    "<|eot_id|>",
]
CLASSES = [
    None,
    None,
    None,
    "PreTrainedTokenizerFast",
    "Qwen2Tokenizer",
    "Qwen3_5Tokenizer",
    "GPT2Tokenizer",
    "LlamaTokenizerFast",
    "GPTNeoXTokenizer",
    "TokenizersBackend",
    "Odd",
]


def random_folder(seed):
    r = random.Random(seed)
    kind = r.choice(["qwen2", "qwen2", "llama3", "smollm", "spm"])
    f = Folder(kind, r.choice(["llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5"]))

    def flags():
        return {
            k: r.random() < 0.5
            for k in ("lstrip", "rstrip", "single_word", "special", "normalized")
            if r.random() < 0.5
        }

    def value(as_type=True):
        text = r.choice(TEXTS)
        if r.random() < 0.6:
            return text
        return {**({"__type": "AddedToken"} if as_type else {}), "content": text, **flags()}

    name = r.choice(CLASSES)
    if name is None and r.random() < 0.7:
        f.config.pop("tokenizer_class", None)
    elif name:
        f.config["tokenizer_class"] = name
    if r.random() < 0.4:
        f.old()
        if r.random() < 0.6:
            f.map = {n: value(False) if r.random() < 0.8 else None for n in r.sample(NAMES, r.randrange(4))}
            if r.random() < 0.5:
                f.map["additional_special_tokens"] = [r.choice(TEXTS) for _ in range(r.randrange(4))]
            if r.random() < 0.3:
                f.map["extra_special_tokens"] = [value(False) for _ in range(r.randrange(4))]
        if r.random() < 0.6:
            f.added = {text: f.n + r.randrange(-4, 8) for text in r.sample(TEXTS, r.randrange(5)) if text}
    else:
        for id_ in r.sample(sorted(f.decoder), r.randrange(2)):
            del f.decoder[id_]
        for _ in range(r.randrange(5)):
            f.decoder[str(f.n + r.randrange(-3, 9))] = {"content": r.choice(TEXTS), **flags()}
    for n in r.sample(NAMES, r.randrange(5)):
        f.config[n] = None if r.random() < 0.2 else value()
    for key in ("extra_special_tokens", "additional_special_tokens", "model_specific_special_tokens"):
        if r.random() < 0.3:
            table = {n: value() for n in r.sample(NAMES + ["k1", "k2"], r.randrange(4))}
            if key[0] == "m":
                f.config[key] = table
            else:
                f.config[key] = r.choice([[value() for _ in range(r.randrange(4))], table, None])
    for key in ("add_prefix_space", "legacy", "add_bos_token", "add_eos_token"):
        if r.random() < 0.3:
            f.config[key] = r.random() < 0.5
    return f
