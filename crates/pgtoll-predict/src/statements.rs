//! Counters of statements, by `pg_stat_statements`: the sums of differences between looks.

use std::collections::BTreeMap;

use pgtoll_format::MajorFacts;
use pgtoll_record::{StatementWatch, StatementWork, WatchedStatement};
use pgtoll_wire::{Error, Row};

use crate::session::WatchSession;

/// Adds up what statements did from look to look.
#[derive(Debug)]
pub(crate) struct StatementTally {
    schema: String,
    /// 14 and later: nested statements are distinguished, and forgotten ones are counted.
    has_info: bool,
    with_text: bool,
    before: Option<StatementLook>,
    sums: BTreeMap<StatementKey, WatchedStatement>,
    /// With the sums of statements that were dropped.
    all: StatementWork,
    dropped: u64,
    seconds: f64,
    is_cut: bool,
    forgotten: u64,
}

/// `queryid`, `dbid`, `userid`.
type StatementKey = (String, u32, u32);

/// The counters at one time.
#[derive(Debug, Default)]
struct StatementLook {
    /// The server's clock, in seconds since 1970.
    now_s: f64,
    reset: String,
    forgotten: u64,
    /// Statements are missing in it.
    is_cut: bool,
    of: BTreeMap<StatementKey, WatchedStatement>,
}

/// Statements that one look reads at most: as many as `pg_stat_statements.max` has by default.
const READ: usize = 5000;
/// Statements of the record.
const LISTED: usize = 100;
/// Statements whose sums are kept: new ones come and go in a long watch.
const KEPT: usize = 20_000;
/// Looks are at least so far apart, in seconds: a look reads thousands of rows.
const PAUSE_S: f64 = 60.0;
/// Characters of a text.
const TEXT: usize = 500;

impl StatementTally {
    pub(crate) fn new(schema: String, facts: &MajorFacts, with_text: bool) -> Self {
        Self {
            schema,
            has_info: facts.has_pg_stat_wal,
            with_text,
            before: None,
            sums: BTreeMap::new(),
            all: StatementWork::default(),
            dropped: 0,
            seconds: 0.0,
            is_cut: false,
            forgotten: 0,
        }
    }

    /// Looks, if the last look was long ago or this one is the last.
    pub(crate) fn look(&mut self, session: &mut WatchSession, is_last: bool) -> Result<(), Error> {
        let info = session.query_one(&self.info_sql())?;
        let now_s: f64 = info.parse("now_s")?;
        let is_due = self.before.as_ref().is_none_or(|before| now_s - before.now_s >= PAUSE_S);
        if !is_due && !is_last {
            return Ok(());
        }
        let mut now = StatementLook {
            now_s,
            reset: info.value("reset")?.unwrap_or_default().to_owned(),
            forgotten: info.parse("forgotten")?,
            ..StatementLook::default()
        };
        for row in session.query(&self.statements_sql())? {
            let (key, statement) = read(&row)?;
            now.of.insert(key, statement);
        }
        now.is_cut = now.of.len() >= READ;
        self.add(now);
        if self.with_text {
            self.read_texts(session)?;
        }
        Ok(())
    }

    /// Adds what was done since the look before; after a reset nothing is known of that time.
    fn add(&mut self, now: StatementLook) {
        if let Some(before) = self.before.take().filter(|before| before.reset == now.reset) {
            self.seconds += now.now_s - before.now_s;
            self.forgotten += now.forgotten.saturating_sub(before.forgotten);
            self.is_cut |= now.is_cut || before.is_cut;
            for (key, statement) in &now.of {
                let done = match before.of.get(key) {
                    Some(earlier) => difference(statement.work, earlier.work),
                    // How much of it is older is not known.
                    None if before.is_cut => StatementWork::default(),
                    None => statement.work,
                };
                if weight(&done) == 0 {
                    continue;
                }
                self.all = self.all.plus(done);
                let sum = self.sums.entry(key.clone()).or_insert_with(|| WatchedStatement {
                    work: StatementWork::default(),
                    ..statement.clone()
                });
                sum.work = sum.work.plus(done);
            }
            self.drop_small();
        }
        self.before = Some(now);
    }

    fn drop_small(&mut self) {
        if self.sums.len() <= KEPT {
            return;
        }
        let mut weights: Vec<u64> = self.sums.values().map(|sum| weight(&sum.work)).collect();
        weights.sort_unstable();
        let least = weights[weights.len() - KEPT / 2];
        let count = self.sums.len();
        self.sums.retain(|_, sum| weight(&sum.work) >= least);
        self.dropped += (count - self.sums.len()) as u64;
    }

    /// Returns the observation so far.
    pub(crate) fn watch(&self) -> StatementWatch {
        let listed = self.listed().into_iter().map(|(_, statement)| statement.clone());
        StatementWatch {
            seconds: self.seconds,
            statements: self.dropped + self.sums.len() as u64,
            all: self.all,
            listed: listed.collect(),
            is_cut: self.is_cut,
            forgotten: self.forgotten,
            has_text: self.sums.values().any(|sum| sum.text.is_some()),
        }
    }

