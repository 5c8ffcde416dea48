"""`atlas verify`, `dump`, `perplexity`, `info`, and a C program on atlas.h, on the reference device."""

from __future__ import annotations

import hashlib
import json
import os
import pathlib
import re
import shutil
import signal
import subprocess

import numpy as np
import pytest
from safetensors.numpy import load_file

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
MODEL = "llama"  # bf16, two layers
IDS = ["--tokens", "5,9,200,31,7,8,9,10,11,12,13,14,15,16,17,18,19,20"]


@pytest.fixture(scope="session")
def plan(small_plan_of):
    return small_plan_of(MODEL)


@pytest.fixture(scope="session")
def changed_in(small_plan_of, tmp_path_factory):
    """changed_in(tensor, factor): the plan of MODEL with one bf16 weight multiplied, in place in the file."""

    def changed(tensor, factor):
        folder = tmp_path_factory.mktemp("changed") / MODEL
        shutil.copytree(FIXTURES / MODEL, folder)
        file = folder / "model.safetensors"
        data = bytearray(file.read_bytes())
        begin = 8 + int.from_bytes(data[:8], "little")
        entry = json.loads(data[8:begin])[tensor]
        first, end = (begin + x for x in entry["data_offsets"])
        assert entry["dtype"] == "BF16"
        values = (np.frombuffer(bytes(data[first:end]), "<u2").astype(np.uint32) << 16).view(np.float32)
        data[first:end] = ((values * np.float32(factor)).view(np.uint32) >> 16).astype("<u2").tobytes()
        file.write_bytes(data)
        return small_plan_of(folder)

    return changed


# verify --------------------------------------------------------------------------------------------------


def test_verify_agrees(atlas, plan):
    run = atlas("verify", plan, *IDS, "--device", "cpu", "-q")
    assert (run.returncode, run.stderr) == (0, "")
    lines = run.stdout.splitlines()
    n = json.loads((FIXTURES / MODEL / "config.json").read_text())["num_hidden_layers"]
    assert [line.split()[0] for line in lines[1 : n + 2]] == [*map(str, range(n)), "logits"]
    assert all(line.split()[1:] == 2 * ["1.00000000"] + 2 * ["0.000e+00"] for line in lines[1 : n + 2])
    assert lines[n + 2 :] == ["best token equal in 18 of 18 rows", "every output agrees"]


def test_verify_has_a_prompt_of_its_own(atlas, plan):
    """The ids that the help describes, as JSON of the same prompt given in words shows."""
    vocab = json.loads((FIXTURES / MODEL / "config.json").read_text())["vocab_size"]
    ids = ",".join(str(i * 2654435761 % 2**32 % vocab) for i in range(1, 33))
    words = ["--device", "cpu", "--json", "-q", "--against", plan]
    made, given = atlas("verify", plan, *words), atlas("verify", plan, "--tokens", ids, *words)
    assert (made.returncode, made.stderr) == (0, "") and made.stdout == given.stdout
    assert json.loads(made.stdout)["rows"] == 32
    assert "i * 2654435761 mod 2^32, mod the size of the vocabulary" in " ".join(
        atlas("verify", "--help").stdout.split()
    )


@pytest.mark.parametrize(
    "tensor,bad",
    [
        ("model.layers.0.self_attn.o_proj.weight", "layer 0"),
        ("model.layers.1.mlp.down_proj.weight", "layer 1"),
        ("model.norm.weight", None),
    ],
)
def test_verify_names_the_first_bad_layer(atlas, plan, changed_in, tensor, bad):
    """The norm's factor is invisible to a cosine: what is reported there is the error."""
    other = changed_in(tensor, 3.0)
    run = atlas("verify", plan, *IDS, "--against", other, "--device", "cpu", "--json", "-q")
    got = json.loads(run.stdout)
    assert got["schema_version"] == 1 and got["first_bad"] == bad and run.returncode == (1 if bad else 0)
    errors = {o["output"]: o for o in got["outputs"]}
    if bad == "layer 1":
        assert errors["0"]["max_error"] == 0 and errors["1"]["cosine"] < 0.999
    if bad is None:
        assert errors["1"]["max_error"] == 0 and abs(errors["logits"]["relative_error"] - 2 / 3) < 1e-2
    text = atlas("verify", plan, *IDS, "--against", other, "--device", "cpu", "-q")
    assert text.returncode == run.returncode
    assert text.stdout.splitlines()[-1] == (f"first bad output: {bad}" if bad else "every output agrees")


