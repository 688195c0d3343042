//! Any bytes as a record: what can be read is shown in every form, and no form has a character that
//! a terminal would obey.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_estimate::{NamedRun, side_by_side};
use pgtoll_record::Run;
use pgtoll_report::is_unprintable;
use serde::de::DeserializeOwned;

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    // Every form by itself makes a few hundred kilobytes of the longest names.
    if text.len() > 1 << 20 {
        return;
    }
    of_run(&text);
    of_one(&text, |of| pgtoll_report::verification_text(of, 10));
    of_one(&text, |of| pgtoll_report::wal_statistics_text(of, false, 10));
    of_one(&text, |of| pgtoll_report::wal_statistics_text(of, true, 10));
    of_one(&text, pgtoll_report::wal_statistics_html);
    of_one(&text, pgtoll_report::wal_whatif_text);
    of_one(&text, pgtoll_report::wal_whatif_html);
    of_one(&text, pgtoll_report::checksums_text);
    of_one(&text, |of| pgtoll_report::repairs_text(std::slice::from_ref(of), true));
    of_one(&text, pgtoll_report::examination_text);
    of_one(&text, |of| pgtoll_report::overview_text(of, "directory", pgtoll_report::Style::Plain));
    of_one(&text, pgtoll_report::overview_html);
    of_one(&text, pgtoll_report::judge_text);
    of_one(&text, pgtoll_report::judge_html);
    of_one(&text, pgtoll_report::failover_text);
    of_one(&text, pgtoll_report::failover_html);
    of_one(&text, pgtoll_report::page_text);
    of_one(&text, pgtoll_report::page_checksums_text);
    of_one(&text, pgtoll_report::page_difference_text);
});

fn of_run(text: &str) {
    let Ok(run) = Run::parse(text) else { return };
    let result = pgtoll_estimate::summarise(&run);
    let named =
        NamedRun { name: text.lines().next().unwrap_or_default(), run: &run, result: &result };
    check(&pgtoll_report::terminal_table(&result, pgtoll_report::Style::Plain));
    check(&pgtoll_report::markdown(&result));
    check(&pgtoll_report::html_report(&run, &result));
    check(&pgtoll_report::gobench(&[named, named]));
    check(&pgtoll_report::csv(&[named, named]));
    check(&pgtoll_report::openmetrics(&[named, named]));
    if let Ok(together) = side_by_side(&[named, named]) {
        check(&pgtoll_report::side_by_side_text(&together));
        check(&pgtoll_report::side_by_side_markdown(&together));
        check(&pgtoll_report::html_side_by_side(&together));
    }
}

fn of_one<T: DeserializeOwned>(text: &str, form: impl Fn(&T) -> String) {
    if let Ok(record) = serde_json::from_str(text) {
        check(&form(&record));
    }
}

fn check(form: &str) {
    let form = form.replace("\r\n", "\n");
    assert!(!form.contains(|c| is_unprintable(c) && c != '\n' && c != '\t'), "{form:?}");
}
