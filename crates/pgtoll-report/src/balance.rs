//! Reads that a balancer sends to standbys.

use std::collections::BTreeMap;

use pgtoll_record::{
    BalanceDeath, BalanceNeed, BalanceQueue, BalanceRecord, BalanceRoute, BalanceRung,
    BalanceSplit, BalanceThroughput, PrintedRecord as _,
};

use crate::document::{Block, Document, Section, settings};
use crate::records::{ReportedRecord, TableOptions};
use crate::text::end_words;
use crate::wal_numbers::counted;

impl ReportedRecord for BalanceRecord {
    /// The answer, where each kind of statement went, and what readers saw.
    fn document(&self, _: &TableOptions) -> Document {
        let routes = self.routes.iter().map(route_row).collect();
        let rungs = self.freshness.iter().map(rung_row).collect();
        let clients = part_words(self).into_iter().map(Block::Paragraph).collect();
        let sections = [
            Section::table("Reads after writes", &RUNG_HEAD, rungs),
            Section::table("Where statements went", &ROUTE_HEAD, routes),
            Some(Section::detail("What clients saw", clients)),
            Some(Section::evidence("How it was found", how_section(self))),
        ];
        Document {
            command: "pgtoll lab balance",
            question: "Where does a balancer send statements, and how old is what standbys answer?",
            subject: subject_words(self),
            answer: vec![answer(self)],
            findings: self.conclusion().sentences(),
            sections: sections.into_iter().flatten().collect(),
            notes: self.notes.clone(),
            again: self.command.clone(),
        }
    }
}

fn how_section(record: &BalanceRecord) -> Vec<Block> {
    let statements = record.routes.iter().map(|route| route.statements.join("; "));
    vec![
        Block::Paragraph(format!(
            "Each kind of statement was tried in {} sessions of its own; the server that executed it named \
             itself. What each session sent:",
            record.design.route_sessions
        )),
        Block::Code(statements.collect()),
        Block::Paragraph("Settings of the servers, then of the balancer:".to_owned()),
        settings(record.settings.iter().chain(&record.balancer_settings)),
    ]
}

/// Returns a sentence for each other part.
fn part_words(balance: &BalanceRecord) -> Vec<String> {
    let parts = [
        wait_words(balance),
        balance.split.as_ref().map(split_words),
        balance.throughput.as_ref().map(throughput_words),
        balance.queue.as_ref().map(queue_words),
        balance.death.as_ref().map(death_words),
    ];
    parts.into_iter().flatten().collect()
}

/// How long readers waited for their own writes, and which server answered.
fn wait_words(balance: &BalanceRecord) -> Option<String> {
    let waits = balance.freshness.iter().filter_map(|rung| Some((rung, rung.wait.as_ref()?)));
    let words = waits.map(|(rung, wait)| {
        let ms = wait.p50_ms.map_or_else(|| "?".to_owned(), |ms| format!("{ms:.2}"));
        let applied = wait.applied;
        let all = rung.writes;
        let on_primary = match wait.on_primary {
            0 => String::new(),
            item => format!("; {item} were answered by the primary, which needs no wait"),
        };
        let way = if wait.is_direct { "on its standby" } else { "through the balancer" };
        format!("{way}: {applied} of {all} waits ended when a standby had applied the write{on_primary}; {ms} ms a wait (median)")
    });
    let words: Vec<String> = words.collect();
    (!words.is_empty()).then(|| format!("WAIT FOR LSN, {}.", words.join("; ")))
}

fn subject_words(balance: &BalanceRecord) -> String {
    let weights: Vec<String> =
        balance.design.weights.iter().map(|(name, weight)| format!("{name} {weight}")).collect();
    let mut words =
        format!("{}, {}; weights: {}.", balance.server, balance.balancer, weights.join(", "));
    words.push_str(&end_words(balance.ended.as_deref(), balance.complete, "all of it was"));
    words
}

