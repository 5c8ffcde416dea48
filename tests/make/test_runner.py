"""tests/run and tests/golden/run: what fails is counted, what dies is counted, and nothing passes by absence."""

from __future__ import annotations

import pathlib
import shutil
import subprocess
import sys

import pytest

PASS = "echo '[  PASSED  ] 3 test(s).' >&2"
FAIL = "echo '[  PASSED  ] 2 test(s).' >&2; echo '[  FAILED  ] 1 test(s), listed below:' >&2; exit 1"


@pytest.fixture
def tree(repo: pathlib.Path, tmp_path: pathlib.Path):
    """tree(files, programs) makes a tree with these files and programs and returns run(*args)."""
    (tmp_path / "tests/golden").mkdir(parents=True)
    (tmp_path / "tests/unit").mkdir()
    for name in ("tests/run", "tests/golden/run", "tests/conftest.py"):
        shutil.copy(repo / name, tmp_path / name)

    def grow(files: dict[str, str], programs: dict[str, str]):
        for path, text in files.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(text)
        for path, text in programs.items():
            file = tmp_path / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"#!/bin/bash\n{text}\n")
            file.chmod(0o755)

        def run(*args: str, tool: str = "tests/run"):
            own = ["--venv", sys.prefix] if tool == "tests/run" else []
            got = subprocess.run(
                [tmp_path / tool, *own, *args],
                cwd=tmp_path,
                text=True,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                check=False,
                timeout=60,
            )
            return got.returncode, got.stdout

        run.folder = tmp_path
        return run

    return grow


def last(output: str) -> str:
    return output.splitlines()[-1]


def test_sum_over_all_kinds(tree):
    run = tree(
        {
            "tests/unit/test_a.c": "",
            "tests/golden/one/cmd": "echo hi",
            "tests/x/test_y.py": "import pytest\ndef test_a(): pass\n@pytest.mark.skip(reason='because')\ndef test_b(): pass\n",
            "tests/golden/one/expected": "hi\nexit 0\n",
        },
        {"build/tests/test_a": PASS, "scripts/check_x.sh": "exit 0"},
    )
    code, output = run()
    assert (code, last(output)) == (0, "6 passed, 0 failed"), output
    assert "1 skipped (reasons above)" in output and "because" in output


@pytest.mark.parametrize(
    "program, says",
    [
        (FAIL, "2 passed, 1 failed"),
        (PASS + "; kill -SEGV $$", "3 passed, 1 failed"),
        ("exit 0", "0 passed, 1 failed"),
        ("exit 3", "0 passed, 1 failed"),
    ],
)
def test_unit_program_that_fails_dies_or_runs_nothing(tree, program, says):
    code, output = tree({"tests/unit/test_a.c": ""}, {"build/tests/test_a": program})("--only", "unit")
    assert (code, last(output)) == (1, says), output


def test_unit_program_that_was_not_built(tree):
    code, output = tree({"tests/unit/test_a.c": ""}, {})("--only", "unit")
    assert (code, last(output)) == (1, "0 passed, 1 failed"), output


def test_groups_run_at_once_and_are_shown_in_order(tree):
    """With two processors, a slow program waits for its neighbour, which therefore has to run beside it."""
    both = "touch {0}; for i in $(seq 100); do [ -e {1} ] && break; sleep 0.1; done; [ -e {1} ] && {2}"
    run = tree(
        {"tests/unit/test_a.c": "", "tests/unit/test_b.c": "", "tests/unit/test_c.c": ""},
        {
            "build/tests/test_a": both.format("a", "b", f"sleep 1; {PASS}"),
            "build/tests/test_b": both.format("b", "a", PASS),
            "build/tests/test_c": FAIL,
        },
    )
    with_two = "nproc() { echo 2; }; export -f nproc; exec tests/run --only unit"
    got = subprocess.run(
        ["bash", "-c", with_two], cwd=run.folder, text=True, capture_output=True, check=False, timeout=60
    )
    lines = got.stdout.splitlines()
    assert [line.split()[:2] for line in lines[:3]] == [["unit", "test_a"], ["unit", "test_b"], ["unit", "test_c"]]
    assert (got.returncode, got.stderr, lines[-1]) == (1, "", "8 passed, 1 failed")


def test_a_group_that_leaves_nothing_has_failed(tree):
    """Its shell is killed together with it."""
    code, output = tree(
        {"tests/unit/test_a.c": ""}, {"build/tests/test_a": "kill -KILL $(ps -o ppid= $PPID) $PPID; sleep 9"}
    )("--only", "unit")
    assert (code, last(output)) == (1, "0 passed, 1 failed"), output


