//! Stored backups as tars that the verification reads: objects as they are, a data directory's files
//! as one tar, standard input.

use std::collections::VecDeque;
use std::io::{self, Cursor, Read};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use pgtoll_record::FleetLayout;
use pgtoll_store::{Store, StoreUrl, StoredObject};
use pgtoll_verify::{OpenInput, TarBackup, TarInput};
use tar::{EntryType, Header};

use crate::error::FleetError;
use crate::layout::{StoredBackup, tablespace_of};

/// The first failure of a store while a backup was read: it says nothing of the backup.
#[derive(Clone, Debug, Default)]
pub(crate) struct StoreFailure(Arc<Mutex<Option<String>>>);

impl StoreFailure {
    /// What the store said, in one line.
    pub(crate) fn reason(&self) -> Option<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn keep(&self, error: io::Error) -> io::Error {
        let mut first = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        first.get_or_insert_with(|| error.to_string());
        error
    }
}

/// The backup as tars, each read in ranges.
pub(crate) fn tars_of(
    backup: &StoredBackup,
    store: &Store,
    failure: &StoreFailure,
) -> Result<TarBackup, FleetError> {
    let input = |object: &StoredObject| -> Arc<dyn OpenInput> {
        let (store, object, failure) = (store.clone(), object.clone(), failure.clone());
        Arc::new(ObjectInput { store, object, failure })
    };
    let inputs = match backup.layout {
        FleetLayout::BarmanCloud | FleetLayout::Tars => {
            let tar = |object: &StoredObject| TarInput {
                name: object.url.to_string(),
                file_name: object.url.name().to_owned(),
                tablespace: tablespace_of(object.url.name()),
                bytes: object.bytes,
                input: input(object),
            };
            backup.objects.iter().map(tar).collect()
        }
        FleetLayout::Files => vec![TarInput {
            name: backup.url.to_string(),
            file_name: "files.tar".to_owned(),
            tablespace: None,
            bytes: backup.objects.iter().map(|object| object.bytes).sum(),
            input: Arc::new(DirectoryInput {
                store: store.clone(),
                root: backup.url.clone(),
                objects: Arc::new(backup.objects.clone()),
                failure: failure.clone(),
            }),
        }],
    };
    let manifest = backup.manifest.as_ref().map(input);
    TarBackup::of_inputs(&backup.url.to_string(), inputs, manifest).map_err(|name| {
        let reason = format!("{name} is packed in a way that pgtoll does not read");
        FleetError::Unread { url: backup.url.clone(), reason }
    })
}

/// A tar on standard input, packed or not. An error is a name that is not a tar's.
pub fn standard_input() -> Result<TarBackup, String> {
    let input = TarInput {
        name: "-".to_owned(),
        file_name: "stdin.tar".to_owned(),
        tablespace: None,
        bytes: 0,
        input: Arc::new(StandardInput::default()),
    };
    TarBackup::of_inputs("-", vec![input], None)
}

/// An object.
#[derive(Debug)]
struct ObjectInput {
    store: Store,
    object: StoredObject,
    failure: StoreFailure,
}

impl OpenInput for ObjectInput {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        let reader = self.store.reader(&self.object);
        let input = reader.map_err(|error| self.failure.keep(io::Error::other(error)))?;
        Ok(Box::new(Watched { input, failure: self.failure.clone() }))
    }
}

/// Keeps the store's failure.
struct Watched<R> {
    input: R,
    failure: StoreFailure,
}

impl<R: Read> Read for Watched<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.input.read(buffer).map_err(|error| self.failure.keep(error))
    }
}

/// Standard input, once.
#[derive(Debug, Default)]
struct StandardInput {
    is_taken: AtomicBool,
}

impl OpenInput for StandardInput {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        if self.is_taken.swap(true, Ordering::Relaxed) {
            return Err(io::Error::other(
                "standard input can be read once only, and the backup is of a cluster without \
                 checksums or with other sizes: write it to a file and verify that",
            ));
        }
        Ok(Box::new(io::stdin()))
    }
}

/// The files below a prefix as one tar: a header, which is made here, before each object's bytes.
#[derive(Debug)]
struct DirectoryInput {
    store: Store,
    root: StoreUrl,
    objects: Arc<Vec<StoredObject>>,
    failure: StoreFailure,
}

impl OpenInput for DirectoryInput {
    fn open(&self) -> io::Result<Box<dyn Read + Send>> {
        Ok(Box::new(DirectoryTar {
            store: self.store.clone(),
            root: self.root.clone(),
            failure: self.failure.clone(),
            objects: Arc::clone(&self.objects),
            next: 0,
            parts: VecDeque::new(),
            left: 0,
            is_ended: false,
        }))
    }
}

struct DirectoryTar {
    store: Store,
    root: StoreUrl,
    failure: StoreFailure,
    objects: Arc<Vec<StoredObject>>,
    next: usize,
    /// What is given out next.
    parts: VecDeque<Box<dyn Read + Send>>,
    /// Bytes that the parts have to have together.
    left: u64,
    is_ended: bool,
}

impl Read for DirectoryTar {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(part) = self.parts.front_mut() {
                let read = part.read(buffer).map_err(|error| self.failure.keep(error))?;
                if read > 0 {
                    self.left = self.left.checked_sub(read as u64).ok_or_else(|| {
                        self.failure.keep(io::Error::other("an object is longer than it was"))
                    })?;
                    return Ok(read);
                }
                self.parts.pop_front();
                continue;
            }
            if self.left > 0 {
                return Err(self
                    .failure
                    .keep(io::Error::other("an object is shorter than it was")));
            }
            if self.is_ended {
                return Ok(0);
            }
            self.next_member()?;
        }
    }
}

impl DirectoryTar {
    fn next_member(&mut self) -> io::Result<()> {
        let Some(object) = self.objects.get(self.next) else {
            self.is_ended = true;
            self.push(vec![0; 1024]);
            return Ok(());
        };
        self.next += 1;
        let path = self.root.below(&object.url).unwrap_or_else(|| object.url.name());
        let header = header(path, object.bytes)?;
        let padding = object.bytes.next_multiple_of(512) - object.bytes;
        let (store, bytes, object) = (self.store.clone(), object.bytes, object.clone());
        self.push(header.as_bytes().to_vec());
        if bytes > 0 {
            let reader = store.reader(&object);
            let reader = reader.map_err(|error| self.failure.keep(io::Error::other(error)))?;
            self.parts.push_back(Box::new(reader));
            self.left += bytes;
        }
        self.push(vec![0; usize::try_from(padding).unwrap_or_default()]);
        Ok(())
    }

    fn push(&mut self, bytes: Vec<u8>) {
        self.left += bytes.len() as u64;
        self.parts.push_back(Box::new(Cursor::new(bytes)));
    }
}

fn header(path: &str, bytes: u64) -> io::Result<Header> {
    let mut header = Header::new_gnu();
    header.set_path(path).map_err(|error| io::Error::other(format!("{path}: {error}")))?;
    header.set_size(bytes);
    header.set_entry_type(EntryType::Regular);
    header.set_mode(0o600);
    header.set_cksum();
    Ok(header)
}
