// go-zk's lock, as a contestant of `python -m bench.peers`; bench/peers/lines.py says what is asked and answered.
package main

import (
	"bufio"
	"fmt"
	"log"
	"os"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"github.com/go-zookeeper/zk"
)

const clockMonotonic = 1

func main() {
	runtime.GOMAXPROCS(1) // faster here than a thread for each core
	orders := bufio.NewScanner(os.Stdin)
	for orders.Scan() {
		var server, path string
		var turns int
		var hold float64
		_, err := fmt.Sscan(orders.Text(), &server, &path, &turns, &hold)
		check(err)
		race(orders, server, path, turns, time.Duration(hold*float64(time.Second)))
	}
}

func race(orders *bufio.Scanner, server string, path string, turns int, hold time.Duration) {
	conn, _, err := zk.Connect([]string{server}, 10*time.Second, zk.WithLogInfo(false))
	check(err)
	_, _, err = conn.Exists("/")
	check(err)
	fmt.Println("ready")
	orders.Scan()
	lock := zk.NewLock(conn, path, zk.WorldACL(zk.PermAll))
	times := make([][4]int64, turns)
	for turn := range times {
		times[turn][0] = now()
		check(lock.Lock())
		times[turn][1] = now()
		time.Sleep(hold)
		times[turn][2] = now()
		check(lock.Unlock())
		times[turn][3] = now()
	}
	for _, turn := range times {
		fmt.Println(turn[0], turn[1], turn[2], turn[3])
	}
	conn.Close()
	fmt.Println("done")
}

// now returns CLOCK_MONOTONIC in nanoseconds, which all processes share; the package time does not give it.
func now() int64 {
	var spec syscall.Timespec
	_, _, failed := syscall.RawSyscall(syscall.SYS_CLOCK_GETTIME, clockMonotonic, uintptr(unsafe.Pointer(&spec)), 0)
	if failed != 0 {
		log.Fatal(failed)
	}
	return spec.Nano()
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
