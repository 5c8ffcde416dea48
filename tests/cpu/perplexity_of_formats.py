"""Perplexity of every format that [quant] makes, beside the same computed by `transformers` on weights that torch rounds.

    python tests/cpu/perplexity_of_formats.py CHECKPOINT TEXT [--build build] [--bytes 480] [--device cpu] [--only FORMAT...]

CHECKPOINT is made by scripts/smollm2_checkpoint.py. atlasc quantises all products of its layers while compiling, and
`atlas perplexity` scores the first bytes of TEXT. The other side shares nothing with it: scales by
the formulas of the formats, E4M3 by torch, E2M1 by ml_dtypes, then the model in float32. The two may differ by 0.1 % on the reference device; by 3 %
on a GPU, whose rows are bf16, and e4m3 where a long prompt multiplies FP8 by FP8: torch with rows rounded so moves as far.
"""

import argparse
import json
import math
import pathlib
import subprocess
import tempfile

import ml_dtypes
import torch
import transformers
from tokenizers import Tokenizer

BARS = {"cpu": 1e-3, "cuda": 3e-2}
FORMATS = ("keep", "fp8-block", "fp8-channel", "fp8-tensor", "nvfp4", "mxfp4")
MODEL_TOML = """\
[model]
family = "llama"
[runtime]
slots = 1
max_context = 1024
[quant]
"model.layers.*proj" = "{format}"
"""


def e4m3(x):
    return x.clamp(-448, 448).to(torch.float8_e4m3fn).float()


def e2m1(x):
    return torch.from_numpy(x.numpy().astype(ml_dtypes.float4_e2m1fn).astype("float32"))


def over(x, scale):
    """A quotient that is rounded once: weights that were codes before often lie in the middle between two."""
    return (x.double() / scale.double()).float()


def largest(w, bn, bk):
    """The largest magnitude of each block, at each of its elements."""
    n, k = w.shape
    padded = torch.nn.functional.pad(w.abs(), (0, -k % bk, 0, -n % bn))
    top = padded.reshape(padded.shape[0] // bn, bn, -1, bk).amax((1, 3))
    return top.repeat_interleave(bn, 0)[:n].repeat_interleave(bk, 1)[:, :k]


def block_rows(name, plain):
    """Of q, k and v, which are read as one weight, each ends where a block does."""
    joined = [f"{name.rpartition('.')[0]}.{x}_proj" for x in "qk"]
    return math.gcd(128, *(plain[n].shape[0] for n in joined)) if name[-6] in "qkv" else 128


def rounded(w, kind, rows):
    """What a weight is after a trip through the format; FP8 blocks of so many rows."""
    if kind == "keep":
        return w
    if kind.startswith("fp8"):
        block = {"fp8-block": (rows, 128), "fp8-channel": (1, w.shape[1]), "fp8-tensor": tuple(w.shape)}[kind]
        scale = largest(w, *block) / 448
        return e4m3(over(w, scale)) * scale
    if kind == "nvfp4":
        step = w.abs().max() / (6 * 448)
        block = e4m3(over(largest(w, 1, 16), 6 * step.double()).clamp(min=2**-9))
        return e2m1(over(w, block.double() * step.double())) * block * step
    scale = torch.exp2(torch.floor(torch.log2(largest(w, 1, 32))) - 2)
    return e2m1(over(w, scale)) * scale


def theirs(model, plain, kind, ids):
    """(perplexity, relative change of the weights)."""
    square, changed = 0.0, 0.0
    with torch.no_grad():
        for name, module in model.named_modules():
            if name.endswith("_proj"):
                w = rounded(plain[name], kind, block_rows(name, plain))
                module.weight.copy_(w)
                square += plain[name].square().sum().item()
                changed += (w - plain[name]).square().sum().item()
        logits = model(torch.tensor([ids])).logits[0, :-1]
    return math.exp(torch.nn.functional.cross_entropy(logits, torch.tensor(ids[1:])).item()), math.sqrt(
        changed / square
    )


def ours(args, kind, text, scratch):
    options, plan = scratch / "MODEL.toml", scratch / "plan.bin"
    options.write_text(MODEL_TOML.format(format=kind))
    command = [args.build / "atlasc", args.checkpoint, "--model", options, "-o", plan, "-q"]
    subprocess.run(command + ["--target", "none"] * (args.device == "cpu"), check=True, stderr=subprocess.DEVNULL)
    command = [args.build / "atlas", "perplexity", plan, "-f", text, "--device", args.device, "--json", "-q"]
    return json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout), plan.stat().st_size


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path)
    parser.add_argument("--build", type=pathlib.Path, default=pathlib.Path("build"))
    parser.add_argument("--bytes", type=int, default=480)
    parser.add_argument("--device", choices=BARS, default="cpu")
    parser.add_argument("--only", nargs="+", default=FORMATS)
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    args.build = args.build.resolve()
    model = transformers.AutoModelForCausalLM.from_pretrained(
        args.checkpoint, dtype=torch.float32, attn_implementation="eager"
    ).eval()
    plain = {name: m.weight.detach().clone() for name, m in model.named_modules() if name.endswith("_proj")}
    bad = 0
    with tempfile.TemporaryDirectory() as folder:
        scratch = pathlib.Path(folder)
        text = scratch / "text"
        text.write_bytes(args.text.read_bytes()[: args.bytes])
        ids = Tokenizer.from_file(str(args.checkpoint / "tokenizer.json")).encode(text.read_text(encoding="utf-8")).ids
        print(
            f"torch {torch.__version__}, transformers {transformers.__version__}, float32; "
            f"{len(ids) - 1} tokens of {args.text}, {args.bytes} bytes; device {args.device}"
        )
        print(f"{'format':12} {'atlas':>9} {'torch':>9} {'differ':>9} {'weights changed':>16} {'plan, MiB':>10}")
        for kind in args.only:
            got, size = ours(args, kind, text, scratch)
            want, changed = theirs(model, plain, kind, ids)
            assert got["scored"] == len(ids) - 1
            differ = got["perplexity"] / want - 1
            bad += abs(differ) > BARS[args.device]
            print(
                f"{kind:12} {got['perplexity']:9.4f} {want:9.4f} {differ:+9.1e} {changed:16.4f} {size / 2**20:10.1f}"
                f"  {'ok' if abs(differ) <= BARS[args.device] else 'BAD'}",
                flush=True,
            )
    raise SystemExit(bad > 0)


if __name__ == "__main__":
    main()
