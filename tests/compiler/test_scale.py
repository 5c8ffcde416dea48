"""The compiler's cost does not depend on how much the weights weigh: sparse checkpoints of real shapes."""

import json
import re
import struct
import subprocess
import sys

import pytest

OPTIONS = """
[runtime]
slots = 1
max_context = 1024
[phases]
prefill = [64]
decode = [1]
"""

SHAPES = {
    "llama-3.1-70b": dict(
        hidden_size=8192,
        num_hidden_layers=80,
        num_attention_heads=64,
        num_key_value_heads=8,
        intermediate_size=28672,
        vocab_size=128256,
    ),
    "small-1.5-gib": dict(
        hidden_size=1024,
        num_hidden_layers=8,
        num_attention_heads=16,
        num_key_value_heads=8,
        intermediate_size=16384,
        vocab_size=151936,
    ),
}


def sparse_checkpoint(
    folder, hidden_size, num_hidden_layers, num_attention_heads, num_key_value_heads, intermediate_size, vocab_size
):
    head_dim = hidden_size // num_attention_heads
    kv = num_key_value_heads * head_dim
    shapes = {
        "model.embed_tokens.weight": [vocab_size, hidden_size],
        "model.norm.weight": [hidden_size],
        "lm_head.weight": [vocab_size, hidden_size],
    }
    for layer in range(num_hidden_layers):
        for name, shape in (
            ("input_layernorm", [hidden_size]),
            ("post_attention_layernorm", [hidden_size]),
            ("self_attn.q_proj", [hidden_size, hidden_size]),
            ("self_attn.k_proj", [kv, hidden_size]),
            ("self_attn.v_proj", [kv, hidden_size]),
            ("self_attn.o_proj", [hidden_size, hidden_size]),
            ("mlp.gate_proj", [intermediate_size, hidden_size]),
            ("mlp.up_proj", [intermediate_size, hidden_size]),
            ("mlp.down_proj", [hidden_size, intermediate_size]),
        ):
            shapes[f"model.layers.{layer}.{name}.weight"] = shape
    header, at = {}, 0
    for name, shape in shapes.items():
        size = 2
        for dim in shape:
            size *= dim
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    with open(folder / "model.safetensors", "wb") as f:
        f.write(struct.pack("<Q", len(text)) + text)
        f.truncate(8 + len(text) + at)
    (folder / "config.json").write_text(
        json.dumps(
            dict(
                model_type="llama",
                architectures=["LlamaForCausalLM"],
                hidden_act="silu",
                rms_norm_eps=1e-5,
                max_position_embeddings=8192,
                rope_theta=500000.0,
                tie_word_embeddings=False,
                hidden_size=hidden_size,
                num_hidden_layers=num_hidden_layers,
                num_attention_heads=num_attention_heads,
                num_key_value_heads=num_key_value_heads,
                intermediate_size=intermediate_size,
                vocab_size=vocab_size,
            )
        )
    )
    (folder / "MODEL.toml").write_text(OPTIONS)
    return at


# A process that takes the place of a large one has that one's peak: a small one starts the command.
MEASURE = """import os, subprocess, sys
process = subprocess.Popen(sys.argv[1:], stdout=subprocess.DEVNULL)
_, status, usage = os.wait4(process.pid, 0)
print(os.waitstatus_to_exitcode(status), usage.ru_maxrss)"""


def run_measured(*command):
    """(exit code, stderr, peak resident bytes) of a command."""
    run = subprocess.run(
        [sys.executable, "-c", MEASURE, *(str(part) for part in command)], capture_output=True, text=True, check=True
    )
    code, peak = map(int, run.stdout.split())
    return code, run.stderr, peak * 1024


def test_70b_is_planned_in_little_memory(atlasc, kernel_cache, tmp_path):
    weights = sparse_checkpoint(tmp_path, **SHAPES["llama-3.1-70b"])
    assert weights > 130 << 30
    code, talk, peak = run_measured(atlasc, tmp_path, "--dry-run", "--timings", "-j", "2", "--cache-dir", kernel_cache)
    assert code == 0, talk
    assert peak < 1 << 30 or "asan" in str(atlasc), f"{peak >> 20} MiB"
    slow = {
        name: float(ms) for name, ms in re.findall(r"^([a-z-]+) +([0-9.]+) ms$", talk, re.M) if name != "make-kernels"
    }
    assert len(slow) == 10 and sum(slow.values()) < 5000, slow


@pytest.mark.parametrize("mode", ["ref", "embed"])
def test_weights_stream_through(atlasc, kernel_cache, tmp_path, mode):
    weights = sparse_checkpoint(tmp_path, **SHAPES["small-1.5-gib"])
    assert weights > 1400 << 20
    plan = tmp_path / "plan.bin"
    command = [atlasc, tmp_path, "-o", plan, "--weights", mode, "--cache-dir", kernel_cache]
    run_measured(*command, "--dry-run")  # kernels into the cache: NVRTC's memory is another matter
    code, talk, peak = run_measured(*command)
    assert code == 0, talk
    assert peak < 256 << 20, f"{peak >> 20} MiB for {weights >> 20} MiB of weights"
    assert (plan.stat().st_size > weights) == (mode == "embed")


def test_memory_goes_with_the_number_of_tensors(atlasc, tmp_path):
    """In a sanitizer's build too: twice the tensors take no more than twice what they add."""
    peaks = []
    for layers in (1, 110, 220):  # up to 1,983 tensors
        folder = tmp_path / str(layers)
        folder.mkdir()
        sparse_checkpoint(folder, 256, layers, 4, 2, 512, 1000)
        code, talk, peak = run_measured(atlasc, folder, "--dry-run", "--stop-after", "build-graph")
        assert code == 0, talk
        peaks.append(peak)
    assert peaks[2] - peaks[0] < 3 * max(peaks[1] - peaks[0], 4 << 20), [peak >> 20 for peak in peaks]
