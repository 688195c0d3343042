//! The tables: the servers' own, and the hub's foreign ones.

use std::path::Path;

use super::context::BridgeContext;
use super::data;
use super::error::BridgeError;
use super::log::StepLog;

/// The step that makes the tables, foreign ones and their own.
pub(super) fn define(
    log: &mut StepLog,
    context: &mut BridgeContext<'_>,
) -> Result<(), BridgeError> {
    let servers = context.servers;
    let mut shop = servers.session("shop")?;
    log.run_all(&mut shop, &SHOP_TABLES)?;
    log.run(&mut shop, &data::insert_orders())?;
    log.run(&mut shop, "ANALYZE orders")?;
    log.run_all(&mut servers.session("billing")?, &BILLING_TABLES)?;

    let file = context.guard.directory().join("regions.csv");
    context.guard.write(&file, data::regions_csv())?;
    let carts = data::carts();
    let words = carts.iter().flat_map(|(customer, item)| [&**customer, *item]);
    let command: Vec<&str> = ["HSET", "carts"].into_iter().chain(words).collect();
    let added = servers.redis.command(context.guard, &command)?.tail;
    let shown = format!("HSET carts {} {} … ({} fields)", command[2], command[3], carts.len());
    log.push("redis", &shown, added.trim(), &[]);
    log.check("fields of the Redis hash", carts.len(), added.trim());

    let mut hub = servers.session("hub")?;
    log.run_all(&mut hub, &HUB_TABLES)?;
    let directory = context.guard.directory().display().to_string();
    for name in ["shop", "billing"] {
        log.run_all(&mut hub, &foreign_server(name, &directory))?;
    }
    log.run_all(&mut hub, &POSTGRES_TABLES)?;
    log.run(&mut hub, "CREATE SERVER files FOREIGN DATA WRAPPER file_fdw")?;
    let options = csv_options(&file);
    log.run(&mut hub, &file_table("regions (customer int, region text)", &options))?;
    log.push_script(&servers.programs.hash_script);
    let program = servers.programs.hash("carts");
    log.run(&mut hub, &program_table("carts (customer int, item text)", &program))?;
    let count = log.value(&mut hub, "SELECT count(*) FROM information_schema.foreign_tables")?;
    log.check("foreign tables", POSTGRES_TABLES.len() + 2, count);
    Ok(())
}

const SHOP_TABLES: [&str; 4] = [
    "CREATE TABLE orders (id bigserial PRIMARY KEY, customer int NOT NULL, amount int NOT NULL)",
    "CREATE TABLE shipments (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)",
    "CREATE TABLE charges (customer int NOT NULL, amount int NOT NULL)",
    "CREATE TABLE payments (id int PRIMARY KEY, amount int NOT NULL)",
];

const BILLING_TABLES: [&str; 1] =
    ["CREATE TABLE invoices (number int UNIQUE DEFERRABLE INITIALLY DEFERRED)"];

const HUB_TABLES: [&str; 6] = [
    "CREATE EXTENSION postgres_fdw",
    "CREATE EXTENSION file_fdw",
    "CREATE TABLE journal (number int NOT NULL)",
    "CREATE TABLE outbox (id int PRIMARY KEY, amount int NOT NULL)",
    "CREATE TABLE stock (item int PRIMARY KEY, quantity int NOT NULL)",
    "INSERT INTO stock VALUES (1, 100), (2, 100)",
];

const POSTGRES_TABLES: [&str; 6] = [
    "CREATE FOREIGN TABLE orders (id bigint, customer int, amount int) SERVER shop",
    "CREATE FOREIGN TABLE new_orders (customer int, amount int) SERVER shop\n\
     OPTIONS (table_name 'orders')",
    "CREATE FOREIGN TABLE shipments (number int) SERVER shop",
    "CREATE FOREIGN TABLE charges (customer int, amount int) SERVER shop",
    "CREATE FOREIGN TABLE payments (id int, amount int) SERVER shop",
    "CREATE FOREIGN TABLE invoices (number int) SERVER billing",
];

fn foreign_server(name: &str, directory: &str) -> [String; 2] {
    [
        format!(
            "CREATE SERVER {name} FOREIGN DATA WRAPPER postgres_fdw\n\
             OPTIONS (host '{directory}/{name}', port '5432', dbname 'postgres', \
             use_remote_estimate 'true')"
        ),
        format!("CREATE USER MAPPING FOR CURRENT_USER SERVER {name} OPTIONS (user 'postgres')"),
    ]
}

/// A foreign table of a program's output, with titles in its first line.
pub(super) fn program_table(definition: &str, program: &str) -> String {
    file_table(definition, &format!("program '{program}', format 'csv', header 'true'"))
}

/// Options of a CSV file with titles in its first line.
pub(super) fn csv_options(file: &Path) -> String {
    format!("filename '{}', format 'csv', header 'true'", file.display())
}

/// A foreign table of `file_fdw`.
pub(super) fn file_table(definition: &str, options: &str) -> String {
    format!("CREATE FOREIGN TABLE {definition} SERVER files\nOPTIONS ({options})")
}
