"""Drives tests/text/tokdump.c: one process compiles a tokenizer, then answers many requests."""

import struct
import subprocess


class Refused(Exception):
    """The compiler refused; args are the exit code and the diagnostics."""


class Tokdump:
    def __init__(self, program, folder):
        self.program, self.folder = program, folder  # folder: for compiled tokenizers
        self.images, self.notes = {}, []  # notes: what was told while compiling
        assert program.exists(), f"{program} is missing: run make tests"

    def run(self, *args, data=b""):
        done = subprocess.run(
            [str(self.program), *map(str, args)],
            input=data,
            timeout=300,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            check=False,
        )
        if done.returncode:
            raise Refused(done.returncode, done.stderr.decode())
        return done

    def compile(self, folder, rows):
        """Path of the compiled tokenizer of a folder; compiled once in a session."""
        key = (str(folder), rows)
        if key not in self.images:
            image = self.folder / f"{len(self.images)}.tok"
            self.notes.append(self.run(folder, rows, image).stderr.decode())
            self.images[key] = image
        return self.images[key]

    def batch(self, folder, rows, requests):
        """Answers a list of (kind, options, payload); see tokdump.c for what each reply is."""
        data = b"".join(
            kind.encode() + bytes([options]) + struct.pack("<I", len(payload)) + payload
            for kind, options, payload in requests
        )
        reply = memoryview(self.run(self.compile(folder, rows), data=data).stdout)
        at, answers = 0, []

        def take(size):
            nonlocal at
            at += size
            assert at <= len(reply), "reply cut off"
            return reply[at - size : at]

        def number():
            return struct.unpack("<i", take(4))[0]

        for kind, _, _ in requests:
            n = number()
            if kind in "ep":
                answers.append(list(struct.unpack(f"<{n}i", take(4 * n))) if n >= 0 else n)
            elif kind == "d":
                answers.append(bytes(take(n)) if n >= 0 else n)
            else:
                answers.append([bytes(take(number())) for _ in range(n)])
        assert at == len(reply), "reply too long"
        return answers

    def encode(self, folder, rows, texts, add_special=False, parse_special=True):
        options = (1 if add_special else 0) | (2 if parse_special else 0)
        return self.batch(folder, rows, [("e", options, t if isinstance(t, bytes) else t.encode()) for t in texts])

    def encode_spans(self, folder, rows, pairs):
        """Ids of (text, spans in bytes), control tokens in spans alone."""
        return self.batch(
            folder,
            rows,
            [
                (
                    "p",
                    0,
                    struct.pack("<I", len(spans))
                    + b"".join(struct.pack("<2I", *s) for s in spans)
                    + (text if isinstance(text, bytes) else text.encode()),
                )
                for text, spans in pairs
            ],
        )

    def decode(self, folder, rows, lists, skip_special=False, kind="d"):
        return self.batch(
            folder, rows, [(kind, int(skip_special), struct.pack(f"<{len(ids)}i", *ids)) for ids in lists]
        )
