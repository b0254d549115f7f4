"""Who is let onto a device's memory beside whom."""

from __future__ import annotations

from kevin.judge.device.lock import Admission, Need


def test_what_others_may_still_take_is_not_given_away() -> None:
    admission = Admission(lambda _: 100.0, small_bytes=5)
    first = Need(process=20, kept=30, passing=10)
    assert admission.fits(first)
    admission.enter(first)
    assert len(admission) == 1
    assert admission.fits(Need(20, 50, 10)), "what it is to keep is missing in what is free by now"
    assert not admission.fits(Need(20, 51, 10))
    assert admission.fits(Need(20, 51, 10), given_back=1)
    assert not admission.fits(Need(20, 41, 20)), "the largest passing need counts, once"
    admission.leave(first)
    assert admission.fits(Need(20, 51, 10))


def test_small_needs_overtake_and_are_not_asked_about() -> None:
    asked: list[float] = []
    admission = Admission(lambda enough: asked.append(enough) or 0.0, small_bytes=5)  # type: ignore[func-returns-value]
    large, small = admission.stand_in_line(), admission.stand_in_line()
    assert admission.is_next(large, Need(9, 9, 9))
    assert not admission.is_next(small, Need(9, 9, 9)) and admission.is_next(small, Need(1, 1, 1))
    assert admission.fits(Need(1, 0, 1)) and not asked
    assert not admission.fits(Need(1, 1, 1)) and asked == [3], "what is made anew is asked about"
    assert not admission.fits(Need(1, 1, 1), given_back=1, share=0.25) and asked[1:] == [8]
    admission.leave_line(large)
    assert admission.is_next(small, Need(9, 9, 9))
