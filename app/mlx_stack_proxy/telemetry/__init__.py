"""What is told of exchanges: metrics, events, the log, traces, captured failures."""
