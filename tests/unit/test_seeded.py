"""The seeded faults of tests/seeded fit the code: a patch that no longer applies would never be caught again."""

import csv
import subprocess
from pathlib import Path

import pytest

SEEDED = Path(__file__).parents[1] / "seeded"
ROOT = SEEDED.parents[1]
PATCHES = sorted(SEEDED.glob("*.patch"))


def test_there_are_thirty():
    assert [patch.name[:3] for patch in PATCHES] == [f"{number:02d}_" for number in range(1, 31)]


@pytest.mark.parametrize("patch", PATCHES, ids=lambda patch: patch.stem)
def test_patch_applies_and_names_its_tests(patch: Path):
    run = subprocess.run(["git", "apply", "--check", patch], cwd=ROOT, capture_output=True, text=True, check=False)
    assert run.returncode == 0, (
        f"{run.stderr}{patch.name} no longer fits the code. Put the same fault into the code as it is now, and its "
        f"git diff -U2 in place of the patch's; then take the fault out again"
    )
    what, *head = patch.read_text().partition("\n--- ")[0].splitlines()
    rooms = [path for line in head if line.startswith("room:") for path in line.split()[1:]]
    assert what.endswith("."), "the first line says in a sentence what is wrong"
    assert rooms, "a line room: names the tests that should catch it"
    missing = [path for path in rooms if not (ROOT / path).exists()]
    assert not missing, f"{patch.name}: correct its line room: to where these tests are now"


def test_results_are_of_these_faults():
    with (SEEDED / "results.csv").open(newline="") as file:
        names = [row["name"] for row in csv.DictReader(file)]
    assert names == [patch.stem for patch in PATCHES], "python tests/seeded/run.py NAME --out tests/seeded/results.csv"
