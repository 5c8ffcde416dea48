"""Every checkpoint of tests/families on the GPU.

    python tests/gpu/families.py BUILD [NAME...]

A row a checkpoint: the lowest cosine of a layer or of the logits with the reference device's (atlas verify; of experts
the median of rows: one that noise sends to another expert is another row from there on), how many greedy tokens are
those that `transformers` makes in float32, the same after steps of few tokens and with drafts by n-grams, and, of a plan with one bucket of each kind, how many texts have other bits beside others than alone
(isolate_run: prompts in pieces, cancelled sequences, scores). A model may lose 0.01 of a cosine: these are small and
loud. Exit 1: a token or a bit differs, or more is lost.
"""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor

from safetensors.torch import load_file

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
LOST = 0.01
WAYS = {
    "steps of 8": "[phases]\nprefill = [8]\n",
    "n-grams": '[speculate]\ndrafter = "ngram"\nrows = 3\n',
}
ALONE = "[phases]\nprefill = [128]\ndecode = [8]\n"
CONTEXT = "[runtime]\nslots = 8\nmax_context = 256\n"  # where the folder has no MODEL.toml


def run(*command, codes=(0,)):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise RuntimeError(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr[-1500:]}")
    return done.stdout


def compiled(build, name, options, plan, as_long=True):
    """as_long: in the context that the folder asks for, which its golden may need."""
    folder, toml = REPO / "tests" / "families" / name, plan.with_suffix(".toml")
    own = folder / "MODEL.toml"
    toml.write_text((own.read_text() if own.exists() and as_long else CONTEXT) + options)
    run(build / "atlasc", folder, "--model", toml, "-o", plan, "-q", "--cache-dir",
        build / "kernel-cache")  # fmt: skip
    return plan


def tokens(build, plan, ids, n):
    told = run(
        build / "atlas", "run", plan, "--tokens", ids, "-n", n, "--temperature", "0", "--device", "cuda", "--json"
    )
    return json.loads(told)["results"][0]["tokens"]


def equal(got, want):
    return f"{sum(a == b for a, b in zip(got, want))} of {len(want)}"


def row(build, name, work):
    folder = REPO / "tests" / "families" / name
    golden = load_file(folder / "golden.safetensors")
    ids, want = ",".join(map(str, golden["prompt"].tolist())), golden["tokens"].tolist()
    plan = compiled(build, name, "", work / f"{name}.bin")
    told = json.loads(
        run(build / "atlas", "verify", plan, "--tokens", ids, "--device", "cuda", "--json", "-q", codes=(0, 1))
    )
    has_experts = re.search(r'"\w*(num|n_routed)\w*_experts"', (folder / "config.json").read_text())
    worst = min(output["median" if has_experts else "cosine"] for output in told["outputs"])
    texts = {"plain": tokens(build, plan, ids, len(want))}
    for way, options in WAYS.items():
        texts[way] = tokens(build, compiled(build, name, options, plan), ids, len(want))
    compiled(build, name, ALONE, plan, as_long=False)
    told = json.loads(run(build / "tests" / "isolate_run", plan, "cuda", "off", 3, 32, "0-9", codes=(0, 1)))
    good = worst > 1 - LOST and all(text == want for text in texts.values()) and told["differed"] == 0
    return good, (
        f"{name:16} {worst:.9f}  {'  '.join(f'{equal(text, want):>8}' for text in texts.values())}  "
        f"{told['differed']} of {told['compared']} texts, {told['steps']} steps" + ("" if good else "  <--")
    )


def try_row(build, name, work):
    try:
        return row(build, name, work)
    except (RuntimeError, KeyError, ValueError) as error:
        return False, f"{name:16} {error!r}"


def main():
    build, names = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    names = names or sorted(p.parent.name for p in REPO.glob("tests/families/*/golden.safetensors"))
    print(
        f"{'checkpoint':16} {'cosine':11}  greedy tokens as transformers: plain, {', '.join(WAYS)}; other bits beside others"
    )
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(min(8, os.cpu_count())) as pool:
        rows = list(pool.map(lambda name: try_row(build, name, pathlib.Path(work)), names))
    for _, text in rows:
        print(text)
    return 0 if all(good for good, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
