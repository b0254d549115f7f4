"""THE loop: m trajectories x n turns of every task, a turn of all of them at a time (arXiv 2507.11948, section 3).

A turn of all trajectories is asked for, parsed and judged together (`TurnPlayer`).
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from kevin.core.dialogue import Parsed, conversation, feedback, parse_completion, verdict_feedback
from kevin.core.errors import HarnessError, TaskError
from kevin.core.progress import Progress
from kevin.core.types import Completion, Kernel, Outcome, Task, Turn, Verdict, digest
from kevin.policy.interface import Policy, Request
from kevin.rollout.beside import BesideJudge
from kevin.rollout.checkpoint import Checkpoint, Checkpoints
from kevin.rollout.search import Search, Trajectories, shuffled_feedback
from kevin.rollout.settings import Histories, Judge, Place, RolloutSettings, SharingJudge, TurnTiming, sum_seconds

logger = logging.getLogger(__name__)

_DEVICE_STAGES = ("check", "time")
"""Stages of judging in which a kernel runs."""

Shown = Callable[[Place], Sequence[Turn]]
"""The earlier turns that stand in a place's prompt, in their order there."""


def refine(
    tasks: Sequence[Task],
    policy: Policy,
    judge: Judge,
    settings: RolloutSettings,
    checkpoint: Path | Sequence[Path] | None = None,
    *,
    progress: bool = True,
    identity: Mapping[str, Any] | None = None,
    on_timing: Callable[[TurnTiming], None] | None = None,
    beside: bool = False,
    search: Search | None = None,
    starts: Mapping[str, Turn] | None = None,
    sets: Sequence[Sequence[Task]] = (),
) -> list[Turn]:
    """Roll out and return all turns, ordered by task (as given), trajectory, turn.

    A trajectory is shorter than n turns when its prompt outgrew the budget or the policy's recording ended, and ends in
    a turn with outcome None when the harness failed on it. ``policy.complete`` is called exactly n times.

    Args:
        checkpoint: folder that makes the run resumable, of several sets one for each: started again with the same
            arguments it repeats nothing that it holds, and tries the harness's failures again. An interrupt at any
            moment leaves it usable.
        identity: what else a resume must agree on, e.g. the policy's settings and files, and the judging protocol.
        on_timing: told where the time of each turn went.
        beside: judge answers while others are being generated; policy and judge must not share a device.
        search: how the trajectories of a task depend on each other; not at all by default.
        starts: by task id a turn that all its trajectories have behind them, and that is none of theirs.
        sets: the same tasks, in sets of which each draws what it would draw by itself.

    Raises:
        DataError: the checkpoint holds answers for other tasks, of another policy or under other settings.
        TaskError: a task's first prompt is over the budget.
        PolicyError: the policy failed; what it had answered is in the checkpoint.
    """
    search, starts = search or Trajectories(), starts or {}
    what = dict(identity or {})
    if starts:
        what["starts"] = {task: digest("start", t.model_dump_json()) for task, t in starts.items()}
    sets = sets or (tasks,)
    folders = [checkpoint] if isinstance(checkpoint, Path) else checkpoint or []
    opened = [
        Checkpoint(folder, rollout_identity(own, policy.name, settings, search, what))
        for folder, own in zip(folders, sets, strict=bool(folders))
    ]
    saved = Checkpoints(opened, sets) if opened else None
    player = TurnPlayer(
        tasks,
        policy,
        judge,
        settings,
        checkpoint=saved,
        show_progress=progress,
        on_timing=on_timing,
        beside=beside,
        sets=sets,
    )
    is_coupled = search.is_coupled or settings.feedback == "shuffled"
    histories: dict[Place, list[Turn]] = {(t.id, k): [] for t in tasks for k in range(settings.num_trajectories)}

    def shown(place: Place) -> Sequence[Turn]:
        start = starts.get(place[0])
        known = histories if start is None else {**histories, place: [start, *histories[place]]}
        return search.shown(place, known, settings.history)

    for turn in range(1, settings.num_turns + 1):
        before = saved.turns(turn) if saved and is_coupled else {}
        played = player.play(turn, histories, shown)
        if saved and is_coupled:
            saved.forget_changed(turn, before, played)
        for t in shuffled_feedback(played, settings.seed) if settings.feedback == "shuffled" else played:
            histories[t.task_id, t.trajectory].append(t)
        if turn < settings.num_turns:
            histories = search.after(turn, histories, settings)
    return [turn for history in histories.values() for turn in history]


