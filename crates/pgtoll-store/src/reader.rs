//! An object as a stream of bytes, of which a few ranges are fetched ahead.

use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read};

use crate::StoredObject;
use crate::budget::RangeBuffer;
use crate::error::StoreError;
use crate::local;
use crate::remote::{RangeAnswer, Remote};

/// Reads an object from its begin to its end. Every range is of the object that was listed: where it
/// is another one, reading fails, and so it does where the object is shorter than it was.
#[derive(Debug)]
pub struct ObjectReader(ReaderSource);

#[derive(Debug)]
enum ReaderSource {
    Local { file: File, object: StoredObject, at: u64 },
    Remote(RemoteReader),
}

#[derive(Debug)]
struct RemoteReader {
    remote: Remote,
    object: StoredObject,
    /// Bytes that were asked for so far.
    asked: u64,
    ahead: VecDeque<RangeAnswer>,
    /// The range that is read.
    range: Option<RangeBuffer>,
    /// Bytes of it that were read.
    within: usize,
}

impl ObjectReader {
    pub(crate) fn local(object: &StoredObject) -> Result<Self, StoreError> {
        let (file, found) = local::open(&object.url)?;
        if !found.is_same(object) {
            return Err(StoreError::Replaced { url: found.url });
        }
        Ok(Self(ReaderSource::Local { file, object: found, at: 0 }))
    }

    pub(crate) fn remote(remote: &Remote, object: &StoredObject) -> Self {
        Self(ReaderSource::Remote(RemoteReader {
            remote: remote.clone(),
            object: object.clone(),
            asked: 0,
            ahead: VecDeque::new(),
            range: None,
            within: 0,
        }))
    }
}

impl Read for ObjectReader {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match &mut self.0 {
            ReaderSource::Local { file, object, at } => {
                let read = file.read(buffer)?;
                *at += read as u64;
                if read == 0 && !buffer.is_empty() {
                    // Written to while it was read, or cut.
                    let found = local::open(&object.url).map_err(io::Error::other)?.1;
                    if *at != object.bytes || !found.is_same(object) {
                        let url = object.url.clone();
                        return Err(io::Error::other(StoreError::Replaced { url }));
                    }
                }
                Ok(read)
            }
            ReaderSource::Remote(reader) => reader.read(buffer).map_err(io::Error::other),
        }
    }
}

impl RemoteReader {
    fn read(&mut self, buffer: &mut [u8]) -> Result<usize, StoreError> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(range) = &self.range {
                let left = &range.bytes[self.within..];
                let read = left.len().min(buffer.len());
                buffer[..read].copy_from_slice(&left[..read]);
                self.within += read;
                if read > 0 {
                    return Ok(read);
                }
            }
            (self.range, self.within) = (None, 0);
            if !self.next_range()? {
                return Ok(0);
            }
        }
    }

    /// Waits for the next range; false at the object's end.
    fn next_range(&mut self) -> Result<bool, StoreError> {
        if self.ahead.is_empty() {
            if self.asked >= self.object.bytes {
                return Ok(false);
            }
            let free = self.remote.budget.acquire();
            self.ask(free)?;
        }
        while self.ahead.len() < AHEAD && self.asked < self.object.bytes {
            // The last ones are for readers that have none.
            let Some(free) = self.remote.budget.try_acquire(RESERVED) else { break };
            self.ask(free)?;
        }
        let Some(answer) = self.ahead.pop_front() else { return Ok(false) };
        self.range = Some(self.remote.wait(&self.object.url, &answer)?);
        Ok(true)
    }

    fn ask(&mut self, free: RangeBuffer) -> Result<(), StoreError> {
        let end = self.object.bytes.min(self.asked + RANGE_BYTES);
        let answer = self.remote.range(&self.object, self.asked..end, free)?;
        self.asked = end;
        self.ahead.push_back(answer);
        Ok(())
    }
}

/// Bytes of a range: enough that a request's delay does not matter, and little enough for the
/// request's time limit of 30 s.
pub(crate) const RANGE_BYTES: u64 = 8 << 20;
/// Ranges that a reader has asked for.
const AHEAD: usize = 3;
/// Ranges that are not fetched ahead.
const RESERVED: usize = 2;
/// Ranges in memory, of all readers together.
pub(crate) const RANGES_MAX: usize = 10;
