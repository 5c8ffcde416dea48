"""One-stream decode speed of plans with random weights, as a share of the read bandwidth of the same run.

    python tests/gpu/speed.py BUILD NAME...

Names are those of random_checkpoint.py. Context 128 to 640: a prompt of 128 random tokens, then 512 greedy ones; the
median of three runs. Bytes of a token: all weights once (the embedding only where it is the head too) and the keys
and values of a context of 384. The bandwidth is that of reading 4 GiB with torch (a sum over int64), the best of five.
"""
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import torch

HERE = pathlib.Path(__file__).resolve().parent


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(map(str, command))}: exit {done.returncode}\n{done.stderr}")
    return done.stdout, done.stderr


def read_gbps():
    data = torch.randint(1 << 30, (1 << 29,), dtype=torch.int64, device="cuda")
    best = 0.0
    for _ in range(5):
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        start.record()
        data.sum()
        end.record()
        end.synchronize()
        best = max(best, data.numel() * 8 / start.elapsed_time(end) / 1e6)
    return best


def token_bytes(config):
    hidden, layers, ffn = config["hidden_size"], config["num_hidden_layers"], config["intermediate_size"]
    head_dim = config.get("head_dim", hidden // config["num_attention_heads"])
    q, kv = config["num_attention_heads"] * head_dim, config["num_key_value_heads"] * head_dim
    layer = hidden * (q + 2 * kv) + q * hidden + 3 * hidden * ffn + 2 * hidden
    return 2 * (layers * layer + config["vocab_size"] * hidden + hidden) + layers * 2 * kv * 2 * 384


def measure(build, name, folder, gbps):
    run(sys.executable, HERE / "random_checkpoint.py", name, folder)
    (folder / "MODEL.toml").write_text("[runtime]\nslots = 1\nmax_context = 2048\n[phases]\ndecode = [1]\n")
    _, talk = run(build / "atlasc", folder, "-o", folder / "plan.bin", "--timings", "--weights", "ref")
    made = re.search(r"make-kernels +([0-9.]+) ms", talk).group(1)
    ids = torch.randint(1000, 20000, (128,), generator=torch.Generator().manual_seed(2)).tolist()
    rates, firsts = [], []
    for _ in range(3):
        _, talk = run(build / "atlas", "run", folder / "plan.bin", "--weights", folder, "--tokens",
                      ",".join(map(str, ids)), "-n", 512, "--temperature", "0", "--device", "cuda", "--json")
        firsts.append(float(re.search(r"first token after ([0-9.]+) ms", talk).group(1)))
        rates.append(float(re.search(r"([0-9.]+) tokens/s", talk).group(1)))
    rate = statistics.median(rates)
    size = token_bytes(json.loads((folder / "config.json").read_text()))
    print(f"{name:14s} {rate:8.1f} tok/s  {size / 1e9:7.3f} GB a token  {rate * size / 1e9:7.0f} GB/s = "
          f"{100 * rate * size / 1e9 / gbps:5.1f} % of the read bandwidth   128-token prompt {statistics.median(firsts):6.1f} ms"
          f"   kernels compiled in {float(made) / 1e3:.1f} s", flush=True)


def main():
    build = pathlib.Path(sys.argv[1]).resolve()
    gbps = read_gbps()
    torch.cuda.empty_cache()
    print(f"read bandwidth {gbps:.0f} GB/s")
    for name in sys.argv[2:]:
        with tempfile.TemporaryDirectory() as folder:
            measure(build, name, pathlib.Path(folder), gbps)


if __name__ == "__main__":
    main()
