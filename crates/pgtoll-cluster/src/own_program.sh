# Copies postgres from the directory $2 into the same path below $1, with links beside it.
set -e
to=$1$2
mkdir -p "$to"
cp "$2/postgres" "$to/postgres"
from=$2
skip=postgres
while :; do
    for path in "$from"/*; do
        [ "${path##*/}" = "$skip" ] || ln -s "$path" "$1$from/"
    done
    [ -n "$from" ] || break
    skip=${from##*/}
    from=${from%/*}
done
