"""Steps that draft and verify, on the reference device: text, counts and ends are those of plain decoding, whatever
the head proposes.

tests/fixtures/qwen3_5_moe-trained has a head that was trained with its model (scripts/train_mtp.py); what it should
draft stands in mtp.safetensors. The heads of the other checkpoints are random and propose nonsense. The programs of
this file are `atlas run` and build/tests/spec_run.
"""

from __future__ import annotations

import json
import pathlib
import re
import subprocess
import sys

import numpy as np
import pytest
from safetensors.numpy import load_file

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "mkckpt"))

import mkckpt  # noqa: E402

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
TRAINED = FIXTURES / "qwen3_5_moe-trained"
PROMPTS = ["And God said", "In the beginning", "The LORD is my shepherd", "Blessed", "Now it came to pass in the days"]
SAMPLED = ["--temperature", 0.9, "--top-p", 0.95, "--top-k", 60, "--min-p", 0.01, "--seed", 5]
PENALTIES = ["--repetition-penalty", 1.3, "--presence-penalty", 0.4, "--frequency-penalty", 0.3]
PHASES = ["prefill", "decode", "draft", "verify", "acquire"]


@pytest.fixture(scope="module")
def spec_run(build_dir):
    def run(*words, code=0):
        done = subprocess.run(
            [build_dir / "tests" / "spec_run", *map(str, words)], capture_output=True, text=True, timeout=600
        )
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout)

    return run


@pytest.fixture(scope="module")
def trained(small_plan_of):
    def plan(rows, **changes):
        changes = {"slots": 4, "decode": "[4]", "max_context": 96} | changes
        return small_plan_of(TRAINED.name, "--target", "none", rows=rows, **changes)

    return plan


@pytest.fixture
def answers(atlas, tmp_path):
    """Runs prompts, and returns (results without what differs by nature, what the JSON says of drafts)."""

    def run(plan, prompts, *options):
        (tmp_path / "prompts").write_text("\n".join(prompts) + "\n")
        done = atlas("run", plan, "-f", tmp_path / "prompts", "--device", "cpu", "--json", "-q", *options)
        assert done.returncode == 0, done.stderr
        out = json.loads(done.stdout)
        return out["results"], out.get("speculate")

    return run


@pytest.mark.parametrize("rows", [2, 3, 4])
@pytest.mark.parametrize(
    "options", [[], SAMPLED, PENALTIES, SAMPLED + PENALTIES], ids=["greedy", "sampled", "penalties", "both"]
)
def test_text_is_that_of_plain_decoding(trained, answers, rows, options):
    """Five prompts in four slots: each goes on at its own pace, the last takes over a slot. Log probabilities too."""
    plan = trained(rows)
    plain, none = answers(plan, PROMPTS, "-n", 60, "--speculate", "off", *options)
    got, told = answers(plan, PROMPTS, "-n", 60, *options)
    assert got == plain
    assert none is None and told["rows"] == rows and 0 < told["accepted"] < told["drafts"]
    assert answers(trained(1), PROMPTS, "-n", 60, *options) == (plain, None), "and of a plan without the head"


@pytest.mark.parametrize("dtype", ["fp8", "nvfp4"])
def test_text_with_rotated_keys(trained, answers, dtype):
    """A gate, and rope of a quarter of each head; the head that drafts keeps its keys in bf16, as they are."""
    plan = trained(3, dtype=f'"{dtype}"')
    plain, _ = answers(plan, PROMPTS, "-n", 40, "--speculate", "off")
    got, told = answers(plan, PROMPTS, "-n", 40)
    assert got == plain and told["accepted"] > 0.4 * told["drafts"]
    assert answers(trained(1, dtype=f'"{dtype}"', rotate="false"), PROMPTS, "-n", 40)[0] != plain, (
        "codes of other keys, other scores"
    )


@pytest.mark.parametrize("rows, least", [(2, 0.6), (3, 0.5), (4, 0.4)])
def test_a_trained_head_is_right_often(trained, answers, rows, least):
    _, told = answers(trained(rows), PROMPTS, "-n", 80)
    assert told["accepted"] > least * told["drafts"], told
    assert told["accepted"] > 0.4 * told["drafts"]


