"""Plans of several ranks on GPUs, as many as devices are named.

    python tests/gpu/ranks.py compare BUILD DEVICES [cut|whole] [NAME...]
    python tests/gpu/ranks.py kill BUILD DEVICES PLAN POINTS [SECONDS [AT_ONCE [SIGKILL]]]
    python tests/gpu/ranks.py plans BUILD FOLDER
    python tests/gpu/ranks.py shots BUILD DEVICE FOLDER

DEVICES: 0,1; or 0,0,0,0 where four share a GPU. Names are of tests/fixtures and tests/families, all by default. Experts
are whole on each rank, unless they are to be cut.

compare: each checkpoint that can be cut (the others with the code that refuses them) against the reference device, which
runs all ranks in one process: two runs have equal bits; logits differ by the largest of a row's errors over the largest
logit; of 12 greedy tokens, how far below the reference's best each lies after the same tokens. kill: a rank is
killed, or stopped, at so many points of a run of PLAN of 2,000 tokens, rank 1 first, then 2 and so on: exit 10 with its
number and nothing left within 5 s. The last point is SECONDS (4) after the start; AT_ONCE (1) runs go on together.
plans: what shots compares, made without a GPU: of 2 and 4 ranks, each with all sums in one shot and in two. shots: on
one GPU, which the ranks share, both have equal bits, and so has a second run; then as compare.
Exit 1: something is not so.
"""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from safetensors.numpy import load_file

TESTS = pathlib.Path(__file__).resolve().parents[1]
TOKENS = [1, 5, 9, 13, 20, 7, 8, 44, 3, 2]
MEDIAN, WORST = 0.025, 0.15  # of a row's error: bf16 rows; noise may send one to another expert
SMALL = "[runtime]\nslots = 2\nmax_context = {}\n[phases]\nprefill = [64]\ndecode = [2]\n[kv]\npage = 16\n"
CUT = '[parallel]\nranks = {}\nexperts = "{}"\n'


def words_of(devices):
    return ["--device", "cuda", "--devices", devices, *(["--share-gpu"] if len(set(devices.split(","))) == 1 else [])]


def run(*words):
    return subprocess.run([str(w) for w in words], capture_output=True, text=True, check=False, timeout=120)


def output(*words):
    done = run(*words)
    if done.returncode:
        raise RuntimeError(f"exit {done.returncode}: {done.stderr.strip()[:300]}")
    return done.stdout


def folders(names):
    of_names = {p.parent.name: p.parent for p in TESTS.glob("f*/*/config.json")}
    return [of_names[name] for name in names or sorted(of_names)]


def compiled(build, folder, work, ranks, experts):
    """The plan, or the code that refuses it."""
    own = folder / "MODEL.toml"
    context = re.search(r"(?m)^max_context = (\d+)", own.read_text() if own.exists() else "")
    toml, plan = work / f"{folder.name}.toml", work / f"{folder.name}.bin"
    options = SMALL.format(context[1] if context else 256) + CUT.format(ranks, experts)
    toml.write_text(options)
    done = run(build / "atlasc", folder, "--model", toml, "-o", plan, "-q", "--cache-dir", build / "kernel-cache")
    code = re.search(r"error\[(\w+)\]: (.*)", done.stderr)
    return plan if done.returncode == 0 else f"{code[1]}: {code[2]}" if code else done.stderr[-200:]


WIDE = {"hidden_size": 512, "num_attention_heads": 8, "num_key_value_heads": 4, "intermediate_size": 512}
WIDE |= {"num_hidden_layers": 1}
PIN = '[[kernels.pin]]\nop = "sum_peers"\ntemplate = "{}"\n'
SHOTS = {"one": "sum_peers", "two": "sum_peers_two"}


