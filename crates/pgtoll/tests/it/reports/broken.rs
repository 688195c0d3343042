//! Records that break off or are damaged, in every form.

use pgtoll_report::ReportedRecord as _;
use std::fs;
use std::sync::LazyLock;

use pgtoll_estimate::{NamedRun, side_by_side};
use pgtoll_record::{Run, RunResult};
use proptest::prelude::*;

use super::forms::check_all;
use super::{small_text, summarised};
use crate::records::committed;
use crate::support::{Scratch, pgtoll, run};

static WHOLE: LazyLock<(Run, RunResult)> = LazyLock::new(|| summarised(&small_text()).unwrap());

/// A record that breaks off is incomplete in every form, and nothing worse.
fn check_incomplete(run: &Run, result: &RunResult) {
    let record = NamedRun { name: "cut", run, result };
    assert!(!result.complete);
    let says = |text: &str| assert!(text.contains("incomplete: "), "{text}");
    says(&pgtoll_report::terminal_table(result, pgtoll_report::Style::Plain));
    says(&pgtoll_report::markdown(result));
    says(&pgtoll_report::html_report(run, result));
    says(&serde_json::to_string(result).unwrap());
    says(&pgtoll_report::gobench(&[record]));
    assert!(
        pgtoll_report::openmetrics(&[record])
            .contains("\npgtoll_run_complete{experiment=\"small\"} 0\n")
    );
    assert!(pgtoll_report::csv(&[record]).lines().skip(1).all(|line| line.ends_with(",false")));
    check_all(&[record]);
    let whole = NamedRun { name: "whole", run: &WHOLE.0, result: &WHOLE.1 };
    says(&side_by_side(&[whole, record]).unwrap().text(&pgtoll_report::TableOptions::default()));
    check_all(&[whole, record]);
}

#[test]
fn cut_at_every_line_and_in_it() {
    let text = small_text();
    let mut before = 0;
    for (at, _) in text.match_indices('\n') {
        for cut in [before, usize::midpoint(before, at), at] {
            // Only without its whole header it is no record, and only whole it is complete.
            match summarised(&text[..cut]) {
                Some((run, result)) if cut + 1 < text.len() => check_incomplete(&run, &result),
                Some((_, result)) => assert!(result.complete),
                None => assert!(!text[..cut].contains("\n{") && cut < text.find('\n').unwrap()),
            }
        }
        before = at + 1;
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn cut_at_any_byte(share in 0.0..1.0f64) {
        let text = small_text();
        let header = text.find('\n').unwrap();
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, clippy::cast_precision_loss, reason = "a share of a small length")]
        let cut = (text.len() as f64 * share) as usize;
        let text = String::from_utf8_lossy(&text.as_bytes()[..cut]);
        match summarised(&text) {
            Some((run, result)) => check_incomplete(&run, &result),
            None => prop_assert!(cut < header),
        }
    }

    #[test]
    fn with_any_byte_changed(at in any::<prop::sample::Index>(), byte: u8) {
        let mut bytes = small_text().into_bytes();
        let at = at.index(bytes.len());
        bytes[at] = byte;
        if let Some((run, result)) = summarised(&String::from_utf8_lossy(&bytes)) {
            check_all(&[NamedRun { name: "damaged", run: &run, result: &result }]);
            let _ = (pgtoll_report::terminal_table(&result, pgtoll_report::Style::Plain), pgtoll_report::html_report(&run, &result));
        }
    }
}

#[test]
fn a_large_record_cut_here_and_there() {
    let text = pgtoll_testing::run_text(&committed()[0]).unwrap();
    let ends: Vec<usize> = text.match_indices('\n').map(|(at, _)| at).collect();
    for end in ends.iter().step_by(ends.len() / 8).chain(&ends[ends.len() - 2..ends.len() - 1]) {
        let (run, result) = summarised(&text[..*end]).unwrap();
        assert!(
            pgtoll_report::terminal_table(&result, pgtoll_report::Style::Plain)
                .contains("incomplete: ")
        );
        check_all(&[NamedRun { name: "cut", run: &run, result: &result }]);
    }
}

#[test]
fn through_the_program() {
    let scratch = Scratch::new();
    let file = scratch.path("run.jsonl");
    let text = small_text();
    let report = |contents: &[u8], form: &str| {
        fs::write(&file, contents).unwrap();
        run(pgtoll().args(["report", "--format", form]).arg(&file))
    };
    let header = text.find('\n').unwrap();
    let forms = ["table", "md", "json", "html", "gobench", "csv", "openmetrics"];
    for (form, cut) in
        forms.iter().zip([header, header + 1, header + 40, 9000, 20_000, 30_000, text.len() - 2])
    {
        for form in [form, &"table"] {
            let ran = report(&text.as_bytes()[..cut], form);
            assert_eq!((ran.status, ran.stderr.as_str()), (Some(0), ""), "{form} cut at {cut}");
            let says_so =
                ran.stdout.contains("incomplete: ") || ["csv", "openmetrics"].contains(form);
            assert!(says_so, "{}", ran.stdout);
        }
    }
    for contents in [&b""[..], &text.as_bytes()[..header / 2], b"\n"] {
        let ran = report(contents, "md");
        assert_eq!((ran.status, ran.stdout.as_str()), (Some(2), ""), "{ran:?}");
        assert!(ran.stderr.starts_with("pgtoll: read "), "{ran:?}");
    }
}
