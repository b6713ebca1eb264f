"""Runs an exchange: attempts, what follows each, time limits, the answer to the client."""
