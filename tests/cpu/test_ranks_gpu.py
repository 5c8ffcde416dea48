"""Plans of several ranks on GPUs that are not there: a process for each rank, memory shared between them, ranks lost.

The fake driver (tests/unit/fake_libcuda.c) executes launches by the meaning of their ops, and memory of one process is
mapped by the others as on real cards. The oracle is the reference device, which runs all ranks in one process. On GPUs
activations are bf16, so logits are compared within what that costs one rank.
"""

from __future__ import annotations

import json
import os
import pathlib
import re
import signal
import socket
import struct
import subprocess
import time

import msgpack
import numpy as np
import pytest
from plan_file import put_together, take_apart
from safetensors.numpy import load_file
from test_ranks import widened

FIXTURES = pathlib.Path(__file__).resolve().parents[1] / "fixtures"
TOKENS = "1,5,9,13,20,7,8,44,3,2"
SMALL = "[runtime]\nslots = 2\nmax_context = 256\n[phases]\nprefill = [64]\ndecode = [2]\n[kv]\npage = 16\n"


@pytest.fixture(scope="module")
def env(build_dir):
    return os.environ | {"LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_DEVICES": "4"}


@pytest.fixture(scope="module")
def plan_on(atlasc, kernel_cache, tmp_path_factory):
    """plan_on(model, ranks): the plan's path, with `more` in MODEL.toml and further words for atlasc."""
    folder = tmp_path_factory.mktemp("ranks")

    def make(name, ranks, more="", *words, kind=""):
        stem = pathlib.Path(name).name
        toml, plan = (
            folder / f"{stem}-{ranks}{'-cut' * ('cut' in more)}{'-nccl' * ('nccl' in more)}{kind}{end}"
            for end in (".toml", ".bin")
        )
        if not plan.exists():
            toml.write_text(f"{SMALL}[parallel]\nranks = {ranks}\n{more}")
            words = ["--target", "sm_90a", "--model", toml, "-o", plan, "--cache-dir", kernel_cache, *words]
            done = atlasc(FIXTURES / name, *words, timeout=600)
            assert done.returncode == 0, done.stderr
        return plan

    return make


def logits(atlas, plan, out, *words, tokens=TOKENS, **kwargs):
    done = atlas("dump", plan, "--tokens", tokens, "-o", out, "-q", *words, **kwargs)
    assert done.returncode == 0, done.stderr
    return load_file(out)["logits"].astype(np.float64)


def text(atlas, plan, *words, **kwargs):
    done = atlas("run", plan, "--tokens", TOKENS, "-n", 12, "--json", "-q", "--temperature", 0, *words, **kwargs)
    assert done.returncode == 0, done.stderr
    return [r["tokens"] for r in json.loads(done.stdout)["results"]][0]


def is_best(atlas, plan, tmp_path, tokens, error):
    """Does the reference draw these tokens too, each after those before it, but for ties within the error?"""
    before = ",".join([TOKENS, *map(str, tokens[:-1])])
    rows = logits(atlas, plan, tmp_path / "after.st", "--device", "cpu", tokens=before)[TOKENS.count(",") :]
    return all(
        row.max() - row[token] <= 2 * error * np.max(np.abs(rows)) for row, token in zip(rows, tokens, strict=True)
    )


@pytest.mark.parametrize(
    ("name", "ranks", "more"),
    [
        ("qwen3", 2, ""),
        ("qwen3_5", 2, ""),
        ("qwen3_moe", 2, 'experts = "cut"\n'),
        ("qwen3_moe", 4, ""),
        ("qwen3_5_moe", 2, 'experts = "whole"\n'),
    ],
)
def test_ranks_compute_what_the_reference_does(atlas, plan_on, env, tmp_path, name, ranks, more):
    plan, devices = plan_on(name, ranks, more), ["--device", "cuda", "--devices", ",".join(map(str, range(ranks)))]
    got = [logits(atlas, plan, tmp_path / f"{i}.st", *devices, env=env) for i in range(2)]
    want = logits(atlas, plan, tmp_path / "cpu.st", "--device", "cpu")
    assert np.array_equal(got[0], got[1])
    errors = np.max(np.abs(got[0] - want), axis=1) / np.max(np.abs(want))
    worst = 0.15 if "moe" in name else 0.05  # noise may send a row to another expert
    assert np.median(errors) < 0.02 and np.max(errors) < worst
    tokens = text(atlas, plan, *devices, env=env)
    assert tokens == text(atlas, plan, *devices, env=env)
    assert is_best(atlas, plan, tmp_path, tokens, np.max(errors))


