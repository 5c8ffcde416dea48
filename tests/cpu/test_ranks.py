"""Plans of several ranks on the reference device: the same logits and texts as one rank, and faults that the reader finds.

What one rank computes is the oracle, which other tests compare with transformers. Sums over ranks are added in another
order, so logits differ in their last bits. Models that the fixtures are too small for are made with random weights, which
depend on names and shapes of whole weights alone.
"""

from __future__ import annotations

import hashlib
import json
import pathlib
import random
import re
import subprocess

import msgpack
import numpy as np
import pytest
from plan_file import put_together, take_apart
from safetensors.numpy import load_file
from test_hostile_graph import EXIT_CODES, places, reach, repack

TESTS = pathlib.Path(__file__).resolve().parents[1]
FIXTURES = sorted(p.parent.name for p in (TESTS / "fixtures").glob("*/config.json"))
FAMILIES = sorted(p.parent for p in (TESTS / "families").glob("*/config.json")) + [
    TESTS / "fixtures" / name
    for name in ("llama", "mistral", "qwen2", "qwen3", "qwen3_moe", "qwen3_next", "qwen3_5", "qwen3_5_moe")
]
TOLERANCE = 2e-5  # largest error relative to the largest logit; 4e-7 is measured, of Gemma-4 with random weights 8e-6
OF_CODES = 1e-4  # where keys and values become codes, and a last bit may make another one of them
TOKENS = "1,5,9,13,20,7,8,44,3,2"
SMALL = "[runtime]\nslots = 2\nmax_context = 128\n[kv]\npage = 16\n"
TOO_FEW = re.compile(r"error\[A0313\]: parallel\.ranks = (\d): .* cannot be divided evenly")


@pytest.fixture
def compiled(atlasc, tmp_path):
    """compiled(model, ranks, more, options): the plan's path, or what atlasc said when it refused."""

    def make(model, ranks, more="", *options, kv=""):
        name = f"{pathlib.Path(model).name}-{ranks}-{len(list(tmp_path.iterdir()))}"
        toml = tmp_path / f"{name}.toml"
        toml.write_text(SMALL + kv + f"[parallel]\nranks = {ranks}\n" + more)
        done = atlasc(model, "--target", "none", "--model", toml, "-o", tmp_path / f"{name}.bin", *options)
        return tmp_path / f"{name}.bin" if done.returncode == 0 else done.stderr

    return make


@pytest.fixture
def results(atlas, tmp_path):
    """Logits of a prompt, and the greedy tokens after it."""

    def of(plan):
        assert isinstance(plan, pathlib.Path), plan
        out = tmp_path / "out.safetensors"
        done = atlas("dump", plan, "--tokens", TOKENS, "--device", "cpu", "-o", out, "-q")
        assert done.returncode == 0, done.stderr
        text = atlas("run", plan, "--tokens", TOKENS, "-n", 12, "--device", "cpu", "--json", "-q", "--temperature", 0)
        assert text.returncode == 0, text.stderr
        return load_file(out)["logits"], [r["tokens"] for r in json.loads(text.stdout)["results"]]

    return of


def compare(one, several, tolerance=TOLERANCE):
    want, got = one[0].astype(np.float64), several[0].astype(np.float64)
    assert np.max(np.abs(got - want)) <= tolerance * np.max(np.abs(want))
    assert one[1] == several[1]


def widened(folder, tmp_path, **changes):
    """The model's config.json with heads, widths and experts that 4 ranks can divide."""
    config = json.loads((folder / "config.json").read_text())
    c = config.get("text_config", config)
    head_dim = c["hidden_size"] // c["num_attention_heads"]
    sizes = {
        "hidden_size": c["hidden_size"] if "head_dim" in c else 8 * head_dim,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "intermediate_size": 128,
        "moe_intermediate_size": 64,
        "shared_expert_intermediate_size": 64,
        "num_experts": 8,
        "num_local_experts": 8,
        "moe_num_experts": 8,
        "share_expert_dim": 32,
        "attention_other_setting": c.get("attention_other_setting", {}) | {"num_attention_heads": 8},
        "linear_num_key_heads": 4,
        "linear_num_value_heads": 8,
        "num_attention_heads_per_layer": [4, 8, 8],
    } | changes
    c.update({k: v for k, v in sizes.items() if k in c or k in changes})
    path = tmp_path / f"{folder.name}.json"
    path.write_text(json.dumps(config))
    return path


