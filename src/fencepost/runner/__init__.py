"""What runs around somebody else's code: the supervisor of an attempt's command, and the caller of a python step.

`python -I -S alone.py FOLDER` starts a supervisor with the standard library alone: nothing that a user installs or sets can stop it,
and it is there in a few hundredths of a second. It waits for the word "go" on its standard input (an end before it: it leaves, and
nothing has run), starts what order.json says, keeps its streams within bounds, ends it at its ceiling or when told, ends whatever it
left running, takes the digests of its outputs, and writes result.json, whole and durable, before it leaves itself (laws 70.10, 85.3).
It outlives the worker that started it.

On Linux the kernel kills the command when its supervisor dies, and hands over to it what forked away. Elsewhere neither can be had:
what left its process group is not found, and a command whose supervisor was killed lives on until it ends by itself.
"""
