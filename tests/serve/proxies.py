"""The proxies of the samples in runtime/serve/install, run as they are but for addresses, ports and certificates."""

from __future__ import annotations

import http.client
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import time

import pytest

REPO = pathlib.Path(__file__).resolve().parents[2]
INSTALL = REPO / "runtime" / "serve" / "install"
NGINX = """daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
access_log off;
client_body_temp_path {folder}/body; proxy_temp_path {folder}/proxy; fastcgi_temp_path {folder}/fastcgi;
uwsgi_temp_path {folder}/uwsgi; scgi_temp_path {folder}/scgi;
include {folder}/sample.conf;
}}
"""


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def certificate(folder):
    """(certificate, key, both in one file) for llm.example, made by openssl."""
    pem, key, both = folder / "cert.pem", folder / "key.pem", folder / "both.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=llm.example"]
        + ["-addext", "subjectAltName=DNS:llm.example", "-keyout", key, "-out", pem],
        check=True,
        capture_output=True,
    )
    both.write_bytes(pem.read_bytes() + key.read_bytes())
    return pem, key, both


def replaced(text, old, new):
    assert len(re.findall(old, text, re.M)) == 1, (old, text)
    return re.sub(old, str(new), text, flags=re.M)


class Proxy:
    """nginx or haproxy with a sample, in front of the ports of servers, until `stop`."""

    def __init__(self, program, sample, ports, folder):
        path = shutil.which(
            program, path="/usr/sbin:/usr/local/sbin:" + os.fspath(REPO / "build/deps/proxies/usr/sbin")
        )
        if not path:
            pytest.skip(f"{program} is not installed (make deps installs it)")
        folder.mkdir()
        pem, key, both = certificate(folder)
        self.port, self.log = free_port(), folder / "log"
        self.context = ssl.create_default_context(cafile=pem)
        text = (INSTALL / sample).read_text(encoding="utf-8")
        places = re.findall(r"^\tserver (?:\w+ )?(\d\S+:\d+)", text, re.M)
        assert len(places) == len(ports)
        for place, port in zip(places, ports):
            text = replaced(text, rf"(?<=\s){re.escape(place)}", f"127.0.0.1:{port}")
        if program == "nginx":
            text = replaced(text, r"listen 443 ", f"listen 127.0.0.1:{self.port} ")
            text = replaced(text, r"ssl_certificate /.*;", f"ssl_certificate {pem};")
            text = replaced(text, r"ssl_certificate_key /.*;", f"ssl_certificate_key {key};")
            (folder / "sample.conf").write_text(text, encoding="utf-8")
            config = folder / "nginx.conf"
            config.write_text(NGINX.format(folder=folder), encoding="utf-8")
            words, check = [path, "-c", config], [path, "-t", "-c", config]
        else:
            text = replaced(text, r"bind :443 ssl crt \S+", f"bind 127.0.0.1:{self.port} ssl crt {both}")
            config = folder / "haproxy.cfg"
            config.write_text(text, encoding="utf-8")
            words, check = [path, "-db", "-f", config], [path, "-c", "-f", config]
        run = subprocess.run(check, capture_output=True, text=True, check=False)
        assert run.returncode == 0, run.stderr
        assert "warn" not in run.stderr.lower(), run.stderr
        with open(self.log, "wb") as log:
            self.process = subprocess.Popen(words, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self.wait()

    def wait(self):
        until = time.monotonic() + 20
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                assert time.monotonic() < until and self.process.poll() is None, self.log.read_text()
                time.sleep(0.02)

    def connection(self, timeout=60):
        """A TLS connection to it as llm.example."""
        c = http.client.HTTPSConnection("llm.example", self.port, timeout=timeout, context=self.context)
        c._create_connection = lambda _, *args, **kwargs: socket.create_connection(
            ("127.0.0.1", self.port), *args, **kwargs
        )
        return c

    def ask(self, method, path, body=None, headers=(), timeout=60):
        """(status, headers, bytes) over a connection of its own."""
        c = self.connection(timeout)
        try:
            c.request(method, path, body, {"Host": "llm.example"} | dict(headers))
            answer = c.getresponse()
            return answer.status, answer.headers, answer.read()
        finally:
            c.close()

    def stop(self):
        self.process.terminate()
        try:
            self.process.wait(5)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
