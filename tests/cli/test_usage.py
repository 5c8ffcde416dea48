"""The command line of `atlas` without any plan: help, versions and mistakes, with their exact texts."""

from __future__ import annotations

import re
import subprocess

import pytest

from terminal import run_on_terminal
from verbs import VERBS


def test_version(atlas, repo):
    version = re.search(r"^VERSION := (\S+)", (repo / "Makefile").read_text(), re.M)[1]
    for word in ("--version", "-V"):
        run = atlas(word)
        assert (run.returncode, run.stdout, run.stderr) == (0, f"atlas {version}\n", "")


def test_help(atlas):
    run = atlas("--help")
    assert run.returncode == 0 and run.stderr == ""
    assert re.findall(r"^  (\w+)  +\w", run.stdout, re.M) == VERBS
    assert "open only plans that you" in run.stdout and all(len(line) <= 80 for line in run.stdout.splitlines())
    bare = atlas()
    assert (bare.returncode, bare.stdout, bare.stderr) == (2, "", run.stdout)


@pytest.mark.parametrize("verb", VERBS)
def test_help_of_a_verb(atlas, verb):
    run = atlas(verb, "--help")
    assert run.returncode == 0 and run.stderr == ""
    assert run.stdout.startswith(f"usage: atlas {verb} {'PLAN PLAN' if verb == 'diff' else 'PLAN'} [options]\n")
    assert re.search(r"^  -h, --help +print this help$", run.stdout, re.M)
    assert all(len(line) <= 80 for line in run.stdout.splitlines())


def test_help_of_the_compiler_fits_80_columns(atlasc):
    assert all(len(line) <= 80 for line in atlasc("--help").stdout.splitlines())


@pytest.mark.parametrize("columns,limit", [(40, 60), (66, 66), (100, 100), (300, 100)])
def test_help_is_as_wide_as_the_terminal(build_dir, columns, limit):
    """Words are kept whole, and the same ones are there at each width."""
    for command, verb in (("atlas", "run"), ("atlasc", "--help"), ("atlas", "audit")):
        code, _, _, text = run_on_terminal([build_dir / command, verb, "--help"], stderr=False, columns=columns)
        assert code == 0
        bare = subprocess.run([build_dir / command, verb, "--help"], capture_output=True, text=True, check=True).stdout
        assert text.split() == bare.split()
        filled = re.split(r"^(?:Examples|First steps):", text, flags=re.M)[0].splitlines()  # commands stay whole
        assert limit - 15 < max(map(len, filled)) <= limit


def test_help_of_audit_explains_every_column(atlas, plan_of):
    """A reader of the table finds each of its words in the help."""
    text = atlas("audit", "--help").stdout
    table = atlas("audit", plan_of("llama-trained")).stdout
    heads = [line.split() for line in table.splitlines() if line.startswith("  layers ")]
    assert heads and all(head == heads[0] for head in heads)
    for word in [*heads[0], "outs", "start", "end"]:
        assert re.search(rf"(^  |[;,] )({word})\b", text, re.M) or word in ("start", "end") and f"{word} " in text, word


def test_help_lists_what_run_is_asked_for(atlas):
    text = atlas("run", "-h").stdout
    for option in (
        "-p, --prompt",
        "-f, --file",
        "-n, --max-tokens",
        "--temperature",
        "--top-k",
        "--top-p",
        "--min-p",
        "--repetition-penalty",
        "--seed",
        "--stop",
        "--device",
        "--json",
        "--weights",
    ):
        assert option in text


