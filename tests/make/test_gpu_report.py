"""`make gpu-report` without a GPU: on no driver, on the fake driver as each target, and on programs that misbehave.

The fake driver (tests/unit/fake_libcuda.c) executes a plan by the meaning of its ops, so plans are compiled, loaded and
replayed; none of it is a result of a GPU, and no report may say so.
"""

from __future__ import annotations

import html.parser
import json
import os
import pathlib
import re
import socket
import stat
import subprocess

import jsonschema
import pytest

REPO = pathlib.Path(__file__).resolve().parent.parent.parent
SCHEMA = json.loads((REPO / "tests" / "gpu" / "report.schema.json").read_text())
CARDS = {"sm_80": "8.0", "sm_89": "8.9", "sm_90a": "9.0", "sm_100a": "10.0", "sm_120a": "12.0", "sm_121a": "12.1"}
REAL_CARD = {"name": "Card\x07 X", "compute_capability": "9.0", "cuda": "13.0", "driver": "580.1", "is_fake": False}
HOSTILE = "<script>alert(1)</script> \"A&B\" 'x'"


class Page(html.parser.HTMLParser):
    """Names of the tags of a page, its words, and what it would load."""

    def __init__(self, text: str):
        super().__init__()
        self.tags: set[str] = set()
        self.loads: list[str] = []
        self.words = ""
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.loads += [f"{k}={v}" for k, v in attrs if k in ("src", "href", "data") or k.startswith("on")]

    def handle_data(self, data):
        self.words += data


