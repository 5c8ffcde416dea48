"""make hooks, make help: what they write, and what they leave alone."""

import re
import shutil
import subprocess

import pytest


@pytest.fixture
def hooks(repo, tmp_path):
    """hooks() runs scripts/hooks.sh in a new git tree: (exit code, output); the hook is at hooks.path."""
    subprocess.run(["git", "init", "-q", tmp_path], check=True)
    (tmp_path / "scripts").mkdir()
    shutil.copy(repo / "scripts/hooks.sh", tmp_path / "scripts")

    def run():
        got = subprocess.run([tmp_path / "scripts/hooks.sh"], text=True, capture_output=True, check=False, timeout=60)
        return got.returncode, got.stdout + got.stderr

    run.path = tmp_path / ".git/hooks/pre-commit"
    return run


def test_hook_is_written_once_and_stops_a_commit(hooks, tmp_path):
    assert hooks() == (0, ".git/hooks/pre-commit runs make check before each commit\n")
    assert hooks() == (0, ".git/hooks/pre-commit runs the checks already\n")
    (tmp_path / "Makefile").write_text("check:\n\t@echo seen; false\n")
    got = subprocess.run(
        ["git", "-c", "user.name=a", "-c", "user.email=a@b", "commit", "--allow-empty", "-m", "x"],
        cwd=tmp_path,
        text=True,
        capture_output=True,
        check=False,
        timeout=60,
    )
    assert got.returncode != 0 and "seen" in got.stdout + got.stderr


def test_hook_of_the_user_is_kept(hooks):
    hooks.path.write_text("#!/bin/sh\necho mine\n")
    code, said = hooks()
    assert code == 1 and said.startswith("hooks: .git/hooks/pre-commit is there and is kept")
    assert hooks.path.read_text() == "#!/bin/sh\necho mine\n"


def test_help_has_every_target(repo):
    said = subprocess.run(["make", "help"], cwd=repo, text=True, capture_output=True, check=True, timeout=60).stdout
    phony = (
        re.search(r"^\.PHONY: ((?:.*\\\n)*.*)$", (repo / "Makefile").read_text(), re.M)[1].replace("\\\n", " ").split()
    )
    shown = re.findall(r"^  make (\S+) +\S", said, re.M)
    assert set(phony) - {"ready", "tests", "flags"} == set(shown)
