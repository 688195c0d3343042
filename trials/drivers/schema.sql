CREATE TYPE mood AS ENUM ('sad', 'ok', 'happy');
CREATE TYPE pair AS (number integer, mood mood);
CREATE TABLE typed (id integer PRIMARY KEY, i2 smallint, i4 integer, i8 bigint, f4 real, f8 double precision, n numeric, b boolean,
    t text, bytes bytea, d date, ts timestamp, tstz timestamptz, iv interval, u uuid, ip inet, ai integer[], aai integer[],
    at text[], m mood, am mood[], p pair, j json, jb jsonb);
