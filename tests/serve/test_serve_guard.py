"""Who may use the server: keys, hosts, origins, sockets; and the options that decide it."""

from __future__ import annotations

import http.client
import json
import os
import socket
import stat
import subprocess

import pytest

KEYS = "# keys\nsecret-one\n\nsecret-two\r\n"


@pytest.fixture(scope="module")
def keyed(atlas, trained, tmp_path_factory):
    from server import Server

    file = tmp_path_factory.mktemp("keys") / "keys"
    file.write_text(KEYS)
    server = Server(
        atlas, trained, "--api-key-file", file, "--allow-host", "llm.example", "--allow-origin", "https://chat.example"
    )
    yield server
    assert server.stop() == 0


@pytest.mark.parametrize(
    "headers,status",
    [
        ({"Authorization": "Bearer secret-one"}, 200),
        ({"Authorization": "bearer   secret-two"}, 200),
        ({"x-api-key": "secret-two"}, 200),
        ({"Authorization": "Bearer secret-one", "x-api-key": "secret-two"}, 200),
        ({}, 401),
        ({"Authorization": "Bearer secret-on"}, 401),
        ({"Authorization": "Bearer secret-one "}, 200),
        ({"Authorization": "Bearer secret-onee"}, 401),
        ({"Authorization": "Bearer "}, 401),
        ({"x-api-key": ""}, 401),
        ({"Authorization": "Basic secret-one"}, 401),
        ({"Authorization": "secret-one"}, 401),
        ({"Authorization": "Bearer # keys"}, 401),
        ({"Authorization": "Bearer secret-one", "x-api-key": "wrong"}, 401),
    ],
    ids=str,
)
def test_keys(keyed, headers, status):
    seen, answer, body = keyed.ask("GET", "/v1/models", headers=headers)
    assert seen == status
    if status == 401:
        assert json.loads(body)["error"]["type"] == "authentication_error" and answer["WWW-Authenticate"] == "Bearer"


def test_what_needs_no_key(keyed):
    for path, status in (
        ("/health", 200),
        ("/ready", 200),
        ("/", 200),
        ("/metrics", 401),
        ("/v1/plan", 401),
        ("/x", 401),
    ):
        assert keyed.ask("GET", path)[0] == status
    assert keyed.ask("POST", "/v1/completions", b"{}")[0] == 401


@pytest.mark.parametrize(
    "host,status",
    [
        ("localhost", 200),
        ("127.0.0.1:8080", 200),
        ("[::1]:1", 200),
        ("LOCALHOST:80", 200),
        ("llm.example", 200),
        ("llm.example:443", 200),
        ("evil.example", 403),
        ("localhost.evil.example", 403),
        ("127.0.0.1.evil.example", 403),
        ("localhost:x", 403),
        ("", 403),
        ("[::1", 403),
        ("evil.example:127.0.0.1", 403),
        ("localhost@evil.example", 403),
    ],
)
def test_hosts(keyed, host, status):
    assert keyed.ask("GET", "/health", headers={"Host": host})[0] == status


@pytest.mark.parametrize(
    "origin,status",
    [
        ("https://chat.example", 200),
        ("http://localhost", 200),
        ("https://evil.example", 403),
        ("null", 403),
        ("https://chat.example.evil.example", 403),
        ("http://127.0.0.1", 403),
    ],
)
def test_origins(keyed, origin, status):
    seen, headers, _ = keyed.ask("GET", "/health", headers={"Origin": origin, "Host": "localhost"})
    assert seen == status and headers["Access-Control-Allow-Origin"] == "https://chat.example"


def test_preflight(keyed):
    asked = {"Origin": "https://chat.example", "Access-Control-Request-Method": "POST"}
    status, headers, body = keyed.ask("OPTIONS", "/v1/completions", headers=asked)
    assert (status, body, headers["Access-Control-Allow-Origin"]) == (204, b"", "https://chat.example")
    assert "authorization" in headers["Access-Control-Allow-Headers"]
    assert keyed.ask("OPTIONS", "/v1/completions", headers=asked | {"Origin": "https://evil.example"})[0] == 403


def test_no_origin_is_allowed_by_default(served):
    status, headers, _ = served.ask("GET", "/health", headers={"Origin": "https://chat.example"})
    assert status == 403 and headers["Access-Control-Allow-Origin"] is None


