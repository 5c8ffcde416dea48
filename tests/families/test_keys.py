"""Every key of a family's class with other values: refused, or the logits that transformers makes of it. flip_keys.py wrote
down which, NAME/keys.json."""

from __future__ import annotations

import json
import pathlib
import random

import numpy as np
import pytest
from safetensors.numpy import load_file

HERE = pathlib.Path(__file__).resolve().parent
ROWS = {path.parent.name: json.loads(path.read_text()) for path in sorted(HERE.glob("*/keys.json"))}
PROMPT, TOLERANCE, FEW = 41, 1e-4, 8


def said(atlasc, atlas, folder, name, row):
    """What is wrong with the row; None: nothing."""
    config = json.loads((HERE / name / "config.json").read_text())
    text = config.get("text_config", config)
    if row["value"] == "absent":
        del text[row["key"]]
    elif row["key"]:
        text[row["key"]] = row["value"]
    if row["key"] == "rope_parameters":
        for old in ("rope_theta", "rope_scaling", "partial_rotary_factor"):
            text.pop(old, None)
    (folder / "config.json").write_text(json.dumps(config))
    done = atlasc(folder, "--target", "none", "-o", folder / "p.bin", "-q", "--context", "48")
    if "refused" in row:
        good = done.returncode == 4 and f"error[{row['refused']}]" in done.stderr
        return None if good else f"exit {done.returncode}, not {row['refused']}: {done.stderr[-300:]}"
    if done.returncode:
        return done.stderr[-300:]
    ids = ",".join(str(3 + 7 * i % (config_vocab(name) // 2 - 5)) for i in range(PROMPT))
    done = atlas("dump", folder / "p.bin", "--tokens", ids, "--device", "cpu", "-o", folder / "d.out", "-q")
    if done.returncode:
        return done.stderr[-300:]
    got = load_file(folder / "d.out")["logits"]
    error = np.max(np.abs(got[-1, : len(row["logits"])] - row["logits"])) / np.max(np.abs(got))
    return None if error < TOLERANCE else f"error {error:.2g}"


def config_vocab(name):
    config = json.loads((HERE / name / "config.json").read_text())
    return config.get("text_config", config)["vocab_size"]


def check(atlasc, atlas, folder, name, rows):
    (folder / "model.safetensors").symlink_to(HERE / name / "model.safetensors")
    wrong = {f"{row['key']} = {json.dumps(row['value'])}": said(atlasc, atlas, folder, name, row) for row in rows}
    assert not {k: v for k, v in wrong.items() if v}


@pytest.mark.parametrize("name", ROWS)
def test_some_keys(atlasc, atlas, tmp_path, name):
    check(atlasc, atlas, tmp_path, name, random.Random(name).sample(ROWS[name], FEW))


@pytest.mark.long
@pytest.mark.parametrize("name", ROWS)
def test_every_key(atlasc, atlas, tmp_path, name):
    check(atlasc, atlas, tmp_path, name, ROWS[name])


def test_there_are_many():
    """Rows that are refused, and in folders whose weights make_goldens.py makes again, rows that transformers computes
    otherwise than the folder's config."""
    n_followed = 0
    for name, rows in ROWS.items():
        base = next((row["logits"] for row in rows if row["key"] is None), None)
        others = [row for row in rows if "logits" in row and row["logits"] != base]
        n_followed += len(others)
        assert sum("refused" in row for row in rows) >= 10 and (base is None or len(others) >= 3), name
    assert {"gpt_oss", "gemma4", "llama4"} <= set(ROWS) and n_followed >= 30
