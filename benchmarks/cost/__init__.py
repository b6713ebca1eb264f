"""What the proxy costs beside others, on one scripted upstream: `python -m benchmarks.cost`."""