    fn listed(&self) -> Vec<(&StatementKey, &WatchedStatement)> {
        let mut listed: Vec<_> = self.sums.iter().collect();
        listed.sort_by_key(|(_, statement)| std::cmp::Reverse(weight(&statement.work)));
        listed.truncate(LISTED);
        listed
    }

    /// Reads the texts of the listed statements, once.
    fn read_texts(&mut self, session: &mut WatchSession) -> Result<(), Error> {
        let wanted: Vec<StatementKey> = self
            .listed()
            .into_iter()
            .filter(|(_, statement)| statement.text.is_none())
            .map(|(key, _)| key.clone())
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        for row in session.query(&self.texts_sql(&wanted))? {
            let key = key(&row)?;
            if let Some(statement) = self.sums.get_mut(&key) {
                statement.text = row.value("text")?.map(str::to_owned);
            }
        }
        Ok(())
    }

    fn info_sql(&self) -> String {
        let info = if self.has_info {
            format!(
                "dealloc AS forgotten, stats_reset::text AS reset FROM \
                 {}.pg_stat_statements_info",
                self.schema
            )
        } else {
            "0 AS forgotten, NULL AS reset".to_owned()
        };
        format!("SELECT extract(epoch FROM clock_timestamp())::float8 AS now_s, {info}")
    }

    /// Those with most blocks first. Of nested statements the outer one has all, so that they are not
    /// counted twice.
    fn statements_sql(&self) -> String {
        let outer = if self.has_info { "AND toplevel" } else { "" };
        format!(
            "SELECT s.*, coalesce(d.datname, '') AS database, coalesce(r.rolname, '') AS role FROM \
             (SELECT queryid, dbid, userid, sum(calls)::bigint AS calls, \
             sum(shared_blks_read + local_blks_read)::bigint AS read, \
             sum(shared_blks_written + local_blks_written)::bigint AS written, \
             sum(shared_blks_dirtied)::bigint AS dirtied, sum(wal_fpi)::bigint AS images, \
             bool_or(query ~* '^[[:space:](]*select') AS selects \
             FROM {schema}.pg_stat_statements WHERE queryid IS NOT NULL {outer} \
             AND shared_blks_read + local_blks_read + shared_blks_written + local_blks_written + \
             shared_blks_dirtied > 0 GROUP BY queryid, dbid, userid \
             ORDER BY sum(shared_blks_read + local_blks_read + shared_blks_written + \
             local_blks_written + shared_blks_dirtied) DESC LIMIT {READ}) s \
             LEFT JOIN pg_database d ON d.oid = s.dbid LEFT JOIN pg_roles r ON r.oid = s.userid",
            schema = self.schema
        )
    }

    /// Utility statements are not normalised, and may have passwords in them: their first word alone.
    fn texts_sql(&self, keys: &[StatementKey]) -> String {
        let ids = keys.iter().map(|(id, ..)| id.as_str()).collect::<Vec<_>>().join(",");
        format!(
            "SELECT queryid, dbid, userid, min(CASE WHEN query ~* \
             '^[[:space:](]*(select|insert|update|delete|merge|with|values|table)\\y' \
             THEN CASE WHEN length(query) > {TEXT} THEN left(query, {TEXT}) || '…' ELSE query END \
             ELSE coalesce(substring(query FROM '^[[:space:]]*([[:alpha:]]+)'), '') END) AS text \
             FROM {}.pg_stat_statements WHERE queryid IN ({ids}) GROUP BY queryid, dbid, userid",
            self.schema
        )
    }
}

fn key(row: &Row) -> Result<StatementKey, Error> {
    let id: i64 = row.parse("queryid")?;
    Ok((id.to_string(), row.parse("dbid")?, row.parse("userid")?))
}

fn read(row: &Row) -> Result<(StatementKey, WatchedStatement), Error> {
    let key = key(row)?;
    let is_select = row.text("selects")? == "t";
    let unlogged = row
        .parse::<u64>("dirtied")?
        .saturating_sub(row.value("images")?.map_or(Ok(0), |_| row.parse("images"))?);
    let statement = WatchedStatement {
        query_id: key.0.clone(),
        database: row.text("database")?.to_owned(),
        role: row.text("role")?.to_owned(),
        is_select,
        work: StatementWork {
            calls: row.parse("calls")?,
            blocks_read: row.parse("read")?,
            blocks_written: row.parse("written")?,
            select_dirtied: if is_select { unlogged } else { 0 },
        },
        text: None,
    };
    Ok((key, statement))
}

/// Returns the work between two looks. A statement that was forgotten and returned began at zero.
fn difference(now: StatementWork, before: StatementWork) -> StatementWork {
    if now.calls < before.calls {
        return now;
    }
    StatementWork {
        calls: now.calls - before.calls,
        blocks_read: now.blocks_read.saturating_sub(before.blocks_read),
        blocks_written: now.blocks_written.saturating_sub(before.blocks_written),
        select_dirtied: now.select_dirtied.saturating_sub(before.select_dirtied),
    }
}

