"""`atlas verify --rebuild`: a plan is made again of what it records, and what is not the same is named."""

from __future__ import annotations

import json
import shutil

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

FIXTURE = "tests/fixtures/llama"
TRAINED = "tests/fixtures/llama-trained"
DRAFTING = "tests/fixtures/qwen3_5_moe-trained"
PINNED = '[[kernels.pin]]\ntemplate = "stream_norm"\nphase = "decode"\ntunables = { TILES = 2 }\n'


@pytest.fixture
def rebuild(atlas):
    def run(plan, checkpoint, *words):
        return atlas("verify", plan, "--rebuild", "--checkpoint", checkpoint, *words)

    return run


def left_over(plan):
    return [f.name for f in plan.parent.iterdir() if ".rebuild." in f.name]


@pytest.mark.parametrize(
    "checkpoint,words",
    [
        (FIXTURE, []),
        (FIXTURE, ["--target", "none"]),
        (FIXTURE, ["--weights", "ref", "--target", "none"]),
        (FIXTURE, ["--tuning", "none", "--candidates", "1", "--pruned"]),
        (FIXTURE, ["--target", "sm_80,sm_90a", "--weights", "ref"]),
        (FIXTURE + "/config.json", ["--random-weights", "--seed", "7", "--target", "none"]),
        (FIXTURE + "/config.json", ["--random-weights", "--seed", "7", "--weights", "ref", "--target", "none"]),
    ],
    ids=["embedded", "reference device", "by reference", "candidates", "two targets", "random", "random, made at open"],
)
def test_equal(atlasc, rebuild, kernel_cache, tmp_path, checkpoint, words):
    plan = tmp_path / "plan.bin"
    done = atlasc(checkpoint, "-o", plan, "--cache-dir", kernel_cache, *words)
    assert done.returncode == 0, done.stderr
    run = rebuild(plan, checkpoint)
    assert (run.returncode, run.stderr) == (0, "") and run.stdout.endswith("the rebuilt plan is equal\n"), run.stdout
    assert left_over(plan) == []


def test_what_is_in_model_toml_counts_and_not_where_it_lies(atlasc, rebuild, kernel_cache, repo, tmp_path):
    """A file of options with a pin, which ledgers name by line, is gone when the plan is made again."""
    toml = tmp_path / "elsewhere" / "fast.toml"
    toml.parent.mkdir()
    toml.write_text((repo / FIXTURE / "MODEL.toml").read_text() + PINNED)
    plan, kept = tmp_path / "plan.bin", tmp_path / "kept.bin"
    assert atlasc(FIXTURE, "--model", toml, "-o", plan, "--cache-dir", kernel_cache).returncode == 0
    assert b"by the pin at fast.toml:" in plan.read_bytes() and b"by the pin at MODEL.toml" not in plan.read_bytes()
    toml.unlink()
    run = rebuild(plan, FIXTURE, "-o", kept)
    assert run.returncode == 0, run.stdout + run.stderr
    assert kept.read_bytes() == plan.read_bytes()


