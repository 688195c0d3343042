use std::fmt::Write as _;

use pgtoll_record::{Line, Run};
use proptest::prelude::*;

use super::*;
use pgtoll_estimate::summarise;

/// A record with every kind of line, a few of each.
const SMALL: &str = include_str!("small.jsonl");

fn report(text: &str) -> Option<String> {
    let run = Run::parse(text).ok()?;
    Some(html_report(&run, &summarise(&run)))
}

#[test]
fn a_record_that_breaks_off_anywhere_is_shown_as_far_as_it_goes() {
    let ends = SMALL.match_indices('\n').map(|(at, _)| at + 1);
    let mut shown = 0;
    for end in ends.clone() {
        let page = report(&SMALL[..end]).unwrap();
        assert_well_formed(&page);
        assert_eq!(page.contains("This run is incomplete"), end != SMALL.len(), "cut at {end}");
        shown += 1;
    }
    assert_eq!(shown, SMALL.lines().count());
}

#[test]
fn a_complete_record_has_every_view() {
    let page = report(SMALL).unwrap();
    for id in ["forest-0", "time-0", "latency-0", "flow-0", "wal-2"] {
        assert!(page.contains(&format!("id=\"{id}-caption\"")), "{id} is missing");
    }
}

#[test]
fn the_command_is_the_one_that_the_table_prints() {
    let run = Run::parse(SMALL).unwrap();
    let mut result = summarise(&run);
    // Its words are quoted for a shell already.
    result.header.command = ["pgtoll", "measure", "'my file.toml'"].map(str::to_owned).to_vec();
    assert!(html_report(&run, &result).contains("<code>pgtoll measure 'my file.toml'</code>"));
    assert!(
        crate::terminal_table(&result, crate::Style::Plain)
            .contains("again: pgtoll measure 'my file.toml'")
    );
}

#[test]
fn values_that_are_no_numbers_are_drawn_all_the_same() {
    let run = Run::parse(SMALL).unwrap();
    let mut result = summarise(&run);
    let strange = [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0, f64::MAX, f64::MIN];
    for (item, value) in result.comparisons.iter_mut().zip(strange.into_iter().cycle()) {
        (item.ratio.lower, item.ratio.estimate, item.ratio.upper) = (value, value, value);
        item.half_width = value;
    }
    for (item, value) in result.values.iter_mut().zip(strange.into_iter().cycle()) {
        item.value = value;
    }
    let page = html_report(&run, &result);
    assert_well_formed(&page);
    for attribute in ["x", "y", "d", "width", "height"] {
        assert!(!page.contains(&format!(" {attribute}=\"NaN")), "{attribute}");
    }
    result.comparisons.clear();
    result.answers.clear();
    result.values.clear();
    result.header.arms.truncate(1);
    assert_well_formed(&html_report(&run, &result));
}

#[test]
fn amounts_beyond_all_measure_are_drawn_all_the_same() {
    let mut text = String::new();
    for line in SMALL.lines() {
        let mut value: serde_json::Value = serde_json::from_str(line).unwrap();
        if let Some(io) = value.get_mut("io").filter(|io| !io.is_null()) {
            *io = serde_json::json!({ "read": u64::MAX, "written": u64::MAX });
        }
        for key in ["wal_bytes", "worked_ns", "at_ns", "blocks_read", "blocks_written"] {
            if let Some(number) = value.get_mut(key) {
                *number = u64::MAX.into();
            }
        }
        let _ = writeln!(text, "{value}");
    }
    assert_well_formed(&report(&text).unwrap());
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn whatever_the_record_says_is_text(
        words in prop::collection::vec(
            prop_oneof![
                ".*",
                Just("</script><script>alert(1)</script>".to_owned()),
                Just("<!--".to_owned()),
                Just("\"' onload=x <b>&amp;]]>".to_owned()),
            ],
            4,
        ),
    ) {
        let [arm, title, note, argument] = words.as_slice() else { unreachable!() };
        let mut lines = String::new();
        for line in SMALL.lines() {
            let mut line: Line = serde_json::from_str(line).unwrap();
            rename(&mut line, arm, title, argument);
            let _ = writeln!(lines, "{}", serde_json::to_string(&line).unwrap());
        }
        let hostile = pgtoll_record::Note { text: note.clone() };
        let _ = writeln!(lines, "{}", serde_json::to_string(&Line::Note(hostile)).unwrap());
        assert_well_formed(&report(&lines).unwrap());
    }
}

