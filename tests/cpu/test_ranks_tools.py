"""What tools say of plans of several ranks, rank by rank: receipts, memory, certificates, times of collectives.

A rank alone is made wrong, which is not rank 0: what the tool says of that one shows that it was looked at.
"""

from __future__ import annotations

import json
import re

import pytest
from test_ranks_gpu import SMALL, TWO, env, plan_on  # noqa: F401 (fixtures)

ALL = "nccl_above = 0\n"
RANKS = ["--ranks", 2]


def test_receipt(atlas, plan_on, env, tmp_path):  # noqa: F811
    plan, path = plan_on("qwen3", 2), tmp_path / "r.json"
    done = atlas("receipt", plan, *RANKS, "-o", path, env=env)
    assert done.returncode == 0 and re.search(r"rank 1 +(\d+) nodes, 0 different; (\d+) launches", done.stdout), done
    receipt = json.loads(path.read_text())
    (other,) = receipt["other_ranks"]
    assert other["rank"] == 1 and other["graphs"] == receipt["graphs"] and receipt["graphs"]["nodes"] > 50
    assert other["launches"] == receipt["launches"] and receipt["equal"]
    assert "other_ranks" not in json.loads(atlas("receipt", plan_on("qwen3", 1), "--json", env=env).stdout)


@pytest.mark.parametrize(("liar", "said"), [(1, "different on rank 1: graph of"), (0, "different in a graph of")])
def test_receipt_of_another_kernel(atlas, plan_on, env, liar, said):  # noqa: F811
    done = atlas("receipt", plan_on("qwen3", 2), *RANKS, env=env | {"FAKE_CUDA_LIES": str(liar)})
    assert done.returncode == 1 and said in done.stdout, done.stdout + done.stderr
    done = atlas("receipt", plan_on("qwen3", 2), *RANKS, "--json", env=env | {"FAKE_CUDA_LIES": str(liar)})
    receipt = json.loads(done.stdout)
    different = [receipt["graphs"]["different"], receipt["other_ranks"][0]["graphs"]["different"]]
    assert different[liar] > 0 and different[1 - liar] == 0 and not receipt["equal"]


def test_memory(atlas, plan_on, env):  # noqa: F811
    done = atlas("memory", plan_on("qwen3", 2), *RANKS, "--json", env=env)
    assert done.returncode == 0, done.stderr
    measured = json.loads(done.stdout)["measured"]
    (other,) = measured["other_ranks"]
    assert other == {"rank": 1, "peak": measured["peak"], "within": True} and measured["peak"] > 1 << 20
    done = atlas("memory", plan_on("qwen3", 2), *RANKS, env=env)
    assert [line[:7] for line in done.stdout.splitlines() if "peak" in line] == ["rank 0:", "rank 1:"]


MADE_BY_NCCL = 16 * (10 + 2 << 20)  # channels; what each takes for the rank before and the next, NVIDIA/nccl#1685


def test_memory_of_nccl(atlas, plan_on, env):  # noqa: F811
    """It is predicted of plans whose collectives it makes, and missed where it does not take it."""
    plans = {more: plan_on("qwen3", 2, more, kind="-all" * bool(more)) for more in ("", ALL)}
    of = {}
    for more, plan in plans.items():
        done = atlas("memory", plan, *RANKS, "--json", env=env | {"FAKE_NCCL_TAKES": str(12 << 20)})
        memory = json.loads(done.stdout)
        assert done.returncode == 0 and memory["measured"]["within"], done.stdout
        assert memory["measured"]["other_ranks"][0]["within"]
        of[more] = {item["item"]: item["bytes"] for item in memory["items"]}.get("buffers of NCCL")
    assert of == {"": None, ALL: MADE_BY_NCCL}
    done = atlas("memory", plans[ALL], *RANKS, env=env)
    assert done.returncode == 1 and done.stdout.count("further apart than") == 2, done.stdout
    each = {more: json.loads(atlas("audit", plan, "--json").stdout)["ranks"] for more, plan in plans.items()}
    assert each[ALL]["bytes_of_each"] == each[""]["bytes_of_each"] + MADE_BY_NCCL


@pytest.mark.parametrize(("above", "is_made"), [(1 << 20, False), (8191, True), (8192, False), (0, True)])
def test_estimate_of_nccl(atlasc, repo, tmp_path, above, is_made):
    """Of 64 rows of 64 columns in bf16: none is its where no part is that long."""
    (tmp_path / "m.toml").write_text(f"{SMALL}[parallel]\nranks = 2\nnccl_above = {above}\n")
    words = [repo / "tests/fixtures/qwen3", "--model", tmp_path / "m.toml", "--estimate", "--json", "-q"]
    items = json.loads(atlasc(*words).stdout)["each_rank"]["items"]
    assert [i["bytes"] for i in items if i["item"] == "buffers of NCCL"] == [MADE_BY_NCCL] * is_made
    words = [*words[:-3], "--dry-run", "--target", "sm_90a", "--memory-budget", 64 << 20]
    done = atlasc(*words)
    assert done.returncode == (7 if is_made else 0) and ("buffers of NCCL 192.0 MiB" in done.stderr) == is_made


