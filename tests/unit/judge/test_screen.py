"""The screen says what it said before the judge was last changed. What is judged: the attacks' tests compare it."""

from __future__ import annotations

import pytest
from stored_verdicts import hits_of, kernel_of, read

from kevin.core.types import Kernel
from kevin.judge.screen import screen


def test_what_the_screen_says_of_every_attack_and_control() -> None:
    lines = list(read().values())
    assert len(lines) > 150
    assert [hits_of(kernel_of(line)) for line in lines] == [line["hits"] for line in lines]


@pytest.mark.parametrize("call", ['system("ls")', 'system ("ls")', 'system\n("ls")', 'std::system /* */ ("ls")'])
def test_a_forbidden_call_is_seen_however_it_is_spaced(call: str) -> None:
    source = f'#include <cstdlib>\nextern "C" void launch(const float* x, float* out) {{ {call}; }}\n'
    assert any(hit.rule == "harness_access" for hit in screen(Kernel(dialect="c_abi", language="cpp", source=source)))
