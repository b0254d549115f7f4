"""Who is judged when: one place in work, a queue behind it, clients that come, go, and ask for the same."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from cli_fixtures import GOOD, REFERENCE
from serve_fixtures import Engine

from kevin.api.pairs import make_task
from kevin.core.candidate import make_kernel
from kevin.core.errors import HarnessError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, Task
from kevin.serve import desk as desk_module
from kevin.serve.desk import Desk
from kevin.serve.messages import Refusal
from kevin.serve.settings import ServeSettings

PROTOCOL = JudgeProtocol()


class Patient(Engine):
    waits = True


def pair(number: int) -> tuple[Task, Kernel]:
    return make_task(REFERENCE), make_kernel(f"// {number}\n{GOOD}", "", "auto", PROTOCOL)


def on_a_desk(test: Callable[[Desk, Any], Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """A test of a desk with one place in work and room for three pairs, and of its engine."""

    def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(desk_module, "Engine", Patient)
        monkeypatch.setattr(desk_module, "MAX_IN_FLIGHT", 1)

        async def start() -> None:
            desk = Desk(ServeSettings(protocol=PROTOCOL, store=tmp_path, max_pairs=3))
            await desk.start()
            async with asyncio.timeout(20):
                await test(desk, desk._engine)
            await desk.close()

        asyncio.run(start())

    return run


async def settled(condition: Callable[[], bool]) -> None:
    while not condition():
        await asyncio.sleep(0.01)


@on_a_desk
async def test_what_a_client_that_went_away_left_in_the_queue_is_never_judged(desk: Desk, engine: Engine) -> None:
    first, gone, last = (asyncio.create_task(desk.answers([pair(i)])) for i in range(3))
    await settled(lambda: len(engine.asked) == 1 and desk.num_open == 3)
    gone.cancel()
    await settled(lambda: desk.num_open == 2)
    engine.finish(pair(0))
    await first
    await settled(lambda: len(engine.asked) == 2)
    assert pair(1)[1].digest not in engine.asked
    engine.finish(pair(2))
    assert "incorrect" in str(await last) and desk.num_open == 0


@on_a_desk
async def test_what_another_client_waits_for_stays(desk: Desk, engine: Engine) -> None:
    first, gone, other = (asyncio.create_task(desk.answers([pair(i)])) for i in (0, 1, 1))
    await settled(lambda: len(engine.asked) == 1 and desk.num_open == 2)
    gone.cancel()
    await asyncio.sleep(0.05)
    engine.finish(pair(0))
    await first
    await settled(lambda: len(engine.asked) == 2)
    engine.finish(pair(1))
    assert "incorrect" in str(await other)


@on_a_desk
async def test_a_flood_of_clients_that_go_away_makes_no_room_while_its_pair_is_in_work(
    desk: Desk, engine: Engine
) -> None:
    gone = asyncio.create_task(desk.answers([pair(0)]))
    await settled(lambda: len(engine.asked) == 1)
    gone.cancel()
    await asyncio.sleep(0.05)
    assert desk.num_open == 1
    with pytest.raises(Refusal) as refused:
        await desk.answers([pair(i) for i in range(1, 4)])
    assert refused.value.status == 429
    engine.finish(pair(0))
    await settled(lambda: desk.num_open == 0)
    assert "incorrect" in str(await desk.answers([pair(0)])), "from memory"


@on_a_desk
async def test_when_it_stops_the_queue_is_turned_away_and_work_is_finished(desk: Desk, engine: Engine) -> None:
    working, waiting = (asyncio.create_task(desk.answers([pair(i)])) for i in range(2))
    await settled(lambda: len(engine.asked) == 1 and desk.num_open == 2)
    await desk.stop()
    [refused] = await waiting
    assert isinstance(refused, Refusal) and (refused.status, refused.code) == (503, "stopping")
    with pytest.raises(Refusal, match="the server stops"):
        await desk.answers([pair(2)])
    engine.finish(pair(0))
    assert "incorrect" in str(await working)


@on_a_desk
async def test_a_harness_failure_is_told_and_may_be_asked_again(desk: Desk, engine: Engine) -> None:
    failing = asyncio.create_task(desk.answers([pair(0)]))
    await settled(lambda: len(engine.asked) == 1)
    engine.asked.popitem()[1].set_exception(HarnessError("the GPU is gone"))
    [refused] = await failing
    assert isinstance(refused, Refusal) and (refused.status, refused.code) == (503, "no_verdict")
    assert refused.retry_after_s and "the GPU is gone" in refused.message
    again = asyncio.create_task(desk.answers([pair(0)]))
    await settled(lambda: len(engine.asked) == 1)
    engine.finish(pair(0))
    assert "incorrect" in str(await again)
