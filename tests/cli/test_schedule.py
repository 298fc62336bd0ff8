"""What `schedule` prints is taken by systemd, cron and Kubernetes' own schemas, whatever the paths hold."""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
from datetime import time
from pathlib import Path

import pytest
import yaml

from loop.cli.forms import Job, cron, systemd
from loop.core.errors import UserError
from tests.cli.test_bad_input import one_sentence, run

TWO = time(2, 0)
AWKWARD = """it's 100% "odd" $HOME \\ dir"""


@pytest.fixture
def awkward(tmp_path: Path) -> Path:
    """A folder whose name every quoting rule stumbles over, with a program that shows what it was called with."""
    folder = tmp_path / AWKWARD
    folder.mkdir()
    program = folder / "macaron-loop"
    program.write_text('#!/bin/sh\npwd\nfor word in "$@"; do echo "[$word]"; done\n')
    program.chmod(0o755)
    return folder


def printed(home: Path, *options: str) -> dict[str, str]:
    """The files of one `schedule --json`."""
    done = run(home, "schedule", "--at", "02:00", "--json", *options)
    assert done.returncode == 0, done.stderr
    files = json.loads(done.stdout)["files"]
    assert isinstance(files, dict)
    return files


def needs(tool: str, package: str) -> str:
    found = shutil.which(tool)
    if found is None:
        pytest.skip(f"needs {tool} (apt-get install {package})")
    return found


def test_systemd_finds_nothing_wrong_with_the_units(tmp_path: Path, awkward: Path) -> None:
    analyze = needs("systemd-analyze", "systemd")
    units = tmp_path / "units"
    spaced = tmp_path / "100% of $HOME"
    spaced.mkdir()
    shutil.copy(awkward / "macaron-loop", spaced)
    program = ("--executable", str(spaced / "macaron-loop"), "--folder", str(awkward))
    made = run(
        tmp_path,
        *("schedule", "--at", "02:00", "--format", "systemd", "--timezone", "Europe/Berlin"),
        *("--user", "root", "--into", str(units), *program, "--", "--webhook", f"file:{awkward}"),
    )
    assert made.returncode == 0, made.stderr
    assert sorted(file.name for file in units.iterdir()) == ["macaron-nightly.service", "macaron-nightly.timer"]
    for unit in units.iterdir():
        done = subprocess.run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True)
        # Only what is said of our units counts: the machine's own may be broken.
        about = [line for line in done.stderr.splitlines() if "macaron" in line]
        assert about == [], done.stderr
    service = units / "macaron-nightly.service"
    for sound, broken in (("TimeoutStopSec=300", "TimeoutStopSec=soon"), ("100%%", "100%% more")):
        text = service.read_text()
        service.write_text(text.replace(sound, broken))
        done = subprocess.run([analyze, "verify", "--man=no", str(service)], capture_output=True, text=True)
        assert "macaron-nightly.service" in done.stderr, f"the check above would not see {broken}"
        service.write_text(text)


def test_systemd_reads_the_start_in_its_zone(tmp_path: Path) -> None:
    analyze = needs("systemd-analyze", "systemd")
    timer = printed(tmp_path, "--format", "systemd", "--timezone", "Europe/Berlin")["macaron-nightly.timer"]
    (when,) = [line.removeprefix("OnCalendar=") for line in timer.splitlines() if line.startswith("OnCalendar=")]
    base = ["--base-time", "2026-01-10 00:00:00 UTC"]
    done = subprocess.run([analyze, "calendar", *base, when], capture_output=True, text=True)
    assert done.returncode == 0 and "2026-01-10 01:00:00 UTC" in done.stdout, done.stdout + done.stderr


def test_a_systemd_word_is_quoted_by_the_rules_of_its_manual() -> None:
    job = Job("n", TWO, None, "/a b/100%", ("/a b/100%/x", "--config", 'say "hi" \\ $HOME'), None, True)
    service = systemd(job)[0]["n.service"]
    # systemd.syntax(7): \" and \\ inside double quotes; systemd.unit(5): %% is one %; systemd.service(5): the
    # prefix ":" leaves $HOME alone.
    assert 'ExecStart=:"/a b/100%%/x" --config "say \\"hi\\" \\\\ $HOME"\n' in service
    assert "WorkingDirectory=/a b/100%%\n" in service


def test_a_missed_start_is_made_up_for_unless_it_is_to_be_skipped(tmp_path: Path) -> None:
    late = printed(tmp_path, "--format", "systemd")
    assert "Persistent=true" in late["macaron-nightly.timer"] and "--misfire run" in late["macaron-nightly.service"]
    skipped = printed(tmp_path, "--format", "systemd", "--misfire", "skip")
    assert "Persistent=false" in skipped["macaron-nightly.timer"]
    assert "--misfire skip" in skipped["macaron-nightly.service"]