@pytest.mark.parametrize("family", ["gpt_oss", "glm4_moe"])
def test_whole_experts_of_other_kinds(atlas, atlasc, kernel_cache, env, tmp_path, family):
    """With biases and clamps, which are never cut; with a router of sigmoids and an expert for all rows."""
    config = widened(FIXTURES.parent / "families" / family, tmp_path)
    (tmp_path / "m.toml").write_text(f"{SMALL}[parallel]\nranks = 2\n")
    words = ["--random-weights", "--target", "sm_90a", "--model", tmp_path / "m.toml", "-o", tmp_path / "plan.bin"]
    done = atlasc(config, *words, "--cache-dir", kernel_cache, timeout=600)
    assert done.returncode == 0, done.stderr
    got = logits(atlas, tmp_path / "plan.bin", tmp_path / "g.st", "--device", "cuda", "--devices", "0,1", env=env)
    want = logits(atlas, tmp_path / "plan.bin", tmp_path / "cpu.st", "--device", "cpu")
    errors = np.max(np.abs(got - want), axis=1)  # a row may take another expert, whose scores are alike
    assert np.median(errors) < 0.03 * np.max(np.abs(want))


def begin(atlas, plan, env, *words):
    words = ["--tokens", TOKENS, "-n", "200", "--device", "cuda", "--devices", "0,1", "-q", *words]
    return subprocess.Popen(
        [str(atlas), "run", str(plan), *words], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )


def status(pid):
    try:
        return pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return ["Z", "0"]


def other_rank(run):
    """The process that the command has started; None: it has none yet."""
    pids = [int(p.name) for p in pathlib.Path("/proc").iterdir() if p.name.isdigit()]
    return next((p for p in pids if status(p)[1] == str(run.pid) and status(p)[0] != "Z"), None)


def is_gone(pid):
    deadline = time.monotonic() + 2
    while status(pid)[0] != "Z" and time.monotonic() < deadline:
        time.sleep(0.02)
    return status(pid)[0] == "Z"


STOPPED, KILLED = "nothing was heard of it for 3 seconds", "ended by signal 9"


@pytest.mark.parametrize(
    ("number", "delay", "why"),
    [(signal.SIGKILL, delay, KILLED) for delay in (0.0, 0.15, 0.4, 0.8)] + [(signal.SIGSTOP, 0.5, STOPPED)],
)
def test_a_lost_rank_ends_all(atlas, plan_on, env, number, delay, why):
    run = begin(atlas, plan_on("qwen3", 2), env | {"FAKE_CUDA_SLOW": "20000"})
    while not (rank := other_rank(run)):
        time.sleep(0.005)
    time.sleep(delay)
    os.kill(rank, number)
    began = time.monotonic()
    _, said = run.communicate(timeout=20)
    assert time.monotonic() - began < 5 and is_gone(rank)
    assert run.returncode == 10 and "rank 1" in said and why in said


def test_ranks_end_with_the_command(atlas, plan_on, env):
    run = begin(atlas, plan_on("qwen3", 2), env | {"FAKE_CUDA_SLOW": "20000"})
    while not (rank := other_rank(run)):
        time.sleep(0.005)
    time.sleep(0.3)
    run.kill()
    run.communicate()
    assert is_gone(rank)


def test_a_signal_reaches_the_command(atlas, plan_on, env):
    """Not the thread that watches, whose mask is its own."""
    run = begin(atlas, plan_on("qwen3", 2), env | {"FAKE_CUDA_SLOW": "20000"})
    while not (rank := other_rank(run)):
        time.sleep(0.005)
    time.sleep(1.0)
    run.terminate()
    _, said = run.communicate(timeout=20)
    assert run.returncode == 130 and is_gone(rank), said


@pytest.mark.parametrize(
    ("devices", "code", "said"),
    [
        ("0,0", 2, "--devices 0,0: GPU 0 is named twice; --share-gpu allows it"),
        ("0,x", 2, "--devices 0,x: expected the numbers of at most 8 GPUs with commas between them"),
        ("", 2, "expected the numbers of at most 8 GPUs"),
        ("0,1,2,3,4,5,6,7,8", 2, "expected the numbers of at most 8 GPUs"),
        ("0,1,2", 4, "the plan is for 2 GPUs, and 3 are named"),
        (
            "0",
            4,
            "the plan is for 2 GPUs, which atlas run, chat, serve, bench, dump, verify, receipt and memory take as --ranks 2 or --devices N,N",
        ),
        ("0,4", 5, "rank 1: GPU 4: the driver shows 4"),
    ],
)
def test_wrong_devices(atlas, plan_on, env, devices, code, said):
    done = atlas("run", plan_on("qwen3", 2), "--tokens", "1,2", "-q", "--devices", devices, "--device", "cuda", env=env)
    assert done.returncode == code and said in done.stderr, done.stderr


