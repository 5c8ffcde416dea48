#!/usr/bin/env python3
"""Make the small checkpoints of tests/fixtures and their goldens.

    python scripts/make_fixtures.py checkpoints [NAME...]   write the folders of [fixture] in recipes.toml (numpy)
    python scripts/make_fixtures.py seeds [NAME...]         look for seeds whose greedy text is clear of ties (numpy)
    python scripts/make_fixtures.py goldens [FOLDER...]     write golden.safetensors into each (torch, transformers)

golden.safetensors holds, for prompts p0 (13 tokens) and p1 (70 tokens, more than one page of 64), and where layers carry
a state along also p2 (130 tokens):

    pN.input_ids    I64 [T]            the prompt
    pN.hidden.0     F32 [R, hidden]    output of the embedding
    pN.hidden.L+1   F32 [R, hidden]    output of layer L; the last one is before the final norm
    pN.logits       F32 [R, vocab]
    p0.logits_bf16  BF16 [R, vocab]    the same in a bfloat16 run
    pN.greedy       I64 [32]           greedy continuation of the float32 run
    pN.margin       F32 [32]           gap of the two largest logits at each of these steps

R rows are the last R positions of the prompt: all 13 of p0, the last 8 of p1; of p2, which has no greedy text, those of
EDGES: what a prompt that ends there gives, in whatever chunks it is read. Weights are upcast to float32;
everything runs on the CPU with eager attention, so no reduced-precision matrix mode can interfere. A folder with
heldout.txt also gets `perplexity` F32 [1] and `nll` F32 [N-1], the loss of every token of that text in windows of
max_position_embeddings, each token predicted once, from the start of its window.

Of a quantised checkpoint this is what its plain twin gives, which dequantise.py writes with the packages that write such
files (compressed-tensors, nvidia-modelopt, auto-round).
"""

import argparse
import importlib.metadata
import json
import os
import shutil
import sys
import tempfile

import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROOT = os.path.dirname(HERE)
sys.path.insert(0, os.path.join(ROOT, "tests", "mkckpt"))

import forward  # noqa: E402
import mkckpt  # noqa: E402
from container import Tensor, encode, write_safetensors  # noqa: E402

FIXTURES = os.path.join(ROOT, "tests", "fixtures")
PROMPT_LENGTHS = (13, 70, 130)
ROWS_KEPT = (13, 8)
GREEDY = 32
EDGES = (0, 62, 63, 64, 126, 128)
MODEL_TOML = """\
# A small plan, quickly compiled: few slots and buckets, a short context. The rest is the family's.
[model]
family = "{family}"

[runtime]
slots = 4
max_context = {context}

[phases]
prefill = [64]
decode = [1, 4]
"""


def fixture_recipes():
    return {name: knob for name, knob in mkckpt.recipes().items() if knob["topic"] == "fixture"}


def write_model_toml(name, family, context):
    with open(os.path.join(FIXTURES, name, "MODEL.toml"), "w", encoding="utf-8") as f:
        f.write(MODEL_TOML.format(family=family, context=context))


def text_ids(folder):
    """(first, end) of the ids that are ordinary text: not special, not padding of the vocabulary."""
    with open(os.path.join(folder, "tokenizer.json"), encoding="utf-8") as f:
        tokenizer = json.load(f)
    special = {t["id"] for t in tokenizer["added_tokens"]}
    ids = [i for i in tokenizer["model"]["vocab"].values() if i not in special]
    return min(ids), max(ids) + 1


def prompts(folder):
    """The token ids of p0 and p1: for random models drawn from the text ids, for a trained one a piece of its text."""
    heldout = os.path.join(folder, "heldout.txt")
    if os.path.exists(heldout):
        ids = encode_file(folder, heldout)
        return [ids[: PROMPT_LENGTHS[0]], ids[1000 : 1000 + PROMPT_LENGTHS[1]], ids[: PROMPT_LENGTHS[2]]]
    first, end = text_ids(folder)
    out = []
    for number, length in enumerate(PROMPT_LENGTHS):
        draws = mkckpt.noise(0, f"{os.path.basename(folder)}/p{number}", length)
        out.append([int(first + (abs(x) * 1000003) % (end - first)) for x in draws])
    return out


