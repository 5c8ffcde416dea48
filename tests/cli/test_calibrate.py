"""`atlasc calibrate` and `atlas calibrate`: scales of a quantised KV cache, and what the cache costs with them."""

from __future__ import annotations

import pathlib
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
from container import decode, read_safetensors  # noqa: E402

FIXTURE = pathlib.Path(__file__).resolve().parents[1] / "fixtures" / "llama-trained"  # four layers, one kv head of 64
SMALL = "[runtime]\nslots = 1\nmax_context = 512\n[phases]\nprefill = [16]\ndecode = [1]\n"


@pytest.fixture
def model(tmp_path):
    folder = tmp_path / "m"
    shutil.copytree(FIXTURE, folder)
    (folder / "MODEL.toml").unlink(missing_ok=True)
    return folder


def kept(text, folder):
    (folder / "MODEL.toml").write_text(SMALL + text)


def test_scales_of_a_text(atlasc, atlas, model, tmp_path):
    """Both commands give the same bytes, twice; MODEL.toml may already ask for what is still to be measured."""
    kept('[kv]\ndtype = "fp8"\nscales = "s.safetensors"\n', model)
    text, scales = FIXTURE / "heldout.txt", model / "s.safetensors"
    done = atlasc("calibrate", model, "--text", text, "-o", scales, "-q")
    assert done.returncode == 0 and done.stdout == "", done.stderr
    first = scales.read_bytes()
    found = load_file(scales)
    assert sorted(found) == sorted(
        f"model.layers.{n}.self_attn.{s}_scale" for n in range(4) for s in ("k", "v", "rotated_k")
    )
    assert all(a.dtype == np.float32 and a.shape == (1,) and 1e-4 < a[0] < 1 for a in found.values())
    assert atlasc("calibrate", model, "--text", text, "-o", scales, "-q").returncode == 0
    assert scales.read_bytes() == first
    assert sorted(p.name for p in model.iterdir() if "plan" in p.name) == [], "the plan it made is gone"
    done = atlasc(model, "-o", tmp_path / "p.bin", "--target", "none")
    assert done.returncode == 0 and "A0610" not in done.stderr, done.stderr


def test_of_weights_that_are_quantised_now(atlasc, model):
    """[quant] of MODEL.toml holds: these are the keys and values that the plan will make, near the others."""
    found = []
    for more in "", '[quant]\n"model.layers.*" = "nvfp4"\n':
        kept(more, model)
        run = atlasc("calibrate", model, "--text", FIXTURE / "heldout.txt", "-o", model / "s.safetensors", "-q")
        assert run.returncode == 0, run.stderr
        found.append(load_file(model / "s.safetensors"))
    assert all(0.7 < found[1][name][0] / found[0][name][0] < 1.4 for name in found[0])
    assert any(found[1][name][0] != found[0][name][0] for name in found[0])


@pytest.mark.parametrize("rotate", ["true", "false"])
def test_the_file_serves_keys_rotated_or_not(atlasc, model, tmp_path, rotate):
    """Whatever MODEL.toml said of rotation, and of caches, while the text was read."""
    scales, found = model / "s.safetensors", []
    for line in ("", '[kv]\ndtype = "nvfp4"\n', f'[kv]\ndtype = "fp8"\nrotate = {rotate}\nscales = "s.safetensors"\n'):
        kept(line, model)
        assert atlasc("calibrate", model, "--text", FIXTURE / "heldout.txt", "-o", scales, "-q").returncode == 0
        found.append(scales.read_bytes())
    assert found[0] == found[1] == found[2]
    done = atlasc(model, "-o", tmp_path / "p.bin", "--target", "none")
    assert done.returncode == 0 and "A06" not in done.stderr, done.stderr


def test_a_name_is_a_name(atlasc, model):
    """Also the one that a plan has where none is given."""
    kept("", model)
    run = atlasc("calibrate", model, "--text", FIXTURE / "heldout.txt", "-o", "plan.bin", "-q", cwd=model)
    assert run.returncode == 0 and len(load_file(model / "plan.bin")) == 12, run.stderr


def measures(pid: int) -> bool:
    """Has the program started `atlas`, which reads the text?"""
    children = pathlib.Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return any(pathlib.Path(f"/proc/{c}/comm").read_text() == "atlas\n" for c in children)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_what_is_interrupted_leaves_nothing(build_dir, model, number):
    kept("", model)
    (model / "long.txt").write_text((FIXTURE / "heldout.txt").read_text() * 50)
    before = {p.name for p in model.iterdir()}
    run = subprocess.Popen(
        [build_dir / "atlasc", "calibrate", model, "--text", model / "long.txt", "-o", model / "s", "-q"],
        preexec_fn=lambda: signal.signal(number, signal.SIG_DFL),
    )  # nohup would have it ignored
    until = time.monotonic() + 60
    while time.monotonic() < until and not measures(run.pid):
        time.sleep(0.01)
    assert {p.name for p in model.iterdir()} == before, "a plan that a kill would leave"
    run.send_signal(number)
    assert run.wait(timeout=60) == (-number if number == signal.SIGHUP else 130)
    assert {p.name for p in model.iterdir()} == before


