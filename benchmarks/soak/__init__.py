"""The proxy under mixed load and faults for a long time: does it stay as it is? ``make soak``."""
