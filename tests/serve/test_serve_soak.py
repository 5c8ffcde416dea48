"""Soak (soak.py): seconds of it, and with `make test-long` minutes; ATLAS_SOAK_MINUTES=60 is an hour."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys

import pytest
import soak


@pytest.fixture(scope="module")
def plan(repo, small_plan_of, tmp_path_factory):
    """A model with experts, recurrent states and a head that drafts, which calls tools; room for few prefixes."""
    folder = tmp_path_factory.mktemp("soak") / "qwen3_5_moe-trained"
    shutil.copytree(repo / "tests" / "fixtures" / "qwen3_5_moe-trained", folder)
    (folder / "chat_template.jinja").write_text(soak.TEMPLATE)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 1024}))
    return small_plan_of(
        folder, "--target", "none", slots=8, decode="[8]", prefill="[128]", pool_tokens=6144, snapshots=8
    )


@pytest.mark.parametrize(
    "words",
    [
        pytest.param(["--seconds", 4, "--plain", 1, "--words", 6, "--clients", 12, "--least", 70], id="seconds"),
        pytest.param(
            ["--seconds", 60 * float(os.environ.get("ATLAS_SOAK_MINUTES", "3"))], id="minutes", marks=pytest.mark.long
        ),
    ],
)
def test_soak(repo, build_dir, plan, words):
    command = [sys.executable, repo / "tests" / "serve" / "soak.py", plan, "--atlas", build_dir / "atlas", *words]
    if "asan" in build_dir.name:
        command.append("--no-memory")
    run = subprocess.run(list(map(str, command)), capture_output=True, text=True)
    assert run.returncode == 0 and "faults: 0" in run.stdout, run.stdout + run.stderr


def test_a_soak_sees_faults(capsys):
    """Its judgements of answers that no server should give."""
    s = soak.Soak(None)
    schema = soak.Case("/v1/completions", {}, schema=soak.SCHEMAS[0], forced=True)
    call = soak.Case("/v1/messages", {}, schema=soak.TOOLS, forced=True)
    for case, said, faults in (
        (schema, ('{"king": "Saul", "years": 7}', [], "stop", 9), 0),
        (schema, ('{"king": "Saul", "years": -7}', [], "stop", 9), 1),
        (schema, ('{"king": "Saul"', [], "length", 9), 1),
        (call, ("", [["now", "{}"]], "tool_use", 9), 0),
        (call, ("", [["now", '{"utc": 3}']], "tool_use", 9), 1),
        (call, ("", [], "end_turn", 9), 1),
    ):
        before = s.seen["faults"]
        s.check(case, said)
        assert s.seen["faults"] - before == faults, said
    capsys.readouterr()