# -- seeds ------------------------------------------------------------------------------------------------------


def clear_of_ties(folder, needs=(0.12, 0.06), distinct=8):
    """(every margin is above its need and no text is one loop, report) for the checkpoint in a folder."""
    c, w = forward.load_config(folder), forward.load_weights(folder)
    first, end = text_ids(folder)
    report = []
    for ids, need in zip(prompts(folder), needs):
        tokens, margin = forward.greedy(c, w, ids, GREEDY, need)
        report.append((margin, len(set(tokens))))
        if margin < need or len(set(tokens)) < distinct or not all(first <= t < end for t in tokens):
            return False, report
    return True, report


def search_seeds(names):
    for name in names:
        for seed in range(1, 2000):
            with tempfile.TemporaryDirectory() as scratch:
                folder = os.path.join(scratch, name)
                mkckpt.build({**fixture_recipes()[name], "seed": seed}).write(folder)
                found, report = clear_of_ties(folder)
            if found:
                print(f"{name}: seed {seed}, (margin, distinct tokens) {report}", flush=True)
                break
        else:
            print(f"{name}: no seed", flush=True)


# -- goldens ----------------------------------------------------------------------------------------------------


def loadable(folder, scratch):
    """A folder that AutoModelForCausalLM reads: codes are dequantised, nested configs flattened, into a copy."""
    import dequantise

    if dequantise.is_quantised(folder):
        copy = os.path.join(scratch, os.path.basename(folder))
        dequantise.write_plain(folder, copy)
        return copy
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = json.load(f)
    if "text_config" not in config:
        return folder
    copy = os.path.join(scratch, os.path.basename(folder))
    shutil.copytree(folder, copy)
    text = config.pop("text_config")
    with open(os.path.join(copy, "config.json"), "w", encoding="utf-8") as f:
        json.dump({**config, **text}, f)
    return copy


def load_model(folder, dtype):
    from transformers import AutoModelForCausalLM

    with tempfile.TemporaryDirectory() as scratch:
        model, info = AutoModelForCausalLM.from_pretrained(
            loadable(folder, scratch), dtype=dtype, attn_implementation="eager", output_loading_info=True
        )
    tied = {"lm_head.weight"} if model.config.tie_word_embeddings else set()
    for key in ("missing_keys", "unexpected_keys", "mismatched_keys"):
        if set(info[key]) - tied:
            raise ValueError(f"{folder}: {key} {sorted(info[key])[:4]}")
    wrong = {p.dtype for p in model.parameters()} - {dtype}
    if wrong:
        raise ValueError(f"{folder}: parameters in {wrong}")
    return model.eval()


def run(model, ids):
    """(hidden states as described above, logits), numpy float32, every position."""
    import torch

    states = []

    def keep(_, __, output):
        states.append(output[0] if isinstance(output, tuple) else output)

    hooks = [model.model.embed_tokens.register_forward_hook(keep)]
    hooks += [layer.register_forward_hook(keep) for layer in model.model.layers]
    with torch.no_grad():
        logits = model(torch.tensor([ids], device=model.device), use_cache=False).logits[0]
    for hook in hooks:
        hook.remove()
    width = model.config.hidden_size
    return [s.reshape(-1, width).float().cpu().numpy() for s in states], logits.float().cpu().numpy()


def greedy(model, ids, count):
    """(tokens, margins) by full recomputation: no cache, so nothing but the forward pass is in it."""
    ids, margins = list(ids), []
    for _ in range(count):
        last = run(model, ids)[1][-1]
        second, first = np.partition(last, -2)[-2:]
        margins.append(first - second)
        ids.append(int(np.argmax(last)))
    return ids[-count:], margins


def token_losses(model, ids):
    """Negative log likelihood of ids[1:] in nats, in windows that do not overlap but for their first token."""
    import torch

    window, out = model.config.max_position_embeddings, []
    for at in range(0, len(ids) - 1, window - 1):
        piece = ids[at : at + window]
        logits = torch.from_numpy(run(model, piece)[1][:-1])
        out.append(torch.nn.functional.cross_entropy(logits, torch.tensor(piece[1:]), reduction="none").numpy())
    return np.concatenate(out)


