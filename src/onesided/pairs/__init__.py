"""What rows measure of columns and pairs of columns, before any model.

Sums of columns and of pairs, T̂ with its count and standard error, pair moments on Ω, how large Ω is, and which columns
rows link. Nothing here fits or completes anything. It may import panels, engines, storage and what comes before them.
"""
