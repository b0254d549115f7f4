"""How long an answer may be, and when."""

from __future__ import annotations

from kevin.core.config import Study


def response_tokens(study: Study, step: int) -> int:
    """The longest answer that is allowed in a step."""
    train = study.train
    raised_at, raised = train.raise_response_at_step, train.raised_response_tokens
    if raised_at is not None and raised is not None and step >= raised_at:
        return raised
    found = study.rollout.max_response_tokens
    assert found is not None, "every length is a number in what kevin.core.lengths.with_lengths gives"
    return found


def longest_response(study: Study) -> int:
    """The longest answer of the whole run, by which the loss is divided: so raising it does not change the scale."""
    return max(response_tokens(study, 1), study.train.raised_response_tokens or 0)
