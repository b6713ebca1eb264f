"""What the reliability layer costs inside LiteLLM, beside LiteLLM alone and the proxy alone.

python -m benchmarks.inside

CPU milliseconds a request, the median of rounds in which all take turns; behind each, what the
layer adds to LiteLLM, in requests of the proxy. By default the layer asks for a stream, whatever
its client wants, as the proxy does, and LiteLLM makes twice the effort for one: for a reply that
isn't streamed the layer's own share shows with `upstream.stream: as_requested`.
"""

from __future__ import annotations

import asyncio
import statistics
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from benchmarks.cost import measure
from benchmarks.machine import about
from benchmarks.measure import load, servers
from benchmarks.measure.servers import Server

ROUNDS = 5
SCALE = 2.0
AS_REQUESTED = {"upstream": {"stream": "as_requested"}}
KINDS = ("stream", "plain", "call")


@contextmanager
def started() -> Iterator[list[Server]]:
    with ExitStack() as stack, tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        upstream = servers.start_upstream(folder)
        stack.callback(upstream.stop)
        found = []
        for server in (
            servers.start_litellm(upstream.port, folder, load.KEY),
            servers.start_litellm(upstream.port, folder, load.KEY, inside={}),
            servers.start_litellm(upstream.port, folder, load.KEY, inside=AS_REQUESTED),
            servers.start_proxy(upstream.port, folder),
        ):
            if server is None:
                sys.exit("LiteLLM is not installed (make run installs it)")
            stack.callback(server.stop)
            found.append(server)
        yield found


async def measured(found: list[Server]) -> dict[str, list[float]]:
    """For each kind the median CPU seconds of each server."""
    for server in found:
        await measure.warm_up(server, 4)
    took: dict[str, list[list[float]]] = {kind: [[] for _ in found] for kind in KINDS}
    for _ in range(ROUNDS):
        for kind in KINDS:
            for place, server in enumerate(found):
                make = measure.REQUESTS[kind][1]()
                load_of = await measure.of_requests(server, make, SCALE)
                took[kind][place].append(load_of.cpu)
    return {kind: [statistics.median(one) for one in each] for kind, each in took.items()}


def main() -> None:
    with started() as found:
        medians = asyncio.run(measured(found))
    print(", ".join(f"{name}: {value}" for name, value in about().items()))
    print("| CPU ms a request | LiteLLM | the layer inside | `as_requested` | the proxy alone |")
    print("|---|--:|--:|--:|--:|")
    for kind, (alone, inside, as_requested, proxy) in medians.items():
        added = (
            f"{1000 * one:.2f} ({(one - alone) / proxy:+.2f} ×)" for one in (inside, as_requested)
        )
        cells = (measure.REQUESTS[kind][0], f"{1000 * alone:.2f}", *added, f"{1000 * proxy:.2f}")
        print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
