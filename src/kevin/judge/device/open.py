"""Open the device that a protocol names."""

from __future__ import annotations

from kevin.core.protocol import JudgeProtocol
from kevin.judge.device.hardware import Hardware
from kevin.judge.device.judging import Judging


def open_hardware(protocol: JudgeProtocol) -> Hardware:
    """The last cores, or the first visible GPU. Raises DeviceError where it is missing."""
    if protocol.device == "cpu":
        from kevin.judge.device.cpu import CpuHardware

        return CpuHardware(protocol)
    from kevin.judge.device.gpu import GpuHardware

    return GpuHardware(protocol)


def open_device(protocol: JudgeProtocol) -> Judging:
    """What judges there. Errors as `open_hardware`."""
    return Judging(open_hardware(protocol))
