"""The files of a published folder that are no weights: tokenizer, templates, processors and papers, in their form.

Vocabularies belong to their publishers: here they are counted out, all single bytes, then all pairs of bytes, then
triples, until there are as many tokens and merges as published. Added tokens, patterns and steps are the published
ones.
"""

from __future__ import annotations

import functools
import json
import pathlib

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
QWEN35 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)

# From the end of text on, in the order of their ids; the last eight of Qwen3's are no special tokens.
QWEN_ADDED = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|object_ref_start|>",
    "<|object_ref_end|>",
    "<|box_start|>",
    "<|box_end|>",
    "<|quad_start|>",
    "<|quad_end|>",
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
    "<tool_call>",
    "</tool_call>",
    "<|fim_prefix|>",
    "<|fim_middle|>",
    "<|fim_suffix|>",
    "<|fim_pad|>",
    "<|repo_name|>",
    "<|file_sep|>",
    "<tool_response>",
    "</tool_response>",
    "<think>",
    "</think>",
]
# Of tokenizer_config.json alone.
QWEN35_ALONE = [
    "<|audio_start|>",
    "<|audio_end|>",
    "<tts_pad>",
    "<tts_text_bos>",
    "<tts_text_eod>",
    "<tts_text_bos_single>",
    "<|audio_pad|>",
]

TEMPLATE = """{%- for message in messages %}
{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
{{- '<|im_start|>assistant\\n' }}
{%- if enable_thinking is defined and enable_thinking is false %}
{{- '<think>\\n\\n</think>\\n\\n' }}
{%- endif %}
{%- endif %}
"""


def alphabet() -> list[str]:
    """The printable character of each byte in byte-level vocabularies."""
    shown = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = {b: chr(0x100 + i) for i, b in enumerate(b for b in range(256) if b not in shown)}
    return [hidden.get(b) or chr(b) for b in range(256)]


def count_out(letters: list[str], n_tokens: int, n_merges: int) -> tuple[list[str], list[tuple[str, str]]]:
    """Tokens behind `letters` up to n_tokens in all, the first n_merges of them with a merge."""
    tokens, merges, at = list(letters), [], 0
    while len(tokens) < n_tokens:
        left = tokens[at]
        for right in letters[: n_tokens - len(tokens)]:
            tokens.append(left + right)
            if len(merges) < n_merges:
                merges.append((left, right))
        at += 1
    return tokens, merges


def added(content: str, number: int, special: bool) -> dict:
    return {
        "id": number,
        "content": content,
        "single_word": False,
        "lstrip": False,
        "rstrip": False,
        "normalized": False,
        "special": special,
    }


def byte_level(**changes) -> dict:
    return {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False} | changes


def tokenizer_file(
    tokens: list[dict], normalizer, pre_tokenizer, post_processor, decoder, vocab, merges, **model
) -> dict:
    bpe = {
        "type": "BPE",
        "dropout": None,
        "unk_token": None,
        "continuing_subword_prefix": "",
        "end_of_word_suffix": "",
        "fuse_unk": False,
        "byte_fallback": False,
        "ignore_merges": False,
    } | model
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": tokens,
        "normalizer": normalizer,
        "pre_tokenizer": pre_tokenizer,
        "post_processor": post_processor,
        "decoder": decoder,
        "model": bpe | {"vocab": vocab, "merges": merges},
    }


def split(pattern: str) -> dict:
    regex = {"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": False}
    return {"type": "Sequence", "pretokenizers": [regex, byte_level()]}


def decoder_of(tokens: list[dict]) -> dict:
    """added_tokens_decoder of tokenizer_config.json."""
    return {str(t["id"]): {k: v for k, v in t.items() if k != "id"} for t in tokens}


