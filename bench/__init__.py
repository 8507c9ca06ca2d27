"""Benchmarks of this machine: `make bench`. Figures of one run are compared with each other, never with another machine's."""
