"""Benchmarks: each module is a program, run as `python -m tests.bench.NAME`."""