def bos_first(token: str, number: int) -> dict:
    first, text = {"SpecialToken": {"id": token, "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}
    second = [{"SpecialToken": {"id": token, "type_id": 1}}, {"Sequence": {"id": "B", "type_id": 1}}]
    return {
        "type": "TemplateProcessing",
        "single": [first, text],
        "pair": [first, text, *second],
        "special_tokens": {token: {"id": token, "ids": [number], "tokens": [token]}},
    }


# Kinds: tokenizer.json, tokenizer_config.json and what else there is -----------------------------------------------


def qwen(n_vocab: int, n_merges: int, pattern: str, names: list[str], alone: list[str]) -> tuple[dict, dict]:
    letters, merges = count_out(alphabet(), n_vocab, n_merges)
    is_special = [not n.startswith(("<tool", "</", "<think", "<|fim", "<|repo", "<|file")) for n in names + alone]
    tokens = [added(n, n_vocab + i, is_special[i]) for i, n in enumerate(names + alone)]
    file = tokenizer_file(
        tokens[: len(names)],
        {"type": "NFC"},
        split(pattern),
        byte_level(),
        byte_level(),
        {t: i for i, t in enumerate(letters)},
        [list(m) for m in merges],
    )
    config = {
        "add_bos_token": False,
        "add_prefix_space": False,
        "added_tokens_decoder": decoder_of(tokens),
        "additional_special_tokens": names[1:14],
        "bos_token": None,
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": False,
        "eos_token": "<|im_end|>",
        "errors": "replace",
        "model_max_length": 131072,
        "pad_token": "<|endoftext|>",
        "split_special_tokens": False,
        "tokenizer_class": "Qwen2Tokenizer",
        "unk_token": None,
    }
    return file, config


def qwen35() -> dict:
    file, config = qwen(248044, 247587, QWEN35, QWEN_ADDED, QWEN35_ALONE)
    config |= {
        "audio_bos_token": "<|audio_start|>",
        "audio_eos_token": "<|audio_end|>",
        "audio_token": "<|audio_pad|>",
        "image_token": "<|image_pad|>",
        "model_max_length": 262144,
        "pretokenize_regex": QWEN35,
        "video_token": "<|video_pad|>",
        "vision_bos_token": "<|vision_start|>",
        "vision_eos_token": "<|vision_end|>",
    }
    template = config.pop("chat_template")
    picture = {
        "image_mean": [0.5] * 3,
        "image_std": [0.5] * 3,
        "merge_size": 2,
        "patch_size": 16,
        "temporal_patch_size": 2,
        "processor_class": "Qwen3VLProcessor",
    }
    return {
        "tokenizer.json": file,
        "tokenizer_config.json": config,
        "chat_template.jinja": template,
        "generation_config.json": {
            "bos_token_id": 248044,
            "do_sample": True,
            "eos_token_id": [248046, 248044],
            "pad_token_id": 248044,
            "temperature": 1.0,
            "top_k": 20,
            "top_p": 0.95,
            "transformers_version": "4.57.0.dev0",
        },
        "preprocessor_config.json": picture
        | {
            "image_processor_type": "Qwen2VLImageProcessorFast",
            "size": {"longest_edge": 16777216, "shortest_edge": 65536},
        },
        "video_preprocessor_config.json": picture
        | {
            "size": {"longest_edge": 25165824, "shortest_edge": 4096},
            "video_processor_type": "Qwen3VLVideoProcessor",
        },
        "configuration.json": {"framework": "pytorch", "task": "image-text-to-text"},
    }


def qwen3(n_added: int = 26) -> dict:
    file, config = qwen(151643, 151387, QWEN2, QWEN_ADDED[:n_added], [])
    generation = {
        "bos_token_id": 151643,
        "do_sample": True,
        "eos_token_id": [151645, 151643],
        "pad_token_id": 151643,
        "temperature": 0.7,
        "top_k": 20,
        "top_p": 0.8,
        "transformers_version": "4.51.0",
    }
    return {"tokenizer.json": file, "tokenizer_config.json": config, "generation_config.json": generation}


def qwen25() -> dict:
    files = qwen3(22)
    files["generation_config.json"]["repetition_penalty"] = 1.05
    return files


def llama3() -> dict:
    names = [
        "<|begin_of_text|>",
        "<|end_of_text|>",
        "<|reserved_special_token_0|>",
        "<|reserved_special_token_1|>",
        "<|finetune_right_pad_id|>",
        "<|reserved_special_token_2|>",
        "<|start_header_id|>",
        "<|end_header_id|>",
        "<|eom_id|>",
        "<|eot_id|>",
        "<|python_tag|>",
    ]
    names += [f"<|reserved_special_token_{i}|>" for i in range(3, 248)]
    tokens = [added(n, 128000 + i, True) for i, n in enumerate(names)]
    letters, merges = count_out(alphabet(), 128000, 127744)
    post = {
        "type": "Sequence",
        "processors": [
            byte_level(add_prefix_space=True, trim_offsets=False, use_regex=True),
            bos_first("<|begin_of_text|>", 128000),
        ],
    }
    file = tokenizer_file(
        tokens,
        None,
        split(LLAMA3),
        post,
        byte_level(add_prefix_space=True, trim_offsets=True, use_regex=True),
        {t: i for i, t in enumerate(letters)},
        [" ".join(m) for m in merges],
        ignore_merges=True,
        continuing_subword_prefix=None,
        end_of_word_suffix=None,
    )
    config = {
        "added_tokens_decoder": decoder_of(tokens),
        "bos_token": "<|begin_of_text|>",
        "chat_template": TEMPLATE,
        "clean_up_tokenization_spaces": True,
        "eos_token": "<|eot_id|>",
        "model_input_names": ["input_ids", "attention_mask"],
        "model_max_length": 131072,
        "tokenizer_class": "PreTrainedTokenizerFast",
    }
    params = {
        "dim": 4096,
        "ffn_dim_multiplier": 1.3,
        "multiple_of": 1024,
        "n_heads": 32,
        "n_kv_heads": 8,
        "n_layers": 32,
        "norm_eps": 1e-05,
        "rope_theta": 500000.0,
        "use_scaled_rope": True,
        "vocab_size": 128256,
    }
    return {
        "tokenizer.json": file,
        "tokenizer_config.json": config,
        "special_tokens_map.json": {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"},
        "generation_config.json": {
            "bos_token_id": 128000,
            "do_sample": True,
            "eos_token_id": [128001, 128008, 128009],
            "temperature": 0.6,
            "top_p": 0.9,
            "transformers_version": "4.42.3",
        },
        "original/params.json": params,
        "original/tokenizer.model": "",
        "USE_POLICY.md": "",
        "original/consolidated.00.pth": "",
    }


def mistral3() -> dict:
    names = [
        "<unk>",
        "<s>",
        "</s>",
        "[INST]",
        "[/INST]",
        "[TOOL_CALLS]",
        "[AVAILABLE_TOOLS]",
        "[/AVAILABLE_TOOLS]",
        "[TOOL_RESULTS]",
        "[/TOOL_RESULTS]",
    ]
    names += [f"[control_{i}]" for i in range(8, 769)]
    letters = [chr(c) for c in [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x180)]] + ["\u2581"]
    given = names + [f"<0x{b:02X}>" for b in range(256)]
    pieces, merges = count_out(letters, 32768 - len(given), 1 << 20)
    vocab = {t: i for i, t in enumerate(given + pieces[len(letters) :] + letters)}
    tokens = [added(n, i, True) for i, n in enumerate(names)]
    space = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "first", "split": False}
    decoder = {
        "type": "Sequence",
        "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
            {"type": "ByteFallback"},
            {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0},
        ],
    }
    file = tokenizer_file(
        tokens,
        None,
        space,
        bos_first("<s>", 1),
        decoder,
        vocab,
        [" ".join(m) for m in merges],
        unk_token="<unk>",
        fuse_unk=True,
        byte_fallback=True,
        continuing_subword_prefix=None,
        end_of_word_suffix=None,
    )
    config = {
        "add_bos_token": True,
        "add_eos_token": False,
        "add_prefix_space": True,
        "added_tokens_decoder": decoder_of(tokens),
        "additional_special_tokens": [],
        "bos_token": "<s>",
        "clean_up_tokenization_spaces": False,
        "eos_token": "</s>",
        "legacy": False,
        "model_max_length": 1000000000000000019884624838656,
        "pad_token": None,
        "sp_model_kwargs": {},
        "spaces_between_special_tokens": False,
        "tokenizer_class": "LlamaTokenizer",
        "unk_token": "<unk>",
        "use_default_system_prompt": False,
    }
    params = {
        "dim": 4096,
        "head_dim": 128,
        "hidden_dim": 14336,
        "n_heads": 32,
        "n_kv_heads": 8,
        "n_layers": 32,
        "norm_eps": 1e-05,
        "rope_theta": 1000000.0,
        "vocab_size": 32768,
    }
    return {
        "tokenizer.json": file,
        "tokenizer_config.json": config,
        "params.json": params,
        "tokenizer.model": "",
        "tokenizer.model.v3": "",
        "special_tokens_map.json": {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"},
        "generation_config.json": {
            "_from_model_config": True,
            "bos_token_id": 1,
            "eos_token_id": 2,
            "transformers_version": "4.42.0.dev0",
        },
    }


KINDS = {"qwen3.6": qwen35, "qwen3": qwen3, "qwen2.5": qwen25, "llama3": llama3, "mistral3": mistral3}


@functools.cache
def files_of(kind: str) -> dict[str, str]:
    """Every file of a kind as text, made once a process."""
    files = KINDS[kind]()
    model = files["tokenizer.json"]["model"]
    if kind.startswith("qwen"):
        files["vocab.json"] = model["vocab"]
        files["merges.txt"] = "#version: 0.2\n" + "\n".join(" ".join(m) for m in model["merges"]) + "\n"
    files |= {
        "README.md": "---\nlicense: other\n---\n",
        "LICENSE": "",
        ".gitattributes": "*.safetensors filter=lfs\n",
    }
    return {name: v if isinstance(v, str) else json.dumps(v, ensure_ascii=False) + "\n" for name, v in files.items()}


def write(row: dict, folder: pathlib.Path) -> None:
    """Puts them beside the weights."""
    for name, text in files_of(row["text"]).items():
        path = folder / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
