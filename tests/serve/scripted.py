"""A checkpoint that writes prescribed answers: each token is followed by one that its weights name.

Attention and MLP add nothing, so that the logits are the product of the last token's embedding with the head's rows; of
random signs, each row of the head is the embedding of the token before it. An answer is cut into tokens that occur in
no other place, which are added to a tokenizer of bytes. It begins after the last token of the prompt, a control token
whose first letter is in none of them, so that no token reaches into it."""

from __future__ import annotations

import json
import pathlib
import random
import struct

import numpy as np

HIDDEN, VOCAB, INNER = 128, 2048, 352
END = "<|end|>"


def byte_letters():
    """The letters that byte-level BPE writes bytes with."""
    kept = [*range(ord("!"), ord("~") + 1), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    extra = [b for b in range(256) if b not in kept]
    return {chr(b): b for b in kept} | {chr(256 + i): b for i, b in enumerate(extra)}


def cut(text, markers, used, source):
    """The text as tokens that are not used yet: its control tokens, and random pieces of the rest."""
    tokens = []
    while text:
        whole = next((m for m in markers if text.startswith(m) and m not in used), None)
        size = len(whole) if whole else source.randrange(1, 6)
        while not whole and size < len(text) and text[:size] in used:
            size += 1
        while text[:size] in used:  # the end is no token of its own: it belongs to the one before
            used.remove(tokens[-1])
            text = tokens.pop() + text
            size = len(text)
        used.add(text[:size])
        tokens.append(text[:size])
        text = text[size:]
    return tokens


def write(folder: pathlib.Path, scripts: dict[str, str], template: str, markers=(), in_vocabulary=False):
    """Writes the checkpoint. scripts: {what an answer comes after: the answer}; the former are control tokens, or a line
    end, which the template is to write last. markers: control tokens of answers. Special tokens of the template are not known.
    in_vocabulary: tokens of answers are none that were added, so that masks may allow them."""
    folder.mkdir(parents=True)
    source = random.Random(str(scripts))
    control = [END, *[b for b in scripts if b != "\n"], *[m for m in markers if m not in scripts]]
    used = {END, *scripts, *byte_letters(), *(map(chr, range(128)) if in_vocabulary else ())}
    chains = {begin: cut(text, markers, used, source) for begin, text in scripts.items()}
    said = [t for chain in chains.values() for t in chain if t not in control]
    added = [*said, *control] if in_vocabulary else [*control, *said]
    ids = {token: 256 + i for i, token in enumerate(added)}
    assert len(ids) == len(added) and 256 + len(added) <= VOCAB
    follows = {"\n": ord("\n")} | ids
    letters = {b: c for c, b in byte_letters().items()}
    spoken = {"".join(letters[b] for b in t.encode()): i for t, i in ids.items() if in_vocabulary and t not in control}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": i, "content": t, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
            | {"special": t in control}
            for t, i in ids.items()
            if t in control or not in_vocabulary
        ],
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True},
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {"type": "BPE", "vocab": dict(byte_letters()) | spoken, "merges": []},
    }
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))
    named = {"bos_token": END, "eos_token": END, "pad_token": END, "unk_token": END}
    settings = named | {"tokenizer_class": "PreTrainedTokenizerFast", "add_bos_token": False, "chat_template": template}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_size": HIDDEN,
        "intermediate_size": INNER,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 64,
        "hidden_act": "silu",
        "attention_bias": False,
        "mlp_bias": False,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-05,
        "rope_theta": 10000.0,
        "tie_word_embeddings": False,
        "torch_dtype": "bfloat16",
        "vocab_size": VOCAB,
        "bos_token_id": ids[END],
        "eos_token_id": ids[END],
        "pad_token_id": ids[END],
    }
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps({"eos_token_id": ids[END], "do_sample": False}))
    signs = np.random.default_rng(7).choice([-1.0, 1.0], size=(VOCAB, HIDDEN)).astype(np.float32)
    head = np.zeros((VOCAB, HIDDEN), np.float32)
    for begin, chain in chains.items():
        for before, after in zip([begin, *chain], [*chain, END]):
            head[ids[after]] += signs[follows[before]]
    layer = "model.layers.0."
    zeros = {
        "self_attn.q_proj": (128, HIDDEN),
        "self_attn.k_proj": (64, HIDDEN),
        "self_attn.v_proj": (64, HIDDEN),
        "self_attn.o_proj": (HIDDEN, 128),
        "mlp.gate_proj": (INNER, HIDDEN),
        "mlp.up_proj": (INNER, HIDDEN),
        "mlp.down_proj": (HIDDEN, INNER),
    }
    tensors = {f"{layer}{name}.weight": np.zeros(shape, np.float32) for name, shape in zeros.items()}
    for name in (f"{layer}input_layernorm", f"{layer}post_attention_layernorm", "model.norm"):
        tensors[name + ".weight"] = np.ones(HIDDEN, np.float32)
    save(folder / "model.safetensors", tensors | {"model.embed_tokens.weight": signs, "lm_head.weight": head})
    return ids


def save(path, tensors):
    """A file of bf16 tensors; their values are small whole numbers, which bf16 has."""
    header, data = {}, b""
    for name, values in tensors.items():
        raw = (values.view(np.uint32) >> 16).astype(np.uint16).tobytes()
        header[name] = {"dtype": "BF16", "shape": list(values.shape), "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def choosing(template: str, names: dict[str, str]) -> str:
    """The template, with what an answer comes after at its end: {text of the last user's message: control token}."""
    find = "{%- set last = namespace(text='') %}{%- for m in messages %}{%- if m.role == 'user' %}"
    find += "{%- set last.text = m.content %}{%- endif %}{%- endfor %}"
    ends = "".join(
        "{%- if last.text == " + json.dumps(k) + " %}{{- " + json.dumps(v) + " }}{%- endif %}" for k, v in names.items()
    )
    return find + template + "{%- if add_generation_prompt %}" + ends + "{%- endif %}"