def test_a_signature_is_no_difference(atlasc, rebuild, tmp_path):
    """Only who has the key can make it again; all else is compared."""
    key, plan = tmp_path / "key.pem", tmp_path / "plan.bin"
    key.write_bytes(
        ed25519.Ed25519PrivateKey.generate().private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    assert atlasc(FIXTURE, "--target", "none", "--sign", key, "-o", plan).returncode == 0
    run = rebuild(plan, FIXTURE)
    assert run.returncode == 0, run.stdout + run.stderr


def test_files_of_times_and_of_scales(atlasc, rebuild, kernel_cache, repo, tmp_path):
    model = tmp_path / "model"
    shutil.copytree(repo / TRAINED, model)
    (tmp_path / "far").mkdir()
    scales, times = tmp_path / "far" / "my-scales.safetensors", tmp_path / "times.toml"
    assert atlasc("calibrate", model, "--text", model / "heldout.txt", "-o", scales, "-q").returncode == 0
    times.write_bytes((repo / "kernels/tuning/sm_90a.h100.toml").read_bytes() + b"# mine\n")
    (model / "MODEL.toml").write_text(
        f'[kv]\ndtype = "fp8"\nscales = "{scales}" # these\n[phases]\nprefill = [64]\n'
        "decode = [1]\n[runtime]\nslots = 1\nmax_context = 64\n"
    )
    plan = tmp_path / "plan.bin"
    done = atlasc(model, "-o", plan, "--cache-dir", kernel_cache, "--tuning", times)
    assert done.returncode == 0, done.stderr
    data = plan.read_bytes()
    assert b'scales = "my-scales.safetensors" # these' in data and str(tmp_path).encode() not in data
    run = rebuild(plan, model, "--tuning", times)
    assert run.returncode == 2 and "name the file of scales, my-scales.safetensors, with --kv-scales FILE" in run.stderr
    run = rebuild(plan, model, "--kv-scales", scales)
    assert run.returncode == 2 and "a file of times: name it with --tuning FILE" in run.stderr
    run = rebuild(plan, model, "--kv-scales", scales, "--tuning", times)
    assert run.returncode == 0, run.stdout + run.stderr
    times.write_bytes(times.read_bytes() + b"# other\n")
    run = rebuild(plan, model, "--kv-scales", scales, "--tuning", times)
    assert run.returncode == 1 and "tuning.sm_90a" in run.stdout and left_over(plan) == []


def test_files_of_token_ids(atlasc, rebuild, repo, tmp_path):
    """And one of scales beside it: each is found under its own name."""
    model, far = tmp_path / "model", tmp_path / "far"
    shutil.copytree(repo / DRAFTING, model)
    far.mkdir()
    ids, scales, plan = far / "my-ids.txt", far / "my-scales.safetensors", tmp_path / "plan.bin"
    ids.write_text("".join(f"{i}\n" for i in range(0, 400, 3)))
    assert atlasc("calibrate", model, "--text", model / "heldout.txt", "-o", scales, "-q").returncode == 0
    (model / "MODEL.toml").write_text(
        f'[speculate]\nrows = 2\nvocabulary_file = "{ids}"  # these\nhead = "fp8-block"\n[kv]\n'
        f'scales = "../far/{scales.name}"\ndtype = "fp8"\n[runtime]\nmax_context = 64\n'
    )
    done = atlasc(model, "--target", "none", "-o", plan)
    assert done.returncode == 0, done.stderr
    data = plan.read_bytes()
    assert b'vocabulary_file = "my-ids.txt"  # these' in data and b'scales = "my-scales.safetensors"\n' in data
    assert str(tmp_path).encode() not in data and b"../far" not in data
    run = rebuild(plan, model, "--kv-scales", scales)
    assert run.returncode == 2 and "name the file of token ids, my-ids.txt, with --vocabulary-file FILE" in run.stderr
    files = ["--kv-scales", scales, "--vocabulary-file", ids]
    run = rebuild(plan, model, *files)
    assert run.returncode == 0 and left_over(plan) == [], run.stdout + run.stderr
    ids.write_text("0\n" + ids.read_text()[2:].replace("6\n", "7\n", 1))
    run = rebuild(plan, model, *files)
    assert run.returncode == 1 and "atlas.draft_ids" in run.stdout, run.stdout + run.stderr


def test_another_checkpoint_is_named(atlasc, rebuild, repo, tmp_path):
    model, plan = tmp_path / "model", tmp_path / "plan.bin"
    shutil.copytree(repo / FIXTURE, model)
    assert atlasc(model, "--target", "none", "-o", plan).returncode == 0
    file = model / "model.safetensors"
    good = file.read_bytes()
    file.write_bytes(good[:-1] + bytes([good[-1] ^ 1]))
    run = rebuild(plan, model)
    assert run.returncode == 1 and run.stdout.endswith("the rebuilt plan differs\n")
    assert "section  weights" in run.stdout and "lm_head.weight" in run.stdout
    got = json.loads(rebuild(plan, model, "--json").stdout)
    assert not got["equal"] and got["other_tools"] == [] and got["sha256"] != got["rebuilt_sha256"]
    assert {"graph", "weights"} <= {s["section"] for s in got["sections"]}
    assert [w["name"] for w in got["diff"]["weights"]] == ["lm_head.weight"]
    file.write_bytes(good)
    (model / "generation_config.json").write_text('{"temperature": 0.25, "do_sample": true, "eos_token_id": 2}')
    run = rebuild(plan, model)
    assert run.returncode == 1 and "sampling.temperature" in run.stdout
    file.unlink()
    run = rebuild(plan, model)
    assert run.returncode == 4 and "does not make a plan of" in run.stderr and left_over(plan) == []


def test_another_compiler_is_told_first(atlasc, rebuild, build_dir, tmp_path):
    """The same program under another version, beside the libraries that it finds by its own place."""
    other, plan = build_dir / "atlasc.other-version", tmp_path / "plan.bin"
    assert atlasc(FIXTURE, "--target", "none", "-o", plan).returncode == 0
    try:
        other.write_bytes(
            (build_dir / "atlasc")
            .read_bytes()
            .replace(b"atlasc 0.1.0\x00", b"atlasc 9.1.0\x00")
            .replace(b"\x000.1.0\x00", b"\x009.1.0\x00")
        )
        other.chmod(0o755)
        run = rebuild(plan, FIXTURE, "--atlasc", other)
        assert run.returncode == 8 and run.stdout.startswith("another tool: atlasc 0.1.0 -> 9.1.0\n")
        assert json.loads(rebuild(plan, FIXTURE, "--atlasc", other, "--json").stdout)["other_tools"] == ["tool.atlasc"]
    finally:
        other.unlink(missing_ok=True)


def test_refusals(atlas, atlasc, rebuild, repo, tmp_path):
    plan = tmp_path / "plan.bin"
    shutil.copy(repo / "tests/fuzz/plan/sound-llama", plan)
    run = rebuild(plan, FIXTURE)
    assert run.returncode == 4 and "does not record its inputs" in run.stderr
    assert atlasc(FIXTURE, "--target", "none", "-o", plan).returncode == 0
    run = atlas("verify", plan, "--rebuild")
    assert (run.returncode, run.stderr) == (2, "atlas verify: error: --rebuild needs --checkpoint DIR\n")
    run = atlas("verify", plan, "--tokens", "1", "--checkpoint", FIXTURE)
    assert run.returncode == 2 and "need --rebuild" in run.stderr
    run = rebuild(plan, FIXTURE, "--atlasc", tmp_path / "none")
    assert run.returncode == 5 and "name the compiler with --atlasc FILE" in run.stderr
    run = rebuild(plan, FIXTURE, "--kv-scales", plan)
    assert run.returncode == 2 and "made without a file of scales" in run.stderr
    run = rebuild(plan, FIXTURE, "--vocabulary-file", plan)
    assert run.returncode == 2 and "made without a file of token ids" in run.stderr
    run = rebuild(plan, FIXTURE, "--tuning", plan)
    assert run.returncode == 2 and "made with the times of the compiler" in run.stderr
