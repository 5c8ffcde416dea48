"""Products of long prompts beside cuBLAS (torch.matmul) on the same card, A-B-A-B in one run.

    python tests/gpu/peer_gemm.py KERNEL_TEST

A row a shape: ours is the template as `KERNEL_TEST --bench` times it, with what it does besides (residual, swiglu), its
tunables chosen by one run of all of them beforehand; theirs is the bare product, bf16, both of random data. Of e4m3
ours has a scale for each 128 x 128 block of weights and for each 128 columns of a row, theirs (torch._scaled_mm) one a
matrix and sums that stay in the tensor cores. Each side is a CUDA graph of about as many products, with weights beyond
the L2 cache, replayed eleven times after half a second of rest, since the card lowers its clocks under such load: what
counts is the median of the last nine. Each side runs twice, in turns. Printed are both runs of each side in TFLOP/s,
the ratio of the medians and, as its error, the larger spread of the two sides.
"""

import re
import statistics
import subprocess
import sys
import time

import torch

REPLAYS, WARM = 11, 2
SHAPES = (  # template, label in kernel_bench.c, rows, columns of the product, depth
    ("wgmma_residual", "8192 cubed", 8192, 8192, 8192),
    ("wgmma_linear", "8B qkv x2048", 2048, 6144, 4096),
    ("wgmma_residual", "8B o x2048", 2048, 4096, 4096),
    ("wgmma_swiglu", "8B gate up x2048", 2048, 28672, 4096),
    ("wgmma_residual", "8B down x2048", 2048, 4096, 14336),
    ("wgmma_fp8_residual", "8192 cubed", 8192, 8192, 8192),
    ("wgmma_fp8_linear", "4096x7168x2048", 4096, 7168, 2048),
    ("wgmma_fp8_linear", "8B qkv x2048", 2048, 6144, 4096),
    ("wgmma_fp8_residual", "8B o x2048", 2048, 4096, 4096),
    ("wgmma_fp8_swiglu", "8B gate up x2048", 2048, 28672, 4096),
    ("wgmma_fp8_residual", "8B down x2048", 2048, 4096, 14336),
    ("wgmma_linear", "1B qkv x512", 512, 3072, 2048),
    ("wgmma_residual", "1B o x512", 512, 2048, 2048),
    ("wgmma_swiglu", "1B gate up x512", 512, 16384, 2048),
    ("wgmma_residual", "1B down x512", 512, 2048, 8192),
)


def ours(test, name, fix=None):
    """The best row of the bench: TFLOP/s and its tunables."""
    time.sleep(0.5)
    command = [test, "--bench", "--jobs", "8", "--only", name] + (["--fix", fix] if fix else [])
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    best = re.search(r"^\*.* ([0-9.]+) TFLOP/s .* of \w+  (.*)$", done.stdout, re.MULTILINE)
    if done.returncode or not best:
        raise SystemExit(f"{' '.join(command)}: exit {done.returncode}\n{done.stdout}{done.stderr}")
    return float(best.group(1)), best.group(2)


class Product:
    def __init__(self, rows, columns, depth, is_fp8):
        def random(*shape):
            x = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
            return (x * 32).to(torch.float8_e4m3fn) if is_fp8 else x

        def multiply(w):
            if is_fp8:
                torch._scaled_mm(x, w.t(), scale, scale, out_dtype=torch.bfloat16, use_fast_accum=True, out=y)
            else:
                torch.matmul(x, w.t(), out=y)

        size, scale = 1 if is_fp8 else 2, torch.full((), 2.0**-8, device="cuda")
        moved = size * (rows * depth + columns * depth) + 2 * rows * columns
        self.flops, self.n = 2 * rows * columns * depth, min(int(1.5e9 / moved) + 8, 400)
        x = random(rows, depth)
        y = torch.empty(rows, columns, device="cuda", dtype=torch.bfloat16)
        weights = [random(columns, depth) for _ in range(max(2, int(2e8 / (size * columns * depth)) + 1))]
        multiply(weights[0])
        self.graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(self.graph):
            for i in range(self.n):
                multiply(weights[i % len(weights)])
        self.kept = x, y, weights, scale

    def rate(self):
        torch.cuda.synchronize()
        time.sleep(0.5)
        seconds = []
        for _ in range(REPLAYS):
            start = time.perf_counter()
            self.graph.replay()
            torch.cuda.synchronize()
            seconds.append((time.perf_counter() - start) / self.n)
        return self.flops / statistics.median(seconds[WARM:]) / 1e12


def main():
    test = sys.argv[1]
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, CUDA {torch.version.cuda}")
    for template, label, rows, columns, depth in SHAPES:
        name = f"{template} {label}"
        _, fix = ours(test, name)
        theirs, a, b = Product(rows, columns, depth, "fp8" in template), [], []
        for _ in range(2):
            a.append(ours(test, name, fix)[0])
            b.append(theirs.rate())
        del theirs
        torch.cuda.empty_cache()
        spread = max(max(runs) / min(runs) - 1 for runs in (a, b))
        print(
            f"{template:18s} {label:17s} ours {a[0]:6.1f} {a[1]:6.1f}   cuBLAS {b[0]:6.1f} {b[1]:6.1f}   ratio "
            f"{statistics.median(a) / statistics.median(b):.3f} +- {spread:.3f}   {fix}",
            flush=True,
        )


if __name__ == "__main__":
    main()
