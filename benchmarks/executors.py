"""The same plan on worker processes and on Ray: equal generations, also when a worker is killed.

    python benchmarks/executors.py --config examples/small.toml

Each row is a fresh lineage grown from the same prepared base with two workers. In the rows
marked "killed" one busy worker process gets SIGKILL in the middle of the collect stage.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

ROOT = Path(__file__).resolve().parent.parent
COMMAND = str(Path(sys.executable).parent / "macaron-loop")


def variables(home: Path, executor: str) -> dict[str, str]:
    """The variables of one row."""
    chosen = {"MACARON_HOME": str(home), "MACARON_EXECUTOR": executor, "MACARON_WORKERS": "2"}
    return os.environ | chosen | {"MACARON_TRACKING_URI": "off"}


def busiest_worker(run: psutil.Process) -> psutil.Process | None:
    """The process under the run that has used the processor most: Ray's task, or a pool's worker."""
    workers = []
    for process in run.children(recursive=True):
        try:
            words = " ".join(process.cmdline())
            if words.startswith("ray::") or "spawn_main" in words:
                workers.append((sum(process.cpu_times()[:2]), process))
        except psutil.Error:
            continue
    return max(workers, key=lambda found: found[0])[1] if workers else None


def grow(config: Path, home: Path, executor: str, kill: bool) -> tuple[str, float, str]:
    """Grow generation 1; its digest, the wall seconds, and what was killed."""
    started = time.monotonic()
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [COMMAND, "run", "--generation", "0", "--json", "--config", str(config)],
            env=variables(home, executor),
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=log,
            text=True,
        )
        killed = _kill_mid_collect(process, home / "log") if kill else "-"
        output, _ = process.communicate()
    if process.returncode:
        raise SystemExit(f"{executor}: exit {process.returncode}\n{(home / 'log').read_text()[-3000:]}")
    return json.loads(output)["generations"][-1]["digest"], time.monotonic() - started, killed


def _kill_mid_collect(process: subprocess.Popen[str], log: Path) -> str:
    while process.poll() is None:
        if "collect: 1/" in log.read_text():
            victim = busiest_worker(psutil.Process(process.pid))
            if victim is not None:
                name = victim.cmdline()[0].split(" ")[0]
                victim.send_signal(signal.SIGKILL)
                return f"{Path(name).name} {victim.pid}"
        time.sleep(0.05)
    return "nothing: the run ended before"


def main() -> None:
    """Run the four rows and print the table; exit 1 when a digest differs."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--config", type=Path, default=ROOT / "examples" / "small.toml")
    parser.add_argument("--work", type=Path, default=ROOT / "build" / "executors")
    options = parser.parse_args()
    shutil.rmtree(options.work, ignore_errors=True)
    template = options.work / "template"
    template.mkdir(parents=True)
    prepare = [COMMAND, "base", "prepare", "--config", str(options.config)]
    subprocess.run(prepare, env=variables(template, "local"), cwd=ROOT, check=True)
    digests = set()
    print("| executor | worker killed | generation | wall |")
    print("|---|---|---|---|")
    for executor, kill in (("local", False), ("ray", False), ("local", True), ("ray", True)):
        home = options.work / f"{executor}{'-killed' if kill else ''}"
        shutil.copytree(template, home, copy_function=os.link)
        digest, seconds, killed = grow(options.config, home, executor, kill)
        digests.add(digest)
        print(f"| {executor} | {killed} | {digest[:12]} | {seconds:.0f} s |", flush=True)
    sys.exit(len(digests) != 1)


if __name__ == "__main__":
    main()