def rollout_identity(
    tasks: Sequence[Task], policy: str, settings: RolloutSettings, search: Search, identity: Mapping[str, Any]
) -> dict[str, Any]:
    """What a rollout depends on, as nested JSON values under the configuration's keys. ``identity``: what else."""
    rollout = settings.model_dump(mode="json")
    coupled = {} if search.method == "trajectories" else {"search": search.model_dump(mode="json")}
    return {
        "policy": policy,
        **{key: rollout.pop(key) for key in ("dialect", "language", "seed")},
        "rollout": rollout,
        "tasks": {t.id: t.digest for t in tasks},
        **coupled,
        **identity,
    }


class TurnPlayer:
    """Tasks, policy, judge and settings of a rollout; `play` takes all trajectories one turn further."""

    def __init__(
        self,
        tasks: Sequence[Task],
        policy: Policy,
        judge: Judge,
        settings: RolloutSettings,
        *,
        checkpoint: Checkpoints | None = None,
        show_progress: bool = True,
        on_timing: Callable[[TurnTiming], None] | None = None,
        beside: bool = False,
        sets: Sequence[Sequence[Task]] = (),
    ) -> None:
        """``beside``: judge answers while others are being generated; policy and judge must not share a device.

        ``sets``: as of `refine`.
        """
        self._beside, self._sets = beside, sets or (tasks,)
        self._tasks = {t.id: t for t in tasks}
        if len(self._tasks) < len(tasks):
            raise TaskError("a rollout's tasks must have different ids")
        self._policy, self._judge, self._settings = policy, judge, settings
        self._checkpoint, self._show_progress, self._on_timing = checkpoint, show_progress, on_timing
        self._counted: set[str] = set()
        """Keys of the verdicts whose seconds were said of a turn."""

    def play(self, turn: int, histories: Histories, shown: Shown) -> list[Turn]:
        """Turn number ``turn`` of every trajectory that has ``turn - 1`` judged turns behind it.

        A trajectory has no such turn when it ended before, when its prompt no longer fits (logged), or when the policy
        has nothing to say. Without a verdict the turn's outcome is None. What the checkpoint holds is not done again.

        Raises:
            TaskError: a task's first prompt is over the budget.
            PolicyError: the policy failed.
            HarnessError: the judge failed as a whole.
        """
        start = time.monotonic()
        stored = self._checkpoint.turns(turn) if self._checkpoint else {}
        going = [p for p, past in histories.items() if len(past) == turn - 1 and all(t.outcome for t in past)]
        settled = {p: stored[p] for p in going if p in stored and stored[p].outcome is not None}
        with BesideJudge(self._judge) if self._beside else nullcontext() as beside:
            places = [p for p in going if p not in settled]
            completions, fresh, generate_s = self._answers(turn, shown, places, beside)
            beside_s = beside.busy_s() if beside else 0.0
            played, verdicts, judge_s = self._judged(turn, completions, beside)
        turns = {**settled, **played}
        ordered = [turns[p] for p in going if p in turns]
        if self._checkpoint and (played or not stored):
            self._checkpoint.write_turns(turn, ordered)
        if played:
            new = self._new(verdicts)
            timing = TurnTiming(
                turn=turn,
                num_answers=len(fresh),
                num_kernels=sum(t.kernel is not None for t in played.values()),
                num_prompt_tokens=sum(c.num_prompt_tokens for c in fresh),
                num_completion_tokens=sum(c.num_completion_tokens for c in fresh),
                generate_s=generate_s,
                judge_s=judge_s,
                device_s=sum(v.seconds.get(stage, 0.0) for v in verdicts for stage in _DEVICE_STAGES),
                num_new=len(new),
                stages_s=sum_seconds([v.seconds for v in new]),
                device_name=verdicts[0].device_name if verdicts else None,
                beside_s=beside_s,
                total_s=time.monotonic() - start,
            )
            if self._on_timing is not None:
                self._on_timing(timing)
            self._log(timing, ordered)
        return ordered

    def _new(self, verdicts: Sequence[Verdict]) -> list[Verdict]:
        """Those that were worked out for the turn, each once."""
        made = self._judge.made if isinstance(self._judge, SharingJudge) else lambda _: True
        new = {v.key: v for v in verdicts if v.key not in self._counted and made(v.key)}
        self._counted |= new.keys()
        return list(new.values())

    def _answers(
        self, turn: int, shown: Shown, places: Sequence[Place], beside: BesideJudge | None
    ) -> tuple[dict[Place, Completion], list[Completion], float]:
        """Completions by place, those that were not in the checkpoint, and the seconds that these took.

        The policy is called exactly once, also without requests: policies that generate collectively stay in step.
        """
        wanted = set(places)
        kept = self._checkpoint.completions(turn) if self._checkpoint else {}
        completions = {p: c for p, c in kept.items() if p in wanted}
        for place, completion in completions.items():
            self._hand_over(place, completion, beside)
        requests = [r for p in places if p not in completions and (r := self._request(turn, p, shown(p)))]
        if requests and isinstance(self._judge, SharingJudge):
            asked = {r.task_id: self._tasks[r.task_id] for r in requests}
            self._judge.expect(list(asked.values()), self._settings.dialect, len(requests))
        start = time.monotonic()
        with self._bar(len(requests), f"turn {turn}/{self._settings.num_turns}: generate", "answers") as bar:

            def keep(i: int, completion: Completion) -> None:
                if self._checkpoint:
                    self._checkpoint.add_completion(turn, _place(requests[i]), completion)
                self._hand_over(_place(requests[i]), completion, beside)
                if bar is not None:
                    bar.update()

            sampling = self._settings.sampling_of(turn, self._sets)
            answers = self._policy.complete(requests, sampling, keep)
        generate_s = time.monotonic() - start
        for request, answer in zip(requests, answers, strict=True):
            if answer is not None:
                completions[_place(request)] = answer
        ordered = {p: completions[p] for p in places if p in completions}
        return ordered, [a for a in answers if a is not None], generate_s

    def _hand_over(self, place: Place, completion: Completion, beside: BesideJudge | None) -> None:
        """Let the judge begin with an answer, as far as it may while others are still being generated."""
        if (kernel := self._parse(completion).kernel) is None:
            return
        if beside is not None:
            beside.add(place, self._tasks[place[0]], kernel)
        elif isinstance(self._judge, SharingJudge):
            self._judge.build_ahead(self._tasks[place[0]], kernel)

    def _judged(
        self, turn: int, completions: Mapping[Place, Completion], beside: BesideJudge | None
    ) -> tuple[dict[Place, Turn], list[Verdict], float]:
        """Turns by place, the verdicts, and the seconds that these took, or were still waited for."""
        parsed = {p: self._parse(c) for p, c in completions.items()}
        pairs: dict[Place, tuple[Task, Kernel]] = {
            p: (self._tasks[p[0]], a.kernel) for p, a in parsed.items() if a.kernel
        }
        start = time.monotonic()
        if beside is not None:
            for place, pair in pairs.items():  # a policy need not tell of each answer on the way
                beside.add(place, *pair)
            verdicts = beside.results()
        else:
            if pairs and isinstance(self._judge, SharingJudge):
                self._judge.all_written(list(pairs.values()))
            verdicts = dict(zip(pairs, self._judge(list(pairs.values())) if pairs else [], strict=True))
        judge_s = time.monotonic() - start
        turns = {p: self._turn(turn, p, completions[p], parsed[p], verdicts.get(p)) for p in completions}
        return turns, [v for v in verdicts.values() if isinstance(v, Verdict)], judge_s

    def _request(self, turn: int, place: Place, past: Sequence[Turn]) -> Request | None:
        """None when the prompt of a later turn no longer fits."""
        s = self._settings
        try:
            messages = conversation(
                self._tasks[place[0]],
                past,
                dialect=s.dialect,
                language=s.language,
                count_tokens=self._policy.count_tokens,
                max_prompt_tokens=s.max_prompt_tokens,
            )
        except TaskError as e:
            if not past:
                raise
            logger.warning("trajectory %d ends before turn %d: %s", place[1], turn, e)
            return None
        return Request(conversation=messages, task_id=place[0], trajectory=place[1], turn=turn)

    def _parse(self, completion: Completion) -> Parsed:
        """An answer that ran into the limit holds no kernel: what stands in it may be an unfinished thought."""
        if completion.finish_reason == "length":
            limit = self._settings.max_response_tokens
            problem = f"the answer was too long, it was cut off at {limit} tokens. Think less and write shorter code."
            return Parsed(kernel=None, summary="", problem=problem)
        return parse_completion(completion.text, self._settings.dialect, self._settings.language)

    def _turn(
        self, turn: int, place: Place, completion: Completion, parsed: Parsed, result: Verdict | HarnessError | None
    ) -> Turn:
        chars, with_profile = self._settings.max_feedback_chars, self._settings.profile_feedback
        evaluation: dict[str, Any]
        if isinstance(result, Verdict):
            told = verdict_feedback(result, max_chars=chars, with_profile=with_profile)
            if parsed.num_candidates > 1 and not result.outcome.compiles:
                told += f"\nOf your {parsed.num_candidates} code blocks one was judged: write the whole file in one."
            evaluation = {
                "outcome": result.outcome,
                "reason": result.reason,
                "feedback": told,
                "verdict_key": result.key,
                "speedup": result.speedup,
            }
        elif isinstance(result, HarnessError):
            logger.warning("no verdict for %s, trajectory %d, turn %d: %s", *place, turn, result)
            evaluation = {"outcome": None, "reason": type(result).__name__}
        else:
            problem = parsed.problem or "the answer holds no kernel"
            evaluation = {
                "outcome": Outcome.PARSE_ERROR,
                "reason": "answer_too_long" if completion.finish_reason == "length" else "no_kernel_found",
                "feedback": feedback(Outcome.PARSE_ERROR, problem, None, max_chars=chars),
            }
        return Turn(
            task_id=place[0],
            trajectory=place[1],
            turn=turn,
            completion=completion.text,
            kernel=parsed.kernel,
            summary=parsed.summary,
            num_prompt_tokens=completion.num_prompt_tokens,
            num_completion_tokens=completion.num_completion_tokens,
            finish_reason=completion.finish_reason,
            **evaluation,
        )

    def _bar(self, total: int, desc: str, unit: str) -> Any:
        return Progress(total, desc, unit) if self._show_progress and total else nullcontext()

    def _log(self, timing: TurnTiming, turns: Sequence[Turn]) -> None:
        speedups = [t.speedup for t in turns if t.speedup is not None]
        best = f", fastest {max(speedups):.2f}x" if speedups else ""
        logger.info(
            "turn %d/%d: of %d answers %d compile and %d are correct%s; generated in %.1f s, judged in %.1f s (%d new)",
            timing.turn,
            self._settings.num_turns,
            len(turns),
            sum(t.outcome is not None and t.outcome.compiles for t in turns),
            len(speedups),
            best,
            timing.generate_s,
            timing.judge_s,
            timing.num_new,
        )


def _place(request: Request) -> Place:
    return request.task_id, request.trajectory
