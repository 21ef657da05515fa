"""Chromium without a window, by the W3C WebDriver protocol: only what tests of pages need, with the standard library."""

import base64
import json
import socket
import subprocess
import time
import urllib.error
import urllib.request

START_S = 30


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


class Browser:
    """One window. Ends with `close`."""

    def __init__(self):
        port = free_port()
        self.driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self.base, self.session = f"http://127.0.0.1:{port}", None
        try:
            self._begin()
        except BaseException:
            self.close()
            raise

    def _begin(self):
        self._await_driver()
        options = {
            "args": ["--headless=new", "--no-sandbox", "--disable-dev-shm-usage", "--disable-gpu"],
            "perfLoggingPrefs": {"enableNetwork": True},
        }
        wanted = {
            "browserName": "chrome",
            "goog:chromeOptions": options,
            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
        }
        session = self._call("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{session['sessionId']}"

    def _await_driver(self):
        until = time.monotonic() + START_S
        while True:
            try:
                if self._call("GET", "/status")["ready"]:
                    return
            except (urllib.error.URLError, ConnectionError):
                if time.monotonic() > until or self.driver.poll() is not None:
                    raise
                time.sleep(0.05)

    def _call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.base + path, data, {"Content-Type": "application/json"}, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode(errors='replace')[:800]}") from None

    def call(self, path, body=None, method="POST"):
        return self._call(method, self.session + path, body if body is not None or method != "POST" else {})

    def open(self, url):
        self.call("/url", {"url": url})

    def run(self, script, *arguments):
        """The value of a JavaScript function body."""
        return self.call("/execute/sync", {"script": script, "args": list(arguments)})

    def press(self, key):
        actions = [{"type": kind, "value": key} for kind in ("keyDown", "keyUp")]
        self.call("/actions", {"actions": [{"type": "key", "id": "keyboard", "actions": actions}]})

    def devtools(self, command, **parameters):
        return self.call("/goog/cdp/execute", {"cmd": command, "params": parameters})

    def size(self, width, height, mobile=False):
        self.devtools(
            "Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=mobile
        )

    def colours(self, scheme):
        self.devtools("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])

    def screenshot(self, path):
        """Of the whole page."""
        shot = self.devtools("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))

    def complaints(self):
        """What the console said since the last time."""
        return [entry["message"] for entry in self.call("/se/log", {"type": "browser"})]

    def requested(self):
        """Addresses that the page asked for since the last time."""
        entries = (json.loads(entry["message"])["message"] for entry in self.call("/se/log", {"type": "performance"}))
        sent = (entry["params"] for entry in entries if entry["method"] == "Network.requestWillBeSent")
        return [params["request"]["url"] for params in sent]

    def close(self):
        try:
            if self.session:
                self._call("DELETE", self.session)
        finally:
            self.driver.terminate()
            self.driver.wait()