@pytest.mark.parametrize("layer", [0, 1])
def test_verify_each_layer(atlas, plan, changed_in, layer):
    """What one layer does wrong stays there: those before and behind it, and the logits, are equal to the last bit."""
    other = changed_in(f"model.layers.{layer}.mlp.down_proj.weight", 1.5)
    words = ["verify", plan, *IDS, "--against", other, "--device", "cpu", "--json", "-q"]
    for more in [], ["--each-layer"]:
        got = json.loads(atlas(*words, *more).stdout)
        wrong = [o["output"] for o in got["outputs"] if o["max_error"] > 0]
        assert got["each_layer"] == bool(more) and got["first_bad"] == f"layer {layer}"
        assert wrong == ([str(layer)] if more else [*map(str, range(layer, 2)), "logits"])


def test_verify_each_layer_in_chunks(atlas, small_plan_of):
    """The state of layers that carry one, and chunks of more tokens than the reference takes at a time."""
    plan = small_plan_of("qwen3_5_moe-trained")
    ids = ["--tokens", ",".join(str(7 * i % 199 + 1) for i in range(100))]
    got = json.loads(atlas("verify", plan, *ids, "--device", "cpu", "--each-layer", "--json", "-q").stdout)
    assert got["first_bad"] is None and all(o["max_error"] == 0 for o in got["outputs"])


def test_verify_each_layer_of_another_shape(atlas, plan, small_plan_of):
    other = small_plan_of("qwen2")
    run = atlas("verify", plan, "--tokens", "1,2", "--against", other, "--device", "cpu", "-q", "--each-layer")
    assert (run.returncode, run.stdout) == (4, "")
    assert run.stderr == "atlas verify: error: layers cannot start from outputs of layers with another shape\n"


def test_verify_tolerance(atlas, plan, changed_in):
    other = changed_in("model.layers.1.mlp.down_proj.weight", 1.02)
    words = ["verify", plan, *IDS, "--against", other, "--device", "cpu", "-q"]
    assert atlas(*words, "--tolerance", "1").returncode == 0
    assert atlas(*words, "--tolerance", "1e-9").returncode == 1


def test_verify_other_shape(atlas, plan, small_plan_of):
    other = small_plan_of("qwen2")
    run = atlas("verify", plan, "--tokens", "1,2", "--against", other, "--device", "cpu", "-q")
    assert run.returncode == 4 and run.stdout == ""
    assert run.stderr.startswith(f"atlas verify: error: {plan} and {other} have different shapes: ")


# dump --------------------------------------------------------------------------------------------------------


def test_dump(atlas, plan, tmp_path):
    out = tmp_path / "out.safetensors"
    assert atlas("dump", plan, *IDS, "--device", "cpu", "-q", "-o", out).returncode == 0
    small = load_file(out)
    assert set(small) == {"tokens", "logits"} and small["tokens"].tolist() == list(map(int, IDS[1].split(",")))
    assert atlas("dump", plan, *IDS, "--device", "cpu", "-q", "--hidden", "-o", out).returncode == 0
    full = load_file(out)
    n = json.loads((FIXTURES / MODEL / "config.json").read_text())["num_hidden_layers"]
    assert set(full) == {"tokens", "logits", *(f"l{i}.out" for i in range(n))}
    assert np.array_equal(full["logits"], small["logits"])
    assert [p.name for p in tmp_path.iterdir()] == ["out.safetensors"]


