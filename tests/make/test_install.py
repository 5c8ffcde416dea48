"""What `make install` leaves is enough for programs in C: tests/api_example.c and the example in atlas.h are compiled
against the installed tree alone, and say what `atlas run` says, of plans whose steps make one token or several."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess

import pytest

PROMPT, N_TOKENS = "In the beginning", 24
WARNINGS = ["-Wall", "-Wextra", "-Werror", "-Wno-missing-field-initializers"]


@pytest.fixture(scope="module")
def installed(repo, build_dir, tmp_path_factory):
    """Folder that `make install PREFIX=` has filled."""
    if "asan" in build_dir.name:
        pytest.skip("libraries with sanitizers are not installed")
    prefix = tmp_path_factory.mktemp("installed")
    run = subprocess.run(
        ["make", "install", f"PREFIX={prefix}", f"BUILD={build_dir.relative_to(repo)}"],
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return prefix


@pytest.fixture(scope="module")
def flags(installed):
    """What pkg-config says of the installed library: (compiling, linking)."""
    if not shutil.which("pkg-config"):
        pytest.skip("pkg-config is not installed")
    env = os.environ | {"PKG_CONFIG_PATH": str(installed / "lib" / "pkgconfig")}

    def ask(what):
        return subprocess.run(
            ["pkg-config", what, "atlas"], env=env, capture_output=True, text=True, check=True
        ).stdout.split()

    return ask("--cflags"), ask("--libs")


@pytest.fixture(scope="module")
def plans(small_plan_of):
    """A plan that makes one token a step, and one whose head drafts two more; the words that both continue."""
    return {"plain": small_plan_of("llama-trained"), "drafts": small_plan_of("qwen3_5_moe-trained", rows=3)}


def compile_program(source, to, flags, language=("cc", "-std=c99", "-pedantic"), is_static=False):
    compiling, linking = flags
    if is_static:  # libatlas.a, and the system's libraries as they come
        linking = ["-Wl,-Bstatic" if word == "-latlas" else word for word in linking]
        at = linking.index("-Wl,-Bstatic")
        linking[at : at + 1] = ["-Wl,-Bstatic", "-latlas", "-Wl,-Bdynamic"]
    kind = ["-x", "c++"] if "++" in language[0] else []
    run = subprocess.run(
        [*language, *WARNINGS, *compiling, *kind, source, "-x", "none", *linking, "-o", to],
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    return to


def run_program(program, installed, *args, cwd=None):
    env = {"PATH": os.environ["PATH"], "LD_LIBRARY_PATH": str(installed / "lib")}
    return subprocess.run([program, *map(str, args)], env=env, cwd=cwd, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("language", [("cc", "-std=c99", "-pedantic"), ("cc", "-std=c11"), ("c++",)], ids=" ".join)
@pytest.mark.parametrize("is_static", [False, True], ids=["shared", "static"])
def test_whole_program(atlas, repo, installed, flags, plans, tmp_path, language, is_static):
    if not shutil.which(language[0]):
        pytest.skip(f"{language[0]} is not installed")
    program = compile_program(repo / "tests" / "api_example.c", tmp_path / "example", flags, language, is_static)
    needs = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    assert ("libatlas" in needs) != is_static
    for plan in plans.values():
        run = run_program(program, installed, plan, PROMPT, N_TOKENS, "cpu")
        assert (run.returncode, run.stderr) == (0, "")
        said = atlas("run", plan, "-p", PROMPT, "-n", N_TOKENS, "--device", "cpu", "-q").stdout
        assert run.stdout == said != ""


def test_whole_program_says_what_is_wrong(repo, installed, flags, plans, tmp_path):
    program = compile_program(repo / "tests" / "api_example.c", tmp_path / "example", flags)
    bad = run_program(program, installed, tmp_path / "none", "x")
    assert (bad.returncode, bad.stderr) == (1, f"api_example: {tmp_path}/none: No such file or directory\n")
    bad = run_program(program, installed, plans["plain"], "x", 0, "cpu")
    assert bad.returncode == 1 and bad.stderr.startswith("api_example: max_new")
    bad = run_program(program, installed, plans["plain"], "word " * 9000, 4, "cpu")
    assert (bad.returncode, bad.stderr) == (1, "api_example: the tokens do not fit into the context\n")


def test_unit_and_samples_of_the_server(installed):
    """The unit starts the installed command, with no privileges; the samples let streams through."""
    unit = (installed / "lib" / "systemd" / "system" / "atlas-serve@.service").read_text(encoding="utf-8")
    assert f"ExecStart={installed}/bin/atlas serve /var/lib/atlas/%i.bin\n" in unit and "@PREFIX@" not in unit
    lines = unit.splitlines()
    for line in (
        "NoNewPrivileges=yes",
        "CapabilityBoundingSet=",
        "ProtectSystem=strict",
        "DynamicUser=yes",
        "Type=exec",
    ):
        assert line in lines
    if shutil.which("systemd-analyze"):
        run = subprocess.run(
            ["systemd-analyze", "verify", "--man=no", installed / "lib/systemd/system/atlas-serve@.service"],
            capture_output=True,
            text=True,
            check=False,
        )
        assert "atlas-serve" not in run.stderr, run.stderr
    assert "proxy_buffering off;" in (installed / "share" / "atlas" / "nginx.conf").read_text(encoding="utf-8")
    assert "option httpchk GET /ready" in (installed / "share" / "atlas" / "haproxy.cfg").read_text(encoding="utf-8")


FRAME = """#include <atlas.h>
#include <stdio.h>
#include <stdlib.h>
static void die(const char *why) { fprintf(stderr, "%%s\\n", why); exit(1); }
static void show(int32_t token) { printf("%%d\\n", token); }
int main(int argc, char **argv)
{
	int32_t tokens[64];
	int n_tokens = argc - 1;
	for (int i = 0; i < n_tokens; i++)
		tokens[i] = atoi(argv[i + 1]);
%s	return 0;
}
"""


@pytest.mark.parametrize("kind", ["plain", "drafts"])
def test_example_in_the_header(atlas, installed, flags, plans, tmp_path, kind):
    """The lines of atlas.h as they are, in a main."""
    head = (installed / "include" / "atlas.h").read_text(encoding="utf-8").split("*/")[0]
    lines = re.findall(r"^ \*(\t.*\n)", head, re.M)
    assert len(lines) > 15
    source = tmp_path / "header.c"
    source.write_text(FRAME % "".join(lines), encoding="utf-8")
    program = compile_program(source, tmp_path / "header", flags, ("cc", "-std=c11"))
    shutil.copy(plans[kind], tmp_path / "plan.bin")
    ids = [5, 17, 40, 99, 3]
    run = run_program(program, installed, *ids, cwd=tmp_path)
    assert (run.returncode, run.stderr) == (0, "")
    said = atlas("run", plans[kind], "--tokens", ",".join(map(str, ids)), "-n", 64, "--json")
    [result] = json.loads(said.stdout)["results"]
    assert len(result["tokens"]) > 8 and [int(word) for word in run.stdout.split()] == result["tokens"]
