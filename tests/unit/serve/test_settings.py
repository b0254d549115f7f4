"""What `kevin serve` refuses at its start, instead of answering every pair with a failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from kevin.core.config import JudgePoolConfig
from kevin.core.errors import SandboxError, UsageError
from kevin.judge.compile import compilers
from kevin.serve.settings import read_token, usable_store

POOL = JudgePoolConfig()


@pytest.mark.parametrize("home", ["/proc", "/dev/null", "{file}", "/sys/kernel"])
def test_a_home_that_cannot_be_written(home: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("HOME", home.format(file=tmp_path / "file"))
    with pytest.raises(UsageError, match=r"cache/kevin/verdicts: verdicts cannot be kept there \(.+\); .*--store"):
        usable_store(Path("~/.cache/kevin/verdicts"), POOL)


def test_a_store_that_isusable_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    assert usable_store(Path("~/store"), POOL) == tmp_path / "store"
    assert list((tmp_path / "store").iterdir()) == []


def test_a_store_in_which_nothing_can_be_built(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(folder: Path) -> None:
        raise SandboxError(f"{folder}: noexec")

    monkeypatch.setattr(compilers, "require_loadable", refuse)
    with pytest.raises(SandboxError, match="noexec"):
        usable_store(tmp_path, POOL)
    assert usable_store(tmp_path, POOL.model_copy(update={"scheduler": "tcp://node:1"})) == tmp_path, "others build"


def test_a_token_may_end_a_line_and_be_saved_by_any_editor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("secret\n", "\ufeffsecret\r\n"):
        monkeypatch.setenv("KEVIN_TOKEN", given)
        assert read_token(None, "127.0.0.1", no_token=False) == "secret"
    monkeypatch.setenv("KEVIN_TOKEN", " \n")
    with pytest.raises(UsageError, match="no token"):
        read_token(None, "127.0.0.1", no_token=False)
    monkeypatch.delenv("KEVIN_TOKEN", raising=False)
    (tmp_path / "token").write_bytes("secret\r\n".encode("utf-16"))
    assert read_token(tmp_path / "token", "127.0.0.1", no_token=False) == "secret"
