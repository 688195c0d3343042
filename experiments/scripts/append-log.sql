-- A row for a log; every twentieth, on average, the last ten are read.
\set customer random(0, 999)
\set reads random(1, 20)
INSERT INTO log (customer, note) VALUES (:customer, 'something happened, and this is what can be said of it');
\if :reads = 1
SELECT note FROM log ORDER BY id DESC LIMIT 10;
\endif
