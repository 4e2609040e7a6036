//! kezhuw's lock, as a contender of tests/interop/lines.py, which says what is asked and answered.

use tokio::io::{AsyncBufReadExt, BufReader};
use zookeeper_client::{Acls, Client, CreateMode, LockOptions, LockPrefix};

#[tokio::main]
async fn main() {
    let hosts = std::env::args().nth(1).expect("the connect string");
    let client = Client::connect(&hosts).await.unwrap();
    println!("ready");
    let mut orders = BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = orders.next_line().await.unwrap() {
        let order: Vec<&str> = line.split(' ').collect();
        let (path, notes, rounds, name) = (order[1], order[2], order[3].parse::<u32>().unwrap(), order[4]);
        let kind = match order[0] {
            "lock" => "lock-",
            "lead" => "latch-",
            _ => {
                println!("lacking");
                continue;
            },
        };
        for _ in 0..rounds {
            let prefix = LockPrefix::new_curator(path, kind).unwrap();
            let parents = CreateMode::Persistent.with_acls(Acls::anyone_all());
            let options = LockOptions::new(Acls::anyone_all()).with_ancestor_options(parents).unwrap();
            let lock = client.lock(prefix, b"", options).await.unwrap();
            let (mut data, _) = client.get_data(notes).await.unwrap();
            data.extend_from_slice(name.as_bytes());
            data.push(b'\n');
            client.set_data(notes, &data, None).await.unwrap();
            drop(lock);
        }
        println!("done");
    }
}
