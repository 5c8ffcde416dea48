"""The page of `atlas serve` in a real browser, against a real server: what it shows, a chat, keys, hostile texts."""

from __future__ import annotations

import http.client
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import threading
import xml.etree.ElementTree as tree

import pytest

from checks import CONTRAST, OVERFLOW, page_is_marked_up

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "serve"))
from server import Server  # noqa: E402

# The last message, word for word, is where the answer of the chat begins: what a stranger's model might say.
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>&lt;b&gt;\u202eevil"
TEMPLATE = "{% for m in messages %}{{ m.content }}{{ ' ' }}{% endfor %}"


@pytest.fixture(scope="module")
def plans(repo, small_plan_of, plan_of, tmp_path_factory):
    """{name: plan}: with a chat template, without one, without a tokenizer, with compiled steps."""
    folder = tmp_path_factory.mktemp("chat") / "llama-trained"
    shutil.copytree(repo / "tests" / "fixtures" / "llama-trained", folder)
    config = json.loads((folder / "tokenizer_config.json").read_text())
    (folder / "tokenizer_config.json").write_text(json.dumps(config | {"chat_template": TEMPLATE}))
    bare = tmp_path_factory.mktemp("ids") / "llama-trained"
    no_text = shutil.ignore_patterns("tokenizer*", "special*")
    shutil.copytree(repo / "tests" / "fixtures" / "llama-trained", bare, ignore=no_text)
    ids = plan_of(bare, "--target", "none")
    return {"chat": small_plan_of(folder), "text": small_plan_of("llama-trained"), "ids": ids}


@pytest.fixture
def served(atlas):
    servers = []

    def start(plan, *options, **kwargs):
        servers.append(Server(atlas, plan, *options, **kwargs))
        return servers[-1]

    yield start
    for server in servers:
        server.process.kill()
        server.process.wait()


@pytest.fixture
def opened(browser, served):
    """opened(plan, *options, width=, dark=): (server, page), the page shown and asking; closed after the test."""
    pages = []

    def open_page(plan, *options, server=None, is_ready=True, env=None, device="cpu", **kwargs):
        server = server or served(plan, *options, env=env, device=device)
        page = browser.open(f"http://127.0.0.1:{server.port}/", **kwargs)
        pages.append(page)
        if is_ready:
            page.until("document.getElementById('state').textContent === 'ready'")
            page.until("document.querySelector('#plan code') !== null")
        return server, page

    yield open_page
    for page in pages:
        page.close()


def complaints(page, server, refused=False):
    """What went wrong in the page, and what it asked of anything but its own server."""
    asked = [e["request"]["url"] for e in page.events("Network.requestWillBeSent")]
    own = f"http://127.0.0.1:{server.port}/"
    said = [e["entry"]["text"] for e in page.events("Log.entryAdded")]
    if refused:
        said = [text for text in said if "status of 4" not in text]
    return (
        [url for url in asked if not url.startswith(own)]
        + said
        + [str(e["exceptionDetails"]) for e in page.events("Runtime.exceptionThrown")]
        + [str(e["args"]) for e in page.events("Runtime.consoleAPICalled")]
    )


def text_of(page, name):
    return page.evaluate(f"document.getElementById('{name}').innerText")


def send(page, text):
    """By keyboard, as people do; returns when the answer is whole."""
    n = page.evaluate("document.querySelectorAll('#talk li').length")
    page.evaluate("document.getElementById('text').focus()")
    page.call("Input.insertText", text=text)
    page.key("Enter", 13, "\r")
    page.until(
        f"document.querySelectorAll('#talk li').length === {n + 2} && document.querySelector('#talk li:last-child small').textContent"
    )
    page.until("document.getElementById('stop').disabled")


def last(page, what="text"):
    tag = {"text": ".text", "note": "small"}[what]
    return page.evaluate(f"document.querySelector('#talk li:last-child {tag}').textContent")


ASK = {"temperature": 0, "max_tokens": 20}


def options(page, most=20, heat=0):
    page.evaluate(
        f"document.querySelector('details').open = true, document.getElementById('most').value = '{most}', "
        f"document.getElementById('heat').value = '{heat}'"
    )


