//! Contents of the tables, and the expected result of a join: computed here, without a server.

use std::collections::BTreeMap;
use std::fmt::Write as _;

/// Customers, from 1.
const CUSTOMERS: u32 = 200;
/// Orders, from 1. An order's amount is its number.
const ORDERS: u32 = 2000;
/// The join leaves orders of this amount and less out.
const AMOUNT: u32 = 1000;

/// Names that a CSV file has to quote.
const REGIONS: [&str; 3] = ["Alps", "Baltic, north", "\"Old\" town"];
const ITEMS: [&str; 2] = ["pen", "jar, 3\" wide"];

fn customers() -> impl Iterator<Item = u32> {
    1..=CUSTOMERS
}

fn region(customer: u32) -> &'static str {
    REGIONS[customer as usize % REGIONS.len()]
}

/// Every second customer has one.
fn item(customer: u32) -> Option<&'static str> {
    customer.is_multiple_of(2).then(|| ITEMS[customer as usize / 2 % ITEMS.len()])
}

fn customer_of(order: u32) -> u32 {
    order % CUSTOMERS + 1
}

/// The statement that makes the orders.
pub(super) fn insert_orders() -> String {
    format!(
        "INSERT INTO orders (customer, amount)\n\
         SELECT i % {CUSTOMERS} + 1, i FROM generate_series(1, {ORDERS}) AS i"
    )
}

/// The CSV file of regions.
pub(super) fn regions_csv() -> String {
    let mut text = "customer,region\n".to_owned();
    for customer in customers() {
        let _ = writeln!(text, "{customer},\"{}\"", region(customer).replace('"', "\"\""));
    }
    text
}

/// The Redis hash of carts: customers and items.
pub(super) fn carts() -> Vec<(String, &'static str)> {
    customers().filter_map(|customer| Some((customer.to_string(), item(customer)?))).collect()
}

/// The join of the three, with its condition on orders.
pub(super) fn join() -> String {
    format!(
        "SELECT r.region, c.item, count(*) AS orders, sum(o.amount) AS amount\n\
         FROM orders AS o\n\
         \x20 JOIN regions AS r USING (customer)\n\
         \x20 JOIN carts AS c USING (customer)\n\
         WHERE {}\n\
         GROUP BY r.region, c.item\n\
         ORDER BY r.region, c.item",
        condition()
    )
}

/// The condition on orders, which their own server is asked to apply.
pub(super) fn condition() -> String {
    format!("o.amount > {AMOUNT}")
}

/// The rows of [`join`], values with ` | ` between.
pub(super) fn joined_rows() -> Vec<String> {
    let mut groups: BTreeMap<(&str, &str), (u32, u32)> = BTreeMap::new();
    for amount in AMOUNT + 1..=ORDERS {
        let customer = customer_of(amount);
        let Some(item) = item(customer) else { continue };
        let (orders, sum) = groups.entry((region(customer), item)).or_default();
        *orders += 1;
        *sum += amount;
    }
    let row = |((region, item), (orders, sum))| format!("{region} | {item} | {orders} | {sum}");
    groups.into_iter().map(row).collect()
}

/// Rows that the scans of the join return: of orders, regions and carts.
pub(super) fn scanned_rows() -> [(&'static str, u32); 3] {
    [("orders", ORDERS - AMOUNT), ("regions", CUSTOMERS), ("carts", CUSTOMERS / 2)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_join_has_a_row_for_each_region_and_item() {
        let rows = joined_rows();
        assert_eq!(rows.len(), REGIONS.len() * ITEMS.len(), "{rows:?}");
        let orders =
            rows.iter().map(|row| row.split(" | ").nth(2).unwrap().parse::<u32>().unwrap());
        // Every second customer has a cart.
        assert_eq!(orders.sum::<u32>(), (ORDERS - AMOUNT) / 2);
        assert!(rows[0].starts_with("\"Old\" town | jar, 3\" wide | "), "{rows:?}");
    }

    #[test]
    fn what_a_csv_file_has_to_quote_is_quoted() {
        let text = regions_csv();
        assert_eq!(text.lines().count(), customers().count() + 1);
        assert!(text.contains("\n2,\"\"\"Old\"\" town\"\n"), "{text}");
    }
}
