//! Replays WAL under this many settings, for timing: `wal_whatif SETTINGS THREADS PATH…`.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Context as _;
use pgtoll_model::{Geometry, ImageCompression, Schedule, Settings};
use pgtoll_wal::{Compressing, Question, WhatIfCollector, first_header, scan_with, segments};

fn main() -> anyhow::Result<()> {
    let mut arguments = std::env::args().skip(1);
    let count: u64 = arguments.next().context("how many settings?")?.parse()?;
    let threads = arguments.next().context("how many threads?")?.parse()?;
    let paths: Vec<PathBuf> = arguments.map(PathBuf::from).collect();
    let files = segments(&paths)?;
    let (header, facts) = first_header(&files)?;
    let segment_bytes = u64::from(header.segment_bytes);
    let source = Settings {
        schedule: Schedule::Source,
        hints: true,
        full_page_writes: true,
        compression: ImageCompression::AsStored,
    };
    // From two segments on, each a sixteenth more.
    let sized = (0..count).map(|number| Settings {
        schedule: Schedule::Rule {
            max_wal_size: segment_bytes * 2 * (16 + number) / 16 * (1 + number / 8),
            timeout_us: 3_600_000_000,
            completion_target: 0.9,
        },
        ..source
    });
    let settings: Vec<Settings> = std::iter::once(source).chain(sized).collect();
    let question = Arc::new(Question {
        geometry: Geometry { segment_bytes, page_bytes: u64::from(header.page_bytes) },
        facts,
        settings: settings.clone(),
        today: Some(Schedule::Rule {
            max_wal_size: segment_bytes * 4,
            timeout_us: 3_600_000_000,
            completion_target: 0.9,
        }),
        compressing: Compressing::default(),
    });
    let new = || WhatIfCollector::new(question.clone());
    let (summary, end) = scan_with(&files, threads, new, &mut |_| ControlFlow::Continue(()))?;
    let answer = summary.collected.finish();
    let mut text = format!(
        "{} redo points, {:?}, {:?} blocks and bytes, {} waited; {end}\n",
        answer.redo_points.len(),
        answer.check,
        answer.blocks,
        answer.waiting_most
    );
    for (item, outcome) in settings.iter().zip(&answer.outcomes) {
        let _ = writeln!(text, "{:?}: {outcome:?}", item.schedule);
    }
    // Whoever closed the pipe does not want the rest.
    let _ = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    Ok(())
}