def encode_file(folder, path):
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(os.path.join(folder, "tokenizer.json"))
    with open(path, encoding="utf-8") as f:
        return tokenizer.encode(f.read()).ids


def dequantised_by(folder):
    """Versions of the packages that told what the codes are."""
    import dequantise

    if not dequantise.is_quantised(folder):
        return {}
    return {name: importlib.metadata.version(name) for name in ("compressed-tensors", "nvidia-modelopt", "auto-round")}


def make_golden(folder):
    import torch
    import transformers

    tensors = []

    def add(name, dtype, value):
        value = np.asarray(value)
        tensors.append(Tensor(name, dtype, value.shape, encode(value, dtype)))

    exact, rounded = load_model(folder, torch.float32), load_model(folder, torch.bfloat16)
    if hasattr(exact.config, "linear_num_key_heads"):
        ids = prompts(folder)[2]
        states, logits = run(exact, ids)
        add("p2.input_ids", "I64", ids)
        for i, state in enumerate(states):
            add(f"p2.hidden.{i}", "F32", state[list(EDGES)])
        add("p2.logits", "F32", logits[list(EDGES)])
    for number, ids in enumerate(prompts(folder)[:2]):
        rows = ROWS_KEPT[number]
        states, logits = run(exact, ids)
        add(f"p{number}.input_ids", "I64", ids)
        for i, state in enumerate(states):
            add(f"p{number}.hidden.{i}", "F32", state[-rows:])
        add(f"p{number}.logits", "F32", logits[-rows:])
        if number == 0:
            add("p0.logits_bf16", "BF16", run(rounded, ids)[1])
        tokens, margins = greedy(exact, ids, GREEDY)
        add(f"p{number}.greedy", "I64", tokens)
        add(f"p{number}.margin", "F32", margins)
        name = f"{os.path.basename(folder)} p{number}"
        print(f"{name}: least margin {min(margins):.3f}, {len(set(tokens))} distinct", flush=True)
    heldout = os.path.join(folder, "heldout.txt")
    if os.path.exists(heldout):
        losses = token_losses(exact, encode_file(folder, heldout))
        add("nll", "F32", losses)
        add("perplexity", "F32", [np.exp(losses.astype(np.float64).mean())])
        print(f"{os.path.basename(folder)}: perplexity {np.exp(losses.mean()):.3f}", flush=True)
    metadata = {
        "torch": torch.__version__,
        "transformers": transformers.__version__,
        **dequantised_by(folder),
        "command": f"python scripts/make_fixtures.py goldens tests/fixtures/{os.path.basename(folder)}",
        "attention": "eager",
        "device": "cpu",
    }
    write_safetensors(os.path.join(folder, "golden.safetensors"), tensors, metadata)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("checkpoints", "seeds", "goldens"))
    parser.add_argument("names", nargs="*")
    args = parser.parse_args()
    if args.what == "goldens":
        import torch

        torch.set_num_threads(1)
        folders = args.names or sorted(
            os.path.join(FIXTURES, n) for n in os.listdir(FIXTURES)
            if os.path.exists(os.path.join(FIXTURES, n, "config.json"))
        )  # fmt: skip
        failed = 0
        for folder in folders:
            try:
                make_golden(os.path.abspath(folder))
            except Exception as e:  # one folder that fails must not cost the others
                print(f"{folder}: {type(e).__name__}: {e}", file=sys.stderr, flush=True)
                failed += 1
        sys.exit(1 if failed else 0)
    names = args.names or list(fixture_recipes())
    if args.what == "seeds":
        search_seeds(names)
        return
    for name in names:
        mkckpt.make(name, os.path.join(FIXTURES, name))
        write_model_toml(name, fixture_recipes()[name]["family"], 256)
    if not args.names:
        write_model_toml("llama-trained", "llama", 512)
        write_model_toml("qwen3_5_moe-trained", "qwen3_5_moe", 512)


if __name__ == "__main__":
    main()
