"""tests/gpu/peer_vllm.py without vLLM, and with a vLLM of known speed beside the reference device."""

from __future__ import annotations

import subprocess
import sys

FAKE = '''
"""Takes 0.1 s for a prompt of 192 tokens, else 4 ms for each token of an answer but the first."""
import time
__version__ = "0.0-fake"
class SamplingParams:
    def __init__(self, temperature, max_tokens, ignore_eos, detokenize):
        assert ignore_eos and not detokenize
        self.n = max_tokens
class Out:
    def __init__(self, n): self.token_ids, self.outputs = [0] * n, [self]
class LLM:
    def __init__(self, **options):
        assert options["load_format"] == "dummy" and options["max_num_seqs"] == 64 and options["max_model_len"] >= 192 + 64
    def generate(self, prompts, how, use_tqdm):
        assert all(0 <= id < 2048 for p in prompts for id in p["prompt_token_ids"])
        time.sleep(0.1 if len(prompts[0]["prompt_token_ids"]) == 192 else 0.004 * (how.n - 1))
        return [Out(how.n) for _ in prompts]
'''


def run(repo, build_dir, plan, **env):
    return subprocess.run(
        [
            sys.executable,
            repo / "tests/gpu/peer_vllm.py",
            "--streams",
            "1,2,64",
            "--prompts",
            "192",
            build_dir,
            repo / "tests/fixtures/llama-trained/config.json",
            plan,
        ],
        env=env,
        text=True,
        capture_output=True,
        check=False,
        timeout=300,
    )


def test_without_vllm(repo, build_dir, tmp_path):
    got = run(repo, build_dir, tmp_path / "none")
    assert (got.returncode, got.stdout) == (5, "")
    assert got.stderr == "peer_vllm.py: vLLM is not installed: No module named 'vllm'\n"


def test_table(repo, build_dir, small_plan_of, tmp_path):
    """Rates of the fake follow from its times; ours are measured; a row without room has none."""
    (tmp_path / "vllm.py").write_text(FAKE, encoding="utf-8")
    got = run(repo, build_dir, small_plan_of("llama-trained"), PYTHONPATH=str(tmp_path), PATH="/usr/bin:/bin")
    assert got.returncode == 0, got.stderr
    lines = [line.split() for line in got.stdout.splitlines()]
    assert got.stdout.startswith("config, random weights, temperature 0; vLLM 0.0-fake; tok/s\n")
    assert [line[0] for line in lines[2:]] == ["tg64@128x1", "tg64@128x2", "tg64@128x64", "pp192", "start,"]
    for line, most in zip(lines[2:6], (250, 500, 16000, 1920)):  # a busy machine is slower
        assert 0.3 * most < float(line[1]) < 1.1 * most
    assert lines[4][2:] == ["-", "-"] and all(float(line[2]) > 0 for line in (lines[2], lines[3], lines[5]))
    assert abs(float(lines[2][2]) / float(lines[2][1]) - float(lines[2][3])) < 0.02 * float(lines[2][3])


def test_bench_that_fails(repo, build_dir, tmp_path):
    (tmp_path / "vllm.py").write_text("", encoding="utf-8")
    got = run(repo, build_dir, tmp_path / "none.bin", PYTHONPATH=str(tmp_path), PATH="/usr/bin:/bin")
    assert got.returncode == 5 and "atlas bench ends with exit code 5: " in got.stderr
