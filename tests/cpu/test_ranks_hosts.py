"""Ranks that meet by TCP, as those of several hosts do: processes on 127.0.0.1, with the fake driver and the fake NCCL.

They share no memory and no descriptors. The oracle is the same plan with ranks that a command starts on one host.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import json
import os
import signal
import socket
import struct
import subprocess
import threading
import time

import pytest
from test_ranks_gpu import TOKENS, build_of, env, plan_on, text  # noqa: F401 (fixtures)

ALL = "nccl_above = 0\n"


@pytest.fixture
def key(tmp_path):
    path = tmp_path / "key"
    path.write_bytes(os.urandom(32))
    path.chmod(0o600)
    return path


@pytest.fixture
def port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


@pytest.fixture
def plan(plan_on):  # noqa: F811
    return plan_on("qwen3", 2, ALL, kind="-all")


@pytest.fixture
def start(atlas, plan, env, key, port):  # noqa: F811
    """start(rank): a process that is that rank."""
    begun = []

    def begin(rank, *words, plan=plan, ranks=2, key=key, at=None, more=None):
        at = at or f"127.0.0.1:{port}"
        words = ["--ranks", ranks, "--rank", rank, "--rendezvous", at, "--rendezvous-key", key, *words]
        words = ["--tokens", TOKENS, "-n", 12, "--json", "-q", "--temperature", 0, "--device", "cuda", *words]
        command = [atlas, "run", plan, "--device-index", rank, *words]
        run = subprocess.Popen(
            [str(w) for w in command],
            env=env | (more or {}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        begun.append(run)
        return run

    yield begin
    for run in begun:
        with contextlib.suppress(OSError):
            run.kill()
        run.wait()


def ends(*runs):
    said = [run.communicate(timeout=30) for run in runs]
    return [run.returncode for run in runs], *zip(*said, strict=True)


def listens(port):
    """Is somebody there? Seen in the system's table: to connect would be to come as a stranger."""
    with open("/proc/net/tcp") as table:
        return any(line.split()[1] == f"0100007F:{port:04X}" and line.split()[3] == "0A" for line in list(table)[1:])


def wait_for(port):
    while not listens(port):
        time.sleep(0.01)


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_ranks_meet_and_compute(atlas, plan, env, start, order):  # noqa: F811
    want = text(atlas, plan, "--device", "cuda", "--ranks", 2, env=env)
    runs = {}
    for rank in order:
        runs[rank] = start(rank)
        time.sleep(0.3)
    codes, outs, errors = ends(runs[0], runs[1])
    assert codes == [0, 0], errors
    assert json.loads(outs[0])["results"][0]["tokens"] == want and outs[1] == ""


def test_four_ranks(plan_on, atlas, env, start):  # noqa: F811
    """More records than there is room for, and prompts: what the followers have done comes back to rank 0."""
    plan = plan_on("qwen3_moe", 4, ALL, kind="-all")
    words = ["-n", 150]
    done = atlas("run", plan, "--tokens", TOKENS, "--json", "-q", "--temperature", 0, "--ranks", 4, *words, env=env)
    codes, outs, errors = ends(*[start(r, *words, plan=plan, ranks=4) for r in range(4)])
    assert codes == [0] * 4, errors
    assert json.loads(outs[0])["results"] == json.loads(done.stdout)["results"]


def test_own_sums_are_of_one_host(plan_on, start):  # noqa: F811
    plan = plan_on("qwen3", 2)
    codes, _, errors = ends(start(0, plan=plan), start(1, plan=plan))
    assert codes == [4, 4]
    assert all("in the memory of one host (sum_peers, in phase prefill)" in e and "nccl_above = 0" in e for e in errors)


@pytest.mark.parametrize(
    ("ranks", "counts", "said"),
    [
        ((0, 1), (2, 4), "rank 1 was started for 4 ranks, rank 0 for 2"),
        ((0, 1, 1), (3, 3, 3), "two processes are rank 1"),
    ],
)
def test_ranks_that_do_not_fit_hear_the_same(start, ranks, counts, said):
    codes, _, errors = ends(*[start(r, ranks=n) for r, n in zip(ranks, counts, strict=True)])
    assert codes == [8] * len(ranks) and all(said in e for e in errors), errors
    assert len(set(errors)) == 1


@pytest.mark.parametrize(("other", "what"), [("plan", "plan"), ("nccl", "NCCL"), ("card", "kind of GPU")])
def test_what_differs_is_refused_on_all(plan_on, start, other, what):  # noqa: F811
    more = {"nccl": {"FAKE_NCCL_VERSION": "23004"}, "card": {"FAKE_CUDA_NAME": "NVIDIA H100"}}.get(other)
    words = {"plan": plan_on("qwen3_5", 2, ALL, kind="-all")} if other == "plan" else {}
    codes, _, errors = ends(start(0), start(1, more=more, **words))
    assert codes == [8, 8] and len(set(errors)) == 1 and f"rank 1 has another {what} than rank 0" in errors[0], errors


