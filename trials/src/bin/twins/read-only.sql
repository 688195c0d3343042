\set aid random(1, 100000 * :scale)
SELECT abalance, (SELECT count(*) FROM (SELECT generate_series(1, current_setting('pgtoll.extra')::int)) AS extra) FROM pgbench_accounts WHERE aid = :aid;
