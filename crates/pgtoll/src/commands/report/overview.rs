//! The overview of several experiments, shown again from their records.

use std::path::{Path, PathBuf};

use anyhow::Context as _;
use pgtoll_estimate::{overview_experiment, overview_headline, summarise};
use pgtoll_record::{OVERVIEW_SCHEMA, Overview, OverviewExperiment};
use pgtoll_report::{Format, RecordKind, ReportedRecord as _, Style, overview_html, overview_text};

use crate::commands::measure::OVERVIEW_FILE;
use crate::commands::output::offered;
use crate::commands::read_run;
use crate::mistakes::Usage;

/// The directory whose overview is meant: itself, or the one in which the overview lies.
pub(super) fn directory(path: &Path) -> Option<PathBuf> {
    if path.is_dir() {
        let has = |name: &str| path.join(name).exists();
        return (has(OVERVIEW_FILE) && !has(pgtoll_measure::RECORD_FILE)).then(|| path.to_owned());
    }
    let is_overview =
        path.is_file() && path.file_name().is_some_and(|file_name| file_name == OVERVIEW_FILE);
    is_overview.then(|| path.parent().unwrap_or(Path::new("")).to_owned())
}

/// The overview in this directory in the format that was asked for, every estimate made again.
pub(super) fn shown(directory: &Path, format: Format, style: Style) -> anyhow::Result<String> {
    let format = offered(format, RecordKind::for_record::<Overview>())?;
    let overview = read(directory)?;
    Ok(match format {
        Format::Html => overview_html(&overview),
        Format::Json => overview.json(),
        Format::Markdown => overview.markdown(),
        _ => {
            let directory = if directory == Path::new("") { Path::new(".") } else { directory };
            overview_text(&overview, &directory.display().to_string(), style)
        }
    })
}

/// It has some kilobytes of each experiment.
const OVERVIEW_BYTES_MAX: u64 = 1 << 30;

fn read(directory: &Path) -> anyhow::Result<Overview> {
    let path = directory.join(OVERVIEW_FILE);
    let context = || format!("read {}", path.display());
    let text = pgtoll_system::read_to_string(&path, OVERVIEW_BYTES_MAX).with_context(context)?;
    let mut overview: Overview = serde_json::from_str(&text).with_context(context)?;
    if overview.schema != OVERVIEW_SCHEMA {
        let message = format!("{} is of schema {:?}", path.display(), overview.schema);
        return Err(Usage::error(
            message,
            "use the version of pgtoll that wrote it, or a later one",
        ));
    }
    for experiment in &mut overview.experiments {
        if let Some(again) = again(directory, experiment) {
            *experiment = again;
        }
    }
    overview.headline = overview_headline(&overview.experiments);
    Ok(overview)
}

/// From its record; what was kept of it stands where there is none any more.
fn again(directory: &Path, experiment: &OverviewExperiment) -> Option<OverviewExperiment> {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    if experiment.name.is_empty() || !experiment.name.chars().all(plain) {
        return None;
    }
    let run = read_run(&directory.join(&experiment.name)).ok()?;
    Some(overview_experiment(experiment, &summarise(&run)))
}
