-- One row is read, another is changed, both at random.
\set read random(1, 100000 * :scale)
\set changed random(1, 100000 * :scale)
SELECT note FROM staged WHERE id = :read;
UPDATE staged SET customer = customer + 1 WHERE id = :changed;