/// One arm, one workload and what is free text get other names.
fn rename(line: &mut Line, arm: &str, title: &str, argument: &str) {
    let own = |name: &mut String| {
        if name == "checksums" {
            arm.clone_into(name);
        }
    };
    match line {
        Line::Header(header) => {
            header.arms.iter_mut().for_each(|arm| own(&mut arm.name));
            header.workloads.iter_mut().for_each(|workload| title.clone_into(&mut workload.title));
            for text in [&mut header.question, &mut header.experiment, &mut header.host.cpu] {
                title.clone_into(text);
            }
            argument.clone_into(&mut header.started);
            header.command.push(argument.to_owned());
            header.server.settings.insert(title.to_owned(), argument.to_owned());
        }
        Line::Slice(line) => own(&mut line.arm),
        Line::Sample(line) => own(&mut line.arm),
        Line::Operation(line) => own(&mut line.arm),
        Line::Counted(line) => {
            let types = line.counters.wal_by_type.values().next().copied();
            line.counters.wal_by_type.extend(types.map(|item| (title.to_owned(), item)));
            own(&mut line.arm);
        }
        Line::RoundEnd(line) => {
            line.arms.iter_mut().for_each(|arm| own(&mut arm.arm));
            line.latencies.iter_mut().for_each(|latency| own(&mut latency.arm));
        }
        Line::End(line) => line.reason = Some(argument.to_owned()),
        _ => {}
    }
}

/// Every element is closed where it should be, there is one script and it is inert, and no
/// identifier is there twice.
pub(crate) fn assert_well_formed(page: &str) {
    const VOID: [&str; 3] = ["meta", "br", "wbr"];
    let mut open: Vec<&str> = Vec::new();
    let mut scripts = 0;
    let mut ids = std::collections::BTreeSet::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").unwrap();
    while let Some((_, tail)) = rest.split_once('<') {
        let (tag, tail) = tail.split_once('>').unwrap();
        rest = tail;
        assert!(!tag.contains('<') && tag.matches('"').count() % 2 == 0, "<{tag}>");
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name));
            continue;
        }
        let name = tag.split_whitespace().next().unwrap();
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "<{tag}>");
        if let Some((_, id)) = tag.split_once(" id=\"") {
            assert!(ids.insert(id.split('"').next().unwrap()), "<{tag}>");
        }
        if name == "script" {
            scripts += 1;
            assert_eq!(tag, "script type=\"application/json\" id=\"result\"");
            let (json, _) = rest.split_once("</script>").unwrap();
            serde_json::from_str::<serde_json::Value>(json).unwrap();
        }
        if !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert_eq!(open, Vec::<&str>::new());
    assert_eq!(scripts, 1);
}

/// What a reader reads: a line for each paragraph, row, or item.
pub(crate) fn text_of(page: &str) -> String {
    let (_, body) = page.split_once("<body>").unwrap();
    let (body, _) = body.split_once("<script").unwrap();
    let mut lines = vec![String::new()];
    let mut hidden: Option<&str> = None;
    for part in body.split('<').skip(1) {
        let (tag, text) = part.split_once('>').unwrap();
        let name = tag.split_whitespace().next().unwrap_or_default();
        match (hidden, name) {
            (None, "svg") => hidden = Some("/svg"),
            (Some(end), name) if end == name => hidden = None,
            (Some(_), _) => continue,
            (None, "/td" | "/th" | "/dt") => lines.last_mut().unwrap().push_str(" | "),
            (
                None,
                "p" | "tr" | "li" | "dt" | "h1" | "h2" | "h3" | "pre" | "summary" | "footer",
            ) => {
                lines.push(String::new());
            }
            (None, "br") => lines.last_mut().unwrap().push_str(" / "),
            _ => {}
        }
        if hidden.is_none() {
            lines.last_mut().unwrap().push_str(text);
        }
    }
    lines
        .iter()
        .map(|line| line.trim())
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("\n")
}