def make_plans(build, folder):
    """Fixtures, whose sums are of one block, and a model of random weights with sums of 64 blocks."""
    folder.mkdir(parents=True, exist_ok=True)
    config = json.loads((TESTS / "fixtures/llama/config.json").read_text()) | WIDE
    config.pop("head_dim", None)
    (folder / "wide.json").write_text(json.dumps(config))
    models = {
        "dense-2": TESTS / "fixtures/qwen3",
        "moe-4": TESTS / "fixtures/qwen3_moe",
        "wide-4": folder / "wide.json",
    }
    for name, model in models.items():
        is_wide = name.startswith("wide")
        options = "[config]\nmax_position_embeddings = 4096\n" + SMALL.format(4096).replace(
            "[64]", "[512]" if is_wide else "[64]"
        )
        for shots, template in SHOTS.items():
            (folder / "m.toml").write_text(options + CUT.format(name[-1], "whole") + PIN.format(template))
            words = ["--model", folder / "m.toml", "-o", folder / f"{name}.{shots}.bin", "-q"]
            words += ["--target", "sm_90a", *(["--random-weights"] if is_wide else [])]
            output(build / "atlasc", model, *words, "--cache-dir", build / "kernel-cache")
    return 0


def compare_shots(build, device, one):
    name, two = one.name.split(".")[0], one.with_name(one.name.replace("one", "two"))
    there, began = words_of(",".join([device] * int(name[-1]))), time.time()
    tokens = [(7 * i) % 250 + 1 for i in range(500 if "wide" in name else 10)]
    got = [logits(build, plan, tokens, *there) for plan in (one, two, two)]
    texts = [text(build, plan, *there) for plan in (one, two)]
    want = logits(build, two, tokens, "--device", "cpu")
    after = logits(build, two, TOKENS + texts[1][:-1], "--device", "cpu")[len(TOKENS) - 1 :]
    below = max(row.max() - row[token] for row, token in zip(after, texts[1])) / np.max(np.abs(after))
    errors = np.max(np.abs(got[1] - want), axis=1) / np.max(np.abs(want))
    same, again = np.array_equal(got[0], got[1]) and texts[0] == texts[1], np.array_equal(got[1], got[2])
    good = same and again and np.median(errors) < MEDIAN and errors.max() < WORST and below <= 2 * errors.max()
    return good, (
        f"{name}: two shots {'have the bits of one' if same else 'DIFFER FROM ONE'}, a second run "
        f"{'too' if again else 'DIFFERS'}; {len(tokens)} rows of logits within {errors.max():.1e}, median "
        f"{np.median(errors):.1e}; 12 tokens within {below:.1e} of the best; {time.time() - began:.1f} s"
    ) + ("" if good else "  <--")


def compare_all_shots(build, device, folder):
    with ThreadPoolExecutor(2) as pool:
        found = list(pool.map(lambda plan: compare_shots(build, device, plan), sorted(folder.glob("*.one.bin"))))
    for _, told in found:
        print(told)
    return not found or not all(good for good, _ in found)


def logits(build, plan, tokens, *where):
    with tempfile.TemporaryDirectory() as work:
        out = pathlib.Path(work) / "d.safetensors"
        output(build / "atlas", "dump", plan, "--tokens", ",".join(map(str, tokens)), "-o", out, "-q", *where)
        return load_file(out)["logits"].astype(np.float64)


def text(build, plan, *where):
    ids = ",".join(map(str, TOKENS))
    told = output(build / "atlas", "run", plan, "--tokens", ids, "-n", 12, "--temperature", 0, "--json", "-q", *where)
    return json.loads(told)["results"][0]["tokens"]


def compare(build, plan, devices):
    there, here = words_of(devices), ("--device", "cpu")
    got = [(logits(build, plan, TOKENS, *there), text(build, plan, *there)) for _ in range(2)]
    want = logits(build, plan, TOKENS, *here)
    same = np.array_equal(got[0][0], got[1][0]) and got[0][1] == got[1][1]
    errors = np.max(np.abs(got[0][0] - want), axis=1) / np.max(np.abs(want))
    after = logits(build, plan, TOKENS + got[0][1][:-1], *here)[len(TOKENS) - 1 :]
    below = max(row.max() - row[token] for row, token in zip(after, got[0][1])) / np.max(np.abs(after))
    good = same and np.median(errors) < MEDIAN and errors.max() < WORST and below <= 2 * errors.max()
    return good, (
        f"two runs {'equal bits' if same else 'DIFFER'}; logits within {errors.max():.1e}, median row "
        f"{np.median(errors):.1e}; tokens within {below:.1e} of the best" + ("" if good else "  <--")
    )


