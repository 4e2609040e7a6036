// Curator's lock, as a contestant of `python -m bench.peers`; bench/peers/lines.py says what is asked and answered.

import java.io.BufferedReader;
import java.io.InputStreamReader;
import org.apache.curator.framework.CuratorFramework;
import org.apache.curator.framework.CuratorFrameworkFactory;
import org.apache.curator.framework.recipes.locks.InterProcessMutex;
import org.apache.curator.retry.RetryOneTime;

public class Contestant {
    public static void main(String[] arguments) throws Exception {
        BufferedReader orders = new BufferedReader(new InputStreamReader(System.in));
        for (String line = orders.readLine(); line != null; line = orders.readLine()) {
            String[] order = line.split(" ");
            long hold = Math.round(Double.parseDouble(order[3]) * 1e9);
            race(orders, order[0], order[1], Integer.parseInt(order[2]), hold);
            System.out.println("done");
        }
        System.exit(0);
    }

    private static void race(BufferedReader orders, String server, String path, int turns, long hold) throws Exception {
        CuratorFramework zk = CuratorFrameworkFactory.newClient(server, 10_000, 10_000, new RetryOneTime(100));
        zk.start();
        zk.blockUntilConnected();
        System.out.println("ready");
        orders.readLine();
        InterProcessMutex lock = new InterProcessMutex(zk, path);
        long[][] times = new long[turns][4];
        // On Linux, System.nanoTime reads CLOCK_MONOTONIC, which all processes share.
        for (long[] turn : times) {
            turn[0] = System.nanoTime();
            lock.acquire();
            turn[1] = System.nanoTime();
            if (hold > 0) {
                Thread.sleep(hold / 1_000_000, (int) (hold % 1_000_000));
            }
            turn[2] = System.nanoTime();
            lock.release();
            turn[3] = System.nanoTime();
        }
        StringBuilder answer = new StringBuilder();
        for (long[] turn : times) {
            answer.append(String.format("%d %d %d %d%n", turn[0], turn[1], turn[2], turn[3]));
        }
        System.out.print(answer);
        zk.close();
    }
}
