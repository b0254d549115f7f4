"""A `kevin serve` of a test's own, and a client for it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import threading
from concurrent.futures import Future
from pathlib import Path
from typing import Any, NamedTuple

import psutil
from cli_fixtures import KEVIN, REFERENCE
from core_fixtures import make_verdict
from process_fixtures import until

from kevin.core.types import Kernel, Task, Verdict


class Answer(NamedTuple):
    status: int
    body: dict[str, Any]
    headers: dict[str, str]


class Engine:
    """In the judge's place: finds every kernel wrong, and says in the message which it was."""

    device_name, is_well = "here", True
    waits = False
    """It judges when it is told to."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        self.asked: dict[str, Future[Verdict]] = {}

    def start(self) -> str:
        return self.device_name

    def key(self, task: Task, kernel: Kernel) -> str:
        return kernel.digest

    def stored(self, key: str) -> Verdict | None:
        return None

    def submit(self, task: Task, kernel: Kernel) -> Future[Verdict]:
        future = self.asked[kernel.digest] = Future()
        if not self.waits:
            self.finish((task, kernel))
        return future

    def finish(self, pair: tuple[Task, Kernel]) -> None:
        _, kernel = pair
        self.asked[kernel.digest].set_result(make_verdict(message=f"{kernel.dialect}:{kernel.source}"))

    def close(self) -> None:
        pass


class Server:
    """One `kevin serve` in a folder of its own; the store and the token stay there between starts."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder, self._options = folder, options
        self.port = 0
        self.start()

    def start(self) -> None:
        command = [KEVIN, "serve", "--port", str(self.port), "--token-file", "token", "--store", "store"]
        own = {name: value for name, value in os.environ.items() if name != "KEVIN_TOKEN"}
        self.process = subprocess.Popen(
            [*command, *self._options], cwd=self.folder, stderr=subprocess.PIPE, text=True, env=own
        )
        assert self.process.stderr is not None
        said = []
        for line in self.process.stderr:
            said.append(line)
            if found := re.search(r"judging on http://127.0.0.1:(\d+)", line):
                self.port = int(found[1])
                break
        else:
            raise AssertionError("".join(said))
        self.token = (self.folder / "token").read_text().strip()
        self._rest: list[str] = []
        threading.Thread(target=lambda: self._rest.extend(self.process.stderr or ()), daemon=True).start()

    def connect(self, timeout_s: float = 200) -> http.client.HTTPConnection:
        return http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout_s)

    def ask(self, path: str, body: Any = None, *, method: str = "POST", token: str | None = "") -> Answer:
        headers = {} if token is None else {"Authorization": f"Bearer {token or self.token}"}
        connection = self.connect()
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        connection.request(method, path, data, headers)
        response = connection.getresponse()
        text = response.read()
        connection.close()
        is_json = response.headers["Content-Type"] == "application/json"
        return Answer(response.status, json.loads(text) if is_json else {"text": text.decode()}, dict(response.headers))

    def judge(self, kernel: str, reference: str = REFERENCE) -> Answer:
        return self.ask("/v1/judge", {"reference": reference, "kernel": kernel})

    def metric(self, name: str) -> float:
        text = self.ask("/metrics", method="GET").body["text"]
        return sum(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))

    def wait_for(self, name: str, value: float) -> None:
        until(lambda: self.metric(name) == value, f"{name} is {value}")

    def end(self, number: signal.Signals = signal.SIGTERM) -> list[psutil.Process]:
        """The processes that were below it."""
        below = psutil.Process(self.process.pid).children(recursive=True)
        self.process.send_signal(number)
        self.process.wait(timeout=90)
        return below
