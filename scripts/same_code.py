#!/usr/bin/env python3
"""Do two compilers choose and make the same kernels?

    scripts/same_code.py OLD_ATLASC NEW_ATLASC [--only REGEX] [--target TARGET] [--no-times] [--choices] [--jobs N]

Both choose kernels for each shape of tests/gpu/shapes and each fixture, for every target: template, grid, block, shared
memory, bytes and constants are compared, line by line. Then both compile, for sm_90a, each kernel that was chosen, and
those of kernels/tuning/: the machine code must have the same SHA-256. --only: templates whose name matches; --no-times:
choices are the cost model's, as they are not alike where times count for one compiler alone; --choices: nothing is
compiled. Needs no GPU; OLD_ATLASC is built from another commit, as build/was/atlasc is (scripts/rekey.sh).
Ends with 1 if anything differs.
"""

from __future__ import annotations

import argparse
import collections
import json
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib

REPO = pathlib.Path(__file__).resolve().parent.parent
ROOM = ("SLOTS", "PAGES", "MAX_PAGES", "SEGS", "STOPS")  # what times do not depend on: artifacts/tuning.h
CARD = '[card]\ntarget = "sm_90a"\nname = "none"\ndriver = "none"\n'
# Buckets and caches beside the defaults; some do not suit a model, which then has no lines in either list.
OPTIONS = ["", "[phases]\nprefill = [128, 512, 2048]\ndecode = [1, 2, 4, 8, 16, 32, 64]\n[runtime]\nslots = 64\n"]
OPTIONS += [f'[kv]\ndtype = "{t}"\n' for t in ("fp8", "nvfp4")] + ["[numerics]\ninvariant = true\n"]


def models() -> list[pathlib.Path]:
    shapes = sorted((REPO / "tests/gpu/shapes").glob("*.json"))
    return shapes + sorted(p.parent for p in (REPO / "tests/fixtures").glob("*/config.json"))


def choices(atlasc: str, model: pathlib.Path, options: str, target: str, times: bool) -> list[str]:
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as toml:
        toml.write(options)
        toml.flush()
        words = [atlasc, model, "--dry-run", "--target", target, "-d", "k", "--stop-after", "pick-kernels"]
        words += ["--model", toml.name] if options else []
        words += ["--random-weights"] if model.suffix else []
        words += [] if times else ["--tuning", "none"]
        done = subprocess.run(words, capture_output=True, text=True, cwd=REPO, check=False)
    return done.stdout.splitlines() if done.returncode == 0 else [f"exit {done.returncode}"]


def chosen_kernels(lines: list[str], tunables: dict) -> set[tuple]:
    """(template, constants, tunables), as files of times have them."""
    found = set()
    for launch, constants in zip(lines, lines[1:]):
        name = (re.match(r"      (\w+)  grid ", launch) or [None, None])[1]
        if not name:
            continue
        words = [w for w in constants.split() if w.split("=")[0] not in ROOM]
        own = set(tunables[name])
        found.add(
            (
                name,
                " ".join(w for w in words if w.split("=")[0] not in own),
                " ".join(w for w in words if w.split("=")[0] in own),
            )
        )
    return found


def timed_kernels() -> set[tuple]:
    found = set()
    for path in (REPO / "kernels/tuning").glob("sm_90a.*.toml"):
        for kernel in tomllib.loads(path.read_text())["kernel"]:
            found |= {
                (kernel["template"], kernel["constants"], t) for t in kernel if t not in ("template", "constants")
            }
    return found


def machine_code(atlasc: str, path: str, jobs: str) -> list[dict]:
    words = [atlasc, "times", path, "--json", "--machine-code", *(["--jobs", jobs] if jobs else [])]
    done = subprocess.run(words, capture_output=True, text=True, cwd=REPO, check=True)
    return json.loads(done.stdout)["files"][0]["times"]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--only", default="")
    parser.add_argument("--target", action="append")
    parser.add_argument("--no-times", action="store_true")
    parser.add_argument("--choices", action="store_true")
    parser.add_argument("--jobs", default="")
    args = parser.parse_args()
    compilers = [str(pathlib.Path(p).resolve()) for p in (args.old, args.new)]
    listed = subprocess.run([compilers[0], "kernels", "--json"], capture_output=True, text=True, check=True).stdout
    tunables = {k["name"]: k["tunables"] for k in json.loads(listed)["kernels"]}
    targets = re.findall(
        r"^sm_\w+",
        subprocess.run([compilers[1], "--list-targets"], capture_output=True, text=True, check=True).stdout,
        re.M,
    )
    kernels, n_lists, n_other = timed_kernels(), 0, 0
    for model in models():
        for target in args.target or targets:
            for options in OPTIONS if target == "sm_90a" else OPTIONS[:1]:
                old, new = (choices(c, model, options, target, not args.no_times) for c in compilers)
                n_lists += 1
                if target == "sm_90a":
                    kernels |= chosen_kernels(old, tunables)
                if old != new:
                    n_other += 1
                    was, now = next(((a, b) for a, b in zip(old, new) if a != b), (old[-1:], new[-1:]))
                    print(f"{model.name} {target} {options.split(chr(10))[0]}\n- {was}\n+ {now}")
    print(f"{n_lists} lists of choices, {n_other} differ")
    if args.choices:
        return n_other != 0
    kernels = sorted(k for k in kernels if re.match(args.only, k[0]))
    groups = collections.defaultdict(list)
    for name, constants, values in kernels:
        groups[name, constants].append(values)
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(CARD)
        for (name, constants), values in sorted(groups.items()):
            file.write(f'\n[[kernel]]\ntemplate = "{name}"\nconstants = "{constants}"\n')
            file.writelines(f'"{v}" = [1.00, 0.001, "0000000000000000"]\n' for v in sorted(values))
        file.flush()
        old, new = (machine_code(c, file.name, args.jobs) for c in compilers)
    other = [(a, b) for a, b in zip(old, new, strict=True) if a["machine_code"] != b["machine_code"]]
    absent = [a for a, b in zip(old, new) if not a["machine_code"] or not b["machine_code"]]
    for a, b in other:
        print(f"{a['template']} {a['constants']} {a['tunables']}: {a['machine_code']} {b['machine_code']}")
    print(
        f"{len(old)} kernels of {len({a['template'] for a in old})} templates, {len(other)} differ in machine code, "
        f"{len(absent)} not compiled"
    )
    return n_other + len(other) != 0


if __name__ == "__main__":
    sys.exit(main())