def test_unix_socket(atlas, trained, tmp_path):
    path = tmp_path / "atlas.sock"
    process = subprocess.Popen(
        [str(atlas), "serve", str(trained), "--device", "cpu", "--socket", str(path)], stderr=subprocess.PIPE, text=True
    )
    try:
        assert any('"ready"' in line for line in iter(process.stderr.readline, ""))
        assert stat.S_ISSOCK(path.stat().st_mode)
        connection = http.client.HTTPConnection("any.name")
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.connect(str(path))
        connection.request("POST", "/v1/completions", json.dumps({"prompt": "a", "max_tokens": 2}))
        assert json.loads(connection.getresponse().read())["usage"]["completion_tokens"] == 2
        second = atlas("serve", trained, "--device", "cpu", "--socket", path, "--log", "text")
        assert second.returncode == 5 and "Address already in use" in second.stderr
        process.kill()
        process.wait()
        assert path.exists()  # a stale one does not hinder the next server
        process.stderr.close()
        process = subprocess.Popen(
            [str(atlas), "serve", str(trained), "--device", "cpu", "--socket", str(path)],
            stderr=subprocess.PIPE,
            text=True,
        )
        assert any('"ready"' in line for line in iter(process.stderr.readline, ""))
        process.terminate()
        assert process.wait(20) == 0 and not path.exists()
    finally:
        process.kill()
        process.wait()
        process.stderr.close()


@pytest.mark.parametrize(
    "text,message",
    [
        ("", "there is no key in it"),
        ("# only\n\n", "there is no key in it"),
        ("a b\n", "1: a key has no blanks"),
        ("x" * 513 + "\n", "1: a key has at most 512 bytes"),
        ("k\n" * 257, "257: expected at most 256 keys"),
    ],
    ids=lambda v: v[:8],
)
def test_key_files(atlas, trained, tmp_path, text, message):
    file = tmp_path / "keys"
    file.write_text(text)
    run = atlas("serve", trained, "--device", "cpu", "--port", 0, "--api-key-file", file, "--log", "text")
    assert run.returncode == 4 and message in run.stderr


@pytest.mark.parametrize(
    "words,code,message",
    [
        (
            ["--host", "0.0.0.0"],
            2,
            "--host 0.0.0.0 can be reached from elsewhere: --api-key-file FILE says who may use it",
        ),
        (["--host", "::"], 2, "--host :: can be reached from elsewhere: --api-key-file FILE says who may use it"),
        (
            ["--host", "192.0.2.7"],
            2,
            "--host 192.0.2.7 can be reached from elsewhere: --api-key-file FILE says who may use it",
        ),
        (["--socket", "x", "--port", "1"], 2, "--socket takes the place of --host and --port"),
        (["--port", "65536"], 2, "--port 65536: expected a whole number from 0 to 65535"),
        (["--log", "xml"], 2, "--log xml: expected json|text|off"),
        (["--name", *("x --name " * 16).split(), "y"], 2, "--name y: expected at most 16 of them"),
        (["--max-body", "much"], 2, "--max-body much: expected bytes, or a number of KiB, MiB or GiB"),
        (["--receipt", "README.md"], 6, "README.md: not a receipt whose sha256 matches"),
        (["--receipt", "none"], 4, "none: No such file or directory"),
    ],
    ids=str,
)
def test_options(atlas, trained, words, code, message):
    run = atlas("serve", trained, "--device", "cpu", "-q", *words)
    assert (run.returncode, run.stderr) == (code, f"atlas serve: error: {message}\n")


def test_a_port_that_is_taken(atlas, trained, served):
    run = atlas("serve", trained, "--device", "cpu", "-q", "--port", served.port, "--log", "text")
    assert run.returncode == 5
    assert run.stderr == f"atlas serve: error: 127.0.0.1, port {served.port}: Address already in use\n"


def test_a_key_opens_other_addresses(atlas, trained, start, tmp_path):
    file = tmp_path / "keys"
    file.write_text("k\n")
    server = start(trained, "--host", "0.0.0.0", "--api-key-file", file)
    assert server.ask("GET", "/v1/models", headers={"Authorization": "Bearer k", "Host": "any.example"})[0] == 200
    assert server.ask("GET", "/v1/models", headers={"Host": "any.example"})[0] == 401


def test_plan_shows_signers_and_receipt(atlas, trained, start, tmp_path):
    key, plan, receipt = tmp_path / "key.pem", tmp_path / "signed.bin", tmp_path / "receipt.json"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    assert atlas("sign", trained, "--key", key, "-o", plan).returncode == 0
    import hashlib

    text = '{\n "root": "x"'
    receipt.write_text(f'{text},\n "sha256": "{hashlib.sha256(text.encode()).hexdigest()}"\n}}\n')
    (tmp_path / "signed.bin.cert").write_text("{}")
    server = start(plan, "--receipt", receipt)
    got = server.get("/v1/plan")[1]
    info = json.loads(atlas("info", plan, "--json").stdout)
    assert [s["key"] for s in got["signers"]] and len(got["signers"]) == len(info["signatures"]) == 1
    assert info["signatures"][0]["id"] == got["signers"][0]["id"] if isinstance(info["signatures"][0], dict) else True
    assert got["receipt_sha256"] == hashlib.sha256(text.encode()).hexdigest()
    assert got["certificate"]["holds"] is False and os.fspath(plan) in got["certificate"]["reason"]
