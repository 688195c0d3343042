//! The document of checksums turned on or off over a replica set.

use pgtoll_format::ByteSize;
use pgtoll_record::{
    RollingNode, RollingObjection, RollingOutcome, RollingRecord, RollingSwitchover,
};

use crate::checksums::time;
use crate::document::{Block, Document, Section};
use crate::records::{ReportedRecord, TableOptions};

impl ReportedRecord for RollingRecord {
    /// The nodes in their order, switchovers, what speaks against it, and what has to follow.
    fn document(&self, _: &TableOptions) -> Document {
        let is_plan = matches!(self.outcome, RollingOutcome::DryRun | RollingOutcome::Refused);
        let rows = self.nodes.iter().map(|node| row(node, is_plan, self.enable)).collect();
        let mut document = Document {
            command: if self.enable { "pgtoll enable" } else { "pgtoll disable" },
            question: "Are data checksums on, on all nodes?",
            answer: vec![headline(self)],
            again: self.command.clone(),
            ..Document::default()
        };
        document.push(Section::table("Nodes", head(is_plan), rows));
        let mut words = if is_plan { prediction_words(self) } else { Vec::new() };
        words.extend(self.switchovers.iter().map(switchover_text));
        document
            .push(Section::detail("Switchover", words.into_iter().map(Block::Paragraph).collect()));
        let objections = self.objections.iter().flat_map(objection_words).map(Block::Paragraph);
        document.push(Section::detail("Objections", objections.collect()));
        if !self.next.is_empty() {
            document.push(Section::detail("Now", vec![Block::List(self.next.clone())]));
        }
        document
    }
}

fn headline(rolling: &RollingRecord) -> String {
    let aim = if rolling.enable { "on" } else { "off" };
    let primary = rolling.primary.as_deref().unwrap_or("unknown");
    let took = rolling.seconds.map(|seconds| format!(" in {}", time(seconds))).unwrap_or_default();
    match rolling.outcome {
        RollingOutcome::DryRun => {
            format!("Would turn data checksums {aim}, in this order. The primary is {primary}.")
        }
        RollingOutcome::Refused => {
            format!("Data checksums cannot be turned {aim} like this; nothing was done.")
        }
        RollingOutcome::Finished => {
            format!(
                "Data checksums are {aim} on the nodes that were to be converted{took}. The \
                     primary is {primary}."
            )
        }
        RollingOutcome::Stopped => {
            let why = rolling.ended.as_deref().unwrap_or("interrupted");
            format!("The run is not finished: {why}. The primary is {primary}.")
        }
        RollingOutcome::Aborted => {
            format!("The run was ended in good order. The primary is {primary}.")
        }
    }
}

fn head(is_plan: bool) -> &'static [&'static str] {
    if is_plan {
        &["node", "streams from", "checksums", "size", "takes"]
    } else {
        &["node", "streamed from", "checksums", "converted", "down", "catch-up", "verified"]
    }
}

fn row(node: &RollingNode, is_plan: bool, enable: bool) -> Vec<String> {
    let upstream = node.upstream.clone().unwrap_or_else(|| "(primary)".to_owned());
    let on_off = |state: Option<bool>| match state {
        Some(true) => "on",
        Some(false) => "off",
        None => "unknown",
    };
    let seconds =
        |value: Option<f64>| value.map_or_else(|| "-".to_owned(), |value| format!("{value:.2} s"));
    let mut row = vec![node.name.clone(), upstream];
    if is_plan {
        row.push(on_off(node.checksums_before).to_owned());
        row.push(node.bytes.map_or_else(|| "-".to_owned(), |bytes| ByteSize(bytes).rounded()));
        let is_done = node.checksums_before == Some(enable);
        row.push(match node.predicted_seconds {
            _ if is_done => "nothing to do".to_owned(),
            Some((least, most)) => format!("{} to {}", time(least), time(most)),
            None => "-".to_owned(),
        });
        return row;
    }
    let before = on_off(node.checksums_before);
    let now = on_off(node.checksums);
    row.push(if before == now { now.to_owned() } else { format!("{before} -> {now}") });
    row.extend([node.convert_seconds, node.down_seconds, node.catch_up_seconds].map(seconds));
    row.push(match (node.verified, node.refused_pages) {
        (None, 0) => "-".to_owned(),
        (Some(true), 0) => "sound".to_owned(),
        (Some(_), 0) => "no".to_owned(),
        (_, pages) => format!("{pages} damaged pages"),
    });
    row
}

