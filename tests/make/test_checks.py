"""The checks of the tree's rules find what they are for: each is run on a small tree that breaks one rule."""

from __future__ import annotations

import pathlib
import shutil
import subprocess

import pytest

PLAN_H = "#ifndef PLAN_H\n#define PLAN_H\nint plan_bytes(void);\n#endif\n"
CLEAN = {
    "artifacts/plan.h": PLAN_H,
    "artifacts/plan_read.c": '#include "artifacts/plan.h"\nint plan_bytes(void) { return 0; }\n',
    "runtime/atlas.h": "#ifndef ATLAS_H\n#define ATLAS_H\nint atlas_version(void);\n#endif\n",
    "runtime/load.c": '#include "runtime/atlas.h"\n#include "artifacts/plan.h"\n'
    "int atlas_version(void) { return plan_bytes(); }\n",
    "runtime/cli/main.c": '#include "runtime/atlas.h"\nint main(void) { return atlas_version(); }\n',
    "compiler/ir.h": '#ifndef IR_H\n#define IR_H\n#include "artifacts/plan.h"\n'
    "typedef struct { const char *name, *text; } TemplateSource;\n"
    "extern const TemplateSource family_toml[];\nextern const int n_family_toml;\n#endif\n",
    "compiler/main.c": '#include "compiler/ir.h"\nint main(void) { return plan_bytes() + n_family_toml; }\n',
    "compiler/kernelgen/kernelgen.c": "#include <stdio.h>\nint main(int argc, char **argv) {\n"
    'FILE *f = fopen(argv[2], "w");\n'
    "if (f == NULL || argc < 3)\nreturn 1;\n"
    'fputs("typedef int kernel_table_is_here;\\n", f);\nreturn fclose(f);\n}\n',
    "models/decoder/part.c": '#include "compiler/ir.h"\ntypedef int part_is_here;\n',
    "runtime/cli/page/page.h": "#ifndef PAGE_H\n#define PAGE_H\ntypedef struct { const char *name, *text; } PageText;\n"
    "extern const PageText page_text[];\nextern const int n_page_text;\n#endif\n",
    "runtime/cli/page/page.css": "p { margin: 0 }\n",
    "runtime/cli/page/page.js": "void 0;\n",
    "README.md": "# x\n\n```sh\nmake all\ntest -d artifacts\n```\n`artifacts/plan.h`\n",
}


@pytest.fixture
def tree(repo: pathlib.Path, tmp_path: pathlib.Path):
    """tree({path: text}) makes a small clean tree with these files besides, and returns a function that
    runs one check in it, after a build if asked: (exit code, output)."""

    def grow(extra: dict[str, str]):
        for path, text in {**CLEAN, **extra}.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        for name in ("scripts", "Makefile", "ruff.toml", ".shellcheckrc"):
            copy = shutil.copytree if (repo / name).is_dir() else shutil.copy
            copy(repo / name, tmp_path / name)

        def check(name: str, build: bool = False) -> tuple[int, str]:
            if build:
                made = subprocess.run(
                    ["make", f"VENV={repo}/build/venv", f"WHEELS={repo}/build/deps/cuda"],
                    cwd=tmp_path,
                    text=True,
                    capture_output=True,
                    check=False,
                    timeout=120,
                )
                assert made.returncode == 0, made.stdout + made.stderr
            got = subprocess.run(
                [tmp_path / f"scripts/check_{name}.sh", "build"],
                cwd=tmp_path,
                text=True,
                capture_output=True,
                check=False,
                timeout=120,
            )
            return got.returncode, got.stdout + got.stderr

        return check

    return grow


def test_clean_tree_passes_every_check(tree):
    check = tree({})
    assert check("globals", build=True) == (0, "")
    for name in ("calls", "headers", "lines", "links", "prose", "readme", "rooms", "size", "transcript"):
        assert check(name) == (0, "")


