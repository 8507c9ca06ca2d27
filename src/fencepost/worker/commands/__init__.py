"""The executor of a plan's command and python steps on this host: processes, folders and files, never the database.

A try's life, as a leg drives it:

    supervised = await commands.start(root, name)         a process of ours exists and waits; nothing of the author's ran
    ... its facts are recorded, the attempt begins (70.10) ...
    await supervised.go(packet, store)                    the packet and the inputs are written, the command runs
    ended = await supervised.ended()                      Ended · Dead · NotStarted
    outcome = await commands.settle(store, packet, supervised.folder, ended)

Another worker of the same host goes on with `meet(folder, pid, process_start)` and `packet_in(folder)`: what is settled is a
function of the packet and the folder alone, so whoever settles, and how often, says the same text.
"""

from __future__ import annotations

from fencepost.worker.commands.folders import attempt_name, sweep, tail
from fencepost.worker.commands.packets import Input, LaunchRefused, Packet, packet_in, read_packet
from fencepost.worker.commands.reports import Completed, Dead, Ended, Failed, NotStarted
from fencepost.worker.commands.settling import settle
from fencepost.worker.commands.watching import Supervised, meet, start

__all__ = [
    "Completed",
    "Dead",
    "Ended",
    "Failed",
    "Input",
    "LaunchRefused",
    "NotStarted",
    "Packet",
    "Supervised",
    "attempt_name",
    "meet",
    "packet_in",
    "read_packet",
    "settle",
    "start",
    "sweep",
    "tail",
]
