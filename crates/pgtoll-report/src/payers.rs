//! Relations and statements that would pay, in words.

use std::fmt::Write as _;

use pgtoll_estimate::percent_of_share;
use pgtoll_record::{PayerRanking, PredictionRecord, RelationShare, StatementCost, StatementWatch};

use crate::prediction_numbers::per_second;
use crate::text::wrapped;
use crate::wal_numbers::{count, counted};

/// Relations and statements that a terminal lists.
const SHOWN: usize = 10;

/// Both lists for a terminal, with what they rest on; empty where nothing is known.
pub(crate) fn payers_text(prediction: &PredictionRecord) -> String {
    let Some(ranking) = &prediction.payers else { return String::new() };
    let mut text = format!("\n{}\n", heading(prediction).to_lowercase());
    if !ranking.relations.is_empty() {
        text.push_str(&wrapped("  ", &relations_words(ranking)));
        for relation in ranking.relations.iter().take(SHOWN) {
            let [share, range] = shares(relation);
            let words = format!("{} [{range}]", relation_name(relation));
            text.push_str(&wrapped(&format!("  {share:>7}  "), &words));
        }
    }
    if !ranking.statements.is_empty() {
        text.push_str(&wrapped(
            "  ",
            &statements_words(ranking, prediction.watch.statements.as_ref()),
        ));
        for statement in ranking.statements.iter().take(SHOWN) {
            let share = format!("  {:>7}  ", percent_of_share(statement.share));
            text.push_str(&wrapped(&share, &statement_words(statement)));
        }
    }
    text
}

/// With checksums on today they pay already.
pub(crate) fn heading(prediction: &PredictionRecord) -> &'static str {
    let is_on = prediction.server.settings.get("data_checksums").is_some_and(|value| value == "on");
    if is_on { "Who pays" } else { "Who would pay" }
}

/// Returns the basis of the list of relations.
pub(crate) fn relations_words(ranking: &PayerRanking) -> String {
    let evicted = match ranking.in_buffers {
        Some(share) if share < 0.995 => format!(
            "; they are {} of the predicted images, of pages evicted before the relations are not \
             known",
            percent_of_share(share)
        ),
        _ => String::new(),
    };
    format!(
        "Relations by their share of the pages that hints alone had changed ({} in the samples of \
         {}{evicted}), with the samples' range:",
        counted(ranking.relation_pages, "such page", "such pages"),
        counted(ranking.censuses, "census", "censuses"),
    )
}

/// Returns the basis of the list of statements.
pub(crate) fn statements_words(ranking: &PayerRanking, watch: Option<&StatementWatch>) -> String {
    let mut words = "Statements by their share of the predicted CPU".to_owned();
    if ranking.statements.iter().any(|statement| statement.image_share.is_some()) {
        words.push_str(" and of the images of all SELECTs (at most: a page counts each time)");
    }
    if let Some(other) = ranking.other_cpu_share {
        let _ = write!(
            words,
            "; {} of the CPU is the checkpointer's, the background writer's, autovacuum's and other \
             statements'",
            percent_of_share(other)
        );
    }
    if let Some(watch) = watch {
        let _ = write!(words, "; {} did something", count(watch.statements));
        if watch.is_cut {
            words.push_str(", small ones may be missing");
        }
        if watch.forgotten > 0 {
            let _ = write!(
                words,
                "; pg_stat_statements forgot statements {} times (pg_stat_statements.max): theirs is \
                 missing",
                count(watch.forgotten)
            );
        }
    }
    words.push(':');
    words
}

pub(crate) fn relation_name(share: &RelationShare) -> String {
    format!("{}: {}", share.database, share.relation)
}

/// The share, and its range.
pub(crate) fn shares(share: &RelationShare) -> [String; 2] {
    let percent = percent_of_share;
    let range = format!("{} to {}", percent(share.share.lower), percent(share.share.upper));
    [percent(share.share.estimate), range]
}

/// Images a second, from none to the most.
pub(crate) fn images_words(cost: &StatementCost) -> String {
    cost.images_per_second
        .map_or_else(|| "-".to_owned(), |images| format!("at most {}", per_second(images.upper)))
}

/// `1,833`, `2.5` or `0.02` a second.
pub(crate) fn calls_words(calls_per_second: f64) -> String {
    let decimals = match calls_per_second {
        rate if rate >= 10.0 => 0,
        rate if rate >= 1.0 => 1,
        _ => 3,
    };
    format!("{calls_per_second:.decimals$} calls a second")
}

fn statement_words(cost: &StatementCost) -> String {
    let logged = cost.image_share.filter(|share| *share > 0.0);
    let images = logged.map_or_else(String::new, |share| {
        format!(", images {} ({})", percent_of_share(share), images_words(cost))
    });
    let text = cost.text.as_ref().map_or_else(String::new, |text| format!(": {text}"));
    format!(
        "{}, {}: query id {}, CPU {}{images}, {}{text}",
        cost.database,
        cost.role,
        cost.query_id,
        percent_of_share(cost.cpu_share),
        calls_words(cost.calls_per_second)
    )
}
