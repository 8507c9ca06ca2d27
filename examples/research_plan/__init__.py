"""The fourth example, a plan: three agents' programs that hand their findings to each other over real airports."""
