"""Memory pressure: how short memory is on this machine, measured, damped and reported."""