@pytest.mark.parametrize(
    ("name", "ranks", "more"),
    [
        ("qwen3", 2, ""),
        ("qwen3", 2, ALL),
        ("qwen3_moe", 4, ""),
        ("qwen3_moe", 4, TWO),
        ("qwen3_5_moe-trained", 2, "[speculate]\nrows = 3\n"),
    ],
)
def test_certificates(atlas, plan_on, env, tmp_path, name, ranks, more):  # noqa: F811
    """Of every launch on every rank: with drafts too, and of collectives whichever way they take."""
    plan = tmp_path / "plan.bin"
    plan.write_bytes(
        plan_on(name, ranks, more, kind={"": "", ALL: "-all", TWO: "-sum_peers_two"}.get(more, "-drafts")).read_bytes()
    )
    done = atlas("verify", plan, "--certify", "--ranks", ranks, env=env, timeout=300)
    assert done.returncode == 0 and "certified:" in done.stderr, done.stdout[-800:] + done.stderr
    rows = [line.split() for line in done.stdout.splitlines() if re.match(r"(prefill|decode|verify)\[", line)]
    of = {(row[0], row[1]): int(row[5]) for row in rows if row[3] == "z"}
    phases = {phase for phase, _ in of}
    assert ("sum_nccl" if more == ALL else "sum_peers") in {op for _, op in of}
    assert any("verify" in phase for phase in phases) == ("spec" in more)
    assert all(n % ranks == 0 for n in of.values())
    done = atlas("run", plan, "--tokens", "1,2", "-n", 2, "-q", "--require-certified", "--ranks", ranks, env=env)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(("op", "more"), [("sum_peers", ""), ("linear_rows", ""), ("sum_nccl", ALL)])
def test_a_certificate_of_a_rank_that_is_wrong(atlas, plan_on, env, tmp_path, op, more):  # noqa: F811
    plan = tmp_path / "plan.bin"
    plan.write_bytes(plan_on("qwen3", 2, more, kind="-all" * bool(more)).read_bytes())
    done = atlas("verify", plan, "--certify", *RANKS, env=env | {"FAKE_CUDA_BAD": f"{op}@1"})
    assert done.returncode == 1 and re.search(f"not certified: layer 0: .* of {op} by", done.stderr), done.stderr
    done = atlas("run", plan, "--tokens", "1,2", "-n", 2, "-q", "--require-certified", *RANKS, env=env)
    assert done.returncode == 6 and "--require-certified" in done.stderr, done.stderr


@pytest.mark.parametrize("more", ["", ALL])
def test_share_of_collectives(atlas, plan_on, env, more):  # noqa: F811
    """The fake driver's clock counts launches, so a figure says that all collectives of a step were timed, no more."""
    plan = plan_on("qwen3", 2, more, kind="-all" * bool(more))
    words = [*RANKS, "--reps", 3, "--tokens", 4, "--only", "pp64,pp200,tg4@0"]
    done = atlas("bench", plan, *words, "--json", "-", "-q", env=env)
    assert done.returncode == 0, done.stderr
    rows = {row["name"]: row for row in json.loads(done.stdout)["rows"]}
    for name in ("pp64", "tg4@0x1", "tg4@0x2"):
        row = rows[name]
        assert row["collectives"] == 2 * 2 + 1 and row["collective_us"] > 0
        assert row["collective_share"] == pytest.approx(row["collective_us"] / (1e3 * row["ms"]))
    assert "collectives" not in rows["pp200"]  # chunks of several phases
    done = atlas("bench", plan, *words, env=env)
    assert done.stdout.count("5 collectives alone") == 3


@pytest.mark.parametrize("words", [["receipt"], ["memory"], ["verify", "--certify"]])
def test_tools_start_their_ranks(atlas, plan_on, env, tmp_path, words):  # noqa: F811
    words = [words[0], plan_on("qwen3", 2), *words[1:], *RANKS, "--rank", 0, "--rendezvous", tmp_path / "meet"]
    done = atlas(*words, env=env)
    assert done.returncode == 2 and "starts all ranks itself" in done.stderr, done.stderr


def test_kernels_of_a_plan_of_ranks(atlas, atlasc, plan_on, env, repo, tmp_path):  # noqa: F811
    """tune times the kernels of one rank, on one GPU, but not collectives; bench times no launch alone."""
    plan = tmp_path / "candidates.bin"
    (tmp_path / "m.toml").write_text(f"{SMALL}[parallel]\nranks = 2\n")
    words = ["--target", "sm_90a", "--model", tmp_path / "m.toml", "-o", plan, "--candidates", 2, "-q"]
    done = atlasc(repo / "tests/fixtures/qwen3", *words, timeout=300)
    assert done.returncode == 0, done.stderr
    target = json.loads(atlas("audit", plan, "--json").stdout)["targets"][0]
    assert target["n_candidates"] > 10 and any(x["op"] == "sum_peers" for x in target["phases"][0]["launches"])
    for op in ("sum_peers", "gather_peers"):
        done = atlas("tune", plan, "--only", op, env=env)
        assert done.returncode == 2 and f"--only {op}: the plan has no candidate for it" in done.stderr, done.stderr
    done = atlas("bench", plan, *RANKS, "--kernels", "-q", env=env)
    assert done.returncode == 2 and "--kernels: a plan of several ranks: what is timed alone" in done.stderr, (
        done.stderr
    )
