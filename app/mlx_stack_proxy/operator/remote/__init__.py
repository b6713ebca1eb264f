"""The commands that ask a running proxy. Nothing here is part of the proxy's own process."""