@pytest.mark.parametrize("width", [1280, 420, 360])
@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_cut_and_all_can_be_read(opened, plans, width, dark):
    server, page = opened(plans["chat"], "--name", "a-name-" * 9, width=width, dark=dark)
    options(page)
    send(page, "In the beginning " + "x" * 120)
    page.until("document.querySelector('#steps tbody tr') !== null")
    page.evaluate("document.getElementById('key-form').hidden = false")
    seen = page.evaluate(CONTRAST)
    assert seen["n"] > 50 and seen["bad"] == [], seen
    size = page.evaluate(OVERFLOW)
    assert size["page"] <= size["window"] == width and size["bad"] == [], size
    if width < 700:
        inner = "[...document.querySelectorAll('.scroll, #talk')].filter(e => e.scrollWidth > e.clientWidth + 1).length"
        assert page.evaluate(inner) == 0
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, ground[4:-1].split(","))) < 120) == dark, ground
    assert complaints(page, server) == []


def test_markup(opened, plans):
    server, page = opened(plans["chat"])
    page_is_marked_up(page)
    body = server.ask("GET", "/")[2].decode()
    tree.fromstring(body.replace("<!DOCTYPE html>", ""))  # well formed
    assert 'aria-live="off"' not in body and page.evaluate("document.getElementById('state').role || 'status'")
    assert page.evaluate("document.getElementById('talk').getAttribute('role')") == "log"


def test_the_answer_of_the_server(served, plans):
    """HEAD has the head of GET; no other site may put the page into a frame."""
    server = served(plans["text"], "--api-key-file", keys_file(plans["text"].parent))
    status, headers, body = server.ask("GET", "/")
    assert status == 200 and headers["Content-Security-Policy"] == "frame-ancestors 'none'"
    assert headers["X-Content-Type-Options"] == "nosniff" and headers["Cache-Control"] == "no-store"
    root = json.loads(server.ask("GET", "/v1/plan", headers={"x-api-key": "sesame"})[2])["root"]
    assert root[:12] not in body.decode()  # what a key is needed for is not in it
    head = server.ask("HEAD", "/")
    assert (head[0], head[1]["Content-Length"], head[2]) == (200, str(len(body)), b"")


def test_what_the_plan_is(atlas, opened, plans):
    server, page = opened(plans["chat"], "--name", "tiny")
    plan = server.get("/v1/plan")[1]
    shown = text_of(page, "plan")
    for text in (plan["root"], f"{plan['slots']} of {plan['max_context']} tokens", "reference device", plan["family"]):
        assert text in shown
    assert "CERTIFICATE" in shown.upper() and text_of(page, "plan-name") == "tiny"
    assert page.evaluate("document.getElementById('model-field').hidden")


def test_who_signed_the_plan_and_what_its_certificate_says(atlas, opened, plans, tmp_path):
    """The signer's key as openssl writes it; a certificate that does not hold with its reason, as text."""
    key, plan = tmp_path / "key.pem", tmp_path / "signed.bin"
    subprocess.run(["openssl", "genpkey", "-algorithm", "ed25519", "-out", key], check=True)
    der = subprocess.run(["openssl", "pkey", "-in", key, "-pubout", "-outform", "DER"], capture_output=True, check=True)
    assert atlas("sign", plans["text"], "--key", key, "-o", plan).returncode == 0
    (tmp_path / "signed.bin.cert").write_text("<b>{}")
    server, page = opened(plan)
    reason = server.get("/v1/plan")[1]["certificate"]["reason"]
    shown = page.evaluate("[...document.querySelectorAll('#plan dd')].map(e => e.textContent)")
    assert der.stdout[-32:].hex() in shown and reason in shown and reason


def test_a_chat_of_several_turns(opened, plans):
    """Each answer is the API's own for the messages so far; reloading forgets all."""
    server, page = opened(plans["chat"], "--name", "tiny")
    options(page)
    page.evaluate("document.getElementById('system').value = 'Be brief.'")
    talk = [{"role": "system", "content": "Be brief."}]
    for text in ("In the beginning", "And the earth"):
        talk.append({"role": "user", "content": text})
        send(page, text)
        _, answer = server.post("/v1/chat/completions", {"messages": talk} | ASK)
        said = answer["choices"][0]["message"]["content"]
        assert last(page) == said and "20 tokens" in last(page, "note"), last(page, "note")
        talk.append({"role": "assistant", "content": said})
    assert page.evaluate("document.activeElement.id") == "text"
    assert page.evaluate("document.getElementById('talk').innerText").count("You") == 2
    page.evaluate("document.getElementById('clear').click()")
    assert page.evaluate("document.querySelectorAll('#talk li').length") == 0
    assert page.evaluate("localStorage.length + sessionStorage.length") == 0
    assert complaints(page, server) == []