def compare_all(build, devices, names):
    bad, ranks = 0, devices.count(",") + 1
    experts, names = (names[0], names[1:]) if names and names[0] in ("cut", "whole") else ("whole", names)
    with tempfile.TemporaryDirectory() as work, ThreadPoolExecutor(8) as pool:
        all_folders = folders(names)
        plans = list(pool.map(lambda folder: compiled(build, folder, pathlib.Path(work), ranks, experts), all_folders))
        for folder, plan in zip(all_folders, plans):
            try:
                good, told = (True, f"refused, {plan}") if isinstance(plan, str) else compare(build, plan, devices)
            except (RuntimeError, subprocess.TimeoutExpired) as error:
                good, told = False, f"{error}  <--"
            bad += not good
            print(f"{folder.name:40} {told}", flush=True)
    return bad


def processes():
    """{id: (parent, state)}"""
    found = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            rest = pathlib.Path(f"/proc/{name}/stat").read_text().rsplit(")", 1)[1].split()
        except OSError:
            continue
        found[int(name)] = (int(rest[1]), rest[0])
    return found


def kill_one(build, devices, plan, i, delay, stops):
    """What happened, and whether that is right; None: the run had ended before."""
    sig = signal.SIGSTOP if stops and i % 7 == 6 else signal.SIGKILL
    words = ["--tokens", "1,5,9,13,20", "-n", "2000", "--temperature", "0", "--json", "-q", *words_of(devices)]
    child = subprocess.Popen(
        [build / "atlas", "run", plan, *words], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    )
    time.sleep(delay)
    ranks, began = sorted(p for p, (parent, _) in processes().items() if parent == child.pid), time.time()
    rank = 1 + i % max(1, len(ranks))
    for pid in ranks[rank - 1 : rank]:
        os.kill(pid, sig)
    try:
        error = child.communicate(timeout=12)[1]
    except subprocess.TimeoutExpired:
        child.kill()
        error = "HANGS"
    took = time.time() - began
    left = [p for p, (_, state) in processes().items() if p in ranks and state != "Z"]
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    good = child.returncode == 10 and f"rank {rank}" in error and took < 5 and not left
    what = f"rank {rank}, {sig.name} after {delay:.2f} s: exit {child.returncode} in {took:.2f} s, {len(left)} left"
    return f"{what}; {error.partition(chr(10))[0][:120]}", None if child.returncode == 0 and not error else good


def kill_all(build, devices, plan, points, most=4.0, at_once=1, stops=True):
    with ThreadPoolExecutor(at_once) as pool:
        delays = [0.02 + most * i / max(1, points - 1) for i in range(points)]
        found = list(pool.map(lambda i: kill_one(build, devices, plan, i, delays[i], stops), range(points)))
    for text, _ in found:
        print(text)
    bad, ended = [good for _, good in found].count(False), [good for _, good in found].count(None)
    print(f"{points} points, {ended} after its end: {bad} bad")
    return bad + (ended == points)


def main():
    what, build, devices, *rest = sys.argv[1:]
    build = pathlib.Path(build).resolve()
    if what == "plans":
        return make_plans(build, pathlib.Path(devices))
    if what == "shots":
        return 1 if compare_all_shots(build, devices, pathlib.Path(rest[0])) else 0
    if what == "kill":
        most, at_once = float(rest[2]) if rest[2:] else 4.0, int(rest[3]) if rest[3:] else 1
        return 1 if kill_all(build, devices, rest[0], int(rest[1]), most, at_once, rest[4:] != ["SIGKILL"]) else 0
    return 1 if compare_all(build, devices, rest) else 0


if __name__ == "__main__":
    sys.exit(main())
