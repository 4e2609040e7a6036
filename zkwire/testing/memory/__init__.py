"""An in-memory ZooKeeper server, for tests."""
