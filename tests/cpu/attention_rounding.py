"""What rounding the probabilities of attention costs on a real text, beside every other rounding to bf16 of a prompt.

    python tests/cpu/attention_rounding.py CHECKPOINT TEXT... [--tokens 2048] [--few 8192] [--device cpu]

CHECKPOINT is made by scripts/smollm2_checkpoint.py (Llama, tied embeddings); the texts are read one behind the
other. Kernels of prompts round the probabilities p of a row, unnormalised in [0, 1], before the tensor cores
multiply them by values, and divide by the sum of those that nobody rounded (kernels/templates/attention/attend.cuh,
attend_wgmma.cuh). Here a model of torch in float32 does the same, and what else could be done:

    f32            p as it is
    bf16           p rounded: the kernels
    bf16, its sum  p rounded, and divided by the sum of the rounded
    bf16, after    p divided by its sum and rounded then, as `transformers` does
    f16            p rounded to f16, values as f16, as the tensor cores would need them
    f16, its sum   the same, divided by the sum of the rounded
    hi + lo        p as the sum of two bf16, so twice as many products with values

Three tables for each number of tokens. "a launch": the root mean square error of o, relative, of each way, over the
last 256 rows of all layers; q, k and v are those of the model with all roundings of a prompt. Beside it what
rounding o itself costs, which every kernel does behind it. "alone": nothing else is rounded. "among all": q, k, v,
o, the rows of norms, of swiglu and of the residual are rounded to bf16 where a prompt's kernels round them. Both
against the model that rounds nothing: mean cosine of logits and the least, their largest error, KL divergence and
perplexity. --few leaves lines out that say little. The model is held against that of `transformers` before: exit
code 1 where the least cosine of logits is below 0.999999.
"""

import argparse
import json
import pathlib
import sys

import torch
from safetensors.torch import load_file
from tokenizers import Tokenizer

WAYS = ("f32", "bf16", "bf16, its sum", "bf16, after", "f16", "f16, its sum", "hi + lo")
PLACES = ("q", "k", "v", "o", "norm", "swiglu", "residual")
KERNEL = "bf16"
FEW = ("bf16", "bf16, its sum", "residual")
BLOCK = 256  # rows at a time


def bf16(x):
    return x.to(torch.bfloat16).to(torch.float32)


def f16(x):
    return x.to(torch.float16).to(torch.float32)


def weigh(p, v, way):
    """p [rows, keys] unnormalised, v [keys, head_dim]: the weighted mean of v."""
    total = p.sum(-1, keepdim=True)
    if way == "bf16, after":
        return bf16(p / total) @ v
    if way == "hi + lo":
        hi = bf16(p)
        return (hi @ v + bf16(p - hi) @ v) / total
    if way != "f32":
        p = (f16 if way.startswith("f16") else bf16)(p)
        v = f16(v) if way.startswith("f16") else v
    return p @ v / (p.sum(-1, keepdim=True) if way.endswith("its sum") else total)


class Model:
    def __init__(self, folder, device):
        self.config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        self.w = {k: v.to(device, torch.float32) for k, v in load_file(folder / "model.safetensors").items()}
        self.launches = None  # way: [squares of its error], [squares of o] of every launch

    def rounded(self, x, place):
        return bf16(x) if place in self.places else x

    def norm(self, x, name):
        y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + self.config["rms_norm_eps"]) * self.w[name]
        return self.rounded(y, "norm")

    def rope(self, x):
        half = x.shape[-1] // 2
        turn = self.config["rope_theta"] ** (-torch.arange(half, dtype=torch.float64) / half)
        angle = torch.arange(x.shape[1], dtype=torch.float64)[:, None] * turn
        cos, sin = (f(angle).float().to(x.device) for f in (torch.cos, torch.sin))
        a, b = x[..., :half], x[..., half:]
        return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)

    def attention(self, q, k, v):
        """q [heads, rows, head_dim], k and v [kv heads, rows, head_dim]: o [rows, heads * head_dim]."""
        heads, rows, size = q.shape
        out = torch.empty(rows, heads, size, device=q.device)
        for h, at in ((h, at) for h in range(heads) for at in range(0, rows, BLOCK)):
            end, kv = min(at + BLOCK, rows), h * k.shape[0] // heads
            score = (q[h, at:end] * size**-0.5) @ k[kv, :end].T
            score[:, at:].masked_fill_(torch.ones_like(score[:, at:], dtype=torch.bool).triu(1), -torch.inf)
            p = score.sub_(score.amax(-1, keepdim=True)).exp_()
            out[at:end, h] = weigh(p, v[kv, :end], self.way)
            if self.launches is not None and end == rows:
                exact = p.double() @ v[kv, :end].double() / p.double().sum(-1, keepdim=True)
                self.note("rounding o", bf16(exact.float()), exact)
                for way in WAYS:
                    self.note(way, weigh(p, v[kv, :end], way), exact)
        return out.reshape(rows, -1)

    def note(self, way, got, exact):
        error, square = self.launches.setdefault(way, ([], []))
        error.append((got - exact).square().sum().item())
        square.append(exact.square().sum().item())

    @torch.no_grad()
    def logits(self, ids, way, places):
        """[tokens, vocab] float32; attention's p handled this way, rows of these places rounded to bf16."""
        self.way, self.places = way, places
        c, w = self.config, self.w
        heads, kv_heads = c["num_attention_heads"], c["num_key_value_heads"]
        x = w["model.embed_tokens.weight"][ids]
        for layer in range(c["num_hidden_layers"]):
            at = f"model.layers.{layer}."
            n = self.norm(x, at + "input_layernorm.weight")
            q, k, v = (
                (n @ w[at + f"self_attn.{name}_proj.weight"].T).unflatten(-1, (h, -1)).transpose(0, 1)
                for name, h in (("q", heads), ("k", kv_heads), ("v", kv_heads))
            )
            q, k = (self.rounded(self.rope(self.rounded(r, name)), name) for r, name in ((q, "q"), (k, "k")))
            o = self.rounded(self.attention(q, k, self.rounded(v, "v")), "o")
            x = self.rounded(x + o @ w[at + "self_attn.o_proj.weight"].T, "residual")
            n = self.norm(x, at + "post_attention_layernorm.weight")
            gate, up = (n @ w[at + f"mlp.{name}_proj.weight"].T for name in ("gate", "up"))
            y = self.rounded(torch.nn.functional.silu(gate) * up, "swiglu")
            x = self.rounded(x + y @ w[at + "mlp.down_proj.weight"].T, "residual")
        return self.norm(x, "model.norm.weight") @ w["model.embed_tokens.weight"].T


