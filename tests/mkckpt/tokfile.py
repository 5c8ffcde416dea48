"""Small tokenizer.json files, built from nothing but this module.

Kinds (each the shape of a published family, in miniature):
  qwen2    NFC, the Qwen2 split pattern, byte-level BPE, special tokens after the vocabulary, no BOS
  llama3   the Llama 3 split pattern, byte-level BPE with ignore_merges, BOS by TemplateProcessing
  smollm   special tokens first, individual digits, GPT-2 pattern inside ByteLevel
  spm      SentencePiece style: <unk> <s> </s>, 256 byte tokens, Prepend + Replace, byte fallback, BOS

The merges come from a plain BPE trainer over the text below (King James Version, Genesis 1), ties broken by
bytes, so they never depend on a library's version.
"""

from collections import Counter

TEXT = """In the beginning God created the heaven and the earth. And the earth was without form, and void; and
darkness was upon the face of the deep. And the Spirit of God moved upon the face of the waters. And God said, Let
there be light: and there was light. And God saw the light, that it was good: and God divided the light from the
darkness. And God called the light Day, and the darkness he called Night. And the evening and the morning were the
first day. And God said, Let there be a firmament in the midst of the waters, and let it divide the waters from the
waters."""

LLAMA3_PATTERN = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_PATTERN = LLAMA3_PATTERN.replace(r"\p{N}{1,3}", r"\p{N}")

