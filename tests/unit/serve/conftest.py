"""One server for all tests of serving; it starts and stops in seconds."""

from __future__ import annotations

from collections.abc import Iterator

import psutil
import pytest
from cli_fixtures import ROOT
from serve_fixtures import Server

JUDGE = "judge: {call_timeout_s: 2, timing: {min_rounds: 3, max_rounds: 3, budget_s: 0.05, warmup_s: 0}}\n"


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """Room for three pairs, of which one that does not end is given up after two seconds."""
    folder = tmp_path_factory.mktemp("serve")
    (folder / "judge.yaml").write_text(JUDGE)
    judging = ("-c", str(ROOT / "config/config.yaml"), "-c", "judge.yaml")
    server = Server(folder, *judging, "--queue", "3", "--max-body", "1", "--reference-timeout", "3", "--grace", "60")
    yield server
    below = server.end()
    assert server.process.returncode == 0
    assert psutil.wait_procs(below, timeout=20)[1] == []
