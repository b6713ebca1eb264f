"""The reliability layer inside LiteLLM; with a real one: tests/faults/test_both_ways.py."""
