"""Benchmarks: each module is a program, run as `python -m benchmarks.measure.NAME`."""