@pytest.mark.parametrize("answer", [b"HTTP/1.1 400 Bad Request\r\n\r\n" * 8, b""])
def test_a_port_that_is_taken(start, port, answer):
    """All ranks say so in the same words, whatever the other program answers."""
    with socket.create_server(("127.0.0.1", port)) as s:

        def serve():
            with contextlib.suppress(OSError):
                while True:
                    c, _ = s.accept()
                    c.recv(1000)
                    c.sendall(answer)
                    c.close()

        threading.Thread(target=serve, daemon=True).start()
        codes, _, errors = ends(start(0), start(1))
        s.shutdown(socket.SHUT_RDWR)
    assert codes == [8, 8] and len(set(errors)) == 1 and "the port is taken by another program" in errors[0], errors


@pytest.mark.parametrize(
    ("at", "code", "said"),
    [
        ("no-such-host.invalid:7000", 2, "the host is not found"),
        ("127.0.0.1:0", 2, "a port from 1 to 65535"),
        ("127.0.0.1:70000", 2, "a port from 1 to 65535"),
    ],
)
def test_addresses_that_are_none(start, at, code, said):
    codes, _, errors = ends(start(0, at=at), start(1, at=at))
    assert codes == [code, code] and len(set(errors)) == 1 and said in errors[0], errors


@pytest.mark.parametrize(
    ("at", "said"),
    [
        ("0.0.0.0:7000", "not at all it has"),
        ("[::]:7000", "not at all it has"),
        ("[::ffff:0.0.0.0]:7000", "not at all it has"),
        ("[0:0::0]:7000", "not at all it has"),
        ("192.0.2.1:7000", "its host has no such address"),
    ],
)
def test_where_rank_0_does_not_listen(start, at, said):
    codes, _, errors = ends(start(0, at=at))
    assert codes == [2] and said in errors[0], errors


@pytest.mark.parametrize(
    ("data", "mode", "said"),
    [(b"short\n", 0o600, "a key has 16 to 4096 bytes"), (b"x" * 4097, 0o600, "a key has 16 to 4096 bytes"),
     (b"x" * 32, 0o640, "others can read the file"), (None, 0, "No such file")],
)  # fmt: skip
def test_keys_that_are_none(start, tmp_path, data, mode, said):
    path = tmp_path / "other"
    if data:
        path.write_bytes(data)
        path.chmod(mode)
    codes, _, errors = ends(start(0, key=path))
    assert codes == [4] and said in errors[0], errors


def test_another_key_is_a_stranger(start, tmp_path, port):
    """It is told, the others are not stopped by it."""
    other = tmp_path / "other"
    other.write_bytes(os.urandom(32))
    other.chmod(0o600)
    first = start(0)
    codes, _, errors = ends(start(1, key=other))
    assert codes == [8] and "rank 0 has another key" in errors[0]
    assert ends(first, start(1))[0] == [0, 0]


MAGIC, LAYOUT = 0x4B4E5241, 3
OPTIONS = [b"--steps-ahead 8", b"no --share-gpu", b"no --verify", b"no --memory-budget"]


def greeting_of(ranks, rank, build, options=OPTIONS):
    return struct.pack("<IIii32s48s48s48s48s", MAGIC, LAYOUT, ranks, rank, build, *options)


def introduced(port, secret, build, ranks, rank):
    """Another program that knows the protocol: what rank 0 says when it has shown that key."""
    own = os.urandom(32)
    with socket.create_connection(("127.0.0.1", port)) as s:
        s.settimeout(5)
        s.sendall(struct.pack("<II", MAGIC, LAYOUT) + own)
        proof = s.recv(72, socket.MSG_WAITALL)
        other, mac = proof[8:40], proof[40:]
        greeting = greeting_of(ranks, rank, build)
        made = hmac.new(secret, b"rank 0" + own + other, hashlib.sha256).digest()
        s.sendall(greeting + hmac.new(secret, b"rank" + own + other + greeting, hashlib.sha256).digest())
        answer = s.recv(520, socket.MSG_WAITALL)
        return made == mac, answer[8:].split(b"\0")[0].decode() if answer else None


@pytest.mark.parametrize(
    "more", [b"", b" and this is longer than a block of the hash, which is hashed itself before it is taken"]
)
def test_a_key_is_shown_and_not_sent(atlas, start, key, port, more):
    """By HMAC as Python has it; one that only says that it has the key hears nothing and stops nobody."""
    key.write_bytes(b"a key of some length" + more)
    build = build_of(atlas)
    first = start(0)
    wait_for(port)
    assert introduced(port, b"another key of 20 b.", build, 2, 1) == (False, None)
    knows, said = introduced(port, key.read_bytes(), build, 4, 1)
    assert knows and said == "rank 1 was started for 4 ranks, rank 0 for 2"
    assert ends(first)[0] == [8]


