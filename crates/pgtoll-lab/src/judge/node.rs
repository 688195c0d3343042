//! Identity of the server that answered.

use std::collections::HashMap;

use pgtoll_record::NodeIdentity;

/// An SQL expression for the server that evaluates it, in one text. A session behind a pooler may
/// be another server's with each transaction, so each row says it.
pub(crate) const NODE_EXPRESSION: &str = "concat_ws('|', \
    coalesce(pg_catalog.host(pg_catalog.inet_server_addr()), ''), \
    pg_catalog.current_setting('port'), \
    pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() AT TIME ZONE 'UTC', \
    'YYYY-MM-DD HH24:MI:SS.US'), \
    pg_catalog.left(pg_catalog.pg_walfile_name(pg_catalog.pg_current_wal_lsn()), 8), \
    pg_catalog.current_setting('cluster_name'))";

/// The same without the timeline, for servers that have no WAL files to be named.
pub(crate) const NODE_EXPRESSION_WITHOUT_TIMELINE: &str = "concat_ws('|', \
    coalesce(pg_catalog.host(pg_catalog.inet_server_addr()), ''), \
    pg_catalog.current_setting('port'), \
    pg_catalog.to_char(pg_catalog.pg_postmaster_start_time() AT TIME ZONE 'UTC', \
    'YYYY-MM-DD HH24:MI:SS.US'), \
    '', \
    pg_catalog.current_setting('cluster_name'))";

/// Parses the value of such an expression. The name of the cluster is last, as it may be anything.
pub(crate) fn identity(text: &str) -> NodeIdentity {
    let mut parts = text.splitn(5, '|');
    let mut part = || parts.next().unwrap_or_default().to_owned();
    let address = part();
    let port = part();
    let started = part();
    let timeline = part();
    NodeIdentity {
        address,
        port,
        cluster_name: part(),
        started,
        timeline: u32::from_str_radix(&timeline, 16).ok(),
    }
}

/// Whether another primary has taken the server's place: `latest` is the latest timeline that any
/// wrote, `last` the primary in the end, which may be the same process under another address.
pub(crate) fn is_deposed(
    node: &NodeIdentity,
    last: Option<&NodeIdentity>,
    latest: Option<u32>,
) -> bool {
    let is_replaced = last.is_some_and(|last| {
        let is_elsewhere = (&node.address, &node.port) != (&last.address, &last.port);
        let is_same_process = (&node.started, &node.port) == (&last.started, &last.port);
        is_elsewhere && !is_same_process && node.timeline <= last.timeline
    });
    is_replaced || (node.timeline.is_some() && node.timeline < latest)
}

/// The servers that answered, each with a number in the order in which they did first.
#[derive(Debug, Default)]
pub(crate) struct NodeTable {
    numbers: HashMap<String, u16>,
}

impl NodeTable {
    /// The server's number, and whether it is new. `None` when there are too many.
    pub(crate) fn number(&mut self, text: &str) -> Option<(u16, bool)> {
        if let Some(number) = self.numbers.get(text) {
            return Some((*number, false));
        }
        let number = u16::try_from(self.numbers.len()).ok().filter(|number| *number < NODES_MAX)?;
        self.numbers.insert(text.to_owned(), number);
        Some((number, true))
    }
}

/// Each is in memory, and in the record.
pub(crate) const NODES_MAX: u16 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_of_itself() {
        let item = identity("10.0.0.1|5432|2026-11-23 10:00:00.000001|0000000A|a|b");
        assert_eq!((item.address.as_str(), item.port.as_str()), ("10.0.0.1", "5432"));
        assert_eq!((item.timeline, item.cluster_name.as_str()), (Some(10), "a|b"));
        assert_eq!(identity("").timeline, None);
    }

    #[test]
    fn a_restart_does_not_depose() {
        let check = |node, last, expected| {
            let node = identity(node);
            let last = identity(last);
            let latest = node.timeline.max(last.timeline);
            assert_eq!(is_deposed(&node, Some(&last), latest), expected, "{node:?} {last:?}");
        };
        let first = "|5432|a|00000001|";
        check(first, "|5432|b|00000001|", false);
        check(first, "|5432|b|00000002|", true);
        check(first, "|5433|b|00000001|", true);
        check("|5432|a||", "|5432|b||", false);
        // One server with two addresses.
        check("::1|5432|a|00000001|", "127.0.0.1|5432|a|00000001|", false);
        check("::1|5432|a|00000001|", "127.0.0.1|5432|b|00000001|", true);
        // An old primary that answers in the end has not deposed its successor.
        check("|5433|b|00000002|", first, false);
        assert!(is_deposed(&identity(first), None, Some(2)));
    }

    #[test]
    fn numbers_are_in_the_order_of_the_first_answers() {
        let mut table = NodeTable::default();
        let numbers = ["a", "b", "a"].map(|text| table.number(text));
        assert_eq!(numbers, [Some((0, true)), Some((1, true)), Some((0, false))]);
    }
}