def test_shift_and_enter_make_a_line(opened, plans):
    server, page = opened(plans["chat"])
    page.evaluate("document.getElementById('text').focus()")
    page.call("Input.insertText", text="one")
    for kind in ("keyDown", "keyUp"):
        page.call(
            "Input.dispatchKeyEvent",
            type=kind,
            key="Enter",
            code="Enter",
            modifiers=8,
            windowsVirtualKeyCode=13,
            text="\r" if kind == "keyDown" else "",
        )
    assert page.evaluate("document.getElementById('text').value") == "one\n"
    assert page.evaluate("document.querySelectorAll('#talk li').length") == 0 and server


@pytest.mark.parametrize("how", ["button", "Escape"])
def test_stop(opened, plans, how):
    """The text so far stays, the server's slot is free, and the talk goes on."""
    server, page = opened(plans["chat"])
    options(page, 400, 1.5)
    page.evaluate("document.getElementById('text').focus()")
    page.call("Input.insertText", text="In the beginning")
    page.key("Enter", 13, "\r")
    page.until("document.querySelector('#talk li:last-child .text').textContent.length > 5")
    if how == "button":
        assert not page.evaluate("document.getElementById('stop').disabled")
        page.evaluate("document.getElementById('stop').click()")
    else:
        page.key("Escape", 27)
    page.until("document.querySelector('#talk li:last-child small').textContent === 'stopped'")
    server.settles('cancelled_total{why="client"}', 1)
    server.settles("slots_used", 0)
    options(page)
    send(page, "And")
    assert "20 tokens" in last(page, "note")


def test_stop_before_the_first_token(opened, plans):
    """The turn is as if it had not been, since templates refuse two of the user; its text comes back."""
    _, page = opened(plans["chat"])
    page.evaluate(
        "window.own = fetch, window.fetch = (url, o) => o && o.method === 'POST' ? (window.sent = o.body, new Promise((_, no) =>"
        " o.signal.addEventListener('abort', () => no(new DOMException('', 'AbortError'))))) : own(url, o), 0"
    )
    page.evaluate("document.getElementById('text').focus()")
    page.call("Input.insertText", text="first")
    page.key("Enter", 13, "\r")
    page.until("window.sent")
    page.key("Escape", 27)
    page.until("document.querySelector('#talk li:last-child small').textContent === 'stopped'")
    assert page.evaluate("document.getElementById('text').value") == "first"
    page.evaluate("document.getElementById('text').value = '', 0")
    whole = 'data: {"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}\n\ndata: [DONE]\n\n'
    page.evaluate(
        "window.fetch = (url, o) => o && o.method === 'POST' ? (window.sent = o.body, "
        f"Promise.resolve(new Response({json.dumps(whole)}))) : own(url, o), 0"
    )
    roles = [["user"], ["user", "assistant", "user"]]  # an answer without a text is one, too
    for want in roles:
        send(page, "second")
        assert [m["role"] for m in json.loads(page.evaluate("sent"))["messages"]] == want


def test_a_plan_without_a_template(opened, plans):
    server, page = opened(plans["text"])
    assert "no chat template" in text_of(page, "talk-why") and text_of(page, "talk-title") == "Completion"
    assert page.evaluate("document.getElementById('system-field').hidden")
    options(page)
    send(page, "In the beginning")
    _, answer = server.post("/v1/completions", {"prompt": "In the beginning"} | ASK)
    assert last(page) == answer["choices"][0]["text"]


def test_a_plan_without_a_tokenizer(opened, plans):
    _, page = opened(plans["ids"])
    assert "no tokenizer" in text_of(page, "talk-why")
    assert page.evaluate("document.getElementById('text').disabled && document.getElementById('send').disabled")


