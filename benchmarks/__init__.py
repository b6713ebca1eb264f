"""Benchmarks that anybody can run against a stack of their own."""
