//! The threads: each reads, unpacks and judges what it takes, and one adds up.

use std::collections::BTreeSet;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use pgtoll_format::RelFileLocator;

use super::content::Content;
use super::judge::{Judged, Rules};
use super::member::{Bytes, Loader, RelationMember};
use super::member_path::{MemberKind, MemberPath};
use super::opener::TarBytes;
use super::source::{IncrementalFile, Meter, Metered, Source, TarFile};
use crate::found::Verified;
use crate::settings::{PROGRESS, VerifyProgress, VerifySettings};
use pgtoll_wal::{TarError, TarMember, TarMemberKind, TarStream};

/// The facts that are known before the first page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Known {
    pub(super) rules: Rules,
    /// The catalog version, which names the cluster's directory in a tablespace; `None`: any.
    pub(super) catalog_version: Option<u32>,
}

/// The relations that are meant.
pub(super) type Wanted<'a> = &'a (dyn Fn(RelFileLocator) -> bool + Sync);

/// The content of a tar or file beside pages.
#[derive(Debug, Default)]
pub(super) struct SourceContents {
    pub(super) sums: Verified,
    pub(super) control: Option<(PathBuf, Vec<u8>)>,
    pub(super) label: Option<Vec<u8>>,
    /// The files of a tar.
    pub(super) content: Content,
    /// Formats of catalogs that tablespaces' directories are named after.
    pub(super) catalog_versions: BTreeSet<u32>,
}

enum RunEvent {
    Judged(Judged),
    Read(Box<SourceContents>),
}

/// Reads all of these; what is wrong is added to `verified`.
pub(super) fn run(
    sources: &[Source],
    known: Known,
    settings: &VerifySettings,
    wanted: Wanted<'_>,
    verified: &mut Verified,
    progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
) -> Vec<SourceContents> {
    let meter = Meter::new(settings.rate);
    let next = AtomicUsize::new(0);
    let all_bytes = sources.iter().map(Source::bytes).sum();
    let worker = || {
        let (next, meter) = (&next, &meter);
        move |send: &mut dyn FnMut(RunEvent) -> bool| {
            let Some(source) = sources.get(next.fetch_add(1, Ordering::Relaxed)) else {
                return false;
            };
            let mut take = |judged| send(RunEvent::Judged(judged));
            let loader = Loader::new(known.rules, &mut take);
            let reader = Reader { known, wanted, meter, loader, of: SourceContents::default() };
            let contents = reader.read(source);
            send(RunEvent::Read(Box::new(contents)))
        }
    };
    let mut sum = Sum { meter: &meter, all_bytes, verified, read: Vec::new() };
    let readers = settings.jobs.get().min(sources.len());
    let started = pgtoll_system::threads::run_workers(readers, PROGRESS, worker, |event| {
        sum.add(event, progress);
    });
    sum.verified.threads(started, readers);
    sum.read
}

/// The sum of the results so far.
struct Sum<'a> {
    meter: &'a Meter,
    all_bytes: u64,
    verified: &'a mut Verified,
    read: Vec<SourceContents>,
}

impl Sum<'_> {
    /// Adds up a thread's event, if one came.
    fn add(
        &mut self,
        event: Option<RunEvent>,
        progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>,
    ) {
        match event {
            Some(RunEvent::Judged(judged)) => self.judged(judged),
            Some(RunEvent::Read(event)) => self.of_source(*event),
            None => {}
        }
        self.tell(progress);
    }

    fn judged(&mut self, judged: Judged) {
        let pages = &mut self.verified.pages;
        pages.bytes += judged.pages.bytes;
        pages.blocks += judged.pages.blocks;
        pages.new += judged.pages.new;
        judged.findings.into_iter().for_each(|finding| self.verified.add(finding));
    }

    fn of_source(&mut self, mut contents: SourceContents) {
        let sums = std::mem::take(&mut contents.sums);
        let verified = &mut *self.verified;
        verified.files += sums.files;
        verified.incremental += sums.incremental;
        verified.temporary += sums.temporary;
        verified.foreign.extend(sums.foreign);
        verified.unlisted.extend(sums.unlisted);
        verified.wrong_files.extend(sums.wrong_files);
        verified.compares_stored_files |= sums.compares_stored_files;
        sums.findings.into_iter().for_each(|finding| verified.add(finding));
        self.read.push(contents);
    }

    fn tell(&mut self, progress: &mut dyn FnMut(VerifyProgress) -> ControlFlow<()>) {
        let now = VerifyProgress { bytes: self.meter.bytes(), all_bytes: self.all_bytes };
        if !self.verified.is_interrupted && progress(now).is_break() {
            self.verified.is_interrupted = true;
            self.meter.stop();
        }
    }
}

/// Reads a tar, or a file.
struct Reader<'a> {
    known: Known,
    wanted: Wanted<'a>,
    meter: &'a Meter,
    loader: Loader<'a>,
    of: SourceContents,
}

