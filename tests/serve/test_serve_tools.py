"""Load generators that others wrote, against `atlas serve` on the reference device. Long: each is installed into the
build folder first, from PyPI."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

TEMPLATE = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}"
REQUESTS, ANSWER = 16, 8


@pytest.fixture(scope="module")
def talking(repo, small_plan_of, tmp_path_factory):
    """(checkpoint with a chat template, its plan of four slots)"""
    folder = tmp_path_factory.mktemp("talking") / "llama-trained"
    subprocess.run(["cp", "-r", repo / "tests/fixtures/llama-trained", folder], check=True)
    (folder / "chat_template.jinja").write_text(TEMPLATE)
    return folder, small_plan_of(folder, slots=4, decode="[4]")


def installed(build_dir, name):
    """The program of that name, of an environment of its own that is kept between runs."""
    folder = build_dir.resolve() / "load-tools" / name.split("=")[0]
    program = folder / "bin" / name.split("=")[0]
    if not program.exists():
        subprocess.run([sys.executable, "-m", "venv", folder], check=True)
        subprocess.run([folder / "bin/pip", "install", "-q", name], check=True, timeout=1800)
    return program


@pytest.mark.long
@pytest.mark.parametrize("endpoint", ["completions", "chat"])
def test_aiperf(build_dir, talking, start, tmp_path, endpoint):
    """Its own figures: no error, every answer of the length it asked for by the server's count, and /metrics read."""
    aiperf = installed(build_dir, "aiperf==0.13.0")
    folder, plan = talking
    server = start(plan, "--name", "tiny")
    words = ["profile", "-m", "tiny", "--url", f"http://127.0.0.1:{server.port}", "--endpoint-type", endpoint]
    words += ["--streaming", "--tokenizer", folder, "--concurrency", 4, "--request-count", REQUESTS, "--isl", 24]
    words += ["--osl", ANSWER, "--extra-inputs", "ignore_eos:true", "--ui", "none", "--artifact-dir", tmp_path]
    env = {k: v for k, v in os.environ.items() if not k.startswith("HF_")}  # offline it takes no folder
    run = subprocess.run(
        [aiperf, *map(str, words)], capture_output=True, text=True, check=False, timeout=600, cwd=tmp_path, env=env
    )
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    got = json.loads((tmp_path / "profile_export_aiperf.json").read_text())
    assert got["request_count"]["avg"] == REQUESTS and got["error_summary"] == []
    assert got["usage_completion_tokens"]["min"] == got["usage_completion_tokens"]["max"] == ANSWER
    assert got["time_to_first_token"]["avg"] > 0 and got["inter_token_latency"]["avg"] > 0
    scraped = (tmp_path / "server_metrics_export.json").read_text()
    assert "atlas_step_seconds" in scraped and "atlas_time_to_first_token_seconds" in scraped
    assert sum(r["status"] == 200 and r["completion_tokens"] == ANSWER for r in server.requests()) == REQUESTS
    assert server.stop() == 0
