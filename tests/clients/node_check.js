// node-zookeeper-client against zlock. Ends with "node: all checks passed", or an exception.
//   node node_check.js check HOSTS
//   node node_check.js attached HOSTS      says which node it is on, and goes on once that was killed: see run.py

'use strict';
const zookeeper = require('node-zookeeper-client');
const readline = require('readline');

const [mode, HOSTS] = process.argv.slice(2);
const ROOT = '/node-' + process.hrtime.bigint();
const { CreateMode, Event, Exception } = zookeeper;

function that(good, what) {
    if (!good) {
        throw new Error('FAILED: ' + what);
    }
    console.log('ok ' + what);
}

function open(sessionTimeout) {
    const client = zookeeper.createClient(HOSTS, { sessionTimeout, spinDelay: 200, retries: 60 });
    const connected = new Promise((resolve) => client.once('connected', () => resolve(client)));
    client.connect();
    return connected;
}

// A call whose callback has an error first.
function call(client, name, ...words) {
    return new Promise((resolve, reject) => {
        client[name](...words, (error, ...results) => (error ? reject(error) : resolve(results.length > 1 ? results : results[0])));
    });
}

async function code(promise) {
    try {
        await promise;
    } catch (error) {
        return error.getCode ? error.getCode() : error;
    }
    return Exception.OK;
}

// A promise of the next event, and the watcher that keeps it.
function event() {
    let watcher;
    const heard = new Promise((resolve) => (watcher = resolve));
    return [heard, watcher];
}

async function znodes(one) {
    that((await call(one, 'create', ROOT, Buffer.from('x'))) === ROOT, 'create');
    const [data, stat] = await call(one, 'getData', ROOT, null);
    that(data.toString() === 'x' && stat.version === 0, 'getData');
    that((await call(one, 'setData', ROOT, Buffer.from('y'), 0)).version === 1, 'setData');
    that((await code(call(one, 'setData', ROOT, Buffer.from('z'), 0))) === Exception.BAD_VERSION, 'bad version');
    that((await code(call(one, 'create', ROOT))) === Exception.NODE_EXISTS, 'node exists');
    that((await code(call(one, 'getData', ROOT + '/none', null))) === Exception.NO_NODE, 'no node');
    that((await call(one, 'exists', ROOT + '/none', null)) === null, 'exists');
    const made = [];
    for (let i = 0; i < 3; i++) {
        made.push(await call(one, 'create', ROOT + '/s-', CreateMode.PERSISTENT_SEQUENTIAL));
    }
    that(made.every((path, i) => path === ROOT + '/s-000000000' + i), 'sequential');
    const results = await call(one.transaction().create(ROOT + '/t').check(ROOT, 1).remove(ROOT + '/t'), 'commit');
    that(results.length === 3, 'a transaction');
    const failed = one.transaction().create(ROOT + '/t').check(ROOT, 99);
    that((await code(call(failed, 'commit'))) === Exception.BAD_VERSION, 'a failed transaction');
    that((await call(one, 'exists', ROOT + '/t', null)) === null, 'a failed transaction does nothing');
    const sets = await Promise.all(Array.from({ length: 500 }, () => call(one, 'setData', ROOT, Buffer.from('p'))));
    that(sets.every((stat, i) => stat.version === i + 2), '500 pipelined writes in order');
    const mixed = [];
    for (let i = 0; i < 200; i++) {
        mixed.push(call(one, 'setData', ROOT, Buffer.from(String(i))), call(one, 'getData', ROOT, null));
    }
    const answers = await Promise.all(mixed);
    that(answers.every((one, i) => i % 2 === 0 || one[0].toString() === String((i - 1) / 2)), 'reads between writes see those before them');
}

async function watches(one, two) {
    const [created, onCreate] = event();
    await call(one, 'exists', ROOT + '/w', onCreate);
    await call(two, 'create', ROOT + '/w');
    that((await created).getType() === Event.NODE_CREATED, 'a watch hears of a create');
    const [changed, onChange] = event();
    const [children, onChild] = event();
    const [deleted, onDelete] = event();
    // The client may be on a node that has not heard of the create yet: its watch has told it.
    await call(one, 'getData', ROOT + '/w', onChange);
    await call(one, 'getChildren', ROOT + '/w', onChild);
    await call(two, 'setData', ROOT + '/w', Buffer.from('1'));
    that((await changed).getType() === Event.NODE_DATA_CHANGED, 'and of a set');
    await call(two, 'create', ROOT + '/w/c');
    that((await children).getType() === Event.NODE_CHILDREN_CHANGED, 'and of a child');
    await call(two, 'remove', ROOT + '/w/c', -1);
    await call(one, 'exists', ROOT + '/w', onDelete);
    await call(two, 'remove', ROOT + '/w', -1);
    that((await deleted).getType() === Event.NODE_DELETED, 'and of a delete');
}

