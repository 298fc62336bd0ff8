"""The first code inside the sandbox: seals the process, runs one program, writes its outputs.

This file is never imported by the project: its text is given to a bare interpreter
(``python -S -c``) inside the namespaces that ``sandbox_isolation`` makes. It imports as
little as it can, because every episode pays for it. A program may forge or spoil what is
written here; that is harmless, because the judge's expected values are never inside and
the outputs are compared outside.
"""

from __future__ import annotations

import posix
import resource
import sys

TYPE_CHECKING = False
if TYPE_CHECKING:  # importing typing would cost every run milliseconds
    from collections.abc import Callable
    from typing import Any

PR_SET_NO_NEW_PRIVS = 38
PR_SET_SECCOMP = 22
SECCOMP_MODE_FILTER = 2
KILL_PROCESS = 0x80000000
REFUSE = 0x00050000 | 1  # SECCOMP_RET_ERRNO with EPERM
ALLOW = 0x7FFF0000
LONGEST = 10_000  # characters or items of one value

# Refused calls by audit architecture, in this order: clone fork vfork clone3 execve execveat
# kill tkill tgkill rt_sigqueueinfo rt_tgsigqueueinfo pidfd_open pidfd_send_signal ptrace
# process_vm_readv process_vm_writev socket socketpair unshare setns mount umount2 pivot_root
# chroot bpf perf_event_open io_uring_setup userfaultfd keyctl add_key request_key
# memfd_create memfd_secret shmget msgget semget mq_open open_by_handle_at personality
# prlimit64 setrlimit. Threads go through clone, so there are none.
ARCHITECTURES = {
    "x86_64": (
        0xC000003E,
        (56, 57, 58, 435, 59, 322, 62, 200, 234, 129, 297, 434, 424, 101, 310, 311, 41, 53, 272, 308)
        + (165, 166, 155, 161, 321, 298, 425, 323, 250, 248, 249, 319, 447, 29, 68, 64, 240, 304, 135, 302, 160),
    ),
    "aarch64": (
        0xC00000B7,
        (220, 435, 221, 281, 129, 130, 131, 138, 240, 434, 424, 117, 270, 271, 198, 199, 97, 268)
        + (40, 39, 41, 51, 280, 241, 425, 282, 219, 217, 218, 279, 447, 194, 186, 190, 180, 265, 92, 261, 164),
    ),
}


def limit(cpu_seconds: int, memory_bytes: int, file_bytes: int, open_files: int) -> None:
    """Lower the hard limits for good: seconds of CPU, bytes of address space and of a file."""
    for what, value in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_NPROC, 0),
        (resource.RLIMIT_MSGQUEUE, 0),
        (resource.RLIMIT_MEMLOCK, 0),
        (resource.RLIMIT_CPU, cpu_seconds),
        (resource.RLIMIT_AS, memory_bytes),
        (resource.RLIMIT_FSIZE, file_bytes),
        (resource.RLIMIT_NOFILE, open_files),
    ):
        resource.setrlimit(what, (value, value + (what == resource.RLIMIT_CPU)))  # first a signal, then the end


def instruction(code: int, value: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One classic BPF instruction: u16 code, u8 jt, u8 jf, u32 k, little endian."""
    return code.to_bytes(2, "little") + bytes((if_true, if_false)) + value.to_bytes(4, "little")


def filter_program(architecture: int, refused: tuple[int, ...]) -> bytes:
    """A seccomp filter: another architecture kills, a refused call gets EPERM, the rest passes."""
    load, equal, at_least, back = 0x20, 0x15, 0x35, 0x06
    checks = [instruction(at_least, 0x40000000, len(refused) + 1, 0)]  # the x32 calls of x86_64
    for index, number in enumerate(refused):
        checks.append(instruction(equal, number, len(refused) - index, 0))
    head = [instruction(load, 4), instruction(equal, architecture, 1, 0), instruction(back, KILL_PROCESS)]
    tail = [instruction(back, ALLOW), instruction(back, REFUSE)]
    return b"".join([*head, instruction(load, 0), *checks, *tail])


def seal() -> None:
    """Give up new privileges and install the call filter; raises OSError when the kernel refuses."""
    known = ARCHITECTURES.get(posix.uname().machine)
    if known is None:
        return  # the probe decides whether limits and namespaces alone hold here
    import ctypes

    class Filter(ctypes.Structure):
        _fields_ = [("length", ctypes.c_ushort), ("program", ctypes.c_char_p)]

    code = filter_program(*known)
    argument = Filter(len(code) // 8, code)
    prctl = ctypes.CDLL(None).prctl
    if prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) or prctl(
        PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(argument), 0, 0
    ):
        raise OSError("the kernel refused the seccomp filter")


def encode(value: Any, depth: int) -> str:
    """Plain values as JSON text; raises TypeError for others, ValueError for too deep or long."""
    if depth < 0:
        raise ValueError("too deep")
    if value is None:
        return "null"
    kind = type(value)
    if kind is bool:
        return "true" if value else "false"
    if kind in (str, list, tuple, dict) and len(value) > LONGEST:
        raise ValueError("too long")
    if kind is int or kind is float:
        return repr(value)
    if kind is str:
        return '"' + "".join(c if " " <= c <= "~" and c not in '"\\' else escape(c) for c in value) + '"'
    if kind is list or kind is tuple:
        return "[" + ",".join(encode(item, depth - 1) for item in value) + "]"
    if kind is dict and all(type(key) is str for key in value):
        return "{" + ",".join(encode(k, 0) + ":" + encode(v, depth - 1) for k, v in value.items()) + "}"
    raise TypeError(kind.__name__)


def escape(character: str) -> str:
    """A JSON escape of one character, as a surrogate pair above U+FFFF."""
    point = ord(character)
    if point < 0x10000:
        return f"\\u{point:04x}"
    return f"\\u{0xD800 + ((point - 0x10000) >> 10):04x}\\u{0xDC00 + ((point - 0x10000) & 0x3FF):04x}"


def answer(function: Callable[..., object], arguments: tuple[object, ...]) -> str:
    """One line: ``[true, value]``, or ``[false, name of the error]``."""
    try:
        return "[true," + encode(function(*arguments), 8) + "]\n"
    except BaseException as error:  # noqa: BLE001 - the boundary: whatever a program raises is its result
        return "[false," + encode(type(error).__name__, 0) + "]\n"


def main() -> None:
    """Seal, say so on the channel, then run the program once for each input."""
    job = eval(sys.stdin.read(), {})  # noqa: S307 - a literal that the trusted side wrote
    source, entry, inputs, limits = job
    channel = posix.dup(1)
    posix.dup2(2, 1)  # what the program prints goes where stderr goes: nowhere
    limit(*limits)
    seal()
    posix.write(channel, b"sealed\n")
    program: dict[str, object] = {"__name__": "program"}
    try:
        exec(compile(source, "<program>", "exec"), program)  # noqa: S102 - this is the sandbox
        function: Any = program[entry]
    except BaseException as error:  # noqa: BLE001 - the boundary: a program that does not load
        posix.write(channel, b"[false," + encode(type(error).__name__, 0).encode() + b"]\n")
        posix._exit(0)
    for arguments in inputs:
        posix.write(channel, answer(function, arguments).encode())
    posix._exit(0)


if __name__ == "__main__":
    main()
