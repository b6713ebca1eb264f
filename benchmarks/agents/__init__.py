"""Does the proxy make a weak model reliable? What came out: benchmarks/agents.md."""
