"""A mistyped verb, option, target, code, family or key is answered with the name that is closest to it.

Each name is spoiled by one edit, chosen by a fixed seed; the suggestion must be a name that is as close as any, by a
distance computed here.
"""

from __future__ import annotations

import json
import random
import re
import shutil

import pytest

from verbs import VERBS


def distance(a: str, b: str) -> int:
    """Edits that turn a into b: insert, drop, replace, swap two neighbours."""
    d = {(i, 0): i for i in range(len(a) + 1)} | {(0, j): j for j in range(len(b) + 1)}
    for i in range(1, len(a) + 1):
        for j in range(1, len(b) + 1):
            d[i, j] = min(d[i - 1, j] + 1, d[i, j - 1] + 1, d[i - 1, j - 1] + (a[i - 1] != b[j - 1]))
            if i > 1 and j > 1 and a[i - 1] == b[j - 2] and a[i - 2] == b[j - 1]:
                d[i, j] = min(d[i, j], d[i - 2, j - 2] + 1)
    return d[len(a), len(b)]


def spoil(name: str, keep: int, rng: random.Random) -> str:
    """`name` with one edit past its first `keep` letters and before its last."""
    at = rng.randrange(keep, len(name) - 1)
    edits = [
        name[:at] + name[at + 1 :],
        name[:at] + "z" + name[at:],
        name[:at] + "z" + name[at + 1 :],
        name[:at] + name[at + 1] + name[at] + name[at + 2 :],
    ]
    return rng.choice([e for e in edits if e != name])


def check(stderr: str, seen: str, names: list[str]) -> None:
    got = re.search(r": did you mean (\S+)\?$", stderr, re.M)
    assert got, f"{seen}: {stderr}"
    begun = [n for n in names if n.startswith(seen)]
    least = min(distance(seen, n) for n in names)
    assert got[1] in (begun or [n for n in names if distance(seen, n) == least]), f"{seen}: {got[1]}"


def options_of(text):
    return re.findall(r"^  (?:-\w, |    )(--[a-z-]+)", text, re.M)


def test_verbs(atlas, atlasc):
    rng = random.Random(1)
    for verb in VERBS:
        seen = spoil(verb, 0, rng)
        if seen not in VERBS:
            check(atlas(seen, "plan.bin").stderr, seen, [*VERBS, "kernels", "times", "explain"])
    for command in ("kernels", "times", "explain", "calibrate"):
        seen = spoil(command, 0, rng)
        check(atlasc(seen).stderr, seen, [*VERBS, "kernels", "times", "explain"])


@pytest.mark.parametrize("verb", VERBS)
def test_options_of_a_verb(atlas, verb):
    rng, names = random.Random(2), options_of(atlas(verb, "--help").stdout)
    for name in rng.sample(names, 5):
        seen = spoil(name, 2, rng)
        if seen not in names:
            check(atlas(verb, "plan.bin", seen).stderr, seen, names)


def test_options_of_the_compiler(atlasc):
    rng, names = random.Random(3), options_of(atlasc("--help").stdout)
    for name in rng.sample(names, 12):
        seen = spoil(name, 2, rng)
        if seen not in names:
            check(atlasc("model", seen).stderr, seen, names)


@pytest.mark.parametrize(
    "seen,meant", [("sm_90", "sm_90a"), ("sm_120", "sm_120a"), ("sm90a", "sm_90a"), ("sm_8", "sm_80"), ("nnoe", "none")]
)
def test_targets(atlasc, seen, meant):
    run = atlasc("tests/fixtures/llama", "--target", seen)
    assert run.returncode == 2 and run.stderr.endswith(f": did you mean {meant}?\n")


def test_codes(atlasc):
    for seen in ("A27", "A02071", "A0270", "a0207x"):
        run = atlasc("tests/fixtures/llama", "-W", f"error={seen}")
        assert run.returncode == 2 and re.search(r"there is no such code: did you mean A0\d\d\d\?", run.stderr)


@pytest.mark.parametrize(
    "seen,meant", [("lama", "llama"), ("Qwen3", "qwen3"), ("qwen3-moe", "qwen3_moe"), ("mistrall", "mistral")]
)
def test_families(atlasc, repo, tmp_path, seen, meant):
    folder = tmp_path / "model"
    shutil.copytree(repo / "tests/fixtures/llama", folder)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": seen}))
    run = atlasc(folder, "--dry-run")
    assert run.returncode == 4 and f": did you mean {meant}?\n" in run.stderr


def test_far_names_get_no_suggestion(atlas, atlasc):
    assert atlas("xyzzy").stderr.endswith("unknown verb xyzzy: see atlas --help\n")
    assert "did you mean" not in atlasc("no-such-folder").stderr
    assert "did you mean" not in atlasc("models/kernls").stderr, "a path is no command"
