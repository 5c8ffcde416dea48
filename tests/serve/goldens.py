"""Bytes of answers, compared with files of tests/serve/goldens; ids and times do not count."""

from __future__ import annotations

import pathlib
import re

FOLDER = pathlib.Path(__file__).resolve().parent / "goldens"


def plain(text: str) -> str:
    """Ids by the order in which they first come: of one kind, equal where they were equal."""
    names: dict[str, str] = {}

    def name(match):
        count = sum(n.startswith(match[1]) for n in names.values())
        return names.setdefault(match[0], f"{match[1]}{count + 1}")

    text = re.sub(r"\b((?:chatcmpl-|cmpl-|resp_|msg_|rs_|fc_|ctc_|call_|toolu_|sig_))[0-9a-f]{24}", name, text)
    text = re.sub(r'"(created|created_at)":\d{10}', r'"\1":0', text)
    return re.sub(r'"system_fingerprint":"[0-9a-f]{12}"', '"system_fingerprint":"ROOT"', text)


def check_golden(name: str, text: str) -> None:
    """The text is that of the file. What differs is left next to it, as NAME.new, to be read and kept or dropped."""
    got, path = plain(text), FOLDER / name
    if not path.exists() or path.read_text(encoding="utf-8") != got:
        path.with_name(name + ".new").write_text(got, encoding="utf-8")
        raise AssertionError(f"{path} differs from {name}.new")
