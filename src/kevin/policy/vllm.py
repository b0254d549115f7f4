"""vLLM in process, for one machine's GPUs."""

from __future__ import annotations

import copy
import functools
import gc
import logging
import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from kevin.core.config import PolicyConfig
from kevin.core.errors import PolicyError, first_line
from kevin.core.types import Completion, Conversation
from kevin.policy.chat import check_template, prepare_template, prompt_tokens
from kevin.policy.drafts import drafting
from kevin.policy.interface import OnCompletion, Request, Sampling, request_seed
from kevin.policy.weights import model_folder

log = logging.getLogger(__name__)


class VllmPolicy:
    """``LLM.generate`` with continuous batching and prefix caching. The engine starts when the policy is made."""

    def __init__(self, name: str, config: PolicyConfig) -> None:
        try:
            from vllm import LLM
        except ImportError as e:
            raise PolicyError(
                f"policy {name}: vllm cannot be imported ({e}); install it with: pip install 'kevin-study[gpu]', or "
                f"set policies.{name}.backend to transformers or openai"
            ) from e
        self.name = name
        folder = model_folder(name, config.model, config.revision)
        check_template(_tokenizer(folder), name, folder)
        try:
            with shared_programs():
                self._llm = LLM(
                    model=str(folder),
                    dtype=config.dtype,
                    gpu_memory_utilization=config.memory_share,
                    **drafting(config.draft_tokens),
                    **config.engine,
                )
        except TypeError as e:
            raise PolicyError(f"policies.{name}.engine: vllm does not take these arguments: {e}") from e
        except (OSError, ValueError, RuntimeError) as e:
            raise PolicyError(f"policies.{name}.model: vllm cannot load {folder}: {e}") from e
        self._tokenizer = self._llm.get_tokenizer()
        prepare_template(self._tokenizer, name, config)

    def count_tokens(self, conversation: Conversation) -> int:
        return len(prompt_tokens(self._tokenizer, conversation)[0])

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None = None
    ) -> list[Completion | None]:
        if not requests:
            return []
        encoded = [prompt_tokens(self._tokenizer, r.conversation) for r in requests]
        completions: list[Completion | None] = [None] * len(requests)

        def keep(i: int, answer: Any) -> None:
            ids, opening = encoded[i]
            completions[i] = completion = Completion(
                text=opening + answer.text,
                num_prompt_tokens=len(ids),
                num_completion_tokens=len(answer.token_ids),
                finish_reason="length" if answer.finish_reason == "length" else "stop",
            )
            if on_completion is not None:
                on_completion(i, completion)

        seeds = [request_seed(sampling, r) for r in requests]
        generate(self._llm, [ids for ids, _ in encoded], seeds, sampling, keep, skip_special_tokens=False)
        return completions

    def close(self) -> None:
        del self._llm
        gc.collect()


def _tokenizer(folder: Path) -> Any:
    """Before the engine starts, which takes a minute. Raises PolicyError."""
    from transformers import AutoTokenizer

    try:
        return AutoTokenizer.from_pretrained(folder)
    except (OSError, ValueError, ImportError, KeyError) as e:
        raise PolicyError(f"no tokenizer can be loaded from {folder}: {first_line(e)}") from e


def generate(
    llm: Any,
    prompts: Sequence[list[int]],
    seeds: Sequence[int],
    sampling: Sampling,
    on_answer: Callable[[int, Any], None],
    **settings: Any,
) -> None:
    """Have ``on_answer`` told of the answer to each prompt, by its number, in the step of the engine that finishes it.

    `LLM.generate` returns all of them together; it numbers requests on from where it was. Where it does not, nobody is
    told before the end. ``settings``: further ones of vLLM's sampling.
    """
    from vllm import SamplingParams

    drawn = {"temperature": sampling.temperature, "top_p": sampling.top_p, "max_tokens": sampling.max_tokens}
    params = [SamplingParams(seed=seed, **drawn, **settings) for seed in seeds]
    told: set[int] = set()

    def tell(number: int, output: Any) -> None:
        if 0 <= number < len(prompts) and number not in told:
            told.add(number)
            on_answer(number, output.outputs[0])

    core, counter = getattr(llm, "llm_engine", None), getattr(llm, "request_counter", None)
    first = getattr(counter, "counter", None)
    with ExitStack() as restored:
        if core is not None and first is not None:
            step = core.step
            restored.callback(setattr, core, "step", step)

            def watched() -> Any:
                outputs = step()
                for output in outputs:
                    if output.finished and str(output.request_id).isdigit():
                        tell(int(output.request_id) - first, output)
                return outputs

            core.step = watched
        outputs = llm.generate([{"prompt_token_ids": ids} for ids in prompts], params, use_tqdm=False)
    for number, output in enumerate(outputs):
        tell(number, output)


@contextmanager
def shared_programs() -> Iterator[None]:
    """Engines made meanwhile take what was compiled for any model of the same configuration.

    vLLM files what it compiles under the model's path, too. But weights are arguments of it: it also takes what it
    compiled for a folder before its weights changed. An engine's process that is not forked from this one files as
    ever.

    Triton's kernels lie where Triton puts them, for all processes of a user, from now on: PyTorch moves them into the
    folder of the first program that it compiles in a process, and the kernel for sampling was compiled anew in every
    engine, for 18 s. ``TRITON_CACHE_DIR`` and ``TRITON_HOME`` of the user's environment stay as they are.
    """
    home = os.environ.get("TRITON_HOME") or os.path.expanduser("~")  # noqa: PTH111  Path's raises where there is none
    os.environ.setdefault("TRITON_CACHE_DIR", str(Path(home, ".triton", "cache")))
    model_config = _hashed_class()
    if model_config is None:
        yield
        return
    by_path = model_config.compute_hash

    @functools.wraps(by_path)
    def by_configuration(self: Any) -> str:
        try:
            return str(by_path(_nameless(self)))
        except Exception as e:  # of another version's insides: an engine must not fail for it
            log.debug("programs are not shared between models: %s", e)
            return str(by_path(self))

    model_config.compute_hash = by_configuration
    try:
        yield
    finally:
        model_config.compute_hash = by_path


def _hashed_class() -> Any:
    """vLLM's class whose hash is in the key of what it compiles; None where this version has none such."""
    try:
        found = import_module("vllm.config.model").ModelConfig
    except (ImportError, AttributeError) as e:
        log.debug("programs are not shared between models: %s", e)
        return None
    return found if hasattr(found, "compute_hash") else None


def _nameless(model_config: Any) -> Any:
    """A copy that does not say where its weights lie."""
    nameless = copy.copy(model_config)
    nameless.model = ""
    for name in ("hf_config", "hf_text_config"):
        config = copy.copy(getattr(model_config, name))
        config._name_or_path = ""
        setattr(nameless, name, config)
    return nameless
