"""The local mirror of a node or a tree."""
