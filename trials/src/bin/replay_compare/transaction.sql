\set a random(1, 20000)
\set b random(1, 20000)
\set c random(1, 20000)
\set d random(0, 159)
\set e random(0, 49)
\set t random(1, 200)
\set x random(1, 5000)
SELECT v FROM accounts WHERE id = :b;
SELECT sum(v) FROM events WHERE id BETWEEN :c AND :c + current_setting('bench.rows')::integer;
SELECT sum(amount) FROM orders WHERE customer = :d AND day = :e;
SELECT kind, count(*) FROM events WHERE id BETWEEN :c AND :c + 200 GROUP BY kind ORDER BY kind;
SELECT o.id, a.v FROM orders o JOIN accounts a ON a.id = o.id WHERE o.id BETWEEN :b AND :b + 20 ORDER BY a.v LIMIT 5;
BEGIN;
UPDATE accounts SET v = v + :x WHERE id = :a;
UPDATE tellers SET v = v + :x WHERE id = :t;
INSERT INTO history (account, delta) VALUES (:a, :x);
COMMIT;
SELECT max(v) FROM accounts WHERE id BETWEEN :a AND :a + 100;