def test_dump_leaves_nothing_behind(atlas, plan, tmp_path):
    out = tmp_path / "no" / "such" / "folder"
    run = atlas("dump", plan, *IDS, "--device", "cpu", "-q", "-o", out)
    assert (run.returncode, run.stderr) == (
        5,
        f"atlas dump: error: {out}: cannot be written: No such file or directory\n",
    )
    (tmp_path / "folder").mkdir()
    run = atlas("dump", plan, *IDS, "--device", "cpu", "-q", "-o", tmp_path / "folder")
    assert (run.returncode, run.stderr) == (
        5,
        f"atlas dump: error: {tmp_path}/folder: not a regular file but a folder\n",
    )
    assert [p.name for p in tmp_path.iterdir()] == ["folder"]


def test_a_prompt_is_needed(atlas, plan, tmp_path):
    for words in ([], ["-p", "x", "--tokens", "1"]):
        run = atlas("dump", plan, *words, "--device", "cpu", "-o", tmp_path / "x")
        assert (run.returncode, run.stderr) == (2, "atlas dump: error: give either -p TEXT or --tokens IDS\n")


# perplexity ----------------------------------------------------------------------------------------------------


def test_perplexity_from_the_dumped_logits(atlas, plan, small_plan_of, tmp_path):
    """Against log-softmax in numpy, window by window."""
    trained = small_plan_of("llama-trained")
    text = (FIXTURES / "llama-trained" / "heldout.txt").read_text()[:400]
    (tmp_path / "text").write_text(text)
    atlas("dump", trained, "-p", text, "--device", "cpu", "-q", "-o", tmp_path / "whole")
    ids, nats, window = load_file(tmp_path / "whole")["tokens"], [], 20
    for at in range(0, len(ids) - 1, window - 1):
        piece = ids[at : at + window]
        words = ["--tokens", ",".join(map(str, piece)), "--device", "cpu", "-q", "-o", tmp_path / "piece"]
        assert atlas("dump", trained, *words).returncode == 0
        x = load_file(tmp_path / "piece")["logits"].astype(np.float64)[:-1]
        nats += list(np.log(np.exp(x - x.max(1, keepdims=True)).sum(1)) + x.max(1) - x[np.arange(len(x)), piece[1:]])
    run = atlas("perplexity", trained, "-f", tmp_path / "text", "--window", window, "--device", "cpu", "--json", "-q")
    got = json.loads(run.stdout)
    assert got["tokens"] == len(ids) and got["scored"] == len(nats) == len(ids) - 1 and got["window"] == window
    assert abs(got["nats_per_token"] - np.mean(nats)) < 1e-6
    plain = atlas("perplexity", trained, "-f", tmp_path / "text", "--window", window, "--device", "cpu", "-q")
    assert plain.stdout == f"perplexity {np.exp(np.mean(nats)):.4f} over {len(nats)} tokens\n"


def test_perplexity_refusals(atlas, small_plan_of, tmp_path):
    trained = small_plan_of("llama-trained")
    (tmp_path / "text").write_text("")
    run = atlas("perplexity", trained, "-f", tmp_path / "text", "--device", "cpu", "-q")
    assert (run.returncode, run.stderr) == (4, f"atlas perplexity: error: {tmp_path}/text: fewer than two tokens\n")
    run = atlas("perplexity", trained, "-f", tmp_path / "text", "--device", "cpu", "-q", "--window", "100000")
    assert run.returncode == 2 and re.fullmatch(
        r"atlas perplexity: error: --window 100000: the plan's context holds \d+\n", run.stderr
    )


