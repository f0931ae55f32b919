"""How it is minimised: one solver per file, all return a ``SolveResult``."""
