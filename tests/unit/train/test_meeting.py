"""Where a training without a launcher meets."""

import os

import pytest

from kevin.train.grpo_run import meet_alone


@pytest.fixture(autouse=True)
def no_launcher(monkeypatch):
    for name in ("WORLD_SIZE", "MASTER_PORT"):
        monkeypatch.setenv(name, "")  # restored afterwards, whatever is set meanwhile
        monkeypatch.delenv(name)


def test_trainings_that_start_side_by_side_have_ports_of_their_own():
    ports = set()
    for _ in range(3):
        os.environ.pop("MASTER_PORT", None)
        meet_alone()
        ports.add(os.environ["MASTER_PORT"])

    assert len(ports) > 1
    assert "29500" not in ports


def test_a_port_that_is_given_stays(monkeypatch):
    monkeypatch.setenv("MASTER_PORT", "1234")

    meet_alone()

    assert os.environ["MASTER_PORT"] == "1234"


def test_processes_of_a_launcher_meet_where_it_says(monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "2")

    meet_alone()

    assert "MASTER_PORT" not in os.environ