@pytest.mark.parametrize("ranks", [2, 4])
@pytest.mark.parametrize("name", FIXTURES)
def test_fixtures(compiled, results, name, ranks):
    """Those that can be divided; the others are refused, naming what cannot."""
    plan = compiled(TESTS / "fixtures" / name, ranks)
    if not isinstance(plan, pathlib.Path):
        assert [r for r in TOO_FEW.findall(plan)] and set(TOO_FEW.findall(plan)) == {str(ranks)}, plan
        return
    compare(results(compiled(TESTS / "fixtures" / name, 1)), results(plan))


def test_most_fixtures_can_be_divided(compiled):
    plans = [compiled(TESTS / "fixtures" / name, 2) for name in FIXTURES]
    assert sum(isinstance(plan, pathlib.Path) for plan in plans) > len(plans) / 2


@pytest.mark.parametrize("folder", FAMILIES, ids=lambda p: p.name)
def test_families_on_four_ranks(compiled, results, tmp_path, folder):
    """Two heads of keys and values, each on two ranks; experts whole, and cut where there are any without biases."""
    config = widened(folder, tmp_path)
    has_experts = "experts" in config.read_text()
    one = results(compiled(config, 1, "", "--random-weights"))
    for experts in ["whole", "cut"] if has_experts else ["whole"]:
        several = compiled(config, 4, f'experts = "{experts}"\n', "--random-weights")
        if experts == "cut" and folder.name.startswith("gpt_oss"):
            assert several.count(": experts with biases are not cut: parallel.experts") == 1, several
            continue
        compare(one, results(several))


FORMATS = ["fp8-block", "fp8-channel", "fp8-tensor", "nvfp4", "mxfp4"]
CASES = [("llama", "*_proj", "bf16", f) for f in FORMATS] + [("qwen3_moe", "*experts*", "nvfp4", f) for f in FORMATS]


@pytest.mark.parametrize("family, modules, kv, quant", [*CASES, ("qwen3_5", "*_proj", "fp8", "fp8-block")])
def test_formats_on_four_ranks(compiled, results, tmp_path, family, modules, kv, quant):
    wide = {"hidden_size": 128, "head_dim": 128, "num_key_value_heads": 4, "intermediate_size": 512}
    wide |= {"moe_intermediate_size": 512} if family == "qwen3_moe" else {}
    wide |= {"linear_key_head_dim": 128, "linear_value_head_dim": 128} if family == "qwen3_5" else {}
    config = widened(TESTS / "fixtures" / family, tmp_path, **wide)
    how = [(1, "whole"), (4, "whole")] + [(4, "cut")] * (family == "qwen3_moe")
    one, *several = (
        results(
            compiled(
                config,
                ranks,
                f'experts = "{experts}"\n[quant]\n"{modules}" = "{quant}"\n',
                "--random-weights",
                kv=f'dtype = "{kv}"\n',
            )
        )
        for ranks, experts in how
    )
    for other in several:
        compare(one, other, TOLERANCE if kv == "bf16" else OF_CODES)


def test_int4_on_four_ranks(compiled, results, tmp_path):
    config = widened(TESTS / "fixtures" / "llama-int4-awq", tmp_path, intermediate_size=1024, head_dim=64)
    compare(*(results(compiled(config, n, "", "--random-weights")) for n in (1, 4)))


def test_weights_of_the_checkpoint(atlas, compiled, tmp_path):
    """A plan by reference, of which each rank takes its parts from the files: the bits of the embedded one."""
    folder = TESTS / "fixtures" / "qwen3_moe"
    outs = []
    for how in ("embed", "ref"):
        plan, out = compiled(folder, 4, "", "--weights", how), tmp_path / f"{how}.safetensors"
        weights = ["--weights", folder] if how == "ref" else []
        done = atlas("dump", plan, *weights, "--tokens", TOKENS, "--device", "cpu", "-o", out, "-q")
        assert done.returncode == 0, done.stderr
        outs.append(out.read_bytes())
    assert outs[0] == outs[1]


@pytest.mark.parametrize("name, ranks", [("qwen3_moe", 4), ("qwen3_5", 2)])
def test_two_runs_have_equal_bits(compiled, results, name, ranks):
    plan = compiled(TESTS / "fixtures" / name, ranks)
    first, second = results(plan), results(plan)
    assert first[0].tobytes() == second[0].tobytes() and first[1] == second[1]


