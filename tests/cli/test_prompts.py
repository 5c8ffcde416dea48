"""Prompts of `atlas run` from files, pipes and JSON lines; why answers ended; mistakes with their places."""

from __future__ import annotations

import json
import subprocess

import pytest

from terminal import run_on_terminal

GREEDY = ["--device", "cpu", "--temperature", "0", "--repetition-penalty", "1"]


@pytest.fixture(scope="module")
def trained(small_plan_of):
    return small_plan_of("llama-trained")


def ask(atlas, plan, *words, **more):
    return subprocess.run([atlas, "run", plan, *map(str, words)], capture_output=True, text=True, **more)


def test_objects_are_asked_what_the_command_line_asks(atlas, trained, tmp_path):
    file = tmp_path / "prompts.jsonl"
    lines = [
        ({"prompt": "In the beginning", "max_new": 9, "id": "b\u00fc"}, ["-p", "In the beginning", "-n", 9, *GREEDY]),
        (
            {
                "tokens": [1, 17, 4],
                "max_new": 5,
                "temperature": 1.5,
                "seed": 7,
                "top_k": 9,
                "top_p": 0.9,
                "min_p": 0.01,
                "presence_penalty": 0.5,
                "frequency_penalty": 0.25,
                "id": 7,
            },
            [
                "--tokens",
                "1,17,4",
                "-n",
                5,
                *GREEDY,
                "--temperature",
                1.5,
                "--seed",
                7,
                "--top-k",
                9,
                "--top-p",
                0.9,
                "--min-p",
                0.01,
                "--presence-penalty",
                0.5,
                "--frequency-penalty",
                0.25,
            ],
        ),
        (
            {"prompt": "And God said", "repetition_penalty": 1.3, "stop": ["the", "of"]},
            ["-p", "And God said", "-n", 30, *GREEDY, "--repetition-penalty", 1.3, "--stop", "the", "--stop", "of"],
        ),
        ({"prompt": "A", "stop": " "}, ["-p", "A", "-n", 30, *GREEDY, "--stop", " "]),
    ]
    file.write_text("".join(json.dumps(line) + "\n" for line, _ in lines))
    run = ask(atlas, trained, "-f", file, "-n", 30, *GREEDY, "--json", "-q")
    assert (run.returncode, run.stderr) == (0, "")
    answers = {a["index"]: a for a in map(json.loads, run.stdout.splitlines())}
    assert sorted(answers) == list(range(len(lines)))
    for i, (line, words) in enumerate(lines):
        [alone] = json.loads(ask(atlas, trained, *words, "--json", "-q").stdout)["results"]
        assert answers[i].pop("id") == line.get("id")
        assert answers[i].pop("schema_version") == 1 and answers[i].pop("index") == i
        assert answers[i] == alone


