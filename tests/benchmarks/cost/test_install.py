import sys

import pytest

from benchmarks.cost import install


def test_a_type_alias_statement_is_respelt() -> None:
    source = "class A:\n    pass\n\n\ntype Both = list[A] | A\ntyped = 1\n"

    assert install.older(source) == "class A:\n    pass\n\n\nBoth = list[A] | A\ntyped = 1\n"


def test_a_python_that_is_not_there_has_no_version() -> None:
    assert install.version_of("python-of-no-machine") == (0,)


def test_the_reason_is_told_though_it_is_not_the_last_line() -> None:
    said = "raise SystemExit('certificate refused\\nA complete log is elsewhere')"
    with pytest.raises(install.CannotInstall, match=r"ended with 1: certificate refused"):
        install.run([sys.executable, "-c", said])
