"""Files of measured times and plans with candidates, as far as they go without a GPU."""

from __future__ import annotations

import hashlib
import json
import tomllib
import pathlib
import re
import subprocess

import pytest

MODEL = "llama"
SHAPE = "tests/fixtures/llama"
HAS_GPU = pathlib.Path("/dev/nvidia0").exists()


def audit(atlas, plan):
    run = atlas("audit", "--json", plan)
    assert run.returncode == 0
    return json.loads(run.stdout)


def norm_linear(atlas, plan):
    """The launch of decode's first norm_linear."""
    phases = audit(atlas, plan)["targets"][0]["phases"]
    decode = next(p for p in phases if p["phase"] == "decode")
    return next(x for x in decode["launches"] if x["op"] == "norm_linear")


@pytest.fixture(scope="session")
def times(atlasc, atlas, small_plan_of, tmp_path_factory):
    """times(us, key=None): a file that knows one kernel, which the model ranks behind the one it chooses."""
    launch = norm_linear(atlas, small_plan_of(MODEL, "--tuning", "none"))
    chosen = next(c for c in launch["candidates"] if c["verdict"] == "chosen")
    other = next(c for c in launch["candidates"] if c["verdict"] == "slower" and c["template"] == chosen["template"])
    constants = [d for d in launch["defines"].split() if d not in chosen["tunables"].split()]
    file = tmp_path_factory.mktemp("times") / "times.toml"

    def text(us, key="0" * 16):
        return (
            f'[card]\ntarget = "sm_90a"\nname = "A card"\ndriver = "1"\n[[kernel]]\ntemplate = "{other["template"]}"\n'
            f'constants = "{" ".join(constants)}"\n"{other["tunables"]}" = [{us}, 0.01, "{key}"]\n'
        )

    file.write_text(text(1))
    [only] = json.loads(atlasc("times", file, "--json").stdout)["files"][0]["times"]
    return lambda us, key=only["key"]: text(us, key), other, chosen


def test_measured_is_chosen_and_recorded(atlas, small_plan_of, times, tmp_path):
    text, other, _ = times
    file = tmp_path / "times.toml"
    file.write_text(text(5.25))
    plan = small_plan_of(MODEL, "--tuning", file)
    assert audit(atlas, plan)["options"]["tuning.sm_90a"] == hashlib.sha256(file.read_bytes()).hexdigest()
    launch = norm_linear(atlas, plan)
    chosen = next(c for c in launch["candidates"] if c["verdict"] == "chosen")
    assert (chosen["template"], chosen["tunables"]) == (other["template"], other["tunables"])
    assert (chosen["cost_from"], chosen["cost_us"]) == ("measured", 5.25)
    assert any(c["verdict"] == "slower" and c["cost_from"] == "model" for c in launch["candidates"])
    text = atlas("audit", plan).stdout
    assert re.search(rf"^target  sm_90a .*  times {hashlib.sha256(file.read_bytes()).hexdigest()[:12]}$", text, re.M)
    line = next(x for x in text.splitlines() if "5.25 measured" in x)
    assert "norm_linear" in line and f"{other['template']} {other['tunables']}" in line
    options = audit(atlas, plan)["options"]
    assert (options["tuning.sm_90a.card"], options["tuning.sm_90a.driver"]) == ("A card", "1")
    without = small_plan_of(MODEL, "--tuning", "none")
    options = audit(atlas, without)["options"]
    assert options["tuning.sm_90a"] == "none" and "tuning.sm_90a.card" not in options
    assert "        run on: H100, H200   times of: A card" in text.splitlines()
    assert "times of: no card" in atlas("audit", without).stdout
    assert (
        "targets      sm_90a, run on: H100, H200; kernels chosen by times of A card, driver 1\n"
        in atlas("info", plan).stdout
    )
    assert "; kernels chosen by a model of its typical card, without times\n" in atlas("info", without).stdout
    told = {"target": "sm_90a", "ran_on": "H100, H200", "times": "none", "card": "", "driver": ""}
    assert json.loads(atlas("info", without, "--json").stdout)["by_target"] == [told]