@pytest.mark.parametrize(
    "how, words", [("off", ["mixed", "gap=64", "prefix"]), ("mtp", ["pages", "gap=32"]), ("mtp", ["gap=64", "prefix"])]
)
def test_text_does_not_depend_on_neighbours(build_dir, atlasc, tmp_path, how, words):
    """Two ranks with drafts, kept prefixes, pages set aside: a text has the bits that it has alone."""
    toml, plan = tmp_path / "two.toml", tmp_path / "two.bin"
    pool = 208 if "pages" in words else 4096
    toml.write_text(
        f"[runtime]\nslots = 4\nmax_context = 192\n[kv]\npage = 16\npool_tokens = {pool}\n"
        "[speculate]\nrows = 3\n[parallel]\nranks = 2\n"
    )
    done = atlasc(TESTS / "fixtures" / "qwen3_5_moe-trained", "--target", "none", "--model", toml, "-o", plan)
    assert done.returncode == 0, done.stderr
    run = [build_dir / "tests" / "isolate_run", plan, "cpu", how, "1", "8", "1-1", *words]
    done = subprocess.run(run, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["differed"] == told["scores_differed"] == 0 and told["compared"] > 4, told
    assert (told["accepted"] > 0) == (how == "mtp"), told


# What the compiler refuses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text, message",
    [
        ("ranks = 3", "error[A0303]: parallel.ranks = 3: expected 1, 2, 4 or 8"),
        ("ranks = 16", "error[A0303]: parallel.ranks = 16: expected an integer from 1 to 8"),
        ('experts = "all"', 'error[A0303]: parallel.experts = "all": expected "whole" or "cut"'),
        ("tensor = 2", "error[A0302]: unknown key parallel.tensor"),
    ],
)
def test_options(atlasc, tmp_path, text, message):
    (tmp_path / "m.toml").write_text(f"[parallel]\n{text}\n")
    done = atlasc(TESTS / "fixtures" / "qwen3", "--target", "none", "--model", tmp_path / "m.toml", "--dry-run")
    assert done.returncode == 4 and message in done.stderr, done.stderr


def test_what_would_fit(compiled):
    done = compiled(TESTS / "fixtures" / "llama", 4)
    assert "parallel.ranks = 4: layer 0: 2 query heads cannot be divided evenly: among 2 at most" in done
    done = compiled(TESTS / "fixtures" / "llama-fp8-block", 2)
    assert (
        "model.layers.0.mlp.down_proj.weight: 208 columns in blocks of 128, which share a scale, cannot be divided evenly: "
        "not even among 2" in done
    )


def test_a_vocabulary_that_cannot_be_divided(atlasc, tmp_path):
    (tmp_path / "m.toml").write_text("[parallel]\nranks = 2\n")
    words = ["--target", "none", "--model", tmp_path / "m.toml", "--dry-run"]
    done = atlasc(TESTS / "fixtures" / "llama", *words)
    assert done.returncode == 0
    assert "note[A0314]: parallel.ranks = 2: lm_head.weight is whole on each rank: its 307 rows" in done.stderr


def test_one_gpu_is_refused(atlas, compiled):
    for device in ("cuda", "auto"):
        run = atlas("run", compiled(TESTS / "fixtures" / "qwen3", 2), "--tokens", "1,2", "--device", device, "-q")
        assert run.returncode == 4 and "the plan is for 2 GPUs, which atlas run" in run.stderr


# What the reader refuses ---------------------------------------------------------------------------------------------


@pytest.fixture
def opened(atlas, tmp_path):
    """What `atlas info` says of a plan with these sections."""

    def run(magic, sections):
        (tmp_path / "edited.bin").write_bytes(put_together(magic, sections))
        done = atlas("info", tmp_path / "edited.bin")
        return done.returncode, done.stderr

    return run


def tensor(graph, name):
    return next(i for i, t in enumerate(graph["tensors"]) if t["name"] == name)


def ops(graph, kind, layer=None):
    return [op for op in graph["ops"] if op["kind"] == kind and layer in (None, op["layer"])]


def add_residual_before_sum(g):
    """x + part on each rank, and the sum of these: the residual is added twice."""
    total, add = ops(g, "sum_ranks", 0)[0], ops(g, "add", 0)[0]
    part, out = total["operands"][0], add["operands"][2]
    twin = dict(g["tensors"][part], name="l0.mid.part")
    g["tensors"].append(twin)
    at = g["ops"].index(total)
    add["operands"] = [add["operands"][0], part, len(g["tensors"]) - 1]
    total["operands"] = [len(g["tensors"]) - 1, -1, out]
    g["ops"].remove(add)
    g["ops"].insert(at, add)