fn answer(balance: &BalanceRecord) -> String {
    let kinds = counted(balance.routes.len() as u64, "kind", "kinds");
    let astray = balance.routes.iter().filter(|route| !route.holds()).count();
    let routes = match astray {
        0 => format!("All {kinds} of statements were answered where they may be."),
        astray => format!("{astray} of {kinds} of statements failed, or went where they must not."),
    };
    let stale: u64 = balance.freshness.iter().map(|rung| rung.stale).fold(0, u64::saturating_add);
    let is_promised =
        |rung: &&BalanceRung| rung.is_promised() && rung.wait.is_none() && rung.standby_reads > 0;
    let promised = balance.freshness.iter().find(is_promised);
    let has_waited = balance.freshness.iter().any(|rung| {
        rung.wait.as_ref().is_some_and(|wait| wait.is_direct && wait.applied == rung.writes)
    });
    let reads = match promised {
        _ if balance.freshness.is_empty() => String::new(),
        Some(rung) if rung.stale == 0 && stale > 0 => format!(
            " A session finds on every standby what it has just committed only if commits wait until {}{}.",
            rung.rung,
            if has_waited { ", or if it waits there itself (WAIT FOR LSN)" } else { "" },
        ),
        Some(rung) if rung.stale > 0 => {
            format!(" Sessions read stale rows although commits waited until {}.", rung.rung)
        }
        _ => " No stale read was seen, which promises nothing unless every standby has applied a commit \
              before it ends."
            .to_owned(),
    };
    routes + &reads
}

/// Titles of [`route_row`].
const ROUTE_HEAD: [&str; 4] = ["statement", "server", "went to", ""];

/// A kind of statement, and what became of it.
fn route_row(route: &BalanceRoute) -> Vec<String> {
    let need = match route.need {
        BalanceNeed::Primary => "primary",
        BalanceNeed::Any => "any",
    };
    let verdict = match (route.holds(), route.need, route.is_balanced()) {
        (false, ..) => "WRONG",
        (true, BalanceNeed::Any, false) => "kept",
        _ => "",
    };
    vec![route.kind.clone(), need.to_owned(), route.went_to(), verdict.to_owned()]
}

fn shares(map: &BTreeMap<String, u64>) -> Vec<String> {
    map.iter().map(|(name, count)| format!("{} {count}", crate::printable(name))).collect()
}

/// Titles of [`rung_row`].
const RUNG_HEAD: [&str; 5] = ["commits wait until", "stale", "of", "share", "write, ms"];

/// Returns the row of a rung: the wait of commits, and the number of stale reads.
fn rung_row(rung: &BalanceRung) -> Vec<String> {
    let share = rung.stale_share.as_ref().map_or_else(String::new, |share| {
        format!("{:.1} to {:.1} %", share.lower * 100.0, share.upper * 100.0)
    });
    vec![
        rung.rung.clone(),
        rung.stale.to_string(),
        rung.standby_reads.to_string(),
        share,
        rung.write_p50_ms.map_or_else(String::new, |ms| format!("{ms:.2}")),
    ]
}

fn split_words(split: &BalanceSplit) -> String {
    let all: u64 = split.sessions.values().copied().fold(0, u64::saturating_add);
    format!(
        "Of {all} sessions: {}. By the weights the first standby should have {:.0} %; its share is {:.1} % \
         ({:.1} to {:.1}).",
        shares(&split.sessions).join(", "),
        split.expected * 100.0,
        split.share.estimate * 100.0,
        split.share.lower * 100.0,
        split.share.upper * 100.0
    )
}

fn throughput_words(throughput: &BalanceThroughput) -> String {
    let middle = |rates: &[f64]| pgtoll_stats::median(rates).unwrap_or_default();
    let time = |ms: Option<f64>| ms.map_or_else(String::new, |ms| format!(" ({ms:.2} ms each)"));
    format!(
        "Through the balancer {:.0} reads a second by prepared statements{}, without it {:.0}{}: {:.2} times \
         as many ({:.2} to {:.2}).",
        middle(&throughput.balanced_per_second),
        time(throughput.balanced_p50_ms),
        middle(&throughput.direct_per_second),
        time(throughput.direct_p50_ms),
        throughput.ratio.estimate,
        throughput.ratio.lower,
        throughput.ratio.upper
    )
}