class Against:
    """Logits beside those of the model that rounds nothing."""

    def __init__(self, want, ids):
        self.want, self.next = want, ids[1:, None]

    def perplexity(self, got):
        return sum(
            -torch.log_softmax(got[i : i + BLOCK].double(), -1).gather(-1, self.next[i : i + BLOCK]).sum().item()
            for i in range(0, len(self.next), BLOCK)
        )

    def line(self, name, got):
        cosine, worst, kl = [], 0.0, 0.0
        for i in range(0, len(got), BLOCK):
            a, b = got[i : i + BLOCK].double(), self.want[i : i + BLOCK].double()
            cosine.append(torch.nn.functional.cosine_similarity(a, b, -1))
            worst = max(worst, (a - b).abs().max().item())
            log_a, log_b = torch.log_softmax(a, -1), torch.log_softmax(b, -1)
            kl += (log_b.exp() * (log_b - log_a)).sum().item()
        cosine = torch.cat(cosine)
        loss, plain = (self.perplexity(x[:-1]) / len(self.next) for x in (got, self.want))
        print(
            f"{name:24} {1 - cosine.mean().item():10.3e} {1 - cosine.min().item():10.3e} {worst:9.5f}"
            f" {kl / len(got):10.3e} {torch.tensor(loss).exp().item():11.6f} {loss - plain:+10.2e}",
            flush=True,
        )


HEAD = (
    f"{'':24} {'1 - cosine':>10} {'at most':>10} {'max error':>9} {'KL, nats':>10} {'perplexity':>11} {'nats more':>10}"
)


def check(folder, model, ids):
    """Least cosine of logits with those of `transformers`, float32."""
    import transformers

    transformers.utils.logging.disable_progress_bar()
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).to(ids.device).eval()
    with torch.no_grad():
        want = theirs(ids[None]).logits[0]
    least = torch.nn.functional.cosine_similarity(model.logits(ids, "f32", ()).double(), want.double(), -1).min().item()
    print(
        f"torch {torch.__version__}, transformers {transformers.__version__}; device {ids.device}; "
        f"{len(ids)} tokens beside transformers in float32: 1 - least cosine {1 - least:.1e}"
    )
    return 1 - least < 1e-6


def measure(model, ids, is_few):
    nothing = Against(model.logits(ids, "f32", ()), ids)
    model.launches = {}
    rounded = model.logits(ids, KERNEL, PLACES)
    launches, model.launches = model.launches, None
    print(f"\n{len(ids)} tokens, a launch: root mean square error of o, relative")
    for way, (error, square) in launches.items():
        print(f"{way:24} {(sum(error) / sum(square)) ** 0.5:10.3e}")
    print(f"\n{len(ids)} tokens, among all\n{HEAD}")
    for way in WAYS:
        if not is_few or way in ("f32", KERNEL):
            nothing.line(f"p: {way}", rounded if way == KERNEL else model.logits(ids, way, PLACES))
    print(f"\n{len(ids)} tokens, alone\n{HEAD}")
    nothing.line("nothing", nothing.want)
    for way in WAYS[1:]:
        if not is_few or way in FEW:
            nothing.line(f"p: {way}", model.logits(ids, way, ()))
    for place in PLACES:
        if not is_few or place in FEW:
            nothing.line(place, model.logits(ids, "f32", (place,)))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("checkpoint", type=pathlib.Path)
    parser.add_argument("text", type=pathlib.Path, nargs="+")
    parser.add_argument("--tokens", type=int, nargs="*", default=[2048])
    parser.add_argument("--few", type=int, nargs="*", default=[8192])
    parser.add_argument("--device", default="cpu")
    args = parser.parse_args()
    torch.backends.cuda.matmul.allow_tf32 = False
    text = "".join(path.read_text(encoding="utf-8") for path in args.text)
    ids = Tokenizer.from_file(str(args.checkpoint / "tokenizer.json")).encode(text).ids
    most = max(args.tokens + args.few)
    if len(ids) < most:
        parser.error(f"the text has {len(ids)} tokens: {most} are asked for")
    ids = torch.tensor(ids, device=args.device)
    model = Model(args.checkpoint, args.device)
    if not check(args.checkpoint, model, ids[:512]):
        return 1
    for n in args.tokens + args.few:
        measure(model, ids[:n], n not in args.tokens)
    return 0


if __name__ == "__main__":
    sys.exit(main())