def leave_out_sum(g):
    total = ops(g, "sum_ranks", 0)[0]
    add = ops(g, "add", 0)[0]
    add["operands"][1] = total["operands"][0]
    g["ops"].remove(total)


def sum_twice(g):
    total = ops(g, "sum_ranks", 0)[0]
    g["tensors"].append(dict(g["tensors"][total["operands"][2]], name="l0.again"))
    again = dict(total, operands=[total["operands"][2], -1, len(g["tensors"]) - 1])
    g["ops"].insert(g["ops"].index(total) + 1, again)
    ops(g, "add", 0)[0]["operands"][1] = len(g["tensors"]) - 1


def norm_of_part(g):
    total = ops(g, "sum_ranks", 0)[0]
    norm = ops(g, "rmsnorm", 0)[1]
    norm["operands"][0] = total["operands"][0]


def draw_of_part(g):
    gather = ops(g, "gather_ranks")[0]
    sample = ops(g, "sample")[0]
    g["ops"].remove(gather)
    sample["operands"][1] = gather["operands"][0]


def bias_in_part(g):
    """The norm of the layer as a bias of the row-parallel product: any vector of that length."""
    part = ops(g, "sum_ranks", 0)[0]["operands"][0]
    product = next(op for op in ops(g, "linear", 0) if op["operands"][5] == part)
    product["operands"][4] = ops(g, "rmsnorm", 0)[0]["operands"][1]


def not_gated_by_its_heads(g):
    """The whole normed row in place of q: as many columns where a rank has one head of 64."""
    attention = ops(g, "attention", 0)[0]
    attention["operands"][1] = ops(g, "rmsnorm", 0)[0]["operands"][2]


def sum_of_whole(g):
    total = ops(g, "sum_ranks", 0)[0]
    total["operands"][0] = ops(g, "rmsnorm", 0)[0]["operands"][2]


FAULTS = [
    (add_residual_before_sum, r"graph op \d+ \(add\) on 4 ranks: x \(x0\) is whole, and would be added once a rank"),
    (leave_out_sum, r"\(add\) on 4 ranks: x \(x0\) is whole, and would be added once a rank"),
    (sum_twice, r"\(sum_ranks\) on 4 ranks: part \(l0.attn.o\) is not a part of a sum"),
    (norm_of_part, r"\(rmsnorm\) on 4 ranks: x \(l0.attn.o.part\) is a part of a sum, and is read as the sum"),
    (draw_of_part, r"\(sample\): operand masks does not have the shape"),
    (bias_in_part, r"\(linear\) on 4 ranks: bias \(.*\) would be added once a rank"),
    (not_gated_by_its_heads, r"\(attention\) on 4 ranks: kv \(kv.0\) is cut|\(attention\) on 4 ranks"),
    (sum_of_whole, r"\(sum_ranks\) on 4 ranks: part \(l0.attn.norm\) is not a part of a sum"),
]


@pytest.mark.parametrize("fault, message", FAULTS, ids=[f.__name__ for f, _ in FAULTS])
def test_faults_of_the_graph(compiled, opened, fault, message):
    data = compiled(TESTS / "fixtures" / "qwen3_moe", 4).read_bytes()
    sections = take_apart(data)
    graph = msgpack.unpackb(sections["graph"])
    fault(graph)
    code, said = opened(data[:12], {**sections, "graph": msgpack.packb(graph, use_single_float=True)})
    assert code == 6 and re.search(message, said), said


def other_heads(r, g):
    """o_proj's columns on all ranks: each would add all of them."""
    o = tensor(g, "model.layers.0.self_attn.o_proj.weight")
    cut = next(c for c in r["cuts"] if c["tensor"] == o)
    cut["runs"][0]["parts"] = 2
    cut["runs"][0]["n"] //= 2


def another_axis(r, g):
    cut = next(c for c in r["cuts"] if c["tensor"] == tensor(g, "model.layers.0.self_attn.o_proj.weight"))
    cut["axis"] = 0


