//! Metadata of an object in a store.

use crate::url::StoreUrl;

/// An object, as it was listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredObject {
    /// Its place.
    pub url: StoreUrl,
    /// Its length in bytes, as it is stored.
    pub bytes: u64,
    /// The store's mark of its content; `None` where the store gives none. Of a file made of its
    /// inode, length and time of change.
    pub etag: Option<String>,
    /// When it was written, in seconds since 1970.
    pub modified: u64,
}

impl StoredObject {
    /// Whether both are the same version of an object.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        let is_same_mark = match (&self.etag, &other.etag) {
            (Some(own), Some(other)) => own == other,
            _ => self.modified == other.modified,
        };
        is_same_mark && self.bytes == other.bytes
    }
}
