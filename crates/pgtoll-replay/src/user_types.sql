WITH RECURSIVE used (oid) AS (
    SELECT t.oid FROM pg_catalog.pg_type t WHERE t.oid IN ({oids})
    UNION
    SELECT part.oid
    FROM used
    JOIN pg_catalog.pg_type t ON t.oid = used.oid
    CROSS JOIN LATERAL (
        SELECT t.typelem
        UNION ALL SELECT t.typbasetype
        UNION ALL SELECT a.atttypid FROM pg_catalog.pg_attribute a
            WHERE t.typtype = 'c' AND a.attrelid = t.typrelid AND a.attnum > 0 AND NOT a.attisdropped
    ) AS part (oid)
    -- FirstNormalObjectId: types that users made.
    WHERE part.oid >= 16384
)
SELECT
    t.oid AS oid,
    pg_catalog.quote_ident(n.nspname) || '.' || pg_catalog.quote_ident(t.typname) AS name,
    CASE
        WHEN t.typtype = 'd' THEN 'domain'
        WHEN t.typtype = 'c' THEN 'composite'
        WHEN t.typlen = -1 AND t.typelem <> 0 AND t.typinput = 'pg_catalog.array_in'::pg_catalog.regproc THEN 'array'
        ELSE ''
    END AS shape,
    t.typbasetype AS base
FROM used
JOIN pg_catalog.pg_type t ON t.oid = used.oid
JOIN pg_catalog.pg_namespace n ON n.oid = t.typnamespace
ORDER BY t.oid
