"""A night of agents in some minutes, and whether the report of it is true."""
