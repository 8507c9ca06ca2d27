"""The hands: what claims attempts, keeps them alive and runs their code."""
