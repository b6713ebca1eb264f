"""The commands that ask a running proxy over HTTP; nothing here runs in the proxy's process."""
