// Curator's recipes, as a contender of tests/interop/lines.py, which says what is asked and answered.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.atomic.DistributedAtomicLong;
import org.apache.curator.framework.recipes.leader.LeaderLatch;
import org.apache.curator.framework.recipes.locks.InterProcessLock;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.framework.recipes.locks.InterProcessReadWriteLock;
import org.apache.curator.framework.recipes.locks.Revoker;
import org.apache.curator.framework.recipes.shared.SharedCount;
import org.apache.curator.retry.RetryOneTime;

public class Contender {
    private static CuratorFramework zk;

    public static void main(String[] arguments) throws Exception {
        zk = CuratorFrameworkFactory.newClient(arguments[0], new RetryOneTime(100));
        zk.start();
        zk.blockUntilConnected();
        System.out.println("ready");
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split(" ");
            System.out.println(obey(order[0], order[1], order[2], Integer.parseInt(order[3]), order[4]));
        }
        zk.close();
        System.exit(0);
    }

    private static String obey(String recipe, String path, String notes, int rounds, String name) throws Exception {
        for (int round = 0; round < rounds; round++) {
            switch (recipe) {
                case "lock" -> hold(new InterProcessMutex(zk, path), () -> note(notes, name));
                case "write" -> hold(new InterProcessReadWriteLock(zk, path).writeLock(), () -> note(notes, name));
                case "read" -> hold(new InterProcessReadWriteLock(zk, path).readLock(), () -> look(notes));
                case "lead" -> lead(path, notes, name);
                case "ask" -> ask(path);
                case "yield" -> yieldWhenAsked(path);
                case "add" -> add(path);
                case "add8" -> addLong(path);
                default -> {
                    return "lacking";
                }
            }
        }
        return "done";
    }

    private interface Body {
        void run() throws Exception;
    }

    private static void hold(InterProcessLock lock, Body body) throws Exception {
        lock.acquire();
        try {
            body.run();
        } finally {
            lock.release();
        }
    }

    private static void ask(String path) throws Exception {
        for (String node : new InterProcessMutex(zk, path).getParticipantNodes()) {
            Revoker.attemptRevoke(zk, node);
        }
    }

    private static void yieldWhenAsked(String path) throws Exception {
        CountDownLatch asked = new CountDownLatch(1);
        InterProcessMutex lock = new InterProcessMutex(zk, path);
        lock.makeRevocable(ignored -> asked.countDown());
        hold(lock, asked::await);
    }

    private static void lead(String path, String notes, String name) throws Exception {
        try (LeaderLatch latch = new LeaderLatch(zk, path, name)) {
            latch.start();
            latch.await();
            note(notes, name);
        }
    }

    private static void add(String path) throws Exception {
        try (SharedCount count = new SharedCount(zk, path, 0)) {
            count.start();
            while (!count.trySetCount(count.getVersionedValue(), count.getCount() + 1)) {
                Thread.onSpinWait();
            }
        }
    }

    private static void addLong(String path) throws Exception {
        DistributedAtomicLong number = new DistributedAtomicLong(zk, path, new RetryOneTime(1));
        while (!number.increment().succeeded()) {
            Thread.onSpinWait();
        }
    }

    private static void note(String notes, String name) throws Exception {
        byte[] data = zk.getData().forPath(notes);
        zk.setData().forPath(notes, (new String(data, StandardCharsets.UTF_8) + name + "\n").getBytes());
    }

    private static void look(String notes) throws Exception {
        byte[] before = zk.getData().forPath(notes);
        Thread.sleep(2);
        if (!Arrays.equals(before, zk.getData().forPath(notes))) {
            throw new IllegalStateException("somebody has written while we held the lock for reading");
        }
    }
}
