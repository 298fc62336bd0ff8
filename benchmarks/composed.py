"""An adapter of a second owner, composed with a first owner's system: the whole against its parts, on the real model.

Two homes: the first owner's system has a router and knows no tools, the second owner trains a
specialist for tools, exports it as a folder, and signs it. The first owner imports it, where it
is quarantined, and examines it in the whole. Their own runs are forced: what they are worth
alone is not measured here, and their own exams are too small to say. Run again, it goes on.

    python -m benchmarks.composed --help
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
EXAM = {
    "MACARON_ENVIRONMENTS": '[{"use": "tools"}, {"use": "coding"}]',
    "MACARON_SIZES__EXAMINE__SHARD_TASKS": "10",
    "MACARON_SIZES__EXAMINE__ROUTES": "0",  # the router is the one that was examined before
}


def loop(home: Path, owner: str, *arguments: str, **variables: str) -> str:
    """One command of an owner, in that owner's home; its output, or the end of this script."""
    settings = ["--config", str(ROOT / "examples" / f"{owner}_owner.toml")]
    command = [sys.executable, "-m", "loop.cli.main", *arguments, *settings]
    environment = os.environ | {"MACARON_HOME": str(home / owner), "PYTHONPATH": str(ROOT)} | variables
    done = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    if done.returncode:
        sys.exit(done.returncode)
    return done.stdout


def sign(folder: Path, listing: str) -> tuple[Path, Path]:
    """The second owner's signature of the listing, and their public key; made by openssl."""
    (folder / "listing").write_text(listing)
    for arguments in (
        ("genpkey", "-algorithm", "ed25519", "-out", "key.pem"),
        ("pkey", "-in", "key.pem", "-pubout", "-out", "key.pub"),
        ("pkeyutl", "-sign", "-rawin", "-inkey", "key.pem", "-in", "listing", "-out", "listing.sig"),
    ):
        subprocess.run(["openssl", *arguments], cwd=folder, check=True, capture_output=True)
    return folder / "listing.sig", folder / "key.pub"


def bring(home: Path) -> str:
    """Export the second owner's specialist and import it into the first owner's home; its digest."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        listing = loop(home, "second", "adapters", "export", "L1", str(folder / "given"))
        signature, key = sign(folder, listing)
        terms = ["--owner", "second", "--licence", "Apache-2.0", "--label", "L1", "--role", "tools"]
        signed = ["--environment", "tools", "--signature", str(signature), "--public-key", str(key)]
        found = loop(home, "first", "adapters", "import", str(folder / "given"), *terms, *signed, "--json")
    return str(json.loads(found)["adapter"]["digest"])


def show(found: dict[str, Any]) -> None:
    """The table for docs/RESULTS.md."""
    composition = found["composition"]
    names = list(composition["scores"]["composed"])
    print(f"| | {' | '.join(names)} |\n|{'---|' * (len(names) + 1)}")
    for system, row in composition["scores"].items():
        print(f"| {system} | {' | '.join(figure(row[name]) for name in names)} |")
    for system, row in composition["over"].items():
        print(f"| composed less {system} | {' | '.join(figure(row[name], '+') for name in names)} |")
    print(f"strongest: {composition['strongest']}; answered: {composition['routes']}")
    print(f"regret {figure(composition['regret'], '+')}; {found['generation']['decision']['standing']}")


def figure(interval: dict[str, float], sign: str = "") -> str:
    """A point with its interval."""
    return f"{interval['point']:{sign}.1f} [{interval['low']:{sign}.1f}, {interval['high']:{sign}.1f}]"


def main() -> None:
    """Train both, bring the one to the other, examine, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--home", type=Path, required=True, help="a folder for both owners' homes; kept")
    parser.add_argument("--tools", type=int, default=40, help="holdout tasks for tools")
    parser.add_argument("--coding", type=int, default=10, help="holdout tasks for coding")
    options = parser.parse_args()
    home = options.home.absolute()
    for owner in ("second", "first"):
        loop(home, owner, "run", "--generation", "0", "--force")
    tasks = json.dumps({"tools": options.tools, "coding": options.coding})
    adapter = bring(home)
    exam = EXAM | {"MACARON_SIZES__EXAMINE__TASKS": tasks}
    show(json.loads(loop(home, "first", "adapters", "examine", adapter, "--json", **exam)))


if __name__ == "__main__":
    main()
