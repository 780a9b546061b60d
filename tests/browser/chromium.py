"""A headless Chromium over its pipe: commands out, answers and events back, each a JSON text that a zero byte ends."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome")
#: Seconds that an answer may take, and a page to become quiet.
PATIENCE, QUIET = 30.0, 0.4


class Tab:
    """One tab: what it was asked for, what it complained of, and what is in it."""

    def __init__(self, write: Any, read: int) -> None:
        self.write, self.read, self.pending, self.number = write, read, b"", 0
        self.session: str | None = None
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self.session = self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def ask(self, method: str, **parameters: Any) -> Any:
        """Send a command and wait for its answer; events that come before are kept."""
        self.number += 1
        message = {"id": self.number, "method": method, "params": parameters}
        if self.session is not None:
            message["sessionId"] = self.session
        self.write.write(json.dumps(message).encode() + b"\0")
        self.write.flush()
        until = time.monotonic() + PATIENCE
        while time.monotonic() < until:
            for answer in self._received(0.05):
                if answer.get("id") == self.number:
                    if "error" in answer:
                        raise RuntimeError(f"{method}: {answer['error']}")
                    return answer["result"]
                self.events.append(answer)
        raise TimeoutError(f"{method} had no answer in {PATIENCE:.0f} s")

    def _received(self, wait: float) -> list[dict[str, Any]]:
        os.set_blocking(self.read, False)
        try:
            self.pending += os.read(self.read, 1 << 22)
        except BlockingIOError:
            time.sleep(wait)
        *whole, self.pending = self.pending.split(b"\0")
        return [json.loads(one) for one in whole if one]

    def show(self, url: str, width: int, dark: bool) -> None:
        """Open a page in a window of that width, by day or by night."""
        self.events.clear()
        scheme = [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]
        self.ask("Emulation.setEmulatedMedia", features=scheme)
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 500)
        self.ask("Page.navigate", url=url)
        until = time.monotonic() + PATIENCE
        while self.value("document.readyState") != "complete" and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(QUIET)
        self.value("1")  # events of the quiet time come with its answer

    def value(self, script: str) -> Any:
        """What a script gives back."""
        answer = self.ask("Runtime.evaluate", expression=script, returnByValue=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(answer["exceptionDetails"].get("exception", {}).get("description", script))
        return answer["result"].get("value")

    def requests(self) -> list[str]:
        """Addresses that were asked for."""
        sent = [one["params"] for one in self.events if one.get("method") == "Network.requestWillBeSent"]
        return [one["request"]["url"] for one in sent]

    def complaints(self) -> list[str]:
        """Errors in the console, and exceptions that nobody caught."""
        found = []
        for one in self.events:
            detail = one.get("params", {})
            if one.get("method") == "Runtime.exceptionThrown":
                found.append(str(detail["exceptionDetails"].get("exception", {}).get("description", "exception")))
            if one.get("method") == "Log.entryAdded" and detail["entry"]["level"] == "error":
                found.append(f"{detail['entry']['text']} {detail['entry'].get('url', '')}")
            if one.get("method") == "Runtime.consoleAPICalled" and detail["type"] in ("error", "assert"):
                found.append(" ".join(str(arg.get("value", "")) for arg in detail["args"]))
        return found

    def picture(self, path: Path, most: int = 6000) -> None:
        """The whole page as a PNG file, at most so many pixels high."""
        size = self.value("[innerWidth, document.documentElement.scrollHeight]")
        clip = {"x": 0, "y": 0, "width": size[0], "height": min(size[1], most), "scale": 1}
        answer = self.ask("Page.captureScreenshot", captureBeyondViewport=True, clip=clip)
        path.write_bytes(base64.b64decode(answer["data"]))


@contextmanager
def chromium() -> Iterator[Tab]:
    """A browser with one tab, without a window and without a network."""
    program = next((found for name in NAMES if (found := shutil.which(name))), None)
    if program is None:
        raise FileNotFoundError(f"no browser: one of {', '.join(NAMES)} must be installed")
    (their_in, ours_out), (ours_in, their_out) = os.pipe(), os.pipe()

    def wire() -> None:  # the browser reads commands from 3 and writes to 4
        low, high = os.dup(their_in), os.dup(their_out)
        os.dup2(low, 3)
        os.dup2(high, 4)

    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--remote-debugging-pipe", "--no-first-run"]
        options += [f"--user-data-dir={profile}", "--host-resolver-rules=MAP * ~NOTFOUND", "--disable-sync"]
        options += ["--disable-quic", "--disable-background-networking", "--disable-component-update"]
        process = subprocess.Popen(
            [program, *options], preexec_fn=wire, close_fds=False, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        os.close(their_in)
        os.close(their_out)
        try:
            with os.fdopen(ours_out, "wb") as write:
                yield Tab(write, ours_in)
        finally:
            process.terminate()
            process.wait(timeout=10)
            os.close(ours_in)
