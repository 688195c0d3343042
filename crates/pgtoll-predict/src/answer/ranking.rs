//! Ranking of those who would pay: relations by their share of the pages that hints alone had
//! changed, statements by the blocks that they read, write and dirty.
//! what they read, write and dirty.

use std::collections::BTreeMap;

use pgtoll_model::prediction::{Bounded, ImageWork, PageWork, cpu_cores};
use pgtoll_record::{
    Interval, PageCosts, PayerRanking, RelationShare, ServerWatch, StatementCost, StatementWatch,
    WatchWindow, WatchedStatement,
};
use pgtoll_stats::proportion_interval;

use crate::answer::digest::{WatchDigest, evicted, float};
use crate::question::{AskedValue, SettingQuestion};
use crate::{bounded, interval};

/// The costs that are ranked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct RankedCosts {
    /// Pages are verified and summed.
    pages: bool,
    /// Hints log images.
    images: bool,
}

/// Relations and statements that are listed.
const LISTED: usize = 20;

/// `None` where nothing that is asked about has payers, or nothing is known of them.
pub(super) fn payers(
    questions: &[SettingQuestion],
    watch: &ServerWatch,
    costs: &PageCosts,
    digest: Option<&WatchDigest>,
) -> Option<PayerRanking> {
    let digest = digest?;
    let asks =
        |wanted: fn(AskedValue) -> bool| questions.iter().any(|question| wanted(question.value));
    let ranked = RankedCosts {
        pages: asks(|value| matches!(value, AskedValue::Checksums(_))),
        images: asks(|value| {
            matches!(value, AskedValue::Checksums(true) | AskedValue::Hints(true))
        }) && !digest.settings.logs_hints()
            && digest.settings.full_page_writes,
    };
    let mut ranking = PayerRanking::default();
    if ranked.images {
        relations(&mut ranking, &watch.windows, digest);
    }
    if ranked.pages || ranked.images {
        statements(&mut ranking, watch, costs, digest, ranked);
    }
    let is_known = !ranking.relations.is_empty() || !ranking.statements.is_empty();
    is_known.then_some(ranking)
}

/// Each census counts as much as it has dirty pages; the more unlike the censuses, the fewer pages
/// of one sample do all of them count for.
fn relations(ranking: &mut PayerRanking, windows: &[WatchWindow], digest: &WatchDigest) {
    let mut pages: BTreeMap<(String, String), (u64, f64)> = BTreeMap::new();
    let mut all = 0.0;
    let mut squares = 0.0;
    for census in windows.iter().filter_map(|window| window.census.as_ref()) {
        if census.sampled == 0 {
            continue;
        }
        let weight = float(census.dirty) / float(census.sampled);
        ranking.relation_pages = ranking.relation_pages.saturating_add(census.hint_only);
        ranking.censuses += 1;
        all += weight * float(census.hint_only);
        squares += weight * weight * float(census.hint_only);
        for relation in &census.relations {
            let sum =
                pages.entry((relation.database.clone(), relation.relation.clone())).or_default();
            sum.0 = sum.0.saturating_add(relation.pages);
            sum.1 += weight * float(relation.pages);
        }
    }
    if all <= 0.0 {
        return;
    }
    let sample = all * all / squares;
    let share = |weighted: f64| {
        let share = (weighted / all).min(1.0);
        let hits = (share * sample).round();
        let bounds = proportion_interval(whole(hits), whole(sample.round()).max(whole(hits)));
        let (lower, upper) = bounds.unwrap_or((0.0, 1.0));
        Interval { estimate: share, lower: lower.min(share), upper: upper.max(share) }
    };
    let shares = pages.into_iter().map(|((database, relation), (pages, weighted))| RelationShare {
        database,
        relation,
        share: share(weighted),
        pages,
    });
    ranking.relations = shares.collect();
    ranking.relations.sort_by(|a, b| b.share.estimate.total_cmp(&a.share.estimate));
    ranking.relations.truncate(LISTED);
    ranking.in_buffers = digest.hint_images.as_ref().and_then(|images| {
        let [stock, predicted] = ["E2", "E2+"].map(|name| images.estimators.get(name).copied());
        let stock = stock?;
        let predicted = predicted?;
        (predicted > 0.0).then(|| (stock / predicted).clamp(0.0, 1.0))
    });
}

