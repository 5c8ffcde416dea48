"""Drives build/tests/tokdump: one process compiles a tokenizer, then answers many requests."""
import os
import pathlib
import struct
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[2]


def program():
    build = pathlib.Path(os.environ.get("ATLAS_BUILD", ROOT / "build"))
    return build / "tests" / "tokdump"


class Refused(Exception):
    """The compiler refused; args are the exit code and the diagnostics."""


def run(args, data=b""):
    done = subprocess.run([str(program())] + [str(a) for a in args], input=data,
                          stdout=subprocess.PIPE, stderr=subprocess.PIPE, check=False)
    if done.returncode:
        raise Refused(done.returncode, done.stderr.decode())
    return done


def batch(folder, rows, requests):
    """Answers a list of (kind, options, payload); see tokdump.c for what each reply is."""
    data = b"".join(kind.encode() + bytes([options]) + struct.pack("<I", len(payload)) + payload
                    for kind, options, payload in requests)
    reply = memoryview(run([folder, rows], data).stdout)
    at, answers = 0, []

    def take(size):
        nonlocal at
        at += size
        assert at <= len(reply), "reply cut off"
        return reply[at - size:at]

    def number():
        return struct.unpack("<i", take(4))[0]

    for kind, _, _ in requests:
        n = number()
        if kind == "e":
            answers.append(list(struct.unpack(f"<{n}i", take(4 * n))) if n >= 0 else n)
        elif kind == "d":
            answers.append(bytes(take(n)) if n >= 0 else n)
        else:
            answers.append([bytes(take(number())) for _ in range(n)])
    assert at == len(reply), "reply too long"
    return answers


def encode_all(folder, rows, texts, add_special=False, parse_special=True):
    options = (1 if add_special else 0) | (2 if parse_special else 0)
    return batch(folder, rows, [("e", options, t if isinstance(t, bytes) else t.encode())
                                for t in texts])


def decode_all(folder, rows, lists, skip_special=False, kind="d"):
    return batch(folder, rows, [(kind, int(skip_special), struct.pack(f"<{len(ids)}i", *ids))
                                for ids in lists])
