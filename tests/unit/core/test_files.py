"""Digests, atomic writes, and what goes through a file and back."""

import errno
import hashlib
import os
from pathlib import Path

import pandas as pd
import pytest
from core_fixtures import make_kernel, make_task, make_turn
from hypothesis import given
from hypothesis import strategies as st

from kevin.core import files
from kevin.core.errors import DataError
from kevin.core.protocol import JudgeProtocol
from kevin.core.types import Kernel, OpCall, Outcome, TaskSpec, TensorSpec, canonical_json, digest

parts = st.lists(st.text(alphabet="ab\0"), max_size=4)
SPEC = TaskSpec(
    inputs=(
        TensorSpec(name="x", shape=(2, 3), dtype="float32"),
        TensorSpec(name="s", shape=(), dtype="float32", kind="scalar"),
    ),
    outputs=(TensorSpec(name="out", shape=(2,), dtype="int64"),),
)


class TestDigests:
    @given(parts, parts)
    def test_different_parts_have_different_digests(self, a, b):
        assert (digest(*a) == digest(*b)) == (a == b)

    def test_strings_and_their_bytes_are_the_same_part(self):
        assert digest("ä") == digest("ä".encode())

    def test_known_value(self):
        """Stored verdicts are found by this: it must never change."""
        assert digest("ab", "c") == hashlib.sha256(b"\2\0\0\0\0\0\0\0ab\1\0\0\0\0\0\0\0c").hexdigest()

    def test_trivially_equal_kernels_are_one(self):
        assert make_kernel("int a;\n  b();\n").digest == make_kernel("\n\nint a;  \r\n  b();\t\n\n ").digest

    @pytest.mark.parametrize(
        ("a", "b"),
        [
            (" import x\nf()", "import x\nf()"),
            ("// c\x0cint x;", "// c\nint x;"),
            ("x = 1 + \\\n 2", "x = 1 + \\ \n 2"),
            ("a\n\nb", "a\nb"),
            ("a  b", "a b"),
        ],
    )
    def test_what_may_mean_something_else_is_another_kernel(self, a, b):
        assert make_kernel(a).digest != make_kernel(b).digest

    def test_dialect_and_language_belong_to_a_kernel(self):
        kinds = [("c_abi", "cpp"), ("c_abi", "cuda"), ("load_inline", "cpp"), ("load_inline", "cuda")]
        assert len({Kernel(dialect=d, language=la, source="a").digest for d, la in kinds}) == 4

    def test_a_changed_copy_has_its_own_digest(self):
        old = make_task()
        before = old.digest
        new = old.model_copy(update={"source": "y = 2\n"})
        assert new.digest == make_task(source="y = 2\n").digest != before
        assert old.digest == before

    @given(st.dictionaries(st.text(), st.integers() | st.text() | st.none() | st.lists(st.booleans())))
    def test_canonical_json_does_not_depend_on_order(self, value):
        assert canonical_json(value) == canonical_json(dict(reversed(value.items())))


class TestAtomic:
    def test_parents_are_made_and_nothing_else_is_left(self, tmp_path):
        path = tmp_path / "a" / "b.txt"
        files.write_text(path, "hello")
        assert path.read_text() == "hello"
        assert [p.name for p in path.parent.iterdir()] == ["b.txt"]

    def test_a_failure_leaves_the_old_file_and_no_other(self, tmp_path):
        path = tmp_path / "b.txt"
        files.write_text(path, "old")
        with pytest.raises(KeyboardInterrupt), files.atomic_path(path) as tmp:
            tmp.write_text("half")
            raise KeyboardInterrupt
        assert path.read_text() == "old"
        assert [p.name for p in tmp_path.iterdir()] == ["b.txt"]

    def test_a_folder_is_not_replaced_by_a_file(self, tmp_path):
        with pytest.raises(IsADirectoryError, match="is a folder; name a file") as raised:
            files.write_text(tmp_path, "x")
        assert raised.value.filename == str(tmp_path) and list(tmp_path.iterdir()) == []

    def test_a_full_disk_names_the_file(self, tmp_path):
        path = tmp_path / "b.txt"
        with pytest.raises(OSError, match=r"b\.txt") as caught, files.atomic_path(path):
            raise OSError(errno.ENOSPC, "No space left on device")
        assert caught.value.filename == str(path)
        assert list(tmp_path.iterdir()) == []

    def test_append_line(self, tmp_path):
        path = tmp_path / "new" / "log.jsonl"
        files.append_line(path, "1")
        files.append_line(path, "2")
        assert path.read_text() == "1\n2\n"