CUTS = [
    (other_heads, r"weight .*|tensor .*|its weights have"),
    (another_axis, r"self_attn.o_proj.weight: (its shape is not a rank's part|not the type of weight)"),
    (lambda r, g: r["cuts"].reverse(), r"ranks: cut \d+ is of tensor"),
    (lambda r, g: r["cuts"].pop(), r"tensor .*: (its weights have|not the type of weight)"),
    (lambda r, g: r.update(n=3), r"ranks: 3 ranks: 2, 4 or 8 expected"),
    (lambda r, g: r.update(n=2), r""),
    (lambda r, g: r["phases"][0].update(digest=bytes(32)), r"the schedule of collectives of phases 1 is not"),
    (lambda r, g: r["phases"].pop(), r"the schedule of collectives"),
    (lambda r, g: r["phases"][0].update(n_collectives=2), r"the schedule of collectives"),
    (lambda r, g: r["places"].pop(), r"ranks: \d+ places of \d+ weights"),
    (lambda r, g: r["places"][1].update(r["places"][0]), r"weight .*: overlaps"),
    (
        lambda r, g: r["places"][-1].update(offset=r["places"][-1]["offset"] + 1),
        r"weight .*: (offset|overlaps|outside)",
    ),
    (lambda r, g: r.update(weight_bytes=0), r"weight .*: outside a rank's arena of 0 bytes"),
    (lambda r, g: r.update(peer_bytes=4096), r"ranks: arenas of \d+ and 4096 bytes"),
]


@pytest.mark.parametrize("fault, message", CUTS)
def test_faults_of_the_cuts(compiled, opened, fault, message):
    data = compiled(TESTS / "fixtures" / "qwen3_moe", 4).read_bytes()
    sections = take_apart(data)
    ranks = msgpack.unpackb(sections["ranks"])
    fault(ranks, msgpack.unpackb(sections["graph"]))
    code, said = opened(data[:12], {**sections, "ranks": msgpack.packb(ranks)})
    assert code == 6 and re.search(message, said), said


def test_one_rank_has_no_such_ops(compiled, opened):
    data = compiled(TESTS / "fixtures" / "qwen3_moe", 4).read_bytes()
    sections = {k: v for k, v in take_apart(data).items() if k != "ranks"}
    assert opened(data[:12], sections)[0] == 6


def test_digests_are_those_of_their_definition(compiled):
    """artifacts/ranks.h, written again."""
    sections = take_apart(compiled(TESTS / "fixtures" / "qwen3_moe", 4).read_bytes())
    graph, ranks = msgpack.unpackb(sections["graph"]), msgpack.unpackb(sections["ranks"])
    for phase in ranks["phases"]:
        text, n = b"collectives\0" + (4).to_bytes(8, "little") + phase["phase"].to_bytes(8, "little"), 0
        for i, op in enumerate(graph["ops"]):
            if op["kind"] in ("sum_ranks", "gather_ranks") and op["phases"] & phase["phase"]:
                shape = graph["tensors"][op["operands"][0]]["shape"]
                text += b"".join(x.to_bytes(8, "little") for x in (i, shape[1], int(shape[0] == -2)))
                text += op["kind"].encode() + b"\0"
                n += 1
        assert phase["digest"] == hashlib.sha256(text).digest() and phase["n_collectives"] == n
    layers = graph["n_layers"]
    assert ranks["phases"][0]["n_collectives"] == 2 * layers + 1  # after attention, after experts; the head


def swapped_runs(r, g):
    """Columns of values where those of queries are, of the convolution in front of the delta rule."""
    name = next(t["name"] for t in g["tensors"] if t["name"].endswith("conv1d.weight"))
    next(c for c in r["cuts"] if c["tensor"] == tensor(g, name))["runs"].reverse()


def gate_of_other_rows(r, g):
    name = next(t["name"] for t in g["tensors"] if t["name"].endswith("A_log"))
    r["cuts"] = [c for c in r["cuts"] if c["tensor"] != tensor(g, name)]


@pytest.mark.parametrize(
    "fault, message",
    [
        (swapped_runs, r"\(causal_conv\) on 2 ranks: w \(.*conv1d.weight\) is not cut as what it belongs to"),
        (gate_of_other_rows, r"A_log: (its weights have|not the type of weight)"),
    ],
)
def test_faults_of_the_delta_rule(compiled, opened, fault, message):
    data = compiled(TESTS / "fixtures" / "qwen3_next", 2).read_bytes()
    sections = take_apart(data)
    ranks = msgpack.unpackb(sections["ranks"])
    fault(ranks, msgpack.unpackb(sections["graph"]))
    code, said = opened(data[:12], {**sections, "ranks": msgpack.packb(ranks)})
    assert code == 6 and re.search(message, said), said


