"""The main example: check where real airports lie, and publish the result exactly once.

`work` holds the plain functions, `press` the local HTTP service that a run publishes to, `press_client` the two calls
a step makes to it. Nothing in these three imports Fencepost.
"""
