#!/usr/bin/env bash
# Drivers of other languages through `pgtoll replay record`: their work is replayed to a logical copy, and the
# copies are compared. Drivers of Python are in the tests.
#
#   trials/drivers/run.sh BIN PGTOLL     BIN: a server's programs; as root, or as a user who may run servers
#
# Debian: nodejs npm default-jdk-headless libpostgresql-jdbc-java golang-go golang-github-jackc-pgx-v4-dev
# golang-github-lib-pq-dev
set -euo pipefail
bin=$1 pgtoll=$2 here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d) port=${PORT:-54390} listen=${LISTEN:-54391}
chmod 755 "$work"
as_server() { if [ "$(id -u)" = 0 ]; then runuser -u postgres -- "$@"; else "$@"; fi; }
export PGHOST=127.0.0.1 PGPORT=$port PGUSER=app PGPASSWORD=secret
recording=
finish() {
    if [ -n "$recording" ]; then kill -INT "$recording" 2>/dev/null || true; fi
    as_server "$bin/pg_ctl" -D "$work/data/cluster" -m immediate -w stop >/dev/null 2>&1 || true
    rm -rf "$work"
}
trap finish EXIT
mkdir "$work/data"
if [ "$(id -u)" = 0 ]; then chown postgres "$work/data"; fi
echo secret > "$work/password"
chmod 644 "$work/password"
as_server "$bin/initdb" -D "$work/data/cluster" -U app -A scram-sha-256 --pwfile "$work/password" --no-sync >/dev/null
as_server "$bin/pg_ctl" -D "$work/data/cluster" -w -l "$work/data/log" \
    -o "-p $port -c listen_addresses=127.0.0.1 -c unix_socket_directories= -c fsync=off" start >/dev/null

(cd "$work" && npm install --silent --no-fund --no-audit pg >/dev/null)
export GOPATH=/usr/share/gocode GO111MODULE=off GOCACHE=$work/go NODE_PATH=$work/node_modules
export CLASSPATH=/usr/share/java/postgresql.jar:$work
go build -o "$work/pgx" "$here/pgx.go"
go build -o "$work/lib_pq" "$here/lib_pq.go"
javac -d "$work" "$here/Pgjdbc.java"

drivers=(node_postgres pgx lib_pq pgjdbc)
maps=()
for driver in "${drivers[@]}"; do
    for database in "$driver" "${driver}_copy"; do
        "$bin/psql" -qX -d postgres -c "CREATE DATABASE $database"
        "$bin/psql" -qX -d "$database" -f "$here/schema.sql"
    done
    "$bin/psql" -qX -d postgres -c "ALTER DATABASE ${driver}_copy SET pgtoll.disposable = on"
    maps+=(--map "$driver=${driver}_copy")
done

"$pgtoll" replay record --listen ":$listen" --to "host=127.0.0.1 port=$port user=app" -o "$work/plan" --copy-data 1MB \
    > "$work/recorded" 2> "$work/said" &
recording=$!
until grep -q listening "$work/said"; do kill -0 "$recording"; sleep 0.1; done
for driver in "${drivers[@]}"; do
    case $driver in
        node_postgres) program=(node "$here/node_postgres.js") ;;
        pgjdbc) program=(java Pgjdbc) ;;
        *) program=("$work/$driver") ;;
    esac
    "${program[@]}" 127.0.0.1 "$listen" "$driver" app secret
done
kill -INT "$recording"
wait "$recording" || true
recording=
cat "$work/recorded"
"$pgtoll" replay run "$work/plan" --speed max --dsn "host=127.0.0.1 port=$port user=app dbname=postgres" "${maps[@]}" ||
    echo "replay run: exit status $?"
status=0
for driver in "${drivers[@]}"; do
    content="SELECT count(*), md5(string_agg(typed::text, E'\n' ORDER BY id)) FROM typed"
    was=$("$bin/psql" -XAt -d "$driver" -c "$content")
    is=$("$bin/psql" -XAt -d "${driver}_copy" -c "$content")
    if [ "$was" = "$is" ] && [ "${was%%|*}" -gt 0 ]; then echo "$driver: equal, ${was%%|*} rows"; else
        echo "$driver: differs: $was, $is"
        status=1
    fi
done
exit $status
