"""scripts/format_c.py: what it mends, what it only names, and that a second run changes nothing."""

import subprocess
import sys

import pytest


@pytest.fixture
def run(repo, tmp_path):
    """run(text, *options) formats one file: (exit code, output, the text after it)."""

    def call(text, *options):
        file = tmp_path / "x.c"
        file.write_bytes(text.encode())
        got = subprocess.run(
            [sys.executable, repo / "scripts/format_c.py", *options, file],
            text=True,
            capture_output=True,
            check=False,
            timeout=60,
        )
        assert got.stderr == ""
        return got.returncode, got.stdout.replace(str(file), "x.c"), file.read_bytes().decode()

    return call


WRONG = {
    "line ends": ("int a;\r\nint b;  \n\n\n\nint c;", "int a;\nint b;\n\nint c;\n"),
    "blanks": ("int f(void)\n{\n    return 1;\n\t    /* x */\n}\n", "int f(void)\n{\n\treturn 1;\n\t\t/* x */\n}\n"),
    "operator": ("\tif (a\n\t\t&& b\n\t\t|| c)\n", "\tif (a &&\n\t\tb ||\n\t\tc)\n"),
    "operator of a macro": ("#define A \\\n\tB \\\n\t&& C\n", "#define A \\\n\tB && \\\n\tC\n"),
    "body": ("int f(void)\n{ return 1; }\n", "int f(void)\n{\n\treturn 1;\n}\n"),
    "includes": (
        '/* x */\n#include <stdio.h>\n#include <a.h>\n\n#include "b.h"\n#include "a.h"\nint a;\n',
        '/* x */\n#include "b.h"\n#include "a.h"\n\n#include <stdio.h>\n#include <a.h>\nint a;\n',
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_mends(run, name):
    wrong, right = WRONG[name]
    code, said, kept = run(wrong, "--check")
    assert (code, kept) == (1, wrong) and said.endswith(": `make format` would change this line\n")
    assert run(wrong) == (0, "formatted x.c\n", right)
    assert run(right) == (0, "", right)
    assert run(right, "--check") == (0, "", right)


def test_names_the_line_that_changes(run):
    assert run("int a;\nint b; \n", "--check")[1] == "x.c:2: `make format` would change this line\n"


@pytest.mark.parametrize(
    "before, why",
    [
        ("\tif (a /* why */", "the line before ends with a comment"),
        ("\tif (a // why", "the line before ends with a comment"),
        ("\tif (" + "a" * 111, "the line before has no room for it"),
    ],
)
def test_what_it_cannot_mend_is_named(run, before, why):
    text = f"{before}\n\t\t|| b)\n"
    for options in ([], ["--check"]):
        assert run(text, *options) == (1, f"x.c:2: || starts the line, and {why}\n", text)


def test_text_and_comments_keep_their_operators(run):
    text = '/* either a\n * || b\n */\nconst char *s = "a && b";\n#if A \\\n\t|| B\n#endif\n'
    assert run(text)[2].startswith('/* either a\n * || b\n */\nconst char *s = "a && b";\n')
