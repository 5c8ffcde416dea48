"""What atlasc prints where: dumps and JSON on stdout, each whole; talk on stderr."""

import json
import re

import pytest

FIXTURE = "tests/fixtures/llama"


@pytest.fixture(scope="module")
def passes(atlasc):
    """(letter, name) of every pass, in order."""
    return re.findall(r"^  (\w)  ([a-z-]+)$", atlasc("--help").stdout, re.M)


def test_every_letter_dumps_and_every_pass_can_be_the_last(atlasc, kernel_cache, passes, tmp_path):
    assert len(passes) == 12
    for letter, name in passes:
        words = [FIXTURE, "--dry-run", "--cache-dir", kernel_cache, "-q", "-d", letter]
        whole = atlasc(*words)
        assert whole.returncode == 0 and whole.stdout.strip(), name
        ended = atlasc(*words, "--stop-after", name)
        assert (ended.returncode, ended.stdout) == (0, whole.stdout), name
    plan = tmp_path / "plan.bin"
    for _, name in passes:
        run = atlasc(FIXTURE, "-o", plan, "--cache-dir", kernel_cache, "--stop-after", name)
        assert run.returncode == 0 and plan.exists() == (name == "emit"), name


def test_the_plan_is_dumped_without_being_written(atlasc, kernel_cache):
    scheduled, emitted = (atlasc(FIXTURE, "--dry-run", "-q", "--cache-dir", kernel_cache, "-d", x) for x in "se")
    assert emitted.stdout == scheduled.stdout != ""


@pytest.mark.parametrize("folder,code", [(FIXTURE, 0), ("tests/fixtures/absent", 4)])
def test_json_is_one_document(atlasc, kernel_cache, folder, code):
    run = atlasc(folder, "--dry-run", "--json", "--timings", "--cache-dir", kernel_cache)
    assert run.returncode == code
    told = json.loads(run.stdout)
    assert (told["schema_version"], told["exit_code"], told["dry_run"]) == (1, code, True)
    assert (told["errors"] > 0) == (code != 0)
    assert sum(d["severity"] == "error" for d in told["diagnostics"]) == told["errors"]
    assert [t["target"] for t in told["targets"]] == ([] if code else ["sm_90a"])


def test_json_and_dumps_exclude_each_other(atlasc):
    run = atlasc(FIXTURE, "--dry-run", "--json", "-d", "g")
    assert run.returncode == 2
    assert json.loads(run.stdout)["diagnostics"][0]["message"] == "--json and -d both write to stdout: give one of them"
