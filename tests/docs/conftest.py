"""A proxy, as the tests of the shell have it."""

from tests.server.conftest import start_proxy

__all__ = ["start_proxy"]
