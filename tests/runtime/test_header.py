"""atlas.h is a header for everybody: C99, C11 and C++ without a warning, and libatlas exports what it declares."""

from __future__ import annotations

import re
import shutil
import subprocess

import pytest

STRICT = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-Wshadow", "-fsyntax-only", "-I."]
USE = """
#include "runtime/atlas.h"
int main(void)
{
	AtlasPlanOptions o = {sizeof o, 0, ATLAS_VERIFY_LAZY, 0, 0, 0};
	AtlasPlan *plan;
	AtlasError error;
	return atlas_status_exit_code(atlas_plan_open("x", &o, &plan, &error));
}
"""


@pytest.mark.parametrize(
    "compiler,language",
    [
        ("cc", ["-std=c99", "-xc"]),
        ("cc", ["-std=c11", "-xc"]),
        ("cc", ["-std=c17", "-xc"]),
        ("c++", ["-std=c++11", "-xc++"]),
        ("c++", ["-std=c++20", "-xc++"]),
    ],
)
def test_compiles_without_a_warning(repo, compiler, language):
    if not shutil.which(compiler):
        pytest.skip(f"no {compiler} here")
    done = subprocess.run([compiler, *language, *STRICT, "-"], input=USE, text=True, cwd=repo, capture_output=True)
    assert done.returncode == 0, done.stderr


def test_library_exports_what_the_header_declares(repo, build_dir):
    text = re.sub(r"/\*.*?\*/", "", (repo / "runtime/atlas.h").read_text(), flags=re.S)
    declared = set(re.findall(r"\b(atlas_[a-z_]+)\s*\(", text))
    assert len(declared) > 20
    shown = subprocess.run(
        ["nm", "-D", "--defined-only", build_dir / "libatlas.so"], text=True, capture_output=True, check=True
    ).stdout
    exported = set(re.findall(r"\b(atlas_[a-z_]+)@@ATLAS_", shown))
    assert exported == declared


def test_every_status_has_a_value_of_its_own(repo):
    rows = re.findall(r"X\((\w+), (\d+), (\d+),", (repo / "runtime/atlas.h").read_text())
    assert [int(value) for _, value, _ in rows] == list(range(len(rows)))
    assert {int(code) for _, _, code in rows} <= {0, 2, 4, 5, 6, 7, 8, 9, 10}
