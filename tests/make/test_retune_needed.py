"""scripts/retune_needed.py: which templates lack times, from made-up files of times beside the build's own templates."""

from __future__ import annotations

import json
import re
import subprocess
import sys

import pytest


@pytest.fixture(scope="module")
def hashes(atlasc) -> dict[str, str]:
    """SHA-256 of every template that serves sm_90a, by its name."""
    listed = json.loads(atlasc("kernels", "--json").stdout)["kernels"]
    return {t["name"]: t["sha256"] for t in listed if "sm_90a" in t["targets"]}


@pytest.fixture
def needed(repo, build_dir, tmp_path):
    """needed(hashes, *options): exit code and stdout where one card was timed with templates of these hashes."""

    def run(timed: dict[str, str], *options: str) -> tuple[int, str]:
        rows = "".join(f'{name} = "{value}"\n' for name, value in timed.items())
        (tmp_path / "sm_90a.any.toml").write_text(f'[card]\ntarget = "sm_90a"\nname = "Any Card"\n[templates]\n{rows}')
        got = subprocess.run(
            [sys.executable, repo / "scripts/retune_needed.py", build_dir, "--tuning", tmp_path, *options],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        return got.returncode, got.stdout + got.stderr

    return run


def test_all_timed(needed, hashes):
    code, output = needed(hashes, "--strict")
    assert code == 0
    assert output.splitlines()[:4] == [
        f"sm_90a.any.toml (Any Card): {len(hashes)} templates serve sm_90a",
        "  0 changed after they were timed",
        "  0 never timed on this card",
        "  0 timed, but no longer there for this target",
    ]
    assert "sm_80: no card was timed\n" in output and "sm_90a: no card" not in output


def test_changed_missing_and_gone(needed, hashes):
    timed = {name: value for name, value in hashes.items() if name != "acquire"}
    timed |= {"attn_step": "0" * 64, "gone": "1" * 64}
    for options, wanted in (((), 0), (("--strict",), 1)):
        code, output = needed(timed, *options)
        assert code == wanted
        assert (
            "  1 changed after they were timed: attn_step\n  1 never timed on this card: acquire\n"
            "  1 timed, but no longer there for this target: gone\n"
        ) in output
        assert output.endswith("to measure them again: docs/tuning.md\n")


def test_agrees_with_the_notes_of_a_compile(repo, build_dir, atlasc, tmp_path):
    """What it calls changed is what a compile by the same times notes as A0704, where the shape at hand uses it."""
    text = (repo / "kernels/tuning/sm_90a.h100.toml").read_text()
    times = tmp_path / "sm_90a.h100.toml"
    for names in ([], ["acquire", "attn_step", "stream_norm"]):
        for name in names:
            text = re.sub(rf'^{name} = "\w{{64}}"', f'{name} = "{"0" * 64}"', text, flags=re.M)
        times.write_text(text)
        got = subprocess.run(
            [sys.executable, repo / "scripts/retune_needed.py", build_dir, "--tuning", tmp_path],
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        changed = re.search(r"^  \d+ changed after they were timed:? ?(.*)$", got, re.M)[1].split()
        noted = atlasc(
            "tests/gpu/shapes/llama-3.2-1b.json",
            "--random-weights",
            "--stop-after",
            "pick-kernels",
            "--tuning",
            times,
            "-o",
            tmp_path / "plan.bin",
        ).stderr
        assert sorted(re.findall(r"note\[A0704\]: the times of (\w+) were", noted)) == changed
        assert set(names) <= set(changed)


@pytest.mark.parametrize("text", ["[card", "[card]\nname = 'x'\n"])
def test_a_file_that_cannot_be_read(repo, build_dir, tmp_path, text):
    (tmp_path / "bad.toml").write_text(text)
    got = subprocess.run(
        [sys.executable, repo / "scripts/retune_needed.py", build_dir, "--tuning", tmp_path],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert got.returncode == 5 and got.stderr.startswith("retune_needed.py: ")
