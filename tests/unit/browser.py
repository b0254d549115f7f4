"""A page as a browser shows it, where a Chromium is installed: a script of the test's runs in a copy of the page."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_browser = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium (Debian: apt-get install chromium)")


def evaluate(
    page: str, script: str, folder: Path, *, address: str = "", width: int = 1280, changes: dict[str, str] | None = None
) -> Any:
    """What the body ``script`` of a function returns once the page is loaded; and, as ``errors``, what was thrown.

    Args:
        address: what stands behind the page's name, such as ``#view/...``.
        width: of the window, in CSS pixels (500 at least).
        changes: texts of the page that are replaced before.
    """
    for old, new in (changes or {}).items():
        assert old in page, old
        page = page.replace(old, new)
    own, policy = re.search(r"script-src '[^']*'", page), "script-src 'unsafe-inline'"
    assert own is not None
    page = page.replace(own[0], policy, 1)
    watch = "<script>window.errors = []; addEventListener('error', (e) => errors.push(e.message));</script>"
    run = (
        f"<script>const result = (() => {{ {script} }})();"
        "document.documentElement.dataset.result = JSON.stringify({ result, errors });</script>"
    )
    copy = folder / "copy.html"
    copy.write_text(page.replace("<head>", "<head>" + watch, 1).replace("</body>", run + "</body>", 1))
    assert CHROMIUM is not None
    command = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--window-size={width},900"]
    command += [f"--user-data-dir={folder / 'profile'}", "--dump-dom", f"file://{copy}{address}"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    found = re.search(r'<html[^>]* data-result="([^"]*)"', done.stdout)
    assert found, done.stdout[:500] + done.stderr[-500:]
    answer = json.loads(html.unescape(found[1]))
    assert not answer["errors"], answer["errors"]
    return answer["result"]