@pytest.mark.parametrize("other", [("--device", "cpu"), ("--device-index", 1)])
def test_devices_said_twice(atlas, plan_on, env, other):
    """What would be passed over is refused."""
    done = atlas("run", plan_on("qwen3", 2), "--tokens", "1,2", "-q", "--devices", "0,1", *other, env=env)
    assert done.returncode == 2 and f"--devices 0,1 and {' '.join(map(str, other)).removesuffix(' 1')}" in done.stderr


def test_devices_of_a_plan_of_one(atlas, plan_of, env):
    done = atlas("run", plan_of("llama-trained"), "--tokens", "1,2", "-q", "--devices", "0,1", "--json", env=env)
    assert done.returncode == 4 and "the plan is for 1 GPU, and 2 are named" in done.stderr


@pytest.mark.parametrize("more", [(), ("--each-layer",)])
def test_verify(atlas, plan_on, env, more):
    """What goes on to the next layer is equal on all ranks, so that rank 0 speaks for all; the reference has its own."""
    plan = plan_on("qwen3", 2)
    words = [plan, "--tokens", TOKENS, "--ranks", 2, "--tolerance", 0.01, *more]
    done = atlas("verify", *words, env=env)
    assert done.returncode == 0 and "every output agrees" in done.stdout, done.stdout + done.stderr
    done = atlas("verify", *words, env=env | {"FAKE_CUDA_BAD": "sum_peers"})
    assert done.returncode == 1 and "first bad output: layer 0" in done.stdout, done.stdout + done.stderr


def test_verify_sums_by_nccl(atlas, plan_on, env):
    """What a layer leaves is the sum with its residual, not what the library made before."""
    plan = plan_on("qwen3", 2, "nccl_above = 0\n", kind="-all")
    done = atlas("verify", plan, "--tokens", TOKENS, "--ranks", 2, "--tolerance", 0.01, env=env)
    assert done.returncode == 0 and "every output agrees" in done.stdout, done.stdout + done.stderr


@pytest.mark.parametrize("verb", ["verify", "memory", "receipt"])
def test_verbs_of_one_gpu(atlas, plan_on, env, verb):
    """They say which verbs have several."""
    done = atlas(verb, plan_on("qwen3", 2), env=env)
    assert (
        done.returncode == 4 and "which atlas run, chat, serve, bench, dump, verify, receipt and memory" in done.stderr
    )


@pytest.mark.parametrize("rank", [0, 1])
def test_calls_of_the_driver_fail(atlas, plan_on, env, rank):
    """One of each seven, on one rank: all end at once, and the command says which call failed, or which rank ended."""
    plan, failed = plan_on("qwen3", 2), 0
    words = ["--tokens", TOKENS, "-n", 4, "-q", "--temperature", 0, "--device", "cuda", "--ranks", 2]
    for k in range(1, 330, 7):
        began = time.monotonic()
        done = atlas("run", plan, *words, env=env | {"FAKE_CUDA_FAIL": f"{k}@{rank}"}, timeout=30)
        assert time.monotonic() - began < 5 and done.returncode in (0, 4, 5, 7, 9, 10), (
            k,
            done.returncode,
            done.stderr,
        )
        assert done.stderr.count("error[") == (done.returncode != 0), (k, done.stderr)
        assert rank == 0 or not done.stderr or "rank 1" in done.stderr, (k, done.stderr)
        failed += done.returncode != 0
    assert failed > 25, failed


def test_one_gpu_of_several_ranks(atlas, plan_on, env):
    words = [["--device", "cuda", "--devices", "0,1"], ["--device", "cuda", "--devices", "1,1", "--share-gpu"]]
    assert text(atlas, plan_on("qwen3", 2), *words[0], env=env) == text(atlas, plan_on("qwen3", 2), *words[1], env=env)