@pytest.mark.parametrize("prompt", ["p0", "p1"])
def test_drafts_are_those_of_the_oracle(trained, spec_run, prompt):
    golden = load_file(TRAINED / "mtp.safetensors")
    got = spec_run("drafts", trained(4), *golden[f"{prompt}.input_ids"])
    assert got["next"] == golden[f"{prompt}.next"][0]
    for i in range(3):
        want = golden[f"{prompt}.logits.{i + 1}"]
        assert np.max(np.abs(np.array(got["logits"][i]) - want)) < 2e-4 * np.max(np.abs(want))
        assert got["drafts"][i] == golden[f"{prompt}.draft.{i + 1}"][0]


@pytest.mark.parametrize("length", [1, 2, 15, 16, 17, 64, 65, 80])
def test_prompts_of_any_length(trained, answers, atlas, length):
    """Prompts are read in chunks; the head's keys behind a chunk's last row come with the next one."""
    ids = [(37 * i * i + 11 * i + 3) % 500 + 10 for i in range(length)]
    words = ["--tokens", ",".join(map(str, ids)), "-n", 12, "--device", "cpu", "--json", "-q"]
    fast, plain = (
        json.loads(atlas("run", trained(3), *words, "--speculate", how).stdout)["results"] for how in ("mtp", "off")
    )
    assert fast == plain


@pytest.mark.parametrize("name", ["qwen3_5", "mtp-of-next"])
def test_other_families_with_heads_that_know_nothing(small_plan_of, answers, tmp_path, name):
    folder = FIXTURES / name
    if not folder.exists():
        folder = tmp_path / name
        mkckpt.make(name, folder)
    plan = small_plan_of(folder, "--target", "none", rows=3, max_context=80)
    prompts = ["abc def", "x", "some other text"]
    for options in [], SAMPLED:
        plain, _ = answers(plan, prompts, "-n", 30, "--speculate", "off", *options)
        assert answers(plan, prompts, "-n", 30, *options)[0] == plain


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_ends_within_a_step(trained, answers, rows):
    """Answers of every length, and contexts that end wherever a step is."""
    for n in range(1, 10):
        plain, _ = answers(trained(rows), PROMPTS[:2], "-n", n, "--speculate", "off")
        assert answers(trained(rows), PROMPTS[:2], "-n", n)[0] == plain
        assert [len(a["tokens"]) for a in plain] == [n, n]
    for context in range(20, 25):
        plan = trained(rows, max_context=context, page=8)
        plain, _ = answers(plan, PROMPTS, "-n", 60, "--speculate", "off")
        assert answers(plan, PROMPTS, "-n", 60)[0] == plain
        assert all(a["finish"] == "length" and len(a["prompt_tokens"]) + len(a["tokens"]) == context + 1 for a in plain)


def test_a_step_of_more_rows_than_a_prompt_chunk(trained, answers):
    """20 sequences of 4 rows; the reference device reads prompts 64 rows at a time."""
    plan = trained(4, slots=20, decode="[20]", max_context=48)
    prompts = [f"{a} {b}" for a in ("And", "For", "But", "Then") for b in ("God", "the", "he", "Ruth", "it", "I")]
    plain, _ = answers(plan, prompts, "-n", 12, "--speculate", "off")
    assert answers(plan, prompts, "-n", 12)[0] == plain


def test_a_pool_for_one_sequence_holds_its_drafts(trained, answers):
    plan = trained(4, max_context=32, page=16, pool_tokens=32)
    plain, _ = answers(plan, PROMPTS, "-n", 60, "--speculate", "off")
    assert answers(plan, PROMPTS, "-n", 60)[0] == plain


def test_stop_tokens_and_texts_within_a_step(trained, answers):
    plain, _ = answers(trained(4), PROMPTS, "-n", 40)
    ids = [i for a in plain for i in a["tokens"]]
    for stop in sorted(set(ids), key=ids.count)[-4:]:
        plan = trained(4, stop=f"[{stop}]")
        short, _ = answers(plan, PROMPTS, "-n", 40, "--speculate", "off")
        assert answers(plan, PROMPTS, "-n", 40)[0] == short
        assert "stop" in {a["finish"] for a in short}
    for text in ["the", ", and", "o"]:
        short, _ = answers(trained(4), PROMPTS, "-n", 40, "--speculate", "off", "--stop", text)
        got, _ = answers(trained(4), PROMPTS, "-n", 40, "--stop", text)
        assert got == short
        assert "stop" in {a["finish"] for a in got}


