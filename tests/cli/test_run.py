"""`atlas run` on the reference device: text, batches, stops, seeds and refusals.

The plans come from tests/fixtures: llama-trained speaks text, llama is random and speaks arbitrary bytes.
"""

from __future__ import annotations

import json
import pathlib
import shutil
import signal
import subprocess
import time

import pytest
from tokenizers import Tokenizer

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
GREEDY = ["--device", "cpu", "--temperature", "0", "--repetition-penalty", "1"]
PROMPTS = [
    "In the beginning",
    "And the LORD said unto Moses,",
    "a",
    "The king of Babylon came",
    "Blessed are the poor in spirit: for theirs is the kingdom of heaven. Blessed are they that mourn:",
]


@pytest.fixture(scope="session")
def trained(small_plan_of):
    return small_plan_of("llama-trained")


@pytest.fixture(scope="session")
def generate(atlas):
    def run(plan, *words):
        """The parsed results; stderr must be silent."""
        done = atlas("run", plan, *words, "--json", "-q")
        assert done.returncode == 0, done.stderr
        assert done.stderr == ""
        document = json.loads(done.stdout)
        assert document["schema_version"] == 1 and document["device"] == "cpu"
        return document["results"]

    return run


def test_stdout_is_the_text_alone(atlas, generate, trained):
    run = atlas("run", trained, "-p", PROMPTS[0], "-n", 20, *GREEDY)
    assert run.returncode == 0
    [result] = generate(trained, "-p", PROMPTS[0], "-n", 20, *GREEDY)
    assert run.stdout == result["text"] and len(result["text"]) > 20
    first, last = run.stderr.splitlines()
    assert first.startswith("atlas run: device cpu: ")
    assert last.startswith(f"atlas run: {len(result['prompt_tokens'])} prompt tokens, first token after ")


def test_ids_and_text_are_those_of_the_tokenizers_library(generate, trained):
    library = Tokenizer.from_file(str(FIXTURES / "llama-trained" / "tokenizer.json"))
    for prompt in PROMPTS:
        [result] = generate(trained, "-p", prompt, "-n", 12, *GREEDY)
        assert result["prompt"] == prompt
        assert result["prompt_tokens"] == library.encode(prompt).ids
        assert len(result["tokens"]) == len(result["logprobs"]) <= 12
        assert result["finish"] == ("length" if len(result["tokens"]) == 12 else "stop")
        assert all(x <= 0 for x in result["logprobs"])
        assert result["text"] == library.decode(result["tokens"])


def test_whole_code_points(atlas, generate, small_plan_of):
    """A random model says bytes that are no UTF-8: what is written is, and not cut anywhere."""
    plan = small_plan_of("llama")
    words = ["--tokens", "5,6,7", "-n", "60", "--temperature", "1.5", "--seed", "3", "--device", "cpu"]
    process = subprocess.run([atlas, "run", plan, *words, "-q"], capture_output=True)
    text = process.stdout.decode("utf-8", "strict")
    [result] = generate(plan, *words)
    assert result["text"] == text and "\ufffd" in text


def test_streams(atlas, trained):
    """Text comes while the answer is being made, one write a token."""
    process = subprocess.Popen(
        [atlas, "run", trained, "-p", PROMPTS[0], "-n", "400", *GREEDY, "-q"], stdout=subprocess.PIPE, bufsize=0
    )
    pieces = []
    while piece := process.stdout.read(1 << 16):
        pieces.append(piece)
        time.sleep(0.0005)
    assert process.wait() == 0
    assert len(pieces) > 20 and all(p.decode("utf-8", "strict") for p in pieces)


def test_a_batch_says_what_each_prompt_says_alone(generate, trained, tmp_path):
    """Five prompts over two slots: batching, queueing and reuse of slots change no token."""
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(PROMPTS) + "\n")
    for words in (GREEDY, ["--temperature", "0.9", "--seed", "11", "--device", "cpu"]):
        together = generate(trained, "-f", file, "-n", 24, *words)
        alone = [generate(trained, "-p", p, "-n", 24, *words)[0] for p in PROMPTS]
        assert together == alone