def test_what_has_no_kernels(atlasc, tmp_path):
    (tmp_path / "m.toml").write_text("[parallel]\nranks = 2\n")
    words = ["--model", tmp_path / "m.toml", "-o", tmp_path / "plan.bin", "--target"]
    done = atlasc(FIXTURES / "qwen3", *words, "sm_80")
    assert done.returncode == 3 and "error[A0733]: parallel.ranks = 2: no kernel of sm_80 adds" in done.stderr
    assert not (tmp_path / "plan.bin").exists()


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda r: r.update(peer_bytes=r["peer_bytes"] + 512), "arena peer of .* does not fit the largest part"),
        (lambda r: r.update(weight_bytes=r["weight_bytes"] + 256), "its weight arena is not the graph's"),
        (lambda r: r["places"].reverse(), "is not where|overlaps|is not what|which is not an operand of layer|outside"),
    ],
)
def test_faults_of_arenas(atlas, plan_on, tmp_path, change, said):
    data = plan_on("qwen3", 2).read_bytes()
    sections = take_apart(data)
    ranks = msgpack.unpackb(sections["ranks"])
    change(ranks)
    (tmp_path / "edited.bin").write_bytes(put_together(data[:12], {**sections, "ranks": msgpack.packb(ranks)}))
    done = atlas("info", tmp_path / "edited.bin")
    assert done.returncode == 6 and re.search(said, done.stderr), done.stderr


class Ranks:
    """Commands that are ranks of one plan and meet at a file; an argument of None leaves one out."""

    def __init__(self, atlas, env, path, plans, *words, counts=None, ranks=None):
        n = len(plans)
        counts, ranks = counts or [n] * n, ranks or range(n)
        self.runs = [
            subprocess.Popen(
                [str(atlas), "run", str(plan), "--tokens", TOKENS, "-n", "12", "--json", "-q", "--temperature", "0"]
                + ["--device", "cuda", "--ranks", str(count), "--rank", str(rank), "--rendezvous", str(path)]
                + ["--device-index", str(rank), *words],
                env=env,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                text=True,
            )  # fmt: skip
            for plan, count, rank in zip(plans, counts, ranks, strict=True)
        ]

    def ends(self):
        said = [run.communicate(timeout=30) for run in self.runs]
        return [run.returncode for run in self.runs], *zip(*said, strict=True)


def test_ranks_that_are_started_one_by_one(atlas, plan_on, env, tmp_path):
    plan = plan_on("qwen3", 2)
    want = text(atlas, plan, "--device", "cuda", "--ranks", 2, env=env)
    for order in ([0, 1], [1, 0]):
        codes, outs, errors = Ranks(atlas, env, tmp_path / "meet", [plan, plan], ranks=order).ends()
        assert codes == [0, 0], errors
        assert json.loads(outs[order.index(0)])["results"][0]["tokens"] == want and outs[order.index(1)] == ""
        assert not (tmp_path / "meet").exists()


@pytest.mark.parametrize(
    ("counts", "ranks", "said"),
    [
        ([2, 4], [0, 1], "rank 1 was started for 4 ranks, rank 0 for 2"),
        ([3, 3, 3], [0, 1, 1], "two processes are rank 1"),
    ],
)
def test_ranks_that_do_not_fit_hear_the_same(atlas, plan_on, env, tmp_path, counts, ranks, said):
    plans = [plan_on("qwen3", 2)] * len(ranks)
    codes, _, errors = Ranks(atlas, env, tmp_path / "meet", plans, counts=counts, ranks=ranks).ends()
    assert codes == [8] * len(ranks) and all(said in e for e in errors), errors


BUILD_ID = struct.pack("<III", 4, 20, 3) + b"GNU\0"  # the note that the linker leaves in a program


def build_of(atlas):
    """What ranks compare: the version and the start of the program's own id."""
    program = pathlib.Path(str(atlas)).read_bytes()
    at = program.index(BUILD_ID) + len(BUILD_ID)
    return f"{atlas('--version').stdout.split()[-1]} {program[at : at + 8].hex()}".encode()


def ends_of_two(atlas, env, path, plan, first, second, other=None):
    """Rank 0 and rank 1 of two, each with words of its own: exit codes and what they said."""
    ranks = [
        Ranks(program, env, path, [plan], *words, counts=[2], ranks=[r])
        for r, (program, words) in enumerate(((atlas, first), (other or atlas, second)))
    ]
    ended = [r.ends() for r in ranks]
    return [codes[0] for codes, _, _ in ended], [errors[0] for _, _, errors in ended]


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ([], ["--steps-ahead", "4"], "rank 1 was started with --steps-ahead 4, rank 0 with --steps-ahead 8"),
        (["--steps-ahead", "32"], [], "rank 1 was started with --steps-ahead 8, rank 0 with --steps-ahead 32"),
        (["--share-gpu"], [], "rank 1 was started with no --share-gpu, rank 0 with --share-gpu"),
        (["--verify", "lazy"], ["--verify", "off"], "rank 1 was started with --verify off, rank 0 with --verify lazy"),
        ([], ["--verify", "off"], "rank 1 was started with --verify off, rank 0 with no --verify"),
        (
            ["--memory-budget", "24GiB"],
            ["--memory-budget", "1GiB"],
            "rank 1 was started with --memory-budget 1073741824, rank 0 with --memory-budget 25769803776",
        ),
    ],
)
def test_ranks_with_other_options_hear_the_same(atlas, plan_on, env, tmp_path, first, second, said):
    codes, errors = ends_of_two(atlas, env, tmp_path / "meet", plan_on("qwen3", 2), first, second)
    assert codes == [8, 8] and errors[0] == errors[1] and said in errors[0], errors


