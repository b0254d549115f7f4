"""Limits that a cell puts on itself just before it loads a candidate. Standard library only: runs inside the sandbox.

What holds afterwards, for this process and everything it could start:

- seccomp: no new processes (no new threads either when one thread is allowed), no exec, no sockets, no tracing of or
  signalling to other processes, no change of CPU affinity, no mounts, namespaces, keys, BPF, io_uring or perf events;
- Landlock: reads only below the given paths, writes only below the given scratch folders;
- rlimits: address space, file size, open files, core dumps.

Not covered: side channels through shared hardware; a kernel bug; a candidate that rewrites this process's own Python
code (the host bounds its clock from outside and checks its outputs, so that this gains nothing).
"""

import ctypes
import os
import platform
import resource
import struct

_PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP = 38, 22
_SECCOMP_MODE_FILTER = 2
_ALLOW, _ERRNO, _KILL = 0x7FFF0000, 0x00050000, 0x80000000
_EPERM, _ENOSYS = 1, 38
_CLONE_THREAD = 0x00010000

# name -> (x86_64, aarch64); None: the architecture has no such call
_CALLS = {
    "fork": (57, None),
    "vfork": (58, None),
    "execve": (59, 221),
    "execveat": (322, 281),
    "socket": (41, 198),
    "socketpair": (53, 199),
    "connect": (42, 203),
    "bind": (49, 200),
    "listen": (50, 201),
    "ptrace": (101, 117),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "kill": (62, 129),
    "pidfd_open": (434, 434),
    "pidfd_getfd": (438, 438),
    "pidfd_send_signal": (424, 424),
    "sched_setaffinity": (203, 122),
    "sched_setscheduler": (144, 119),
    "sched_setattr": (314, 274),
    "setpriority": (141, 140),
    "mount": (165, 40),
    "umount2": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "unshare": (272, 97),
    "setns": (308, 268),
    "bpf": (321, 280),
    "perf_event_open": (298, 241),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "request_key": (249, 218),
    "io_uring_setup": (425, 425),
    "userfaultfd": (323, 282),
    "memfd_secret": (447, 447),
    "shmget": (29, 194),
    "msgget": (68, 186),
    "semget": (64, 190),
    "mq_open": (240, 180),
    "setrlimit": (160, 164),
}
_CLONE = {"x86_64": 56, "aarch64": 220}
_CLONE3 = {"x86_64": 435, "aarch64": 435}
_AUDIT_ARCH = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}


def _insn(code: int, jt: int, jf: int, k: int) -> bytes:
    return struct.pack("=HBBI", code, jt, jf, k)


def _filter(machine: str, allow_threads: bool, allow_processes: bool) -> bytes:
    """Classic BPF: load, compare, return. Offsets of seccomp_data: nr 0, arch 4, args[0] low word 16."""
    load, jeq, jset, jge, ret = 0x20, 0x15, 0x45, 0x35, 0x06
    column = 0 if machine == "x86_64" else 1
    prog = [
        _insn(load, 0, 0, 4),
        _insn(jeq, 1, 0, _AUDIT_ARCH[machine]),
        _insn(ret, 0, 0, _KILL),
        _insn(load, 0, 0, 0),
    ]
    if machine == "x86_64":  # the x32 table would be a way around the numbers below
        prog += [_insn(jge, 0, 1, 0x40000000), _insn(ret, 0, 0, _ERRNO | _ENOSYS)]
    processes = {"fork", "vfork", "execve", "execveat"}
    for name, numbers in _CALLS.items():
        nr = numbers[column]
        if nr is None or (allow_processes and name in processes):
            continue
        prog += [_insn(jeq, 0, 1, nr), _insn(ret, 0, 0, _ERRNO | _EPERM)]
    if not allow_processes:
        # clone3 hides its flags in memory: "not implemented" makes the C library fall back to clone
        prog += [_insn(jeq, 0, 1, _CLONE3[machine]), _insn(ret, 0, 0, _ERRNO | _ENOSYS)]
        if allow_threads:
            prog += [
                _insn(jeq, 0, 3, _CLONE[machine]),
                _insn(load, 0, 0, 16),
                _insn(jset, 1, 0, _CLONE_THREAD),
                _insn(ret, 0, 0, _ERRNO | _EPERM),
            ]
        else:
            prog += [_insn(jeq, 0, 1, _CLONE[machine]), _insn(ret, 0, 0, _ERRNO | _EPERM)]
    prog.append(_insn(ret, 0, 0, _ALLOW))
    return b"".join(prog)


