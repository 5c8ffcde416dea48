"""No mutant survives: `make mutate` as a test, a sample of it where minutes count, and what its table must be."""

from __future__ import annotations

import pathlib
import re
import subprocess
import sys

import pytest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
import workshop  # noqa: E402

KERNELS = HERE.parent / "gpu" / "results" / "mutants.txt"


def test_every_class_has_a_row():
    """Seventy classes and more, most of them injected; the others say why they cannot be, and nothing contradicts."""
    rows = workshop.table()
    assert [row["n"] for row in rows] == list(range(1, len(rows) + 1)) and len(rows) >= 70
    assert all(row["class"] and bool(row.get("mutant")) != bool(row.get("cannot")) for row in rows)
    assert sum(bool(row.get("mutant")) for row in rows) >= 60
    names = [m["name"] for m in workshop.mutants()]
    assert len(set(names)) == len(names)
    for folder, word in (row["absent"] for row in rows if "absent" in row):
        for path in (workshop.REPO / folder).rglob("*.[ch]"):
            assert word.lower() not in path.read_text(encoding="utf-8").lower(), f"{path} has {word}"


def test_kernels_were_mutated_on_a_gpu():
    """Their text still is what was mutated; the committed run names each of them, and no survivor."""
    results = KERNELS.read_text(encoding="utf-8")
    for m in (m for m in workshop.mutants() if m["kind"] == "kernel"):
        text = (workshop.REPO / "kernels" / "templates" / m["file"]).read_text(encoding="utf-8")
        workshop.replaced(text, m["change"], m["file"])
        assert re.search(rf"^{m['name']} +{m['row']}  killed by (kernel_test|compute-sanitizer)", results, re.M), m[
            "name"
        ]
    assert "SURVIVED" not in results


def test_every_mutant_applies():
    """An edit of the tree that moves what a mutant replaces is noticed here; that it compiles, by the sample or `make mutate`."""
    for m in workshop.mutants():
        workshop.check_text(m)


def survivors(build_dir, *words: str) -> None:
    run = subprocess.run(
        [sys.executable, HERE / "run", "--build-dir", build_dir, *words],
        capture_output=True,
        text=True,
        timeout=3600,
        check=False,
    )
    assert run.returncode == 0, (
        "\n".join(line for line in run.stdout.splitlines() if "killed by" not in line) + run.stderr
    )
    assert run.stdout.splitlines()[-1].endswith(" 0 survived")


def test_no_mutant_of_the_sample_survives(build_dir):
    survivors(build_dir, "--sample")


@pytest.mark.long
def test_no_mutant_survives(build_dir):
    survivors(build_dir)