fn queue_words(queue: &BalanceQueue) -> String {
    format!(
        "The balancer takes {} clients at a time. Of {} more, {} were served at once, {} once others had \
         left, {} were refused.",
        queue.room, queue.more, queue.served_at_once, queue.served_later, queue.refused
    )
}

fn death_words(death: &BalanceDeath) -> String {
    format!(
        "A standby was killed under {} clients that read. {} reads were answered. Reads and connections \
         that failed: {} until the balancer called the standby down, {:.2} s after the kill; {} while it \
         was called down ({}); {} after it had been started again, until new sessions were led to it \
         {:.2} s later. The longest time without an answer was {:.2} s.",
        death.readers,
        death.reads,
        death.errors_until_down,
        death.down_s,
        death.errors_while_down,
        shares(&death.answers_while_down).join(", "),
        death.errors_after_start,
        death.back_s,
        death.longest_gap_s
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(record: &BalanceRecord) -> String {
        record.text(&TableOptions::default())
    }

    /// `pgtoll lab balance --postgres 18`, as it was.
    fn record() -> BalanceRecord {
        serde_json::from_str(include_str!("../../../records/2026-11-26-balance.json")).unwrap()
    }

    #[test]
    fn the_answer_comes_first_and_every_kind_of_statement_has_a_line() {
        let text = text(&record());
        let wide = text.lines().filter(|line| line.chars().count() > 80);
        assert_eq!(wide.collect::<Vec<_>>(), Vec::<&str>::new());
        insta::assert_snapshot!(text);
    }

    #[test]
    fn readers_that_wait_find_their_row_where_they_wait() {
        let json = include_str!("../../../records/2026-11-26-balance-19.json");
        let mut record: BalanceRecord = serde_json::from_str(json).unwrap();
        let text = text(&record);
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        assert!(text.contains("through the balancer: 0 of 1000 waits ended"), "{text}");
        assert!(text.contains("or if it waits there itself (WAIT FOR LSN)"), "{text}");
        // Stale through the balancer, which does not know the statement: no promise is broken.
        let [.., balanced, direct] = &mut record.freshness[..] else { panic!("{text}") };
        assert!(balanced.stale > 0 && direct.stale == 0, "{text}");
        direct.stale = 1;
        let [finding] = &record.conclusion().sentences()[..] else { panic!("{record:?}") };
        assert!(finding.contains("were stale although readers waited"), "{finding}");
    }

    #[test]
    fn what_goes_astray_or_is_stale_where_it_must_not_be_is_a_finding() {
        let mut record = record();
        assert_eq!(record.conclusion().sentences(), Vec::<String>::new());
        let insert =
            record.routes.iter().position(|route| route.need == BalanceNeed::Primary).unwrap();
        record.routes[insert].answers.insert("standby1".to_owned(), 1);
        record.freshness[4].stale = 1;
        let split = record.split.as_mut().unwrap();
        split.sessions.insert("primary".to_owned(), 3);
        let queue = record.queue.as_mut().unwrap();
        (queue.refused, queue.first_error) = (1, Some("sorry, too many clients".to_owned()));
        let findings = record.conclusion().sentences();
        assert_eq!(findings.len(), 4, "{findings:?}");
        let text = text(&record);
        assert!(text.contains("1 of 32 kinds of statements failed, or went"), "{text}");
        assert!(text.contains("WRONG") && text.contains("finding: "), "{text}");
    }

    #[test]
    fn of_a_run_that_ended_early_only_what_was_done_is_said() {
        let mut record = record();
        (record.complete, record.ended) = (false, Some("queue: interrupted".to_owned()));
        (record.queue, record.death) = (None, None);
        record.freshness.clear();
        let text = text(&record);
        assert!(text.contains("Ended early: queue: interrupted"), "{text}");
        assert!(!text.contains("commits wait until") && !text.contains("killed"), "{text}");
    }
}
