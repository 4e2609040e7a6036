"""The session: one loop that connects, resumes, sets watches again, expires and closes."""
