"""Windows of families: prompts that end around the edge, in one step and in steps of four rows, against transformers; and
that the goldens see where the edge is."""

from __future__ import annotations

import json
import pathlib

import numpy as np
import pytest
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
NAMES = ("exaone4", "gemma3", "laguna", "llama4", "olmo3", "phi3", "step3p5")
TOLERANCE = 1e-5  # as test_families.py has it
STEPS = {"whole": "[64]", "chunked": "[4]"}


def text_of(name):
    config = json.loads((HERE / name / "config.json").read_text())
    return config.get("text_config", config)


def window_of(text):
    """The key that has it: of a sliding window, or of chunks."""
    return "attention_chunk_size" if "attention_chunk_size" in text else "sliding_window"


def compiled(atlasc, folder, plan, steps):
    """A plan whose prompts go through steps of so many rows."""
    options = plan.with_suffix(".toml")
    options.write_text(f"[runtime]\nmax_context = 64\n[phases]\nprefill = {STEPS[steps]}\n")
    done = atlasc(folder, "--model", options, "--target", "none", "-o", plan, "-q")
    assert done.returncode == 0, done.stderr


def logits_of(atlas, plan, ids, to):
    done = atlas("dump", plan, "--tokens", ",".join(map(str, ids)), "--device", "cpu", "-o", to, "-q")
    assert done.returncode == 0, done.stderr
    return load_file(to)["logits"]


@pytest.mark.parametrize("steps", STEPS)
@pytest.mark.parametrize("name", NAMES)
def test_prompts_around_the_window(atlasc, atlas, tmp_path, name, steps):
    """Row t of a prompt's logits does not know the rows after it, so one golden is that of all shorter prompts."""
    text, want = text_of(name), load_file(HERE / name / "golden.safetensors")
    w = text[window_of(text)]
    compiled(atlasc, HERE / name, tmp_path / "p.bin", steps)
    assert 2 * w + 3 < len(want["prompt"])
    for n in (w - 1, w, w + 1, 2 * w + 3):
        got = logits_of(atlas, tmp_path / "p.bin", want["prompt"][:n], tmp_path / "d.safetensors")
        rows = want["logits"][:n]
        assert got.shape == rows.shape
        assert np.max(np.abs(got - rows)) < TOLERANCE * np.max(np.abs(want["logits"])), (n, steps)


@pytest.mark.parametrize("by", [-1, 1])
@pytest.mark.parametrize("name", NAMES)
def test_another_edge_shows(atlasc, atlas, tmp_path, name, by):
    """A window that is a position shorter or longer: rows before its edge are the same, that on it is another."""
    want, folder = load_file(HERE / name / "golden.safetensors"), tmp_path / "m"
    config = json.loads((HERE / name / "config.json").read_text())
    text = config.get("text_config", config)
    w = text[window_of(text)]
    text[window_of(text)] = w + by
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").symlink_to(HERE / name / "model.safetensors")
    compiled(atlasc, folder, tmp_path / "p.bin", "whole")
    got = logits_of(atlas, tmp_path / "p.bin", want["prompt"][: w + 1], tmp_path / "d.safetensors")
    error = np.max(np.abs(got - want["logits"][: w + 1]), axis=1) / np.max(np.abs(want["logits"]))
    first = w - 1 if by < 0 else w  # position w - 1 sees w positions
    assert np.max(error[:first]) < TOLERANCE and error[first] > 100 * TOLERANCE
