"""Figures, drawn with matplotlib where it is installed."""
