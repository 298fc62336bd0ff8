"""What starts a nightly run, in the words of systemd, cron and Kubernetes: pure functions of one job."""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass
from datetime import time
from typing import Any

from loop.core.errors import UserError

Printed = tuple[dict[str, str], str]

# Time to end the step in hand; killed after that, the step is repeated and nothing else is lost.
STOP_SECONDS = 300
SKIP_SECONDS, CATCH_UP_SECONDS = 900, 12 * 3600


@dataclass(frozen=True)
class Job:
    """A command that starts each day at ``at`` in ``zone`` (None: the machine's), from ``folder``.

    ``catch_up`` asks for a late start after a missed one. UserError for a name, an account
    or a line break that no scheduler could take.
    """

    name: str
    at: time
    zone: str | None
    folder: str
    command: tuple[str, ...]
    user: str | None
    catch_up: bool

    def __post_init__(self) -> None:
        """Refuse what cannot be written on one line."""
        if not re.fullmatch(r"[a-z0-9]([a-z0-9-]{0,50}[a-z0-9])?", self.name):
            raise UserError(
                f"--name {self.name!r}: up to 52 lower-case letters, digits and hyphens, as Kubernetes asks"
            )
        if self.user is not None and not re.fullmatch(r"[A-Za-z0-9_][A-Za-z0-9_.-]*", self.user):
            raise UserError(f"--user {self.user!r} is no account name")
        for text in (self.folder, *self.command):
            if any(ord(letter) < 32 or ord(letter) == 127 for letter in text):
                raise UserError(f"{text!r} holds a line break or another control character: name it without")


def systemd(job: Job) -> Printed:
    """A service and its timer: a system service with ``user``, else one of the calling user."""
    if any(letter in job.command[0] for letter in "\"'\\"):
        raise UserError(f"systemd starts no program with a quote or backslash in its path ({job.command[0]}): move it")
    zone = f" {job.zone}" if job.zone else ""
    account = [f"User={job.user}"] if job.user else []
    service = [
        "[Unit]",
        "Description=Grow the next generation (macaron-loop nightly)",
        "",
        "[Service]",
        "Type=oneshot",
        *account,
        f"WorkingDirectory={_percent(job.folder)}",
        # The colon keeps $ from being taken for a variable.
        "ExecStart=:" + " ".join(_systemd_word(word) for word in job.command),
        "# rejected, nothing to do, out of budget, outside the window, the window closed, stopped",
        "SuccessExitStatus=10 11 12 13 14 130",
        "# the run ends its workers itself; what is killed after the timeout is repeated",
        "KillMode=mixed",
        f"TimeoutStopSec={STOP_SECONDS}",
    ]
    timer = [
        "[Unit]",
        "Description=Start macaron-loop nightly each day",
        "",
        "[Timer]",
        f"OnCalendar=*-*-* {job.at:%H:%M}:00{zone}",
        f"Persistent={'true' if job.catch_up else 'false'}",
        "AccuracySec=1s",
        f"Unit={job.name}.service",
        "",
        "[Install]",
        "WantedBy=timers.target",
    ]
    files = {f"{job.name}.service": _text(service), f"{job.name}.timer": _text(timer)}
    if job.user:
        where, mode = "/etc/systemd/system", ""
    else:
        where, mode = "~/.config/systemd/user", " --user"
    hint = f"put both files into {where}, then: systemctl{mode} daemon-reload && systemctl{mode} enable --now "
    linger = "" if job.user else "; loginctl enable-linger lets it run while you are logged out"
    return files, hint + f"{job.name}.timer{linger}"


def cron(job: Job) -> Printed:
    """A crontab line; with ``user`` one for /etc/cron.d. Cron never makes up for a missed start."""
    command = f"cd {shlex.quote(job.folder)} && exec {shlex.join(job.command)}"
    # In a crontab an unescaped % is a line break.
    line = f"{job.at.minute} {job.at.hour} * * * {f'{job.user} ' if job.user else ''}" + command.replace("%", r"\%")
    lines = ["# cron makes up for no start that was missed: systemd and Kubernetes can"]
    if job.zone:
        lines += [
            "# cronie obeys CRON_TZ; Debian's cron does not, and starts by the machine's clock",
            f"CRON_TZ={job.zone}",
        ]
    where = f"put the file into /etc/cron.d/{job.name}" if job.user else "add the lines with: crontab -e"
    return {f"{job.name}.cron": _text([*lines, line])}, where


def kubernetes(job: Job, image: str | None, claim: str | None, ray_address: str | None) -> Printed:
    """A CronJob of one pod; with ``ray_address`` the pod only drives that Ray cluster.

    ``claim`` is the PersistentVolumeClaim that keeps the home from night to night.
    """
    import yaml

    if image is None or claim is None:
        raise UserError(
            "Kubernetes needs --image (with macaron-loop in it) and --claim (the volume that keeps the home)"
        )
    if job.user is not None and not job.user.isdigit():
        raise UserError(f"--user {job.user}: a pod runs as a number, as in --user 1000")
    variables = {"MACARON_EXECUTOR": "ray", "MACARON_RAY_ADDRESS": ray_address} if ray_address else {}
    container = {
        "name": "nightly",
        "image": image,
        # Kubernetes takes $(NAME) for a variable.
        "command": [word.replace("$(", "$$(") for word in job.command],
        "workingDir": job.folder,
        "env": [{"name": name, "value": value} for name, value in variables.items()],
        "volumeMounts": [{"name": "home", "mountPath": job.folder}],
    }
    pod = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": STOP_SECONDS,
        **({"securityContext": {"runAsUser": int(job.user), "fsGroup": int(job.user)}} if job.user else {}),
        "containers": [container],
        "volumes": [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}],
    }
    manifest: dict[str, Any] = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": job.name},
        "spec": {
            "schedule": f"{job.at.minute} {job.at.hour} * * *",
            "timeZone": job.zone,
            "concurrencyPolicy": "Forbid",
            "startingDeadlineSeconds": CATCH_UP_SECONDS if job.catch_up else SKIP_SECONDS,
            "jobTemplate": {"spec": {"backoffLimit": 0, "template": {"spec": pod}}},
        },
    }
    text = yaml.safe_dump(manifest, sort_keys=False, allow_unicode=True, width=100)
    return {f"{job.name}.yaml": text}, f"kubectl apply -f {job.name}.yaml"


def _text(lines: list[str]) -> str:
    return "\n".join(lines) + "\n"


def _percent(text: str) -> str:
    """systemd's specifiers begin with %, and %% is one."""
    return text.replace("%", "%%")


def _systemd_word(word: str) -> str:
    """One word of ExecStart (systemd.syntax(7), Quoting)."""
    if re.fullmatch(r"[A-Za-z0-9_./:=@,+-]+", word):
        return word
    return '"' + _percent(word.replace("\\", "\\\\").replace('"', '\\"')) + '"'
