//! Images: pulled, kept by digest, unpacked into layers, and lent to containers as overlay folders.
