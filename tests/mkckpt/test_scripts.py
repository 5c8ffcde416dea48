"""The scripts that make checkpoints, as far as they run without a GPU and without a download."""

import json
import pathlib
import subprocess
import sys

import numpy as np
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "scripts"))

import smollm2_checkpoint  # noqa: E402
import train_mtp  # noqa: E402
import train_tiny  # noqa: E402


def test_q_and_k_rows_come_back_in_halves():
    """The pair order of GGUF is element i of the first half, then element i of the second half, head by head."""
    n_heads, d, columns = 3, 8, 5
    w = np.arange(n_heads * d * columns, dtype=np.float32).reshape(n_heads * d, columns)
    paired = np.concatenate(
        [w[head * d + half * d // 2 + i][None] for head in range(n_heads) for i in range(d // 2) for half in range(2)]
    )
    assert not np.array_equal(paired, w)
    assert np.array_equal(smollm2_checkpoint.halves_apart(paired, n_heads), w)


def test_every_gguf_name_has_a_hugging_face_name():
    assert smollm2_checkpoint.hf_name("blk.29.attn_q.weight") == "model.layers.29.self_attn.q_proj.weight"
    assert smollm2_checkpoint.hf_name("token_embd.weight") == "model.embed_tokens.weight"
    with pytest.raises(KeyError):
        smollm2_checkpoint.hf_name("blk.0.attn_sinks.weight")


def test_the_held_out_book_is_not_trained_on(tmp_path):
    text = tmp_path / "text"
    text.write_text("# Jdgs\nA b.\nC d.\n\nE f.\n# Ruth\nNow it came.\n\nAnd Naomi.\n# 1Sm\nG h.\n")
    kept, held = train_tiny.read_chapters(text)
    assert kept == ["A b.\nC d.\n", "E f.\n", "G h.\n"]
    assert held == ["Now it came.\n", "And Naomi.\n"]
    text.write_text("# Jdgs\nA b.\n")
    with pytest.raises(SystemExit, match="Ruth"):
        train_tiny.read_chapters(text)


def test_trained_fixture_has_the_shape_of_its_script(tmp_path):
    train_tiny.write_config(tmp_path)
    folder = ROOT / "tests" / "fixtures" / "llama-trained"
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert (folder / file).read_bytes() == (tmp_path / file).read_bytes()
    assert len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) == train_tiny.VOCAB
    assert len((folder / "heldout.txt").read_bytes()) <= train_tiny.HELDOUT_BYTES


def test_trained_fixture_with_a_head_has_the_shape_of_its_script(tmp_path):
    train_mtp.write_config(tmp_path)
    folder = ROOT / "tests" / "fixtures" / "qwen3_5_moe-trained"
    for file in ("config.json", "generation_config.json", "tokenizer_config.json"):
        assert (folder / file).read_bytes() == (tmp_path / file).read_bytes()
    assert len(json.loads((folder / "tokenizer.json").read_text())["model"]["vocab"]) == train_mtp.VOCAB
    assert sum(p.stat().st_size for p in folder.iterdir()) < 4 << 20


def test_recipes_can_be_listed_and_made(tmp_path):
    script = ROOT / "tests" / "mkckpt" / "mkckpt.py"
    run = subprocess.run([sys.executable, script, "--list"], capture_output=True, text=True, check=True)
    assert "hidden-zero" in run.stdout
    subprocess.run([sys.executable, script, "plain", tmp_path / "m"], check=True)
    assert (tmp_path / "m" / "model.safetensors").exists()
    command = [sys.executable, script, "no-such", tmp_path / "n"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 1 and "no such recipe" in run.stderr
