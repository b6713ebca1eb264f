"""What can go wrong with a tier, who asks meanwhile, and what came of it.

The catalogue is shared: the shell tests run it against a scripted upstream, `make faults` against
that, LiteLLM and real model servers, and prints the table of benchmarks/faults.md.
"""
