"""Devices of one machine that share a school's gradient steps, each with a copy of the model.

The first is this process's. Each other one has a process of its own: one alone would take longer to launch the work of
all than a device to do its share. Weights go from the first to all, gradients are added up on the first, which has the
only optimizer, so that nothing of the others needs to be saved.
"""

from __future__ import annotations

import multiprocessing
import tempfile
from collections.abc import Iterator, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import torch
import torch.distributed as dist

from kevin.core.config import PretrainingConfig
from kevin.core.config.base_model import check_pretraining_gpus
from kevin.core.errors import DeviceError, HarnessError, KevinError, first_line
from kevin.policy.transformers import fit_threads
from kevin.train.school_batches import MicroBatch, SchoolBatch, summed_loss
from kevin.train.unpadded import compile_layers, compiling, leave_out_padding, steady_attention

if TYPE_CHECKING:
    from multiprocessing.connection import Connection
    from multiprocessing.process import BaseProcess

    from transformers import PreTrainedModel

_POLL_S = 1.0
_END_S = 10.0
_BUCKET = 64_000_000
"""Numbers that are sent in one piece."""


def school_devices(num_gpus: int) -> list[torch.device]:
    """Of this machine, as many GPUs as are asked for; without any the CPU, once.

    Raises:
        DeviceError: fewer are visible.
    """
    if not torch.cuda.is_available():
        return [torch.device("cpu")]
    check_pretraining_gpus(num_gpus, torch.cuda.device_count())
    return [torch.device("cuda", i) for i in range(num_gpus)]


class Pupil(NamedTuple):
    """A model that goes to school, on its device."""

    model: PreTrainedModel
    pad: int
    """Token that samples of a model that needs it are padded with."""
    school: PretrainingConfig

    def add_gradients(self, share: Sequence[MicroBatch], num_answer_tokens: int) -> torch.Tensor:
        """To the model's, those of the loss on some micro-batches over ``num_answer_tokens``. Returns that loss.

        Raises:
            DeviceError: out of memory; a layer that cannot be compiled.
        """
        losses = [torch.zeros((), device=self.model.device)]
        try:
            with compiling(), steady_attention():
                for samples in share:
                    with self.autocast():
                        loss = summed_loss(self.model, samples, self.pad) / num_answer_tokens
                    loss.backward()
                    losses.append(loss.detach())
        except torch.OutOfMemoryError as e:
            raise DeviceError(
                f"the device ran out of memory at school: {first_line(e)}. Lower "
                f"base_model.pretraining.micro_batch_tokens ({self.school.micro_batch_tokens})"
            ) from e
        return torch.stack(losses).sum()

    def autocast(self) -> torch.autocast:
        """bfloat16 on a GPU."""
        kind = self.model.device.type
        return torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda")


def make_pupil(model: PreTrainedModel, pad: int, device: torch.device, school: PretrainingConfig) -> Pupil:
    """``model``, made ready for school on a device."""
    fit_threads(model.num_parameters())
    leave_out_padding(model)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    model.to(device)  # type: ignore[arg-type]
    if device.type == "cuda":
        compile_layers(model)
    model.train()
    return Pupil(model, pad, school)