def test_a_batch_is_shown_in_order(atlas, generate, trained, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("\r\n".join(PROMPTS[:3]))  # no newline at the end, and carriage returns
    run = atlas("run", trained, "-f", file, "-n", 8, *GREEDY, "-q")
    texts = [generate(trained, "-p", p, "-n", 8, *GREEDY)[0]["text"] for p in PROMPTS[:3]]
    assert run.stdout == "\n".join(f"==> {i + 1} <==\n{t}\n" for i, t in enumerate(texts))


def test_threads_change_nothing(generate, trained):
    one, three = (generate(trained, "-p", PROMPTS[4], "-n", 16, *GREEDY, "--threads", n) for n in (1, 3))
    assert one == three


def test_stop_text_spans_tokens(generate, trained):
    [whole] = generate(trained, "-p", PROMPTS[0], "-n", 40, *GREEDY)
    text = whole["text"]
    for at, length in ((0, 3), (9, 5), (14, 11)):  # from the first byte, inside a word, over several words
        stop = text[at : at + length]
        [cut] = generate(trained, "-p", PROMPTS[0], "-n", 40, *GREEDY, "--stop", stop, "--stop", "never said")
        assert cut["text"] == text[: text.index(stop)] and cut["finish"] == "stop"
        assert cut["tokens"] == whole["tokens"][: len(cut["tokens"])] and len(cut["tokens"]) < 40
    [never] = generate(trained, "-p", PROMPTS[0], "-n", 40, *GREEDY, "--stop", text + "!")
    assert never["text"] == text and never["finish"] == "length"  # what was held back comes at the end


def test_a_stopped_prompt_makes_room(generate, trained, tmp_path):
    file = tmp_path / "prompts.txt"
    file.write_text("\n".join(PROMPTS))
    results = generate(trained, "-f", file, "-n", 60, *GREEDY, "--stop", " ", "--stop", ",")
    assert len(results) == 5 and {r["finish"] for r in results} == {"stop"}
    assert not any(" " in r["text"] or "," in r["text"] for r in results)


def test_seeds(generate, trained):
    def said(*words):
        return generate(trained, "-p", PROMPTS[0], "-n", 24, "--device", "cpu", *words)[0]["tokens"]

    hot = ["--temperature", "1.2"]
    assert said(*hot, "--seed", "1") == said(*hot, "--seed", "1")
    assert said(*hot, "--seed", "1") != said(*hot, "--seed", "2")
    assert said(*hot, "--seed", "1") != said(*hot, "--seed", str((1 << 32) + 1))  # all 64 bits count
    greedy = said("--temperature", "0", "--seed", "5")
    assert greedy == said("--temperature", "0") == said(*hot, "--top-k", "1", "--seed", "9")
    assert greedy == said(*hot, "--min-p", "1") == said(*hot, "--top-p", "0.000001")


def test_repetition_penalty(generate, trained):
    def distinct(*words):
        tokens = generate(trained, "-p", PROMPTS[0], "-n", 60, *GREEDY[:4], *words)[0]["tokens"]
        return len(set(tokens))

    assert distinct("--repetition-penalty", "1.5") > distinct("--repetition-penalty", "1") + 5


def test_context_ends_the_answer(generate, trained, small_plan_of):
    plan = small_plan_of("llama-trained", max_context=32)
    [result] = generate(plan, "-p", PROMPTS[0], "-n", 1000, *GREEDY)
    assert result["finish"] == "length"
    assert len(result["prompt_tokens"]) + len(result["tokens"]) == 33  # the last one needs no place
    [longer] = generate(trained, "-p", PROMPTS[0], "-n", 100, *GREEDY)
    assert longer["tokens"][: len(result["tokens"])] == result["tokens"]


# Refusals --------------------------------------------------------------------------------------------


def test_prompts_that_cannot_run_are_all_listed(atlas, small_plan_of, tmp_path):
    plan = small_plan_of("llama-trained", max_context=32)
    file = tmp_path / "prompts.txt"
    file.write_text("short\n\n" + "word " * 100 + "\nfine\n")
    run = atlas("run", plan, "-f", file, *GREEDY)
    n = len(Tokenizer.from_file(str(FIXTURES / "llama-trained" / "tokenizer.json")).encode("word " * 100).ids)
    lines = [
        f"atlas run: {file}:2: note: an empty line is skipped",
        f"atlas run: error: {file}:3: {n} tokens: the plan's context holds 32",
    ]
    assert (run.returncode, run.stdout, run.stderr.splitlines()) == (4, "", lines)


def test_prompt_files(atlas, trained, tmp_path):
    empty = tmp_path / "empty.txt"
    empty.write_text("")
    run = atlas("run", trained, "-f", empty, *GREEDY)
    assert (run.returncode, run.stderr) == (4, f"atlas run: error: {empty}: there is no prompt in it\n")
    run = atlas("run", trained, "-f", tmp_path / "none.txt", *GREEDY)
    assert (run.returncode, run.stderr) == (4, f"atlas run: error: {tmp_path}/none.txt: No such file or directory\n")
    run = atlas("run", trained, "-f", tmp_path, *GREEDY)
    assert (run.returncode, run.stderr) == (4, f"atlas run: error: {tmp_path}: Is a directory\n")


def test_token_ids(atlas, trained):
    run = atlas("run", trained, "--tokens", "1,2,x", *GREEDY)
    assert (run.returncode, run.stderr) == (
        2,
        "atlas run: error: --tokens 1,2,x: expected token ids with commas between them\n",
    )
    run = atlas("run", trained, "--tokens", "1,999999", *GREEDY, "-q")
    assert run.returncode == 4
    assert run.stderr == "atlas run: error[TOKEN]: --tokens: token id 999999 (number 2 of 2): ids go from 0 to 2047\n"


def test_no_gpu(atlas, trained):
    run = atlas("run", trained, "-p", "x", "--device", "cuda")
    if run.returncode == 0:
        pytest.skip("there is a GPU")
    assert run.returncode in (5, 8) and run.stdout == ""
    assert run.stderr.startswith("atlas run: error[")
    auto = atlas("run", trained, "-p", "x", "-n", "1")  # falls back only when there is no driver or no device
    assert (auto.returncode == 0) == ("error[NO_DRIVER]" in run.stderr or "error[NO_DEVICE]" in run.stderr)


def test_a_damaged_plan(atlas, trained, tmp_path):
    plan = bytearray(trained.read_bytes())
    plan[-100] ^= 1
    (tmp_path / "plan.bin").write_bytes(plan)
    run = atlas("run", tmp_path / "plan.bin", "-p", "x", *GREEDY)
    assert run.returncode == 6 and run.stdout == ""
    assert run.stderr.startswith(f"atlas run: error[INTEGRITY]: {tmp_path}/plan.bin: ")
    plan[8] = 1  # the format version
    (tmp_path / "plan.bin").write_bytes(plan)
    run = atlas("run", tmp_path / "plan.bin", "-p", "x", *GREEDY)
    assert (run.returncode, run.stdout, run.stderr) == (
        8,
        "",
        (
            f"atlas run: error[PLAN_VERSION]: {tmp_path}/plan.bin: plan format version 1: this program reads version 18; "
            "`atlasc MODEL_DIR -o PLAN` makes the plan anew\n"
            "  help: Compile the model again with this atlasc.\n"
        ),
    )
    (tmp_path / "plan.bin").write_bytes(b"#!/bin/sh\n" * 50)
    run = atlas("run", tmp_path / "plan.bin", "-p", "x", *GREEDY)
    assert run.returncode == 4 and run.stderr.startswith(
        f"atlas run: error[NOT_A_PLAN]: {tmp_path}/plan.bin: not a plan: "
    )


def test_no_memory(atlas, small_plan_of):
    """A cache of a thousand million tokens is a fine plan, for a machine that has room for it."""
    plan = small_plan_of("llama-trained", pool_tokens=1_000_000_000)
    run = atlas("run", plan, "-p", "x", *GREEDY)
    assert (run.returncode, run.stdout) == (7, "")
    assert run.stderr.endswith(  # a sanitizer's allocator has its own remark before it
        "atlas run: error[NO_MEMORY]: 1907.4 GiB are not free for the graph's tensors in float32, "
        "62500000 pages of cache among them\n  help: Free memory, or compile for less.\n"
    )


def test_scores_that_are_no_numbers(atlas, small_plan_of, tmp_path):
    """An answer whose logits are NaN ends, and says so; the command exits as after a fault of the device."""
    broken = tmp_path / "llama-with-a-nan"
    shutil.copytree(FIXTURES / "llama", broken)
    data = bytearray((broken / "model.safetensors").read_bytes())
    header = int.from_bytes(data[:8], "little")
    table = json.loads(data[8 : 8 + header])["model.embed_tokens.weight"]
    at = 8 + header + table["data_offsets"][0] + 77 * table["shape"][1] * 2
    data[at : at + 2] = b"\xc0\x7f"  # the embedding of token 77 has a NaN
    (broken / "model.safetensors").write_bytes(data)
    plan = small_plan_of(broken)
    run = atlas("run", plan, "--tokens", "5,6,7", "-n", "1", *GREEDY, "--json", "-q")
    assert (run.returncode, run.stderr) == (0, "")
    run = atlas("run", plan, "--tokens", "5,77,7", "-n", "4", *GREEDY, "--json", "-q")
    assert run.returncode == 9
    assert run.stderr == "atlas run: error: 1 of 1 answers ended early: the model's scores were not numbers\n"
    [result] = json.loads(run.stdout)["results"]
    assert (result["tokens"], result["text"], result["finish"]) == ([], "", "failed")


def test_full_disk(atlas, trained):
    with open("/dev/full", "w") as full:
        process = subprocess.run(
            [atlas, "run", trained, "-p", "x", "-n", "3", *GREEDY, "-q"], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert (process.returncode, process.stderr) == (5, "atlas run: error: stdout cannot be written\n")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupt(atlas, trained, number):
    process = subprocess.Popen(
        [atlas, "run", trained, "-p", PROMPTS[0], "-n", "100000", *GREEDY, "-q"], stdout=subprocess.PIPE
    )
    assert process.stdout.read(1)
    process.send_signal(number)
    assert process.wait(timeout=60) == 130
