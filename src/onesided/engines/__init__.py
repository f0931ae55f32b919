"""Where passes over rows run."""
