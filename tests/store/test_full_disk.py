from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
NOT_PERMITTED = 77


def test_a_full_disk_is_one_sentence_and_nothing_is_lost(tmp_path: Path) -> None:
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("needs unshare (util-linux) to mount a small tmpfs privately")
    flags = ["--mount"] if os.getuid() == 0 else ["--mount", "--map-root-user"]
    if subprocess.run([unshare, *flags, "true"], capture_output=True).returncode != 0:
        pytest.skip("this machine does not permit private mount namespaces")
    command = [unshare, *flags, sys.executable, "-m", "tests.store.full_disk", str(tmp_path)]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=300)
    if done.returncode == NOT_PERMITTED:
        pytest.skip(f"a tmpfs cannot be mounted here: {done.stderr.strip()}")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    blobs, disk = tmp_path / "disk" / "blobs", tmp_path / "disk" / "loop.db"
    sentence = "StageFailed: disk full at {}: free space and run again, nothing was lost"
    assert found["blob"] == found["tree"] == found["record"] == sentence.format(blobs)
    assert found["row"] == sentence.format(disk)
    assert found["unchanged"] and found["kept"] and found["resumed"]
    # 3 of the first shard and 40 of the second
    assert found["episodes"] == 43
