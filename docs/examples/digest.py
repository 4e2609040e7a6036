"""Celery beat on every host, so that one is always there; only one of them runs and sends the tasks that are due.

    pip install celery
    export ZKWIRE_HOSTS=zk1:2181,zk2:2181,zk3:2181 BROKER=amqp://broker.example
    zklock elect /digest/beat -- celery -A digest beat --pidfile= --loglevel info
    celery -A digest worker

Each host has a file of its own, `celerybeat-schedule`, with the times at which its beat has sent each task last.  So
after a change of hosts an interval begins from then, and a task of a crontab may be due once more: let it be harmless.
"""

import os

from celery import Celery

app = Celery("digest", broker=os.environ.get("BROKER"))
app.conf.beat_schedule = {"digest": {"task": "digest.send", "schedule": float(os.environ.get("INTERVAL", "3600"))}}


@app.task(name="digest.send")
def send() -> None:
    """Send the digest; a worker does it."""
    print("the digest is sent", flush=True)
