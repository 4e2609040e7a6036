"""The FIFO queue."""