def _seccomp(libc: ctypes.CDLL, allow_threads: bool, allow_processes: bool) -> bool:
    machine = platform.machine()
    if machine not in _AUDIT_ARCH:
        return False
    code = _filter(machine, allow_threads, allow_processes)
    buffer = ctypes.create_string_buffer(code, len(code))
    fprog = struct.pack("HxxxxxxP", len(code) // 8, ctypes.addressof(buffer))
    return libc.prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, ctypes.create_string_buffer(fprog, len(fprog)), 0, 0) == 0


_LL_EXECUTE, _LL_WRITE_FILE, _LL_READ_FILE, _LL_READ_DIR = 1, 2, 4, 8
_LL_ALL_V1 = (1 << 13) - 1


def _landlock(libc: ctypes.CDLL, readable: list[str], writable: list[str]) -> bool:
    libc.syscall.restype = ctypes.c_long
    abi = libc.syscall(444, None, ctypes.c_size_t(0), ctypes.c_uint32(1))
    if abi < 1:
        return False
    handled = _LL_ALL_V1 | (1 << 13 if abi >= 2 else 0) | (1 << 14 if abi >= 3 else 0)
    attr = ctypes.create_string_buffer(struct.pack("=Q", handled), 8)
    ruleset = libc.syscall(444, attr, ctypes.c_size_t(8), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    read = _LL_EXECUTE | _LL_READ_FILE | _LL_READ_DIR
    file_rights = _LL_EXECUTE | _LL_WRITE_FILE | _LL_READ_FILE | (1 << 14 if abi >= 3 else 0)
    for paths, rights in ((readable, read), (writable, handled)):
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue
            allowed = rights if os.path.isdir(path) else rights & file_rights  # noqa: PTH112
            rule = ctypes.create_string_buffer(struct.pack("=Qi", allowed, fd), 12)
            libc.syscall(445, ctypes.c_int(ruleset), ctypes.c_int(1), rule, ctypes.c_uint32(0))
            os.close(fd)
    done = libc.syscall(446, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    os.close(ruleset)
    return done


def _address_space_bytes() -> int:
    with open("/proc/self/statm") as f:  # noqa: PTH123
        return int(f.read().split()[0]) * resource.getpagesize()


def lock_down(
    *,
    memory_bytes: int | None,
    num_threads: int,
    readable: list[str],
    writable: list[str],
    allow_processes: bool = False,
    file_bytes: int = 1 << 30,
) -> list[str]:
    """Apply every limit; returns the names of those that are in force (``rlimits``, ``landlock``, ``seccomp``).

    Args:
        memory_bytes: address space beyond what is mapped now; None leaves it unlimited (CUDA maps terabytes).
        allow_processes: for builders, which start compilers; sockets and the rest stay forbidden.
        file_bytes: of the largest file that may be written.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    limits = [(resource.RLIMIT_CORE, 0), (resource.RLIMIT_NOFILE, 256), (resource.RLIMIT_FSIZE, file_bytes)]
    if memory_bytes is not None:
        limits.append((resource.RLIMIT_AS, _address_space_bytes() + memory_bytes))
    for what, value in limits:
        resource.setrlimit(what, (value, value))
    active = ["rlimits"]
    if libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
        return active
    if _landlock(libc, readable, writable):
        active.append("landlock")
    if _seccomp(libc, num_threads > 1, allow_processes):
        active.append("seccomp")
    return active
