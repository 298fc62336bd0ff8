"""The two ways to wall a process off, as command lines, and the check that a wall holds.

Both give a process new user, process, network, ipc and host-name namespaces and a root
that is empty but for the system's libraries and this Python's standard library, both
read-only, and one small folder in memory. There is no ``/proc``, ``/dev`` or ``/etc``.
"""

from __future__ import annotations

import glob
import os
import shutil
import sys
import sysconfig
from pathlib import Path

FLAGS = ("-s", "-S", "-P", "-B", "-X", "utf8")
ENVIRONMENT = {"PYTHONHASHSEED": "0"}  # equal programs give equal outputs; nothing else is passed in
LIBRARIES = ("/usr/lib", "/usr/lib32", "/usr/lib64", "/lib", "/lib32", "/lib64", "/nix/store")

# Run by sh as root of new namespaces. Arguments: bytes of the writable folder, umount, setpriv, then three
# lists, each ended by "--": links as path and target, read-only binds, folders to hide; then the command.
# /mnt is a mount point that every Linux has; the new root is built over it in this namespace only.
# sh stays the first process: the kernel spares a first process the signal of the CPU limit.
# umount needs /proc to find mounts: it is there until the old root is gone.
UNSHARE_SCRIPT = """
set -e
size=$1; umount=$2; setpriv=$3; shift 3
mount -t tmpfs -o size=1m,mode=755 tmpfs /mnt
cd /mnt
mkdir old work proc
mount -t proc proc proc
while [ "$1" != -- ]; do ln -s "$2" ".$1"; shift 2; done; shift
bind() {
  if [ -d "$1" ]; then mkdir -p ".$2"; else mkdir -p ".${2%/*}"; : > ".$2"; fi
  mount --rbind "$1" ".$2"; mount -o remount,bind,ro ".$2"
}
while [ "$1" != -- ]; do bind "$1" "$1"; shift; done; shift
while [ "$1" != -- ]; do mount -t tmpfs -o ro,size=4k tmpfs ".$1"; shift; done; shift
bind "$umount" /umount; bind "$setpriv" /setpriv
mount -t tmpfs -o size=$size,mode=755 tmpfs work
mount -o remount,ro .
pivot_root . old
cd /work
/umount -l /old
/umount -l /proc
/setpriv --bounding-set=-all --inh-caps=-all --ambient-caps=-all --no-new-privs "$@" || exit $?
exit 0
"""


def interpreter() -> str:
    """The real path of the interpreter that a virtual environment stands on."""
    return os.path.realpath(getattr(sys, "_base_executable", None) or sys.executable)


def visible() -> tuple[tuple[tuple[str, str], ...], tuple[str, ...], tuple[str, ...]]:
    """What a program may see: links (path, target), read-only paths, and folders hidden within them.

    Installed packages are hidden: among them may be this project with its contracts.
    """
    present = [path for path in LIBRARIES if os.path.exists(path)]
    links = tuple((path, os.readlink(path)) for path in present if os.path.islink(path))
    prefix = Path(sys.base_prefix)
    wanted = [path for path in present if not os.path.islink(path)]
    wanted += [str(prefix / name) for name in ("lib", "lib64") if (prefix / name).is_dir()]
    wanted.append(sysconfig.get_path("stdlib"))
    wanted.append(interpreter())
    binds: list[str] = []
    for path in wanted:
        real = os.path.realpath(path)
        if not any(real == kept or real.startswith(kept + "/") for kept in binds):
            binds.append(real)
    packages = [
        found
        for root in {"/usr", str(prefix)}
        for kind in ("site-packages", "dist-packages")
        for found in glob.glob(f"{root}/lib*/python*/{kind}")
    ]
    return links, tuple(binds), tuple(sorted({os.path.realpath(path) for path in packages}))


def bubblewrap(folder_bytes: int) -> tuple[str, ...] | None:
    """The command that a program's command is appended to, or None where ``bwrap`` is absent."""
    program = shutil.which("bwrap")
    if program is None:
        return None
    links, binds, hidden = visible()
    command = [program, "--unshare-all", "--unshare-user", "--disable-userns", "--uid", "65534", "--gid", "65534"]
    command += ["--hostname", "sandbox", "--die-with-parent", "--new-session", "--cap-drop", "ALL"]
    for path, target in links:
        command += ["--symlink", target, path]
    for path in binds:
        command += ["--ro-bind", path, path]
    for path in hidden:
        command += ["--size", "4096", "--tmpfs", path, "--remount-ro", path]
    command += ["--size", str(folder_bytes), "--tmpfs", "/work", "--remount-ro", "/", "--chdir", "/work", "--"]
    return tuple(command)


def unshare(folder_bytes: int) -> tuple[str, ...] | None:
    """The same with util-linux alone, or None where one of its programs is absent."""
    programs = {name: shutil.which(name) for name in ("unshare", "sh", "mount", "pivot_root", "umount", "setpriv")}
    if not all(programs.values()):
        return None
    links, binds, hidden = visible()
    command = [str(programs["unshare"]), "--user", "--map-root-user", "--mount", "--pid", "--fork", "--ipc", "--uts"]
    command += ["--net", "--cgroup", "--kill-child=KILL", "--", str(programs["sh"]), "-c", UNSHARE_SCRIPT, "sh"]
    command += [str(folder_bytes), str(programs["umount"]), str(programs["setpriv"])]
    command += [part for link in links for part in link]
    return (*command, "--", *binds, "--", *hidden, "--")


# What the probe program tries; each must come back as False. ``canary`` is a file outside.
PROBE = """
def attempt(action):
    try:
        action()
        return True
    except BaseException:
        return False

def fork():
    import os
    if os.fork() == 0:
        os._exit(0)

def connect(port):
    import socket
    socket.create_connection(("127.0.0.1", port), 1).close()

def write(path):
    open(path, "w").write("x")

def probe(canary, port):
    import os, sys
    tries = {
        "reads a file outside": lambda: open(canary).read(),
        "writes a file outside": lambda: write(canary),
        "writes the system": lambda: write(os.path.dirname(os.__file__) + "/written"),
        "reads /etc/passwd": lambda: open("/etc/passwd").read(),
        "reaches the network": lambda: connect(port),
        "starts processes": fork,
        "signals other processes": lambda: os.kill(os.getppid(), 0),
        "sees an environment": lambda: (set(os.environ) - {"PYTHONHASHSEED", "LC_CTYPE", "PWD", "OLDPWD"}).pop(),
        "fills memory": lambda: bytearray(1 << 40),
    }
    return {name: attempt(action) for name, action in tries.items()}
"""
