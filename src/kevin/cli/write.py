"""`kevin write`: a policy asked for one module of a person's own."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

import typer

from kevin.cli.options import ConfigOption, DeviceOption, device_config, folder

log = logging.getLogger(__name__)

EXIT_NOTHING_VERIFIED = 4


def write(
    module: Annotated[
        Path,
        typer.Argument(metavar="FILE", help="A Python module with Model, get_inputs() and get_init_inputs()."),
    ],
    policy: Annotated[
        str, typer.Option(metavar="NAME", help="A key of `policies`, a model's folder, or a file of recorded answers.")
    ],
    out: Annotated[Path | None, folder("Gets the kernel and its verdict. Default: <FILE's name>_kernel.")] = None,
    trajectories: Annotated[int | None, typer.Option(min=1, help="In place of `rollout.num_trajectories`.")] = None,
    turns: Annotated[int | None, typer.Option(min=1, help="In place of `rollout.num_turns`.")] = None,
    device: DeviceOption = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print what was found as JSON.")] = False,
    config: ConfigOption = None,
) -> None:
    """Have a policy write kernels for one module, over turns with feedback, and keep the best that is right.

    Goes on where it was stopped. The exit code is 4 where no answer was verified to be right.
    """
    study = device_config(config)
    from kevin.api.pairs import make_protocol
    from kevin.rollout.write import write_kernel

    shape = {"num_trajectories": trajectories, "num_turns": turns}
    rollout = study.rollout.model_copy(update={key: n for key, n in shape.items() if n is not None})
    judge = make_protocol(study.judge, device=device)
    study = study.model_copy(update={"rollout": rollout, "judge": judge})
    out = out or Path(f"{module.stem}_kernel")
    written = write_kernel(study, policy, module, out)
    from kevin.api.batch import verdict_record
    from kevin.cli.verdict_view import print_verdict
    from kevin.core.files import write_text
    from kevin.core.texts import strict_json

    record = verdict_record(written.verdict) if written.verdict else None
    if record is not None:
        write_text(out / "verdict.json", strict_json(record, indent=2) + "\n")
    told = ", ".join(f"{n} {outcome}" for outcome, n in written.outcomes.items())
    if as_json:
        kernel = str(written.path) if written.path else None
        typer.echo(strict_json({"kernel": kernel, "verdict": record, "outcomes": written.outcomes}, indent=2))
    elif written.verdict is not None and written.kernel is not None:
        print_verdict(written.verdict, written.kernel, title=f"{written.path}, the fastest right one: {told}")
    if written.path is None:
        log.error("kevin: no kernel for %s was verified to be right; its answers: %s", module, told or "none")
        raise typer.Exit(EXIT_NOTHING_VERIFIED)
    num = len(written.turns)
    log.info("%s is the fastest right one of %d answers, measured once; kevin judge measures again", written.path, num)
