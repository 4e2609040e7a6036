"""The command `zklock`, also `python -m recipes`: run commands under a lock or as a leader, show holders."""
