module program

go 1.18

require github.com/go-zookeeper/zk v1.0.4
