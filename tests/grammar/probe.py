"""Drives tests/grammar/grammar_probe.c, and llguidance beside it: masks of the same texts."""

import json
import struct
import subprocess

import numpy as np


class Refused(Exception):
    """A grammar was not compiled; args are the JSON pointer and the reason."""


class Probe:
    """One process with one vocabulary. Masks are uint32 [words]."""

    def __init__(self, program, image, n_ids, end):
        assert program.exists(), f"{program} is missing: run make tests"
        self.words = (n_ids + 31) // 32
        self.process = subprocess.Popen(
            [str(program), str(image), str(n_ids), str(end)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=60)

    def send(self, kind, payload=b""):
        self.process.stdin.write(kind.encode() + struct.pack("<I", len(payload)) + payload)
        self.process.stdin.flush()

    def take(self, n):
        data = self.process.stdout.read(n)
        assert len(data) == n, f"the probe ended: {self.process.wait(timeout=60)}"
        return data

    def number(self):
        return struct.unpack("<I", self.take(4))[0]

    def compile(self, kind, text):
        self.send(kind, text.encode("utf-8", "surrogatepass"))
        n = self.number()
        if n:
            raise Refused(*self.take(n).decode("utf-8", "replace").split("\n", 1))

    def schema(self, schema):
        self.compile("s", schema if isinstance(schema, str) else json.dumps(schema))

    def again(self):
        self.send("n")

    def tokens(self, ids):
        self.send("t", struct.pack(f"<{len(ids)}i", *ids))
        return self.number()

    def tries(self, ids):
        """As tokens, and they are taken back."""
        self.send("y", struct.pack(f"<{len(ids)}i", *ids))
        return self.number()

    def bytes(self, data):
        self.send("b", data)
        return self.number() == 1

    def mask(self):
        """(mask, may end, must end, nanoseconds)"""
        self.send("m")
        took, flags = struct.unpack("<QI", self.take(12))
        assert flags != 0xFFFFFFFF, "the mask failed"
        return np.frombuffer(self.take(4 * self.words), dtype=np.uint32), bool(flags & 1), bool(flags & 2), took


def bits(mask):
    """Ids of a mask, ascending."""
    return np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
