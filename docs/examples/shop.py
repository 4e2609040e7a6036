"""A Django view that places each order once: blocking code, in many threads of many processes.

    pip install django gunicorn
    ZOOKEEPER=zk1:2181,zk2:2181,zk3:2181 gunicorn --workers 4 --threads 8 shop:application
    curl -X PUT http://localhost:8000/accounts/7/orders/a-1

Django's settings, `urlpatterns` and `application` stand here so that one file is a whole program.
"""

import atexit
import contextlib
import functools
import os
import threading

import store
from django.conf import settings
from django.core.wsgi import get_wsgi_application
from django.http import HttpRequest, JsonResponse
from django.urls import path

import zkwire
from recipes import Lock, LockLostError
from zkwire.blocking import Portal

_one_at_a_time = threading.Lock()


@functools.cache
def _connect() -> tuple[Portal, zkwire.Client]:
    with contextlib.ExitStack() as stack:  # stops the portal if no server answers
        portal = stack.enter_context(Portal())
        # 0: each server is tried once.  Those who wait for this thread would wait for its limit, too, one by one.
        zk = stack.enter_context(portal.enter(zkwire.connect(os.environ["ZOOKEEPER"], within=0)))
        atexit.register(stack.pop_all().close)
        return portal, zk


def zookeeper() -> tuple[Portal, zkwire.Client]:
    """Return the portal and the client of this process, which its first request makes: after the fork of Gunicorn."""
    with _one_at_a_time:  # functools.cache alone would let each thread make one of its own
        return _connect()


def place_order(request: HttpRequest, account: int, order: str) -> JsonResponse:
    """Place an order, in one thread at a time for each account; `placed` is False if it had been placed before."""
    if request.method != "PUT":
        return JsonResponse({"error": "PUT an order"}, status=405)
    try:
        portal, zk = zookeeper()
        lock = portal.call(Lock, zk, f"/orders/accounts/{account}")
        with portal.enter(lock.hold(within=2.0)) as lease:
            portal.call(lease.check)  # no thread is cancelled when its lock is lost: look before each step,
            return JsonResponse({"placed": store.place(order, account, lease.token)})  # and let the store refuse
    except (TimeoutError, LockLostError, zkwire.ZooKeeperError, store.StaleTokenError) as error:
        return JsonResponse({"error": f"repeat the request, the order may not have been placed: {error}"}, status=503)


settings.configure(ROOT_URLCONF=__name__, ALLOWED_HOSTS=["*"])
urlpatterns = [path("accounts/<int:account>/orders/<str:order>", place_order)]
application = get_wsgi_application()
