//! `pgtoll lab watch`: a primary is watched for pages that it refuses, and its standby verified.

use anyhow::Context as _;
use pgtoll_cluster::UserCommand;
use pgtoll_lab::{DamageWatchPlan, DamageWatchProgress, watch};
use pgtoll_record::{
    PageCondition, PrintedRecord as _, Status, WatchAction, WatchRecord, WatchedPage,
};
use pgtoll_system::Interrupt;
use pgtoll_wire::masked;

use crate::again;
use crate::arguments::LabWatchArguments;
use crate::printer::Printer;

pub(crate) fn run(arguments: &LabWatchArguments, printer: &mut Printer) -> anyhow::Result<Status> {
    let interrupt = Interrupt::new();
    interrupt.catch_signals().context("catch signals")?;
    let plan = DamageWatchPlan {
        primary: arguments.dsn.clone(),
        standby: arguments.standby.clone(),
        log: arguments.log.clone(),
        every: arguments.every.0,
        duration: arguments.r#for.map(|time| time.0),
        judge_page: pgtoll_verify::page_verdict,
    };
    let mut record = watch(&plan, again::provenance(), &interrupt, &mut |progress| {
        printer.say(&format!("pgtoll: {}", progress_words(progress)));
    })?;
    record.action_requested = arguments.run.is_some();
    if let Some(line) = arguments.run.as_ref().filter(|_| record.standby_is_verified) {
        record.action = Some(act(line, &record.pages));
    }
    if arguments.json {
        printer.data(&pgtoll_report::record_json(&record));
    } else {
        printer.data(&describe(&record));
    }
    Ok(record.conclusion().status)
}

/// Runs the user's command, as the user would.
fn act(line: &str, pages: &[WatchedPage]) -> WatchAction {
    let names: Vec<String> =
        pages.iter().map(|page| format!("{}:{}", page.file, page.block)).collect();
    let names = names.join(" ");
    let ran = UserCommand::start_with(line, &[("PGTOLL_PAGES", names.as_str())])
        .and_then(UserCommand::wait);
    let command = masked(line).into_owned();
    match ran {
        Ok(end) => {
            WatchAction { command, status: end.status, success: end.success, output: end.tail }
        }
        Err(error) => {
            let status = format!("{:#}", anyhow::Error::new(error));
            WatchAction { command, status, success: false, output: String::new() }
        }
    }
}

fn progress_words(progress: DamageWatchProgress<'_>) -> String {
    match progress {
        DamageWatchProgress::Began(0) => {
            "watching; no checksum failure was counted before".to_owned()
        }
        DamageWatchProgress::Began(failures) => format!(
            "watching; {failures} checksum failures were counted before: `pgtoll verify` finds what \
             is damaged"
        ),
        DamageWatchProgress::Silent(reason) => format!("the primary does not answer: {reason}"),
        DamageWatchProgress::Answers => "the primary answers again".to_owned(),
        DamageWatchProgress::Failures(count) => {
            format!("checksum failures since the begin: {count}")
        }
        DamageWatchProgress::Page(page) => page_words(page),
    }
}

fn page_words(page: &WatchedPage) -> String {
    let name = match (&page.database, &page.relation) {
        (Some(database), Some(relation)) => format!("{database}.{relation}"),
        (None, Some(relation)) => relation.clone(),
        _ => "a relation".to_owned(),
    };
    format!(
        "block {} of {name} ({}) is refused; in the primary's file it is {}, in the standby's {}",
        page.block,
        page.file,
        condition_words(&page.primary),
        condition_words(&page.standby)
    )
}

fn condition_words(condition: &PageCondition) -> String {
    match condition {
        PageCondition::Sound => "sound".to_owned(),
        PageCondition::Unsound => "unsound".to_owned(),
        PageCondition::Unknown { reason } => format!("unknown ({reason})"),
    }
}

/// The result: a line for each page, then what can be done.
fn describe(record: &WatchRecord) -> String {
    let mut lines = Vec::new();
    let failures = record.failures;
    if failures == 0 && record.pages.is_empty() {
        let looks = record.looks;
        let missed = record.missed;
        lines.push(format!("no page was refused; looks: {looks}, without an answer: {missed}"));
    } else if record.pages.is_empty() {
        lines.push(format!("checksum failures: {failures}; the pages are unknown"));
    }
    lines.extend(record.pages.iter().map(page_words));
    lines.extend(record.proposals.iter().map(|proposal| format!("to do: {proposal}")));
    if let Some(action) = &record.action {
        lines.push(format!("run: {} ({})", action.command, action.status));
    }
    lines.push(String::new());
    lines.join("\n")
}