@pytest.mark.parametrize(
    "words,message",
    [
        (["rnu"], "atlas: error: unknown verb rnu: did you mean run?"),
        (["xyzzy"], "atlas: error: unknown verb xyzzy: see atlas --help"),
        (["--verison"], "atlas: error: unknown option --verison: did you mean --version?"),
        (["--zzzzzz"], "atlas: error: unknown option --zzzzzz: options come after the verb, see atlas --help"),
        (["explain", "A0207"], "atlas: error: explain is done by the other command: see atlasc --help"),
        (["times"], "atlas: error: times is done by the other command: see atlasc --help"),
        (["run"], "atlas run: error: name a plan: atlas run PLAN"),
        (["diff", "a"], "atlas diff: error: name two plans: atlas diff PLAN PLAN"),
        (["diff", "a", "b", "c"], "atlas diff: error: two plans are enough: b and c"),
        (["run", "a", "b"], "atlas run: error: one plan is enough: a and b"),
        (
            ["run", "a", "--tempreature", "1"],
            "atlas run: error: unknown option --tempreature: did you mean --temperature?",
        ),
        (["run", "a", "--zzzzzz"], "atlas run: error: unknown option --zzzzzz: see atlas run --help"),
        (
            ["info", "a", "--temperature", "1"],
            "atlas info: error: --temperature is an option of run, bench, chat, not of info",
        ),
        (["run", "a", "-n"], "atlas run: error: --max-tokens needs a value: N"),
        (["run", "a", "-n", "0"], "atlas run: error: --max-tokens 0: expected a whole number from 1 to 1073741824"),
        (["run", "a", "-n", "2.5"], "atlas run: error: --max-tokens 2.5: expected a whole number from 1 to 1073741824"),
        (["run", "a", "--temperature", "hot"], "atlas run: error: --temperature hot: expected a number from 0 to 1000"),
        (["run", "a", "--temperature", "nan"], "atlas run: error: --temperature nan: expected a number from 0 to 1000"),
        (["run", "a", "--temperature=-1"], "atlas run: error: --temperature -1: expected a number from 0 to 1000"),
        (["run", "a", "--top-p", "1.5"], "atlas run: error: --top-p 1.5: expected a number from 1e-06 to 1"),
        (["run", "a", "--seed", "-1"], "atlas run: error: --seed -1: expected a whole number below 2^64"),
        (
            ["run", "a", "--seed", "18446744073709551616"],
            "atlas run: error: --seed 18446744073709551616: expected a whole number below 2^64",
        ),
        (["run", "a", "--stop", ""], "atlas run: error: --stop '': expected a text"),
        (["run", "a", "--stop", "y" * 257], f"atlas run: error: --stop {'y' * 257}: expected at most 256 bytes"),
        (["run", "a", *["--stop=x"] * 17], "atlas run: error: --stop x: expected at most 16 of them"),
        (["run", "a", "--device", "gpu"], "atlas run: error: --device gpu: expected cuda, cpu or auto"),
        (["run", "a", "-n0"], "atlas run: error: --max-tokens 0: expected a whole number from 1 to 1073741824"),
        (["run", "a", "-qx"], "atlas run: error: --quiet x: expected no value"),
        (["run", "a", "--json=yes"], "atlas run: error: --json yes: expected no value"),
        (["run", "a"], "atlas run: error: give one of -p TEXT, -f FILE and --tokens IDS"),
        (["run", "a", "-p", "x", "-f", "y"], "atlas run: error: give one of -p TEXT, -f FILE and --tokens IDS"),
        (["dump", "a", "-p", "x"], "atlas dump: error: name the file to write: -o FILE"),
        (["perplexity", "a"], "atlas perplexity: error: name the text: -f FILE"),
    ],
)
def test_mistakes(atlas, words, message):
    run = atlas(*words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message + "\n")


@pytest.mark.parametrize(
    "verb,words",
    [("run", ["-p", "x"]), ("info", []), ("audit", []), ("verify", ["-p", "x"]), ("dump", ["-p", "x", "-o", "y"])],
)
def test_no_such_plan(atlas, tmp_path, verb, words):
    plan = tmp_path / "none.bin"
    run = atlas(verb, plan, *words)
    assert run.returncode == 5 and run.stdout == ""
    assert run.stderr == (
        f"atlas {verb}: error[IO]: {plan}: No such file or directory\n"
        "  help: Check that the file exists and may be read.\n"
    )


def test_options_after_two_dashes_are_names(atlas):
    run = atlas("info", "--", "--json")
    assert run.returncode == 5 and "--json: No such file" in run.stderr
