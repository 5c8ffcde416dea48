"""Sound checkpoints with a few bytes changed: never a crash, and never a plan that computes something else.

Each mutant goes through the compiler up to the graph. Most are refused; a change that leaves the files sound
(another epsilon, another element type of the same size, a key nobody reads) may pass, and then the plan's logits must
be those that the numpy forward pass reads from the same changed files.
"""

import random

import forward
import mkckpt
import numpy as np
import pytest
from container import decode, read_safetensors

RECIPES = mkckpt.recipes()
BASES = ("plain", "shards-two", "qwen3-nested", "mistral", "yarn-mscale")
TOKENS = (b"0", b'"', b"{", b"}", b"-", b"1e9", b"null", b"[", b",", b"true", b"\x00", b"\xff")
COUNT = 90


def mutate(r, raw, limit):
    """One to three small changes within the first `limit` bytes."""
    out = bytearray(raw)
    for _ in range(r.randint(1, 3)):
        at, kind = r.randrange(min(limit, len(out))), r.randrange(6)
        if kind == 0:
            out[at] = r.randrange(256)
        elif kind == 1:
            out[at] ^= 1 << r.randrange(8)
        elif kind == 2:
            del out[at : at + r.randint(1, 8)]
        elif kind == 3:
            out[at:at] = out[at : at + r.randint(1, 30)]
        elif kind == 4:
            out[at:at] = r.choice(TOKENS)
        elif 0x30 <= out[at] <= 0x39:
            out[at] = r.choice(b"0123456789")
    return bytes(out)


def draw(r):
    """(name of the file that was changed, Checkpoint): config.json, the index, or the head of a weight file."""
    checkpoint = mkckpt.build(RECIPES[r.choice(BASES)])
    file = r.choice([f for f in checkpoint.files if f.startswith(("config", "model"))])
    raw = checkpoint.files[file]
    limit = len(raw) if file.endswith(".json") else 8 + int.from_bytes(raw[:8], "little")
    checkpoint.files[file] = mutate(r, raw, limit)
    return file, checkpoint


@pytest.mark.parametrize("part", range(3))
def test_mutants(part, atlasc, atlas, small_plan_of, tmp_path):
    r = random.Random(part)
    passed = refused = 0
    for i in range(COUNT // 3):
        folder = tmp_path / f"{part}-{i}"
        file, checkpoint = draw(r)
        checkpoint.write(folder)
        run = atlasc(folder, "--dry-run", "--stop-after=build-graph", "-q", timeout=60)
        assert run.returncode in (0, 3, 4), (folder, file, run.stderr)
        if run.returncode:
            assert "error[A" in run.stderr
            refused += 1
            continue
        passed += 1
        config = forward.load_config(folder)
        ids = [int(abs(x) * 1000003) % 300 for x in mkckpt.noise(0, "mutants", 40)][: config["max_position_embeddings"]]
        want = forward.forward(config, forward.load_weights(folder), ids)[1]
        out = tmp_path / "out.safetensors"
        tokens = ",".join(map(str, ids))
        run = atlas(
            "dump", small_plan_of(folder, "--target", "none"), "--tokens", tokens, "--device", "cpu", "-o", out, "-q"
        )
        assert run.returncode == 0, (folder, file, run.stderr)
        got = {key: decode(raw, dtype, shape) for key, (dtype, shape, raw) in read_safetensors(out).items()}["logits"]
        if np.all(np.isfinite(want)):
            assert np.max(np.abs(got - want)) < 2e-5 * np.max(np.abs(want)), (folder, file)
    assert refused > passed, "most mutants are broken"
