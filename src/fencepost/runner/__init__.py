"""What runs around somebody else's code: the supervisor of an attempt's command, and the caller of a python step."""