@pytest.mark.parametrize("seed", range(4))
def test_lies(atlas, compiled, tmp_path, seed):
    """As tests/cpu/test_hostile_graph.py, with lies in section ranks as well: refused or run, never a crash."""
    data = compiled(TESTS / "fixtures" / "qwen3_moe", 4).read_bytes()
    parts, pick, codes = take_apart(data), random.Random(seed), set()
    for i in range(10):
        sections = {"graph": msgpack.unpackb(parts["graph"]), "ranks": msgpack.unpackb(parts["ranks"])}
        which = "ranks" if i % 2 else "graph"
        of = sections[which] if which == "ranks" else {k: sections["graph"][k] for k in ("ops", "tensors")}
        for path in pick.sample(list(places(of)), pick.choice([1, 2])):
            old = reach(of, path)
            numbers = [reach(of, p) for p in pick.sample(list(places(of)), 20)]
            reach(of, path[:-1])[path[-1]] = pick.choice([v for v in numbers if isinstance(v, type(old))] or [old])
        packed = {k: repack(v) for k, v in sections.items()}
        (tmp_path / "plan").write_bytes(put_together(data[:12], {**parts, **packed}))
        run = atlas("run", tmp_path / "plan", "--tokens", "1,2,3,4,5", "-n", 3, "--device", "cpu", "-q", "--threads", 1)
        assert run.returncode in EXIT_CODES, run.stderr[-3000:]
        codes.add(run.returncode)
    assert codes - {0}, "nothing was noticed"


# What the tools say --------------------------------------------------------------------------------------------------


def bytes_of_each(sections):
    """Weights, each tensor at a multiple of 256, and state of a rank, from the graph's shapes."""
    bits, total = {"bf16": 16, "f16": 16, "f32": 32, "i32": 32, "e4m3": 8, "e2m1": 4}, 0
    for t in msgpack.unpackb(sections["graph"])["tensors"]:
        size = int(np.prod(t["shape"])) * bits[t["dtype"]] // 8
        total += size if t["role"] == "state" else -(-size // 256) * 256 if t["role"] == "weight" else 0
    return total


def test_memory_of_each_rank(atlasc, atlas, compiled, tmp_path):
    plan = compiled(TESTS / "fixtures" / "qwen3_moe", 4)
    want = bytes_of_each(take_apart(plan.read_bytes()))
    told = json.loads(atlas("audit", plan, "--json").stdout)["ranks"]
    assert told["n"] == 4 and told["bytes_of_each"] == want
    (tmp_path / "m.toml").write_text(SMALL + "[parallel]\nranks = 4\n")
    done = atlasc(TESTS / "fixtures" / "qwen3_moe", "--model", tmp_path / "m.toml", "--estimate", "--json", "-q")
    rank = json.loads(done.stdout)
    assert rank["ranks"] == 4 and rank["each_rank"]["device_bytes"] == want
    one, _, prompt = rank["steps"]  # two sums a layer and the logits: 5.4 us of 4 ranks, and what they move
    assert one["collectives"] == 5 and 27 < one["us"] < 28 and prompt["us"] > one["us"]
    words = ["--target", "none", "--model", tmp_path / "m.toml", "--dry-run", "--memory-budget", want - 1]
    done = atlasc(TESTS / "fixtures" / "qwen3_moe", *words)
    assert done.returncode == 7 and "error[A0804]: each of 4 ranks: " in done.stderr
    assert atlasc(TESTS / "fixtures" / "qwen3_moe", *words[:-1], want).returncode == 0
    assert "ranks   4  experts whole" in atlas("audit", plan).stdout
    assert "ranks        4, each with its parts" in atlas("info", plan).stdout
    changed = atlas("diff", compiled(TESTS / "fixtures" / "qwen3_moe", 2), plan).stdout
    assert "parallel.ranks" in changed and "ranks" in changed


@pytest.mark.parametrize("family", ["llama", "qwen3_moe"])
def test_eight_ranks(compiled, results, tmp_path, family):
    config = widened(TESTS / "fixtures" / family, tmp_path)
    compare(*(results(compiled(config, n, "", "--random-weights")) for n in (1, 8)))
