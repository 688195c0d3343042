-- A web application: five orders read, one changed, one new.
\set first random(1, 100000 * :scale)
\set second random(1, 100000 * :scale)
\set third random(1, 100000 * :scale)
\set fourth random(1, 100000 * :scale)
\set changed random(1, 100000 * :scale)
\set customer random(0, 999)
BEGIN;
SELECT note FROM orders WHERE id IN (:first, :second, :third, :fourth);
SELECT note FROM orders WHERE id = :changed;
UPDATE orders SET changed = now() WHERE id = :changed;
INSERT INTO orders (customer, note) VALUES (:customer, 'new');
END;
