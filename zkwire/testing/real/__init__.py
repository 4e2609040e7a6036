"""Starts real ZooKeeper servers and ensembles, for tests."""
