#!/usr/bin/env python3
"""Pages of other places, in a real Chromium, against a node on this machine: they must leave it as it was.

    tests/clients/browser_check.py target/debug/zlock

Needs chromium (Debian: apt-get install chromium); says "NOT RUN" and ends with 75 when there is none. A page at another origin
(another port of localhost, and a foreign name that leads here) tries what a page can: fetch without CORS, fetch with
credentials, a form, a picture, and the node's own URLs under a foreign name, which is what DNS rebinding comes to. Then the node is asked
whether anything was written, and what the pages could read is looked at.
"""

import sys

sys.dont_write_bytecode = True

import http.server
import json
import pathlib
import shutil
import subprocess
import tempfile
import threading
import urllib.request

from scene import Cluster, not_run

PAGE = """<!doctype html><title>page</title><pre id=heard></pre>
<iframe name=sink></iframe>
<form id=form method=post target=sink enctype=text/plain action="NODE/v1/sessions">
<input name='{"label":"form","x":"' value='"}'></form>
<form id=plain method=post target=sink action="NODE/v1/revocations/held?deadline=0"></form>
<img src="NODE/v1/cluster">
<script>
const heard = [];
const tell = (what) => { heard.push(what); document.getElementById('heard').textContent = heard.join('|'); };
const tries = [
  ['no-cors', {method: 'POST', mode: 'no-cors', body: '{"label":"page"}'}],
  ['cors', {method: 'POST', headers: {'content-type': 'application/json'}, body: '{"label":"page"}'}],
  ['same-origin or nothing', {method: 'POST', body: '{}'}],
];
(async () => {
  for (const [name, options] of tries) {
    for (const path of ['/v1/sessions', '/v1/znodes/page', '/v1/revocations/held?deadline=0']) {
      try { const r = await fetch('NODE' + path, options); tell(name + ' ' + r.type + ' ' + r.status); }
      catch (error) { tell(name + ' failed'); }
    }
  }
  try { const r = await fetch('NODE/v1/cluster'); tell('read ' + (await r.text()).slice(0, 40)); }
  catch (error) { tell('read failed'); }
  document.getElementById('form').submit();
  document.getElementById('plain').submit();
  tell('end');
})();
</script>"""


def call(node, method, path, body=None, headers=None):
    request = urllib.request.Request(node + path, data=body, method=method, headers=headers or {})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def serve_page(node):
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            body = PAGE.replace("NODE", node).encode()
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_):
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    return server.server_address[1]


def browse(chromium, directory, url):
    arguments = [
        chromium, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
        f"--user-data-dir={directory}/profile", "--host-resolver-rules=MAP *.example 127.0.0.1",
        # Chromium asks before a page reaches this machine. The node must not need that.
        "--disable-features=LocalNetworkAccessChecks,PrivateNetworkAccessSendPreflights,BlockInsecurePrivateNetworkRequests",
        "--virtual-time-budget=10000", "--dump-dom", url,
    ]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=120, check=False)
    return done.stdout


def main():
    chromium = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    if chromium is None:
        sys.exit(not_run("chromium is missing (apt-get install chromium)"))
    failures = []
    program = pathlib.Path(sys.argv[1]).resolve()
    with tempfile.TemporaryDirectory() as directory, Cluster(program, pathlib.Path(directory), nodes=1) as cluster:
        cluster.wait_ready()
        node, port = "http://" + cluster.http[0], cluster.http[0].rsplit(":")[-1]
        session_key = call(node, "POST", "/v1/sessions", b'{"timeout":"5m"}')["session_key"]
        call(node, "POST", "/v1/locks/held", headers={"Zlock-Session-Key": session_key})
        before = call(node, "GET", "/v1/cluster")
        sites = [
            ("another port", f"http://localhost:{serve_page(node)}/", True),
            ("a foreign name", f"http://evil.example:{serve_page(node)}/", True),
            ("a foreign name for both", f"http://evil.example:{serve_page(f'http://evil.example:{port}')}/", True),
            ("the node under a foreign name", f"http://rebound.example:{port}/v1/cluster", False),
        ]
        for name, url, is_page in sites:
            heard = browse(chromium, directory, url)
            shown = heard[heard.find('id="heard"'):].split("</pre>")[0] if is_page else heard
            print(f"{name}: {shown.strip()[:400]}")
            if is_page and "|end" not in heard:
                failures.append(f"{name}: the page did not run to its end")
            if "cluster_id" in heard:
                failures.append(f"{name}: the page read the node's answer")
        after = call(node, "GET", "/v1/cluster")
        for field in ("sessions", "znodes", "applied_zxid"):
            if before[field] != after[field]:
                failures.append(f"{field} was {before[field]} and is {after[field]}")
        queue = call(node, "GET", "/v1/locks/held")
        if queue["contenders"] != 1:
            failures.append("the lock was taken away")
    for failure in failures:
        print(f"FAILED: {failure}", file=sys.stderr)
    if failures:
        sys.exit(1)
    print("pages of other places left the node as it was")


main()
