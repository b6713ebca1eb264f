"""A file of environment variables: read as systemd reads it, and only where it is private."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlx_stack_proxy.operator.service import env_file
from mlx_stack_proxy.settings_source import SettingsError


def written(folder: Path, text: str, mode: int = 0o600) -> Path:
    path = folder / "service.env"
    path.write_text(text)
    path.chmod(mode)
    return path


def test_what_people_write(tmp_path: Path) -> None:
    text = """
# a comment
; another
PLAIN=one
  SPACED = two words
EMPTY=
SINGLE='$three "3"'
DOUBLE="fo\\"ur \\$4 \\\\"
WITH_EQUALS=a=b#c
#LEFT_OUT=x
"""
    assert env_file.read(written(tmp_path, text)) == {
        "PLAIN": "one",
        "SPACED": "two words",
        "EMPTY": "",
        "SINGLE": '$three "3"',
        "DOUBLE": 'fo"ur $4 \\',
        "WITH_EQUALS": "a=b#c",
    }


@pytest.mark.parametrize("value", ["", "plain", 'a "b" $c `d` \\e', "'single'", " blanks ", "ü=;#"])
def test_what_is_written_is_read_again(value: str, tmp_path: Path) -> None:
    path = written(tmp_path, env_file.text_of({"NAME": value, "UNSET": None}))
    assert env_file.read(path) == {"NAME": value}


@pytest.mark.parametrize("value", ["a\nB=c", "a\rb", "a\0b"])
def test_a_value_that_would_be_two_lines_is_refused(value: str) -> None:
    with pytest.raises(SettingsError, match="NAME"):
        env_file.text_of({"NAME": value})


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o602])
def test_a_file_that_others_may_read_is_refused(mode: int, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=f"mode {mode:04o}.*chmod 600"):
        env_file.read(written(tmp_path, "A=b", mode))


@pytest.mark.parametrize("line", ["no equals secret", "1A=secret", "A B=secret", "=secret"])
def test_a_line_that_makes_no_sense_is_named_and_not_quoted(line: str, tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="line 2 is not NAME=value") as raised:
        env_file.read(written(tmp_path, f"A=b\n{line}\n"))
    assert "secret" not in str(raised.value)


def test_a_file_that_is_not_there_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match="can't be read: No such file"):
        env_file.read(tmp_path / "nowhere")


def test_what_is_set_already_is_the_stronger(tmp_path: Path) -> None:
    environ = {"A": "kept"}
    env_file.put_into(environ, written(tmp_path, "A=new\nB=new"))
    assert environ == {"A": "kept", "B": "new"}
