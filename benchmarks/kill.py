"""Kill a run at random moments and resume it: the same digest, no episode lost or doubled.

    python benchmarks/kill.py --kills 50 --per-run 5

Each round starts from the same prepared home, is killed with SIGKILL ``--per-run`` times
at moments drawn over the time an undisturbed run takes, and is then run to its end. The
table shows each round's kills (seconds, and the stage each one hit) and its digest.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
COMMAND = [str(Path(sys.executable).parent / "macaron-loop"), "run", "--generation", "0", "--json"]


def environment(home: Path) -> dict[str, str]:
    """The variables of one run, with its state in ``home``."""
    return os.environ | {"MACARON_HOME": str(home), "MACARON_TRACKING_URI": "off"}


def run(config: Path, home: Path) -> dict[str, object]:
    """Run to the end; the JSON that the command prints. Raises on a non-zero exit."""
    done = subprocess.run(
        [*COMMAND, "--config", str(config)], env=environment(home), cwd=ROOT, capture_output=True, text=True
    )
    if done.returncode:
        raise SystemExit(f"run failed ({done.returncode}):\n{done.stderr[-3000:]}")
    return json.loads(done.stdout)


def kill_after(config: Path, home: Path, seconds: float) -> tuple[bool, str]:
    """Start a run and kill its whole group after a while; whether it was still running, and its last line."""
    log = home / "kill.log"
    with log.open("ab") as output:
        process = subprocess.Popen(
            [*COMMAND, "--config", str(config)],
            env=environment(home),
            cwd=ROOT,
            stdout=subprocess.DEVNULL,
            stderr=output,
            start_new_session=True,
        )
        try:
            process.wait(timeout=seconds)
            return False, "finished"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    lines = log.read_text(errors="replace").strip().splitlines()
    return True, lines[-1].split("] ")[-1][:40] if lines else "start"


def counts(home: Path) -> tuple[int, int]:
    """Episode index rows, and distinct (task, pair, sample) among them."""
    with sqlite3.connect(home / "loop.db") as database:
        rows = database.execute("select count(*), count(distinct digest) from episodes").fetchone()
    return int(rows[0]), int(rows[1])


def main() -> None:
    """Run the rounds and print the table; exit 1 when a round differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--per-run", type=int, default=5)
    parser.add_argument("--config", type=Path, default=ROOT / "examples" / "smallest.toml")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "kill")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    work: Path = options.work
    shutil.rmtree(work, ignore_errors=True)
    template = work / "template"
    template.mkdir(parents=True)
    subprocess.run(
        [COMMAND[0], "base", "prepare", "--config", str(options.config)],
        env=environment(template),
        cwd=ROOT,
        check=True,
    )
    reference = work / "reference"
    shutil.copytree(template, reference, copy_function=os.link)
    started = time.monotonic()
    expected = run(options.config, reference)["generations"][-1]["digest"]
    undisturbed = time.monotonic() - started
    episodes = counts(reference)
    print(f"undisturbed: {undisturbed:.0f} s, generation {expected[:12]}, episodes {episodes[0]}")
    draw = random.Random(options.seed)
    killed = bad = number = 0
    while killed < options.kills:
        home = work / f"round{number:02d}"
        shutil.copytree(template, home, copy_function=os.link)
        moments = []
        for _ in range(min(options.per_run, options.kills - killed)):
            # Over the whole run, but more of them early, so that several fit in one run.
            seconds = 0.2 + undisturbed * draw.random() ** 2
            hit, where = kill_after(options.config, home, seconds)
            if not hit:
                break
            killed += 1
            moments.append(f"{seconds:.1f} s {where}")
        found = run(options.config, home)["generations"][-1]["digest"]
        same = found == expected and counts(home) == episodes
        bad += not same
        print(f"round {number:2d}  {'same' if same else 'DIFFERS'}  {found[:12]}  {' | '.join(moments)}", flush=True)
        shutil.rmtree(home)
        number += 1
    print(f"{killed} kills, {bad} rounds differ")
    sys.exit(1 if bad else 0)


if __name__ == "__main__":
    main()
