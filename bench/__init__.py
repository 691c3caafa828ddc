"""Benchmarks: our paths against floors and peers, in one run, as ratios."""
