"""The session: it connects, resumes, sets watches again, expires and closes; and the queue of its requests."""