fn statements(
    ranking: &mut PayerRanking,
    watch: &ServerWatch,
    costs: &PageCosts,
    digest: &WatchDigest,
    ranked: RankedCosts,
) {
    let Some(statement) = watch.statements.as_ref().filter(|statement| statement.seconds > 0.0)
    else {
        return;
    };
    let pricing = StatementPricing::new(statement, &watch.windows, costs, digest, ranked);
    let mut all: Vec<StatementCost> =
        statement.listed.iter().map(|listed| pricing.cost(listed)).collect();
    all.retain(|cost| cost.share > 0.0);
    all.sort_by(|a, b| b.share.total_cmp(&a.share));
    all.truncate(LISTED);
    if all.is_empty() {
        return;
    }
    let paid: f64 = all.iter().map(|cost| cost.cpu_share).sum();
    ranking.other_cpu_share = Some((1.0 - paid).max(0.0));
    ranking.statements = all;
}

/// The cost of turns a statement's blocks into.
struct StatementPricing {
    seconds: f64,
    read_ns: Bounded,
    write_ns: Bounded,
    image_ns: Bounded,
    /// The part of blocks written that are no new ones.
    summed: f64,
    /// The part of what SELECTs dirty that is not evicted, and then dirtied again.
    kept: f64,
    images: bool,
    /// Cores of the whole server, and images of all SELECTs a second.
    all_cores: f64,
    all_images: f64,
}

impl StatementPricing {
    fn new(
        watch: &StatementWatch,
        windows: &[WatchWindow],
        costs: &PageCosts,
        digest: &WatchDigest,
        ranked: RankedCosts,
    ) -> Self {
        let page = |cost: Interval| if ranked.pages { bounded(cost) } else { Bounded::ZERO };
        let sum = |value: &dyn Fn(&WatchWindow) -> u64| -> f64 {
            windows.iter().map(|window| float(value(window))).sum()
        };
        let evicted = sum(&evicted);
        let written = evicted + sum(&|window| window.blocks_checkpointed);
        let own = float(watch.all.blocks_written) / watch.seconds;
        let evictions = evicted / digest.seconds;
        let mut pricing = Self {
            seconds: watch.seconds,
            read_ns: page(costs.read_ns),
            write_ns: page(costs.write_ns),
            image_ns: bounded(costs.image_ns),
            summed: if own > evictions { evictions / own } else { 1.0 },
            kept: if written > 0.0 { 1.0 - evicted / written } else { 1.0 },
            images: ranked.images,
            all_cores: 0.0,
            all_images: float(watch.all.select_dirtied) / watch.seconds,
        };
        let rates = &digest.rates;
        let images = digest.hint_images.as_ref().filter(|_| ranked.images);
        let server = rates.reads_per_second * pricing.read_ns.estimate
            + rates.writes_per_second * pricing.write_ns.estimate
            + images.map_or(0.0, |images| images.per_second.estimate) * pricing.image_ns.estimate;
        let together = WatchedStatement { work: watch.all, ..WatchedStatement::default() };
        // Counters of statements and of the server are not of exactly the same time.
        pricing.all_cores = (server / 1e9).max(pricing.cores(&together).estimate);
        pricing
    }

    fn images_per_second(&self, statement: &WatchedStatement) -> Bounded {
        if !self.images {
            return Bounded::ZERO;
        }
        let dirtied = float(statement.work.select_dirtied) / self.seconds;
        Bounded::new(dirtied * self.kept, 0.0, dirtied)
    }

    fn cores(&self, statement: &WatchedStatement) -> Bounded {
        let written = float(statement.work.blocks_written) / self.seconds;
        let pages = PageWork {
            read: (float(statement.work.blocks_read) / self.seconds, self.read_ns),
            write: (written * self.summed, self.write_ns),
        };
        let images =
            ImageWork { images: self.images_per_second(statement), cost_ns: self.image_ns };
        cpu_cores(&pages, &images)
    }