def test_quick_goes_to_those_who_know_it(tree):
    run = tree(
        {"tests/unit/test_a.c": "/* with --quick half of it */", "tests/unit/test_b.c": ""},
        {f"build/tests/test_{x}": f'echo "$*" >>said-{x}; {PASS}' for x in "ab"},
    )
    assert run("--only", "unit")[0] == 0
    code, output = run("--only", "unit", "--quick")
    assert code == 0 and "some unit programs do less with --quick; `make test` runs all of them\n" in output
    assert [(run.folder / f"said-{x}").read_text() for x in "ab"] == ["\n--quick\n", "\n\n"]


def test_nothing_ran_is_a_failure(tree):
    code, output = tree({}, {})("--only", "unit")
    assert code == 1 and "no test ran" in output


def test_failing_check_shows_what_it_said(tree):
    code, output = tree({}, {"scripts/check_x.sh": "echo src.c:3: bad; exit 1"})("--only", "checks")
    assert code == 1 and "src.c:3: bad" in output


@pytest.mark.parametrize(
    "text, says",
    [
        ("def test_a(): assert 1 == 2\n", "assert 1 == 2"),
        ("import no_such_module\n", "No module named 'no_such_module'"),
    ],
)
def test_pytest_failure_and_error(tree, text, says):
    code, output = tree({"tests/x/test_y.py": text}, {})("--only", "pytest")
    assert (code, last(output)) == (1, "0 passed, 1 failed"), output
    assert says in output


def test_long_tests_are_left_out_unless_asked_for(tree):
    run = tree(
        {"tests/x/test_y.py": "import pytest\ndef test_a(): pass\n@pytest.mark.long\ndef test_b(): assert 0\n"}, {}
    )
    code, output = run("--only", "pytest")
    assert code == 0
    assert output.splitlines()[-2:] == ["1 long test; `make test-long` runs them too", "1 passed, 0 failed"]
    code, output = run("--only", "pytest", "--long")
    assert (code, last(output)) == (1, "1 passed, 1 failed") and "make test-long" not in output


def test_ten_slowest_of_all_kinds(tree):
    slow = "import time, pytest\n@pytest.mark.parametrize('i', range(9))\ndef test_a(i): time.sleep(.1 if i else .9)\n"
    run = tree(
        {
            "tests/unit/test_a.c": "",
            "tests/golden/one/cmd": "sleep 0.5",
            "tests/golden/one/expected": "exit 0\n",
            "tests/x/test_y.py": slow,
        },
        {"build/tests/test_a": "sleep 0.7; " + PASS, "scripts/check_x.sh": "sleep 0.3"},
    )
    code, output = run()
    assert code == 0, output
    lines = output.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("the slowest of 12, in "))
    slowest = [line.split(" s  ") for line in lines[start + 1 : start + 5]]
    assert {name for _, name in slowest} == {"tests.x.test_y::test_a (9)", "unit test_a", "golden one", "check check_x"}
    seconds = [float(line.split()[0]) for line in lines[start + 1 : start + 5]]
    assert seconds == sorted(seconds, reverse=True) and seconds[0] >= 1.7
    assert len(lines) == start + 6
    assert lines[-1] == "14 passed, 0 failed"


def test_golden_compares_output_order_and_exit_code(tree):
    run = tree(
        {"tests/golden/a/cmd": "$ATLASC x $T/plan\n", "tests/golden/a/expected": "$ATLASC: $T/plan\nexit 3\n"},
        {"build/atlasc": 'echo "$0: $2" >&2; exit 3'},
    )
    assert run(tool="tests/golden/run") == (0, "golden: 1 passed, 0 failed\n")


def test_golden_of_another_nvrtc_is_skipped(tree):
    """Each version of NVRTC has its own expectation; where there is none that is said, and never a pass."""
    files = {"tests/golden/a/cmd": "echo code", "tests/golden/a/expected@1.2": "code\nexit 0\n"}
    for version, says in (("1.2", "1 passed, 0 failed"), ("1.3", "0 passed, 0 failed, 1 skipped")):
        run = tree(files, {"build/atlasc": "exit 0", "build/atlas": f"""echo '{{"tool.nvrtc":"{version}"}}'"""})
        code, output = run(tool="tests/golden/run")
        assert code == 0 and last(output) == f"golden: {says}", output
    assert "skip golden a: no digests of NVRTC 1.3\n" in output


def test_golden_difference_and_update(tree, tmp_path):
    run = tree({"tests/golden/a/cmd": "echo new", "tests/golden/a/expected": "old\nexit 0\n"}, {})
    code, output = run(tool="tests/golden/run")
    assert code == 1 and "-old" in output and "+new" in output
    assert last(output) == "golden: 0 passed, 1 failed"
    run("--update", tool="tests/golden/run")
    assert (tmp_path / "tests/golden/a/expected").read_text() == "new\nexit 0\n"
    assert run(tool="tests/golden/run")[0] == 0


def test_golden_without_its_expected_file_fails(tree):
    code, output = tree({"tests/golden/a/cmd": "echo new"}, {})(tool="tests/golden/run")
    assert code == 1 and last(output) == "golden: 0 passed, 1 failed"
