"""A plan on a GPU against `transformers` on the same checkpoint: tokens, layers, perplexity.

    python tests/gpu/against_transformers.py CHECKPOINT PLAN TEXT [--atlas build/atlas] [--device cuda]

Greedy tokens of five prompts must be those of `transformers` in bfloat16; where the two part, the distance between
its two best logits there must be within the noise that bfloat16 itself makes (the largest difference between its
bfloat16 and its float32 logits at that position), and the case is shown. Every layer's output must have a cosine
above 0.999 with the float32 model, and the perplexity of TEXT must be within 0.5 % of it.
"""

import argparse
import json
import math
import subprocess
import tempfile

import torch
import transformers
from safetensors.torch import load_file
from tokenizers import Tokenizer

PROMPTS = [
    "The capital of France is",
    "<|im_start|>user\nWhy is the sky blue?<|im_end|>\n<|im_start|>assistant\n",
    "def fibonacci(n):\n    ",
    "Once upon a time, in a small village by the sea, there lived",
    "The three most important things to know about compilers are:\n1.",
]
TOKENS = 64


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stderr}")
    return done.stdout


def load(folder, dtype):
    model = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=dtype, attn_implementation="eager")
    return model.to("cuda" if torch.cuda.is_available() else "cpu").eval()


def logits_at_end(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids], device=model.device)).logits[0, -1].float()


def compare_tokens(args, tokenizer, half, full):
    bad = 0
    stops = half.generation_config.eos_token_id
    stops = stops if isinstance(stops, list) else [stops]
    for prompt in PROMPTS:
        ids = tokenizer.encode(prompt).ids
        ours = json.loads(
            run(
                args.atlas,
                "run",
                args.plan,
                "-p",
                prompt,
                "-n",
                str(TOKENS),
                "--temperature",
                "0",
                "--device",
                args.device,
                "--json",
            )
        )["results"][0]
        assert ours["prompt_tokens"] == ids, f"prompt ids differ: {ours['prompt_tokens']} and {ids}"
        with torch.no_grad():
            whole = half.generate(
                torch.tensor([ids], device=half.device),
                max_new_tokens=TOKENS,
                do_sample=False,
                repetition_penalty=1.0,
                temperature=None,
                top_p=None,
                top_k=None,
            )[0].tolist()
        theirs, mine = whole[len(ids) :], ours["tokens"]
        if theirs and theirs[-1] in stops:  # ours leave the stop token out
            theirs.pop()
            mine = mine[:-1] if mine and mine[-1] in stops else mine
        same = next((i for i, (a, b) in enumerate(zip(theirs, mine)) if a != b), min(len(theirs), len(mine)))
        if same == len(theirs) == len(mine):
            print(f"tokens  {same:3d} of {len(theirs)} equal                                  {prompt[:40]!r}")
            continue
        context = ids + theirs[:same]
        a, b = logits_at_end(half, context), logits_at_end(full, context)
        noise = (a - b).abs().max().item()
        top = a.topk(2)
        gap = (top.values[0] - top.values[1]).item()
        other = mine[same] if same < len(mine) else None
        ours_gap = (top.values[0] - a[other]).item() if other is not None else math.inf
        ok = ours_gap <= noise
        bad += not ok
        print(
            f"tokens  {same:3d} of {len(theirs)} equal, then {other} for {theirs[same] if same < len(theirs) else None}: "
            f"{ours_gap:.4f} below the best (its two best: {gap:.4f}; bf16 noise {noise:.4f}) "
            f"{'ok' if ok else 'BAD'}  {prompt[:40]!r}"
        )
    return bad


def compare_layers(args, tokenizer, full, text):
    ids = tokenizer.encode(text).ids[:200]
    with tempfile.NamedTemporaryFile(suffix=".safetensors") as f:
        run(
            args.atlas,
            "dump",
            args.plan,
            "--tokens",
            ",".join(map(str, ids)),
            "--hidden",
            "-o",
            f.name,
            "--device",
            args.device,
        )
        ours = load_file(f.name)
    outputs = []
    hooks = [
        layer.register_forward_hook(
            lambda _m, _i, out: outputs.append((out[0] if isinstance(out, tuple) else out)[0].float().cpu())
        )
        for layer in full.model.layers
    ]
    with torch.no_grad():
        logits = full(torch.tensor([ids], device=full.device)).logits[0].float().cpu()
    for hook in hooks:
        hook.remove()
    worst, bad = 1.0, 0
    for layer, theirs in enumerate(outputs + [logits]):
        name = "logits" if layer == len(outputs) else f"l{layer}.out"
        mine = ours[name]
        cosine = torch.nn.functional.cosine_similarity(mine.double().flatten(), theirs.double().flatten(), dim=0).item()
        worst = min(worst, cosine)
        if cosine <= 0.999:
            bad += 1
            print(f"layers  {name}: cosine {cosine:.6f} BAD")
    print(f"layers  {len(outputs)} layers and logits, {len(ids)} tokens: lowest cosine {worst:.6f}")
    return bad


def perplexity(model, ids, window):
    nats, n = 0.0, 0
    for at in range(0, len(ids) - 1, window - 1):
        part = ids[at : at + window]
        if len(part) < 2:
            break
        with torch.no_grad():
            logits = model(torch.tensor([part], device=model.device)).logits[0, :-1].float()
        nats += torch.nn.functional.cross_entropy(
            logits, torch.tensor(part[1:], device=model.device), reduction="sum"
        ).item()
        n += len(part) - 1
    return math.exp(nats / n)


def compare_perplexity(args, tokenizer, half, full):
    text = open(args.text, encoding="utf-8").read()
    ids = tokenizer.encode(text).ids
    window = 512
    ours = json.loads(
        run(
            args.atlas,
            "perplexity",
            args.plan,
            "-f",
            args.text,
            "--window",
            str(window),
            "--device",
            args.device,
            "--json",
        )
    )
    assert ours["tokens"] == len(ids), f"{ours['tokens']} tokens, the tokenizers library says {len(ids)}"
    exact, rounded = perplexity(full, ids, window), perplexity(half, ids, window)
    error = abs(ours["perplexity"] / exact - 1)
    print(
        f"perplexity  {ours['perplexity']:.4f}; transformers float32 {exact:.4f}, bfloat16 {rounded:.4f}; "
        f"difference {100 * error:.3f} % {'ok' if error <= 0.005 else 'BAD'}"
    )
    return error > 0.005


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("checkpoint")
    parser.add_argument("plan")
    parser.add_argument("text")
    parser.add_argument("--atlas", default="build/atlas")
    parser.add_argument("--device", default="cuda")
    args = parser.parse_args()
    transformers.utils.logging.disable_progress_bar()
    transformers.utils.logging.set_verbosity_error()
    tokenizer = Tokenizer.from_file(f"{args.checkpoint}/tokenizer.json")
    half, full = load(args.checkpoint, torch.bfloat16), load(args.checkpoint, torch.float32)
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, eager attention, device {args.device}")
    bad = compare_tokens(args, tokenizer, half, full)
    bad += compare_layers(args, tokenizer, full, open(args.text, encoding="utf-8").read())
    bad += compare_perplexity(args, tokenizer, half, full)
    raise SystemExit(1 if bad else 0)


if __name__ == "__main__":
    main()
