WITH counts AS (
    SELECT s.relid,
        s.n_dead_tup * b.bytes AS dead,
        (s.n_tup_upd + s.n_tup_del) * b.bytes AS died,
        s.vacuum_count + s.autovacuum_count AS vacuums
    FROM pg_stat_all_tables s
    JOIN pg_class r ON r.oid = s.relid AND r.relpersistence = 'p',
    LATERAL (SELECT least(r.relpages / nullif(greatest(r.reltuples, 0), 0), 1)
        * current_setting('block_size')::int AS bytes) b
),
deadest AS (
    SELECT relid, coalesce(dead, 0)::bigint AS dead, vacuums
    FROM counts
    WHERE dead > 0 OR vacuums > 0
    ORDER BY 2 DESC, vacuums DESC
    LIMIT 1000
),
newest AS (
    SELECT relfilenode::bigint AS node, relkind = 'i' AS is_index,
        coalesce(pg_relation_size(oid) / current_setting('block_size')::int, 0) AS pages
    FROM pg_class
    WHERE relkind IN ('r', 'm', 't', 'i') AND relpersistence = 'p' AND relfilenode > 0
    ORDER BY 1 DESC
    LIMIT 1000
)
SELECT coalesce(greatest(c.n_tup_del - i.n_tup_del, 0)
        + greatest(c.n_tup_upd - greatest(c.n_tup_ins - i.n_tup_ins, 0) / 2, 0), 0)::bigint AS gone,
    (SELECT coalesce(sum(dead), 0)::bigint FROM counts) AS dead_bytes,
    (SELECT coalesce(sum(died), 0)::bigint FROM counts) AS died_bytes,
    (SELECT coalesce(sum(vacuums), 0)::bigint FROM counts) AS vacuums,
    (SELECT count(*) FROM pg_stat_progress_vacuum) AS vacuuming,
    (SELECT coalesce(string_agg(concat_ws(':', relid, dead, vacuums), ' '), '') FROM deadest) AS deadest,
    (SELECT coalesce(string_agg(concat_ws(':', node, pages, is_index::int), ' '), '') FROM newest) AS newest,
    (SELECT count(*) FROM pg_class r JOIN pg_am a ON a.oid = r.relam
        WHERE a.amname = 'gin' AND r.relkind = 'i' AND r.relpersistence = 'p') AS gins
FROM pg_stat_sys_tables c, pg_stat_sys_tables i
WHERE c.relid = 'pg_class'::regclass AND i.relid = 'pg_index'::regclass
