"""How short memory is, and what is left out while it is."""
