"""Files that other tools wrote (tests/fixtures/written-by-*): what this folder writes in their place is the same but for
the numbers, and the compiler takes the tools' own files without a word of disagreement.

That layers and logits are those of `transformers` on the dequantised weights is tested where all goldens are
(tests/cpu/test_golden.py).
"""

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "scripts"))
import mkckpt  # noqa: E402
import quant  # noqa: E402
from container import read_safetensors  # noqa: E402
from quantise_with_tools import IMITATED, WRITERS, knob_of  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parent.parent / "fixtures"
CHOICES = ("scale_dtype", "zp_dtype")  # that newer versions tell, null or the one there is


def config_of(name):
    return json.loads((FIXTURES / name / "config.json").read_text())["quantization_config"]


def test_every_folder_has_its_imitation():
    assert {p.name for p in FIXTURES.glob("written-by-*")} == set(IMITATED) == set(WRITERS)


@pytest.mark.parametrize("name", IMITATED)
def test_names_types_and_shapes(name):
    theirs = read_safetensors(FIXTURES / name / "model.safetensors")
    ours = {t.name: (t.dtype, tuple(t.shape)) for t in mkckpt.make_tensors(knob_of(name))}
    assert ours == {n: (dtype, tuple(shape)) for n, (dtype, shape, _) in theirs.items()}


@pytest.mark.parametrize("name", [n for n in IMITATED if "modelopt" in n])
def test_modelopt_configs(name):
    knob = knob_of(name)
    modules = [n.removesuffix(".weight") for n, shape, _, _ in mkckpt.tensor_plan(knob) if len(shape) == 2]
    outer, file = quant.configs(quant.full_knob(knob["quant"]), modules)
    assert file == json.loads((FIXTURES / name / "hf_quant_config.json").read_text())
    assert outer == config_of(name)


@pytest.mark.parametrize("name", [n for n in IMITATED if "llmcompressor" in n])
def test_compressed_tensors_configs(name):
    theirs, ours = config_of(name), quant.ct_config(quant.full_knob(knob_of(name)["quant"]))
    groups = theirs["config_groups"]
    for key, group in ours["config_groups"].items():
        weights = {k: v for k, v in groups[key]["weights"].items() if k not in CHOICES}
        assert group["weights"] == weights and group["format"] == groups[key]["format"]
        assert group.keys() == groups[key].keys()
    assert theirs.keys() == ours.keys() and groups.keys() == ours["config_groups"].keys()
    assert {**ours, "config_groups": 0, "ignore": 0, "version": 0} == {
        **theirs,
        "config_groups": 0,
        "ignore": 0,
        "version": 0,
    }


def test_transformers_config():
    ours, theirs = (
        quant.fp8_config(quant.full_knob(knob_of("written-by-transformers-fp8")["quant"])),
        config_of("written-by-transformers-fp8"),
    )
    shared = {"activation_scheme", "quant_method", "weight_block_size"}
    assert {k: ours[k] for k in shared} == {k: theirs[k] for k in shared}


@pytest.mark.parametrize("name", IMITATED)
def test_the_compiler_reads_them(name, atlasc):
    """To the end without kernels, and to the choice of kernels for a GPU. That scales of activations, and those of a cache
    that MODEL.toml does not ask for, are not used is told; nothing else is."""
    for words in (["--target", "none"], ["--target", "sm_90a", "--stop-after=pick-kernels"]):
        run = atlasc(FIXTURES / name, "--dry-run", *words)
        assert run.returncode == 0, run.stderr
        assert set(re.findall(r"\b(?:note|warning|error)\[(\w+)\]", run.stderr)) <= {"A0607"}, run.stderr


@pytest.mark.parametrize("name", IMITATED)
def test_products_are_what_the_layouts_mean(name, build_dir):
    tensors = read_safetensors(FIXTURES / name / "model.safetensors")
    coded = quant.coded_modules(tensors)
    run = subprocess.run([build_dir / "tests" / "productdump", FIXTURES / name], capture_output=True, timeout=120)
    assert run.returncode == 0, run.stderr.decode()
    at, seen = 0, set()
    while at < len(run.stdout):
        end = run.stdout.index(b"\n", at)
        weight, n, k = run.stdout[at:end].decode().split()
        n, k = int(n), int(k)
        module = weight.rpartition(".")[0]
        w = np.frombuffer(run.stdout[end + 1 : end + 1 + 4 * n * k], "<f4").reshape(k, n).T
        at = end + 1 + 4 * n * k
        assert np.array_equal(w, quant.dequantise(module, tensors, quant.block_of(FIXTURES / name))), weight
        seen.add(module)
    assert coded and set(coded) <= seen


def test_scales_of_the_cache_are_found(build_dir, tmp_path):
    name = "written-by-modelopt-fp8"
    for file in (FIXTURES / name).iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    (tmp_path / "MODEL.toml").write_text('[kv]\ndtype = "fp8"\nrotate = false\n')
    run = subprocess.run([build_dir / "tests" / "kvdump", tmp_path], capture_output=True, text=True, timeout=60)
    assert run.returncode == 0 and "A0610" not in run.stderr, run.stderr
    tensors = read_safetensors(FIXTURES / name / "model.safetensors")
    key, value = (
        float(np.frombuffer(tensors[f"model.layers.0.self_attn.{side}_proj.{side}_scale"][2], "<f4")[0])
        for side in "kv"
    )
    dtype, *_ = run.stdout.split(":")[0].split()[1:]
    sides = [[float(x) for x in side.split()] for side in run.stdout.split(":")[1].split("|")]
    assert dtype == "e4m3" and np.allclose(sides, [[key, key], [value, value]], rtol=1e-5) and key != value != 1