def test_hostile_names_and_texts_are_text(opened, plans):
    """Names of the model, errors and the conversation itself."""
    server, page = opened(plans["chat"], "--name", HOSTILE, "--name", "<b>alias</b>")
    assert page.evaluate("document.getElementById('plan-name').textContent") == f"{HOSTILE}, <b>alias</b>"
    assert page.evaluate("document.getElementById('model').options[0].textContent") == HOSTILE
    assert not page.evaluate("document.getElementById('model-field').hidden")
    before = page.evaluate("document.querySelectorAll('*').length")
    options(page)
    send(page, HOSTILE)
    shown = page.evaluate("document.querySelector('#talk li.user .text').textContent")
    assert shown == HOSTILE and last(page)
    assert page.evaluate("document.querySelectorAll('main img, main script, main b').length") == 0
    assert page.evaluate("document.title") == "atlas serve"
    added = page.evaluate(
        "document.querySelectorAll('#talk *').length + document.querySelectorAll('#steps tbody *').length"
    )
    assert page.evaluate("document.querySelectorAll('*').length") <= before + added
    assert complaints(page, server) == []


def test_an_answer_that_is_html(opened, plans):
    """What the stream brings is put in as text: the page's own fetch is given a stream that a model could make."""
    server, page = opened(plans["chat"])
    chunk = {"choices": [{"index": 0, "delta": {"content": HOSTILE}, "finish_reason": "stop"}]}
    page.evaluate(
        "window.fetch = (f => (url, o) => o && o.method === 'POST' ? Promise.resolve(new Response("
        f"{json.dumps('data: ' + json.dumps(chunk) + chr(10) * 2 + 'data: [DONE]' + chr(10) * 2)})) : f(url, o))(fetch), 0"
    )
    send(page, "hello")
    assert last(page) == HOSTILE
    assert page.evaluate("document.querySelectorAll('#talk img, #talk script').length") == 0
    assert page.evaluate("document.title") == "atlas serve" and complaints(page, server) == []


def test_reasoning_is_shown_apart_and_goes_back(opened, plans):
    """Open while it comes, folded when the answer begins, text whatever it says; the next turn has it where it belongs."""
    server, page = opened(plans["chat"])
    deltas = [{"reasoning_content": HOSTILE}, {"reasoning_content": " so"}, {"content": "Four"}, {"content": "."}]
    chunks = [{"choices": [{"index": 0, "delta": d, "finish_reason": None}]} for d in deltas]
    chunks[-1]["choices"][0]["finish_reason"] = "stop"
    for n, open_, answer in ((2, True, ""), (4, False, "Four.")):
        text = "".join(f"data: {json.dumps(c)}\n\n" for c in chunks[:n])
        text += f"data: {json.dumps({'choices': [{'index': 0, 'delta': {}, 'finish_reason': 'length'}]})}\n\n" * (
            n == 2
        )
        page.evaluate(
            "window.own = window.own || fetch, window.fetch = (url, o) => o && o.method === 'POST' ? (window.sent = o.body, "
            f"Promise.resolve(new Response({json.dumps(text + 'data: [DONE]' + chr(10) * 2)}))) : own(url, o), 0"
        )
        send(page, "two and two")
        thought = "document.querySelector('#talk li:last-child details')"
        assert page.evaluate(f"{thought}.open") is open_
        assert page.evaluate(f"{thought}.querySelector('.text').textContent") == HOSTILE + " so"
        assert page.evaluate("document.querySelector('#talk li:last-child > .text').textContent") == answer
    sent = json.loads(page.evaluate("sent"))["messages"]
    assert sent[1] == {"role": "assistant", "content": "", "reasoning_content": HOSTILE + " so"}
    assert page.evaluate("document.querySelectorAll('#talk img, #talk script').length") == 0
    assert page.evaluate("document.title") == "atlas serve" and complaints(page, server) == []


@pytest.mark.parametrize("end", ["cut", "error"])
def test_a_stream_that_fails(opened, plans, end):
    """A cut is not taken for an answer; an error event is shown; the text can be sent again."""
    _, page = opened(plans["chat"])
    chunk = {"choices": [{"index": 0, "delta": {"content": "so far"}, "finish_reason": None}]}
    text = "data: " + json.dumps(chunk) + "\n\n"
    if end == "error":
        text += 'data: {"error": {"message": "<b>the server ends</b>"}}\n\n'
    page.evaluate(
        "window.fetch = (f => (url, o) => o && o.method === 'POST' ? Promise.resolve(new Response("
        f"{json.dumps(text)})) : f(url, o))(fetch), 0"
    )
    send(page, "hello")
    assert last(page) == "so far"
    assert last(page, "note") == ("the stream was cut" if end == "cut" else "<b>the server ends</b>")
    assert page.evaluate("document.querySelector('#talk li:last-child small').getAttribute('role')") == "alert"


