"""Drafts from earlier answers: what an engine that checks them is handed."""

from types import SimpleNamespace

import numpy as np
import pytest

from kevin.policy import drafts
from kevin.policy.drafts import BackoffDrafts, drafting

MAX_LEN = 400


def proposer(num_tokens=16):
    return BackoffDrafts(
        SimpleNamespace(
            speculative_config=SimpleNamespace(num_speculative_tokens=num_tokens),
            model_config=SimpleNamespace(max_model_len=MAX_LEN),
        )
    )


def propose(drafter, *rows):
    """``rows``: tokens so far, and how many of them were sampled in the last step."""
    table = np.zeros((len(rows), MAX_LEN), dtype=np.int32)
    for i, (tokens, _) in enumerate(rows):
        table[i, : len(tokens)] = tokens
    sampled = [tokens[len(tokens) - num_new :] for tokens, num_new in rows]
    return drafter.propose(sampled, np.array([len(tokens) for tokens, _ in rows]), table, slot_mappings=None)


def generate(drafter, prompt, answer):
    """Steps in which an engine would have sampled ``answer``: one token each, and what the draft had right."""
    tokens, steps, draft = list(prompt), 0, []
    while len(tokens) < len(prompt) + len(answer):
        rest = answer[len(tokens) - len(prompt) :]
        num_right = next((i for i, t in enumerate(draft) if i >= len(rest) or t != rest[i]), len(draft))
        new = rest[: num_right + 1]
        tokens += new
        steps += 1
        [draft] = propose(drafter, (tokens, len(new)))
    return steps


def test_what_was_generated_before_is_drafted_whole():
    drafter, answer = proposer(), list(range(100, 300))
    assert generate(drafter, [1, 2], answer) == len(answer)
    steps = generate(drafter, [3, 4], answer)
    assert steps <= 4 + -(-len(answer) // 17)
    [draft] = propose(drafter, ([7, *answer[:50]], 1))
    assert draft == answer[50:66]


def test_an_answer_that_goes_another_way_is_drafted_on_after_the_change():
    drafter, answer = proposer(), list(range(100, 300))
    generate(drafter, [1], answer)
    changed = [*answer[:80], 7, *answer[81:]]
    assert generate(drafter, [1], changed) < len(answer) / 6


def test_the_longest_known_stretch_decides():
    drafter = proposer(1)
    long, short = [1, 2, 3, 4, 5, 6], [9, 9, 9, 4, 5, 6]
    propose(drafter, ([*long, 50], 1), ([*short, 60], 1), ([*short, 60], 1))
    assert propose(drafter, (long, 1), (short, 1), ([8, 8, 4, 5, 6], 1)) == [[50], [60], [60]]


def test_what_followed_most_often_of_late_is_drafted():
    drafter = proposer(1)
    for token in (50, 50, 60):
        propose(drafter, ([1, 2, 3, token], 1))
    assert propose(drafter, ([1, 2, 3], 1)) == [[50]]
    for _ in range(2):
        propose(drafter, ([1, 2, 3, 60], 1))
    assert propose(drafter, ([1, 2, 3], 1)) == [[60]]


def test_nothing_is_drafted_that_is_unknown_or_beyond_the_context():
    drafter, answer = proposer(), list(range(100, 200))
    generate(drafter, [0], answer)
    assert propose(drafter, ([900, 901, 902, 903], 1)) == [[]]
    assert propose(drafter, (answer[:30], 0)) == [[]]  # a prompt that is still being read
    for room in (3, 0):
        full = [*[0] * (MAX_LEN - 31 - room), *answer[:30]]
        assert propose(drafter, (full, 1)) == [answer[30 : 30 + room]]
    assert propose(drafter, ([*full, 7], 1)) == [[]]


def test_its_memory_is_bounded_and_what_was_displaced_is_not_taken_for_another(monkeypatch):
    monkeypatch.setattr(drafts, "_PLACE_BITS", 5)
    drafter, answer = proposer(), list(range(1, MAX_LEN - 1))
    size = drafter._known.size
    generate(drafter, [0], answer)
    assert drafter._known.size == size == 4 * 32
    for at in range(3, len(answer), 7):  # most are forgotten: then nothing is drafted, or what the answer went on with
        [draft] = propose(drafter, (answer[:at], 1))
        assert draft == answer[at : at + len(draft)]
    assert propose(drafter, (answer[:-1], 1)) == [answer[-1:]]


def test_requests_are_drafted_as_they_would_be_alone():
    together, alone = proposer(), [proposer() for _ in range(3)]
    answers = [[*range(start, start + 90)] for start in (100, 200, 300)]
    for drafter, answer in zip(alone, answers, strict=True):
        generate(drafter, [0], answer)
        generate(together, [0], answer)
    rows = [(answer[:at], 1) for answer, at in zip(answers, (40, 2, 85), strict=True)]
    expected = [propose(drafter, row)[0] for drafter, row in zip(alone, rows, strict=True)]
    assert propose(together, *rows) == expected and [len(d) for d in expected] == [16, 0, 5]
    assert propose(together, rows[0], (rows[1][0], 0), rows[2]) == expected


def test_the_engine_is_told_where_drafts_come_from():
    assert drafting(0) == {}
    settings = drafting(8)["speculative_config"]
    module, _, name = settings["model"].rpartition(".")
    assert settings["num_speculative_tokens"] == 8 and getattr(pytest.importorskip(module), name) is BackoffDrafts