class TestParquet:
    def test_provenance_comes_back(self, tmp_path):
        path = tmp_path / "x.parquet"
        files.write_parquet(path, pd.DataFrame({"a": [1, 2]}), "things", {"commit": "abc"})
        frame, meta = files.read_parquet(path, "things")
        assert frame["a"].tolist() == [1, 2]
        assert (meta["commit"], meta["kind"], meta["schema_version"]) == ("abc", "things", files.SCHEMA_VERSION)

    def test_bad_files_name_themselves_and_the_fix(self, tmp_path):
        missing, damaged, foreign, other = (
            tmp_path / f"{n}.parquet" for n in ("missing", "damaged", "foreign", "other")
        )
        damaged.write_bytes(b"PAR1 not really")
        pd.DataFrame({"a": [1]}).to_parquet(foreign)
        files.write_parquet(other, pd.DataFrame({"a": [1]}), "tasks", {})
        for path, words in (
            (missing, "no such file.*snakemake"),
            (damaged, "cannot be read.*delete it"),
            (foreign, "holds something else"),
            (other, "holds tasks, expected turns"),
        ):
            with pytest.raises(DataError, match=f"{path.name}.*{words}"):
                files.read_parquet(path, "turns")

    def test_another_schema_version_is_refused(self, tmp_path, monkeypatch):
        path = tmp_path / "x.parquet"
        monkeypatch.setattr(files, "SCHEMA_VERSION", 99)
        files.write_parquet(path, pd.DataFrame({"a": [1]}), "tasks", {})
        monkeypatch.undo()
        with pytest.raises(DataError, match="schema version 99"):
            files.read_parquet(path, "tasks")


class TestTasks:
    def test_round_trip(self, tmp_path):
        path = tmp_path / "tasks.parquet"
        full = make_task(
            "l2/b",
            level=2,
            ops=(OpCall(name="softmax", attrs={"dim": -1, "scale": 0.5}),),
            flaws=("constant_output",),
            spec=SPEC,
            origin="composed",
        )
        plain = make_task()
        files.write_tasks(path, [(full, "level2"), (plain, "train")], {})
        assert files.read_tasks(path) == [full, plain]
        assert files.read_tasks(path, "train") == [plain]
        with pytest.raises(DataError, match="no split 'test'; there are level2, train"):
            files.read_tasks(path, "test")

    def test_a_task_has_one_split(self, tmp_path):
        with pytest.raises(DataError, match="l1/a was given twice"):
            files.write_tasks(tmp_path / "t.parquet", [(make_task(), "train"), (make_task(), "level1")], {})


