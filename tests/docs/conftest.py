"""A proxy, as the tests of the shell have it."""

from tests.shell.conftest import start_proxy

__all__ = ["start_proxy"]