def test_ranks_of_another_build_hear_the_same(atlas, plan_on, env, tmp_path):
    """Of the same version: one bit of what the linker has made of the program."""
    program = bytearray(pathlib.Path(str(atlas)).read_bytes())
    program[program.index(BUILD_ID) + len(BUILD_ID)] ^= 1
    other = tmp_path / "atlas"
    other.write_bytes(program)
    other.chmod(0o755)
    codes, errors = ends_of_two(atlas, env, tmp_path / "meet", plan_on("qwen3", 2), [], [], other)
    assert codes == [8, 8] and errors[0] == errors[1], errors
    assert "rank 1 has another build of atlas than rank 0" in errors[0]


def test_options_that_are_of_one_rank(atlas, plan_on, env, tmp_path):
    """What rank 0 alone decides, and the default said aloud, may differ."""
    first = ["--steps-ahead", "8", "--speculate", "off"]
    codes, errors = ends_of_two(atlas, env, tmp_path / "meet", plan_on("qwen3", 2), first, ["-n", "1", "--top-k", "1"])
    assert codes == [0, 0], errors


def test_ranks_of_other_plans_hear_the_same(atlas, plan_on, env, tmp_path):
    plans = [plan_on("qwen3", 2), plan_on("qwen3_5", 2)]
    codes, _, errors = Ranks(atlas, env, tmp_path / "meet", plans).ends()
    assert codes == [8, 8] and all("rank 1 has another plan than rank 0" in e for e in errors), errors


def test_a_file_that_an_earlier_run_has_left(atlas, plan_on, env, tmp_path):
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
        s.bind(str(tmp_path / "meet"))
    codes, _, errors = Ranks(atlas, env, tmp_path / "meet", [plan_on("qwen3", 2)] * 2).ends()
    assert codes == [8, 8] and len({e for e in errors}) == 1 and "an earlier run has left this file" in errors[0], (
        errors
    )
    assert (tmp_path / "meet").exists()


@pytest.mark.parametrize("lost", [0, 1])
def test_a_rank_that_met_is_lost(atlas, plan_on, env, tmp_path, lost):
    ranks = Ranks(atlas, env | {"FAKE_CUDA_SLOW": "20000"}, tmp_path / "meet", [plan_on("qwen3", 2)] * 2, "-n", "200")
    while (tmp_path / "meet").exists() or not list(tmp_path.iterdir()) and time.sleep(0.4):
        time.sleep(0.05)
    time.sleep(0.5)
    ranks.runs[lost].kill()
    began = time.monotonic()
    codes, _, errors = ranks.ends()
    assert time.monotonic() - began < 5 and codes[1 - lost] == 10, errors


def test_strangers_at_the_file(atlas, plan_on, env, tmp_path):
    """What is no greeting is not answered, and the ranks meet all the same."""
    plan, path = plan_on("qwen3", 2), tmp_path / "meet"
    first = Ranks(atlas, env, path, [plan], counts=[2], ranks=[0])
    while not path.exists():
        time.sleep(0.01)
    assert path.stat().st_mode & 0o777 == 0o600
    for data in (b"", b"x" * 5, bytes(48), b"x" * 4000):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as s:
            s.connect(str(path))
            s.send(data)
            s.settimeout(5)
            assert s.recv(10) == b""
    other = Ranks(atlas, env, path, [plan], counts=[2], ranks=[1])
    assert first.ends()[0] == [0] and other.ends()[0] == [0]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--rendezvous", "x", "--ranks", 2], "it takes --ranks N and --rank R, from 0 to N - 1"),
        (["--rendezvous", "x", "--ranks", 2, "--rank", 2], "from 0 to N - 1"),
        (["--rendezvous", "x" * 120, "--ranks", 2, "--rank", 0], "longer than the name of a socket may be"),
        (["--rank", 0], "--rank 0: it takes --rendezvous FILE or HOST:PORT"),
        (["--rendezvous", "127.0.0.1:7000", "--ranks", 2, "--rank", 0], "take --rendezvous-key FILE"),
        (["--rendezvous", "x", "--rendezvous-key", "y", "--ranks", 2, "--rank", 0], "it takes --rendezvous HOST:PORT"),
        (["--ranks", 2, "--devices", "0,1,2"], "--ranks 2: --devices 0,1,2 names 3"),
        (["--rendezvous", "x", "--ranks", 2, "--rank", 0, "--device", "cpu"], "--device cpu runs all ranks itself"),
    ],
)
def test_words_that_do_not_belong_together(atlas, plan_on, env, words, said):
    where = [] if "--device" in words else ["--device", "cuda"]
    done = atlas("run", plan_on("qwen3", 2), "--tokens", "1,2", "-q", *where, *words, env=env)
    assert done.returncode == 2 and said in done.stderr, done.stderr


