//! Segments of WAL that are there before they are needed, as on servers that have run for long: these
//! use old ones again. A new one is filled with zeros first, in memory that the system may have to
//! get first, which costs as much as the WAL that comes into it. Trials keep the old ones, to read
//! them.

use pgtoll_wire::Connection;

/// Makes the segments that hold the next `bytes` of WAL, and a fifth more.
pub(crate) fn make(connection: &mut Connection, bytes: u64) -> anyhow::Result<()> {
    let sql = format!(
        "SELECT size, string_agg(pg_walfile_name(pg_current_wal_insert_lsn() + n * size), ' ') AS names \
         FROM (SELECT pg_size_bytes(current_setting('wal_segment_size'))::numeric AS size) AS segment, \
              LATERAL generate_series(1, ceil(1.2 * {bytes} / size) + 2) AS n \
         GROUP BY size"
    );
    let row = connection.query_one(&sql)?;
    let (size, names): (u64, String) = (row.parse("size")?, row.parse("names")?);
    // By the server's user, in its directory.
    let program = format!(
        "cat > /dev/null; cd pg_wal && for name in {names}; do \
           test -e $name || {{ head -c {size} /dev/zero > new && mv new $name; }} || exit 1; \
         done; sync {names}"
    );
    connection.execute(&format!("COPY (SELECT 1) TO PROGRAM '{program}'"))?;
    Ok(())
}
