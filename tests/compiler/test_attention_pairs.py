"""Attention of every (head dim, KV dtype) pair on every target: a prompt, a decode step and a verify step each have a
kernel, and it reads the cache that was asked for. Heads of 512 need a block with much shared memory: where it has less,
the plain kernel takes them."""

import pathlib
import re
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import mkckpt  # noqa: E402

TARGETS = ("sm_80", "sm_89", "sm_90a", "sm_100a", "sm_120a", "sm_121a")
STORED = {"bf16": "bf16", "fp8": "e4m3", "nvfp4": "e2m1"}
OPS = ("attention", "attention_step", "attention_verify")
MUCH_ROOM = ("sm_90a", "sm_100a")


@pytest.fixture(scope="module", params=[32, 64, 80, 96, 128, 256, 512])
def model(request, tmp_path_factory):
    """Its heads' size, and a folder: two layers, the second with attention, and a head that drafts."""
    folder = tmp_path_factory.mktemp("m")
    mkckpt.build(
        {
            **mkckpt.DEFAULTS,
            "family": "qwen3_5",
            "heads": 8,
            "kv_heads": 2,
            "head_dim": request.param,
            "prefix": "model.language_model.",
            "delta": {**mkckpt.DELTA, "mtp": 1},
        }
    ).write(folder)
    return request.param, folder


@pytest.mark.parametrize("kv", STORED)
def test_every_pair_has_kernels(atlasc, model, tmp_path, kv):
    head_dim, folder = model
    (tmp_path / "it.toml").write_text(
        f'[runtime]\nslots = 4\n[phases]\nprefill = [16, 256]\ndecode = [1, 4]\n[speculate]\nrows = 3\n[kv]\ndtype = "{kv}"\n'
    )
    for target in TARGETS:
        run = atlasc(
            folder, "--model", tmp_path / "it.toml", "--target", target, "--stop-after", "pick-kernels", "-d", "k"
        )
        assert run.returncode == 0, run.stderr
        for op in OPS if head_dim < 512 or target in MUCH_ROOM else ("attention_rows",):
            launches = re.findall(rf"^.*\b{op}\b.*\bkv=kv\.1\[[0-9,]*{head_dim}\](\w+)", run.stdout, re.M)
            assert launches and set(launches) == {STORED[kv]}, (target, op)
