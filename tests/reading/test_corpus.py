"""Inputs that fuzzing starts from and those that once broke something (scripts/fuzz.sh), and configs with odd values:
refused or read, never a crash."""

import json
import random
import shutil

import pytest
from readers import Reader

ODD = [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 1e308, 5e-324, 0.0, -0.0, True, False, None, "", "64", "x" * 5000, [], {}, [1, 2],
       [[]], {"a": 1}, ["full_attention"], "NaN", {"__float__": "NaN"}, {"rope_type": "yarn", "factor": 1e300}]  # fmt: skip


@pytest.mark.parametrize("mode", ["toml", "json"])
def test_documents(repo, build_dir, mode):
    files = sorted((repo / "tests" / "fuzz" / mode).iterdir())
    assert files
    results = Reader(build_dir, mode).documents([f.read_bytes() for f in files])
    for file, got in zip(files, results, strict=True):
        if file.name.startswith("sound"):
            assert "value" in got, file


def test_containers(repo, build_dir, tmp_path):
    files = sorted((repo / "tests" / "fuzz" / "safetensors").iterdir())
    folders = []
    for file in files:
        folders.append(tmp_path / file.name)
        folders[-1].mkdir()
        shutil.copy(file, folders[-1] / "model.safetensors")
    for file, got in zip(files, Reader(build_dir, "weights").folders(folders), strict=True):
        if file.name.startswith("sound"):
            assert "tensors" in got, (file, got)


def test_odd_config_values(repo, atlasc, tmp_path):
    """Every exit is 0 or 4, and a refusal says why with a place."""
    rng = random.Random(50)
    source = repo / "tests" / "fixtures" / "llama"
    folder = tmp_path / "m"
    folder.mkdir()
    for name in ("model.safetensors", "tokenizer.json", "tokenizer_config.json"):
        shutil.copy(source / name, folder)
    sound = json.loads((source / "config.json").read_text())
    keys = [
        *sound,
        "rope_parameters",
        "layer_types",
        "sliding_window",
        "text_config",
        "auto_map",
        "partial_rotary_factor",
    ]
    refused = 0
    for _ in range(150):
        config = dict(sound)
        for key in rng.sample(keys, rng.randint(1, 2)):
            config[key] = rng.choice(ODD)
        (folder / "config.json").write_text(json.dumps(config))
        generation = (
            {rng.choice(["top_k", "eos_token_id", "temperature"]): rng.choice(ODD)} if rng.random() < 0.3 else {}
        )
        (folder / "generation_config.json").write_text(json.dumps(generation))
        run = atlasc("m", "--dry-run", "--stop-after=build-graph", cwd=tmp_path)
        assert run.returncode in (0, 4), (config, run.stderr)
        if run.returncode == 4:
            assert any(line.startswith("m/") and "error[A" in line for line in run.stderr.splitlines()), (
                config,
                run.stderr,
            )
            refused += 1
    assert 50 < refused < 150