NCCL = "nccl_above = 2000\n"  # of prompts, not of decode steps


@pytest.fixture
def by_nccl(atlas, plan_on, env):
    """by_nccl(environment): a run of two ranks with sums by the fake NCCL, and how long it took."""

    def run(more=None, *words):
        began = time.monotonic()
        words = ["--tokens", TOKENS, "-n", 4, "--json", "-q", "--temperature", 0, "--device", "cuda", *words]
        done = atlas("run", plan_on("qwen3", 2, NCCL), *words, "--ranks", 2, env=env | (more or {}), timeout=30)
        return done, time.monotonic() - began

    return run


def test_sums_by_nccl(atlas, plan_on, env, tmp_path):
    """As own sums, but for the order and roundings of a ring; the library is opened only by a plan that has some."""
    plan, own, log = plan_on("qwen3", 2, NCCL), plan_on("qwen3", 2), tmp_path / "log"
    words = ["--device", "cuda", "--ranks", 2]
    env = env | {"FAKE_NCCL_LOG": str(log)}
    want = logits(atlas, own, tmp_path / "own.st", *words, env=env)
    assert not log.exists()
    got = [logits(atlas, plan, tmp_path / f"{i}.st", *words, env=env) for i in range(2)]
    assert np.array_equal(got[0], got[1])
    assert np.max(np.abs(got[0] - want)) < 0.05 * np.max(np.abs(want))
    calls = log.read_text().split()
    assert calls.count("ncclAllReduce") >= 2 * 2 * 4 and calls.count("ncclCommInitRankConfig") == 2 * 2
    assert calls.count("ncclCommDestroy") == 2 * 2 and "ncclCommAbort" not in calls
    audited = atlas("audit", plan).stdout
    assert "sum_nccl" in audited and "sum_peers" in audited and "sum_nccl" not in atlas("audit", own).stdout


def test_invariant_plans_have_no_sums_by_nccl(atlasc, tmp_path):
    """Where a row has the same bits in every bucket, its sums have one order."""
    toml = tmp_path / "m.toml"
    prefill = SMALL.replace("[64]", "[32, 64]")
    toml.write_text(f"{prefill}[numerics]\ninvariant = true\n[parallel]\nranks = 2\nnccl_above = 0\n")
    words = ["--target", "sm_90a", "--model", toml, "-o", tmp_path / "plan.bin"]
    done = atlasc(FIXTURES / "qwen3", *words)
    assert done.returncode == 3 and "sum_nccl" in done.stderr, done.stderr


LAST_CALL = {"": 7, "@0": 8, "@1": 7}  # but for that of its end


@pytest.mark.parametrize("which", ["", "@0", "@1"])
def test_each_call_of_nccl_fails(by_nccl, which):
    """One after the other, on all ranks or on one: an error with its text, and no rank is left waiting."""
    said = set()
    for k in range(1 if not which else 3 - int(which[1]), LAST_CALL[which] + 1):
        done, seconds = by_nccl({"FAKE_NCCL_FAIL": f"{k}{which}"})
        names = set(re.findall(r"(nccl\w+) was made to fail", done.stderr))
        assert seconds < 5 and done.returncode in (4, 9, 10) and len(names) == 1, (k, done.returncode, done.stderr)
        said |= names
    assert {"ncclCommInitRankConfig", "ncclCommGetAsyncError", "ncclAllReduce"} <= said, said


@pytest.mark.parametrize("rank", [0, 1])
def test_a_rank_is_killed_at_each_call_of_nccl(by_nccl, rank):
    for k in range(3 - rank, LAST_CALL[f"@{rank}"] + 1):
        done, seconds = by_nccl({"FAKE_NCCL_DIE": f"{k}@{rank}"})
        assert seconds < 5 and done.returncode == (-9 if rank == 0 else 10), (k, done.stderr)
        assert rank == 0 or "rank 1" in done.stderr and "signal 9" in done.stderr


