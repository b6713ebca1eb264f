"""Exit code 0 if the proxy of this container answers; an image without curl needs no more.

Where it listens is read as the proxy itself reads it: from the options that it was started with,
its file and the environment.
"""

import sys
import urllib.request
from pathlib import Path

from mlx_stack_proxy.operator import cli, serve

# Of process 1: the proxy, or an init that was given the proxy's command.
COMMAND = Path("/proc/1/cmdline")


def address(command: list[str]) -> str:
    """The URL of a proxy that runs by this command, which may stand behind another."""
    options = command[command.index("serve") :] if "serve" in command else ["serve"]
    return serve.settings_origin(cli.arguments(options)).read().server.url


def main(command: list[str]) -> str | int:
    """The exit code, or what is the matter."""
    no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with no_proxy.open(f"{address(command)}/health", timeout=4) as response:
            return 0 if response.status == 200 else f"status {response.status}"
    except (OSError, ValueError) as error:
        return f"no answer: {error}"


if __name__ == "__main__":
    sys.exit(main(COMMAND.read_text(encoding="utf-8", errors="replace").split("\0")[:-1]))
