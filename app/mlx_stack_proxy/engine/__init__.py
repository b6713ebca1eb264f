"""One exchange: its request, its attempts, what follows each, and the call to LiteLLM."""
