"""Any causal language model that transformers can load: a local folder or a hub id."""

from __future__ import annotations

import gc
import logging
import time
from collections.abc import Callable, Sequence
from functools import cache, lru_cache, partial

import torch
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from kevin.core.config import PolicyConfig
from kevin.core.errors import PolicyError, UsageError, first_line
from kevin.core.types import Completion, Conversation
from kevin.policy.chat import check_template, prepare_template, prompt_tokens
from kevin.policy.decode import Decoding, TokenIds, decode
from kevin.policy.interface import OnCompletion, Request, Sampling, request_seed
from kevin.policy.weights import model_folder

log = logging.getLogger(__name__)

OnAnswer = Callable[[int, TokenIds, list[float] | None], None]
"""Position, tokens (an end token included), and their log-probabilities where the sampler reports them."""

Generate = Callable[[list[TokenIds], list[int], Sampling, OnAnswer], None]
"""Prompts, a seed each, how to sample, what to call with each answer. Called once a turn, also without prompts."""

_HOST_TOKENS, _MAX_TOKENS = 65536, 1 << 20
_CACHE_SHARE = 0.15
"""Of a GPU's free memory: the judge's tensors, and in training gradients and states, need room too."""
_SMALL_PARAMETERS = 10_000_000
_ROWS, _WIDTH = 64, 512
_FAST = 1.2
"""Narrow products that take longer than this times those in float32 are not native: they gain no more than memory."""


class TransformersPolicy:
    """Samples from a model in memory. Only temperature, top-p and length apply: defaults that the model ships
    (top-k, repetition penalty) are not used, as the recipe of the paper names none.
    """

    def __init__(
        self,
        name: str,
        model: PreTrainedModel,
        tokenizer: PreTrainedTokenizerBase,
        *,
        token_budget: int | None = None,
        generate: Generate | None = None,
    ) -> None:
        """
        Args:
            token_budget: tokens of prompts and answers in one micro-batch; what memory allows when absent.
            generate: what samples; by default from the weights of ``model``.

        Raises:
            UsageError: a model without an end token.
        """
        check_template(tokenizer, name, model.name_or_path or "this model")
        self.name, self.model, self.tokenizer = name, model, tokenizer
        self.token_budget = affordable_tokens(model) if token_budget is None else token_budget
        self._generate = generate or (lambda *asked: self.generate_with(self.model, *asked))
        self._eos_ids = _eos_ids(model, tokenizer)
        if not self._eos_ids:
            raise UsageError(f"policy {name}: neither tokenizer nor generation_config names an end token")
        self._pad_id = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else min(self._eos_ids)
        # A prompt is counted first and completed then, and the trajectories of a task begin with the same one.
        self._encode = lru_cache(maxsize=1024)(partial(prompt_tokens, tokenizer))
        self._context: int | None = getattr(model.config.get_text_config(), "max_position_embeddings", None)

    def count_tokens(self, conversation: Conversation) -> int:
        return len(self.encode(conversation)[0])

    def encode(self, conversation: Conversation) -> tuple[TokenIds, str]:
        """Prompt tokens, and the opening of the answer that the template has already written (``<think>`` or "")."""
        return self._encode(conversation)

    def complete(
        self, requests: Sequence[Request], sampling: Sampling, on_completion: OnCompletion | None = None
    ) -> list[Completion | None]:
        encoded = [self.encode(r.conversation) for r in requests]
        self._check_lengths([ids for ids, _ in encoded], sampling)
        completions: list[Completion | None] = [None] * len(requests)

        def keep(i: int, tokens: TokenIds, logprobs: list[float] | None) -> None:
            ids, opening = encoded[i]
            self._remember(requests[i], ids, tokens, logprobs)
            completions[i] = completion = self._completion(len(ids), opening, tokens)
            if on_completion is not None:
                on_completion(i, completion)

        self._generate([ids for ids, _ in encoded], [request_seed(sampling, r) for r in requests], sampling, keep)
        return completions

    def generate_with(
        self,
        model: PreTrainedModel,
        prompts: list[TokenIds],
        seeds: list[int],
        sampling: Sampling,
        on_answer: OnAnswer,
    ) -> None:
        """A `Generate` that samples from the weights of ``model``, this policy's own or what it stands in."""
        decoding = Decoding(self._eos_ids, self._pad_id, sampling.max_tokens, sampling.temperature, sampling.top_p)
        was_training = model.training
        model.eval()
        try:
            for i, tokens in decode(model, prompts, seeds, decoding, self.token_budget):
                on_answer(i, tokens, None)
        finally:
            model.train(was_training)

    def _remember(
        self, request: Request, prompt_ids: TokenIds, completion_ids: TokenIds, logprobs: list[float] | None
    ) -> None:
        """Told of each answer before its completion is."""

    def close(self) -> None:
        del self.model
        gc.collect()
        if torch.cuda.is_available():
            torch.cuda.empty_cache()

    def _completion(self, num_prompt_tokens: int, opening: str, tokens: TokenIds) -> Completion:
        stopped = bool(tokens) and tokens[-1] in self._eos_ids
        text = self.tokenizer.decode(
            tokens[:-1] if stopped else tokens, skip_special_tokens=False, clean_up_tokenization_spaces=False
        )
        return Completion(
            text=f"{opening}{text}",
            num_prompt_tokens=num_prompt_tokens,
            num_completion_tokens=len(tokens),
            finish_reason="stop" if stopped else "length",
        )

    def _check_lengths(self, prompts: Sequence[TokenIds], sampling: Sampling) -> None:
        longest = max((len(p) for p in prompts), default=0)
        if self._context is not None and longest and longest + sampling.max_tokens > self._context:
            raise UsageError(
                f"policy {self.name}: a prompt of {longest} tokens and an answer of {sampling.max_tokens} do not fit "
                f"the model's context of {self._context}; lower max_prompt_tokens or max_response_tokens of "
                f"the policy or under rollout"
            )


