"""What the tests of the readers share: the dump program, and mutation of sound documents."""

import json
import random
import struct
import subprocess


class Reader:
    """readdump in one mode; called with all inputs at once, gives one parsed line for each."""

    def __init__(self, build_dir, mode):
        self.command = [str(build_dir / "tests" / "readdump"), mode]

    def _run(self, raw, count):
        done = subprocess.run(self.command, input=raw, capture_output=True, timeout=300)
        assert done.returncode == 0, done.stderr.decode(errors="replace")
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        assert len(lines) == count
        return lines

    def documents(self, texts):
        return self._run(b"".join(struct.pack("<I", len(t)) + t for t in texts), len(texts))

    def folders(self, paths):
        return self._run("".join(f"{p}\n" for p in paths).encode(), len(paths))

    def one(self, text):
        return self.documents([text.encode() if isinstance(text, str) else text])[0]


def mutate(rng: random.Random, raw: bytes, tokens) -> bytes:
    """One to three small changes: a byte, a cut, a doubled stretch, a token put in."""
    out = bytearray(raw)
    for _ in range(rng.randint(1, 3)):
        at = rng.randrange(len(out) + 1)
        kind = rng.randrange(6)
        if kind == 0 and at < len(out):
            out[at] = rng.randrange(256)
        elif kind == 1:
            del out[at : at + rng.randint(1, 4)]
        elif kind == 2:
            out[at:at] = rng.choice(tokens)
        elif kind == 3:
            end = min(len(out), at + rng.randint(1, 20))
            out[at:at] = out[at:end]
        elif kind == 4 and len(out) > 2:
            a, b = sorted(rng.randrange(len(out)) for _ in range(2))
            out[at:at] = out[a : min(b, a + 30)]
        else:
            del out[at:]
    return bytes(out)


def same(a, b):
    """Equal in value and in type: 1, 1.0 and True differ."""
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(same(a[k], b[k]) for k in a)
    if isinstance(a, list):
        return len(a) == len(b) and all(map(same, a, b))
    return a == b