    fn cost(&self, statement: &WatchedStatement) -> StatementCost {
        let cores = self.cores(statement);
        let part = |value: f64, all: f64| if all > 0.0 { (value / all).min(1.0) } else { 0.0 };
        let cpu_share = part(cores.estimate, self.all_cores);
        let image_share = (self.images && self.all_images > 0.0)
            .then(|| part(float(statement.work.select_dirtied) / self.seconds, self.all_images));
        StatementCost {
            query_id: statement.query_id.clone(),
            database: statement.database.clone(),
            role: statement.role.clone(),
            text: statement.text.clone(),
            share: image_share.map_or(cpu_share, |images| cpu_share.midpoint(images)),
            calls_per_second: float(statement.work.calls) / self.seconds,
            cpu_cores: interval(cores),
            cpu_share,
            images_per_second: self.images.then(|| interval(self.images_per_second(statement))),
            image_share,
        }
    }
}

#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "pages, not negative")]
fn whole(pages: f64) -> u64 {
    pages as u64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use pgtoll_format::Lsn;
    use pgtoll_record::{
        CensusRelation, DirtyCensus, PredictionRecord, Provenance, StatementWork, WatchedServer,
    };

    use super::*;
    use crate::answer::{Watched, prediction_record};

    fn census(dirty: u64, sampled: u64, relations: &[(&str, u64)]) -> DirtyCensus {
        let relation = |(name, pages): &(&str, u64)| CensusRelation {
            database: "shop".to_owned(),
            relation: (*name).to_owned(),
            pages: *pages,
        };
        DirtyCensus {
            at: String::new(),
            redo: Lsn(1),
            age_s: 290.0,
            cycle_s: Some(300.0),
            evicted: None,
            buffers: 1 << 20,
            dirty,
            covered: dirty,
            sampled,
            hint_only: relations.iter().map(|(_, pages)| pages).sum(),
            low: 0,
            low_hint_only: 0,
            low_unsure: 0,
            image_bytes: Some(8000.0),
            relations: relations.iter().map(relation).collect(),
        }
    }

    fn window(census: Option<DirtyCensus>) -> WatchWindow {
        WatchWindow {
            seconds: 300.0,
            is_cycle: true,
            wal_bytes: 300_000_000,
            wal_records: Some(300_000),
            wal_images: Some(20_000),
            forced_images_most: Some(0),
            blocks_read: 300_000,
            blocks_checkpointed: 30_000,
            census,
            ..WatchWindow::default()
        }
    }

    fn statement(id: &str, blocks_read: u64, select_dirtied: u64) -> WatchedStatement {
        let work =
            StatementWork { calls: 300, blocks_read, select_dirtied, ..StatementWork::default() };
        WatchedStatement { query_id: id.to_owned(), work, ..WatchedStatement::default() }
    }

    fn requested(
        settings: &[(&str, &str)],
        windows: Vec<WatchWindow>,
        statements: Vec<WatchedStatement>,
        question: &str,
    ) -> PredictionRecord {
        let known = [("data_checksums", "off"), ("full_page_writes", "on")];
        let settings: BTreeMap<String, String> = known
            .iter()
            .chain(settings)
            .map(|(name, value)| (String::from(*name), String::from(*value)))
            .collect();
        let server = WatchedServer {
            version: "17.10".to_owned(),
            settings,
            block_bytes: 8192,
            segment_bytes: 16 << 20,
            ..WatchedServer::default()
        };
        let all = statements
            .iter()
            .fold(StatementWork::default(), |sum, statement| sum.plus(statement.work));
        let statements = StatementWatch {
            seconds: 300.0,
            statements: statements.len() as u64,
            all,
            listed: statements,
            ..StatementWatch::default()
        };
        let watch = ServerWatch {
            windows,
            statements: Some(statements),
            complete: true,
            ..ServerWatch::default()
        };
        let provenance =
            Provenance { version: String::new(), command: Vec::new(), made: String::new() };
        let question = SettingQuestion::parse(question).unwrap();
        prediction_record(provenance, Watched::now(server, watch), &[question])
    }

    #[test]
    fn censuses_weigh_by_their_dirty_pages() {
        let windows = vec![
            window(Some(census(1000, 1000, &[("public.a", 300), ("public.b", 100)]))),
            window(Some(census(9000, 1000, &[("public.a", 100), ("public.b", 300)]))),
        ];
        let ranking = requested(&[], windows, Vec::new(), "data_checksums=on").payers.unwrap();
        let names: Vec<&str> =
            ranking.relations.iter().map(|relation| relation.relation.as_str()).collect();
        assert_eq!(names, ["public.b", "public.a"]);
        // (100 + 9 · 300) of (400 + 9 · 400) pages.
        let share = ranking.relations[0].share;
        assert!((share.estimate - 0.7).abs() < 1e-9, "{share:?}");
        // As wide as of 800 pages at least, and not as of 80.
        assert!((0.03..0.08).contains(&(share.upper - share.estimate)), "{share:?}");
        assert_eq!((ranking.relation_pages, ranking.censuses), (800, 2));
        assert_eq!(ranking.relations[0].pages, 400);
    }

    #[test]
    fn statements_pay_for_what_they_read_and_for_what_selects_dirty() {
        let seen = || vec![window(Some(census(1000, 1000, &[("public.a", 900)])))];
        let statements =
            || vec![statement("1", 30_000, 0), statement("2", 3, 900), statement("3", 3_000, 0)];
        let ranking = requested(&[], seen(), statements(), "data_checksums=on").payers.unwrap();
        let ids = |ranking: &PayerRanking| -> Vec<String> {
            ranking.statements.iter().map(|statement| statement.query_id.clone()).collect()
        };
        // The second pays for all images; the server reads ten times what the first does.
        assert_eq!(ids(&ranking), ["2", "1", "3"]);
        let [images, reads, _] = &ranking.statements[..] else { panic!("{ranking:?}") };
        assert!((images.image_share.unwrap() - 1.0).abs() < 1e-9, "{images:?}");
        let per_second = images.images_per_second.unwrap();
        assert!(per_second.lower.abs() < 1e-9 && (per_second.upper - 3.0).abs() < 1e-9);
        assert!((0.05..0.1).contains(&reads.cpu_share), "{reads:?}");
        assert!(reads.cpu_cores.lower < reads.cpu_cores.estimate);
        assert!((0.8..0.99).contains(&ranking.other_cpu_share.unwrap()), "{ranking:?}");
        // Where hints are logged already only reads and writes cost; without them, only hints.
        let logs = [("wal_log_hints", "on")];
        let ranking = requested(&logs, seen(), statements(), "data_checksums=on").payers.unwrap();
        assert_eq!(ids(&ranking), ["1", "3", "2"]);
        assert!(ranking.relations.is_empty() && ranking.statements[0].image_share.is_none());
        let ranking = requested(&[], seen(), statements(), "wal_log_hints=on").payers.unwrap();
        assert_eq!(ids(&ranking), ["2"]);
        assert!(requested(&[], seen(), statements(), "max_wal_size=4GB").payers.is_none());
    }

    /// New blocks are among those that a statement wrote, and are not summed.
    #[test]
    fn blocks_that_a_statement_wrote_are_no_more_than_were_evicted() {
        let work = StatementWork { calls: 1, blocks_written: 60_000, ..StatementWork::default() };
        let load = WatchedStatement { query_id: "1".into(), work, ..WatchedStatement::default() };
        let windows = vec![WatchWindow { blocks_evicted: 600, ..window(None) }];
        let ranking = requested(&[], windows, vec![load], "data_checksums=on").payers.unwrap();
        // 2 a second, a µs each.
        let cores = ranking.statements[0].cpu_cores.estimate;
        assert!((1e-6..4e-6).contains(&cores), "{cores}");
    }
}
