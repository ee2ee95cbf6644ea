//! Networks of pods on this machine, in namespaces that the tests make. They need root.