/// About how much of the server's CPU it would cost, in tenths of a µs: what decides who is listed.
fn weight(work: &StatementWork) -> u64 {
    let image = work.select_dirtied.saturating_mul(100);
    let written = work.blocks_written.saturating_mul(10);
    image.saturating_add(written).saturating_add(work.blocks_read.saturating_mul(7))
}

#[cfg(test)]
mod tests {
    use pgtoll_format::MAJORS;

    use super::*;

    fn look(now_s: f64, texts: &[(&str, u64, u64)]) -> StatementLook {
        let statement = |(id, calls, blocks_read): &(&str, u64, u64)| {
            let work = StatementWork {
                calls: *calls,
                blocks_read: *blocks_read,
                ..StatementWork::default()
            };
            let query_id = (*id).to_owned();
            let statement = WatchedStatement { query_id, work, ..WatchedStatement::default() };
            ((statement.query_id.clone(), 5, 10), statement)
        };
        StatementLook {
            now_s,
            of: texts.iter().map(statement).collect(),
            ..StatementLook::default()
        }
    }

    fn tally(looks: Vec<StatementLook>) -> StatementTally {
        let mut tally = StatementTally::new("public".to_owned(), &MAJORS[0], false);
        for look in looks {
            tally.add(look);
        }
        tally
    }

    fn read_by(watch: &StatementWatch) -> Vec<(&str, u64)> {
        watch
            .listed
            .iter()
            .map(|listed| (listed.query_id.as_str(), listed.work.blocks_read))
            .collect()
    }

    #[test]
    fn differences_of_looks_are_added_up() {
        let watch = tally(vec![
            look(100.0, &[("1", 10, 1000), ("2", 5, 50)]),
            look(160.0, &[("1", 11, 1010), ("2", 5, 50), ("3", 1, 7)]),
            look(220.0, &[("1", 12, 1030), ("3", 2, 107)]),
        ])
        .watch();
        assert_eq!(read_by(&watch), [("3", 107), ("1", 30)]);
        assert_eq!((watch.statements, watch.all.blocks_read, watch.all.calls), (2, 137, 4));
        assert!((watch.seconds - 120.0).abs() < 1e-9 && !watch.is_cut, "{watch:?}");
    }

    #[test]
    fn what_was_forgotten_begins_at_zero_and_a_reset_begins_anew() {
        let again = tally(vec![look(0.0, &[("1", 10, 1000)]), look(60.0, &[("1", 2, 30)])]);
        assert_eq!(read_by(&again.watch()), [("1", 30)]);
        let reset = StatementLook { reset: "later".into(), ..look(60.0, &[("1", 9, 900)]) };
        let after = StatementLook { reset: "later".into(), ..look(90.0, &[("1", 10, 940)]) };
        let watch = tally(vec![look(0.0, &[("1", 1, 1)]), reset, after]).watch();
        assert_eq!(read_by(&watch), [("1", 40)]);
        assert!((watch.seconds - 30.0).abs() < 1e-9);
    }

    #[test]
    fn behind_a_cut_look_new_statements_are_of_unknown_age() {
        let cut = StatementLook { is_cut: true, ..look(0.0, &[("1", 1, 500)]) };
        let watch = tally(vec![cut, look(60.0, &[("1", 2, 510), ("2", 90, 400)])]).watch();
        assert_eq!(read_by(&watch), [("1", 10)]);
        assert!(watch.is_cut);
    }

    #[test]
    fn nested_statements_are_told_apart_where_they_can_be() {
        for (major, is_told) in [(13, false), (14, true), (18, true)] {
            let facts = pgtoll_format::facts_of_major(major).unwrap();
            let tally = StatementTally::new("public".to_owned(), facts, true);
            assert_eq!(tally.statements_sql().contains("AND toplevel"), is_told, "{major}");
            assert_eq!(tally.info_sql().contains("dealloc"), is_told, "{major}");
            assert!(tally.statements_sql().contains("LIMIT 5000"), "{major}");
        }
    }

    #[test]
    fn of_very_many_statements_the_largest_are_kept() {
        let ids: Vec<String> = (0..=KEPT as u64).map(|id| id.to_string()).collect();
        let all: Vec<(&str, u64, u64)> =
            ids.iter().zip(0..).map(|(id, at)| (id.as_str(), 1, 1 + at)).collect();
        let tally = tally(vec![look(0.0, &[]), look(60.0, &all)]);
        let watch = tally.watch();
        assert!(tally.sums.len() <= KEPT / 2 + 1, "{}", tally.sums.len());
        assert_eq!((watch.listed.len(), watch.statements), (LISTED, KEPT as u64 + 1));
        assert_eq!(watch.listed[0].work.blocks_read, KEPT as u64 + 1);
    }
}