def test_a_refusal_is_shown_and_the_text_comes_back(opened, plans):
    server, page = opened(plans["chat"])
    text = "In the beginning " * 400
    send(page, text)
    _, answer = server.post("/v1/chat/completions", {"messages": [{"role": "user", "content": text}]})
    assert last(page, "note") == answer["error"]["message"] and answer["error"]["code"] == "context_length_exceeded"
    assert page.evaluate("document.getElementById('text').value") == text


def keys_file(folder):
    path = folder / "keys.txt"
    path.write_text("sesame\n")
    return path


def test_keys(opened, plans, tmp_path):
    """The page asks for a key, says when it is wrong, and keeps it nowhere."""
    server, page = opened(plans["chat"], "--api-key-file", keys_file(tmp_path), is_ready=False)
    page.until("!document.getElementById('key-form').hidden")
    assert text_of(page, "state") == "ready" and not page.evaluate("document.querySelector('#plan code') !== null")
    assert page.evaluate("document.getElementById('key').type") == "password"
    for key, why in (("wrong", "the API key is wrong"), ("sesame", None)):
        page.evaluate("document.getElementById('key').focus()")
        page.call("Input.insertText", text=key)
        page.key("Enter", 13, "\r")
        if why:
            page.until(f"document.getElementById('key-why').textContent === {json.dumps(why)}")
            page.until("!document.getElementById('key-form').hidden")
    page.until("document.querySelector('#plan code') !== null")
    assert page.evaluate("document.getElementById('key-form').hidden")
    options(page)
    send(page, "In the beginning")
    assert "20 tokens" in last(page, "note")
    kept = "JSON.stringify([{...localStorage}, {...sessionStorage}, document.cookie, location.href, document.documentElement.outerHTML])"
    assert "sesame" not in page.evaluate(kept) and page.evaluate("document.getElementById('key').value") == ""
    page.reload()
    page.until("!document.getElementById('key-form').hidden")
    assert complaints(page, server, refused=True) == []


def test_metrics_are_live(opened, plans):
    """Slots, rates, gaps and steps follow the load, and go back."""
    server, page = opened(plans["text"])
    page.until("document.getElementById('slots').textContent === '0 of 2'")
    connection = http.client.HTTPConnection("127.0.0.1", server.port)
    ask = {"prompt": "In the beginning", "max_tokens": 480, "temperature": 1.5, "seed": 4}
    ends = threading.Event()

    def load():
        while not ends.is_set():
            connection.request("POST", "/v1/completions", json.dumps(ask))
            connection.getresponse().read()

    thread = threading.Thread(target=load)
    thread.start()
    page.until("document.getElementById('slots').textContent === '1 of 2'")
    page.until("parseFloat(document.getElementById('made').textContent.replace(',', '')) > 20")
    shown = float(text_of(page, "made").split()[0].replace(",", ""))
    page.until("document.getElementById('gaps').textContent.includes('ms')")
    assert int(text_of(page, "pages").split()[0]) > 0
    rows = page.evaluate("[...document.querySelectorAll('#steps tbody tr')].map(r => r.innerText)")
    assert any(row.startswith("decode") for row in rows), rows
    points = page.evaluate("document.getElementById('plot-line').getAttribute('points')")
    assert len(points.split()) >= 2 and "at most" in page.evaluate("document.getElementById('plot-desc').textContent")
    ends.set()
    thread.join()
    assert shown < 1e5
    page.until("document.getElementById('slots').textContent === '0 of 2'")
    page.until("document.getElementById('made').textContent === '0.0 tok/s'")
    assert complaints(page, server) == []


