"""A proxy and its scripted upstream, as the tests of the shell have them."""

from tests.shell.conftest import start_proxy, upstream

__all__ = ["start_proxy", "upstream"]