async function acls(one, two) {
    one.addAuthInfo('digest', Buffer.from('bob:secret'));
    const all = [new zookeeper.ACL(zookeeper.Permission.ALL, new zookeeper.Id('auth', ''))];
    await call(one, 'create', ROOT + '/acl', Buffer.from('x'), all, CreateMode.PERSISTENT);
    await call(one, 'setData', ROOT + '/acl', Buffer.from('y'));
    that((await code(call(two, 'setData', ROOT + '/acl', Buffer.from('z')))) === Exception.NO_AUTH, 'an ACL forbids');
}

// The recipe of ZooKeeper's documentation, with Curator's names.
async function acquire(client, lock) {
    const mine = await call(client, 'create', lock + '/_c_node-lock-', CreateMode.EPHEMERAL_SEQUENTIAL);
    const number = (name) => name.slice(-10);
    for (;;) {
        const [names] = await call(client, 'getChildren', lock, null);
        const before = names.filter((name) => number(name) < number(mine)).sort((a, b) => (number(a) < number(b) ? -1 : 1)).pop();
        if (before === undefined) {
            return mine;
        }
        const [gone, onGone] = event();
        if (await call(client, 'exists', lock + '/' + before, onGone)) {
            await gone;
        }
    }
}

async function locks(clients) {
    const lock = ROOT + '/lock';
    await call(clients[0], 'create', lock);
    let holders = 0;
    let grants = 0;
    let token = 0n;
    await Promise.all(clients.map(async (client) => {
        for (let i = 0; i < 10; i++) {
            const mine = await acquire(client, lock);
            const [, stat] = await call(client, 'getData', mine, null);
            const czxid = BigInt('0x' + stat.czxid.toString('hex'));
            if (++holders !== 1 || czxid <= token) {
                throw new Error(`FAILED: ${holders} holders, token ${czxid} after ${token}`);
            }
            token = czxid;
            grants++;
            await new Promise((resolve) => setTimeout(resolve, 1));
            holders--;
            await call(client, 'remove', mine, -1);
        }
    }));
    that(grants === 10 * clients.length, grants + ' grants of a lock without overlap and with rising tokens');
}

async function sessions(one) {
    const other = await open(10000);
    await call(other, 'create', ROOT + '/e', CreateMode.EPHEMERAL);
    const closed = new Promise((resolve) => other.once('disconnected', resolve));
    other.close();
    await closed;
    // This client may be on a node that is behind: its watch tells when the node has heard of it.
    const [gone, onGone] = event();
    if (await call(one, 'exists', ROOT + '/e', onGone)) {
        await gone;
    }
    that((await call(one, 'exists', ROOT + '/e', null)) === null, 'an ephemeral goes with its session');
}

async function check() {
    const [one, two, three] = await Promise.all([open(10000), open(10000), open(10000)]);
    await znodes(one);
    await watches(one, two);
    await acls(one, two);
    await locks([one, two, three]);
    await sessions(one);
    [one, two, three].forEach((client) => client.close());
    console.log('node: all checks passed');
}

// Another client changes what this one watches while it is between two nodes.
async function attached() {
    const client = await open(15000);
    await call(client, 'create', ROOT, CreateMode.EPHEMERAL);
    await call(client, 'create', ROOT + '-watched');
    const [changed, onChange] = event();
    await call(client, 'getData', ROOT + '-watched', onChange);
    const before = client.getSessionId().toString('hex');
    console.log('ATTACHED %d %s-watched', client.connectionManager.socket.remotePort, ROOT);
    await new Promise((resolve) => readline.createInterface({ input: process.stdin }).once('line', resolve));
    that((await changed).getType() === Event.NODE_DATA_CHANGED, 'a watch hears of what it missed');
    const stat = await call(client, 'exists', ROOT, null);
    that(client.getSessionId().toString('hex') === before && stat.ephemeralOwner.toString('hex') === before, 'the session goes on elsewhere');
    client.close();
}

(mode === 'check' ? check() : attached()).then(() => process.exit(0), (error) => {
    console.error(error);
    process.exit(1);
});
