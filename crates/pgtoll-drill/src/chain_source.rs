//! An incremental backup and those before it, as they were named.

use std::io;
use std::path::PathBuf;

use pgtoll_datadir::DatadirError;

use crate::DrillError;
use crate::source::{DrillSource, SourceForm, SourceSearch};

impl DrillSource {
    /// An incremental backup with those before it, which `pg_combinebackup` makes a whole one of: the full
    /// one first, as that program takes them.
    pub fn open_chain(
        paths: &[PathBuf],
        search: &mut SourceSearch<'_>,
    ) -> Result<Self, DrillError> {
        let mut members = Vec::with_capacity(paths.len());
        for path in paths {
            let member = Self::alone(path, search)?;
            if member.label.is_none() {
                return Err(DrillError::NotInChain { path: member.path });
            }
            members.push(member);
        }
        if let Some(order) = right_order(&members) {
            return Err(DrillError::ChainOrder { order });
        }
        let Some(last) = members.last().filter(|last| last.incremental_from().is_some()) else {
            let path = members.pop().map_or_else(PathBuf::new, |last| last.path);
            return Err(DrillError::NotIncremental { path });
        };
        Ok(Self {
            path: last.path.clone(),
            major: last.major,
            kind: last.kind,
            control: match &last.control {
                Ok(control) => Ok(control.clone()),
                Err(error) => Err(DatadirError::Read {
                    path: last.path.join("global/pg_control"),
                    source: io::Error::other(error.to_string()),
                }),
            },
            label: last.label,
            stop: last.stop,
            wal: last.wal.clone(),
            segments: last.segments.clone(),
            histories: last.histories.clone(),
            form: SourceForm::Chain(members),
        })
    }
}

/// Returns the misfits between the backups of a chain, a sentence each.
pub(crate) fn misfits(members: &[DrillSource]) -> Vec<String> {
    let mut misfits = Vec::new();
    let path = |source: &DrillSource| source.path.display().to_string();
    let identifier = |source: &DrillSource| {
        source.control.as_ref().ok().map(|control| control.system_identifier)
    };
    if let Some(first) = members.first().filter(|member| member.incremental_from().is_some()) {
        misfits.push(format!(
            "{} is incremental, too: the chain begins with the full backup that it was taken from",
            path(first)
        ));
    }
    for pair in members.windows(2) {
        let [before, after] = pair else { continue };
        if let (Some(own), Some(other)) = (identifier(before), identifier(after))
            && own != other
        {
            let one = path(before);
            let two = path(after);
            misfits.push(format!("{one} is of cluster {own}, and {two} of cluster {other}"));
            continue;
        }
        if let Some(from) = after.incremental_from()
            && Some(from) != before.start()
        {
            misfits.push(format!(
                "{} was taken from a backup that begins at {from}, and {} is another one: name all \
                 backups of the chain",
                path(after),
                path(before)
            ));
        }
    }
    misfits
}

/// The order in which these backups are a whole chain; `None`: they are in it, or in none.
pub(crate) fn right_order(members: &[DrillSource]) -> Option<Vec<PathBuf>> {
    let mut sorted: Vec<&DrillSource> = members.iter().collect();
    sorted.sort_by_key(|sorted| sorted.start());
    let fits = |pair: &[&DrillSource]| pair[1].incremental_from() == pair[0].start();
    let is_chain = sorted.first().is_some_and(|sorted| sorted.incremental_from().is_none())
        && sorted.windows(2).all(fits);
    let is_given = sorted.iter().zip(members).all(|(one, other)| one.path == other.path);
    (is_chain && !is_given).then(|| sorted.iter().map(|sorted| sorted.path.clone()).collect())
}