class TestTurns:
    @pytest.mark.parametrize(
        "turns",
        [
            [],
            [make_turn(outcome=None, speedup=None, kernel=None)],
            [make_turn(outcome=Outcome.INCORRECT, speedup=None)],
            [
                make_turn(reason="r", feedback="f", verdict_key="k", summary="s"),
                make_turn(turn=2, kernel=None, outcome=Outcome.PARSE_ERROR, speedup=None, finish_reason="length"),
                make_turn(turn=3, outcome=None, speedup=None, reason="SandboxError"),
            ],
        ],
    )
    def test_round_trip_of_every_kind_of_turn_and_of_empty_columns(self, tmp_path, turns):
        path = tmp_path / "turns.parquet"
        files.write_turns(path, turns, {"policy": "base"})
        again, meta = files.read_turns(path)
        assert again == turns and meta["policy"] == "base"

    @given(
        st.lists(
            st.builds(
                make_turn,
                completion=st.text(alphabet=st.characters(blacklist_categories=["Cs"])),
                trajectory=st.integers(0, 99),
                speedup=st.floats(1e-6, 1e6),
            ),
            max_size=5,
        )
    )
    def test_frames_round_trip(self, turns):
        assert files.turns_from_frame(files.turns_frame(turns)) == turns

    @pytest.mark.parametrize(
        ("column", "value", "problem"),
        [
            ("feedback", None, "row 2: not a turn of this version: feedback"),
            ("outcome", "splendid", "row 2: not a turn of this version: 'splendid' is not a valid Outcome"),
            ("speedup", None, "row 2: not a turn of this version: .*does not fit outcome"),
            ("kernel_language", "fortran", "row 2: not a turn of this version: language"),
        ],
    )
    def test_a_row_that_is_no_turn_is_named(self, tmp_path, column, value, problem):
        frame = files.turns_frame([make_turn(), make_turn(turn=2)])
        frame.loc[1, column] = value
        files.write_parquet(tmp_path / "turns.parquet", frame, "turns", {})
        with pytest.raises(DataError, match=rf"turns\.parquet, {problem}"):
            files.read_turns(tmp_path / "turns.parquet")

    @pytest.mark.parametrize("column", ["outcome", "kernel_language"])
    def test_a_missing_column_is_named(self, tmp_path, column):
        frame = files.turns_frame([make_turn()]).drop(columns=column)
        files.write_parquet(tmp_path / "turns.parquet", frame, "turns", {})
        with pytest.raises(DataError, match=rf"turns\.parquet: no column '{column}'"):
            files.read_turns(tmp_path / "turns.parquet")

    def test_a_speedup_belongs_to_correct_kernels_only(self):
        with pytest.raises(ValueError, match="does not fit outcome"):
            make_turn(outcome=Outcome.INCORRECT)
        with pytest.raises(ValueError, match="does not fit outcome"):
            make_turn(speedup=None)

    def test_the_folder_of_a_relative_path_may_be_the_working_directory(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        files.write_turns(Path("turns.parquet"), [make_turn()], {})
        assert files.read_turns(Path("turns.parquet"))[0] == [make_turn()]


# --- what is no file ----------------------------------------------------------------------------------------------


def test_a_pipe_is_written_into_and_stays_one(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    files.write_text(pipe, "told\n")
    assert os.read(reader, 99) == b"told\n" and pipe.is_fifo()
    os.close(reader)


def test_what_a_shell_calls_a_programs_output_is_not_replaced(tmp_path: Path) -> None:
    """As ``--out /dev/stdout > file``, or ``| less``; root could put a file in the place of the system's device."""
    with (tmp_path / "redirected").open("w") as out:
        name = Path(f"/dev/fd/{out.fileno()}")
        files.write_text(name, "told\n")
        assert os.fstat(out.fileno()).st_ino == (tmp_path / "redirected").stat().st_ino
    assert (tmp_path / "redirected").read_text() == "told\n" and list(tmp_path.iterdir()) == [tmp_path / "redirected"]


@pytest.mark.parametrize(
    ("path", "stream"),
    [("/dev/null", True), ("/dev/stdout", True), ("/dev/fd/7", True), ("/proc/self/fd/1", True), ("/dev/none", True),
     ("/dev/shm/none/x", False), ("{tmp}", False), ("{tmp}/none", False), ("{tmp}/file", False)],
)  # fmt: skip
def test_streams_and_files(tmp_path: Path, path: str, stream: bool) -> None:
    (tmp_path / "file").touch()
    assert files.is_stream(Path(path.format(tmp=tmp_path))) == stream


def test_a_text_that_breaks_off_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, whole = tmp_path / "a.txt", Path.write_text
    files.write_text(path, "old")

    def half(self: Path, text: str, *args: object, **options: object) -> int:
        whole(self, text[:2], "utf-8")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_text", half)
    with pytest.raises((OSError, DataError)):
        files.write_text(path, "new text")
    assert path.read_text() == "old"


def test_an_older_judge_s_protocol_has_another_digest() -> None:
    present = JudgeProtocol()
    older = present.model_copy(update={"version": present.version - 1})
    assert older.digest != present.digest == JudgeProtocol().digest


@pytest.mark.parametrize("line", [b"7", b"[1]", b'"ab"', b'{"a": 1', b'{"a": "\xff"}', b""])
def test_a_damaged_line_of_a_log_is_named_and_one_that_a_kill_cut_short_is_left_out(tmp_path, line):
    log = tmp_path / "log.jsonl"
    log.write_bytes(b'{"a": "\xe2\x80\xa8"}\n' + line)
    assert files.read_lines(log, files.parse_object, "delete it") == [{"a": "\u2028"}]
    log.write_bytes(b'{"a": 1}\n' + line + b"\n")
    with pytest.raises(DataError, match=r"log\.jsonl: damaged \(line 2: .*\); delete it"):
        files.read_lines(log, files.parse_object, "delete it")
