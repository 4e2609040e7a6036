"""The locks of other clients beside ours: `python -m bench.peers`, or `make bench-peers`."""
