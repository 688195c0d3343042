//! Planted programs, inherited environments and descriptors, and what runs as root.
