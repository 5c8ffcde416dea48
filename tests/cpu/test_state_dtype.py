"""States of Gated DeltaNet in bf16: rounded where a prompt may be cut and behind each token, and nowhere else.

The oracle is tests/mkckpt/forward.py, which goes through a text a position at a time and rounds behind those that it is
told: the last row of every 64, however many rows a step reads, the prompt's last one, and each row behind it. A single element that is nearly halfway between two bf16 may go either way on the two sides:
hence a tolerance above that of test_golden.py, and far below what a rounding at another place makes.
"""

from __future__ import annotations

import json
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))

import forward  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
NAMES = ["qwen3_5", "qwen3_next", "qwen3_5_moe-trained"]
LENGTHS = [1, 63, 64, 65, 127, 129]
STEP = 64  # rows of a prompt between two roundings
TOLERANCE = 1e-4


def text(n):
    return [(37 * i * i + 11 * i + 3) % 280 + 10 for i in range(n)]


def error(got, want):
    return float(np.max(np.abs(got - want)) / np.max(np.abs(want)))


@pytest.fixture(scope="module")
def model():
    made = {}

    def load(name):
        if name not in made:
            made[name] = forward.load_config(FIXTURES / name), forward.load_weights(FIXTURES / name)
        return made[name]

    return load


@pytest.fixture(scope="module")
def plan(small_plan_of):
    return lambda name, state="bf16", **changes: small_plan_of(
        name, "--target", "none", state=state, **({"max_context": 160} | changes)
    )


def dump(atlas, plan, ids, path):
    run = atlas("dump", plan, "--tokens", ",".join(map(str, ids)), "--hidden", "--device", "cpu", "-o", path, "-q")
    assert run.returncode == 0, run.stderr
    return load_file(path)


@pytest.mark.parametrize("name", NAMES)
def test_prompts(atlas, plan, model, tmp_path, name):
    """Every row of every layer: rounding behind row 64 shows in the rows from 65 on, and only there."""
    c, w = model(name)
    ids = text(max(LENGTHS))
    states, logits = forward.forward(c | {"bf16_behind": {63, 127}}, w, ids)
    plain = forward.forward(c, w, ids)[1]
    for n in LENGTHS:
        got = dump(atlas, plan(name), ids[:n], tmp_path / "out.safetensors")
        for layer in range(c["num_hidden_layers"]):
            assert error(got[f"l{layer}.out"], states[layer + 1][:n]) < TOLERANCE
        assert error(got["logits"], logits[:n]) < TOLERANCE
        assert n <= STEP or np.max(np.abs(got["logits"][64] - plain[64])) > 2 * TOLERANCE * np.max(np.abs(plain[64]))
    exact = dump(atlas, plan(name, "f32"), ids, tmp_path / "out.safetensors")["logits"]
    assert error(exact, plain) < TOLERANCE


@pytest.mark.parametrize("state", ["bf16", "f32"])
@pytest.mark.parametrize("name", NAMES)
def test_bits_do_not_depend_on_cuts(atlas, plan, tmp_path, name, state):
    """Steps of 64 rows and steps of 128."""
    for n in LENGTHS:
        short, long = (
            dump(atlas, plan(name, state, grid=grid, prefill="[128]"), text(n), tmp_path / f"{grid}.safetensors")
            for grid in (64, 128)
        )
        for what in short:
            assert np.array_equal(short[what], long[what]), (n, what)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("name", NAMES)
def test_answers(atlas, plan, model, name, length):
    """Each token behind a prompt is the likeliest of an oracle that rounds behind every row from the prompt's last on."""
    c, w = model(name)
    run = atlas(
        "run",
        plan(name),
        "--tokens",
        ",".join(map(str, text(length))),
        "-n",
        12,
        "--temperature",
        0,
        "--repetition-penalty",
        1,
        "--speculate",
        "off",
        "--device",
        "cpu",
        "--json",
        "-q",
    )
    assert run.returncode == 0, run.stderr
    answer = json.loads(run.stdout)["results"][0]["tokens"]
    behind = {*range(STEP - 1, length, STEP), *range(length - 1, length + len(answer))}
    logits = forward.forward(c | {"bf16_behind": behind}, w, text(length) + answer)[1][length - 1 : -1]
    best = logits.max(-1)
    assert len(answer) >= 1 and np.all(logits[range(len(answer)), answer] >= best - TOLERANCE * np.abs(logits).max(-1))


@pytest.mark.parametrize("rows", [2, 4])
@pytest.mark.parametrize("options", [[], ["--temperature", 0.9, "--top-k", 60, "--seed", 5]], ids=["greedy", "sampled"])
def test_drafts_change_nothing(atlas, plan, tmp_path, rows, options):
    """Rows of a verify step go on from what decode would have stored: same texts and log probabilities."""
    made = plan("qwen3_5_moe-trained", rows=rows, slots=4, decode="[4]")
    (tmp_path / "prompts").write_text("And God said\nIn the beginning\nThe LORD is my shepherd\nBlessed\nNow it came\n")
    results = []
    for how in "mtp", "off":
        run = atlas(
            "run",
            made,
            "-f",
            tmp_path / "prompts",
            "-n",
            60,
            "--device",
            "cpu",
            "--json",
            "-q",
            "--speculate",
            how,
            *options,
        )
        assert run.returncode == 0, run.stderr
        results.append(json.loads(run.stdout))
    assert results[0]["results"] == results[1]["results"]
    assert 0 < results[0]["speculate"]["accepted"] < results[0]["speculate"]["drafts"]


