#!/usr/bin/env python3
"""Milliseconds to the first token of one stream, by a client that does nothing else, and by the server's own account.

tests/gpu/first_token.py --url http://127.0.0.1:8080 --prompt 128 --vocab 100000

Forty streaming completions one after the other over blocking sockets: with a connection each, over one that is kept, and
with pauses of 50 ms, from the first byte sent (a new connection included) to the first bytes of a token. Where /metrics
has them: the mean from the whole request to its first token, and of that the mean of a prompt's step; the rest is what the
server adds. Prompts are random ids.
"""

import argparse
import json
import random
import re
import socket
import sys
import time
import urllib.parse
import urllib.request


def first_token(url, args, number, kept=None):
    """Milliseconds of request `number`, over a connection of its own or over `kept`."""
    draw = random.Random(number)
    ids = [draw.randrange(1000, args.vocab) for _ in range(args.prompt)]
    fields = {"prompt": ids, "max_tokens": 32, "temperature": 0, "seed": 1, "stream": True, "ignore_eos": True}
    body = json.dumps(fields).encode()
    head = (
        f"POST /v1/completions HTTP/1.1\r\nHost: {url.netloc}\r\nConnection: {'keep-alive' if kept else 'close'}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    ).encode()
    began, came, got = time.perf_counter(), None, b""
    connection = kept or connect(url)
    connection.sendall(head + body)
    while b"[DONE]" not in got:
        piece = connection.recv(65536)
        if not piece:
            sys.exit(f"first_token.py: the stream ended early: {got[-300:]!r}")
        got += piece
        if came is None and b'"text"' in got:
            came = time.perf_counter()
    if not kept:
        connection.close()
    return 1e3 * (came - began)


def connect(url):
    connection = socket.create_connection((url.hostname, url.port or 80))
    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return connection


def account(args):
    """(first tokens, their seconds, steps of prompts, their seconds) of /metrics so far; None: it has none of them."""
    with urllib.request.urlopen(args.url + "/metrics") as answer:
        value = {m[1]: float(m[2]) for m in re.finditer(r"^atlas_(\S+) (\S+)$", answer.read().decode(), re.M)}
    steps = [
        sum(v for k, v in value.items() if k.startswith(f'step_seconds_{x}{{phase="prefill"')) for x in ("count", "sum")
    ]
    return [value.get(f"time_to_first_token_seconds_{x}", 0) for x in ("count", "sum")] + steps


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url", default="http://127.0.0.1:8080")
    parser.add_argument("--prompt", type=int, default=128, help="tokens")
    parser.add_argument("--vocab", type=int, default=32000, help="ids are below")
    args = parser.parse_args()
    url = urllib.parse.urlsplit(args.url)
    before = account(args)
    for name, is_kept, pause in (("a connection each", 0, 0), ("one connection", 1, 0), ("with pauses", 1, 0.05)):
        kept, took = connect(url) if is_kept else None, []
        for number in range(40):
            time.sleep(pause)
            took.append(first_token(url, args, number, kept))
        took.sort()
        print(f"first token, {name}: p50 {took[20]:.2f} ms, p90 {took[36]:.2f}, least {took[0]:.2f}")
    n, seconds, steps, of_steps = (after - was for after, was in zip(account(args), before))
    if n and steps:
        server, step = 1e3 * seconds / n, 1e3 * of_steps / steps
        print(
            f"by the server: mean {server:.2f} ms, a prompt's step {step:.2f} ms, more than that {server - step:.2f} ms"
        )


if __name__ == "__main__":
    main()
