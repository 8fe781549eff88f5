"""Drives a headless Chromium through a pair of pipes (DevTools protocol), with the standard library alone."""

import base64
import itertools
import json
import os
import select
import shutil
import subprocess
import tempfile
import time

PROGRAM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

_FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--remote-debugging-pipe", "--no-first-run",
    "--use-angle=swiftshader", "--enable-unsafe-swiftshader", "--ignore-gpu-blocklist", "--disable-extensions",
    "--disable-background-networking", "--disable-component-update", "--hide-scrollbars",
)  # fmt: skip


class Chromium:
    """One browser with one page.

    Attributes:
        messages: Errors and warnings of the console, and exceptions that nothing caught.
        requests: The addresses that pages asked for.
    """

    def __init__(self, width=1280, height=800, flags=()):
        self.messages, self.requests = [], []
        self._numbers, self._answers, self._buffer = itertools.count(1), {}, b""
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        theirs_in, self._out = os.pipe()
        self._in, theirs_out = os.pipe()

        def pipes():  # Chromium reads from 3 and writes to 4
            one, other = os.dup(theirs_in), os.dup(theirs_out)
            os.dup2(one, 3)
            os.dup2(other, 4)

        self._process = subprocess.Popen(
            [PROGRAM, *_FLAGS, *flags, f"--user-data-dir={self._profile.name}", f"--window-size={width},{height}",
             "about:blank"],
            close_fds=False, preexec_fn=pipes, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(theirs_in)
        os.close(theirs_out)
        self._session = None
        (page,) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self._session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._process.kill()
        self._process.wait()
        os.close(self._in)
        os.close(self._out)
        self._profile.cleanup()

    def call(self, method, *, timeout=120, **parameters):
        """Call a method of the protocol, and return its result."""
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._out, json.dumps(message).encode() + b"\0")
        self._read_until(lambda: number in self._answers, timeout, method)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer["result"]

    def _read_until(self, done, timeout, what):
        end = time.monotonic() + timeout
        while not done():
            if not select.select([self._in], [], [], max(0, end - time.monotonic()))[0]:
                raise TimeoutError(f"Chromium did not answer {what} in {timeout} s")
            chunk = os.read(self._in, 1 << 20)
            if not chunk:
                raise RuntimeError("Chromium ended")
            *whole, self._buffer = (self._buffer + chunk).split(b"\0")
            for text in whole:
                self._receive(json.loads(text))

    def _receive(self, message):
        if "id" in message:
            self._answers[message["id"]] = message
            return
        method, found = message["method"], message["params"]
        if method == "Runtime.consoleAPICalled" and found["type"] in ("error", "warning", "assert"):
            self.messages.append(" ".join(str(one.get("value", one.get("description"))) for one in found["args"]))
        elif method == "Runtime.exceptionThrown":
            details = found["exceptionDetails"]
            self.messages.append(details.get("exception", {}).get("description", details["text"]))
        elif method == "Log.entryAdded" and found["entry"]["level"] == "error":
            self.messages.append(found["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(found["request"]["url"])
        elif method == "Page.loadEventFired":
            self._answers["load"] = True

    def open(self, page):
        """Open a file, or an address, wait until it is loaded and drawn, and return the seconds that took."""
        self._answers.pop("load", None)
        start = time.monotonic()
        self.call("Page.navigate", url=page if isinstance(page, str) else page.resolve().as_uri())
        self._read_until(lambda: "load" in self._answers, 120, "load")
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")
        return time.monotonic() - start

    def run(self, code):
        """Return the value of an expression on the page; a promise is awaited."""
        found = self.call("Runtime.evaluate", expression=code, awaitPromise=True, returnByValue=True)
        if "exceptionDetails" in found:
            raise RuntimeError(found["exceptionDetails"].get("exception", {}).get("description", "exception"))
        return found["result"].get("value")

    def click(self, x, y, times=1):
        """Click at a position of the window, once or twice."""
        for count in range(1, times + 1):
            for kind in ("mousePressed", "mouseReleased"):
                self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", clickCount=count)

    def mouse(self, kind, x, y):
        """Press, move or release the left button."""
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, button="left", buttons=1)

    def theme(self, name):
        """Prefer `light` or `dark`."""
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": name}])

    def screenshot(self, path):
        """Write what the window shows as PNG."""
        path.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