def test_a_card_of_the_built_in_times(atlas, atlasc, small_plan_of, repo, tmp_path, kernel_cache):
    """--card goes before target.card; both are recorded, and the same plan comes out of a rebuild."""
    file = repo / "kernels/tuning/sm_90a.h100.toml"
    of_file = tomllib.loads(file.read_text())["card"]
    plain = audit(atlas, small_plan_of(MODEL))["options"]
    assert plain["tuning.sm_90a"] == hashlib.sha256(file.read_bytes()).hexdigest()
    assert (plain["tuning.sm_90a.card"], plain["tuning.sm_90a.driver"]) == (of_file["name"], of_file["driver"])
    plan = small_plan_of(MODEL, "--card", "h100")
    named = audit(atlas, plan)["options"]
    assert named.pop("input.card") == "h100" and named == plain
    run = atlas("verify", plan, "--rebuild", "--checkpoint", repo / "tests/fixtures" / MODEL)
    assert run.returncode == 0, run.stdout + run.stderr
    toml = tmp_path / "MODEL.toml"
    toml.write_text('[target]\ncard = "h100"\n')
    fixture = repo / "tests/fixtures" / MODEL

    def refused(*words):
        run = atlasc(fixture, "--dry-run", "--model", toml, *words)
        return run.returncode, run.stderr.splitlines()[0]

    assert atlasc(fixture, "--dry-run", "--model", toml, "--stop-after", "read-options").returncode == 0
    none = "no target of this compile has times of that card; there are: "
    assert refused("--card", "h200x") == (4, f"atlasc: error[A0707]: --card h200x: {none}h100, h200")
    assert refused("--target", "sm_80") == (4, f"{toml}:2:8: error[A0707]: target.card = h100: {none}none")
    assert refused("--card", "h100", "--tuning", "none") == (
        2,
        "atlasc: error[A0101]: --card chooses among the built-in times, which --tuning replaces: give one of them",
    )
    assert refused("--card", "h100", "--target", "none") == (
        2,
        "atlasc: error[A0101]: --card: --target none needs no measured times",
    )
    known = "there are: h100, h200"
    assert refused("--card", "h100,h200") == (
        4,
        "atlasc: error[A0707]: --card h100,h200: more than one card of sm_90a: its "
        "kernels are chosen by the times of one",
    )
    assert refused("--card", "h100,") == (
        4,
        f'atlasc: error[A0707]: --card "h100,": the name of a card is missing; {known}',
    )
    toml.write_text('[target]\ncard = ""\n')
    assert refused() == (4, f'{toml}:2:8: error[A0707]: target.card = "": the name of a card is missing; {known}')
    toml.write_text("[target]\ncard = 1\n")
    assert refused() == (4, f"{toml}:2:8: error[A0303]: target.card = 1: expected a string")


def test_times_of_another_version_are_told_and_not_used(atlasc, times, tmp_path):
    text, other, _ = times
    file = tmp_path / "times.toml"
    file.write_text(text(5.25, "0" * 16))
    run = atlasc(SHAPE, "--tuning", file, "--stop-after", "pick-kernels")
    assert run.returncode == 0
    # the family's buckets have a decode of one row as well, which the file says nothing of: told once or not at all
    told = [x for x in run.stderr.splitlines() if "A0704" in x]
    assert told in (
        [],
        [
            f"{file}: note[A0704]: times of {other['template']} were measured with another version of it and are not used"
        ],
    )


@pytest.mark.parametrize(
    "text,where,what",
    [
        ("[card]\ntarget = 90\n", ":2:10", "expected a string"),
        ('[card]\nwatts = "700"\n', ":2:1", "unknown key watts: [card] has target, name and driver"),
        (
            '[card]\ntarget = "sm_80"\nname = "A"\ndriver = "1"\n',
            "",
            "times of sm_80, which is not a target of this compile",
        ),
    ],
)
def test_bad_files(atlasc, tmp_path, text, where, what):
    file = tmp_path / "times.toml"
    file.write_text(text)
    run = atlasc(SHAPE, "--tuning", file, "--stop-after", "read-text")
    assert (run.returncode, run.stderr) == (4, f"{file}{where}: error[A0703]: {what}\n")