def test_answers_come_as_they_finish(atlas, trained):
    """The short answer is there while its neighbour is still made, and while stdin's end was needed only before."""
    lines = '{"prompt": "And God said", "max_new": 3000}\n{"prompt": "In", "max_new": 1}\n'
    process = subprocess.Popen(
        [atlas, "run", trained, "-f", "-", "--input", "jsonl", *GREEDY, "--json", "-q"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    process.stdin.write(lines)
    process.stdin.close()
    assert json.loads(process.stdout.readline())["index"] == 1
    assert process.poll() is None
    process.kill()
    process.wait()


def test_stdin_and_empty_lines(atlas, trained):
    run = ask(atlas, trained, "-f", "-", "-n", 3, *GREEDY, input="\nIn the\n\r\nAnd")
    assert run.returncode == 0 and run.stdout.startswith("==> 1 <==\n") and "\n==> 2 <==\n" in run.stdout
    notes = [line for line in run.stderr.splitlines() if "note" in line]
    assert notes == [f"atlas run: -:{n}: note: an empty line is skipped" for n in (1, 3)]
    run = ask(atlas, trained, "-f", "-", *GREEDY, "-q", input="\n\n")
    assert (run.returncode, run.stderr) == (4, "atlas run: error: -: there is no prompt in it\n")


@pytest.mark.parametrize(
    "line,messages",
    [
        ('{"prompt": "In", "temprature": 0}', ["18: error: unknown key temprature: did you mean temperature?"]),
        ('{"prompt": "In", "xyzzy": {"prompt": 1}}', ["18: error: unknown key xyzzy"]),
        (
            '{"top_p": 3, "prompt": "a", "max_new": 1.5}',
            [
                "2: error: top_p: expected a number from 1e-06 to 1",
                "29: error: max_new: expected a whole number from 1 to 1073741824",
            ],
        ),
        ('{"prompt": 1}', ["2: error: prompt: expected a text"]),
        ('{"prompt": "a", "tokens": [1]}', ["1: error: expected one of prompt and tokens"]),
        ('{"id": 1}', ["1: error: expected one of prompt and tokens"]),
        ('{"tokens": []}', ["2: error: tokens: expected a list of token ids"]),
        ('{"tokens": [3, -1]}', ["2: error: tokens: number 2 is not a token id"]),
        ('{"prompt": "\\"seed\\": {", "seed": -1}', ["27: error: seed: expected a whole number below 2^63"]),
        (
            '{"prompt": "a", "stop": [""]}',
            ["17: error: stop: expected a text of at most 256 bytes, or a list of up to 16"],
        ),
        ('{"prompt": "a", "id": null}', ["17: error: id: expected a text or an integer"]),
        ("[1]", ["1: error: expected an object"]),
        ('{"prompt": "a", "prompt": "b"}', ["24: error: duplicate object key near '\"prompt\"'"]),
    ],
)
def test_mistakes_of_a_line(atlas, trained, tmp_path, line, messages):
    file = tmp_path / "p.jsonl"
    file.write_text('{"prompt": "fine"}\n' + line + "\n")
    run = ask(atlas, trained, "-f", file, *GREEDY)
    assert (run.returncode, run.stdout) == (4, "")
    assert run.stderr.splitlines() == [f"atlas run: {file}:2:{m}" for m in messages]


def test_ids_beyond_the_vocabulary(atlas, trained, tmp_path):
    file = tmp_path / "p.jsonl"
    file.write_text('{"tokens": [1, 2048]}\n{"tokens": [2047]}\n{"tokens": [99999]}\n')
    run = ask(atlas, trained, "-f", file, *GREEDY, "-q")
    assert (run.returncode, run.stderr.splitlines()) == (
        4,
        [
            f"atlas run: error[TOKEN]: {file}:1: token id 2048 (number 2 of 2): ids go from 0 to 2047",
            f"atlas run: error[TOKEN]: {file}:3: token id 99999 (number 1 of 1): ids go from 0 to 2047",
        ],
    )


def test_input_needs_a_file(atlas, trained):
    run = ask(atlas, trained, "-p", "x", "--input", "text")
    assert (run.returncode, run.stderr) == (2, "atlas run: error: --input needs -f FILE\n")


def remark(run):
    return run.stderr.splitlines()[-1].rsplit("; ended by: ", 1)[1]


def test_why_answers_end(atlas, trained, small_plan_of, tmp_path):
    small = small_plan_of("llama-trained", max_context=32)
    text = ["-p", "In the beginning", *GREEDY]
    for plan, words, why in [
        (trained, ["-n", 5], "token limit"),
        (trained, ["--stop", " "], "stop text"),
        (small, ["-n", 1000], "end of context"),
    ]:
        assert remark(ask(atlas, plan, *text, *words)) == why
        [result] = json.loads(ask(atlas, plan, *text, *words, "--json").stdout)["results"]
        assert result["ended_by"] == why
    token = json.loads(ask(atlas, trained, *text, "-n", 1, "--json").stdout)["results"][0]["tokens"][0]
    stops = small_plan_of("llama-trained", stop=f"[{token}]")
    assert remark(ask(atlas, stops, *text)) == "stop token"
    file = tmp_path / "two.txt"
    file.write_text("In the beginning\nAnd God said\n")
    assert remark(ask(atlas, trained, "-f", file, "-n", 4, *GREEDY)) == "2 token limit"


def test_a_terminal_has_a_newline_between_text_and_remark(atlas, trained):
    code, _, _, shown = run_on_terminal([atlas, "run", trained, "-p", "In the beginning", "-n", "6", *GREEDY])
    lines = shown.splitlines()
    assert code == 0 and lines[-1].startswith("atlas run: 4 prompt tokens, first token after ")
    assert lines[-2] and not lines[-2].startswith("atlas run")
