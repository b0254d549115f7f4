"""Sampling from a tiny model: against transformers' own generate, against the distribution, and alone or in company."""

import pytest
import torch
from model_fixtures import random_model
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from kevin.core.config import PolicyConfig
from kevin.core.errors import DataError, PolicyError, UsageError
from kevin.core.types import Message
from kevin.policy import transformers as module
from kevin.policy.decode import Decoding, decode, draw, micro_batches
from kevin.policy.interface import Request, Sampling
from kevin.policy.load import load_policy, policy_identity
from kevin.policy.transformers import TransformersPolicy

pytestmark = pytest.mark.usefixtures("one_thread")

SPECIALS = ["<|start|>", "<|end|>", "<|pad|>"]
TEMPLATE = (
    "{% for m in messages %}<|start|>{{ m['role'] }}\n{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant\n{% endif %}"
)
CONTEXT = 256


def make_tokenizer():
    pieces = SPECIALS + sorted(pre_tokenizers.ByteLevel.alphabet())
    tokenizer = Tokenizer(models.BPE(vocab={p: i for i, p in enumerate(pieces)}, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="<|end|>", pad_token="<|pad|>")
    fast.add_special_tokens({"additional_special_tokens": ["<|start|>"]})
    fast.chat_template = TEMPLATE
    return fast


@pytest.fixture(scope="module")
def tokenizer():
    return make_tokenizer()


@pytest.fixture(scope="module")
def model(tokenizer):
    made = random_model(tokenizer, max_position_embeddings=CONTEXT).eval()
    with torch.random.fork_rng():
        torch.manual_seed(0)
        for p in made.parameters():
            torch.nn.init.normal_(p, std=0.2)
    return made


@pytest.fixture
def policy(model, tokenizer):
    return TransformersPolicy("tiny", model, tokenizer)


def ask(text, trajectory=0, turn=1, task_id="t"):
    return Request(
        conversation=(Message(role="user", content=text),), task_id=task_id, trajectory=trajectory, turn=turn
    )


REQUESTS = [ask("abc", k) for k in range(3)] + [ask("a much longer question", k, task_id="u") for k in range(3)]
SAMPLING = Sampling(temperature=1.0, max_tokens=24, seed=5)


def test_greedy_equals_generate_of_transformers(model, tokenizer, policy):
    texts = ["abc", "a much longer question", "x" * 40]
    ours = policy.complete([ask(t) for t in texts], Sampling(temperature=0, max_tokens=80))
    for text, completion in zip(texts, ours, strict=True):
        ids, _ = policy.encode((Message(role="user", content=text),))
        theirs = model.generate(torch.tensor([ids]), max_new_tokens=80, do_sample=False)[0, len(ids) :]
        stopped = theirs[-1] == tokenizer.eos_token_id
        assert completion.text == tokenizer.decode(theirs[:-1] if stopped else theirs)
        assert completion.num_completion_tokens == len(theirs)
        assert completion.num_prompt_tokens == len(ids)
        assert completion.finish_reason == ("stop" if stopped else "length")


def test_the_same_call_gives_the_same_answers_and_leaves_torchs_generators_alone(policy):
    state = torch.get_rng_state()
    first = policy.complete(REQUESTS, SAMPLING)
    assert torch.equal(torch.get_rng_state(), state)
    torch.manual_seed(123)
    assert policy.complete(REQUESTS, SAMPLING) == first
    assert policy.complete(REQUESTS, SAMPLING.model_copy(update={"seed": 6})) != first


def test_an_answer_does_not_depend_on_its_company(policy, model, tokenizer):
    together = policy.complete(REQUESTS, SAMPLING)
    alone = [policy.complete([r], SAMPLING)[0] for r in REQUESTS]
    small_batches = TransformersPolicy("tiny", model, tokenizer, token_budget=1).complete(REQUESTS, SAMPLING)
    assert together == alone == small_batches
    assert policy.complete(REQUESTS[::-1], SAMPLING) == together[::-1]
    assert policy.complete([], SAMPLING) == []


def test_stopped_and_cut_answers_are_told_apart(policy):
    completions = policy.complete([ask("abc", k) for k in range(60)], Sampling(temperature=1.5, max_tokens=60))
    reasons = {c.finish_reason for c in completions}
    assert reasons == {"stop", "length"}
    for c in completions:
        assert "<|end|>" not in c.text
        assert (c.num_completion_tokens == 60) or c.finish_reason == "stop"


def test_the_model_goes_back_to_the_mode_that_it_was_in(policy):
    policy.model.train()
    policy.complete(REQUESTS[:1], SAMPLING)
    assert policy.model.training
    policy.model.eval()


def test_a_template_that_opens_the_thought_is_made_whole(model):
    thinking = make_tokenizer()
    thinking.chat_template = TEMPLATE.replace("assistant\n", "assistant\n<think>\n")
    policy = TransformersPolicy("tiny", model, thinking)
    assert policy.complete([ask("a")], SAMPLING)[0].text.startswith("<think>\n")


def test_a_prompt_beyond_the_context_is_refused_before_any_work(policy):
    with pytest.raises(UsageError, match=f"context of {CONTEXT}; lower max_prompt_tokens"):
        policy.complete([ask("x" * 240)], SAMPLING)


def test_out_of_memory_halves_the_batch(policy, monkeypatch):
    from kevin.policy import decode as module

    whole, real = policy.complete(REQUESTS, SAMPLING), module._decode_batch
    sizes = []

    def small_device(model, prompts, *rest):
        sizes.append(len(prompts))
        if len(prompts) > 2:
            raise torch.OutOfMemoryError("full")
        return real(model, prompts, *rest)

    monkeypatch.setattr(module, "_decode_batch", small_device)
    assert policy.complete(REQUESTS, SAMPLING) == whole
    assert sizes[0] == 6
    assert max(sizes[1:]) == 3

    def no_device(*_):
        raise torch.OutOfMemoryError("full")

    monkeypatch.setattr(module, "_decode_batch", no_device)
    with pytest.raises(PolicyError, match="too little memory"):
        policy.complete(REQUESTS, SAMPLING)


class TestWhenAnAnswerIsTold:
    """Many tokens end an answer here, so that some answers are short and some are cut."""

    PROMPTS = [[10, 11, 12]] * 5 + [[20] * 7] * 3
    DECODING = Decoding(frozenset(range(3, 25)), 2, max_tokens=16)

    def decode(self, model, before_pass=lambda num_passes: None):
        """In the order of telling position, tokens and the number of forward passes so far."""
        told, num_passes = [], 0

        def count(*_):
            nonlocal num_passes
            num_passes += 1
            before_pass(num_passes)

        hook = model.register_forward_pre_hook(count)
        try:
            for i, tokens in decode(model, self.PROMPTS, range(8), self.DECODING, token_budget=65536):
                assert not torch.is_inference_mode_enabled()
                told.append((i, tokens, num_passes))
        finally:
            hook.remove()
        assert sorted(i for i, _, _ in told) == list(range(8))
        return told

    @pytest.mark.parametrize("selectable", [True, False])
    def test_it_is_told_once_and_before_the_next_token_of_a_longer_one(self, model, monkeypatch, selectable):
        from kevin.policy import decode as module

        real = module._new_cache
        monkeypatch.setattr(module, "_new_cache", lambda model: (real(model)[0], selectable))
        told = self.decode(model)
        for _, tokens, num_passes in told:
            assert num_passes == len(tokens)
            assert not self.DECODING.eos_ids & set(tokens[:-1])
            assert tokens[-1] in self.DECODING.eos_ids or len(tokens) == 16
        assert len({len(tokens) for _, tokens, _ in told}) > 3
        assert any(tokens[-1] not in self.DECODING.eos_ids for _, tokens, _ in told)

    def test_what_was_told_before_memory_ran_out_is_not_decoded_again(self, model, monkeypatch):
        from kevin.policy import decode as module

        whole = self.decode(model)
        batches, real = [], module._decode_batch

        def recording(model, prompts, *rest):
            batches.append(len(prompts))
            return real(model, prompts, *rest)

        def full_once(num_passes):
            if num_passes == 8:
                raise torch.OutOfMemoryError("full")

        monkeypatch.setattr(module, "_decode_batch", recording)
        told = self.decode(model, full_once)
        num_early = sum(num_passes < 8 for _, _, num_passes in told)
        assert 0 < num_early < 7
        assert batches == [8, (8 - num_early) // 2, (9 - num_early) // 2]
        assert {i: tokens for i, tokens, _ in told} == {i: tokens for i, tokens, _ in whole}


def test_a_sliding_window_model_decodes_as_generate_does(tokenizer):
    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    model = random_model(tokenizer, seed=1, **windows).eval()
    prompts = [list(range(10, 30)), list(range(40, 43))]
    greedy = Decoding(frozenset({1}), 2, max_tokens=20, temperature=0)
    ours = dict(decode(model, prompts, [0, 1], greedy, token_budget=65536))
    for i, prompt in enumerate(prompts):
        theirs = model.generate(torch.tensor([prompt]), max_new_tokens=20, do_sample=False)[0, len(prompt) :]
        assert ours[i] == theirs.tolist()


class TestDraw:
    def counts(self, logits, num=1000, **how):
        grid = (torch.arange(num, dtype=torch.float64) + 0.5) / num
        tokens = draw(torch.tensor([logits]).expand(num, -1), grid, **how)
        return torch.bincount(tokens, minlength=len(logits)).tolist()

    def test_it_follows_the_distribution(self):
        logits = torch.tensor([0.5, 0.25, 0.125, 0.125]).log().tolist()
        assert self.counts(logits, temperature=1.0, top_p=1.0) == [500, 250, 125, 125]
        # at temperature 1/2 probabilities are squared: 16 : 4 : 1 : 1
        assert self.counts(logits, 2200, temperature=0.5, top_p=1.0) == [1600, 400, 100, 100]

    def test_top_p_keeps_the_smallest_set_that_reaches_p(self):
        logits = torch.tensor([0.125, 0.5, 0.25, 0.125]).log().tolist()
        assert self.counts(logits, 900, temperature=1.0, top_p=0.7) == [0, 600, 300, 0]
        assert self.counts(logits, 900, temperature=1.0, top_p=0.5) == [0, 900, 0, 0]
        assert self.counts(logits, 900, temperature=1.0, top_p=1e-9) == [0, 900, 0, 0]

    def test_impossible_tokens_are_never_drawn(self):
        counts = self.counts([float("-inf"), 0.0, float("-inf")], temperature=1.0, top_p=1.0)
        assert counts == [0, 1000, 0]
        edge = draw(torch.tensor([[float("-inf"), 0.0]]), torch.zeros(1, dtype=torch.float64), 1.0, 1.0)
        assert edge.tolist() == [1]


def test_micro_batches_hold_to_the_budget_longest_first():
    lengths = [5, 90, 10, 80, 7]
    batches = list(micro_batches(lengths, max_tokens=10, token_budget=200))
    assert batches == [[1, 3], [2, 4, 0]]
    assert list(micro_batches([500], max_tokens=10, token_budget=200)) == [[0]]
    # what is left after some batches falls into the same batches again: a resumed run repeats the same arithmetic
    rest = [i for batch in batches[1:] for i in sorted(batch)]
    again = micro_batches([lengths[i] for i in sorted(rest)], max_tokens=10, token_budget=200)
    assert [sorted(sorted(rest)[i] for i in batch) for batch in again] == [sorted(b) for b in batches[1:]]


class TestLoad:
    @pytest.fixture
    def folder(self, model, tokenizer, tmp_path):
        model.save_pretrained(tmp_path / "m")
        tokenizer.save_pretrained(tmp_path / "m")
        return tmp_path / "m"

    def load(self, path, **changes):
        return load_policy("base", PolicyConfig(model=str(path), **changes))

    def test_a_saved_model_answers_as_before(self, folder, policy):
        loaded = self.load(folder)
        assert loaded.name == "base"
        assert loaded.complete(REQUESTS, SAMPLING) == policy.complete(REQUESTS, SAMPLING)
        assert loaded.count_tokens(REQUESTS[0].conversation) == len("<user\nabc>\n<assistant\n")
        loaded.close()

    @pytest.mark.parametrize(("slowdown", "dtype"), [(0.6, torch.bfloat16), (5.0, torch.float32)])
    def test_narrow_numbers_only_where_the_processor_is_fast_with_them(self, folder, monkeypatch, slowdown, dtype):
        monkeypatch.setattr(module, "slowdown", lambda narrow: slowdown)
        assert self.load(folder, dtype="bfloat16").model.dtype == dtype
        assert self.load(folder, dtype="float32").model.dtype == torch.float32

    def test_the_slowdown_is_measured(self, monkeypatch):
        taken = {torch.float32: 100, torch.bfloat16: 460}
        monkeypatch.setattr(module, "_product_ns", taken.__getitem__)
        module.slowdown.cache_clear()
        assert module.cpu_dtype(torch.bfloat16) == torch.float32
        module.slowdown.cache_clear()

    def test_a_missing_folder(self, tmp_path, monkeypatch):
        with pytest.raises(DataError, match=r"policies\.base\.model: no folder .*nowhere; make it"):
            self.load(tmp_path / "nowhere")
        monkeypatch.chdir(tmp_path)
        (tmp_path / "results").mkdir()
        with pytest.raises(DataError, match="no folder results/base_model"):
            self.load("results/base_model")
        with pytest.raises(DataError, match="not a model folder"):
            self.load(tmp_path)

    def test_damaged_weights(self, folder):
        (folder / "model.safetensors").write_bytes(b"not weights")
        with pytest.raises(PolicyError, match="cannot load the folder"):
            self.load(folder)

    def test_no_chat_template(self, folder):
        (folder / "chat_template.jinja").unlink()
        with pytest.raises(UsageError, match="has no chat template"):
            self.load(folder)

    def test_what_a_policy_sets_in_its_template_is_kept_by_what_is_trained_from_it(self, folder, tmp_path):
        """As Qwen3's: it opens a thought, or an empty one."""
        thought = "{% if thinking is defined and thinking is false %}<think>\n</think>\n{% else %}<think>\n{% endif %}"
        (folder / "chat_template.jinja").write_text(TEMPLATE + thought)
        thinking = self.load(folder)
        assert thinking.encode(ask("a").conversation)[1] == "<think>\n"
        config = PolicyConfig(model=str(folder), template={"thinking": False})
        assert policy_identity(config) != policy_identity(PolicyConfig(model=str(folder)))
        silent = load_policy("base", config)
        silent.model.save_pretrained(tmp_path / "trained")
        silent.tokenizer.save_pretrained(tmp_path / "trained")
        for policy in (silent, self.load(tmp_path / "trained")):
            tokens, opening = policy.encode(ask("a").conversation)
            assert opening == "" and policy.tokenizer.decode(tokens).endswith("<think>\n</think>\n")

    def test_the_identity_follows_weights_and_settings_but_not_the_label(self, folder):
        config = PolicyConfig(model=str(folder))
        before = policy_identity(config)
        assert policy_identity(config.model_copy(update={"label": "new name"})) == before
        assert policy_identity(config.model_copy(update={"dtype": "bfloat16"})) != before
        (folder / "model.safetensors").write_bytes(b"retrained")
        assert policy_identity(config) != before