def test_absent_file(atlasc, tmp_path):
    run = atlasc(SHAPE, "--tuning", tmp_path / "none.toml", "--stop-after", "read-text")
    assert run.returncode == 4 and f"{tmp_path}/none.toml: error[A0102]" in run.stderr


@pytest.mark.parametrize("n", ["0", "257", "some"])
def test_how_many_candidates(atlasc, n):
    run = atlasc(SHAPE, "--candidates", n)
    assert (run.returncode, run.stderr) == (2, f"atlasc: error[A0101]: --candidates {n}: expected 1 to 256\n")


def test_a_plan_without_candidates(atlas, small_plan_of):
    plan = small_plan_of(MODEL)
    run = atlas("tune", plan)
    assert (run.returncode, run.stdout) == (4, "")
    assert run.stderr == f"atlas tune: error: {plan} has no candidates: atlasc --candidates N puts them in\n"


@pytest.fixture(scope="session")
def with_candidates(small_plan_of):
    return small_plan_of(MODEL, "--candidates", "1")


def test_a_plan_with_candidates_is_a_plan(atlas, small_plan_of, with_candidates):
    words = ["--tokens", "5,9,200,31", "-n", "8", "--device", "cpu", "-q"]
    plain, more = (atlas("run", p, *words) for p in (small_plan_of(MODEL), with_candidates))
    assert (more.returncode, more.stdout, more.stderr) == (plain.returncode, plain.stdout, plain.stderr)
    assert plain.returncode == 0
    n = [audit(atlas, p)["targets"][0]["n_candidates"] for p in (small_plan_of(MODEL), with_candidates)]
    assert n[0] == 0 and n[1] > 10
    assert f"\n        {n[1]} candidates for atlas tune\n" in atlas("audit", with_candidates).stdout
    assert with_candidates.stat().st_size > small_plan_of(MODEL).stat().st_size


def test_same_candidates_same_bytes(atlasc, kernel_cache, with_candidates, small_plan_of, tmp_path):
    toml = next(x for x in with_candidates.parent.parent.glob("small*/llama.toml"))
    run = atlasc(
        SHAPE,
        "--model",
        toml,
        "--candidates",
        "1",
        "-j",
        "1",
        "--cache-dir",
        kernel_cache,
        "-o",
        tmp_path / "again.bin",
        timeout=600,
    )
    assert run.returncode == 0
    assert (tmp_path / "again.bin").read_bytes() == with_candidates.read_bytes()


def test_the_file_is_looked_at_before_the_gpu(atlas, with_candidates, tmp_path):
    file = tmp_path / "times.toml"
    file.write_text("[card]\ntarget = 90\n")
    run = atlas("tune", with_candidates, "-o", file)
    assert (run.returncode, run.stderr) == (4, f"atlas tune: {file}:2:10: error: expected a string\n")
    assert file.read_text() == "[card]\ntarget = 90\n"
    run = atlas("tune", with_candidates, "-o", tmp_path)
    assert (run.returncode, run.stderr) == (5, f"atlas tune: error: {tmp_path}: not a regular file but a folder\n")
    run = atlas("tune", with_candidates, "-o", tmp_path / "no" / "times.toml")
    assert (run.returncode, run.stderr) == (
        5,
        f"atlas tune: error: {tmp_path}/no/times.toml: cannot be written: No such file or directory\n",
    )
    run = atlas("tune", with_candidates, "--only", "norm_linea")
    assert (run.returncode, run.stderr) == (
        2,
        "atlas tune: error: --only norm_linea: there is no such op: did you mean norm_linear?\n",
    )


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_no_gpu(atlas, with_candidates, tmp_path):
    run = atlas("tune", with_candidates, "-o", tmp_path / "times.toml")
    assert run.returncode == 5 and run.stderr.startswith("atlas tune: error[NO_DRIVER]: ")
    assert not (tmp_path / "times.toml").exists()


def test_tune_script_explains_itself(repo):
    run = subprocess.run(["scripts/tune.sh"], cwd=repo, capture_output=True, text=True, check=False)
    assert run.returncode == 2 and "scripts/tune.sh measure" in run.stderr