impl Reader<'_> {
    fn read(mut self, source: &Source) -> SourceContents {
        if !self.meter.is_stopped() {
            let read = match source {
                Source::Tar(tar) => self.tar(tar),
                Source::Incremental(file) => self.incremental(file),
            };
            // What is not read any more is not in trouble.
            if let Err(error) = read
                && !self.meter.is_stopped()
            {
                self.of.sums.unlisted.push((source.path().to_owned(), error));
            }
        }
        self.of.sums.findings = self.loader.end();
        self.of
    }

    fn incremental(&mut self, file: &IncrementalFile) -> io::Result<()> {
        let mut input = Plain(Metered::open(&file.path, self.meter)?);
        let IncrementalFile { relation, name, bytes, .. } = *file;
        self.of.sums.files += 1;
        self.of.sums.incremental += 1;
        self.loader.incremental(&RelationMember { relation, name, bytes }, &mut input)
    }

    fn tar(&mut self, tar: &TarFile) -> io::Result<()> {
        let file = Metered::tar(tar, self.meter)?;
        let mut stream = TarStream::new(tar.packing.open(Box::new(file))?);
        let read = self.members(tar, &mut stream);
        if let TarBytes::Input(input) = &tar.from
            && let Some(paths) = input.wrong_checksums()
        {
            self.of.sums.wrong_checksums(paths);
            self.of.sums.compares_stored_files = true;
        }
        Ok(read?)
    }

    fn members<R: io::Read>(
        &mut self,
        tar: &TarFile,
        stream: &mut TarStream<R>,
    ) -> Result<(), TarError> {
        let mut root: Option<String> = None;
        while let Some(member) = stream.next_member()? {
            if !matches!(member.kind, TarMemberKind::File | TarMemberKind::Sparse) {
                continue;
            }
            self.of.content.add(&member, stream)?;
            let place = MemberPath::new(&member.path, tar.tablespace);
            if place.kind == MemberKind::Own {
                continue;
            }
            // A tar may have other directories beside the data directory; the first one is meant.
            let root = root.get_or_insert_with(|| place.root.to_owned());
            if root != place.root {
                if place.kind != MemberKind::Label && self.of.sums.foreign.len() < FOREIGN_MAX {
                    self.of.sums.foreign.push(member.path.into());
                }
                continue;
            }
            self.member(&tar.path, &member, &place, stream)?;
        }
        self.of.content.end(tar, root.unwrap_or_default());
        Ok(())
    }

    fn member<R: io::Read>(
        &mut self,
        tar: &Path,
        member: &TarMember,
        place: &MemberPath<'_>,
        stream: &mut TarStream<R>,
    ) -> Result<(), TarError> {
        let bytes = member.bytes;
        match place.kind {
            MemberKind::Control => self.of.control = Some((tar.join(&member.path), small(stream)?)),
            MemberKind::Label => self.of.label = Some(small(stream)?),
            MemberKind::Relation(relation, name) | MemberKind::Incremental(relation, name) => {
                let relation_member = RelationMember { relation, name, bytes };
                if !self.is_read(&relation_member, member, place) {
                    return Ok(());
                }
                if matches!(place.kind, MemberKind::Relation(..)) {
                    self.of.sums.files += 1;
                    return self.loader.whole(&relation_member, stream);
                }
                self.of.sums.files += 1;
                self.of.sums.incremental += 1;
                return self.loader.incremental(&relation_member, stream);
            }
            MemberKind::Foreign if self.of.sums.foreign.len() < FOREIGN_MAX => {
                self.of.sums.foreign.push(member.path.as_str().into());
            }
            MemberKind::Own | MemberKind::Foreign => {}
        }
        Ok(())
    }

    fn is_read(
        &mut self,
        relation_member: &RelationMember,
        member: &TarMember,
        place: &MemberPath<'_>,
    ) -> bool {
        if let Some(found) = place.catalog_version {
            self.of.catalog_versions.insert(found);
            // A tablespace can be shared by clusters of several versions.
            if self.known.catalog_version.is_some_and(|own| own != found) {
                return false;
            }
        }
        if relation_member.first(self.known.rules).is_none() {
            // No block has so high a number, and no server would look there.
            self.of.sums.foreign.push(member.path.as_str().into());
            return false;
        }
        if relation_member.name.backend.is_some() {
            self.of.sums.temporary += 1;
            return false;
        }
        if !(self.wanted)(relation_member.relation) {
            return false;
        }
        if member.kind == TarMemberKind::Sparse {
            let words = "a sparse file of GNU tar, whose holes pgtoll does not put back";
            self.of.sums.unlisted.push((member.path.as_str().into(), io::Error::other(words)));
            return false;
        }
        true
    }
}

/// A file outside of tars.
struct Plain<R>(R);

impl<R: io::Read> Bytes for Plain<R> {
    type Error = io::Error;

    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let mut filled = 0;
        while filled < buffer.len() {
            match self.0.read(&mut buffer[filled..]) {
                Ok(0) => break,
                Ok(read) => filled += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) if filled == 0 => return Err(error),
                // It comes again.
                Err(_) => break,
            }
        }
        Ok(filled)
    }
}

/// A member of which no more than this is of interest.
pub(super) fn small<B: Bytes>(input: &mut B) -> Result<Vec<u8>, B::Error> {
    let mut bytes = vec![0; SMALL];
    let read = input.read(&mut bytes)?;
    bytes.truncate(read);
    Ok(bytes)
}

/// The most files of other programs that are listed.
const FOREIGN_MAX: usize = 100_000;
const SMALL: usize = 64 << 10;
