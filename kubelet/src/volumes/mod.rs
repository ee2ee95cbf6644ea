//! What the volumes of a pod are on this node: folders and files that its containers get to see.
