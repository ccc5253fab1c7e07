// ZooKeeper's own Java client and Curator's recipes against zlock. Ends with "curator: all checks passed", or an exception.
//   java -cp ... CuratorCheck check HOSTS
//   java -cp ... CuratorCheck attached HOSTS   says which node it is on, and goes on once that was killed: see run.py
//   java -cp ... CuratorCheck beside HOSTS HTTP-HOSTS   its locks and those of HTTP clients, who waits for whom
//   java -cp ... CuratorCheck contend HOSTS LOCK SECONDS THREADS   prints a line for each grant: begin_ns end_ns czxid who

import java.util.*;
import java.util.concurrent.*;
import java.util.concurrent.atomic.*;
import org.apache.curator.framework.*;
import org.apache.curator.framework.recipes.atomic.*;
import org.apache.curator.framework.recipes.barriers.*;
import org.apache.curator.framework.recipes.cache.*;
import org.apache.curator.framework.recipes.leader.*;
import org.apache.curator.framework.recipes.locks.*;
import org.apache.curator.framework.recipes.nodes.*;
import org.apache.curator.framework.recipes.shared.*;
import org.apache.curator.retry.*;
import org.apache.zookeeper.*;
import org.apache.zookeeper.data.*;

public class CuratorCheck {
    static void that(boolean good, String what) {
        if (!good) {
            throw new IllegalStateException("FAILED: " + what);
        }
        System.out.println("ok " + what);
    }

