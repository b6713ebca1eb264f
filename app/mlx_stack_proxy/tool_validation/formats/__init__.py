"""The formats in which models write tool calls as text; ``table`` lists them all."""
