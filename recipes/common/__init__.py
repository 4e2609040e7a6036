"""What recipes share beside the waiting line."""
