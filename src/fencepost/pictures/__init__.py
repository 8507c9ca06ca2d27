"""Pictures: what a workflow's code can do, from its source, and what a run has done, from the ledger. Nothing is executed here.

`flow.read` gives a `model.Flow` of a workflow; `text`, `mermaid`, `graph` (nodes and edges) and `svg` draw it. `timeline.read`
lays a run's document and events along time; `bars` draws that in a terminal, `gantt` as SVG.
"""
