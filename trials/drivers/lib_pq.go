// lib/pq: unnamed and prepared statements, values as text or, where asked for, in binary, and COPY.
package main

import (
	"database/sql"
	"fmt"
	"os"

	"github.com/lib/pq"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	a := os.Args
	for first, binary := range []string{"no", "yes"} {
		dsn := fmt.Sprintf("host=%s port=%s dbname=%s user=%s password=%s sslmode=disable binary_parameters=%s",
			a[1], a[2], a[3], a[4], a[5], binary)
		db, err := sql.Open("postgres", dsn)
		must(err)
		db.SetMaxOpenConns(1)
		for id := first * 100; id < first*100+3; id++ {
			tx, err := db.Begin()
			must(err)
			_, err = tx.Exec("INSERT INTO typed (id, i8, f8, b, t, bytes, ai, at, m) VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9)",
				id, int64(1<<40), 0.1, true, "it's \\ ä", []byte{0, 255, 92}, pq.Array([]int64{1, -3}),
				pq.Array([]string{"a\"b", ""}), "happy")
			must(err)
			must(tx.Commit())
		}
		tx, err := db.Begin()
		must(err)
		copying, err := tx.Prepare(pq.CopyIn("typed", "id", "t"))
		must(err)
		for id := first*100 + 10; id < first*100+15; id++ {
			_, err = copying.Exec(id, "tab\tnewline\n")
			must(err)
		}
		_, err = copying.Exec()
		must(err)
		must(copying.Close())
		must(tx.Commit())
		update, err := db.Prepare("UPDATE typed SET i4 = $1 WHERE id = $2")
		must(err)
		for id := first * 100; id < first*100+3; id++ {
			_, err = update.Exec(id, id)
			must(err)
		}
		must(db.Close())
	}
}