def test_interrupted_perplexity(atlas, small_plan_of, tmp_path):
    (tmp_path / "text").write_text((FIXTURES / "llama-trained" / "heldout.txt").read_text() * 20)
    process = subprocess.Popen(
        [atlas, "perplexity", small_plan_of("llama-trained"), "-f", tmp_path / "text", "--device", "cpu"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert process.stderr.readline().startswith(b"atlas perplexity: device cpu: ")
    process.send_signal(signal.SIGINT)
    assert process.wait(timeout=60) == 130 and process.stdout.read() == b""
    process.stderr.close()
    process.stdout.close()


# info -----------------------------------------------------------------------------------------------------------


def test_info(atlas, plan):
    run = atlas("info", plan, "--json")
    got, config = json.loads(run.stdout), json.loads((FIXTURES / MODEL / "config.json").read_text())
    assert run.returncode == 0 and run.stderr == "" and got["schema_version"] == 2
    assert got["vocab"] == config["vocab_size"] and got["hidden_dim"] == config["hidden_size"]
    assert got["slots"] == 2 and got["page"] == 16 and got["family"] == "llama" and got["weights"] == "embed"
    assert got["max_context"] == config["max_position_embeddings"]
    data = plan.read_bytes()
    length = int.from_bytes(data[12:16], "little")
    assert (
        got["root"] == hashlib.sha256(b"\3" + data[:16] + data[48 : 48 + length]).hexdigest()
        and got["signatures"] == []
    )
    text = atlas("info", plan).stdout
    assert text.startswith(f"root         {got['root']}\nsigned by    none\nfamily       llama\n")


def test_info_tells_how_keys_and_values_are_kept(atlas, small_plan_of):
    for changes, want in (
        ({}, "bf16 0-3"),
        ({"dtype": '"fp8"', "bf16_first": 1}, "bf16 0, fp8 rotated 1-3"),
        ({"dtype": '"nvfp4"', "rotate": "false"}, "nvfp4 0-3"),
    ):
        plan = small_plan_of("llama-trained", "--target", "none", **changes)
        assert json.loads(atlas("info", plan, "--json").stdout)["kv_layers"] == want
        assert f" of 16 tokens; by layer: {want}\n" in atlas("info", plan).stdout


# audit ----------------------------------------------------------------------------------------------------------


def test_audit(atlas, plan):
    """Every op of the plan's phases has its launch, and the text says what the document says."""
    run = atlas("audit", plan, "--json")
    got = json.loads(run.stdout)
    assert run.returncode == 0 and run.stderr == "" and got["schema_version"] == 1
    [target] = got["targets"]
    assert [p["phase"] for p in target["phases"]] == ["prefill", "decode", "acquire", "probe"]
    text = atlas("audit", plan).stdout
    for name in ("prefill[64]", "decode[2]", "attention_step", "norm_logits", "rope_write", target["target"]):
        assert name in text
    assert len(atlas("audit", plan, "--reasons").stdout) > len(text)
    assert atlas("audit", plan, "--target", target["target"]).stdout == text
    run = atlas("audit", plan, "--target", "sm_1")
    assert (run.returncode, run.stdout, run.stderr) == (
        2,
        "",
        "atlas audit: error: --target sm_1: the plan has no such target: it has sm_90a\n",
    )


def test_weights_by_reference(atlas, small_plan_of, tmp_path):
    """A plan that refers to its checkpoint runs with it alone, and only while it is unchanged."""
    embedded = small_plan_of("llama-trained")
    plan = small_plan_of("llama-trained", "--weights", "ref")
    assert plan.stat().st_size < embedded.stat().st_size - 1_000_000
    info = atlas("info", plan, "--json", "--weights", FIXTURES / "llama-trained")
    assert json.loads(info.stdout)["weights"] == "ref"
    words = ["-p", "In the beginning", "-n", 12, "--device", "cpu", "-q"]
    without = atlas("run", plan, *words)
    assert (without.returncode, without.stdout, without.stderr) == (
        2,
        "",
        "atlas run: error: the plan holds no weights: name the checkpoint's folder with --weights DIR\n",
    )
    run = atlas("run", plan, *words, "--weights", FIXTURES / "llama-trained")
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout == atlas("run", embedded, *words).stdout
    shutil.copytree(FIXTURES / "llama-trained", tmp_path / "copy")
    file = tmp_path / "copy" / "model.safetensors"
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)
    changed = atlas("run", plan, *words, "--weights", tmp_path / "copy")
    assert changed.returncode == 6 and changed.stderr.startswith("atlas run: error[INTEGRITY]: ")


OLD = pathlib.Path(__file__).with_name("old-plans") / "format-15.bin"


@pytest.mark.parametrize(
    "words",
    [
        ["run", OLD, "-p", "x"],
        ["audit", OLD],
        ["verify", OLD, "-p", "x"],
        ["verify", OLD, "--rebuild", "--checkpoint", "tests/fixtures/llama"],
        ["info", OLD],
        ["bench", OLD],
        ["memory", OLD],
        ["diff", OLD, OLD],
        ["dump", OLD, "--tokens", "5", "-o", "none.safetensors"],
        ["perplexity", OLD, "--file", __file__],
        ["tune", OLD, "-o", "none.toml"],
        ["receipt", OLD, "-o", "none.json"],
        ["sign", OLD, "--key", "none.pem"],
    ],
    ids=lambda w: " ".join(map(str, w[:1] + w[2:3])),
)
def test_a_plan_of_an_older_format(atlas, tmp_path, words):
    """The committed file is a plan of format 15, made from tests/fixtures/llama by the atlasc of its time with `--target
    none --weights ref`. It is refused by every verb, with the command that makes it anew."""
    before = OLD.read_bytes()
    subprocess.run(
        ["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "key.pem"], check=True, capture_output=True
    )
    run = atlas(*[tmp_path / "key.pem" if word == "none.pem" else word for word in words])
    assert run.returncode == 8, run.stderr
    assert run.stdout == ""
    assert (
        f"{OLD}: plan format version 15: this program reads version 18; `atlasc MODEL_DIR -o PLAN` makes the plan anew\n"
        in run.stderr
    )
    assert OLD.read_bytes() == before


# every bucket -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("speculate", ["off", "ngram"])
def test_every_bucket_is_run(atlas, plan_of, build_dir, tmp_path, speculate):
    """atlas receipt and memory run a step of each bucket that the session has: with drafts those that verify, of each
    rung and of one row, by their slots and rows. On the fake driver, which counts as the card does."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(
        "[runtime]\nslots = 4\nmax_context = 256\n[phases]\nprefill = [64, 128]\ndecode = [2, 4]\n"
        '[speculate]\ndrafter = "ngram"\nladder = [[2, 4], [4, 2]]\n'
    )
    plan = plan_of("llama-trained", "--model", toml, "--target", "sm_90a")
    fake = os.environ | {"LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"}
    answers = {
        "off": [("decode", 2, 0), ("decode", 4, 0)],
        "ngram": [("verify", 2, 1), ("verify", 4, 1), ("verify", 8, 2), ("verify", 8, 4)],
    }[speculate]
    run = atlas("memory", plan, "--json", "--speculate", speculate, env=fake)
    assert run.returncode == 0, run.stderr
    told = [(b["phase"], b["rows"], b["each"]) for b in json.loads(run.stdout)["measured"]["buckets"]]
    assert sorted(told) == sorted([("opened", 0, 0), ("prefill", 64, 0), ("prefill", 128, 0), *answers])
    run = atlas("receipt", plan, "--json", "--speculate", speculate, env=fake)
    assert run.returncode == 0, run.stderr
    ran = [(p["phase"], p["rows"], p["each"]) for p in json.loads(run.stdout)["phases"] if p["steps"]]
    assert sorted(ran) == sorted([("acquire", 0, 0), ("prefill", 64, 0), ("prefill", 128, 0), *answers])
