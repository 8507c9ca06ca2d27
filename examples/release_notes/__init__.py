"""The third example, a plan: the notes of a release, from a real git history that comes along as a bundle."""
