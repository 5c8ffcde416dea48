"""--color of both commands: messages on a terminal have colours, everything else never has."""

from __future__ import annotations

import os
import re

import pytest

from terminal import run_on_terminal

ESCAPE = "\033["
RED, CYAN, GREEN, BOLD, END = "\033[1;31m", "\033[1;36m", "\033[1;32m", "\033[1m", "\033[0m"


@pytest.fixture
def on_terminal(repo):
    """on_terminal(command, words...): exit code, stdout through a pipe, and stderr as a terminal shows it."""

    def run(command, *words, stdout_too=False, env=None):
        words = [os.fspath(command), *map(str, words)]
        code, stdout, _, shown = run_on_terminal(words, stdout=stdout_too, cwd=repo, env={**os.environ, **(env or {})})
        return code, stdout, shown

    return run


MISTAKES = [
    ("atlas", ["rnu"], f"{BOLD}atlas:{END} {RED}error:{END} unknown verb rnu: did you mean run?\n"),
    (
        "atlas",
        ["run", "x", "--tempreature"],
        f"{BOLD}atlas run:{END} {RED}error:{END} unknown option --tempreature: did you mean --temperature?\n",
    ),
    (
        "atlas",
        ["info", "/none.bin"],
        f"{BOLD}atlas info:{END} {RED}error[IO]:{END} /none.bin: No such file or directory\n"
        f"  {GREEN}help:{END} Check that the file exists and may be read.\n",
    ),
    ("atlasc", ["--jbos"], f"{BOLD}atlasc:{END} {RED}error[A0101]:{END} unknown option --jbos: did you mean --jobs?\n"),
    (
        "atlasc",
        ["explain", "unsinged"],
        f"{BOLD}atlasc:{END} {RED}error[A0101]:{END} there is no code unsinged: did you mean UNSIGNED?\n",
    ),
    (
        "atlasc",
        ["kernls"],
        f"{BOLD}atlasc:{END} {RED}error[A0101]:{END} kernls: there is no such folder or command: did you mean kernels?\n",
    ),
]


def plain(text):
    return re.sub(r"\033\[[0-9;]*m", "", text)


@pytest.mark.parametrize("name,words,colored", MISTAKES)
def test_when(request, on_terminal, name, words, colored):
    command = request.getfixturevalue(name)
    bare = command(*words)
    assert (bare.stderr, bare.stdout) == (plain(colored), "")
    assert command(*words, "--color=auto").stderr == plain(colored), "no terminal"
    for how in (["--color", "always"], ["--color=always"], ["--color=never", "--color=always"]):
        run = command(*words, *how)
        assert (run.returncode, run.stderr) == (bare.returncode, colored)
    for how in ([], ["--color", "auto"], ["--color", "always"]):
        assert on_terminal(command, *words, *how) == (bare.returncode, "", colored)
    assert on_terminal(command, *words, "--color=never") == (bare.returncode, "", plain(colored))


def test_no_environment_variable_counts(on_terminal, atlas, atlasc):
    """No variable changes what the commands do; whoever wants no colours says --color never."""
    for name, words, colored in MISTAKES[:1] + MISTAKES[3:4]:
        command = atlas if name == "atlas" else atlasc
        for env in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
            assert on_terminal(command, *words, env=env)[2] == colored
        assert ESCAPE not in command(*words, env={**os.environ, "CLICOLOR_FORCE": "1", "FORCE_COLOR": "1"}).stderr


def test_notes_of_the_compiler(on_terminal, atlasc, kernel_cache, tmp_path):
    words = [
        "tests/fixtures/llama",
        "--context",
        "32",
        "--dry-run",
        "--cache-dir",
        kernel_cache,
        "-q",
        "--target",
        "none",
        "--model",
        tmp_path / "m.toml",
    ]
    (tmp_path / "m.toml").write_text("[runtime]\nmax_context = 48\n")
    code, _, seen = on_terminal(atlasc, *words)
    assert code == 0
    assert re.search(
        rf"^{re.escape(BOLD)}\S+m\.toml:2:1?\d?:?.*{re.escape(CYAN)}note\[A0308\]:{re.escape(END)} ", seen, re.M
    ), seen


def test_json_and_files_are_plain(on_terminal, atlas, atlasc, plan_of, tmp_path):
    plan = plan_of("llama")
    for command, words in (
        (atlas, ["info", plan, "--json"]),
        (atlas, ["audit", plan]),
        (atlas, ["diff", plan, plan]),
        (atlasc, ["kernels"]),
        (atlasc, ["tests/fixtures/llama", "--dry-run", "--json", "--target", "none"]),
    ):
        want = command(*words).stdout
        assert command(*words, "--color=always").stdout == want and ESCAPE not in want
        assert ESCAPE not in on_terminal(command, *words, stdout_too=True)[2]
    page = tmp_path / "page.html"
    assert atlas("audit", plan, "--html", page, "--color=always").returncode == 0
    assert ESCAPE.encode() not in page.read_bytes()
    for name in ("a.bin", "b.bin"):
        how = "always" if name == "a.bin" else "never"
        assert atlasc("tests/fixtures/llama", "--target", "none", "-o", tmp_path / name, "--color", how).returncode == 0
    assert (tmp_path / "a.bin").read_bytes() == (tmp_path / "b.bin").read_bytes(), "a plan does not record it"


@pytest.mark.parametrize(
    "name,words,message",
    [
        ("atlas", ["run", "x", "--color", "blue"], "atlas run: error: --color blue: expected auto, always or never\n"),
        ("atlas", ["run", "x", "--color"], "atlas run: error: --color needs a value: auto|always|never\n"),
        ("atlasc", ["x", "--color=yes"], "atlasc: error[A0101]: --color yes: expected auto, always or never\n"),
    ],
)
def test_mistakes(request, name, words, message):
    run = request.getfixturevalue(name)(*words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message)
