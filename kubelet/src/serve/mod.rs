//! What the node answers to: logs, exec, attach, port-forward, statistics, its pods.