CHATML = (
    "{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + "
    "'\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def byte_alphabet():
    """The GPT-2 bijection byte -> printable character."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    shifted = [b for b in range(256) if b not in printable]
    table = {b: chr(b) for b in printable}
    table.update({b: chr(0x100 + i) for i, b in enumerate(shifted)})
    return table


def train_merges(words, count):
    """Classic BPE: join the most frequent neighbours, ties to the smaller pair. words: Counter of symbol tuples."""
    merges = []
    for _ in range(count):
        pairs = Counter()
        for symbols, n in words.items():
            for pair in zip(symbols, symbols[1:]):
                pairs[pair] += n
        best = min(pairs, key=lambda pair: (-pairs[pair], pair))
        merges.append(best)
        joined = Counter()
        for symbols, n in words.items():
            out, i = [], 0
            while i < len(symbols):
                if symbols[i : i + 2] == best:
                    out.append(symbols[i] + symbols[i + 1])
                    i += 2
                else:
                    out.append(symbols[i])
                    i += 1
            joined[tuple(out)] += n
        words = joined
    return merges


def training_words(space):
    """Words of TEXT with the space in front, as symbols."""
    return Counter(tuple(space + word) for word in TEXT.split())


def added(token, number, special=True):
    return {"id": number, "content": token, "single_word": False, "lstrip": False, "rstrip": False,
            "normalized": False, "special": special}  # fmt: skip


def bpe(vocab, merges, **changes):
    model = {"type": "BPE", "dropout": None, "unk_token": None, "continuing_subword_prefix": None,
             "end_of_word_suffix": None, "fuse_unk": False, "byte_fallback": False, "ignore_merges": False,
             "vocab": vocab, "merges": merges}  # fmt: skip
    model.update(changes)
    return model


def byte_level(use_regex=False, **changes):
    step = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": use_regex}
    step.update(changes)
    return step


def split_then_bytes(pattern):
    split = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [split, byte_level()]}


def bos_template(token, number):
    return {
        "type": "TemplateProcessing",
        "single": [{"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
        "pair": [
            {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
            {"SpecialToken": {"id": token, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}},
        ],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }  # fmt: skip


def file(specials, normalizer, pre_tokenizer, post_processor, decoder, model):
    return {"version": "1.0", "truncation": None, "padding": None, "added_tokens": specials,
            "normalizer": normalizer, "pre_tokenizer": pre_tokenizer, "post_processor": post_processor,
            "decoder": decoder, "model": model}  # fmt: skip


def byte_vocab(merge_count, first):
    """(vocab, merges) of a byte-level BPE whose ids start at `first`."""
    alphabet = byte_alphabet()
    merges = train_merges(training_words(alphabet[0x20]), merge_count)
    tokens = [alphabet[b] for b in range(256)] + [a + b for a, b in merges]
    return {token: first + i for i, token in enumerate(tokens)}, merges


def make_qwen2(merge_count):
    vocab, merges = byte_vocab(merge_count, 0)
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    specials = [added(name, len(vocab) + i) for i, name in enumerate(names)]
    model = bpe(vocab, [f"{a} {b}" for a, b in merges])
    tokenizer = file(specials, {"type": "NFC"}, split_then_bytes(QWEN2_PATTERN), byte_level(), byte_level(), model)
    config = {"add_bos_token": False, "bos_token": None, "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>",
              "chat_template": CHATML, "tokenizer_class": "Qwen2Tokenizer"}  # fmt: skip
    return tokenizer, config, {"eos": [len(vocab) + 2, len(vocab)], "bos": None, "pad": len(vocab)}


def make_llama3(merge_count):
    vocab, merges = byte_vocab(merge_count, 0)
    names = ["<|begin_of_text|>", "<|end_of_text|>", "<|eot_id|>"]
    specials = [added(name, len(vocab) + i) for i, name in enumerate(names)]
    model = bpe(vocab, [list(pair) for pair in merges], ignore_merges=True)
    post = {"type": "Sequence", "processors": [byte_level(True), bos_template(names[0], len(vocab))]}
    tokenizer = file(specials, None, split_then_bytes(LLAMA3_PATTERN), post, byte_level(True), model)
    config = {"bos_token": names[0], "eos_token": names[2], "tokenizer_class": "PreTrainedTokenizerFast"}
    return tokenizer, config, {"eos": [len(vocab) + 1, len(vocab) + 2], "bos": len(vocab), "pad": None}


def make_smollm(merge_count):
    names = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocab, merges = byte_vocab(merge_count, len(names))
    vocab = {**{name: i for i, name in enumerate(names)}, **vocab}
    model = bpe(vocab, [f"{a} {b}" for a, b in merges])
    pre = {"type": "Sequence", "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level(True)]}
    specials = [added(name, i) for i, name in enumerate(names)]
    tokenizer = file(specials, None, pre, None, byte_level(True, add_prefix_space=True), model)
    config = {"bos_token": names[1], "eos_token": names[2], "pad_token": names[2], "unk_token": names[0],
              "chat_template": CHATML, "tokenizer_class": "PreTrainedTokenizerFast"}  # fmt: skip
    return tokenizer, config, {"eos": 2, "bos": 1, "pad": 2}


def make_spm(merge_count):
    space = "\u2581"
    names = ["<unk>", "<s>", "</s>"]
    words = training_words(space)
    letters = sorted({symbol for symbols in words for symbol in symbols})
    merges = train_merges(words, merge_count)
    tokens = names + [f"<0x{b:02X}>" for b in range(256)] + letters + [a + b for a, b in merges]
    vocab = {token: i for i, token in enumerate(tokens)}
    model = bpe(vocab, [f"{a} {b}" for a, b in merges], unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    normalizer = {
        "type": "Sequence",
        "normalizers": [
            {"type": "Prepend", "prepend": space},
            {"type": "Replace", "pattern": {"String": " "}, "content": space},
        ],
    }
    decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": space}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    specials = [added(name, i) for i, name in enumerate(names)]
    tokenizer = file(specials, normalizer, None, bos_template("<s>", 1), decoder, model)
    config = {"add_bos_token": True, "add_eos_token": False, "bos_token": "<s>", "eos_token": "</s>",
              "unk_token": "<unk>", "legacy": False, "tokenizer_class": "LlamaTokenizer"}  # fmt: skip
    return tokenizer, config, {"eos": 2, "bos": 1, "pad": None}


MAKERS = {"qwen2": make_qwen2, "llama3": make_llama3, "smollm": make_smollm, "spm": make_spm}


def token_count(tokenizer):
    """Largest id + 1."""
    ids = [*tokenizer["model"]["vocab"].values(), *(t["id"] for t in tokenizer["added_tokens"])]
    return max(ids) + 1


def make(kind, merge_count):
    """(tokenizer.json, tokenizer_config.json, ids of bos / eos / pad) of one kind."""
    return MAKERS[kind](merge_count)
