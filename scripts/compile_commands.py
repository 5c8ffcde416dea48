"""Writes compile_commands.json, which clangd and clang-tidy read, from the flags that `make flags` prints.

make flags | scripts/compile_commands.py >compile_commands.json
"""

import json
import pathlib
import sys

flags = sys.stdin.read().split()
sources = sorted(
    path
    for room in ("artifacts", "compiler", "models", "runtime", "tests")
    for path in pathlib.Path(room).rglob("*.c")
    if path.parent.name != "models"
)  # models/*.c are included
entries = [
    {"directory": str(pathlib.Path.cwd()), "file": str(path), "arguments": ["cc", *flags, "-c", str(path)]}
    for path in sources
]
json.dump(entries, sys.stdout, indent=1)
print()