@pytest.mark.parametrize("rows", [2, 3, 4])
def test_sequences_come_and_go(trained, spec_run, rows):
    """Random prompts, lengths, sampling and cancellations; every text is compared with plain decoding. No step
    allocates, however many drafts it keeps."""
    told = spec_run("soak", trained(rows, stop="[14, 261]"), 350, rows)
    assert told["cancelled"] > 5 and told["stopped"] > 10 and told["full"] > 10 and told["several"] > 80, told
    assert 0 < told["accepted"] < told["drafts"]
    assert told["allocations"] <= 0


def test_draws_have_the_probabilities_of_the_model(trained, spec_run):
    """Triples of tokens of which two may be accepted drafts: chi-square of 26 degrees of freedom, cells of less than 5
    put together. 54.05 is passed once in a thousand; seeds are fixed."""
    told = spec_run("triples", trained(3), 700, 298, 261)
    assert told["accepted"] > 200, "or it says little of drafts"
    cells = np.array(told["cells"])
    large, small = cells[cells[:, 1] >= 5], cells[cells[:, 1] < 5].sum(0, keepdims=True)
    cells = np.concatenate((large, small)) if small[0, 1] >= 1 else large
    assert len(cells) > 8
    assert ((cells[:, 0] - cells[:, 1]) ** 2 / cells[:, 1]).sum() < 54.05


# -- what is refused, and what is told ---------------------------------------------------------------------------


def test_drafts_without_a_head(atlas, plan_of, small_plan_of, trained):
    for plan in small_plan_of("llama", "--target", "none"), trained(1):
        run = atlas("run", plan, "--tokens", "1,2", "-n", 2, "--device", "cpu", "-q", "--speculate", "mtp")
        assert run.returncode == 4 and run.stderr.startswith(
            "atlas run: error[UNSUPPORTED]: speculate = mtp: the plan has no head that drafts; it is compiled in "
            "from a checkpoint with tensors mtp.*, unless [speculate] rows = 1 leaves it out\n"
        ), run.stderr
        for how in [], ["--speculate", "off"]:
            assert atlas("run", plan, "--tokens", "1,2", "-n", 2, "--device", "cpu", "-q", *how).returncode == 0
    plan = plan_of("qwen3_5", "--target", "none", "--random-weights")  # whose MODEL.toml says nothing of heads
    run = atlas("run", plan, "--tokens", "1,2", "-n", 2, "--device", "cpu", "-q", "--speculate", "mtp")
    assert run.returncode == 4 and run.stderr.startswith(
        "atlas run: error[UNSUPPORTED]: speculate = mtp: the plan has no head that drafts; of random weights one is made "
        "where [speculate] in MODEL.toml asks for it, as rows = 3 does, and config.json has one\n"
    ), run.stderr
    run = atlas("run", trained(3), "--tokens", "1,2", "--speculate", "yes")
    assert run.returncode == 2 and "mtp, ngram or off" in run.stderr


@pytest.mark.parametrize(
    "checkpoint, rows, message",
    [
        (
            "llama",
            3,
            "error[A0304]: speculate.rows = 3: llama has no drafting head; the families that have one are "
            "qwen3_5, qwen3_5_moe and qwen3_next",
        ),
        (
            "qwen3_5_moe",
            2,
            "error[A0304]: speculate.rows = 2: the checkpoint has no head to draft with: no tensor mtp.*, "
            "and mtp_num_hidden_layers = 0 (",
        ),
        ("qwen3_5", 5, "error[A0303]: speculate.rows = 5: expected an integer from 1 to 4"),
        ("qwen3_5", 0, "error[A0303]: speculate.rows = 0: expected an integer from 1 to 4"),
    ],
)
def test_rows_that_cannot_be(atlasc, tmp_path, checkpoint, rows, message):
    (tmp_path / "m.toml").write_text(f"[speculate]\nrows = {rows}\n")
    run = atlasc(FIXTURES / checkpoint, "--target", "none", "--model", tmp_path / "m.toml", "--dry-run")
    assert run.returncode == 4 and message in run.stderr, run.stderr


