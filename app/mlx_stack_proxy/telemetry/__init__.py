"""What the proxy tells of its exchanges: metrics, events, the log, traces, captured failures."""
