"""Every recipe of tests/mkckpt through atlasc: verdict, code, exact message, nothing left behind, in a second."""

import os
import pathlib
import resource
import shutil
import sys

import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))
import mkckpt  # noqa: E402

RECIPES = mkckpt.recipes()
HEAVY = "range-alias-many"  # 100,000 tensors: half a second, and minutes with a sanitizer's shadow memory
EXIT = {"A0701": 3}  # no admissible kernel; everything else here is bad input


@pytest.fixture
def checkpoint(tmp_path):
    def make(name):
        try:
            mkckpt.make(name, tmp_path / "m")
        except OSError as e:
            pytest.skip(f"the file system refuses this recipe: {e}")
        return "m"

    return make


def cpu_seconds():
    """Of all programs run so far: unlike the clock it does not count what else the machine does."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def lines_of(run, severity):
    return [line for line in run.stderr.splitlines() if f": {severity}[A" in line]


def check_message(knob, lines, severity):
    assert knob["code"] and knob["message"], "the recipe says not what the compiler must say"
    message = knob["message"].replace("{dir}", "m")
    assert any(message in line and f": {severity}[{knob['code']}]: " in line for line in lines), (message, lines)


@pytest.mark.parametrize("name", [n for n, k in RECIPES.items() if k["expect"] == "refuse" and k["topic"] != "values"])
def test_refused(name, checkpoint, atlasc, tmp_path):
    knob = RECIPES[name]
    if name == HEAVY and "asan" in str(atlasc):
        pytest.skip("too heavy under sanitizers")
    checkpoint(name)
    before, start = sorted(os.listdir(tmp_path)), cpu_seconds()
    run = atlasc("m", "-o", "m.plan", cwd=tmp_path, timeout=300)
    spent = cpu_seconds() - start
    assert run.returncode == EXIT.get(knob["code"], 4), run.stderr
    check_message(knob, lines_of(run, "error"), "error")
    assert run.stdout == ""
    assert sorted(os.listdir(tmp_path)) == before, "something was left behind"
    assert spent < (20 if "asan" in str(atlasc) else 4 if name == HEAVY else 1.5), f"{spent:.1f} s"


@pytest.mark.parametrize("name", [n for n, k in RECIPES.items() if k["expect"] != "refuse" and k["topic"] != "values"])
def test_accepted(name, checkpoint, atlasc, tmp_path):
    knob = RECIPES[name]
    checkpoint(name)
    run = atlasc("m", "--dry-run", "--stop-after=build-graph", cwd=tmp_path)
    assert run.returncode == 0, run.stderr
    assert not lines_of(run, "error")
    if knob["expect"] == "note":
        check_message(knob, lines_of(run, "note"), "note")


@pytest.mark.parametrize("name", [n for n, k in RECIPES.items() if k["topic"] == "values"])
def test_values_are_looked_at(name, checkpoint, atlasc, tmp_path):
    """While they are copied, whatever the target is."""
    knob = RECIPES[name]
    checkpoint(name)
    run = atlasc("m", "-o", "m.plan", "--target", "none", cwd=tmp_path)
    refused = knob["expect"] == "refuse"
    assert run.returncode == (EXIT.get(knob["code"], 4) if refused else 0), run.stderr
    assert sorted(os.listdir(tmp_path)) == (["m"] if refused else ["m", "m.plan"])
    if knob["expect"] != "ok":
        severity = "error" if refused else "note"
        check_message(knob, lines_of(run, severity), severity)


def test_every_mistake_in_one_go(checkpoint, atlasc, tmp_path):
    """Mistakes of all files and all kinds are listed by one run."""
    folder = tmp_path / checkpoint("several-absent")
    run = atlasc("m", "--dry-run", cwd=tmp_path)
    for tensor in ("model.norm.weight", "model.layers.0.mlp.up_proj.weight", "model.layers.1.self_attn.k_proj.weight"):
        assert any(f"tensor {tensor} is missing" in line for line in lines_of(run, "error"))
    config = (folder / "config.json").read_text()
    config = config.replace('"hidden_size": 64', '"hidden_size": 0').replace('"silu"', '"relu"')
    (folder / "config.json").write_text(config)
    (folder / "MODEL.toml").write_text("[runtime]\nslots = 0\ncolour = 1\n")
    raw = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(raw + b"\0")
    codes = {line.split("error[")[1][:5] for line in lines_of(atlasc("m", "--dry-run", cwd=tmp_path), "error")}
    assert {"A0203", "A0206", "A0302", "A0303", "A0404"} <= codes


def test_refusal_takes_little_memory(checkpoint, atlasc, tmp_path):
    """A claimed 10 TB and a claimed header of 2^64 - 1 bytes cost nothing: 64 MB of data segment are enough."""
    if "asan" in str(atlasc):
        pytest.skip("the sanitizers need more")
    for name in ("weights-sparse", "prefix-2e64", "config-huge", "name-long", "config-deep"):
        shutil.rmtree(tmp_path / "m", ignore_errors=True)
        checkpoint(name)
        run = atlasc("m", "--dry-run", cwd=tmp_path,
                     preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (64 << 20, 64 << 20)))  # fmt: skip
        assert run.returncode == 4 and lines_of(run, "error"), (name, run.stderr)


def test_unreadable_file(checkpoint, atlasc, tmp_path):
    folder = tmp_path / checkpoint("plain")
    (folder / "config.json").unlink()
    (folder / "config.json").symlink_to("/proc/self/mem")  # regular, and reading it fails
    run = atlasc("m", "--dry-run", cwd=tmp_path)
    assert run.returncode == 4 and lines_of(run, "error"), run.stderr
