"""Manual pages and completion: they hold every option, key and code that the commands know, in sound roff and bash."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

VERBS = ["run", "audit", "verify", "dump", "perplexity", "calibrate", "bench", "tune", "info", "sign", "diff",
         "receipt", "memory"]
COMPLETE = r"""
source "$1"; shift
command=$1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"_$command"
printf '%s\n' "${COMPREPLY[@]}"
"""


@pytest.fixture(scope="module")
def share(build_dir):
    return build_dir / "share"


@pytest.fixture
def complete(share):
    """complete(word, ...): what bash offers for the last word."""

    def run(*words):
        script = share / "bash-completion/completions" / words[0]
        got = subprocess.run(["bash", "-c", COMPLETE, "bash", script, *words], text=True, capture_output=True, check=True)
        assert got.stderr == ""
        return got.stdout.split()

    return run


def options_of(text):
    return set(re.findall(r"^  (?:-\w, |    ?)(--[a-z-]+)", text, re.M))


def test_every_page_is_sound(share):
    pages = sorted(share.glob("man/man?/*"))
    assert {p.name for p in pages} == {"atlasc.1", "atlas.1", "MODEL.toml.5", *[f"atlas-{v}.1" for v in VERBS]}
    assert shutil.which("mandoc"), "make deps installs it"
    lint = subprocess.run(["mandoc", "-Tlint", "-Wwarning", *pages], text=True, capture_output=True, check=False)
    assert (lint.returncode, lint.stdout) == (0, "")


def test_pages_hold_every_option(share, atlas, atlasc):
    commands = {"atlasc": atlasc("--help").stdout, **{f"atlas-{v}": atlas(v, "--help").stdout for v in VERBS}}
    for name, text in commands.items():
        options = options_of(text)
        page = (share / f"man/man1/{name}.1").read_text().replace("\\-", "-")
        assert options and options == set(re.findall(r"^\\fB(?:-\w\\fR, \\fB)?(--[a-z-]+)", page, re.M)), name


def test_pages_hold_every_code_and_key(share, atlasc):
    page = (share / "man/man1/atlasc.1").read_text()
    codes = [line.split("  ")[0] for line in atlasc("explain", "--list").stdout.splitlines()]
    assert codes == re.findall(r"^\.B (A\d{4}):", page, re.M)
    keys = [line.split()[0] for line in atlasc("--help-model").stdout.splitlines()]
    assert keys == re.findall(r"^\.B (\S+) \(", (share / "man/man5/MODEL.toml.5").read_text(), re.M)


def test_bash_completes_words_of_atlas(complete, atlas):
    assert complete("atlas", "") == VERBS
    assert complete("atlas", "di") == ["diff"]
    assert complete("atlas", "--v") == ["--version"]
    assert complete("atlas", "run", "plan.bin", "--top-") == ["--top-k", "--top-p"]
    assert complete("atlas", "run", "plan.bin", "--device", "c") == ["cuda", "cpu"]
    assert complete("atlas", "run", "plan.bin", "--device", "=", "a") == ["auto"]
    assert complete("atlas", "run", "plan.bin", "--max-tokens", "") == []
    for verb in VERBS:
        words = complete("atlas", verb, "--")
        assert set(words) == options_of(atlas(verb, "--help").stdout)


def test_bash_completes_words_of_atlasc(complete, tmp_path, monkeypatch):
    (tmp_path / "model").mkdir()
    (tmp_path / "model.toml").touch()
    monkeypatch.chdir(tmp_path)
    assert complete("atlasc", "m") == ["model"]
    assert complete("atlasc", "model", "--model", "m") == ["model", "model.toml"]
    assert complete("atlasc", "k") == ["kernels"]
    assert complete("atlasc", "explain", "A031") == ["A0312"]
    assert complete("atlasc", "model", "--stop-after", "plan") == ["plan-memory"]
    assert complete("atlasc", "model", "--weights", "") == ["embed", "ref"]
    assert "sm_90a" in complete("atlasc", "model", "--target", "sm_")


@pytest.mark.parametrize("command,words,message", [
    ("atlasc", ["--help-as", "html"], "atlasc: error[A0101]: --help-as html: expected man, model or bash\n"),
    ("atlas", ["--help-as", "html"], "atlas: error: --help-as html: expected man or bash\n"),
    ("atlas", ["run", "--help-as=bash"], "atlas run: error: --help-as bash: expected man\n"),
])
def test_mistakes(request, command, words, message):
    run = request.getfixturevalue(command)(*words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message)
