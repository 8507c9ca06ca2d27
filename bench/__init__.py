"""The benchmark: Fencepost, the peers and the floor, beside each other in one run. Figures of two machines are never compared."""
