#!/usr/bin/env python3
"""Copies published chat templates that lie in the folders given to build/chat-templates, where the tests look for them.

    scripts/place_chat_templates.py FOLDER...

tests/text/chat_templates.toml knows them by their hashes, whatever their files are called, and where each can be had.
"""

import hashlib
import pathlib
import sys
import tomllib

ROOT = pathlib.Path(__file__).resolve().parent.parent
MOST_BYTES = 1 << 20


def main(folders):
    wanted = {t["sha256"]: t for t in tomllib.loads((ROOT / "tests/text/chat_templates.toml").read_text())["template"]}
    place = ROOT / "build/chat-templates"
    place.mkdir(parents=True, exist_ok=True)
    for folder in folders:
        for path in pathlib.Path(folder).rglob("*"):
            if not path.is_file() or path.stat().st_size > MOST_BYTES:
                continue
            data = path.read_bytes()
            name = hashlib.sha256(data).hexdigest()
            if name in wanted:
                (place / f"{name}.jinja").write_bytes(data)
    missing = [t for h, t in wanted.items() if not (place / f"{h}.jinja").exists()]
    for t in missing:
        print(f"missing: {t['name']}, {t['origin']}")
    print(f"{len(wanted) - len(missing)} of {len(wanted)} in {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
