"""The ways in which models write tool calls as text, one small module each; see `table`."""
