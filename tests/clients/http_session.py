"""A session over HTTP that goes to the next node when one does not answer."""

import json
import time
import urllib.error
import urllib.request
import uuid


class Session:
    """One client with one session. What no node answers is asked again, on the next node, with the same key."""

    def __init__(self, hosts, turn=0):
        self.hosts, self.turn, self.session_key = hosts, turn, None
        _, opened = self.call("POST", "/v1/sessions", b'{"timeout":"15s"}')
        self.session_key = opened["session_key"]

    def call(self, method, path, body=b"", key=None):
        while True:
            self.turn += 1
            request = urllib.request.Request("http://%s%s" % (self.hosts[self.turn % len(self.hosts)], path), data=body or None, method=method)
            if self.session_key:
                request.add_header("Zlock-Session-Key", self.session_key)
            if key:
                request.add_header("Idempotency-Key", key)
            try:
                with urllib.request.urlopen(request, timeout=15) as answer:
                    return answer.status, json.load(answer)
            except urllib.error.HTTPError as error:
                if error.code < 500:
                    return error.code, json.load(error)
            except OSError:
                pass
            time.sleep(0.1)

    def acquire(self, lock, mode, query):
        """The ticket, whose state is held or waiting; a problem when the wait is over."""
        path = "/v1/elections%s?%s" % (lock, query) if mode == "election" else "/v1/locks%s?mode=%s&%s" % (lock, mode, query)
        status, ticket = self.call("POST", path, key=str(uuid.uuid4()))
        assert status in (200, 202, 409), (status, ticket)
        return ticket

    def wait(self, ticket):
        """The same ticket once it holds, or after ten seconds."""
        return self.call("GET", "/v1/tickets%s?wait=10s" % ticket["ticket"])[1]

    def release(self, ticket):
        status, answer = self.call("DELETE", "/v1/tickets" + ticket["ticket"], key=str(uuid.uuid4()))
        assert status == 200, (status, answer)
