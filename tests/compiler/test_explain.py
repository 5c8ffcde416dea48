"""`atlasc explain`: the table of diagnostics is what the sources use, and says what to do about each."""

from __future__ import annotations

import json
import re

import pytest


def codes_of(atlasc):
    run = atlasc("explain", "--list", "--json")
    got = json.loads(run.stdout)
    assert (run.returncode, run.stderr, got["schema_version"]) == (0, "", 1)
    return got["codes"]


def test_the_table_is_what_the_sources_use(atlasc, repo):
    table = [c["code"] for c in codes_of(atlasc)]
    assert len(table) == len(set(table)) and table == sorted(table)
    used = set()
    for file in [*repo.glob("compiler/**/*.[ch]"), *repo.glob("models/**/*.[ch]")]:
        if file.name == "codes.h":
            continue
        code = re.sub(r"/\*.*?\*/", "", file.read_text(encoding="utf-8"), flags=re.S)
        used |= set(re.findall(r"\bA0[1-9]\d\d\b", code))
    assert used <= set(table), f"not in codes.h: {sorted(used - set(table))}"
    assert used >= set(table), f"in codes.h and never said: {sorted(set(table) - used)}"


def test_every_code_says_something_of_its_own(atlasc):
    codes = codes_of(atlasc)
    for key in ("title", "meaning", "advice"):
        texts = [c[key] for c in codes]
        assert all(len(t) > 8 for t in texts), key
    assert len({c["title"] for c in codes}) == len(codes)
    assert {c["exit_code"] for c in codes} <= {0, 2, 3, 4, 5, 7}
    lines = atlasc("explain", "--list").stdout.splitlines()
    assert lines == [f"{c['code']}  {c['title']}" for c in codes]


def test_one_code(atlasc):
    for word in ("A0312", "a0312"):
        run = atlasc("explain", word)
        assert (run.returncode, run.stderr) == (0, "")
        assert run.stdout == (
            "A0312: value that the template does not have\n\n"
            "  A rule of kernels.pin or kernels.ban gives a tunable a value that the template is not written for.\n"
            "  Use one of the values in the message; `atlasc kernels` lists the tunables of every template.\n\n"
            "As an error it ends the compile with exit code 4.\n"
        )
    assert atlasc("explain", "A0704").stdout.endswith("This is a note: the compile goes on.\n")
    [only] = json.loads(atlasc("explain", "A0704", "--json").stdout)["codes"]
    assert only["code"] == "A0704"


def test_statuses_of_atlas(atlasc, repo):
    """Every name in the table of atlas.h, as atlas prints it, in small letters, and as the library spells it."""
    table = re.findall(
        r'^\tX\((\w+), (\d+), (\d+), "([^"]*)", "([^"]*)"\)', (repo / "runtime/atlas.h").read_text(), re.M
    )
    assert len(table) > 20
    for name, _, exit_code, text, advice in table:
        run = atlasc("explain", name)
        assert run.returncode == 0 and run.stdout.startswith(
            f"{name}: {text}\n\n" + (f"  {advice}\n\n" if advice else "")
        )
        assert exit_code == "0" or run.stdout.endswith(f"error[{name}] and ends with exit code {exit_code}.\n")
        for word in (name.lower(), f"ATLAS_{name}"):
            assert atlasc("explain", word).stdout == run.stdout
        [only] = json.loads(atlasc("explain", name, "--json").stdout)["codes"]
        assert only == {"code": name, "exit_code": int(exit_code), "title": text, "meaning": "", "advice": advice}


@pytest.mark.parametrize(
    "words,message",
    [
        (["explain", "unsinged"], "atlasc: error[A0101]: there is no code unsinged: did you mean UNSIGNED?"),
        (["explain"], "atlasc: error[A0101]: name a code: atlasc explain A0302, or --list for all of them"),
        (["explain", "A0315"], "atlasc: error[A0101]: there is no code A0315: did you mean A0215?"),
        (["explain", "xyzzy"], "atlasc: error[A0101]: there is no code xyzzy: see atlasc explain --list"),
        (["tests/fixtures/llama", "--list"], "atlasc: error[A0101]: --list is an option of atlasc explain only"),
    ],
)
def test_mistakes(atlasc, words, message):
    run = atlasc(*words)
    assert (run.returncode, run.stdout, run.stderr) == (2, "", message + "\n")
