//! Statements that are slower or faster on an arm.

use pgtoll_record::{
    PrintedRecord as _, ReplayArm, ReplayArmRole, ReplayComparison, ReplayQuantity,
    ShapeComparison, ShapeDifference, ShapeVerdict,
};

use crate::document::{Block, Document, Section};
use crate::records::{ReportedRecord, TableOptions};

/// Shapes of a verdict that are listed; all are in the record.
const LISTED: usize = 20;

impl ReportedRecord for ReplayComparison {
    /// The answer for each arm, the statements behind it, what whole replays took, and what arms are.
    fn document(&self, _: &TableOptions) -> Document {
        let mut document = Document {
            command: "pgtoll replay compare",
            question: "Which statements became slower?",
            subject: headline(self),
            answer: sentences(self),
            findings: self.conclusion().sentences(),
            sections: Vec::new(),
            notes: self.notes.clone(),
            again: self.command.clone(),
        };
        for verdict in VERDICTS {
            document.push(statements(self, verdict));
        }
        document.push(Section::table("Arms", &ARM_HEAD, arm_rows(self)));
        document.push(Section::table("Whole replays", &TOTAL_HEAD, total_rows(self)));
        document
    }
}

/// The statements of a verdict, with the plans that differ.
fn statements(record: &ReplayComparison, verdict: ShapeVerdict) -> Option<Section> {
    let found = record.by_verdict(verdict);
    let mut blocks = Vec::new();
    for (shape, difference) in found.iter().take(LISTED) {
        let words = format!("{}: {}", difference_words(shape, difference), shape.statement);
        blocks.push(Block::List(vec![words]));
        if let Some(plans) = &difference.plans
            && plans.baseline != plans.arm
        {
            let mut plan = |arm: &str, lines: &[String]| {
                let lines = lines.iter().map(|line| format!("  {line}"));
                let title = std::iter::once(format!("plan on {arm}:"));
                blocks.push(Block::Code(title.chain(lines).collect()));
            };
            plan(baseline_name(record), &plans.baseline);
            plan(&difference.arm, &plans.arm);
        }
    }
    if found.len() > LISTED {
        let more = format!("{} more are in the record (--format json).", found.len() - LISTED);
        blocks.push(Block::Paragraph(more));
    }
    (!found.is_empty()).then(|| Section::detail(verdict_title(verdict), blocks))
}

const VERDICTS: [ShapeVerdict; 4] = [
    ShapeVerdict::Slower,
    ShapeVerdict::Faster,
    ShapeVerdict::Unchanged,
    ShapeVerdict::NotResolved,
];

fn headline(comparison: &ReplayComparison) -> String {
    let speed = match comparison.speed {
        Some(speed) => format!("at {speed} times the recorded speed"),
        None => "as fast as possible".to_owned(),
    };
    let rounds = comparison.arms.iter().map(|arm| arm.runs.len()).max().unwrap_or_default();
    let end = match (&comparison.ended, comparison.complete) {
        (Some(signal), _) => format!(", ended early by {signal}"),
        (None, true) => String::new(),
        (None, false) => ", not complete".to_owned(),
    };
    let mut others: Vec<&str> =
        comparison.arms.iter().filter_map(|arm| arm.server.as_deref()).collect();
    others.retain(|server| *server != comparison.server);
    others.dedup();
    let data = if others.is_empty() {
        format!("copies of one data directory, PostgreSQL {}", comparison.server)
    } else {
        format!(
            "copies of data directories with the same rows, PostgreSQL {} and {}",
            comparison.server,
            others.join(", ")
        )
    };
    format!(
        "{} arms on {data}, {rounds} of {} rounds {speed}, order by {}{end}",
        comparison.arms.len(),
        comparison.rounds,
        comparison.order
    )
}

/// A sentence for each arm that is compared.
fn sentences(comparison: &ReplayComparison) -> Vec<String> {
    let treatments = comparison.arms.iter().filter(|arm| arm.role == ReplayArmRole::Treatment);
    let baseline = baseline_name(comparison);
    let sentence = |arm: &ReplayArm| {
        let counts = VERDICTS.map(|verdict| {
            let found = comparison.by_verdict(verdict);
            found.iter().filter(|(_, by_verdict)| by_verdict.arm == arm.name).count()
        });
        let [slower, faster, unchanged, open] = counts;
        let total = comparison
            .totals
            .iter()
            .find(|total| total.quantity == ReplayQuantity::StatementTime && total.arm == arm.name);
        let total = total
            .and_then(|total| total.ratio)
            .map_or(String::new(), |range| format!("; all statements together {}", range.change()));
        format!(
            "{} beside {baseline}: {slower} statements slower, {faster} faster, {unchanged} unchanged \
             (within {:.0} %), {open} not resolved{total}",
            arm.name,
            comparison.margin * 100.0
        )
    };
    treatments.map(sentence).collect()
}