def test_they_are_the_largest_magnitudes(atlas, atlasc, model, tmp_path):
    """Values and keys of one position of the first layer, which rope does not turn, from the checkpoint, the latter also
    rotated by the matrix as Sylvester made it: their largest over 448, as the file has it."""
    kept("", model)
    plan, scales = tmp_path / "p.bin", tmp_path / "s.safetensors"
    assert atlasc(model, "-o", plan, "--target", "none", "-q").returncode == 0
    (tmp_path / "t.txt").write_text("a")
    assert atlas("calibrate", plan, "-f", tmp_path / "t.txt", "-o", scales, "-q").returncode == 0
    ids = load_file(dump(atlas, plan, "a", tmp_path))["tokens"]
    w = {
        k: decode(raw, dtype, shape) for k, (dtype, shape, raw) in read_safetensors(model / "model.safetensors").items()
    }
    x = w["model.embed_tokens.weight"][ids].astype(np.float64)
    n = x / np.sqrt(np.mean(x * x, -1, keepdims=True) + 1e-5) * w["model.layers.0.input_layernorm.weight"]
    k, v = (n @ w[f"model.layers.0.self_attn.{side}_proj.weight"].T.astype(np.float64) for side in "kv")
    found = load_file(scales)
    for name, made in ("v", v), ("k", k), ("rotated_k", k @ sylvester(k.shape[-1])):
        want = np.abs(made).max()
        assert abs(found[f"model.layers.0.self_attn.{name}_scale"][0] * 448 - want) < 1e-4 * want, name


def sylvester(n):
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.kron(np.array([[1, 1], [1, -1]]), h)
    return h / np.sqrt(n)


def dump(atlas, plan, prompt, folder):
    out = folder / "d.safetensors"
    assert atlas("dump", plan, "-p", prompt, "-o", out, "--device", "cpu", "-q").returncode == 0
    return out


@pytest.mark.parametrize(
    ("dtype", "scaled", "least"),
    [("fp8", False, 0.999), ("fp8", True, 0.999), ("nvfp4", False, 0.99), ("nvfp4", True, 0.99)],
)
def test_logits_of_a_quantised_cache(atlas, atlasc, model, tmp_path, dtype, scaled, least):
    """Cosine of each position's logits with those of a cache in float32, over a context of 512."""
    text = (FIXTURE / "heldout.txt").read_text()[:2000]
    if scaled:
        kept("", model)
        assert (
            atlasc(
                "calibrate", model, "--text", FIXTURE / "heldout.txt", "-o", model / "s.safetensors", "-q"
            ).returncode
            == 0
        )
    logits = []
    for kv in ("bf16", dtype):
        kept(f'[kv]\ndtype = "{kv}"\n' + ('scales = "s.safetensors"\n' if scaled and kv != "bf16" else ""), model)
        plan = tmp_path / f"{kv}.bin"
        done = atlasc(model, "-o", plan, "--target", "none", "-q")
        assert done.returncode == 0, done.stderr
        logits.append(load_file(dump(atlas, plan, text[: 512 * 3], tmp_path))["logits"].astype(np.float64))
    a, b = logits
    assert a.shape[0] > 400
    cosine = np.sum(a * b, -1) / np.sqrt(np.sum(a * a, -1) * np.sum(b * b, -1))
    assert cosine.mean() >= least, cosine.mean()
    assert cosine.min() < 1, "the cache is not quantised at all"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "calibrate needs a model folder, --text FILE and -o FILE"),
        (["-o", "x"], "calibrate needs a model folder, --text FILE and -o FILE"),
        (["--text", "absent.txt", "-o", "x"], "absent.txt: No such file or directory"),
    ],
)
def test_what_is_missing(atlasc, model, words, message):
    done = atlasc("calibrate", model, *words, cwd=model.parent)
    assert done.returncode != 0 and message in done.stderr
    assert not (model.parent / "x").exists() and [p.name for p in model.parent.iterdir()] == ["m"]


def test_a_plan_with_codes_is_refused(atlas, atlasc, model, tmp_path):
    kept('[kv]\ndtype = "fp8"\n', model)
    plan = tmp_path / "p.bin"
    assert atlasc(model, "-o", plan, "--target", "none", "-q").returncode == 0
    done = atlas("calibrate", plan, "-f", FIXTURE / "heldout.txt", "-o", tmp_path / "s")
    assert done.returncode == 4 and done.stderr.endswith(
        "kv.0 is e4m3: scales are measured on a plan with a bf16 KV cache\n"
    ), done.stderr


def test_text_is_of_calibrate(atlasc, model):
    done = atlasc(model, "--text", "x")
    assert done.returncode == 2 and "--text is an option of atlasc calibrate only" in done.stderr
