"""Published figures: kept with their source and protocol, shown beside ours, refused when they lack either."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.test_bad_input import one_sentence, run

SHIPPED = Path(__file__).parents[2] / "examples" / "figures" / "macaron-v1.toml"


def test_a_source_is_imported_once_and_shown_under_its_protocols(tmp_path: Path) -> None:
    for _ in range(2):
        assert "9 figures" in run(tmp_path, "figures", "import", str(SHIPPED)).stdout
    (source,) = json.loads(run(tmp_path, "figures", "list", "--json").stdout)
    assert len(source["figures"]) == 9 and "2608.09819" in source["source"]
    run(tmp_path, "report")
    page = (tmp_path / "report.html").read_text()
    assert "99.12 %" in page and "BFCL v4, 200 tasks" in page and "imported: Macaron-V1 report" in page


def test_importing_a_source_again_replaces_what_is_shown_of_it(tmp_path: Path) -> None:
    run(tmp_path, "figures", "import", str(SHIPPED))
    other = tmp_path / "other.toml"
    other.write_text(SHIPPED.read_text().replace("99.12", "12.5"))
    run(tmp_path, "figures", "import", str(other))
    (source,) = json.loads(run(tmp_path, "figures", "list", "--json").stdout)
    assert source["figures"][0]["value"] == 12.5
    run(tmp_path, "figures", "import", str(SHIPPED))
    (source,) = json.loads(run(tmp_path, "figures", "list", "--json").stdout)
    assert source["figures"][0]["value"] == 99.12


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name = ", "not valid TOML"),
        ('name = "x"\nsource = "y"\nfigures = []', "figures"),
        ('name = "x"\nsource = "y"\n[[figures]]\nsystem = "a"\nmetric = "b"\nvalue = 1', "protocol"),
        ('name = "x"\n[[figures]]\nsystem = "a"\nmetric = "b"\nvalue = 1\nprotocol = "p"', "source"),
    ],
)
def test_a_file_without_protocol_or_source_is_refused_in_a_sentence(tmp_path: Path, text: str, said: str) -> None:
    bad = tmp_path / "bad.toml"
    bad.write_text(text)
    one_sentence(run(tmp_path, "figures", "import", str(bad)), 2, said)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    one_sentence(run(tmp_path, "figures", "import", "nowhere.toml"), 2, "nowhere.toml")
