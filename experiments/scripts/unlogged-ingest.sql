-- One call of a function ingest(int), which puts rows into one of 1,024 tables.
\set number random(1, 1024)
SELECT ingest(:number);