def test_a_rank_is_lost_while_others_wait_for_its_part(atlas, plan_on, env):
    """NCCL has no limit of time: the watching thread ends what waits in it."""
    plan = plan_on("qwen3", 2, "nccl_above = 0\n", kind="-all")
    run = begin(atlas, plan, env | {"FAKE_CUDA_SLOW": "20000"})
    while not (rank := other_rank(run)):
        time.sleep(0.005)
    time.sleep(0.8)
    os.kill(rank, signal.SIGKILL)
    began = time.monotonic()
    _, said = run.communicate(timeout=20)
    assert time.monotonic() - began < 5 and run.returncode == 10 and "rank 1" in said and KILLED in said


@pytest.mark.parametrize(
    ("more", "words", "said"),
    [
        ({"NCCL_ALGO": "Tree"}, [], "the environment sets NCCL_ALGO, which may change results"),
        ({"FAKE_NCCL_VERSION": "22602"}, [], "NCCL is of version 2.26.2: 2.27.3 or later is needed"),
        ({}, ["--nccl", "libm.so.6"], "libm.so.6 lacks ncclGetVersion"),
        ({}, ["--nccl", "/nowhere.so"], "the plan has sums by NCCL, and /nowhere.so cannot be opened"),
    ],
)
def test_libraries_that_are_refused(by_nccl, more, words, said):
    done, _ = by_nccl(more, *words)
    assert done.returncode == 4 and said in done.stderr, done.stderr


@pytest.mark.parametrize("version", ["22703", "22805", "22902", "23004", "23102", "23203", "29901"])
def test_versions_of_nccl(by_nccl, version):
    done, _ = by_nccl({"FAKE_NCCL_VERSION": version})
    assert done.returncode == 0, done.stderr


def test_ranks_with_different_libraries(atlas, plan_on, env, tmp_path):
    plans, path = [plan_on("qwen3", 2, NCCL)], tmp_path / "meet"
    ranks = [
        Ranks(atlas, env | {"FAKE_NCCL_VERSION": version}, path, plans, counts=[2], ranks=[r])
        for r, version in enumerate(["23203", "23004"])
    ]
    for codes, _, errors in [r.ends() for r in ranks]:
        assert codes == [8] and "rank 1 has another NCCL than rank 0" in errors[0], errors


def test_drafts_of_whole_experts(atlas, plan_on, env):
    """The head's layer has experts too: as many drafts are accepted as on the reference device. A rank that took the
    experts of another would still draft, but a tenth worse."""
    plan = plan_on("qwen3_5_moe-trained", 2, "[speculate]\nrows = 3\n", kind="-drafts")
    accepted = [0, 0]
    for tokens in (TOKENS, "30,31,32,33,34", "99,4,77,12,250,6"):
        words = ["--tokens", tokens, "-n", 200, "--json", "-q", "--temperature", 0, "--speculate", "mtp"]
        for i, where in enumerate((["--device", "cuda", "--ranks", 2], ["--device", "cpu"])):
            done = atlas("run", plan, *words, *where, env=env)
            assert done.returncode == 0, done.stderr
            accepted[i] += int(re.search(r'accepted": (\d+)', done.stdout)[1])
    assert accepted[1] > 300 and abs(accepted[0] - accepted[1]) < 15, accepted


def pinned(template):
    return f'[[kernels.pin]]\nop = "sum_peers"\ntemplate = "{template}"\n'


TWO = pinned("sum_peers_two")


@pytest.mark.parametrize(("name", "ranks"), [("qwen3", 2), ("qwen3_moe", 4), ("../families/olmo2", 2)])
def test_sums_in_two_shots(atlas, plan_on, env, tmp_path, name, ranks):
    """The bits of one shot, whoever adds; OLMo's are also of f32, of one column."""
    plans = [plan_on(name, ranks, pinned(way), kind=f"-{way}") for way in ("sum_peers", "sum_peers_two")]
    for plan, way in zip(plans, ("one", "two"), strict=True):
        assert (" sum_peers_two " in atlas("audit", plan).stdout) == (way == "two")
    words = ["--device", "cuda", "--ranks", ranks]
    one, two, again = (logits(atlas, plan, tmp_path / "l.st", *words, env=env) for plan in [*plans, plans[1]])
    assert np.array_equal(one, two) and np.array_equal(two, again)
    assert text(atlas, plans[0], *words, env=env) == text(atlas, plans[1], *words, env=env)


