"""The waiting line of tickets and the leases on it: the common base of locks, semaphores and elections."""
