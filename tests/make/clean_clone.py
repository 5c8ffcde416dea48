"""Clean clones of the tree under test."""

from __future__ import annotations

import os
import pathlib
import shutil
import socket
import subprocess


def tracked(repo: pathlib.Path) -> list[str]:
    """Files of the tree that git keeps or would keep, relative to its root; empty where this is no checkout."""
    got = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=repo,
        capture_output=True,
        text=True,
        check=False,
    )
    return [name for name in got.stdout.split("\0") if name and (repo / name).is_file()]


def clean_clone(repo: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    """Copies the tree as a commit of it would be, changes that are not committed included, and commits it there."""
    names = tracked(repo)
    if not names:
        shutil.copytree(
            repo, folder, symlinks=True, ignore=shutil.ignore_patterns("build", "build-*", ".git", "__pycache__")
        )
        return folder
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(repo / name, folder / name, follow_symlinks=False)
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.com"]
    for words in (["init", "-q"], ["add", "-A", "-f"], ["commit", "-q", "-m", "the tree under test"]):
        subprocess.run([*git, *words], cwd=folder, check=True, capture_output=True)
    return folder


def outside_make() -> dict[str, str]:
    """The environment without what a make that runs these tests passes to makes that it starts itself."""
    return {k: v for k, v in os.environ.items() if k not in ("MAKEFLAGS", "MAKELEVEL", "MFLAGS", "MAKEOVERRIDES")}


def make(clone: pathlib.Path, *args: str, timeout: float = 1800) -> subprocess.CompletedProcess:
    return subprocess.run(
        ["make", "CUDA_HOME=none", *args],
        cwd=clone,
        env=outside_make(),
        text=True,
        capture_output=True,
        check=False,
        timeout=timeout,
    )


def reachable() -> bool:
    try:
        socket.create_connection(("pypi.org", 443), timeout=5).close()
    except OSError:
        return False
    return True