    static CuratorFramework client(String hosts) throws Exception {
        CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, 15000, 5000, new RetryNTimes(60, 250));
        client.start();
        that(client.blockUntilConnected(20, TimeUnit.SECONDS), "connected");
        return client;
    }

    interface Step {
        void run() throws Exception;
    }

    static KeeperException.Code fails(Step step) throws Exception {
        try {
            step.run();
        } catch (KeeperException error) {
            return error.code();
        }
        return KeeperException.Code.OK;
    }

    public static void main(String[] args) throws Exception {
        if (args[0].equals("contend")) {
            contend(args[1], args[2], Integer.parseInt(args[3]), Integer.parseInt(args[4]));
            System.exit(0);
        }
        if (args[0].equals("attached")) {
            attached(args[1]);
            System.exit(0);
        }
        if (args[0].equals("beside")) {
            beside(args[1], args[2].split(",")[0]);
            System.exit(0);
        }
        CuratorFramework one = client(args[1]);
        CuratorFramework two = client(args[1]);
        String root = "/curator-" + System.nanoTime();
        znodes(one, root);
        raw(one.getZookeeperClient().getZooKeeper(), args[1], root);
        locks(one, two, root);
        leaders(one, two, root);
        caches(one, two, root);
        acls(one, two, root);
        rest(one, two, root);
        one.close();
        two.close();
        System.out.println("curator: all checks passed");
        System.exit(0);
    }

    static void znodes(CuratorFramework client, String root) throws Exception {
        Stat stat = new Stat();
        client.create().creatingParentContainersIfNeeded().forPath(root + "/a/b", "x".getBytes());
        that(new String(client.getData().storingStatIn(stat).forPath(root + "/a/b")).equals("x"), "create and read");
        that(client.setData().withVersion(0).forPath(root + "/a/b", "y".getBytes()).getVersion() == 1, "set");
        that(fails(() -> client.setData().withVersion(0).forPath(root + "/a/b")) == KeeperException.Code.BADVERSION, "bad version");
        String made = client.create().withProtection().withMode(CreateMode.EPHEMERAL_SEQUENTIAL).forPath(root + "/a/s-");
        that(made.matches(".*/_c_[0-9a-f-]{36}-s-0000000001"), "protected sequential: " + made);
        client.create().withTtl(500).withMode(CreateMode.PERSISTENT_WITH_TTL).forPath(root + "/ttl");
        List<?> results = client.transaction().forOperations(
            client.transactionOp().create().forPath(root + "/t1", "1".getBytes()),
            client.transactionOp().setData().forPath(root + "/a/b", "2".getBytes()),
            client.transactionOp().check().withVersion(2).forPath(root + "/a/b"),
            client.transactionOp().delete().forPath(root + "/t1"));
        that(results.size() == 4, "transaction");
        that(fails(() -> client.transaction().forOperations(
            client.transactionOp().create().forPath(root + "/t2"),
            client.transactionOp().check().withVersion(99).forPath(root + "/a/b"))) == KeeperException.Code.BADVERSION,
            "a failed transaction");
        that(client.checkExists().forPath(root + "/t2") == null, "a failed transaction does nothing");
        BlockingQueue<String> events = new LinkedBlockingQueue<>();
        CuratorCache cache = CuratorCache.build(client, root + "/a");
        cache.listenable().addListener((type, before, after) -> events.add(type + " " + (after != null ? after : before).getPath()));
        cache.start();
        for (int i = 0; i < 3; i++) {
            events.poll(10, TimeUnit.SECONDS);
        }
        client.create().forPath(root + "/a/c");
        that((root + "/a/c").equals(events.poll(10, TimeUnit.SECONDS).split(" ")[1]), "cache hears of a create");
        client.delete().forPath(root + "/a/c");
        that(events.poll(10, TimeUnit.SECONDS).equals("NODE_DELETED " + root + "/a/c"), "cache hears of a delete");
        cache.close();
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (client.checkExists().forPath(root + "/ttl") != null && System.nanoTime() < deadline) {
            Thread.sleep(50);
        }
        that(client.checkExists().forPath(root + "/ttl") == null, "a TTL node goes");
    }

    static void raw(ZooKeeper zk, String hosts, String root) throws Exception {
        BlockingQueue<WatchedEvent> events = new LinkedBlockingQueue<>();
        zk.addWatch(root, events::add, AddWatchMode.PERSISTENT_RECURSIVE);
        for (int i = 0; i < 100; i++) {
            zk.create(root + "/n" + i, null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        }
        boolean inOrder = true;
        for (int i = 0; i < 100; i++) {
            inOrder &= events.poll(10, TimeUnit.SECONDS).getPath().equals(root + "/n" + i);
        }
        that(inOrder, "events in order");
        zk.addAuthInfo("digest", "bob:secret".getBytes());
        zk.create(root + "/acl", null, ZooDefs.Ids.CREATOR_ALL_ACL, CreateMode.PERSISTENT);
        that(zk.getACL(root + "/acl", new Stat()).get(0).getId().getId().startsWith("bob:"), "auth becomes digest");
        that(zk.whoAmI().stream().anyMatch(who -> who.getUser().equals("bob")), "whoAmI");
        that(zk.getAllChildrenNumber(root) > 100, "getAllChildrenNumber");
        that(zk.getEphemerals(root).size() == 1, "getEphemerals");
        CountDownLatch synced = new CountDownLatch(1);
        zk.sync(root, (rc, path, context) -> synced.countDown(), null);
        that(synced.await(10, TimeUnit.SECONDS), "sync");
        // Two thousand on their way at once, in order.
        CountDownLatch all = new CountDownLatch(2000);
        AtomicInteger last = new AtomicInteger();
        AtomicBoolean ordered = new AtomicBoolean(true);
        for (int i = 0; i < 2000; i++) {
            zk.setData(root + "/n0", null, -1, (rc, path, context, stat) -> {
                ordered.compareAndSet(true, rc == 0 && stat.getVersion() == last.incrementAndGet());
                all.countDown();
            }, null);
        }
        that(all.await(60, TimeUnit.SECONDS) && ordered.get(), "2000 pipelined writes in order");
        // Curator goes to whatever it names.
        eventually(() -> {
            String config = new String(zk.getConfig(false, new Stat()));
            return Arrays.stream(hosts.split(",")).allMatch(host -> config.contains(";" + host));
        }, "the configuration names the addresses");
        Watcher watcher = event -> { };
        zk.exists(root + "/later", watcher);
        zk.removeWatches(root + "/later", watcher, Watcher.WatcherType.Data, false);
        that(fails(() -> zk.removeWatches(root + "/later", watcher, Watcher.WatcherType.Data, false)) == KeeperException.Code.NOWATCHER, "removeWatches");
    }

    static void locks(CuratorFramework one, CuratorFramework two, String root) throws Exception {
        InterProcessMutex mine = new InterProcessMutex(one, root + "/mutex");
        InterProcessMutex yours = new InterProcessMutex(two, root + "/mutex");
        mine.acquire();
        mine.acquire();
        that(!yours.acquire(300, TimeUnit.MILLISECONDS), "a mutex excludes");
        mine.release();
        mine.release();
        that(yours.acquire(10, TimeUnit.SECONDS), "a mutex is handed over");
        yours.release();
        InterProcessReadWriteLock a = new InterProcessReadWriteLock(one, root + "/rw");
        InterProcessReadWriteLock b = new InterProcessReadWriteLock(two, root + "/rw");
        a.readLock().acquire();
        that(b.readLock().acquire(10, TimeUnit.SECONDS), "readers share");
        that(!b.writeLock().acquire(300, TimeUnit.MILLISECONDS), "a writer waits for readers");
        a.readLock().release();
        b.readLock().release();
        b.writeLock().acquire();
        that(b.readLock().acquire(10, TimeUnit.SECONDS), "a writer may read");
        b.writeLock().release();
        that(a.readLock().acquire(10, TimeUnit.SECONDS), "a downgraded writer shares");
        b.readLock().release();
        a.readLock().release();
        InterProcessSemaphoreV2 semaphore = new InterProcessSemaphoreV2(one, root + "/semaphore", 2);
        Lease first = semaphore.acquire();
        Lease second = semaphore.acquire();
        that(semaphore.acquire(300, TimeUnit.MILLISECONDS) == null, "a semaphore of two");
        semaphore.returnLease(first);
        that(semaphore.acquire(10, TimeUnit.SECONDS) != null, "a lease is handed over");
        semaphore.returnLease(second);
        InterProcessSemaphoreMutex plain = new InterProcessSemaphoreMutex(one, root + "/plain");
        InterProcessSemaphoreMutex taken = new InterProcessSemaphoreMutex(two, root + "/plain");
        plain.acquire();
        that(!taken.acquire(300, TimeUnit.MILLISECONDS), "a mutex that is not reentrant excludes");
        plain.release();
        that(taken.acquire(10, TimeUnit.SECONDS), "and is handed over");
        taken.release();
        InterProcessMultiLock both = new InterProcessMultiLock(one, Arrays.asList(root + "/m1", root + "/m2"));
        both.acquire();
        both.release();
        that(true, "a multi lock");
    }

    static void leaders(CuratorFramework one, CuratorFramework two, String root) throws Exception {
        LeaderLatch a = new LeaderLatch(one, root + "/latch", "a");
        LeaderLatch b = new LeaderLatch(two, root + "/latch", "b");
        a.start();
        that(a.await(10, TimeUnit.SECONDS), "a leader latch");
        b.start();
        a.close();
        that(b.await(10, TimeUnit.SECONDS) && b.getLeader().getId().equals("b"), "the next leader");
        b.close();
        CountDownLatch led = new CountDownLatch(2);
        LeaderSelectorListenerAdapter listener = new LeaderSelectorListenerAdapter() {
            public void takeLeadership(CuratorFramework client) {
                led.countDown();
            }
        };
        LeaderSelector s = new LeaderSelector(one, root + "/selector", listener);
        LeaderSelector t = new LeaderSelector(two, root + "/selector", listener);
        s.start();
        t.start();
        that(led.await(20, TimeUnit.SECONDS), "both were selected in turn");
        s.close();
        t.close();
    }

    interface Condition {
        boolean holds() throws Exception;
    }

    static void eventually(Condition condition, String what) throws Exception {
        long deadline = System.nanoTime() + 20_000_000_000L;
        while (!condition.holds() && System.nanoTime() < deadline) {
            Thread.sleep(10);
        }
        that(condition.holds(), what);
    }

    @SuppressWarnings("deprecation")
    static void caches(CuratorFramework one, CuratorFramework two, String root) throws Exception {
        one.create().withMode(CreateMode.CONTAINER).forPath(root + "/cached", "x".getBytes());
        that(one.checkExists().forPath(root + "/cached").getEphemeralOwner() == 0, "a container");
        NodeCache node = new NodeCache(two, root + "/cached");
        PathChildrenCache children = new PathChildrenCache(two, root + "/cached", true);
        TreeCache tree = new TreeCache(two, root + "/cached");
        node.start();
        children.start();
        tree.start();
        one.create().forPath(root + "/cached/a", "1".getBytes());
        one.create().forPath(root + "/cached/a/b");
        one.setData().forPath(root + "/cached", "y".getBytes());
        eventually(() -> node.getCurrentData() != null && new String(node.getCurrentData().getData()).equals("y"), "a node cache");
        eventually(() -> children.getCurrentData().size() == 1, "a children cache");
        eventually(() -> tree.getCurrentData(root + "/cached/a/b") != null, "a tree cache");
        node.close();
        children.close();
        tree.close();
    }

    static void acls(CuratorFramework one, CuratorFramework two, String root) throws Exception {
        one.create().withACL(ZooDefs.Ids.READ_ACL_UNSAFE).forPath(root + "/readable");
        that(fails(() -> two.setData().forPath(root + "/readable")) == KeeperException.Code.NOAUTH, "an ACL forbids");
        one.create().forPath(root + "/mine");
        one.setACL().withACL(Arrays.asList(new ACL(ZooDefs.Perms.ALL, new Id("digest", "eve:x")))).forPath(root + "/mine");
        that(fails(() -> one.getData().forPath(root + "/mine")) == KeeperException.Code.NOAUTH, "an ACL that was set forbids");
    }

    /** A session over HTTP, at one node. */
    static class Http {
        final java.net.http.HttpClient client = java.net.http.HttpClient.newHttpClient();
        final String host;
        final String sessionKey;

        Http(String host) throws Exception {
            this.host = host;
            sessionKey = field(send("POST", "/v1/sessions", "", "{\"timeout\":\"15s\"}"), "session_key");
        }

        String send(String method, String path, String sessionKey, String body) throws Exception {
            java.net.http.HttpRequest.Builder request = java.net.http.HttpRequest.newBuilder(java.net.URI.create("http://" + host + path))
                .method(method, java.net.http.HttpRequest.BodyPublishers.ofString(body)).timeout(java.time.Duration.ofSeconds(20));
            if (!sessionKey.isEmpty()) {
                request.header("Zlock-Session-Key", sessionKey).header("Idempotency-Key", UUID.randomUUID().toString());
            }
            return client.send(request.build(), java.net.http.HttpResponse.BodyHandlers.ofString()).body();
        }

        String ask(String method, String path) throws Exception {
            return send(method, path, sessionKey, "");
        }

        static String field(String answer, String name) {
            java.util.regex.Matcher found = java.util.regex.Pattern.compile("\"" + name + "\":\"?([^\",}]*)").matcher(answer);
            return found.find() ? found.group(1) : "";
        }

        static boolean holds(String answer) {
            return field(answer, "state").equals("held");
        }

        String release(String answer) throws Exception {
            return ask("DELETE", "/v1/tickets" + field(answer, "ticket"));
        }
    }

    /** One of Curator's recipes: taken within a time or not, the znode that it has, and given back. */
    interface Recipe {
        boolean take(int millis) throws Exception;

        void give() throws Exception;
    }

    static Recipe mutex(InterProcessLock lock) {
        return new Recipe() {
            public boolean take(int millis) throws Exception {
                return lock.acquire(millis, TimeUnit.MILLISECONDS);
            }

            public void give() throws Exception {
                lock.release();
            }
        };
    }

    static Recipe latch(CuratorFramework client, String path) {
        return new Recipe() {
            LeaderLatch latch;

            public boolean take(int millis) throws Exception {
                latch = new LeaderLatch(client, path);
                latch.start();
                if (latch.await(millis, TimeUnit.MILLISECONDS)) {
                    return true;
                }
                latch.close();
                return false;
            }

            public void give() throws Exception {
                latch.close();
            }
        };
    }

    /** Each recipe beside a ticket of each mode, in both orders. */
    static void beside(String hosts, String http) throws Exception {
        CuratorFramework one = client(hosts);
        Http other = new Http(http);
        for (String mode : new String[] {"exclusive", "write", "election", "read"}) {
            for (String name : new String[] {"mutex", "read lock", "write lock", "latch"}) {
                String path = "/curator-beside-" + mode + "-" + name.replace(" ", "-") + "-" + System.nanoTime();
                String ask = mode.equals("election") ? "/v1/elections" + path + "?" : "/v1/locks" + path + "?mode=" + mode + "&";
                InterProcessReadWriteLock both = new InterProcessReadWriteLock(one, path);
                Recipe mine = name.equals("mutex") ? mutex(new InterProcessMutex(one, path))
                    : name.equals("read lock") ? mutex(both.readLock())
                    : name.equals("write lock") ? mutex(both.writeLock())
                    : latch(one, path);
                boolean shared = mode.equals("read") && name.equals("read lock");
                String pair = "a ticket of mode " + mode + " and Curator's " + name;
                String first = other.ask("POST", ask + "wait=10s");
                that(Http.holds(first), pair + ": HTTP has it");
                that(mine.take(500) == shared, pair + ": Curator behind it " + (shared ? "goes on" : "waits"));
                other.release(first);
                that(shared || mine.take(10000), pair + ": Curator has it then");
                String second = other.ask("POST", ask + "keep=true&wait=1ms");
                that(Http.holds(second) == shared, pair + ": HTTP behind it " + (shared ? "goes on" : "waits"));
                mine.give();
                second = other.ask("GET", "/v1/tickets" + Http.field(second, "ticket") + "?wait=10s");
                that(Http.holds(second), pair + ": HTTP has it then");
                that(Long.parseLong(Http.field(second, "fencing_token")) > Long.parseLong(Http.field(first, "fencing_token")),
                    pair + ": with a larger token");
                other.release(second);
            }
        }
        one.close();
        System.out.println("curator: all pairs passed");
    }

    static void attached(String hosts) throws Exception {
        // What is asked before the first connection stands is lost with a connection that fails: one of the nodes may be down.
        CountDownLatch connected = new CountDownLatch(1);
        ZooKeeper zk = new ZooKeeper(hosts, 15000, event -> {
            if (event.getState() == Watcher.Event.KeeperState.SyncConnected) {
                connected.countDown();
            }
        });
        that(connected.await(30, TimeUnit.SECONDS), "it connects");
        String root = "/attached-" + System.nanoTime();
        zk.create(root, null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.EPHEMERAL);
        zk.create(root + "-watched", null, ZooDefs.Ids.OPEN_ACL_UNSAFE, CreateMode.PERSISTENT);
        CountDownLatch changed = new CountDownLatch(1);
        zk.getData(root + "-watched", event -> {
            if (event.getType() == Watcher.Event.EventType.NodeDataChanged) {
                changed.countDown();
            }
        }, null);
        long before = zk.getSessionId();
        java.util.regex.Matcher server = java.util.regex.Pattern.compile("remoteserver:[^ ]*:([0-9]+)").matcher(zk.toString());
        that(server.find(), "it is connected: " + zk);
        System.out.println("ATTACHED " + server.group(1) + " " + root + "-watched");
        System.in.read();
        that(changed.await(30, TimeUnit.SECONDS), "a watch hears of what it missed");
        Stat stat = zk.exists(root, false);
        that(zk.getSessionId() == before && stat.getEphemeralOwner() == before, "the session goes on elsewhere");
        zk.close();
    }

    static void rest(CuratorFramework one, CuratorFramework two, String root) throws Exception {
        DistributedAtomicLong counter = new DistributedAtomicLong(one, root + "/counter", new RetryNTimes(50, 5));
        DistributedAtomicLong other = new DistributedAtomicLong(two, root + "/counter", new RetryNTimes(50, 5));
        for (int i = 0; i < 20; i++) {
            counter.increment();
            other.increment();
        }
        // The other client may be on another node: a read is as old as its node, unless a sync comes before it.
        CountDownLatch synced = new CountDownLatch(1);
        one.getZookeeperClient().getZooKeeper().sync(root, (rc, path, context) -> synced.countDown(), null);
        that(synced.await(10, TimeUnit.SECONDS) && counter.get().postValue() == 40, "a counter of forty");
        SharedCount shared = new SharedCount(one, root + "/shared", 0);
        SharedCount seen = new SharedCount(two, root + "/shared", 0);
        shared.start();
        seen.start();
        shared.setCount(7);
        eventually(() -> seen.getCount() == 7, "a shared count");
        shared.close();
        seen.close();
        DistributedBarrier closed = new DistributedBarrier(one, root + "/closed");
        closed.setBarrier();
        ExecutorService waits = Executors.newSingleThreadExecutor();
        Future<Boolean> passed = waits.submit(() -> new DistributedBarrier(two, root + "/closed").waitOnBarrier(20, TimeUnit.SECONDS));
        closed.removeBarrier();
        that(passed.get(), "a barrier");
        waits.shutdown();
        DistributedDoubleBarrier x = new DistributedDoubleBarrier(one, root + "/barrier", 2);
        DistributedDoubleBarrier y = new DistributedDoubleBarrier(two, root + "/barrier", 2);
        ExecutorService pool = Executors.newSingleThreadExecutor();
        Future<Boolean> entered = pool.submit(() -> y.enter(20, TimeUnit.SECONDS) && y.leave(20, TimeUnit.SECONDS));
        that(x.enter(20, TimeUnit.SECONDS) && x.leave(20, TimeUnit.SECONDS) && entered.get(), "a double barrier");
        pool.shutdown();
        PersistentNode node = new PersistentNode(one, CreateMode.EPHEMERAL, false, root + "/pn", "x".getBytes());
        node.start();
        that(node.waitForInitialCreate(10, TimeUnit.SECONDS), "a persistent node");
        node.close();
    }

    static void contend(String hosts, String lock, int seconds, int threads) throws Exception {
        long until = System.nanoTime() + seconds * 1_000_000_000L;
        ExecutorService pool = Executors.newCachedThreadPool();
        List<Future<?>> all = new ArrayList<>();
        for (int i = 0; i < threads; i++) {
            String who = "curator-" + i;
            all.add(pool.submit(() -> {
                CuratorFramework client = CuratorFrameworkFactory.newClient(hosts, 15000, 5000, new RetryNTimes(100, 250));
                client.start();
                while (System.nanoTime() < until) {
                    InterProcessMutex mutex = new InterProcessMutex(client, lock);
                    try {
                        if (!mutex.acquire(20, TimeUnit.SECONDS)) {
                            continue;
                        }
                        long begin = System.nanoTime();
                        String mine = mutex.getParticipantNodes().iterator().next();
                        long czxid = client.checkExists().forPath(mine).getCzxid();
                        Thread.sleep(2);
                        long end = System.nanoTime();
                        synchronized (System.out) {
                            System.out.println("GRANT " + begin + " " + end + " " + czxid + " " + who);
                        }
                    } finally {
                        if (mutex.isAcquiredInThisProcess()) {
                            mutex.release();
                        }
                    }
                }
                client.close();
                return null;
            }));
        }
        for (Future<?> one : all) {
            one.get();
        }
    }
}
