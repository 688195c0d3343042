// pgx: prepared statements, values in binary, a batch and COPY.
package main

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v4"
)

func must(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func main() {
	ctx := context.Background()
	a := os.Args
	dsn := fmt.Sprintf("host=%s port=%s dbname=%s user=%s password=%s sslmode=disable", a[1], a[2], a[3], a[4], a[5])
	conn, err := pgx.Connect(ctx, dsn)
	must(err)
	defer conn.Close(ctx)
	insert := `INSERT INTO typed (id, i2, i4, i8, f4, f8, b, t, bytes, d, ts, tstz, u, ip, ai, aai, at, m, j, jb, iv)
		VALUES ($1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13,$14,$15,$16,$17,$18,$19,$20,$21)`
	at := time.Date(2026, 11, 27, 1, 2, 3, 4000, time.UTC)
	for id := 0; id < 3; id++ {
		tx, err := conn.Begin(ctx)
		must(err)
		_, err = tx.Exec(ctx, insert, id, int16(-2), int32(1<<30), int64(1<<40), float32(0.5), 0.1, true, "it's ä",
			[]byte{0, 255, 92}, at, at, at, "01234567-89ab-cdef-0123-456789abcdef", "10.1.2.3", []int32{1, -3},
			[][]int32{{1, 2}, {3, 4}}, []string{"a\"b", ""}, "happy", `{"a": 1}`, `{"b": [2]}`, 3*time.Hour)
		must(err)
		must(tx.Commit(ctx))
	}
	batch := &pgx.Batch{}
	for id := 10; id < 20; id++ {
		batch.Queue("INSERT INTO typed (id, f8, am) VALUES ($1, $2, $3::text[]::mood[])", id, float64(id)/3, []string{"sad"})
	}
	results := conn.SendBatch(ctx, batch)
	for id := 10; id < 20; id++ {
		_, err := results.Exec()
		must(err)
	}
	must(results.Close())
	rows := [][]interface{}{{int32(30), "thirty"}, {int32(31), nil}}
	_, err = conn.CopyFrom(ctx, pgx.Identifier{"typed"}, []string{"id", "t"}, pgx.CopyFromRows(rows))
	must(err)
	for id := 0; id < 3; id++ {
		_, err = conn.Exec(ctx, "UPDATE typed SET i4 = $1 WHERE id = $2", id, id)
		must(err)
	}
}