def test_two_shots_of_eight_ranks(atlas, atlasc, kernel_cache, env, tmp_path):
    wide = {"hidden_size": 256, "num_key_value_heads": 8, "intermediate_size": 512}
    config, found = widened(FIXTURES / "llama", tmp_path, **wide), []
    for way in ("sum_peers", "sum_peers_two"):
        (tmp_path / "m.toml").write_text(f"{SMALL}[parallel]\nranks = 8\n{pinned(way)}")
        words = ["--random-weights", "--target", "sm_90a", "--model", tmp_path / "m.toml", "-q"]
        done = atlasc(config, *words, "-o", tmp_path / "plan.bin", "--cache-dir", kernel_cache, timeout=600)
        assert done.returncode == 0, done.stderr
        words = ["--device", "cuda", "--ranks", 8]
        env = env | {"FAKE_CUDA_DEVICES": "8"}
        found.append(logits(atlas, tmp_path / "plan.bin", tmp_path / "l.st", *words, env=env))
    assert np.array_equal(*found)


def test_drafts_of_sums_in_two_shots(atlas, plan_on, env):
    """Verify and draft steps between those of decode, each with collectives of its own."""
    more = "[speculate]\nrows = 3\n"
    plans = [plan_on("qwen3_5_moe-trained", 2, x + more, kind=f"-drafts-{len(x)}") for x in ("", TWO)]
    words = ["--device", "cuda", "--ranks", 2]
    assert len({tuple(text(atlas, plan, *words, env=env)) for plan in plans}) == 1


@pytest.mark.parametrize("delay", [0.1, 0.4, 0.8])
def test_a_rank_is_lost_in_two_shots(atlas, plan_on, env, delay):
    run = begin(atlas, plan_on("qwen3", 2, TWO, kind="-sum_peers_two"), env | {"FAKE_CUDA_SLOW": "20000"})
    while not (rank := other_rank(run)):
        time.sleep(0.005)
    time.sleep(delay)
    os.kill(rank, signal.SIGKILL)
    began = time.monotonic()
    _, said = run.communicate(timeout=20)
    assert time.monotonic() - began < 5 and run.returncode == 10 and "rank 1" in said and KILLED in said


def shots(atlasc, repo, tmp_path, ranks, more=""):
    """{bytes of a part: the kernel that sums it} of a plan of 8B, by the cost model."""
    (tmp_path / "m.toml").write_text(
        "[runtime]\nslots = 256\nmax_context = 4096\n[phases]\nprefill = [2048]\ndecode = [1, 4, 16, 32, 64, 256]\n"
        f"[parallel]\nranks = {ranks}\n{more}"
    )
    words = ["--random-weights", "--weights", "ref", "--target", "sm_90a", "--stop-after", "pick-kernels", "-d", "k"]
    shape = repo / "tests/gpu/shapes/llama-3.1-8b.json"
    done = atlasc(shape, *words, "--dry-run", "--model", tmp_path / "m.toml", "-q", timeout=300)
    assert done.returncode == 0, done.stderr[-500:]
    rows = re.findall(r"l0\.attn\.o\.part\[(\d+),4096\]bf16.*\n +(sum_\w+)", done.stdout + done.stderr)
    return {int(n) * 8192: kernel for n, kernel in rows}


@pytest.mark.parametrize("ranks", [2, 4, 8])
def test_shots_by_cost(atlasc, repo, tmp_path, ranks):
    """By published times one shot takes L0 + (R - 1) S / B, two 1.5 L0 + 2 (R - 1) / R S / B: from which S on?"""
    first, rate = {2: 5.0, 4: 5.4, 8: 5.8}[ranks], 300e3
    saved = ((ranks - 1) - 2 * (ranks - 1) / ranks) / rate
    least = 0.5 * first / saved if saved else float("inf")
    found = shots(atlasc, repo, tmp_path, ranks)
    assert len(found) >= 6
    for size, kernel in found.items():  # what a rank reads and writes of its own memory counts a little too
        if size <= 32768:
            assert kernel == "sum_peers_push"
        elif not 0.8 < size / least < 1.3:
            assert kernel == ("sum_peers_two" if size > least else "sum_peers"), (size, found)
    assert ("sum_peers_two" in found.values()) == (ranks > 2)


def test_shots_that_are_not_asked_for(atlasc, repo, tmp_path):
    """A ban, and NCCL where MODEL.toml says so, whatever it costs."""
    found = shots(atlasc, repo, tmp_path, 8, '[[kernels.ban]]\ntemplate = "sum_peers_two"\n')
    assert set(found.values()) == {"sum_peers_push", "sum_peers"}
    found = shots(atlasc, repo, tmp_path, 8, "nccl_above = 1000000\n")
    assert found[64 * 8192] == "sum_peers_two" and found[256 * 8192] == found[2048 * 8192] == "sum_nccl"
