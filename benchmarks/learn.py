"""Does it learn? Grow generations under several seeds and print the gains as a Markdown table.

    python benchmarks/learn.py --seeds 1 2 3 --until 1
    python benchmarks/learn.py --seeds 1 --until 2 --keep

Each seed is a lineage of its own in ``build/learn/seed<N>``, run by the command people
type. Finished generations are taken as they are, so the table can be printed again.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent


def grow(home: Path, seed: int, until: int, extra: list[str]) -> tuple[dict[str, Any], float]:
    """Run the command; its JSON and the wall seconds."""
    command = [str(Path(sys.executable).parent / "macaron-loop"), "run", "--generation", "0", "--until", str(until)]
    variables = os.environ | {"MACARON_HOME": str(home), "MACARON_SEED": str(seed)}
    started = time.monotonic()
    done = subprocess.run([*command, "--json", *extra], env=variables, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"seed {seed}: exit {done.returncode}")
    return json.loads(done.stdout), time.monotonic() - started


def bounds(found: dict[str, Any] | None) -> str:
    """``+6.1 [+2.0, +10.3]``."""
    return "-" if found is None else f"{found['point']:+.1f} [{found['low']:+.1f}, {found['high']:+.1f}]"


def row(seed: int, generation: dict[str, Any], seconds: float) -> str:
    """One line of the table."""
    exam = generation["exam"]
    gains = [bounds(exam["environment_gains"].get(name)) for name in ("tools", "coding", "scenarios")]
    rates = exam["pass_rates"]
    passed = f"{rates.get('parent/tools', 0):.1%} -> {rates.get('child/tools', 0):.1%}"
    cells = [seed, generation["number"], bounds(exam["gain"]), *gains, passed, generation["decision"]["standing"]]
    return "| " + " | ".join(str(cell) for cell in [*cells, f"{seconds:.0f} s"]) + " |"


def main() -> None:
    """Run every seed and print the table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--until", type=int, default=1)
    parser.add_argument("--keep", action="store_true", help="keep what earlier calls grew")
    parser.add_argument("--force", action="store_true", help="promote whatever the gate says")
    options = parser.parse_args()
    work = ROOT / "build" / "learn"
    if not options.keep:
        shutil.rmtree(work, ignore_errors=True)
    print("| seed | generation | gain, all | tools | coding | scenarios | tools passed | decision | wall |")
    print("|---|---|---|---|---|---|---|---|---|")
    for seed in options.seeds:
        result, seconds = grow(work / f"seed{seed}", seed, options.until, ["--force"] if options.force else [])
        for generation in result["generations"]:
            print(row(seed, generation, seconds), flush=True)


if __name__ == "__main__":
    main()
