"""What a person watches: metrics.jsonl, TensorBoard scalars and one line a step."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kevin.core.errors import DataError
from kevin.core.files import append_line, check_space, write_text
from kevin.core.texts import split_lines, strict_json

logger = logging.getLogger(__name__)

TIMES = "seconds"
"""Key of the one part of a record that differs between equal runs: where the step's time went."""


class MetricsLog:
    """One JSON object a step in ``folder/metrics.jsonl``, the same for TensorBoard in ``folder/tensorboard``."""

    def __init__(self, folder: Path, first_step: int) -> None:
        """Steps from ``first_step`` on that a killed run logged are dropped: they are made again."""
        self.path = folder / "metrics.jsonl"
        self.records = [r for r in read_metrics(self.path) if r["step"] < first_step] if self.path.exists() else []
        write_text(self.path, "".join(strict_json(r) + "\n" for r in self.records))
        check_space(self.path)  # TensorBoard's files are written in a thread, which could only print what goes wrong
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"), purge_step=first_step, flush_secs=10)

    def add(self, record: dict[str, Any]) -> None:
        self.records.append(record)
        check_space(self.path)
        append_line(self.path, strict_json(record))
        for key, value in flat(record).items():
            if key != "step":
                self._writer.add_scalar(_tag(key), value, record["step"])
        self._writer.flush()

    @property
    def elapsed_s(self) -> float:
        """Of the steps so far, without pauses between runs."""
        return float(sum(r[TIMES]["step"] for r in self.records))

    def close(self) -> None:
        self._writer.close()


def read_metrics(path: Path) -> list[dict[str, Any]]:
    """Records in the order of steps; a last line that a kill cut short is left out. Raises DataError for another."""
    records: list[dict[str, Any]] = []
    text = path.read_text("utf-8")
    found = split_lines(text)
    for number, line in enumerate(found, start=1):
        try:
            records.append(json.loads(line))
        except ValueError:
            if number == len(found) and not text.endswith("\n"):
                break
            raise DataError(f"{path}, line {number}: not a JSON object") from None
    return records


def flat(record: Mapping[str, Any]) -> dict[str, float]:
    """Numbers by key; those of a nested mapping as ``outer/inner``."""
    result: dict[str, float] = {}
    for key, value in record.items():
        if isinstance(value, Mapping):
            result |= {f"{key}/{inner}": v for inner, v in flat(value).items()}
        elif isinstance(value, int | float):
            result[key] = value
    return result


def _tag(key: str) -> str:
    return key if "/" in key else f"train/{key}"


_LEAST_JUDGING_S = 0.01
"""Of one kernel, far below what building and timing it takes; a verdict is read in less."""


def progress_line(record: Mapping[str, Any], num_steps: int, elapsed_s: float) -> str:
    """``step 3/12: score 1.21, 64 % correct, 2.1x, 15,000 tokens/s, 160 kernels/min, 2 min left``.

    No pace is told of kernels whose verdicts the store knew.
    """
    seconds = record[TIMES]
    left = elapsed_s / record["step"] * (num_steps - record["step"])
    parts = [f"score {record['score']:.2f}" if "score" in record else "nothing judged"]
    if "correct" in record:
        parts.append(f"{100 * record['correct']:.0f} % correct")
    if record.get("correct") == 0 and "compiled" in record:
        parts.append(f"{100 * record['compiled']:.0f} % compile")
    if "speedup" in record:
        parts.append(f"{record['speedup']:.2f}x")
    if seconds["generate"] > 0:
        parts.append(f"{record['num_completion_tokens'] / seconds['generate']:,.0f} tokens/s")
    if (judge_s := seconds["judge"] + seconds.get("beside", 0.0)) > _LEAST_JUDGING_S * record["num_kernels"]:
        parts.append(f"{60 * record['num_kernels'] / judge_s:.0f} kernels/min")
    parts.append(f"about {left / 60:.0f} min left" if left >= 90 else f"about {left:.0f} s left")
    return f"step {record['step']}/{num_steps}: {', '.join(parts)}"
