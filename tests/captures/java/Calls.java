import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.concurrent.CountDownLatch;
import org.apache.zookeeper.AddWatchMode;
import org.apache.zookeeper.CreateMode;
import org.apache.zookeeper.KeeperException;
import org.apache.zookeeper.Op;
import org.apache.zookeeper.Watcher;
import org.apache.zookeeper.ZooDefs.Ids;
import org.apache.zookeeper.ZooDefs.Perms;
import org.apache.zookeeper.ZooKeeper;
import org.apache.zookeeper.admin.ZooKeeperAdmin;
import org.apache.zookeeper.data.ACL;
import org.apache.zookeeper.data.Id;
import org.apache.zookeeper.data.Stat;

/**
 * Makes one call of Apache's client for each name that it reads, and says so when the call has been answered.
 * `python -m tests.captures.java.record` writes the names, and keeps what went over the wire meanwhile.
 */
public final class Calls {
    private static final byte[] DATA = "data".getBytes(StandardCharsets.UTF_8);
    private static final List<ACL> OPEN = Ids.OPEN_ACL_UNSAFE;
    private static final Watcher NOTHING = event -> { };
    private static final Watcher ANOTHER = event -> { };

    private static ZooKeeperAdmin zk;

    public static void main(String[] arguments) throws Exception {
        String hosts = arguments[0];
        BufferedReader names = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String name = names.readLine(); name != null; name = names.readLine()) {
            String outcome = "done";
            try {
                call(name, hosts);
            } catch (KeeperException refused) {
                outcome = refused.code().toString();
            }
            System.out.println(outcome);
        }
    }

    private static void call(String name, String hosts) throws Exception {
        Stat stat = new Stat();
        switch (name) {
            case "connect" -> {
                CountDownLatch connected = new CountDownLatch(1);
                zk = new ZooKeeperAdmin(hosts, 10000, event -> connected.countDown());
                connected.await();
            }
            case "create" -> zk.create("/java", DATA, OPEN, CreateMode.PERSISTENT);
            case "create ephemeral" -> zk.create("/java/ephemeral", DATA, OPEN, CreateMode.EPHEMERAL);
            case "create sequential" -> zk.create("/java/s-", DATA, OPEN, CreateMode.PERSISTENT_SEQUENTIAL);
            case "create ephemeral sequential" -> zk.create("/java/es-", DATA, OPEN, CreateMode.EPHEMERAL_SEQUENTIAL);
            case "create empty" -> zk.create("/java/empty", new byte[0], OPEN, CreateMode.PERSISTENT);
            case "create container" -> zk.create("/java/container", DATA, OPEN, CreateMode.CONTAINER);
            case "create with ttl" ->
                zk.create("/java/ttl", DATA, OPEN, CreateMode.PERSISTENT_WITH_TTL, stat, 60000);
            case "create sequential with ttl" ->
                zk.create("/java/sttl-", DATA, OPEN, CreateMode.PERSISTENT_SEQUENTIAL_WITH_TTL, stat, 60000);
            case "create and stat" -> zk.create("/java/stat", DATA, OPEN, CreateMode.PERSISTENT, stat);
            case "create with acl" -> zk.create("/java/acl", DATA, acl(), CreateMode.PERSISTENT);
            case "exists" -> zk.exists("/java", false);
            case "exists and watch" -> zk.exists("/java/absent", NOTHING);
            case "get" -> zk.getData("/java", false, stat);
            case "get and watch" -> zk.getData("/java", NOTHING, stat);
            case "get children" -> zk.getChildren("/java", false);
            case "get children and watch" -> zk.getChildren("/java", NOTHING);
            case "get children and stat" -> zk.getChildren("/java", false, stat);
            case "set" -> zk.setData("/java/stat", "new".getBytes(StandardCharsets.UTF_8), -1);
            case "set a version" -> zk.setData("/java/stat", DATA, 1);
            case "get acl" -> zk.getACL("/java", stat);
            case "set acl" -> zk.setACL("/java/acl", acl(), 0);
            case "delete" -> zk.delete("/java/empty", -1);
            case "delete a version" -> zk.delete("/java/stat", 7);
            case "sync" -> {
                CountDownLatch synced = new CountDownLatch(1);
                zk.sync("/java", (code, path, context) -> synced.countDown(), null);
                synced.await();
            }
            case "count descendants" -> zk.getAllChildrenNumber("/java");
            case "get ephemerals" -> zk.getEphemerals();
            case "get ephemerals below" -> zk.getEphemerals("/java");
            case "whoami" -> zk.whoAmI();
            case "transaction" ->
                zk.multi(Arrays.asList(
                    Op.check("/java", 0),
                    Op.create("/java/t", DATA, OPEN, CreateMode.EPHEMERAL),
                    Op.create("/java/tc", DATA, OPEN, CreateMode.CONTAINER),
                    Op.create("/java/tt", DATA, OPEN, CreateMode.PERSISTENT_WITH_TTL, 60000),
                    Op.setData("/java", DATA, -1),
                    Op.delete("/java/t", 0)));
            case "get many" -> zk.multi(Arrays.asList(Op.getData("/java"), Op.getChildren("/java/absent")));
            case "add auth" -> zk.addAuthInfo("digest", "bob:secret".getBytes(StandardCharsets.UTF_8));
            case "get config" -> zk.getConfig(false, stat);
            case "reconfigure a member" ->
                zk.reconfigure("server.9=127.0.0.1:1:2;127.0.0.1:3", "8,7", null, -1, stat);
            case "reconfigure the whole" ->
                zk.reconfigure(null, null, "server.1=127.0.0.1:1:2;127.0.0.1:3", 0x100000000L, stat);
            case "watch for good" -> zk.addWatch("/java/one", NOTHING, AddWatchMode.PERSISTENT);
            case "watch a tree for good" -> zk.addWatch("/java/tree", NOTHING, AddWatchMode.PERSISTENT_RECURSIVE);
            case "watch another for good" -> zk.addWatch("/java/another", NOTHING, AddWatchMode.PERSISTENT);
            case "remove all watches" ->
                zk.removeAllWatches("/java/one", Watcher.WatcherType.Any, false);
            case "remove one of two watches" -> {
                zk.addWatch("/java/another", ANOTHER, AddWatchMode.PERSISTENT);
                zk.removeWatches("/java/another", ANOTHER, Watcher.WatcherType.Any, false);
            }
            case "remove data watches" -> zk.removeAllWatches("/java", Watcher.WatcherType.Data, false);
            case "remove children watches" -> zk.removeAllWatches("/java", Watcher.WatcherType.Children, false);
            case "close" -> zk.close();
            default -> throw new IllegalArgumentException(name);
        }
    }

    private static List<ACL> acl() {
        return Arrays.asList(
            new ACL(Perms.READ | Perms.WRITE, new Id("digest", "bob:cq6eTOxUOJwfRYn8EPGDQQAZVzE=")),
            new ACL(Perms.ALL, Ids.ANYONE_ID_UNSAFE));
    }
}