def test_the_family_drafts_where_the_checkpoint_can(atlasc, atlas, tmp_path):
    """By default; and a head that is left out is told, though not read."""
    for checkpoint, rows in ("qwen3_5_moe", 0), ("qwen3_5", 3), (TRAINED.name, 3):
        run = atlasc(FIXTURES / checkpoint, "--target", "none", "-o", tmp_path / "p.bin")
        assert run.returncode == 0 and "A0605" not in run.stderr.replace("weights.ignore", ""), run.stderr
        assert json.loads(atlas("info", tmp_path / "p.bin", "--json").stdout)["verify_rows"] == rows
        told = [w for w in atlas("audit", tmp_path / "p.bin").stdout.splitlines() if w.startswith("graph ")]
        assert [w for w in told[0].split() if w in PHASES] == (PHASES if rows else ["prefill", "decode", "acquire"])
    (tmp_path / "m.toml").write_text("[speculate]\nrows = 1\n")
    run = atlasc(TRAINED, "--target", "none", "--model", tmp_path / "m.toml", "-o", tmp_path / "p.bin")
    assert (
        "note[A0605]: mtp.fc.weight and 18 more of the drafting head are checked and not read: [speculate] rows = "
        "1 leaves it out"
    ) in run.stderr


def test_the_cache_of_the_head(atlasc, atlas, answers, tmp_path):
    """It is none of the model's layers: bf16, whatever they are, and nothing is measured of it. A policy sees it."""
    run = atlasc("calibrate", TRAINED, "--text", TRAINED / "heldout.txt", "-o", tmp_path / "scales.safetensors")
    assert run.returncode == 0, run.stderr
    assert {name.split(".")[2] for name in load_file(tmp_path / "scales.safetensors")} == {"1", "3"}
    (tmp_path / "m.toml").write_text('[kv]\ndtype = "fp8"\nscales = "scales.safetensors"\n')
    run = atlasc(TRAINED, "--target", "none", "--model", tmp_path / "m.toml", "-o", tmp_path / "p.bin")
    assert run.returncode == 0 and "A0610" not in run.stderr, run.stderr
    plain, _ = answers(tmp_path / "p.bin", PROMPTS, "-n", 30, "--speculate", "off")
    got, told = answers(tmp_path / "p.bin", PROMPTS, "-n", 30)
    assert got == plain and told["accepted"] > 0.4 * told["drafts"]
    (tmp_path / "policy.toml").write_text('[kv]\ndtype = ["e4m3"]\n')
    run = atlas("audit", tmp_path / "p.bin", "--check", tmp_path / "policy.toml")
    assert run.returncode == 1
    assert run.stdout.count("drafting head: keys and values are bf16: allowed e4m3") == 1, run.stdout


@pytest.mark.parametrize("checkpoint", [TRAINED.name, "qwen3_5", "qwen3_next"])
@pytest.mark.parametrize("target", ["sm_80", "sm_90a", "sm_120a"])
def test_gpus_have_kernels_for_all_phases(atlasc, checkpoint, target):
    run = atlasc(FIXTURES / checkpoint, "--target", target, "--stop-after", "pick-kernels")
    assert run.returncode == 0, run.stderr


@pytest.mark.parametrize(
    "template, is_mended",
    [
        (name, True)
        for name in "accept acquire_versions draw_draft draft_first embed_verify follow_rows keys_write "
        "delta_verify".split()
    ]
    + [(name, False) for name in "attn_step embed_next sample zero_slots".split()],
)
def test_a_gpu_without_kernels_for_drafts_is_refused(atlasc, tmp_path, template, is_mended):
    """The advice to leave the head out is given exactly where it helps, which the same ban without a head shows."""
    toml = tmp_path / "m.toml"
    toml.write_text(f'[[kernels.ban]]\ntemplate = "{template}"\n')
    run = atlasc(TRAINED, "--model", toml, "--stop-after", "pick-kernels")
    assert run.returncode == 3
    refusal, advice = re.search(
        rf"^{re.escape(str(toml))}:1:11: (error\[A0701\]: this ban of {template} leaves no admissible kernel for "
        rf"\w+) \([^\n]*, sm_90a\)\n((?:    [^\n]*\n)*)",
        run.stderr,
        re.M,
    ).groups()
    advised = "    [speculate] rows = 1 in MODEL.toml leaves the drafting head and its phases out\n"
    assert advice == (advised if is_mended else ""), run.stderr
    toml.write_text(toml.read_text() + "[speculate]\nrows = 1\n")
    run = atlasc(TRAINED, "--model", toml, "--stop-after", "pick-kernels")
    assert (refusal not in run.stderr) == is_mended, run.stderr
