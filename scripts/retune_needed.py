#!/usr/bin/env python3
"""Which kernel templates have no measured times of their present source, for each target and card.

    scripts/retune_needed.py [BUILD] [--strict] [--tuning DIR]

BUILD (default: build) holds `atlasc`, whose list of templates gives each one's hash; DIR (default: kernels/tuning)
holds TARGET.CARD.toml files as `atlas tune` writes them. For each file: templates that changed after they were timed,
whose times atlasc ignores (A0704), and templates that serve the target and were never timed on that card. Then the
targets without a file, where atlasc ranks kernels by its roofline model alone. Exit code: 0, also where times are
missing; with --strict 1 if a template changed after it was timed; 5 if `atlasc` or a file cannot be read.
"""

from __future__ import annotations

import argparse
import json
import pathlib
import subprocess
import sys
import tomllib

REPO = pathlib.Path(__file__).resolve().parent.parent


def templates_of(build: pathlib.Path) -> list[dict]:
    """Name, targets and sha256 of every template, as `atlasc kernels --json` lists them."""
    listed = subprocess.run([build / "atlasc", "kernels", "--json"], capture_output=True, text=True, check=True)
    return json.loads(listed.stdout)["kernels"]


def print_names(what: str, names: list[str]) -> None:
    print(f"  {len(names)} {what}" + (f": {' '.join(names)}" if names else ""))


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default=REPO / "build", type=pathlib.Path)
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--tuning", default=REPO / "kernels" / "tuning", type=pathlib.Path)
    args = parser.parse_args()
    try:
        templates = templates_of(args.build)
        files = {file.name: tomllib.loads(file.read_text()) for file in sorted(args.tuning.glob("*.toml"))}
        timed = {
            name: (file["card"]["target"], file["card"]["name"], file["templates"]) for name, file in files.items()
        }
    except (OSError, subprocess.CalledProcessError, ValueError, KeyError) as error:
        print(f"retune_needed.py: {error}", file=sys.stderr)
        return 5
    any_stale = False
    for name, (target, card, hashes) in timed.items():
        serving = {t["name"]: t["sha256"] for t in templates if target in t["targets"]}
        stale = sorted(t for t in serving if t in hashes and hashes[t] != serving[t])
        print(f"{name} ({card}): {len(serving)} templates serve {target}")
        print_names("changed after they were timed", stale)
        print_names("never timed on this card", sorted(set(serving) - set(hashes)))
        print_names("timed, but no longer there for this target", sorted(set(hashes) - set(serving)))
        any_stale |= bool(stale)
    targets = {target for t in templates for target in t["targets"]}
    for target in sorted(targets - {of for of, _, _ in timed.values()}):
        print(f"{target}: no card was timed")
    if any_stale:
        print("to measure them again: docs/tuning.md")
    return 1 if args.strict and any_stale else 0


if __name__ == "__main__":
    sys.exit(main())
