"""A headless browser driven over the DevTools protocol, by pipes: no port, no further package.

    with Browser() as browser:
        page = browser.open(path, width=420, dark=True)
        page.evaluate("document.title")

Debian's chromium-headless-shell (or chromium) is what scripts/deps.sh installs for the tests.
"""

from __future__ import annotations

import base64
import json
import os
import pathlib
import shutil
import subprocess
import tempfile
import time

NAMES = ("chromium-headless-shell", "chromium", "google-chrome")
PATIENCE = 60  # seconds for one answer


def program():
    """The browser's path; None where there is none."""
    return next(filter(None, map(shutil.which, NAMES)), None)


class Browser:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="atlas-browser-", ignore_cleanup_errors=True)
        down, self.out = os.pipe()
        self.back, up = os.pipe()

        def pipes():  # the protocol wants 3 and 4
            a, b = os.dup(down), os.dup(up)
            os.dup2(a, 3)
            os.dup2(b, 4)

        words = [
            program(),
            "--headless",
            "--remote-debugging-pipe",
            "--no-sandbox",
            "--disable-gpu",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--force-color-profile=srgb",
            f"--user-data-dir={self.folder.name}",
            "about:blank",
        ]
        self.process = subprocess.Popen(
            words,
            preexec_fn=pipes,
            pass_fds=(3, 4, down, up),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(down)
        os.close(up)
        self.buffer, self.n, self.events = b"", 0, []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        for pipe in (self.out, self.back):
            os.close(pipe)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.folder.cleanup()

    def message(self):
        end = time.monotonic() + PATIENCE
        while b"\0" not in self.buffer:
            chunk = os.read(self.back, 1 << 20)
            assert chunk, "the browser has ended"
            assert time.monotonic() < end, "the browser does not answer"
            self.buffer += chunk
        text, self.buffer = self.buffer.split(b"\0", 1)
        return json.loads(text)

    def call(self, method, session=None, **params):
        self.n += 1
        message = {"id": self.n, "method": method, "params": params} | ({"sessionId": session} if session else {})
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.out, data) :]
        while True:
            answer = self.message()
            if answer.get("id") == self.n:
                assert "error" not in answer, (method, answer.get("error"))
                return answer["result"]
            self.events.append(answer)

    def open(self, path, *, width=1280, height=900, dark=False, scripts=True, fragment=""):
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        session = self.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        page = Page(self, session, target)
        for domain in ("Page", "Runtime", "Log", "Network"):
            page.call(f"{domain}.enable")
        page.resize(width, height)
        page.emulate(dark=dark)
        if not scripts:
            page.call("Emulation.setScriptExecutionDisabled", value=True)
        is_address = str(path).startswith("http://")
        page.go((str(path) if is_address else pathlib.Path(path).resolve().as_uri()) + fragment)
        return page


class Page:
    def __init__(self, browser, session, target):
        self.browser, self.session, self.target = browser, session, target

    def call(self, method, **params):
        return self.browser.call(method, self.session, **params)

    def events(self, method):
        return [
            e["params"] for e in self.browser.events if e.get("sessionId") == self.session and e.get("method") == method
        ]

    def wait(self, method, n):
        while len(self.events(method)) < n:
            self.browser.events.append(self.browser.message())

    def resize(self, width, height=900):
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=width < 700
        )

    def emulate(self, *, dark=False, media=""):
        self.call(
            "Emulation.setEmulatedMedia",
            media=media,
            features=[{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}],
        )

    def go(self, url):
        n = len(self.events("Page.loadEventFired"))
        start = time.monotonic()
        self.call("Page.navigate", url=url)
        self.wait("Page.loadEventFired", n + 1)
        self.load_seconds = time.monotonic() - start

    def reload(self):
        n = len(self.events("Page.loadEventFired"))
        self.call("Page.reload")
        self.wait("Page.loadEventFired", n + 1)

    def evaluate(self, text):
        """Value of an expression, awaited; of the page as it is, also where its own scripts are off."""
        answer = self.call("Runtime.evaluate", expression=text, returnByValue=True, awaitPromise=True)
        assert "exceptionDetails" not in answer, answer["exceptionDetails"]
        return answer["result"].get("value")

    def settle(self):
        self.evaluate("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(1))))")

    def key(self, name, code=0, text=""):
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=name,
                code=name,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )
        self.settle()

    def until(self, text, seconds=20):
        """Waits until an expression is true; its value."""
        end = time.monotonic() + seconds
        while not (value := self.evaluate(text)):
            assert time.monotonic() < end, (text, self.evaluate("document.body.innerText"))
            time.sleep(0.02)
        return value

    def picture(self, path, whole=False):
        """A PNG of the window, or of the whole page."""
        data = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=whole)["data"]
        pathlib.Path(path).write_bytes(base64.b64decode(data))

    def pdf(self):
        """As printed, on the paper that the page asks for."""
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def complaints(self):
        """Console messages, exceptions, violations of the policy and requests for anything but the page."""
        return (
            [e["entry"]["text"] for e in self.events("Log.entryAdded")]
            + [e["exceptionDetails"]["text"] for e in self.events("Runtime.exceptionThrown")]
            + [str(e["args"]) for e in self.events("Runtime.consoleAPICalled")]
            + [e["request"]["url"] for e in self.events("Network.requestWillBeSent") if e["type"] != "Document"]
        )

    def close(self):
        self.browser.call("Target.closeTarget", targetId=self.target)
