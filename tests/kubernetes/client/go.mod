module headgate.test/client

go 1.24
