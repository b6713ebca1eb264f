"""Memory pressure: how short memory is on this machine, read, damped and reported."""