class Ranks:
    """The devices of a school; a context manager, which ends the other processes. With one device there are none.

    They start when this is made: make it before the model is loaded, and then `meet`.
    """

    def __init__(self, devices: Sequence[torch.device], school: PretrainingConfig) -> None:
        self._devices = devices
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._folder = tempfile.TemporaryDirectory(prefix="kevin-school-") if len(devices) > 1 else None
        context = multiprocessing.get_context("spawn")
        for rank, device in enumerate(devices[1:], 1):
            ours, theirs = context.Pipe()
            process = context.Process(
                target=_serve, args=(theirs, self._place(rank), device, school), name=f"school-{device}"
            )
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def __len__(self) -> int:
        return len(self._devices)

    def _place(self, rank: int) -> _Place:
        folder = "" if self._folder is None else self._folder.name
        return _Place(rank, len(self._devices), f"file://{folder}/meeting")

    def meet(self, pupil: Pupil) -> None:
        """Give every process a copy of ``pupil``, this process's.

        Raises:
            HarnessError: one of them failed, or was ended.
        """
        self._pupil = pupil
        if len(self) > 1:
            self._tell((pupil.model.config, pupil.pad))
            self._answers()
            self._tell(None)
            self._place(0).meet(self._devices[0])
            self.spread()

    def add_gradients(self, batch: SchoolBatch) -> float:
        """Set the model's gradients to those of the mean loss over a batch's answers. Returns it, in nats a token.

        Raises:
            KevinError: as `Pupil.add_gradients`, on any device; HarnessError where a process was ended.
        """
        self._pupil.model.zero_grad(set_to_none=True)
        for connection, share in zip(self._connections, batch.shares[1:], strict=True):
            self._send(connection, (share, batch.num_answer_tokens))
        loss = self._pupil.add_gradients(batch.shares[0], batch.num_answer_tokens)
        # Before this device is waited for: whoever is gone will not take part in adding up.
        losses = self._answers()
        if self._connections:
            self._tell(None)
            _add_up(self._pupil.model)
        return float(loss) + sum(losses)

    def spread(self) -> None:
        """The weights of this process's model to the others."""
        if self._connections:
            _spread(self._pupil.model)

    def _send(self, connection: Connection, work: Any) -> None:
        try:
            connection.send(work)
        except OSError:
            raise self._lost() from None

    def _tell(self, word: Any) -> None:
        for connection in self._connections:
            self._send(connection, word)

    def _answers(self) -> list[float]:
        """Of every other process; an error that one of them met is raised here."""
        answers: list[float] = []
        for connection, process in zip(self._connections, self._processes, strict=True):
            try:
                while not connection.poll(_POLL_S):
                    if not process.is_alive() and not connection.poll():
                        raise self._lost()
                answer = connection.recv()
            except (EOFError, OSError):
                raise self._lost() from None
            if isinstance(answer, BaseException):
                raise answer
            answers.append(answer)
        return answers

    def _lost(self) -> HarnessError:
        return HarnessError(
            "a process of the school that trains on another device was ended from outside (memory may have run out); "
            "start again, with a lower base_model.pretraining.num_gpus if need be: training goes on from its last "
            "checkpoint"
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for connection in self._connections:
            connection.close()
        for process in self._processes:
            process.join(_END_S if error is None else 0)
            process.kill()
            process.join()
        # NCCL would wait for those that are gone; it ends with this process.
        if self._connections and dist.is_initialized() and (error is None or dist.get_backend() == "gloo"):
            dist.destroy_process_group()
        if self._folder is not None:
            self._folder.cleanup()


class _Place(NamedTuple):
    """Of a process among those of a school."""

    rank: int
    num: int
    meeting: str

    def meet(self, device: torch.device) -> None:
        """Returns once all are there."""
        on_gpu = device.type == "cuda"
        dist.init_process_group(
            "nccl" if on_gpu else "gloo",
            init_method=self.meeting,
            rank=self.rank,
            world_size=self.num,
            device_id=device if on_gpu else None,
        )


def _serve(connection: Connection, place: _Place, device: torch.device, school: PretrainingConfig) -> None:
    """What every other process does: its share of each step, until the first one is gone."""
    from transformers import AutoModelForCausalLM

    try:
        config, pad = connection.recv()
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
        pupil = make_pupil(model, pad, device, school)
        connection.send(0.0)
        connection.recv()
        place.meet(device)
        _spread(pupil.model)
        while True:
            share, num_answer_tokens = connection.recv()
            pupil.model.zero_grad(set_to_none=True)
            connection.send(float(pupil.add_gradients(share, num_answer_tokens)))
            connection.recv()
            _add_up(pupil.model)
            _spread(pupil.model)
    except (EOFError, BrokenPipeError):
        return
    except KevinError as e:
        connection.send(e)
    except Exception as e:
        connection.send(HarnessError(f"the school failed on {device}: {type(e).__name__}: {first_line(e)}"))


@torch.no_grad()
def _add_up(model: PreTrainedModel) -> None:
    """The gradients of all ranks to the first one's."""
    for bucket in _buckets(model):
        sent = torch.cat([(torch.zeros_like(p) if p.grad is None else p.grad).flatten() for p in bucket])
        dist.reduce(sent, 0)
        if dist.get_rank() == 0:
            for parameter, gradient in zip(bucket, sent.split([p.numel() for p in bucket]), strict=True):
                parameter.grad = gradient.view_as(parameter)


@torch.no_grad()
def _spread(model: PreTrainedModel) -> None:
    """The weights of the first rank to all."""
    for bucket in _buckets(model):
        sent = torch.cat([p.flatten() for p in bucket])
        dist.broadcast(sent, 0)
        if dist.get_rank():
            for parameter, weights in zip(bucket, sent.split([p.numel() for p in bucket]), strict=True):
                parameter.copy_(weights.view_as(parameter))


def _buckets(model: PreTrainedModel) -> Iterator[list[torch.nn.Parameter]]:
    """The parameters, in order: each small one is sent with others."""
    bucket: list[torch.nn.Parameter] = []
    size = 0
    for parameter in model.parameters():
        if bucket and size + parameter.numel() > _BUCKET:
            yield bucket
            bucket, size = [], 0
        bucket.append(parameter)
        size += parameter.numel()
    yield bucket
