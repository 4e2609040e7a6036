"""The waiting line of tickets and the leases on it: what locks, semaphores and elections share."""
