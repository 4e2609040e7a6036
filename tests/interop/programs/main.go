// go-zk's lock, as a contender of tests/interop/lines.py, which says what is asked and answered.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/go-zookeeper/zk"
)

func main() {
	conn, _, err := zk.Connect([]string{os.Args[1]}, 10*time.Second, zk.WithLogInfo(false))
	check(err)
	_, _, err = conn.Exists("/")
	check(err)
	fmt.Println("ready")
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var recipe, path, notes, name string
		var rounds int
		_, err := fmt.Sscan(orders.Text(), &recipe, &path, &notes, &rounds, &name)
		check(err)
		if recipe != "lock" {
			fmt.Println("lacking")
			continue
		}
		for round := 0; round < rounds; round++ {
			lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
			check(lock.Lock())
			data, _, err := conn.Get(notes)
			check(err)
			_, err = conn.Set(notes, append(data, (name+"\n")...), -1)
			check(err)
			check(lock.Unlock())
		}
		fmt.Println("done")
	}
	conn.Close()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
