"""Benchmarks of zkwire, run from the project's root: ``python bench/handover.py``."""
