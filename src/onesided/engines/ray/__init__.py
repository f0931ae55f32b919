"""Passes over many machines, on Ray: rows in shards, the factor broadcast, sums added in trees.

Rows are cut into shards of about as many entries each, one for each pass that can run at a time. A shard is
an object in Ray's store on the node that works on it. A pass puts what it needs, the factor above all, into the store
once; every node fetches it once, all workers of a node read the same copy, and what shards send back is added up first
on each node, then between nodes, four at a time, and at last in the process that fits. Which shards are added to which
is settled by the shards alone: the same sums come out, to the last bit, wherever tasks run and however often.

All work is done by Ray's tasks, which are tried again when a worker or a node dies, and objects lost with a node are
made again from what they were made of: in the end, from the files.
"""

from onesided.engines.ray.cluster import Cluster, connect, current
from onesided.engines.ray.panel import RayPanel, distribute
from onesided.engines.ray.read import read

__all__ = ["Cluster", "RayPanel", "connect", "current", "distribute", "read"]
