"""What a client that was generated from the OpenAPI document for Python does: openapi_check.py ENDPOINT..., with the client's package
`zlock_client` on the path. Ends with 0, or with the assertion that failed."""

import sys
import threading
from io import BytesIO

from zlock_client import Client
from zlock_client.api.locks import fence_check, locks_acquire, tickets_look, tickets_release
from zlock_client.api.sessions import sessions_close, sessions_open
from zlock_client.api.znodes import znodes_create, znodes_read
from zlock_client.models import (
    LocksAcquireParameters, OpenSession, Problem, NewSession, TextZnode, TicketHeld, TicketWaiting,
)
from zlock_client.types import File


def expect(kind, answer):
    assert isinstance(answer, kind), "%s instead of %s" % (answer, kind.__name__)
    return answer


class Session:
    """A session at one node."""

    def __init__(self, endpoint, label):
        url = "http://" + endpoint
        wish = OpenSession(timeout="60s", label=label)
        self.opened = expect(NewSession, sessions_open.sync(client=Client(base_url=url), body=wish))
        self.client = Client(base_url=url, headers={"Zlock-Session-Key": self.opened.session_key}, timeout=60)

    def acquire(self, path, key, **how):
        return locks_acquire.sync(path, client=self.client, idempotency_key=key, **how)


def main():
    endpoints = sys.argv[1:]
    first, second = Session(endpoints[0], "python 1"), Session(endpoints[1], "python 2")
    held = expect(TicketHeld, first.acquire("team/x", "python: first", wait="5s"))
    assert held.path == "/team/x", held
    refused = expect(Problem, second.acquire("team/x", "python: try"))
    assert refused.type_ == "urn:zlock:problem:not-acquired", refused
    # The parameters in the body.
    wish = LocksAcquireParameters(keep=True, label="contender")
    waiting = expect(TicketWaiting, second.acquire("/team/x", "python: second", body=wish))
    answers = []
    look = threading.Thread(target=lambda: answers.append(tickets_look.sync(waiting.ticket, client=second.client, wait="30s")))
    look.start()
    assert tickets_release.sync(held.ticket, client=first.client, idempotency_key="python: back").holds == 0
    look.join()
    granted = expect(TicketHeld, answers[0])
    assert granted.fencing_token > held.fencing_token, (granted, held)
    for token, holds in [(granted.fencing_token, True), (held.fencing_token, False)]:
        check = fence_check.sync_detailed(client=first.client, path="/team/x", fencing_token=str(token))
        assert (check.status_code == 204) is holds, check
    assert tickets_release.sync(granted.ticket, client=second.client).holds == 0
    for path, data in [("python", b""), ("python/a b", "grün".encode())]:
        created = znodes_create.sync(path, client=first.client, body=File(payload=BytesIO(data)))
        assert created.path == "/" + path, created
    for path in ["python/a b", "/python/a b"]:
        seen = expect(TextZnode, znodes_read.sync(path, client=second.client))
        assert (seen.path, seen.data) == ("/python/a b", "grün"), seen
    for session in [first, second]:
        sessions_close.sync(session.opened.session, client=session.client)
    print("the Python client took, contended for, waited for, checked and released /team/x")


main()
