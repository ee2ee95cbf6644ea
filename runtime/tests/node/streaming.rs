//! Exec, attach and port-forward over their addresses.