@pytest.mark.parametrize("rows", [1, 3])
def test_memory_halves(atlasc, tmp_path, rows):
    """Of the ledger "state of slots" has the states, their versions and what does not change; all else is as it was."""
    c = forward.load_config(FIXTURES / "qwen3_5_moe-trained")
    layers = sum(kind == "linear_attention" for kind in c["layer_types"])
    elements = 8 * rows * layers * c["linear_num_value_heads"] * c["linear_key_head_dim"] * c["linear_value_head_dim"]
    items = {}
    for state in "f32", "bf16":
        (tmp_path / "it.toml").write_text(
            f'[runtime]\nslots = 8\n[state]\ndtype = "{state}"\n[speculate]\nrows = {rows}\n'
        )
        run = atlasc(FIXTURES / "qwen3_5_moe-trained", "--model", tmp_path / "it.toml", "--estimate", "--json")
        assert run.returncode == 0, run.stderr
        items[state] = {i["item"]: i["bytes"] for i in json.loads(run.stdout)["targets"][0]["items"]}
    assert items["f32"].pop("state of slots") - items["bf16"].pop("state of slots") == 2 * elements
    # [cache] snapshots: 16 times the states of one slot, without their versions
    assert items["f32"].pop("snapshots of states") - items["bf16"].pop("snapshots of states") == elements * 4 // rows
    changes = {k for k in items["f32"] if items["f32"][k] != items["bf16"][k]}
    assert changes <= {"ends of allocations", "padding and counters"}


@pytest.fixture
def states(atlasc, tmp_path):
    """(state.dtype of the plan, dtypes of the states in its graph, stderr, exit code), of a fixture whose config.json says
    `told`, with that text as MODEL.toml."""

    def compiled(text, told=None, name="qwen3_5"):
        folder = tmp_path / "m"
        shutil.copytree(FIXTURES / name, folder, dirs_exist_ok=True)
        config = json.loads((folder / "config.json").read_text())
        config.get("text_config", config).update({} if told is None else {"mamba_ssm_dtype": told})
        (folder / "config.json").write_text(json.dumps(config))
        (folder / "MODEL.toml").write_text(text)
        run = atlasc("m", "--target", "none", "--dry-run", "-d", "og", "-q", cwd=tmp_path)
        option = re.findall(r"^option +state.dtype +(\S+)", run.stdout, re.M)
        kinds = set(re.findall(r"^tensor +delta(?:_later)?\.\d+ +state +(\w+)", run.stdout, re.M))
        return "".join(option), "".join(kinds), run.stderr, run.returncode

    return compiled


@pytest.mark.parametrize(
    "text, told, kept, note",
    [
        ("", None, "f32", ""),
        ("", "float32", "f32", ""),
        ('[state]\ndtype = "bf16"\n', "float32", "bf16", ""),
        ("", "bfloat16", "bf16", "as that says; [state] dtype in MODEL.toml decides"),
        ('[state]\ndtype = "f32"\n', "bfloat16", "f32", "as state.dtype in m/MODEL.toml:2 says"),
        ('[state]\ndtype = "bf16"\n', "bfloat16", "bf16", "as state.dtype in m/MODEL.toml:2 says"),
    ],
)
def test_who_decides(states, text, told, kept, note):
    """MODEL.toml, then the checkpoint, then f32; a checkpoint that asks for bf16 is answered in any case."""
    option, kinds, err, code = states(text, told)
    assert code == 0 and (option, kinds) == (kept, kept)
    want = f'note[A0212]: mamba_ssm_dtype = "bfloat16": states are kept in {kept}, {note}'
    assert want in err if note else "A0212" not in err, err


@pytest.mark.parametrize(
    "text, told, name, message",
    [
        (
            '[state]\ndtype = "fp8"\n',
            None,
            "qwen3_5",
            'm/MODEL.toml:2:9: error[A0303]: state.dtype = "fp8": expected "f32" or "bf16"',
        ),
        ("[state]\ndtype = 16\n", None, "qwen3_next", "error[A0303]: state.dtype = 16: expected a string"),
        (
            '[state]\ntype = "f32"\n',
            None,
            "qwen3_next",
            "error[A0302]: unknown key state.type: did you mean state.dtype?",
        ),
        (
            '[state]\ndtype = "bf16"\n',
            None,
            "llama",
            'error[A0304]: state.dtype = "bf16": llama has no recurrent states; the '
            "families that have them are qwen3_5, qwen3_5_moe and qwen3_next",
        ),
        ("", "float16", "qwen3_next", 'error[A0206]: mamba_ssm_dtype = "float16": expected "float32" or "bfloat16"'),
        ("", 32, "qwen3_next", "error[A0203]: mamba_ssm_dtype = 32: expected a string"),
    ],
)
def test_refusals(states, text, told, name, message):
    _, _, err, code = states(text, told, name)
    assert code == 4 and message in err, err


def test_f32_may_be_said_of_any_family(states):
    assert states('[state]\ndtype = "f32"\n', None, "llama")[3] == 0
