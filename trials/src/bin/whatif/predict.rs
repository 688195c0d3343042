//! The model's predictions of other settings, from the WAL of one run.

use std::ops::ControlFlow;
use std::sync::Arc;

use anyhow::Context as _;
use pgtoll_format::wal::Compression;
use pgtoll_model::{Geometry, ImageCompression, Schedule, Settings};
use pgtoll_record::trials::{WhatIfTrialCompression, WhatIfTrialSetting};
use pgtoll_wal::{
    Answer, Compressing, Question, WhatIfCollector, first_header, scan_with, segments,
};

use crate::work::Run;

/// The schedule of a server with this setting.
fn schedule(setting: &WhatIfTrialSetting) -> Schedule {
    Schedule::Rule {
        max_wal_size: setting.max_wal_size_mb << 20,
        timeout_us: 3_600_000_000,
        completion_target: 0.9,
    }
}

fn compression(setting: &WhatIfTrialSetting) -> ImageCompression {
    let kind = match setting.compression {
        WhatIfTrialCompression::Off => return ImageCompression::AsStored,
        WhatIfTrialCompression::Pglz => Compression::Pglz,
        WhatIfTrialCompression::Lz4 => Compression::Lz4,
        WhatIfTrialCompression::Zstd => Compression::Zstd,
    };
    ImageCompression::Set(Some(kind))
}

/// The WAL of the same work under these settings, after that of the source's own redo points.
pub(crate) fn predict(
    source: &Run,
    targets: &[WhatIfTrialSetting],
    exact: bool,
) -> anyhow::Result<Answer> {
    let files = segments(std::slice::from_ref(&source.segments))?;
    let (header, facts) = first_header(&files)?;
    let own = Settings {
        schedule: Schedule::Source,
        hints: source.setting.hints,
        full_page_writes: true,
        compression: ImageCompression::AsStored,
    };
    let requested = targets.iter().map(|target| Settings {
        schedule: schedule(target),
        hints: target.hints,
        compression: compression(target),
        ..own
    });
    let settings: Vec<Settings> = std::iter::once(own).chain(requested).collect();
    let question = Arc::new(Question {
        geometry: Geometry {
            segment_bytes: u64::from(header.segment_bytes),
            page_bytes: u64::from(header.page_bytes),
        },
        facts,
        today: Some(schedule(&source.setting)),
        compressing: Compressing::for_settings(&settings, exact),
        settings,
    });
    let new = || WhatIfCollector::new(question.clone());
    let (summary, _) = scan_with(&files, 2, new, &mut |_| ControlFlow::Continue(()))?;
    summary.from.context("no record was read")?;
    Ok(summary.collected.finish())
}