@pytest.mark.parametrize(
    "path, line, says",
    [
        ("artifacts/bad.c", '#include "compiler/ir.h"', "artifacts/ includes artifacts/ only"),
        ("runtime/bad.c", '#include "compiler/ir.h"', "runtime/ includes runtime/ and artifacts/ only"),
        ("compiler/bad.c", '#include "runtime/atlas.h"', "compiler/ includes compiler/ and artifacts/ only"),
        ("models/decoder/bad.c", '#include "runtime/atlas.h"', "models/ include nouns of compiler/"),
        ("runtime/bad.c", "#include <nvrtc.h>", "NVRTC belongs to compiler/"),
        ("compiler/bad.c", "#include <cuda.h>", "the CUDA driver belongs to runtime/"),
        ("compiler/bad.c", "#include <clang-c/Index.h>", "libclang belongs to compiler/kernelgen"),
        ("compiler/bad.c", '#include "compiler/main.c"', "a source file is not included"),
        ("runtime/cli/bad.c", 'const char *f(void) { return getenv("X"); }', "no room reads the environment"),
        (
            "runtime/cli/bad.c",
            'FILE *f(void) { return fopen("x", "wb"); }',
            "files are written by artifacts/new_file.c",
        ),
        (
            "runtime/cli/bad.c",
            'FILE *f(const char *p) { return fopen(p, "r+"); }',
            "files are written by artifacts/new_file.c",
        ),
        ("compiler/bad.c", "int f(char *p) { return mkstemp(p); }", "files are written by artifacts/new_file.c"),
        (
            "compiler/bad.c",
            "int f(char *p) { return open(p, O_CREAT | O_EXCL, 0666); }",
            "written by artifacts/new_file.c",
        ),
        ("artifacts/bad.c", "int f(char *p) { return rename(p, p); }", "files are written by artifacts/new_file.c"),
        ("kernels/templates/rows/bad.cuh", "#include <cuda_fp16.h>", "includes no header of a toolkit"),
    ],
)
def test_rooms(tree, path, line, says):
    code, output = tree({path: line + "\n"})("rooms")
    assert code == 1
    assert output.startswith(f"{path}:1:") and says in output


@pytest.mark.parametrize(
    "line",
    [
        "static int n_calls;",
        "int n_calls = 3;",
        "static _Thread_local int n_calls;",
        "void f(void);\nvoid f(void) { static int n_calls; n_calls++; }",
    ],
)
def test_globals(tree, line):
    use = "" if "f(void)" in line else "int g(void);\nint g(void) { return n_calls++; }\n"
    code, output = tree({"artifacts/bad.c": f"{line}\n{use}"})("globals", build=True)
    assert code == 1
    assert "artifacts/bad.o: n_calls" in output


def test_constant_tables_of_pointers_are_no_globals(tree):
    table = 'extern const char *const names[];\nconst char *const names[] = {"a", "b"};\n'
    assert tree({"artifacts/names.c": table})("globals", build=True) == (0, "")


@pytest.mark.parametrize(
    "files, says",
    [
        ({"artifacts/a.c": "int a(void);\nint a(void) { return 1; }\n"}, "artifacts/a.c: a: no other file calls it"),
        (
            {
                "compiler/graph/a.c": "int a(int x), b(int x);\nint a(int x) { return x ? b(x - 1) : 0; }\n",
                "compiler/graph/b.c": "int a(int x), b(int x);\nint b(int x) { return a(x); }\n",
                "compiler/main.c": "int a(int x);\nint main(void) { return a(3); }\n",
            },
            "compiler/graph/a.c: in a circle of calls\ncompiler/graph/b.c: in a circle of calls",
        ),
        (
            {
                "artifacts/a.c": "int a(void);\nint a(void) { return 1; }\n",
                "tests/unit/test_a.c": "int a(void);\nint main(void) { return a(); }\n",
            },
            None,
        ),
    ],
)
def test_calls(tree, files, says):
    code, output = tree(files)("calls", build=True)
    assert (code, output) == (0, "") if says is None else code == 1 and says in output


def test_header_that_needs_another(tree):
    code, output = tree({"runtime/bad.h": "#ifndef B\n#define B\nsize_t f(void);\n#endif\n"})("headers")
    assert code == 1
    assert "runtime/bad.h: not self-contained" in output


