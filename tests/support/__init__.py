"""Shared by the tests: a scripted upstream over real sockets, replies for it, a running proxy."""
