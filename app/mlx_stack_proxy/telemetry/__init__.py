"""What the proxy reports of its exchanges: metrics, events, the log, traces, captured failures."""