fn baseline_name(comparison: &ReplayComparison) -> &str {
    let baseline = comparison.arms.iter().find(|arm| arm.role == ReplayArmRole::Baseline);
    baseline.map_or("the baseline", |arm| arm.name.as_str())
}

fn verdict_title(verdict: ShapeVerdict) -> &'static str {
    match verdict {
        ShapeVerdict::Slower => "Slower statements",
        ShapeVerdict::Faster => "Faster statements",
        ShapeVerdict::Unchanged => "Unchanged statements",
        ShapeVerdict::NotResolved => "Statements that are not resolved",
    }
}

/// Returns the ratio of a statement, and its ratio beside the other statements.
fn ratio_words(difference: &ShapeDifference) -> String {
    let Some(range) = difference.range else { return "not compared".to_owned() };
    let beside = difference
        .beside_others
        .map_or(String::new(), |range| format!(", beside the other statements {}", range.change()));
    format!("{}{beside}", range.change())
}

fn difference_words(shape: &ShapeComparison, difference: &ShapeDifference) -> String {
    let range = ratio_words(difference);
    let floor = shape.floor.map_or(String::new(), |floor| {
        format!("; two replays of the same are {:.1} % apart", floor * 100.0)
    });
    format!(
        "{}: {range}, {:.1} % of the time, {} executions of {} ms{floor}",
        difference.arm,
        shape.share * 100.0,
        shape.executions,
        milliseconds(shape.baseline_ms)
    )
}

fn milliseconds(ms: f64) -> String {
    if ms < 1.0 { format!("{ms:.3}") } else { format!("{ms:.1}") }
}

/// `+21.3 % (+15.0 to +28.1 %)`, or as a factor.
const ARM_HEAD: [&str; 5] = ["arm", "is", "checksums", "changed by", "replays"];

fn arm_rows(comparison: &ReplayComparison) -> Vec<Vec<String>> {
    let row = |arm: &ReplayArm| {
        let role = match arm.role {
            ReplayArmRole::Baseline => "baseline",
            ReplayArmRole::Twin => "its twin",
            ReplayArmRole::Treatment => "compared",
        };
        let settings = arm.settings.iter().map(|(name, value)| format!("{name}={value}"));
        let server = arm.server.as_ref().filter(|server| **server != comparison.server);
        let server = server.map(|server| format!("PostgreSQL {server}"));
        let changes: Vec<String> =
            server.into_iter().chain(settings).chain(arm.setup.clone()).collect();
        vec![
            arm.name.clone(),
            role.to_owned(),
            if arm.checksums { "on" } else { "off" }.to_owned(),
            if changes.is_empty() { "–".to_owned() } else { changes.join(" ") },
            arm.runs.len().to_string(),
        ]
    };
    comparison.arms.iter().map(row).collect()
}

const TOTAL_HEAD: [&str; 5] = ["a replay", "arm", "baseline", "arm's", "change"];

fn total_rows(comparison: &ReplayComparison) -> Vec<Vec<String>> {
    let row = |total: &pgtoll_record::ReplayTotal| {
        let (name, scale) = match total.quantity {
            ReplayQuantity::StatementTime => ("statements, s", 1.0),
            ReplayQuantity::RunTime => ("length, s", 1.0),
            ReplayQuantity::Cpu => ("server's CPU, s", 1.0),
            ReplayQuantity::Wal => ("WAL, MB", 1e-6),
            ReplayQuantity::WalImages => ("full-page images", 1.0),
        };
        let digits = usize::from(total.quantity != ReplayQuantity::WalImages) * 2;
        vec![
            name.to_owned(),
            total.arm.clone(),
            format!("{:.digits$}", total.baseline * scale),
            format!("{:.digits$}", total.value * scale),
            total.ratio.map_or("–".to_owned(), |range| range.change()),
        ]
    };
    comparison.totals.iter().map(row).collect()
}

#[cfg(test)]
mod tests {
    use pgtoll_record::{
        ArmReplay, Host, REPLAY_COMPARISON_SCHEMA, RatioRange, ReplayTotal, ShapePlans,
    };

    use super::*;