fn prediction_words(record: &RollingRecord) -> Vec<String> {
    let mut words = Vec::new();
    if let (Some(candidate), Some((least, most))) =
        (&record.candidate, record.predicted_gap_seconds)
    {
        words.push(format!(
            "Then {candidate} takes over. No node takes writes for {least:.1} to {most:.1} s meanwhile, \
             if the stop is quick; clients have to connect again."
        ));
    }
    if let Some((least, most)) = record.predicted_alone_seconds {
        let least = time(least);
        let most = time(most);
        words.push(format!("For {least} to {most} there is one copy of the data only."));
    }
    words
}

fn switchover_text(switchover: &RollingSwitchover) -> String {
    let RollingSwitchover { from, to, timeline, .. } = switchover;
    let parts = format!(
        "stop {:.2} s, fence {:.2} s, replay {:.2} s, promotion {:.2} s",
        switchover.stop_seconds,
        switchover.fence_seconds,
        switchover.replay_seconds,
        switchover.promote_seconds
    );
    let gap = match switchover.gap_seconds {
        Some(gap) => format!("no node took writes for {gap:.2} s: {parts}"),
        None => "begun by an earlier run".to_owned(),
    };
    format!("Switchover from {from} to {to}, timeline {timeline}: {gap}.")
}

fn objection_words(objection: &RollingObjection) -> [String; 2] {
    let kind = if objection.refuses { "refused" } else { "warning" };
    let node = objection.node.as_ref().map(|node| format!("{node} ")).unwrap_or_default();
    [format!("{kind}: {node}{}", objection.text), format!("hint: {}", objection.hint)]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn node(name: &str, upstream: Option<&str>) -> RollingNode {
        RollingNode {
            name: name.to_owned(),
            primary: upstream.is_none(),
            upstream: upstream.map(str::to_owned),
            checksums_before: Some(false),
            checksums: Some(true),
            predicted_seconds: Some((0.2, 1.5)),
            bytes: Some(240 << 20),
            convert_seconds: Some(0.31),
            down_seconds: Some(0.6),
            catch_up_seconds: Some(0.02),
            verified: Some(true),
            refused_pages: 0,
        }
    }

    fn record(outcome: RollingOutcome) -> RollingRecord {
        RollingRecord {
            schema: pgtoll_record::ROLLING_SCHEMA.to_owned(),
            pgtoll: "0.1.0".to_owned(),
            command: Vec::new(),
            made: "2026-11-25T10:00:00Z".to_owned(),
            enable: true,
            system_identifier: "7".to_owned(),
            outcome,
            ended: None,
            primary: Some("n2".to_owned()),
            nodes: vec![node("n2", Some("n1")), node("n1", None)],
            candidate: Some("n2".to_owned()),
            predicted_gap_seconds: Some((0.2, 0.7)),
            predicted_alone_seconds: Some((0.8, 4.0)),
            switchovers: Vec::new(),
            objections: Vec::new(),
            seconds: Some(3.2),
            next: vec!["make a new full backup".to_owned()],
        }
    }

    #[test]
    fn a_plan_has_times_and_objections() {
        let mut plan = record(RollingOutcome::DryRun);
        plan.objections.push(RollingObjection {
            refuses: false,
            node: Some("n1".to_owned()),
            text: "has wal_log_hints off".to_owned(),
            hint: "set it".to_owned(),
        });
        let text = plan.text(&TableOptions::default());
        for expected in ["(primary)", "0.2 s to 1.5 s", "n2 takes over", "one copy", "hint: set it"]
        {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }

    #[test]
    fn a_finished_run_has_what_it_took() {
        let mut done = record(RollingOutcome::Finished);
        done.switchovers.push(RollingSwitchover {
            from: "n1".to_owned(),
            to: "n2".to_owned(),
            stop_seconds: 0.12,
            fence_seconds: 0.03,
            replay_seconds: 0.0,
            promote_seconds: 0.1,
            gap_seconds: Some(0.25),
            rejoin_seconds: Some(0.5),
            timeline: 2,
        });
        let text = done.text(&TableOptions::default());
        for expected in ["off -> on", "0.31 s", "sound", "took writes for 0.25 s", "full backup"] {
            assert!(text.contains(expected), "{expected}: {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
    }
}