def test_library_that_grew(tree):
    check = tree(
        {
            "runtime/atlas.h": "#ifndef A\n#define A\nint atlas_version(void);\nint atlas_many(int i);\n#endif\n",
            "runtime/many.c": '#include "runtime/atlas.h"\nstatic const int many[150000] = {1};\n'
            "int atlas_many(int i) { return many[i]; }\n",
        }
    )
    code, output = check("size", build=True)
    assert code == 1
    assert "bytes when stripped: expected less than 606208" in output and " many\n" in output


def test_undefined_export_and_build_path(tree):
    check = tree(
        {"runtime/atlas.h": "#ifndef A\n#define A\nint atlas_version(void);\nint atlas_absent(void);\n#endif\n"}
    )
    code, output = check("links", build=True)
    assert code == 1
    assert "declares atlas_absent, which libatlas.so does not export" in output


@pytest.mark.parametrize(
    "path, text, says",
    [
        ("runtime/long.c", "int x(void);\n" * 1001, "runtime/long.c: 1001 lines, budget 1000"),
        ("runtime/long.h", "int x(void);\n" * 601, "runtime/long.h: 601 lines, budget 600"),
        ("compiler/f.c", "int f(int x)\n{\n" + "\tx++;\n" * 130 + "}\n", "f: 133 lines, budget 120"),
        ("compiler/w.c", "/* " + "w" * 120 + " */\n", "compiler/w.c:1: 1 lines wider than 120 columns"),
    ],
)
def test_lines(tree, path, text, says):
    code, output = tree({path: text})("lines")
    assert code == 1
    assert says in output


def test_generated_files_have_no_budget(tree):
    text = "/* Generated by scripts/x.py */\n" + "int x(void);\n" * 5000
    assert tree({"runtime/text/table.h": text})("lines") == (0, "")


def test_readme_without_a_pass(tree):
    main = CLEAN["compiler/main.c"] + "/* pipeline[] = {\n\t{'k', \"pick-kernels\", x},\n};\n*/\n"
    code, output = tree({"compiler/main.c": main})("readme")
    assert code == 1
    assert "the pass k pick-kernels of compiler/main.c is not shown" in output


@pytest.mark.parametrize(
    "line, says",
    [
        ("`artifacts/none.h`", "artifacts/none.h does not exist"),
        ("`make nothing`", "make nothing: no such target"),
        ("```sh\nls artifacts/none.c\n```", "`ls artifacts/none.c` fails:"),
        ("```tree\nnowhere/   a folder\n```", "nowhere/ does not exist"),
    ],
)
def test_readme(tree, line, says):
    code, output = tree({"README.md": f"# x\n\n{line}\n"})("readme")
    assert code == 1
    assert says in output


@pytest.mark.parametrize(
    "link, says",
    [
        ("docs/y.md", None),
        ("docs/y.md#two-words-and-code", None),
        ("docs/y.md#twice-1", None),
        ("#x-y", None),
        ("docs", None),
        ("https://example.com/nowhere", None),
        ("docs/z.md", "README.md: the link docs/z.md leads nowhere"),
        ("y.md", "the link y.md leads nowhere"),
        ("#z", "the link #z: README.md has no such heading"),
        ("docs/y.md#no-heading", "the link docs/y.md#no-heading: docs/y.md has no such heading"),
    ],
)
def test_links(tree, link, says):
    page = "# A page\n\n## Two words, and `code`\n\n## Twice\n\n## Twice\n\n```sh\n# no heading\n```\n[back](../README.md#x-y)\n"
    code, output = tree({"README.md": f"# X y\n\nSee [it\nthere]({link}), `[x](nowhere)`.\n", "docs/y.md": page})(
        "readme"
    )
    assert (code, output) == (0, "") if says is None else code == 1 and says in output


@pytest.mark.parametrize(
    "name, exists",
    [("artifacts/plan.h", True), ("models/NAME.toml", True), ("artifacts/plan_old.h", False), ("docs/none.md", False)],
)
def test_paths_in_comments(tree, name, exists):
    code, output = tree({"runtime/x.c": f"int x; /* a line,\n * see {name}:12 */\n"})("readme")
    assert (code, output) == ((0, "") if exists else (1, f"runtime/x.c: 2: {name} does not exist\n"))


