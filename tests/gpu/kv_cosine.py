"""What a quantised KV cache costs: cosines of logits with those of a cache in bf16, at the end of a long context.

    python tests/gpu/kv_cosine.py --build DIR --model CHECKPOINT --text FILE [--context 8192] [--device cuda]
    python tests/gpu/kv_cosine.py --build DIR --model CONFIG.json [--context 8192] [--device cuda]

Each plan reads the same tokens: those of the text, again and again if it is short, or with random weights of a shape
random ones. The logits of the last 256 positions are compared. Scales are 1, or of the "measured" cache those of
`atlasc calibrate` on the first kilobytes of the text; "bf16 ends" keeps the first and the last two layers in bf16;
"rotated" rotates queries and keys, which is what plans do unless told otherwise. Of a checkpoint, `transformers` in float32 says what the format itself costs, with keys
and values rounded by torch (scripts/kv_goldens.py), scales of 1, rotated or not. Exit code 1 when a mean cosine is below
its bar, fp8 0.999, nvfp4 0.99, and misses 1 by more than 1.25 times what torch's rounding misses.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open
from tokenizers import Tokenizer

sys.path.insert(0, str(pathlib.Path(__file__).parents[2] / "scripts"))

BARS = {"fp8": 0.999, "nvfp4": 0.99}
ROWS = 256


def run(*words):
    done = subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, words))}\n{done.stdout}{done.stderr}")
    return done.stdout


def last_logits(path):
    with safe_open(path, "numpy") as f:
        part = f.get_slice("logits")
        n = part.get_shape()[0]
        return n, part[max(0, n - ROWS) :].astype(np.float64)


def cosines(got, want):
    return np.sum(got * want, -1) / np.sqrt(np.sum(got * got, -1) * np.sum(want * want, -1))


def torch_cosines(folder, ids):
    """By KV dtype and whether queries and keys are rotated, cosines of the last rows with those that nobody rounded."""
    import torch
    from kv_goldens import hadamard, kept
    from transformers import AutoModelForCausalLM
    from transformers.models.llama import modeling_llama
    from transformers.utils import logging

    logging.disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager").cuda().eval()
    plain, kind, rotate = modeling_llama.eager_attention_forward, "plain", False
    h = hadamard(model.model.layers[0].self_attn.head_dim).cuda()
    scale = torch.ones(model.config.num_key_value_heads, device="cuda")

    def attention(module, query, key, value, *args, **more):
        if rotate:
            query, key = query @ h, key @ h
        return plain(module, query, kept(key, scale, kind), kept(value, scale, kind), *args, **more)

    modeling_llama.eager_attention_forward = attention
    logits = {}
    for kind, rotate in [("plain", False)] + [(kind, r) for kind in ("e4m3", "e2m1") for r in (False, True)]:
        with torch.no_grad():
            last = model(torch.tensor([ids], device="cuda"), logits_to_keep=ROWS).logits[0]
        logits[kind, rotate] = last.double().cpu().numpy()
    modeling_llama.eager_attention_forward = plain
    return {
        (kv, r): cosines(logits[kind, r], logits["plain", False])
        for kv, kind in (("fp8", "e4m3"), ("nvfp4", "e2m1"))
        for r in (False, True)
    }


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    p.add_argument("--model", type=pathlib.Path, required=True)
    p.add_argument("--text", type=pathlib.Path)
    p.add_argument("--context", type=int, default=8192)
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    is_random = a.model.suffix == ".json"
    if not is_random and not a.text:
        p.error("a checkpoint needs --text")
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        toml = work / "MODEL.toml"
        target = ["--target", "none"] if a.device == "cpu" else []
        weights = ["--random-weights"] if is_random else ["--weights", "ref"]
        where = [] if is_random else ["--weights", a.model]

        def logits(kv, lines):
            toml.write_text(f'[runtime]\nslots = 1\nmax_context = {a.context}\n[kv]\ndtype = "{kv}"\n{lines}')
            run(
                a.build / "atlasc",
                a.model,
                "--model",
                toml,
                "-o",
                work / "p.bin",
                *weights,
                "-q",
                *target,
                "--cache-dir",
                a.build / "kernel-cache",
            )
            run(
                a.build / "atlas",
                "dump",
                work / "p.bin",
                *where,
                "--tokens",
                ",".join(map(str, ids)),
                "-o",
                work / "d",
                "-q",
                "--device",
                a.device,
            )
            return last_logits(work / "d")

        caches = {
            "rotated": "",
            "plain": "rotate = false\n",
            "bf16 ends": "rotate = false\nbf16_first = 2\nbf16_last = 2\n",
        }
        if is_random:
            vocab = json.loads(a.model.read_text(encoding="utf-8"))["vocab_size"]
            part = np.random.default_rng(1).integers(0, vocab, a.context).tolist()
        else:
            text = a.text.read_text(encoding="utf-8")
            part = Tokenizer.from_file(str(a.model / "tokenizer.json")).encode(text).ids
            (work / "t.txt").write_text(text[:4000])
            toml.write_text("[runtime]\nslots = 1\nmax_context = 2048\n")
            run(
                a.build / "atlasc",
                "calibrate",
                a.model,
                "--model",
                toml,
                "--text",
                work / "t.txt",
                "-o",
                work / "s",
                "-q",
            )
            caches["measured"] = f'rotate = false\nscales = "{work / "s"}"\n'
            caches["rotated m."] = f'scales = "{work / "s"}"\n'
        ids = [part[i % len(part)] for i in range(a.context)]
        n, want = logits("bf16", "")
        print(
            f"{n} tokens, last {len(want)} positions against bf16\n{'kv':6} {'cache':10} {'mean cosine':>12} {'least':>9}"
            f" {'same token':>10}"
        )
        format_costs = {} if is_random else torch_cosines(a.model, ids)
        for kv, bar in BARS.items():
            lost = {False: 1 - bar, True: 1 - bar}
            for rotate in lost if format_costs else ():
                cosine = format_costs[kv, rotate]
                print(f"{kv:6} {'torch rot.' if rotate else 'torch':10} {cosine.mean():12.6f} {cosine.min():9.6f}")
                lost[rotate] = max(lost[rotate], 1.25 * (1 - cosine.mean()))
            for name, lines in caches.items():
                _, got = logits(kv, lines)
                cosine = cosines(got, want)
                same = np.mean(got.argmax(-1) == want.argmax(-1))
                print(f"{kv:6} {name:10} {cosine.mean():12.6f} {cosine.min():9.6f} {same:10.3f}", flush=True)
                failed |= 1 - cosine.mean() > lost[name.startswith("rotated")]
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
