"""The screen says what it said before the judge was last changed. What is judged: the attacks' tests compare it."""

from __future__ import annotations

from stored_verdicts import hits_of, kernel_of, read


def test_what_the_screen_says_of_every_attack_and_control() -> None:
    lines = list(read().values())
    assert len(lines) > 150
    assert [hits_of(kernel_of(line)) for line in lines] == [line["hits"] for line in lines]