def test_steps_that_verify_drafts_have_rows(opened, plan_of, build_dir, tmp_path):
    """A row for each rung and number of rows: of two slots with one row each, two tokens a step at most."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text(
        "[runtime]\nslots = 2\nmax_context = 512\n[phases]\nprefill = [64]\ndecode = [2]\n"
        '[speculate]\ndrafter = "ngram"\nngram = [1, 3]\nrows = 3\n'
    )
    plan = plan_of("llama-trained", "--model", toml, "--target", "sm_90a")
    env = os.environ | {"LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"}
    server, page = opened(plan, env=env, device="cuda")
    server.post("/v1/completions", {"prompt": [300, 301] * 20, "max_tokens": 60, "ignore_eos": True})
    rows = page.until(
        "(rows => rows.length && rows.map(r => [...r.cells].map(c => c.textContent.trim())))"
        "([...document.querySelectorAll('#steps tbody tr')].filter(r => r.cells[0].textContent === 'verify'))"
    )
    for row in rows:
        slots, each = map(int, row[1].split("x"))
        expected = server.metric(f'step_expected_seconds{{phase="verify",bucket="{row[1]}"}}')
        assert slots == 2 and row[5].endswith("%") and row[6] == f"{slots * each / expected:,.0f}"
    assert {row[1] for row in rows} == {of for phase, of in server.steps() if phase == "verify"}


def test_the_roofline(opened, plan_of, build_dir, tmp_path):
    """Of a device with compiled steps: what /metrics expects of the bucket, and the share that it is of the time."""
    toml = tmp_path / "MODEL.toml"
    toml.write_text("[runtime]\nslots = 2\nmax_context = 512\n[phases]\nprefill = [64]\ndecode = [2]\n")
    plan = plan_of("llama-trained", "--model", toml, "--target", "sm_90a")
    env = os.environ | {"LD_LIBRARY_PATH": str(build_dir / "tests-gpu" / "fake"), "FAKE_CUDA_CC": "9.0"}
    server, page = opened(plan, env=env, device="cuda")
    server.post("/v1/completions", {"prompt": [300, 301], "max_tokens": 30, "ignore_eos": True})
    page.until("document.querySelector('#steps tbody tr') !== null")
    expected = server.metric('step_expected_seconds{phase="decode",bucket="2"}')
    row = page.until(
        "(r => r && [...r.cells].map(c => c.textContent.trim()))"
        "([...document.querySelectorAll('#steps tbody tr')].find(r => r.cells[0].textContent === 'decode'))"
    )
    assert row[1] == "2" and row[4] == f"{expected * 1e6:,.0f} us"
    assert row[5].endswith("%") and row[6] == f"{2 / expected:,.0f}"
    assert "sm_90a" in text_of(page, "plan")


def test_a_server_that_ends_and_another_one(opened, served, plans, tmp_path):
    """Its end is shown; where another plan takes its place, the page shows that one."""
    control = tmp_path / "control"
    server, page = opened(plans["chat"], "--take-over", control)
    root = server.get("/v1/plan")[1]["root"]
    other = served(plans["text"], "--take-over", control, wait=False)
    other.wait_line('"ready"')
    other.port = server.port
    page.until(f"document.querySelector('#plan code') && document.querySelector('#plan code').textContent !== '{root}'")
    page.until("document.getElementById('talk-title').textContent === 'Completion'")
    other.process.kill()
    page.until("document.getElementById('state').textContent === 'the server does not answer'")


def test_the_policy_lets_it_ask_its_own_server_alone(opened, plans):
    """Whatever ran in the page, it could not send a text or a key elsewhere."""
    _, page = opened(plans["text"])
    with socket.create_server(("127.0.0.1", 0)) as other:
        other.settimeout(0.5)
        address = f"http://127.0.0.1:{other.getsockname()[1]}/"
        for ask in (
            f"fetch('{address}')",
            f"new Promise((y, n) => {{ const i = new Image(); i.onload = y; i.onerror = n; i.src = '{address}x.png'; }})",
            f"(navigator.sendBeacon('{address}'), Promise.reject())",  # which says nothing: see accept
            "new Promise((y, n) => { const s = document.createElement('script'); s.textContent = 'window.ran = 1';"
            " document.head.append(s); window.ran ? y() : n(); })",
        ):
            assert page.evaluate(f"Promise.resolve({ask}).then(() => 'done', () => 'refused')") == "refused", ask
        with pytest.raises(TimeoutError):
            other.accept()


def test_without_scripts(browser, served, plans):
    server = served(plans["text"])
    page = browser.open(f"http://127.0.0.1:{server.port}/", scripts=False)
    assert "/v1/chat/completions" in page.evaluate("document.body.innerText")
    page.close()
