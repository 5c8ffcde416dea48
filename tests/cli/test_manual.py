"""Manual pages and completion: they hold every option, key and code that the commands know, in sound roff and in the
languages of bash, zsh and fish, which run them here."""

from __future__ import annotations

import os
import re
import shutil
import subprocess

import pytest

from verbs import VERBS

BASH = r"""
source "$1/bash-completion/completions/$2"; shift
command=$1
COMP_WORDS=("$@") COMP_CWORD=$(($# - 1))
"_$command"
printf '%s\n' "${COMPREPLY[@]}"
"""
# zsh completes in its line editor alone: one runs on a pseudo terminal, and compadd prints what it is given.
ZSH = r"""
zmodload zsh/zpty
zpty z zsh -f -i
zpty -w z "PS1=; fpath=($1/zsh/site-functions \$fpath); autoload -Uz compinit; compinit -u -D; source $3"
zpty -w z ${(j: :)${(q)@[4,-1]}}$'\t'
while zpty -r z line; do
	[[ $line == *END-OF-MATCHES* ]] && break
	[[ $line == *MATCH:* ]] && print -r -- ${${line##*MATCH:}%%$'\r'*}
done
zpty -d z
"""
ZSH_HOOK = r"""
setopt no_beep
compadd() {
	local -a hits
	if [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]]; then builtin compadd "$@"; return; fi
	builtin compadd -A hits "$@"
	(($#hits)) && print -rl -- "" MATCH:$^hits
	builtin compadd "$@"
}
done_now() { print -r -- ""; print -r -- END-OF-MATCHES; exit; }
comppostfuncs=(done_now)
zle -C complete-now complete-word _main_complete
bindkey '^I' complete-now
"""


@pytest.fixture(scope="module")
def share(build_dir):
    return build_dir / "share"


@pytest.fixture(params=["bash", "zsh", "fish"])
def complete(request, share, tmp_path):
    """complete(word, ...): what the shell offers for the last word, sorted."""
    shell = request.param
    if not shutil.which(shell):
        pytest.skip(f"no {shell} here: `make deps` installs it")
    (tmp_path / "hook.zsh").write_text(ZSH_HOOK)

    def run(*words):
        if shell == "bash":
            call = ["bash", "-c", BASH, "bash", share, *words]
        elif shell == "zsh":
            call = ["zsh", "-f", "-c", ZSH, "zsh", share, words[0], tmp_path / "hook.zsh", *words]
        else:
            line = " ".join(words).replace(" = ", "=")
            file = share / f"fish/vendor_completions.d/{words[0]}.fish"
            call = ["fish", "--no-config", "-c", f"source {file}; complete -C '{line}'"]
        got = subprocess.run(
            call,
            text=True,
            capture_output=True,
            timeout=60,
            check=True,
            env={**os.environ, "HOME": str(tmp_path), "TERM": "dumb"},
        )
        assert got.stderr == "", got.stderr
        lines = [line.split("\t")[0].rstrip("/") for line in got.stdout.splitlines() if line]
        return sorted({line.split("=")[-1] if "=" in words else line.rstrip("=") for line in lines})

    run.shell = shell
    return run


def options_of(text):
    return set(re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", text, re.M))


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


def test_words_of_atlas(complete, atlas):
    verbs = complete("atlas", "")
    assert verbs == sorted(VERBS)
    assert complete("atlas", "di") == ["diff"]
    assert complete("atlas", "--v") == ["--version"]
    assert complete("atlas", "run", "plan.bin", "--top-") == ["--top-k", "--top-p"]
    assert complete("atlas", "run", "plan.bin", "--device", "c") == ["cpu", "cuda"]
    assert complete("atlas", "run", "plan.bin", "--color", "a") == ["always", "auto"]
    assert complete("atlas", "run", "plan.bin", "--max-tokens", "") == []
    if complete.shell == "bash":  # whose words end at =
        assert complete("atlas", "run", "plan.bin", "--device", "=", "a") == ["auto"]


def test_options_of_every_verb(complete, atlas):
    for verb in VERBS if complete.shell == "bash" else ["run", "verify", "diff"]:
        words = {w for w in complete("atlas", verb, "plan.bin", "--") if w.startswith("--")}
        assert words == options_of(atlas(verb, "--help").stdout), verb


def test_words_of_atlasc(complete, atlasc, tmp_path, monkeypatch):
    (tmp_path / "place/model").mkdir(parents=True)
    (tmp_path / "place/model.toml").touch()
    monkeypatch.chdir(tmp_path / "place")
    assert complete("atlasc", "m") == ["model"]
    assert complete("atlasc", "model", "--model", "m") == ["model", "model.toml"]
    assert complete("atlasc", "k") == ["kernels"]
    assert complete("atlasc", "explain", "A031") == ["A0312", "A0313", "A0314"]
    assert complete("atlasc", "model", "--stop-after", "plan") == ["plan-memory"]
    assert complete("atlasc", "model", "--weights", "") == ["embed", "ref"]
    assert "sm_90a" in complete("atlasc", "model", "--target", "sm_")
    options = options_of(atlasc("--help").stdout) - {"--text", "--list", "--machine-code"}
    assert {w for w in complete("atlasc", "model", "--") if w.startswith("--")} == options


@pytest.mark.parametrize(
    "command,words,message",
    [
        (
            "atlasc",
            ["--help-as", "html"],
            "atlasc: error[A0101]: --help-as html: expected man, model, bash, zsh or fish\n",
        ),
        ("atlas", ["--help-as", "html"], "atlas: error: --help-as html: expected man, bash, zsh or fish\n"),
        ("atlas", ["run", "--help-as=bash"], "atlas run: error: --help-as bash: expected man\n"),
    ],
)
def test_mistakes(request, command, words, message):
    run = request.getfixturevalue(command)(*words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message)
