"""A running `atlas serve` for the tests of this folder, and a socket that sends what no client would."""

from __future__ import annotations

import http.client
import json
import re
import signal
import socket
import subprocess
import threading
import time


class Server:
    """`atlas serve PLAN --port 0 ...` from its start until `stop`; log lines are kept in `lines` as they come.

    Calling code may use `port`, `process`, `get`, `post`, `raw`; `wait_ready` returns when /ready is 200."""

    def __init__(self, atlas, plan, *options, env=None, wait=True, device="cpu"):
        self.lines: list[str] = []
        place = [] if "--socket" in options else ["--port", "0"]
        self.process = subprocess.Popen(
            [str(atlas), "serve", str(plan), "--device", device, *place, *map(str, options)],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=env,
        )
        self.port = 0
        self.heard = threading.Condition()
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()
        if wait:
            self.wait_line("listening")
            self.port = int(re.search(r"http://[^\"]*:(\d+)", "".join(self.lines))[1])
            self.wait_line("ready")

    def _read(self):
        for line in self.process.stderr:
            with self.heard:
                self.lines.append(line)
                self.heard.notify_all()
        with self.heard:
            self.heard.notify_all()

    def wait_line(self, word, timeout=60, start=0):
        """The first log line from number `start` on with the word in it."""
        until = time.monotonic() + timeout
        with self.heard:
            while True:
                found = [line for line in self.lines[start:] if word in line]
                if found:
                    return found[0]
                assert time.monotonic() < until and (self.process.poll() is None or self.reader.is_alive()), (
                    f"no {word} in " + "".join(self.lines)
                )
                self.heard.wait(0.2)

    def requests(self):
        """Parsed log lines of requests so far."""
        with self.heard:
            return [json.loads(line) for line in self.lines if '"event":"request"' in line]

    def ask(self, method, path, body=None, headers=(), timeout=60):
        """(status, headers, bytes) over a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            connection.request(method, path, body, dict(headers))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            connection.close()

    def get(self, path, **kwargs):
        status, _, body = self.ask("GET", path, **kwargs)
        return status, json.loads(body)

    def post(self, path, value, **kwargs):
        """(status, parsed answer); `value` is JSON or bytes as they are."""
        data = value if isinstance(value, bytes) else json.dumps(value).encode()
        status, _, body = self.ask("POST", path, data, {"Content-Type": "application/json"}, **kwargs)
        return status, json.loads(body)

    def stream(self, path, value):
        """The bytes of a stream after HTTP's own framing."""
        status, headers, body = self.ask("POST", path, json.dumps(value | {"stream": True}).encode())
        assert (status, headers["Content-Type"]) == (200, "text/event-stream; charset=utf-8"), body
        return body

    def metric(self, name):
        """Value of a metric without a histogram: name{labels}."""
        _, _, body = self.ask("GET", "/metrics")
        return float(re.search(rf"^atlas_{re.escape(name)} (\S+)$", body.decode(), re.M)[1])

    def by_step(self, name):
        """{(phase, bucket): value} of a metric of steps; the bucket of a step that verifies is "4x3"."""
        _, _, body = self.ask("GET", "/metrics")
        rows = re.findall(rf'^atlas_{name}\{{phase="(\w+)",bucket="([\dx]+)"\}} (\S+)$', body.decode(), re.M)
        values = {(phase, int(of) if of.isdigit() else of): float(value) for phase, of, value in rows}
        assert len(values) == len(rows), rows  # a series is there once
        return values

    def steps(self):
        """{(phase, bucket): how many} of the steps so far."""
        return {key: int(n) for key, n in self.by_step("step_seconds_count").items() if n}

    def settles(self, name, value, timeout=20):
        """Waits until the metric has the value."""
        until = time.monotonic() + timeout
        while (seen := self.metric(name)) != value:
            assert time.monotonic() < until, f"{name} is {seen}, not {value}"
            time.sleep(0.01)

    def raw(self, data=b"", timeout=20):
        """A socket that has sent these bytes."""
        s = socket.create_connection(("127.0.0.1", self.port), timeout=timeout)
        s.sendall(data)
        return s

    def exchange(self, data, timeout=20):
        """All that comes back for these bytes until the server closes, or 0.3 s after the last byte."""
        with self.raw(data, timeout) as s:
            return read_all(s)

    def stop(self, how=signal.SIGTERM, timeout=60):
        """The exit code."""
        if self.process.poll() is None:
            self.process.send_signal(how)
        code = self.process.wait(timeout)
        self.reader.join(10)
        return code


def read_all(s, quiet=0.3):
    """Bytes of a socket until its end, or until nothing came for `quiet` seconds after the first."""
    got = b""
    while True:
        try:
            piece = s.recv(1 << 16)
        except (TimeoutError, ConnectionResetError):
            return got
        if not piece:
            return got
        got += piece
        s.settimeout(quiet)


def read_answer(s):
    """Bytes of one whole answer, or of what comes before the end of the stream."""
    got = b""
    while piece := s.recv(1 << 16):
        got += piece
        head, _, body = got.partition(b"\r\n\r\n")
        length = re.search(rb"Content-Length: (\d+)", head)
        if (length and len(body) == int(length[1])) or (b"chunked" in head and body.endswith(b"0\r\n\r\n")):
            break
    return got


def text_of(atlas, plan, prompt, n, *options):
    """What `atlas run` prints for a prompt."""
    run = atlas("run", plan, "-p", prompt, "-n", n, "--device", "cpu", "-q", *options)
    assert run.returncode == 0, run.stderr
    return run.stdout
