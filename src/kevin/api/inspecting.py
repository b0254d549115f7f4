"""``python -m kevin.api.inspecting SECONDS``: reads off what references take and give, one line of JSON each."""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from kevin.core.errors import TaskError
from kevin.core.heavy import import_torch
from kevin.core.texts import strict_json
from kevin.tasks import format as references
from kevin.tasks.format import inspect_task


def main(timeout_s: float) -> None:
    """Answer every line of standard input until it ends; what references print goes to standard error."""
    import_torch()
    import torch

    torch.set_num_threads(1)
    questions, answers = os.fdopen(os.dup(0)), os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(2, 1)
    references.LIMIT_S = timeout_s
    answers.write("ready\n")
    for line in questions:
        asked = json.loads(line)
        try:
            spec = inspect_task(asked["source"], asked["name"])
            told: dict[str, Any] = {"spec": spec.model_dump(mode="json")}
        except TaskError as e:
            told = {"error": str(e)}
        answers.write(strict_json(told) + "\n")


if __name__ == "__main__":
    main(float(sys.argv[1]))