def test_crontab_takes_the_line_and_the_shell_sees_the_right_words(tmp_path: Path, awkward: Path) -> None:
    program = ("--executable", str(awkward / "macaron-loop"), "--folder", str(awkward))
    text = printed(tmp_path, "--format", "cron", *program, "--", "--webhook", "env:A%B")["macaron-nightly.cron"]
    line = text.splitlines()[-1]
    assert line.startswith("0 2 * * * cd ")
    # crontab(5): the command ends at the first % that no backslash precedes; the backslash goes.
    command = line.split(maxsplit=5)[5]
    assert command.count("%") == command.count("\\%") == 3
    done = subprocess.run(["/bin/sh", "-c", command.replace("\\%", "%")], capture_output=True, text=True)
    folder, *words = done.stdout.splitlines()
    assert folder == str(awkward), done.stderr
    assert words == ["[nightly]", "[--at]", "[02:00]", "[--misfire]", "[run]", "[--webhook]", "[env:A%B]"]
    crontab, file = needs("crontab", "cron"), tmp_path / "table"
    file.write_text(text)
    if "-n" not in subprocess.run([crontab, "-h"], capture_output=True, text=True).stderr:
        pytest.skip("this crontab cannot check a file without installing it (no -n)")
    assert subprocess.run([crontab, "-n", str(file)], capture_output=True).returncode == 0
    file.write_text(text.replace("0 2 *", "0 25 *"))
    assert subprocess.run([crontab, "-n", str(file)], capture_output=True).returncode != 0


def test_cron_with_a_user_is_a_line_for_the_system() -> None:
    job = Job("n", TWO, "Europe/Berlin", "/srv", ("/bin/x", "nightly"), "macaron", True)
    text = cron(job)[0]["n.cron"]
    assert text.splitlines()[-2:] == ["CRON_TZ=Europe/Berlin", "0 2 * * * macaron cd /srv && exec /bin/x nightly"]


def test_kubernetes_own_schema_takes_the_manifest(tmp_path: Path) -> None:
    kubernetes_validate = pytest.importorskip("kubernetes_validate")
    options = ("--format", "kubernetes", "--image", "registry/loop:1", "--claim", "home", "--user", "1000")
    late = ("--timezone", "Europe/Berlin", "--ray-address", "ray://head:10001", "--config", "big.toml")
    (text,) = printed(tmp_path, *options, *late, "--", "--window", "22:00-06:00").values()
    manifest = yaml.safe_load(text)
    kubernetes_validate.validate(manifest, "1.33", strict=True)
    spec = manifest["spec"]
    assert (spec["schedule"], spec["timeZone"], spec["concurrencyPolicy"]) == ("0 2 * * *", "Europe/Berlin", "Forbid")
    job = spec["jobTemplate"]["spec"]
    (container,) = job["template"]["spec"]["containers"]
    assert job["backoffLimit"] == 0 and job["template"]["spec"]["restartPolicy"] == "Never"
    assert shlex.join(container["command"]) == (
        "macaron-loop nightly --at 02:00 --misfire run --timezone Europe/Berlin --config big.toml "
        "--window 22:00-06:00 --exit-zero"
    )
    variables = {pair["name"]: pair["value"] for pair in container["env"]}
    assert variables == {"MACARON_EXECUTOR": "ray", "MACARON_RAY_ADDRESS": "ray://head:10001"}
    spec["concurencyPolicy"] = "Forbid"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(manifest, "1.33", strict=True)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--format", "kubernetes"), ("--image", "--claim")),
        (("--format", "kubernetes", "--image", "a", "--claim", "b", "--user", "root"), ("--user", "number")),
        (("--format", "cron", "--timezone", "Europe/Berlint"), ("Europe/Berlint",)),
        (("--format", "cron", "--folder", "a\nb"), ("line break",)),
        (("--format", "cron", "--user", "a b"), ("a b",)),
        (("--format", "systemd", "--name", "../x"), ("../x",)),
        (("--format", "systemd", "--config", "nowhere.toml"), ("nowhere.toml",)),
        (("--format", "systemd", "--executable", "/a'b/macaron-loop"), ("/a'b/macaron-loop",)),
    ],
)
def test_what_no_scheduler_could_take_is_refused(
    tmp_path: Path, options: tuple[str, ...], words: tuple[str, ...]
) -> None:
    one_sentence(run(tmp_path, "schedule", "--at", "02:00", *options), 2, *words)


def test_options_that_nightly_does_not_know_are_refused_today(tmp_path: Path) -> None:
    done = run(tmp_path, "schedule", "--at", "02:00", "--format", "cron", "--", "--windw", "22:00-06:00")
    assert done.returncode == 2 and "--windw" in done.stderr and "--window" in done.stderr
    with pytest.raises(UserError, match="control"):
        Job("n", TWO, None, "/a", ("x\ty",), None, True)
