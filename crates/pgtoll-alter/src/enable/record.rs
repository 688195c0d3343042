//! The record of checksums turned on or off.

use std::path::Path;

use pgtoll_datadir::relation_files;
use pgtoll_format::ControlFile;
use pgtoll_record::{
    BlockOfFile, CHECKSUMS_SCHEMA, ChecksumsOutcome, ChecksumsPages, ChecksumsRecord,
    ChecksumsSample, EarlierRun,
};

use super::pages::EnabledPages;
use super::predict::{Prediction, predict};
use super::{ChecksumsChanged, Earlier, EnableOptions, ON};
use crate::hold::data_directory_control;
use crate::write_error::WriteError;

impl ChecksumsChanged {
    /// The record of turning checksums on, which took this many seconds. `version` is pgtoll's, `data`
    /// the data directory as the user named it.
    pub fn record_of_enable(
        &self,
        data: &Path,
        control: &ControlFile,
        version: &str,
        seconds: f64,
    ) -> ChecksumsRecord {
        let mut record = self.record(data, control, version);
        record.enabled = true;
        if !self.already {
            record.outcome = ChecksumsOutcome::Enabled;
            record.pages = Some(recorded_pages(&self.pages));
            record.seconds = Some(seconds);
            record.next = AFTER_ENABLE.map(str::to_owned).to_vec();
        }
        record
    }

    /// The record of turning checksums off.
    pub fn record_of_disable(
        &self,
        data: &Path,
        control: &ControlFile,
        version: &str,
    ) -> ChecksumsRecord {
        let mut record = self.record(data, control, version);
        if !self.already {
            record.outcome = ChecksumsOutcome::Disabled;
            record.next = AFTER_DISABLE.map(str::to_owned).to_vec();
        }
        record
    }

    fn record(&self, data: &Path, control: &ControlFile, version: &str) -> ChecksumsRecord {
        ChecksumsRecord {
            schema: CHECKSUMS_SCHEMA.to_owned(),
            pgtoll: version.to_owned(),
            data: data.display().to_string(),
            system_identifier: control.system_identifier.to_string(),
            outcome: ChecksumsOutcome::Already,
            enabled: false,
            files: self.files,
            bytes: self.bytes,
            pages: None,
            earlier: recorded_earlier(self.earlier),
            seconds: None,
            predicted_seconds: None,
            sample: None,
            foreign: self.foreign.iter().map(|path| path.display().to_string()).collect(),
            next: Vec::new(),
        }
    }
}

/// Predicts the work and the time of turning checksums on. A server may run meanwhile.
pub fn dry_run(
    data: &Path,
    options: &EnableOptions,
    version: &str,
) -> Result<ChecksumsRecord, WriteError> {
    let control = data_directory_control(data)?;
    let list = relation_files(data, &control);
    if let Some((path, source)) = list.unreadable.into_iter().next() {
        return Err(WriteError::Read { path, source });
    }
    let unchanged = ChecksumsChanged {
        already: false,
        files: list.files.len() as u64,
        bytes: list.files.iter().map(|file| file.bytes).sum(),
        pages: EnabledPages::default(),
        earlier: Earlier::None,
        foreign: list.foreign,
    };
    let mut record = unchanged.record(data, &control, version);
    record.enabled = control.checksum_version == ON;
    if !record.enabled {
        record.outcome = ChecksumsOutcome::DryRun;
        let prediction = predict(&list.files, &control)?;
        let seconds = prediction.seconds(unchanged.bytes, options.jobs, options.sync);
        record.predicted_seconds = Some(seconds);
        record.sample = Some(recorded_sample(&prediction));
    }
    Ok(record)
}

fn recorded_pages(pages: &EnabledPages) -> ChecksumsPages {
    ChecksumsPages {
        all: pages.pages,
        written: pages.written,
        new: pages.new,
        refused: pages.refused,
        refused_pages: pages
            .refused_pages
            .iter()
            .map(|page| BlockOfFile { file: page.path.display().to_string(), block: page.block })
            .collect(),
        cut_short: pages.cut_short.iter().map(|path| path.display().to_string()).collect(),
    }
}

fn recorded_sample(prediction: &Prediction) -> ChecksumsSample {
    let rate = |seconds: f64| if seconds > 0.0 { 1.0 / seconds } else { 0.0 };
    ChecksumsSample {
        pages: prediction.pages,
        stale: prediction.stale,
        read_bytes_per_second: rate(prediction.read),
        disk_bytes_per_second: prediction.disk.map(rate),
    }
}

fn recorded_earlier(earlier: Earlier) -> Option<EarlierRun> {
    match earlier {
        Earlier::None => None,
        Earlier::Void => Some(EarlierRun { valid: false, files: 0, bytes: 0 }),
        Earlier::PassedOver { files, bytes } => Some(EarlierRun { valid: true, files, bytes }),
    }
}

const AFTER_ENABLE: [&str; 3] = [
    "take a new full backup: an incremental one on top of an older full one restores pages without \
     checksums",
    "do the same on every standby, or rebuild them, before this cluster runs with them",
    "do not use pg_rewind between this cluster and one whose checksums are off",
];
const AFTER_DISABLE: [&str; 2] = [
    "take a new full backup before incremental ones",
    "do the same on every standby, or rebuild them",
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RefusedPage;

    fn control() -> ControlFile {
        ControlFile::read(&pgtoll_testing::control_file()).unwrap()
    }

    #[test]
    fn what_is_to_be_done_next_depends_on_what_was_done() {
        let changed = ChecksumsChanged { files: 3, bytes: 24_576, ..ChecksumsChanged::default() };
        let enabled = changed.record_of_enable(Path::new("/pg"), &control(), "1.2.3", 2.5);
        assert_eq!((enabled.outcome, enabled.enabled), (ChecksumsOutcome::Enabled, true));
        assert_eq!((enabled.seconds, enabled.next.len()), (Some(2.5), 3));
        assert!(enabled.pages.is_some());
        let disabled = changed.record_of_disable(Path::new("/pg"), &control(), "1.2.3");
        assert_eq!((disabled.outcome, disabled.enabled), (ChecksumsOutcome::Disabled, false));
        assert_eq!((disabled.pages, disabled.next.len()), (None, 2));
        let already = ChecksumsChanged { already: true, ..ChecksumsChanged::default() };
        let enabled = already.record_of_enable(Path::new("/pg"), &control(), "1.2.3", 2.5);
        assert_eq!((enabled.outcome, enabled.enabled), (ChecksumsOutcome::Already, true));
        assert_eq!((enabled.seconds, enabled.next.len()), (None, 0));
    }

    #[test]
    fn refused_pages_and_earlier_runs_are_recorded() {
        let mut changed = ChecksumsChanged {
            earlier: Earlier::PassedOver { files: 2, bytes: 16_384 },
            ..ChecksumsChanged::default()
        };
        changed.pages.refused = 1;
        changed.pages.refused_pages =
            vec![RefusedPage { path: "/pg/base/5/1259".into(), block: 7 }];
        let record = changed.record_of_enable(Path::new("/pg"), &control(), "1.2.3", 1.0);
        let pages = record.pages.unwrap();
        assert_eq!((pages.refused, pages.refused_pages[0].block), (1, 7));
        assert!(!changed.pages.is_sound());
        let earlier = EarlierRun { valid: true, files: 2, bytes: 16_384 };
        assert_eq!(record.earlier, Some(earlier));
        assert_eq!(recorded_earlier(Earlier::None), None);
        assert!(!recorded_earlier(Earlier::Void).unwrap().valid);
    }
}
