"""256 streams at a time over HTTP, from the load generator that measures servers (tests/gpu/load.py)."""

from __future__ import annotations

import json
import subprocess
import sys

STREAMS = 256


def test_many_streams_run_together(small_plan_of, start, repo, tmp_path):
    """Each has all of its tokens and none waits for another's end: there is a time at which all of them answer. Texts
    are those of the prompts alone."""
    plan = small_plan_of("llama-trained", slots=STREAMS, decode=f"[{STREAMS}]")
    server = start(plan, "--log", "off", wait=False)
    server.wait_line("listening")
    server.port = int("".join(server.lines).split("127.0.0.1:")[1].split()[0].split('"')[0])
    server.wait_line("ready")
    words = ["--vocab", "2048", "--lowest", "300", "--prompt", "4", "--answer", "16", "--rate", ""]
    words += ["--in-flight", STREAMS, "--requests", STREAMS, "--warm-up", "0", "--text-equals-solo"]
    run = subprocess.run(
        [sys.executable, "tests/gpu/load.py", "--url", f"http://127.0.0.1:{server.port}", "--json", tmp_path / "rows"]
        + [str(w) for w in words],
        cwd=repo,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    [row] = json.loads((tmp_path / "rows").read_text())["rows"]
    assert (row["ended"], row["errors"]) == (STREAMS, 0) and "0 of 16 texts differ" in run.stdout
    assert row["steady_tokens_s"]
    assert server.metric("generation_tokens_total") == 16 * (STREAMS + 16)
    assert server.metric("shed_total") == server.metric("requests_running") == 0
    assert server.stop() == 0