def test_what_a_key_was_shown_for(atlas, start, key, port):
    """Numbers are fresh: an entry that was heard once is worth nothing to who says it again."""
    build = build_of(atlas)
    first = start(0)
    wait_for(port)
    secret, own, entry = key.read_bytes(), os.urandom(32), None
    for _ in range(2):
        with socket.create_connection(("127.0.0.1", port)) as s:
            s.settimeout(5)
            s.sendall(struct.pack("<II", MAGIC, LAYOUT) + own)
            proof = s.recv(72, socket.MSG_WAITALL)
            if entry:
                s.sendall(entry)
                assert s.recv(520) == b""
            greeting = greeting_of(2, 1, build)
            entry = greeting + hmac.new(secret, b"rank" + own + proof[8:40] + greeting, hashlib.sha256).digest()
    assert ends(first, start(1))[0] == [0, 0]


def test_the_end_of_a_key_file_does_not_count(start, tmp_path):
    paths = [tmp_path / name for name in ("a", "b")]
    for path, end in zip(paths, (b"", b"\n"), strict=True):
        path.write_bytes(b"a key of some length" + end)
        path.chmod(0o600)
    codes, _, errors = ends(start(0, key=paths[0]), start(1, key=paths[1]))
    assert codes == [0, 0], errors


def test_strangers(start, port):
    """Forty that are silent, and some that say what is nothing: the ranks meet all the same, within seconds."""
    first = start(0)
    wait_for(port)
    with contextlib.ExitStack() as stack:
        for i in range(44):
            s = stack.enter_context(socket.create_connection(("127.0.0.1", port)))
            if i >= 40:
                s.sendall([b"x" * 5, b"x" * 4000, b"GET / HTTP/1.1\r\n\r\n" * 9, bytes(200)][i - 40])
        began = time.monotonic()
        codes, _, errors = ends(first, start(1))
    assert codes == [0, 0] and time.monotonic() - began < 5, errors


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
@pytest.mark.parametrize("lost", [0, 1, 2])
def test_a_lost_rank_ends_all(plan_on, start, number, lost):  # noqa: F811
    """Within 5 seconds, with its number; also those that only hear of it from rank 0."""
    plan = plan_on("qwen3", 4, ALL, kind="-all")
    runs = [start(r, "-n", 200, plan=plan, ranks=4, more={"FAKE_CUDA_SLOW": "200000"}) for r in range(4)]
    time.sleep(1.5)
    assert all(run.poll() is None for run in runs), [run.communicate() for run in runs]
    runs[lost].send_signal(number)
    began = time.monotonic()
    left = [run for rank, run in enumerate(runs) if rank != lost]
    codes, _, errors = ends(*left)
    assert time.monotonic() - began < 5 and codes == [10] * 3, errors
    why = "its process or its connection ended" if number == signal.SIGKILL else "nothing was heard of it for 3 seconds"
    assert all(f"rank {lost}" in e and why in e for e in errors), errors


def test_a_rank_that_fails_while_it_opens(start):
    """Its own text and code, on all."""
    codes, _, errors = ends(start(0), start(1, "--device-index", 9))
    assert codes == [5, 5] and all("GPU 9: the driver shows 4" in e for e in errors), errors


def test_bytes_that_are_no_message(start, plan, port):
    """Between ranks that have met stands one that changes what goes by: the rank is lost, and nothing else happens."""
    with socket.create_server(("127.0.0.1", 0)) as s:

        def carry(a, b, spoil):
            n = 0
            with contextlib.suppress(OSError):
                while data := a.recv(4096):
                    n += len(data)
                    b.sendall(b"\xff" * len(data) if spoil and n > 3600 else data)

        def serve():
            with contextlib.suppress(OSError):
                a, _ = s.accept()
                wait_for(port)
                b = socket.create_connection(("127.0.0.1", port))
                threading.Thread(target=carry, args=(b, a, False), daemon=True).start()
                carry(a, b, True)

        threading.Thread(target=serve, daemon=True).start()
        first = start(0, "-n", 200, more={"FAKE_CUDA_SLOW": "20000"})
        other = start(1, "-n", 200, at=f"127.0.0.1:{s.getsockname()[1]}", more={"FAKE_CUDA_SLOW": "20000"})
        codes, _, errors = ends(first, other)
    assert codes == [10, 10] and "rank 1 was lost: what it sent is not a message of a rank" in errors[0], errors
