// What a client that was generated from the OpenAPI document for TypeScript does: node openapi_check.js ENDPOINT... It lies beside
// `zlock.d.ts`, which openapi-typescript made. It compiles only if the document's types fit. Ends with 0, or with what was wrong.

import assert from "node:assert";
import createClient, { type Client } from "openapi-fetch";
import type { components, paths } from "./zlock.js";

type Held = components["schemas"]["Ticket"] & { state: "held" };

class Session {
  private constructor(readonly client: Client<paths>, readonly session: number) {}

  /** A session at one node. */
  static async open(endpoint: string, label: string): Promise<Session> {
    const baseUrl = `http://${endpoint}`;
    const { data } = await createClient<paths>({ baseUrl }).POST("/v1/sessions", { body: { timeout: "60s", label } });
    assert(data, "a session is opened");
    return new Session(createClient<paths>({ baseUrl, headers: { "Zlock-Session-Key": data.session_key } }), data.session);
  }

  acquire(path: string, key: string, body: components["schemas"]["LocksAcquireParameters"]) {
    return this.client.POST("/v1/locks/{path}", { params: { path: { path }, header: { "Idempotency-Key": key } }, body });
  }

  release(ticket: string) {
    return this.client.DELETE("/v1/tickets/{ticket}", { params: { path: { ticket } } });
  }

  check(path: string, fencing_token: number) {
    return this.client.GET("/v1/fence", { params: { query: { path, fencing_token: `${fencing_token}` } } });
  }

  create(path: string, data: string) {
    const headers = { "Content-Type": "application/octet-stream" };
    return this.client.POST("/v1/znodes/{path}", { params: { path: { path } }, body: data, bodySerializer: (body) => body, headers });
  }

  read(path: string) {
    return this.client.GET("/v1/znodes/{path}", { params: { path: { path } } });
  }

  close() {
    return this.client.DELETE("/v1/sessions/{session}", { params: { path: { session: this.session } } });
  }
}

function held(data: components["schemas"]["Ticket"] | undefined): Held {
  assert(data?.state === "held", `it is not held: ${JSON.stringify(data)}`);
  return data;
}

const [one, two] = process.argv.slice(2);
assert(one && two, "two endpoints");
const first = await Session.open(one, "typescript 1");
const second = await Session.open(two, "typescript 2");

const mine = held((await first.acquire("team/x", "typescript: first", { wait: "5s" })).data);
assert.equal(mine.path, "/team/x");
const refused = await second.acquire("team/x", "typescript: try", {});
assert.equal(refused.error?.type, "urn:zlock:problem:not-acquired");
const waiting = (await second.acquire("/team/x", "typescript: second", { keep: true })).data;
assert(waiting?.state === "waiting", "it waits");
const look = second.client.GET("/v1/tickets/{ticket}", { params: { path: { ticket: waiting.ticket }, query: { wait: "30s" } } });
assert.equal((await first.release(mine.ticket)).data?.holds, 0);
const granted = held((await look).data);
assert(granted.fencing_token > mine.fencing_token, "tokens rise");
for (const [token, holds] of [[granted.fencing_token, true], [mine.fencing_token, false]] as const) {
  const { response } = await first.check("/team/x", token);
  assert.equal(response.status, holds ? 204 : 403, `${token}`);
}
assert.equal((await second.release(granted.ticket)).data?.holds, 0);

for (const [path, data] of [["typescript", ""], ["typescript/a b", "grün"]] as const) {
  assert.equal((await first.create(path, data)).data?.path, `/${path}`);
}
for (const path of ["typescript/a b", "/typescript/a b"]) {
  const { data } = await second.read(path);
  // It is a text when bytes are asked for, which they are not.
  assert(typeof data === "object" && "data" in data && data.data === "grün", JSON.stringify(data));
}
for (const session of [first, second]) {
  assert.equal((await session.close()).response.status, 200);
}
console.log("the TypeScript client took, contended for, waited for, checked and released /team/x");
