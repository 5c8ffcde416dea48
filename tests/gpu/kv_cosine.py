"""What a quantised KV cache costs: cosines of logits with those of a cache in bf16, at the end of a long context.

    python tests/gpu/kv_cosine.py --build DIR --model CHECKPOINT --text FILE [--context 8192] [--device cuda]

Each plan reads the same tokens of the text; the logits of the last 256 positions are compared. Scales are 1 where the
table says none, else those of `atlasc calibrate` on the first kilobytes of the text. Exit code 1 when a mean cosine is
below its bar: fp8 0.999, nvfp4 0.99.
"""

from __future__ import annotations

import argparse
import pathlib
import subprocess
import sys
import tempfile

import numpy as np
from safetensors import safe_open

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
        return n, part[max(0, n - ROWS):].astype(np.float64)


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    p.add_argument("--model", type=pathlib.Path, required=True)
    p.add_argument("--text", type=pathlib.Path, required=True)
    p.add_argument("--context", type=int, default=8192)
    p.add_argument("--device", default="cuda")
    a = p.parse_args()
    failed = False
    with tempfile.TemporaryDirectory() as folder:
        work = pathlib.Path(folder)
        toml = work / "MODEL.toml"
        target = ["--target", "none"] if a.device == "cpu" else []

        def logits(kv, scales):
            toml.write_text(f'[runtime]\nslots = 1\nmax_context = {a.context}\n[kv]\ndtype = "{kv}"\nscales = "{scales}"\n')
            run(a.build / "atlasc", a.model, "--model", toml, "-o", work / "p.bin", "--weights", "ref", "-q", *target)
            run(a.build / "atlas", "dump", work / "p.bin", "--weights", a.model, "--tokens", ids, "-o", work / "d", "-q",
                "--device", a.device)
            return last_logits(work / "d")

        # tokens: those that a short plan on the reference device makes of the text, repeated to fill the context
        toml.write_text("[runtime]\nslots = 1\nmax_context = 512\n[phases]\nprefill = [64]\ndecode = [1]\n")
        run(a.build / "atlasc", a.model, "--model", toml, "-o", work / "p.bin", "--weights", "ref", "-q", "--target", "none")
        start = a.text.read_bytes()[:1200].decode(errors="ignore")
        run(a.build / "atlas", "dump", work / "p.bin", "--weights", a.model, "-p", start, "-o", work / "d", "-q", "--device",
            "cpu")
        with safe_open(work / "d", "numpy") as f:
            part = f.get_tensor("tokens").tolist()
        ids = ",".join(str(part[i % len(part)]) for i in range(a.context))
        (work / "t.txt").write_text(start)
        run(a.build / "atlasc", "calibrate", a.model, "--model", toml, "--text", work / "t.txt", "-o", work / "s", "-q")
        n, want = logits("bf16", "")
        print(f"{n} tokens, last {len(want)} positions against bf16\n{'kv':6} {'scales':8} {'mean cosine':>12} {'least':>9}"
              f" {'same token':>10}")
        for kv, bar in BARS.items():
            for name, scales in (("none", ""), ("measured", work / "s")):
                _, got = logits(kv, scales)
                cosine = np.sum(got * want, -1) / np.sqrt(np.sum(got * got, -1) * np.sum(want * want, -1))
                same = np.mean(got.argmax(-1) == want.argmax(-1))
                print(f"{kv:6} {name:8} {cosine.mean():12.6f} {cosine.min():9.6f} {same:10.3f}")
                failed |= cosine.mean() < bar
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