def report(folder: pathlib.Path, *args: object, **env: str):
    """Runs the script; (exit code, its JSON after the schema's check, its page, what it printed)."""
    kept = {k: v for k, v in os.environ.items() if k != "LD_LIBRARY_PATH"}
    done = subprocess.run(
        [str(REPO / "scripts" / "gpu_report.py"), "--out", str(folder), *map(str, args)],
        capture_output=True,
        text=True,
        env=kept | env,
        cwd=REPO,
        timeout=240,
        check=False,
    )
    assert (folder / "gpu-report.json").exists(), done.stderr
    text = (folder / "gpu-report.json").read_text()
    got = json.loads(text, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    jsonschema.Draft202012Validator(SCHEMA).validate(got)
    raw = (folder / "gpu-report.html").read_text()
    page = Page(raw)
    assert not page.loads and not page.tags & {"script", "img", "link", "iframe", "b"}
    counted = {s: sum(t["status"] == s for t in got["tests"]) for s in ("passed", "failed", "not run")}
    assert got["counts"] == {k.replace(" ", "_"): v for k, v in counted.items()}
    assert got["summary"] in done.stdout and got["summary"] in page.words
    for word in (str(REPO), str(folder), str(pathlib.Path.home()) + "/", socket.gethostname()):
        assert word not in text and word not in raw
    return done.returncode, got, page, done.stdout


@pytest.fixture(scope="module")
def fake(build_dir: pathlib.Path) -> str:
    return str(build_dir / "tests-gpu" / "fake")


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/version"), reason="this machine has a GPU")
def test_without_a_driver_nothing_is_run(build_dir, tmp_path):
    rc, got, page, out = report(tmp_path, "--build-dir", build_dir)
    assert rc == 5 and got["card"] is None and got["target"] is None
    assert got["no_card"].startswith("no CUDA driver")
    assert {t["part"] for t in got["tests"]} == {"kernels", "fixtures", "receipt", "memory", "bench"}
    assert {(t["status"], t["reason"]) for t in got["tests"]} == {("not run", got["no_card"])}
    assert got["no_card"] in page.words and "0 passed, 0 failed" in out


@pytest.mark.parametrize("target", CARDS)
def test_each_target_on_the_fake_driver(build_dir, kernel_cache, fake, tmp_path, target):
    name = f"{HOSTILE} {target}"
    rc, got, page, out = report(
        tmp_path,
        "--build-dir",
        build_dir,
        "--cache-dir",
        kernel_cache,
        LD_LIBRARY_PATH=fake,
        FAKE_CUDA_CC=CARDS[target],
        FAKE_CUDA_NAME=name,
    )
    assert rc == 5, [t for t in got["tests"] if t["status"] == "failed"]
    assert got["target"] == target and got["card"]["is_fake"] and got["card"]["cuda"] == "13.0"
    assert got["card"]["compute_capability"] == CARDS[target]
    assert {(t["status"], t["reason"]) for t in got["tests"]} == {("not run", "fake driver")}
    # The chain ran: a plan of the target was compiled, executed, and its answer read.
    of = {t["part"]: t["figures"] for t in got["tests"] if t["name"] == "llama-trained"}
    assert of["fixtures"]["tokens_equal"] == of["fixtures"]["tokens"] == 32
    assert of["fixtures"]["cosine_lost"] <= of["fixtures"]["cosine_may_lose"]
    assert of["receipt"]["graph_nodes"] > 0 and of["receipt"]["graph_nodes_different"] == 0
    assert of["memory"]["peak_bytes"] > 0
    assert name.split("script")[0] in page.words and "alert(1)" in page.words


def test_kernels_listed_are_those_that_serve_the_target(build_dir, kernel_cache, fake, tmp_path):
    of = {}
    for target in ("sm_80", "sm_90a"):
        _, got, _, _ = report(
            tmp_path / target,
            "--build-dir",
            build_dir,
            "--only",
            "kernels",
            LD_LIBRARY_PATH=fake,
            FAKE_CUDA_CC=CARDS[target],
        )
        of[target] = [t["name"] for t in got["tests"]]
        assert of[target] == names_of(build_dir, target)
    assert of["sm_80"] != of["sm_90a"]


def test_a_card_of_no_target(build_dir, fake, tmp_path):
    rc, got, _, _ = report(tmp_path, "--build-dir", build_dir, LD_LIBRARY_PATH=fake, FAKE_CUDA_CC="7.5")
    assert rc == 5 and got["target"] is None and got["card"]["name"] == "Fake GPU"
    assert {t["reason"] for t in got["tests"]} == {"no target for compute capability 7.5"}


# A card that is there, as far as the report can see: programs that a test writes answer as a GPU's would. ------


def load():
    import importlib.util

    spec = importlib.util.spec_from_file_location("gpu_report", REPO / "scripts" / "gpu_report.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def real(build_dir, kernel_cache, tmp_path, monkeypatch):
    """run(kernel_test=SCRIPT, ...) -> the report of a card that is not fake, its programs those of the build but for
    kernel_test, which is a shell script."""
    module = load()
    monkeypatch.setattr(module, "find_card", lambda: (dict(REAL_CARD), ""))

    def run(kernel_test: str, limit: float = 60, only: str = "kernels"):
        build = tmp_path / "build"
        (build / "tests-gpu").mkdir(parents=True)
        for name in ("atlas", "atlasc"):
            (build / name).symlink_to(build_dir / name)
        program = build / "tests-gpu" / "kernel_test"
        program.write_text("#!/bin/bash\n" + kernel_test)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setitem(module.LIMIT, only, limit)
        monkeypatch.setattr(module, "WATCHED", ("llama-trained",))
        rc = module.main(
            [
                "--build-dir",
                str(build),
                "--out",
                str(tmp_path / "out"),
                "--only",
                only,
                "--commit",
                "abcdef1",
                "--cache-dir",
                str(kernel_cache),
            ]
        )
        text = (tmp_path / "out" / "gpu-report.json").read_text()
        got = json.loads(text)
        jsonschema.Draft202012Validator(SCHEMA).validate(got)
        assert str(tmp_path) not in text and str(tmp_path) not in (tmp_path / "out" / "gpu-report.html").read_text()
        return rc, got, {t["name"]: t for t in got["tests"]}

    return run


def table(names: list[str], verdicts: dict[str, str]) -> str:
    rows = [f"{name:16s} {'op':16s} {2:6d} {1000:12d} {0.25:22.3f}  {verdicts.get(name, 'ok')}" for name in names]
    return "cat <<'END'\n" + "\n".join(rows) + "\nEND\n"


def names_of(build_dir, target="sm_90a"):
    done = subprocess.run([build_dir / "atlasc", "kernels", "--json"], capture_output=True, check=True)
    listed = json.loads(done.stdout)
    return [k["name"] for k in listed["kernels"] if target in k["targets"]]


def test_all_passed(real, build_dir):
    rc, got, of = real(table(names_of(build_dir), {}))
    assert rc == 0 and got["counts"]["not_run"] == got["counts"]["failed"] == 0
    assert of["attn_step"]["figures"] == {"cases": 6, "elements": 3000, "worst_of_tolerance": 0.25}
    assert got["card"]["name"] == "Card  X" and got["commit"] == "abcdef1"


def test_one_template_fails(real, build_dir):
    rc, got, of = real(
        "echo 'FAIL attn_step seed 7: out: row 3 differs in /home/somebody/tree/x.cu'\n"
        + table(names_of(build_dir), {"attn_step": "FAIL"})
        + "exit 1\n"
    )
    assert rc == 1 and got["counts"]["failed"] == 1
    assert of["attn_step"]["reason"] == "out: row 3 differs in x.cu"


def test_a_template_without_a_case_is_not_passed(real, build_dir):
    rc, _, of = real(table([n for n in names_of(build_dir) if n != "attn_step"], {}))
    assert rc == 5 and of["attn_step"]["status"] == "not run"
    assert of["attn_step"]["reason"] == "the kernel test lists no case of it"


def test_a_time_limit_is_not_a_pass(real):
    rc, got, of = real("sleep 100\n", limit=1)
    assert rc == 5 and got["counts"]["passed"] == 0
    assert re.match("time limit of its part", of["attn_step"]["reason"])


def test_rounds_before_the_limit_count(real, build_dir):
    rc, _, of = real(table(names_of(build_dir), {}) + "[[ $* == *'--seed 1 '* ]] || sleep 100\n", limit=3)
    assert rc == 0 and of["attn_step"]["figures"]["cases"] == 2


def test_a_program_that_dies_fails_its_tests(real):
    rc, got, of = real("echo 'kernel_test: cuInit: CUDA_ERROR_UNKNOWN, see /var/log/x' >&2\nexit 5\n")
    assert rc == 1 and got["counts"]["passed"] == 0
    assert of["attn_step"]["reason"] == (
        "tests-gpu/kernel_test --cases: exit code 5: kernel_test: cuInit: CUDA_ERROR_UNKNOWN, see x"
    )


def test_a_later_round_that_dies_leaves_nothing_passed(real, build_dir):
    rc, got, of = real(table(names_of(build_dir), {}) + "[[ $* == *'--seed 1 '* ]] || kill -SEGV $$\n")
    assert rc == 1 and got["counts"]["passed"] == 0
    assert of["attn_step"]["reason"].startswith("tests-gpu/kernel_test --cases: exit code -11")


def test_an_exit_code_without_a_failed_template_is_no_pass(real, build_dir):
    rc, got, _ = real(table(names_of(build_dir), {}) + "exit 1\n")
    assert rc == 1 and got["counts"]["passed"] == 0


def test_an_error_that_is_no_number_is_still_json(real, build_dir):
    rc, got, of = real(table(names_of(build_dir), {"attn_step": "FAIL"}).replace("0.250", "  inf") + "exit 1\n")
    assert rc == 1 and of["attn_step"]["figures"]["worst_of_tolerance"] is None


@pytest.mark.skipif(os.path.exists("/proc/driver/nvidia/version"), reason="this machine has a GPU")
def test_a_card_that_the_programs_cannot_open_fails(real):
    rc, got, of = real("exit 1\n", only="memory")
    assert rc == 1 and got["counts"] == {"passed": 0, "failed": 1, "not_run": 0}
    assert of["llama-trained"]["reason"] == "nothing was measured"


@pytest.mark.parametrize("bad", ["", "linear_residual"])
def test_a_wrong_op_fails_the_fixture(build_dir, kernel_cache, fake, tmp_path, monkeypatch, bad):
    """The fake driver as if it were a GPU: right with every op as it is, and not with one that is wrong."""
    module = load()
    monkeypatch.setattr(module, "find_card", lambda: (dict(REAL_CARD), ""))
    for name, value in (("LD_LIBRARY_PATH", fake), ("FAKE_CUDA_CC", "9.0"), ("FAKE_CUDA_BAD", bad)):
        monkeypatch.setenv(name, value)
    args = module.parse(["--build-dir", str(build_dir), "--cache-dir", str(kernel_cache), "--commit", "abcdef1"])
    kit = module.Kit(args, tmp_path)
    kit.card, kit.target = dict(REAL_CARD), "sm_90a"
    kit.begin("fixtures")
    kit.test("fixtures", "llama-trained", module.check_fixture, kit, "llama-trained")
    (result,) = kit.results
    if bad:
        assert result["status"] == "failed" and "of its cosine with the reference device" in result["reason"]
        assert result["figures"]["cosine_lost"] > result["figures"]["cosine_may_lose"]
    else:
        assert result["status"] == "passed" and result["figures"]["tokens_equal"] == 32


def test_names_and_paths_of_a_machine_are_removed(monkeypatch):
    module = load()
    monkeypatch.setattr(module.socket, "gethostname", lambda: "node17.example.org")
    monkeypatch.setenv("USER", "margaret")
    said = module.clean(
        f"margaret@node17: {REPO}/tests/a.c, ~/b/c.bin, '/tmp/x y' on node17.example.org: rate 3/4 \x1b[31m"
    )
    assert said == "[removed]@[removed]: ./tests/a.c, c.bin, 'x y' on [removed]: rate 3/4  [31m"


@pytest.mark.parametrize(
    "capability,target",
    [
        ("8.0", "sm_80"),
        ("8.6", "sm_80"),
        ("8.9", "sm_89"),
        ("9.0", "sm_90a"),
        ("10.0", "sm_100a"),
        ("10.3", None),
        ("12.0", "sm_120a"),
        ("12.1", "sm_121a"),
        ("7.5", None),
        ("13.0", None),
    ],
)
def test_target_of_a_capability(capability, target):
    assert load().target_of(capability, list(CARDS)) == target


def test_what_is_wrong_usage(build_dir):
    done = subprocess.run(
        [REPO / "scripts" / "gpu_report.py", "--only", "kernel"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2 and "--only takes kernels, fixtures, receipt, memory, bench" in done.stderr
