"""What `tests/mutation/run` says of a mutant that is killed, one that survives and one that cannot be made, also under make."""

from __future__ import annotations

import os
import pathlib
import subprocess
import sys

import pytest

RUN = pathlib.Path(__file__).resolve().parent / "run"
ROW = '[[row]]\nn = 1\nclass = "made for a test"\n'
SIGN = 'name = "{}"\nkind = "source"\nfile = "artifacts/sign.c"\ncheck = "unit:test_sign"\nsays = "{}"\nchange = [["{}", "{}"]]\n'
LINE = "sodium_memzero(key, sizeof *key);"
KILLED = SIGN.format("killed", "FAILED", LINE, "(void)key;")
SURVIVES = SIGN.format("survives", "FAILED", LINE, "memset(key, 0, sizeof *key);")
OTHER_WORDS = SIGN.format("dies-of-something-else", "no such words", LINE, "(void)key;")
ABSENT = SIGN.format("does-not-apply", "FAILED", "no such text", "x")
BROKEN = SIGN.format("does-not-compile", "FAILED", LINE, "this is no C;")


def run(tmp_path, build_dir, *mutants, env=None):
    table = tmp_path / "mutants.toml"
    table.write_text(ROW + "".join(f"[[row.mutant]]\n{m}" for m in mutants), encoding="utf-8")
    done = subprocess.run(
        [sys.executable, RUN, "--build-dir", build_dir, "--table", table],
        text=True,
        capture_output=True,
        timeout=300,
        check=False,
        env=env,
    )
    return done.returncode, {line.split()[0]: line.split(maxsplit=2)[2] for line in done.stdout.splitlines()}, done


@pytest.mark.parametrize(
    "mutant,code,name,says,sum_",
    [
        (KILLED, 0, "killed", "killed by unit:test_sign", "0 survived"),
        (SURVIVES, 1, "survives", "SURVIVED: unit:test_sign accepts it", "1 survived"),
        (OTHER_WORDS, 1, "dies-of-something-else", "SURVIVED: unit:test_sign says something else", "1 survived"),
        (
            ABSENT,
            3,
            "does-not-apply",
            "CANNOT BE MADE: artifacts/sign.c: 'no such text' is in it 0 times",
            "1 cannot be made, 0 survived",
        ),
        (BROKEN, 3, "does-not-compile", "CANNOT BE MADE: exit code 1", "1 cannot be made, 0 survived"),
    ],
)
def test_verdict(build_dir, tmp_path, mutant, code, name, says, sum_):
    got, lines, done = run(tmp_path, build_dir, mutant)
    assert got == code and lines[name].startswith(says), done.stdout + done.stderr
    assert done.stdout.splitlines()[-1] == f"1 mutants of 1 rows, {sum_}"


def test_what_cannot_be_made_outweighs_a_survivor(build_dir, tmp_path):
    code, lines, done = run(tmp_path, build_dir, SURVIVES, ABSENT, KILLED)
    assert code == 3 and done.stdout.splitlines()[-1] == "3 mutants of 1 rows, 1 cannot be made, 1 survived"


def test_under_a_make(build_dir, tmp_path):
    """A make that starts it names a job server that is closed to it: the words about that are no compiler flags."""
    env = os.environ | {"MAKEFLAGS": " -j8 --jobserver-auth=997,998", "MAKELEVEL": "1"}
    words = subprocess.run(
        ["make", "-s", "flags"],
        env=env,
        cwd=RUN.parent.parent.parent,
        text=True,
        capture_output=True,
        timeout=60,
        check=True,
    )
    assert "jobserver unavailable" in words.stderr  # else this test shows nothing
    code, lines, done = run(tmp_path, build_dir, KILLED, env=env)
    assert code == 0 and lines["killed"] == "killed by unit:test_sign", done.stdout + done.stderr
