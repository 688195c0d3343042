//! Pages: one in all its parts, the checksums of many, two compared.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// The version of the form of [`PageRecord`].
pub const PAGE_SCHEMA: &str = "pgtoll.page/1";
/// The version of the form of [`PageChecksumsRecord`].
pub const PAGE_CHECKSUMS_SCHEMA: &str = "pgtoll.page-checksums/1";
/// The version of the form of [`PageDifferenceRecord`].
pub const PAGE_DIFFERENCE_SCHEMA: &str = "pgtoll.page-difference/1";

/// A page, as `pgtoll page show` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageRecord {
    /// [`PAGE_SCHEMA`].
    pub schema: String,
    /// The file.
    pub file: String,
    /// The block's number in the file, from 0.
    pub block: u64,
    /// Its number in its fork, which the checksum is made with.
    pub block_of_fork: u32,
    /// The kind of page: `heap`, `btree` and so on.
    pub kind: String,
    /// The header, as `pageinspect`'s `page_header` names its fields.
    pub header: PageHeaderRecord,
    /// The checksum that the page should have; `None` for one that was never used.
    pub checksum_computed: Option<u16>,
    /// Whether a server with checksums takes the page.
    pub accepted: bool,
    /// Bytes between the line pointers and the items; `None` where the header is impossible.
    pub free_bytes: Option<u16>,
    /// The line pointers, the first of which has the number 1.
    pub line_pointers: Vec<LinePointerRecord>,
    /// All bytes, in hexadecimal.
    pub bytes: String,
}

/// A page's header.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageHeaderRecord {
    /// `pd_lsn`.
    pub lsn: String,
    /// `pd_checksum`.
    pub checksum: u16,
    /// `pd_flags`.
    pub flags: u16,
    /// `pd_lower`.
    pub lower: u16,
    /// `pd_upper`.
    pub upper: u16,
    /// `pd_special`.
    pub special: u16,
    /// Bytes of the page, as it says itself.
    pub pagesize: u32,
    /// The version of its layout.
    pub version: u8,
    /// `pd_prune_xid`.
    pub prune_xid: u32,
}

/// A line pointer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct LinePointerRecord {
    /// Its number, from 1.
    pub number: usize,
    /// `lp_off`.
    pub offset: u16,
    /// `lp_len`.
    pub length: u16,
    /// `unused`, `normal`, `redirect` or `dead`.
    pub state: String,
}

/// The checksums of pages, as `pgtoll page checksum` tells them.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageChecksumsRecord {
    /// [`PAGE_CHECKSUMS_SCHEMA`].
    pub schema: String,
    /// The file.
    pub file: String,
    /// Each page that was asked for.
    pub pages: Vec<PageChecksumRecord>,
    /// Bytes behind the last whole page.
    pub bytes_left: u64,
}

/// A page's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageChecksumRecord {
    /// The block's number in the file, from 0.
    pub block: u64,
    /// Its number in its fork.
    pub block_of_fork: u32,
    /// The checksum on the page.
    pub stored: u16,
    /// The computed checksum; `None` for a page that was never used.
    pub computed: Option<u16>,
    /// Whether a server with checksums takes the page.
    pub accepted: bool,
}

/// In what two pages differ, as `pgtoll page diff` tells it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct PageDifferenceRecord {
    /// [`PAGE_DIFFERENCE_SCHEMA`].
    pub schema: String,
    /// The files.
    pub files: [String; 2],
    /// The block's number in both, from 0.
    pub block: u64,
    /// Bytes that differ.
    pub bytes: usize,
    /// Nothing differs but hint bits and the checksum.
    pub only_hints: bool,
    /// The fields of the header that differ, each with both values.
    pub header: Vec<FieldDifference>,
    /// Line pointers that differ, by number.
    pub line_pointers: Vec<usize>,
    /// Items that differ in more than hint bits, by the number of their line pointer.
    pub items: Vec<usize>,
    /// Rows that differ in hint bits only, by the number of their line pointer.
    pub hints: Vec<usize>,
    /// The access method's own part differs.
    pub special: bool,
    /// Bytes outside of all items differ: they have a meaning in maps only.
    pub elsewhere: bool,
}

/// A field of two headers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct FieldDifference {
    /// Its name.
    pub name: String,
    /// Its values.
    pub values: [String; 2],
}
