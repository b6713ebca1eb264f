"""Whatever stands in ``config.yaml`` or the environment: settings, or a sentence a problem."""

from __future__ import annotations

import contextlib
import io
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.fuzz.mutations import JSON, TEXTS, damaged, few
from mlx_stack_proxy.operator import cli
from mlx_stack_proxy.settings import Settings
from mlx_stack_proxy.settings_source import SettingsError, from_mapping, load
from tests.test_settings_example import EXAMPLE, leaves

PATHS = sorted(set(leaves(Settings)))
EXAMPLE_TEXT = EXAMPLE.read_text("utf-8")
LINES = [line for line in EXAMPLE_TEXT.splitlines() if line.strip() and line.strip()[0] != "#"]
SCRAPS = [
    "\n", " ", "  ", "\t", ":", ": ", "- ", "{", "}", "[", "]", ",", "#", "&a ", "*a", "!!int ",
    "!!python/object:os.system ", "|", ">", "'", '"', "\\", "---\n", "...\n", "? ", "~", "null",
    "true", "off", ".nan", ".inf", "-1", "0", "1e400", "0x10", "1:30", "2026-11-22", "<<: ", "%",
    "@", "`", "\x00", "\x85", "é", "🎉", "<<", "=", "tiers:", "server:", "models:", "per_key:",
]  # fmt: skip
ODD = (
    JSON
    | st.sampled_from([float("nan"), float("inf"), -1, 0, 2**70, "", " ", "off", "*", "${HOME}"])
    | st.dates()
    | st.binary(max_size=4)
    | st.dictionaries(st.integers() | st.booleans() | st.none(), JSON, max_size=2)
)


def put(whole: dict[str, Any], path: str, value: Any) -> None:
    *parents, last = path.split(".")
    place = whole
    for key in parents:
        below = place.get(key)
        place[key] = place = below if isinstance(below, dict) else {}
    place[last] = value


def assert_sentences(error: SettingsError) -> None:
    """Each problem is a sentence that begins with where it is."""
    assert error.problems
    for problem in error.problems:
        assert problem.strip() and "Traceback" not in problem and "pydantic" not in problem


@few
@given(st.sampled_from(PATHS), ODD)
def test_a_value_is_taken_or_its_key_is_named(path: str, value: Any) -> None:
    data: dict[str, Any] = {}
    put(data, path, value)
    try:
        assert isinstance(from_mapping(data), Settings)
    except SettingsError as error:
        assert_sentences(error)
        # Two settings that don't agree are told at one of them.
        told = "\n".join(error.problems)
        assert path.rpartition(".")[2] in told or path.partition(".")[0] in told, told


@few
@given(st.sampled_from(PATHS), st.integers(0, 30), st.sampled_from("abz_-"))
def test_a_misspelt_key_is_named_with_the_right_one(path: str, at: int, letter: str) -> None:
    before, dot, name = path.rpartition(".")
    at = min(at, len(name))
    wrong = name[:at] + letter + name[at:]
    siblings = {one.rpartition(".")[2] for one in PATHS if one.rpartition(".")[0] == before}
    if wrong in siblings or len(name) < 4:
        return
    data: dict[str, Any] = {}
    put(data, f"{before}{dot}{wrong}", 1)
    try:
        from_mapping(data)
    except SettingsError as error:
        told = [problem for problem in error.problems if wrong in problem]
        assert told and any(f"did you mean `{near}`?" in told[0] for near in siblings), told
    else:
        raise AssertionError(f"{wrong} was taken")


@contextlib.contextmanager
def file_of(text: bytes) -> Iterator[str]:
    with tempfile.TemporaryDirectory(prefix="fuzz-") as folder:
        file = Path(folder) / "config.yaml"
        file.write_bytes(text)
        yield str(file)


WHOLE = EXAMPLE_TEXT.splitlines()
PARTS = st.tuples(st.integers(0, len(WHOLE)), st.integers(1, 15))
FILES = damaged(
    PARTS.map(lambda part: "\n".join(WHOLE[part[0] : part[0] + part[1]]))
    | st.lists(st.sampled_from(LINES), max_size=6).map("\n".join)
    | st.dictionaries(TEXTS, JSON, max_size=4).map(partial(yaml.safe_dump, allow_unicode=True)),
    SCRAPS,
).map(lambda text: text.encode("utf-8", "surrogatepass"))


@few
@given(FILES | st.binary(max_size=40))
def test_any_file(text: bytes) -> None:
    said = io.StringIO()
    with (
        file_of(text) as file,
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(said),
    ):
        try:
            load(file, {})
            good = True
        except SettingsError as error:
            assert_sentences(error)
            good = False
        code = cli.main(["check", "--settings", "--config", file])
    assert code == 0 if good else code in (1, 2)
    assert "Traceback" not in said.getvalue()


VARIABLES = st.builds(
    lambda path: "MLX_STACK_" + path.upper().replace(".", "__"), st.sampled_from(PATHS)
)


@few
@given(
    st.dictionaries(
        damaged(VARIABLES, ["__", "_", "X", "FAST", "0", "é", "."]),
        TEXTS | st.sampled_from(["true", "1", "{}", "[]", '{"a": 1}', "[1", "null", "off", "nan"]),
        max_size=3,
    )
)
def test_any_environment(variables: dict[str, str]) -> None:
    try:
        assert isinstance(load(None, variables), Settings)
    except SettingsError as error:
        assert_sentences(error)