def load_transformers(name: str, config: PolicyConfig) -> TransformersPolicy:
    """Load model and tokenizer to the GPU where there is one. Errors as `kevin.policy.load.load_policy`."""
    folder = model_folder(name, config.model, config.revision)
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder)
        model = AutoModelForCausalLM.from_pretrained(
            folder, dtype=config.dtype if config.dtype == "auto" else getattr(torch, config.dtype)
        )
    except (OSError, ValueError, ImportError, KeyError, RuntimeError, SafetensorError) as e:
        raise PolicyError(
            f"policies.{name}.model: cannot load the folder {folder}: {first_line(e)}. Give the folder of a causal "
            f"language model that is whole"
        ) from e
    prepare_template(tokenizer, name, config)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        fit_threads(model.num_parameters())
        model = model.to(cpu_dtype(model.dtype))  # type: ignore[arg-type]
    return TransformersPolicy(name, model.to(device), tokenizer)  # type: ignore[arg-type]


def affordable_tokens(model: PreTrainedModel) -> int:
    """Tokens whose keys and values take a share of a GPU's free memory; a plain number on a host."""
    if model.device.type != "cuda":
        return _HOST_TOKENS
    text = model.config.get_text_config()
    heads = getattr(text, "num_key_value_heads", None) or text.num_attention_heads
    width = getattr(text, "head_dim", None) or text.hidden_size // text.num_attention_heads
    token_bytes = 2 * text.num_hidden_layers * heads * width * model.dtype.itemsize
    free_bytes, _ = torch.cuda.mem_get_info(model.device)
    return max(_HOST_TOKENS // 16, min(_MAX_TOKENS, int(_CACHE_SHARE * free_bytes / token_bytes)))


def _eos_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    configured = model.generation_config.eos_token_id if model.generation_config is not None else None
    listed = configured if isinstance(configured, list) else [configured]
    return frozenset(i for i in (*listed, tokenizer.eos_token_id) if i is not None)


def fit_threads(num_parameters: int) -> None:
    """One thread for a model of a few million parameters: its operators are too small to share.

    Two threads gain little on an idle machine, and where another process wants a core they wait for each other: a step
    that takes 0.25 s alone was seen to take 8 s.
    """
    if num_parameters < _SMALL_PARAMETERS:
        torch.set_num_threads(1)


def _product_ns(dtype: torch.dtype) -> int:
    """The least time of some matrix products of this type on the CPU."""
    a, b = torch.ones(_ROWS, _WIDTH, dtype=dtype), torch.ones(_WIDTH, _WIDTH, dtype=dtype)
    times = []
    for _ in range(7):
        start = time.perf_counter_ns()
        torch.mm(a, b)
        times.append(time.perf_counter_ns() - start)
    return min(times)


@cache
def slowdown(dtype: torch.dtype) -> float:
    """Time of matrix products of this type over that of the same in float32, measured on this processor once."""
    return _product_ns(dtype) / _product_ns(torch.float32)


def cpu_dtype(wanted: torch.dtype) -> torch.dtype:
    """``wanted`` where this processor computes with it about as fast as with float32; float32 where it does not.

    A processor without native products of a narrow type emulates them, five times slower and worse.
    """
    if wanted == torch.float32 or slowdown(wanted) <= _FAST:
        return wanted
    log.info("%s is %.1f times slower than float32 on this processor: float32 it is", wanted, slowdown(wanted))
    return torch.float32
