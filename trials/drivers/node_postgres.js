// node-postgres: values as text, named statements, and bytes in binary.
const { Client } = require("pg");

async function main([host, port, database, user, password]) {
  const client = new Client({ host, port: Number(port), database, user, password });
  await client.connect();
  const row = {
    i4: 7, i8: "1099511627776", f8: 0.1, n: "-12.50", b: true, t: "it's \\ ä", bytes: Buffer.from([0, 255, 92]),
    d: "2026-02-28", tstz: new Date(Date.UTC(2026, 10, 27, 1, 2, 3, 4)), u: "01234567-89ab-cdef-0123-456789abcdef",
    ai: [1, null, -3], at: ['a"b', "", "NULL"], m: "happy", am: "{sad,NULL}", j: { a: [1] }, jb: { b: null },
  };
  const names = Object.keys(row);
  const marks = names.map((_, at) => `$${at + 2}`).join(", ");
  for (let id = 0; id < 3; id += 1) {
    await client.query("BEGIN");
    await client.query({
      name: "insert", text: `INSERT INTO typed (id, ${names.join(", ")}) VALUES ($1, ${marks})`,
      values: [id, ...Object.values(row)],
    });
    await client.query("COMMIT");
  }
  for (let id = 0; id < 3; id += 1) {
    await client.query("UPDATE typed SET i4 = $1, p = $2 WHERE id = $3", [id, "(1,sad)", id]);
  }
  await client.end();
}

main(process.argv.slice(2));
