"""A local mirror of a node or of a tree of nodes."""
