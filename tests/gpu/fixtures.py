"""Every fixture on the GPU: layers against the reference device, greedy tokens against `transformers`.

    python tests/gpu/fixtures.py BUILD [--alone] [--many] [NAME...]

A row a fixture: what the lowest cosine over layers and logits of two prompts is short of 1, as its MODEL.toml compiles
it and with prefill steps of 128 rows through the wgmma templates, where they take its weights, and how many of the 32
greedy tokens that `transformers` makes in float32 are the GPU's too. The two may part only where the two best logits of
the float32 run lie closer than bfloat16 noise: the largest difference that running `transformers` in bfloat16 makes to
the prompt's logits. Beside it stands how far from 1 that run's own logits are: small models are loud, some more than
others, so the GPU may lose 0.001, or 8 times that. Where long prompts are rows of e4m3, these err 32 times as far as
bfloat16, which is a thousand times in what a cosine loses; half of it is allowed, since weights and sums do not err so.
Of experts it is the median of rows: one that noise sends to another expert is another row from there on.
Where the checkpoint has a head that drafts, the same answer is made with and without drafts, with longer prompts for the
trained one besides; the two may part where `transformers` in bfloat16 and float32 may.

--alone: the same of plans in which every op of the graph is a launch of its own ([kernels] fuse = false).
--many: the same of plans whose decode and verify steps have 64 slots, one of which is in use, with rows of e4m3 where
weights are: an answer is made by the kernels of many streams.
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
from torch.nn.functional import cosine_similarity

LEAST, PLAIN, CODES = 0.001, 8, 512  # of what a cosine may lose: in any case, and times what bfloat16 loses
PINNED = ("wgmma_residual", "wgmma_codes_residual")  # where one serves, so do its sisters, alone
REFUSED = 3
REPO = pathlib.Path(__file__).resolve().parent.parent.parent


def run(*command, codes=(0,)):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode not in codes:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def lowest_cosine(build, plan, golden, kind):
    worst = 1.0
    for prompt in ("p0", "p1"):
        ids = ",".join(str(i) for i in golden[f"{prompt}.input_ids"].flatten().tolist())
        report = json.loads(
            run(build / "atlas", "verify", plan, "--tokens", ids, "--device", "cuda", "--json", "-q", codes=(0, 1))
        )
        worst = min([worst] + [row[kind] for row in report["outputs"]])
    return worst


def has_rows_of_codes(build, plan):
    audit = json.loads(run(build / "atlas", "audit", plan, "--json"))
    return any(op["op"] == "norm_rows_fp8" for phase in audit["targets"][0]["phases"] for op in phase["launches"])


def answer(build, plan, ids, n, speculate):
    told = json.loads(
        run(
            build / "atlas",
            "run",
            plan,
            "--tokens",
            ids,
            "-n",
            n,
            "--temperature",
            "0",
            "--repetition-penalty",
            "1",
            "--device",
            "cuda",
            "--json",
            "-q",
            "--speculate",
            speculate,
        )
    )
    return told["results"][0]["tokens"], told.get("speculate")


def drafts(build, plan, ids, plain, golden, noise, is_trained, many):
    """What the table says of an answer with drafts beside the one without, and whether that may be. Of many slots the
    two have other kernels; where these have parted at a tie, so may longer texts."""
    verify_rows = json.loads(run(build / "atlas", "info", plan, "--json"))["verify_rows"]
    if not verify_rows:
        return "", True
    fast, told = answer(build, plan, ids, len(plain), "mtp")
    same = next((i for i, (a, b) in enumerate(zip(plain, fast)) if a != b), len(plain))
    margins = golden["p0.margin"].flatten().tolist()
    follows = plain[:same] == golden["p0.greedy"].flatten().tolist()[:same]
    ok = len(fast) == len(plain) and (same == len(plain) or not follows or margins[same] <= noise)
    text = f"drafts: {same} of {len(plain)} as without, {told['accepted']} of {told['drafts']} accepted"
    if is_trained:
        longer = [answer(build, plan, ids, 150, how)[0] for how in ("off", "mtp")]
        ok = ok and (longer[0] == longer[1] or (many and same < len(plain)))
        text += f", 150 {'equal' if longer[0] == longer[1] else 'DIFFER'}"
    return text + "   ", ok


def with_many_slots(text):
    """MODEL.toml with one bucket of decode, of 64 rows."""
    text = re.sub(r"(?m)^(slots|decode|pool_tokens) = .*\n", "", text)
    for section, lines in (("runtime", "slots = 64"), ("phases", "decode = [64]")):
        if f"[{section}]" not in text:
            text += f"\n[{section}]\n"
        text = text.replace(f"[{section}]", f"[{section}]\n{lines}", 1)
    return text + "\n[numerics]\nfp8_rows = 33\n"


def check(build, folder, scratch, alone=False, many=False):
    golden = load_file(folder / "golden.safetensors")
    plan, wide, options = scratch / "plan.bin", scratch / "wide.bin", scratch / "MODEL.toml"
    text = (folder / "MODEL.toml").read_text() + ("\n[kernels]\nfuse = false\n" if alone else "")
    text = with_many_slots(text) if many else text
    options.write_text(text)
    run(build / "atlasc", folder, "--model", options, "-o", plan, "-q", "--cache-dir", scratch / "cache")
    widened = re.sub(r"prefill = .*", "prefill = [128]", text)
    command = [build / "atlasc", folder, "--model", options, "-o", wide, "-q", "--cache-dir", scratch / "cache"]
    pinned = REFUSED
    for name in () if alone else PINNED:  # of ops that only fusions make
        options.write_text(f'{widened}\n[[kernels.pin]]\ntemplate = "{name}"\nphase = "prefill"\n')
        pinned = subprocess.run([str(c) for c in command], capture_output=True, check=False).returncode
        if pinned != REFUSED:
            break
    if pinned:  # weights in f16, f32 or e4m3
        options.write_text(widened)
        run(*command)
    has_experts = "num_experts" in (folder / "config.json").read_text()
    kind = "median" if has_experts else "cosine"
    worst = lowest_cosine(build, plan, golden, kind)
    worst_wide = lowest_cosine(build, wide, golden, kind)
    ids = ",".join(str(i) for i in golden["p0.input_ids"].flatten().tolist())
    theirs = golden["p0.greedy"].flatten().tolist()
    ours, _ = answer(build, plan, ids, len(theirs), "off")
    same = next((i for i, (a, b) in enumerate(zip(theirs, ours)) if a != b), min(len(theirs), len(ours)))
    noise = (golden["p0.logits_bf16"].float() - golden["p0.logits"]).abs().max().item()
    whole = same == min(len(theirs), len(ours)) and same > 0
    margin = float("inf") if whole else golden["p0.margin"][same].item()
    rows = cosine_similarity(golden["p0.logits_bf16"].double(), golden["p0.logits"].double(), -1)
    loud = 1 - (rows.median() if has_experts else rows.min()).item()
    codes, answer_codes = has_rows_of_codes(build, wide), has_rows_of_codes(build, plan) and many
    drafted, drafts_ok = drafts(build, plan, ids, ours, golden, noise, folder.name.endswith("-trained"), many)
    ok = (
        drafts_ok
        and 1 - worst <= max(LEAST, (CODES if answer_codes else PLAIN) * loud)
        and 1 - worst_wide <= max(LEAST, (CODES if codes else PLAIN) * loud)
        and (whole or margin <= noise)
    )
    why = "" if whole else f"two best {margin:.4f} apart, noise {noise:.4f}   "
    line = (
        f"{folder.name:36s} loses {1 - worst:.6f}, {'e4m3' if codes else 'wide'} {1 - worst_wide:.6f}, bf16 "
        f"{loud:.6f}   greedy {same:2d} of {len(theirs)}   {why}{drafted}{'ok' if ok else 'BAD'}"
    )
    return line, ok


def main():
    alone, many = "--alone" in sys.argv, "--many" in sys.argv
    sys.argv = [word for word in sys.argv if word not in ("--alone", "--many")]
    build = pathlib.Path(sys.argv[1]).resolve()
    folders = sorted(p.parent for p in (REPO / "tests" / "fixtures").glob("*/golden.safetensors"))
    if len(sys.argv) > 2:
        folders = [f for f in folders if f.name in sys.argv[2:]]
    with tempfile.TemporaryDirectory() as scratch, ThreadPoolExecutor(min(12, os.cpu_count())) as pool:
        scratches = [pathlib.Path(scratch) / folder.name for folder in folders]
        for place in scratches:
            place.mkdir()
        results = []
        for line, ok in pool.map(lambda f, s: check(build, f, s, alone, many), folders, scratches):
            print(line, flush=True)
            results.append(ok)
    print(f"{sum(results)} passed, {len(results) - sum(results)} failed")
    raise SystemExit(0 if all(results) and results else 1)


if __name__ == "__main__":
    main()
