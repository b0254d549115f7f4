"""Devices of one machine that share a school's gradient steps, each with a copy of the model.

The first is this process's. Each other one has a process of its own: one alone would take longer to launch the work of
all than a device to do its share. Weights go from the first to all, gradients are added up on the first, which has the
only optimizer, so that nothing of the others needs to be saved.
"""

from __future__ import annotations

import functools
import multiprocessing
import tempfile
from collections.abc import Callable, Sequence
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
                        loss = summed_loss(self.model, samples) / num_answer_tokens
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


def make_pupil(model: PreTrainedModel, device: torch.device, school: PretrainingConfig) -> Pupil:
    """``model``, made ready for school on a device."""
    fit_threads(model.num_parameters())
    leave_out_padding(model)
    if device.type == "cuda":
        torch.cuda.set_device(device)
    model.to(device)  # type: ignore[arg-type]
    if device.type == "cuda":
        compile_layers(model)
    model.train()
    return Pupil(model, school)


class Ranks:
    """The devices of a school; a context manager, which ends the other processes. With one device there are none.

    They start when this is made: make it before the model is loaded, and then `meet`.
    """

    def __init__(self, devices: Sequence[torch.device], school: PretrainingConfig) -> None:
        self._device = devices[0]
        self._connections: list[Connection] = []
        self._processes: list[BaseProcess] = []
        self._folder = tempfile.TemporaryDirectory(prefix="kevin-school-")
        self._meet = functools.partial(_meet, f"file://{self._folder.name}/meeting", len(devices))
        context = multiprocessing.get_context("spawn")
        for rank, device in enumerate(devices[1:], 1):
            ours, theirs = context.Pipe()
            meet = functools.partial(self._meet, rank, device)
            process = context.Process(target=_serve, args=(theirs, meet, device, school), name=f"school-{device}")
            process.start()
            theirs.close()
            self._connections.append(ours)
            self._processes.append(process)

    def meet(self, pupil: Pupil) -> None:
        """Give every process a copy of ``pupil``, this process's.

        Raises:
            HarnessError: one of them failed, or was ended.
        """
        self._pupil = pupil
        if self._connections:
            self._tell(pupil.model.config)
            self._answers()
            self._tell(None)
            self._meet(0, self._device)
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
        self._folder.cleanup()


def _meet(meeting: str, num: int, rank: int, device: torch.device) -> None:
    """Returns once all ``num`` processes of a school are there."""
    backend, device_id = ("nccl", device) if device.type == "cuda" else ("gloo", None)
    dist.init_process_group(backend, init_method=meeting, rank=rank, world_size=num, device_id=device_id)


def _serve(connection: Connection, meet: Callable[[], None], device: torch.device, school: PretrainingConfig) -> None:
    """What every other process does: its share of each step, until the first one is gone."""
    from transformers import AutoModelForCausalLM

    try:
        config = connection.recv()
        model = AutoModelForCausalLM.from_config(config, dtype=torch.float32, attn_implementation="sdpa")
        pupil = make_pupil(model, device, school)
        connection.send(0.0)
        connection.recv()
        meet()
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


def _add_up(model: PreTrainedModel) -> None:
    """The gradients of all ranks to the first one's."""
    for parameter in model.parameters():
        if parameter.grad is None:
            parameter.grad = torch.zeros_like(parameter)
    gradients = [p.grad for p in model.parameters() if p.grad is not None]
    _exchange(gradients, dist.reduce, receives=dist.get_rank() == 0)


def _spread(model: PreTrainedModel) -> None:
    """The weights of the first rank to all."""
    _exchange(list(model.parameters()), dist.broadcast, receives=dist.get_rank() != 0)


@torch.no_grad()
def _exchange(tensors: Sequence[torch.Tensor], send: Callable[[torch.Tensor, int], Any], *, receives: bool) -> None:
    """By ``send``, to or from rank 0. Each small tensor is sent with others."""
    bucket: list[torch.Tensor] = []
    for i, tensor in enumerate(tensors):
        bucket.append(tensor)
        following = tensors[i + 1].numel() if i + 1 < len(tensors) else _BUCKET
        if sum(t.numel() for t in bucket) + following > _BUCKET:
            sent = torch.cat([t.flatten() for t in bucket])
            send(sent, 0)
            if receives:
                for own, new in zip(bucket, sent.split([t.numel() for t in bucket]), strict=True):
                    own.copy_(new.view_as(own))
            bucket = []
