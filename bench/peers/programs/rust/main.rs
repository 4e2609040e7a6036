//! kezhuw's lock, as a contestant of `python -m bench.peers`; bench/peers/lines.py says what is asked and answered.

use std::time::Duration;
use tokio::io::{AsyncBufReadExt, BufReader, Lines, Stdin};
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

// On 2 cores faster than a pool of threads, if the release gets its turn at once; see below.
#[tokio::main(flavor = "current_thread")]
async fn main() {
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = orders.next_line().await.unwrap() {
        let order: Vec<&str> = line.split(' ').collect();
        let hold = Duration::from_secs_f64(order[3].parse().unwrap());
        race(&mut orders, order[0], order[1], order[2].parse().unwrap(), hold).await;
        println!("done");
    }
}

async fn race(orders: &mut Lines<BufReader<Stdin>>, server: &str, path: &str, turns: usize, hold: Duration) {
    let connector = Client::connector().with_session_timeout(Duration::from_secs(10));
    let client = connector.connect(server).await.unwrap();
    println!("ready");
    orders.next_line().await.unwrap();
    let mut times = Vec::with_capacity(turns);
    for _ in 0..turns {
        let prefix = LockPrefix::new_curator(path, "lock-").unwrap();
        let parents = CreateMode::Persistent.with_acls(Acls::anyone_all());
        let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents).unwrap();
        let acquire_called = now();
        let lock = client.lock(prefix, b"", options).await.unwrap();
        let acquired = now();
        tokio::time::sleep(hold).await;
        let release_called = now();
        // The client deletes the node in the background, which has its turn now, and not with the next acquire.
        drop(lock);
        tokio::task::yield_now().await;
        times.push([acquire_called, acquired, release_called, now()]);
    }
    // An answer to a later request shows that the last node is deleted.
    client.check_stat("/").await.unwrap();
    for [acquire_called, acquired, release_called, released] in times {
        println!("{acquire_called} {acquired} {release_called} {released}");
    }
}

/// CLOCK_MONOTONIC in nanoseconds, which all processes share; std::time::Instant does not give it.
fn now() -> i64 {
    let mut spec = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    assert_eq!(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut spec) }, 0);
    spec.tv_sec * 1_000_000_000 + spec.tv_nsec
}