@pytest.mark.parametrize(
    "path, text",
    [
        ("README.md", "# x\n\nA note tells why.\n"),
        ("docs/x.md", "The plan is held against its contracts.\n"),
        ("docs/x.md", "The page beside it.\n"),
        ("CONTRIBUTING.md", "Its name stands in a table.\n"),
        ("compiler/x.h", "/* Nobody reads it. */\n"),
        ("runtime/x.c", "/* the bytes\n * behind the end */\n"),
        ("runtime/x.c", "/* steps on their way */\n"),
        ("artifacts/x.h", "/* of so many bytes */\n"),
    ],
)
def test_prose(tree, path, text):
    code, output = tree({path: text})("prose")
    assert code == 1
    assert output.startswith(f"{path}:")


def test_prose_that_is_plain_english(tree):
    text = "/* A star stands for any text; nothing is left behind. */\nint behind; /* a stand-in, besides */\n"
    assert tree({"compiler/x.h": text, "docs/x.md": "It prints nothing.\n"})("prose") == (0, "")


@pytest.mark.parametrize(
    "text, is_bad",
    [
        ("nobody", True),
        ("a slot is no number", True),
        ('the row "\n\t"stands twice', True),
        ("--x is of --y", True),
        ("bytes behind the end", True),
        ("there is no file", False),
        ("a file without rows", False),
    ],
)
def test_prose_of_strings(tree, text, is_bad):
    code, output = tree({"compiler/x.h": f'static const char *const x =\n\t"{text}";\n'})("prose")
    assert (code, output.split(" ")[0]) == ((1, "compiler/x.h:2:") if is_bad else (0, ""))


@pytest.mark.parametrize(
    "lines, says",
    [
        ("$ echo one 2\none 33", None),
        ("$ printf 'a\\nb c\\nd\\n'\na\n...\nd", None),
        ("$ echo one two\none ...", None),
        ("$ echo one two\none", "does not print, or not here: one"),
        ("$ printf 'a\\nb\\n'\nb\na", "does not print, or not here: a"),
        ("$ ls nowhere", "`ls nowhere` fails:"),
    ],
)
def test_transcript(tree, lines, says):
    code, output = tree({"docs/x.md": f"```console\n{lines}\n```\n"})("transcript")
    assert (code, says is None) in ((0, True), (1, False))
    assert says is None or says in output


def test_lint_names_what_is_wrong(tree, repo, monkeypatch):
    """Scripts are found by their first line, in every folder and with any name."""
    monkeypatch.setenv("VENV", str(repo / "build/venv"))
    check = tree(
        {"tests/tool": "#!/bin/bash\nrm $1\n", "tests/bad.py": "import os\nprint(1)\n", "build/x.py": "import os\n"}
    )
    code, said = check("lint")
    assert code == 1
    assert said.splitlines() == [
        "./tests/tool:2:4: note: Double quote to prevent globbing and word splitting. [SC2086]",
        "tests/bad.py:1:8: F401 [*] `os` imported but unused",
    ]


def test_format_names_the_files_to_mend(tree, repo, monkeypatch):
    monkeypatch.setenv("VENV", str(repo / "build/venv"))
    wrong = {"compiler/x.c": "int a;  \n", "tests/x.py": "x = {1:2}\n"}
    check = tree(wrong | {"build/x.py": "x = {1:2}\n", "tests/y.py": "x = {1: 2}\n", "compiler/y.c": "int a;\n"})
    code, said = check("format")
    assert code == 1
    assert "compiler/x.c:1: `make format` would change this line\n" in said
    assert "tests/x.py: `make format` would change this file\n" in said
    assert "build/x.py" not in said and "tests/y.py" not in said and "compiler/y.c" not in said


def test_format_says_what_is_missing(tree, monkeypatch):
    monkeypatch.setenv("VENV", "no-such-folder")
    code, said = tree({})("format")
    assert code == 1 and said.endswith("missing: ruff in no-such-folder; `make deps` installs it\n")


def test_lint_says_what_is_missing(tree, monkeypatch):
    monkeypatch.setenv("VENV", "no-such-folder")
    assert tree({})("lint") == (1, "missing: ruff in no-such-folder; `make deps` installs it\n")
