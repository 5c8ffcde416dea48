"""Drives tests/serve/piecedump.c: formats of calls by chat template, and answers as pieces."""

import json
import struct
import subprocess

SPECIAL = {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>", "pad_token": "<pad>"}


class Piecedump:
    """One process that finds formats and parses answers."""

    def __init__(self, program):
        assert program.exists(), f"{program} is missing: run make tests"
        self.process = subprocess.Popen([str(program)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self._send(b"g", b"".join(k.encode() + b"\0" + v.encode() + b"\0" for k, v in SPECIAL.items()))

    def _send(self, kind, payload):
        self.process.stdin.write(kind + struct.pack("<I", len(payload)) + payload)

    def _take(self):
        self.process.stdin.flush()
        size = self.process.stdout.read(4)
        assert len(size) == 4, f"piecedump ended: exit code {self.process.wait()}"
        return json.loads(self.process.stdout.read(struct.unpack("<I", size)[0]))

    def template(self, text):
        """{"format", "short_ids", "reasoning"} of a chat template; None where atlasc refuses it."""
        self._send(b"t", text.encode())
        return self._take()

    def parse(self, answer, cuts=(), **setting):
        """Pieces of an answer that comes cut at these bytes; None: byte by byte. setting: format, tools, reasoning,
        begins."""
        self._send(b"p", json.dumps(setting | {"cuts": None if cuts is None else list(cuts)}).encode())
        self._send(b"a", answer if isinstance(answer, bytes) else answer.encode())
        return self._take()

    def close(self):
        self.process.stdin.close()
        assert self.process.wait(timeout=60) == 0