    fn host() -> Host {
        Host {
            kernel: "Linux 6.1".to_owned(),
            cpu: "EPYC".to_owned(),
            cores: 2,
            memory_bytes: 8 << 30,
            file_system: "ext4".to_owned(),
            hypervisor: true,
            transparent_huge_pages: None,
            governor: None,
            cpu_split: "exact".to_owned(),
        }
    }

    fn arm(name: &str, role: ReplayArmRole) -> ReplayArm {
        ReplayArm {
            name: name.to_owned(),
            role,
            server: None,
            checksums: false,
            settings: [("work_mem".to_owned(), "4MB".to_owned())].into(),
            setup: (role == ReplayArmRole::Treatment).then(|| "drop.sql".to_owned()),
            runs: vec![ArmReplay { round: 1, place: 1, order_breaks: 1, ..ArmReplay::default() }],
        }
    }

    fn shape(statement: &str, verdict: ShapeVerdict, ratio: f64) -> ShapeComparison {
        let range = RatioRange { ratio, lower: ratio * 0.9, upper: ratio * 1.1 };
        let plan = |scan: &str| vec!["Update on t".to_owned(), format!("  ->  {scan} on t")];
        ShapeComparison {
            statement: statement.to_owned(),
            executions: 1000,
            share: 0.25,
            baseline_ms: 0.1234,
            floor: Some(0.031),
            arms: vec![ShapeDifference {
                arm: "noindex".to_owned(),
                verdict,
                range: Some(range),
                p_value: Some(0.001),
                beside_others: Some(RatioRange {
                    lower: ratio * 0.99,
                    upper: ratio * 1.01,
                    ..range
                }),
                beside_others_p_value: Some(1e-6),
                adjusted_p_value: Some(0.002),
                impact: Some(0.25 * (ratio - 1.0)),
                round_ratios: vec![ratio; 2],
                plans: (verdict == ShapeVerdict::Slower).then(|| ShapePlans {
                    baseline: plan("Index Scan using t_pkey"),
                    arm: plan("Seq Scan"),
                }),
            }],
        }
    }

    fn record() -> ReplayComparison {
        let total = |quantity, baseline, value| ReplayTotal {
            quantity,
            arm: "noindex".to_owned(),
            baseline,
            value,
            ratio: Some(RatioRange { ratio: value / baseline, lower: 0.9, upper: 1.3 }),
        };
        ReplayComparison {
            schema: REPLAY_COMPARISON_SCHEMA.to_owned(),
            pgtoll: "0.1.0".to_owned(),
            command: Vec::new(),
            made: String::new(),
            host: host(),
            sources: Vec::new(),
            server: "18.6".to_owned(),
            order: "key".to_owned(),
            speed: None,
            rounds: 6,
            seed: 1,
            false_discovery_rate: 0.05,
            confidence: 0.95,
            margin: 0.05,
            complete: false,
            ended: Some("SIGINT".to_owned()),
            arms: vec![
                arm("base", ReplayArmRole::Baseline),
                arm("noindex", ReplayArmRole::Treatment),
                arm("twin", ReplayArmRole::Twin),
            ],
            totals: vec![
                total(ReplayQuantity::StatementTime, 2.0, 2.2),
                total(ReplayQuantity::Wal, 4e6, 5e6),
                total(ReplayQuantity::WalImages, 100.0, 110.0),
            ],
            shapes: vec![
                shape("update t set v = v + ? where id = ? ;", ShapeVerdict::Slower, 18.0),
                shape("select v from t where id = ? ;", ShapeVerdict::Faster, 0.8),
                shape("commit", ShapeVerdict::Unchanged, 1.0),
                shape("insert into t values ( ? )", ShapeVerdict::NotResolved, 1.04),
            ],
            notes: vec!["of the data directory's configuration the copies go without port".into()],
        }
    }

    #[test]
    fn a_comparison_is_shown_in_80_columns() {
        let text = record().text(&TableOptions::default());
        assert!(text.lines().all(|line| line.chars().count() <= 80), "{text}");
        insta::assert_snapshot!(text);
    }

    #[test]
    fn a_page_has_statements_as_text_and_both_plans() {
        let mut record = record();
        record.shapes[1].statement = "select '<script>'".to_owned();
        let page = record.html();
        for part in
            ["update t set v = v + ?", "Index Scan using t_pkey", "Seq Scan on t", "18.00 times"]
        {
            assert!(page.contains(part), "{part}");
        }
        assert!(!page.contains("select '<script>'"));
    }
}
