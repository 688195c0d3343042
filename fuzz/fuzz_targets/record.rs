//! Any bytes as a record: what can be read is shown in every form, and no form has a character that
//! a terminal would obey.

#![no_main]

use libfuzzer_sys::fuzz_target;
use pgtoll_estimate::{NamedRun, side_by_side};
use pgtoll_record::Run;
use pgtoll_report::{FinishedRecord, Format, ReportedRecord as _, TableOptions, is_unprintable};

fuzz_target!(|bytes: &[u8]| {
    let text = String::from_utf8_lossy(bytes);
    // Every form by itself makes a few hundred kilobytes of the longest names.
    if text.len() > 1 << 20 {
        return;
    }
    of_run(&text);
    of_finished(&text);
});

/// Every form of a finished record, by its schema.
fn of_finished(text: &str) {
    let Ok(Some(record)) = FinishedRecord::parse(text) else { return };
    let short = TableOptions::default();
    for options in [short, TableOptions { by_type: true, full: true, ..short }] {
        for format in Format::ALL {
            record.shown(format, &options).iter().for_each(|form| check(form));
        }
    }
}

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
        check(&together.text(&TableOptions::default()));
        check(&together.markdown());
        check(&together.html());
    }
}

fn check(form: &str) {
    let form = form.replace("\r\n", "\n");
    assert!(!form.contains(|c| is_unprintable(c) && c != '\n' && c != '\t'), "{form:?}");
}
