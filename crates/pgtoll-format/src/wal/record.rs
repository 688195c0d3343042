//! WAL records and their block references.

use std::ops::Range;

use crate::page::PAGE_BYTES;
use crate::version::WalFacts;
use crate::wal::{Compression, WalError};
use crate::{BlockNumber, ForkNumber, Lsn, RelFileLocator};

/// Bytes of a record's header (`XLogRecord`).
pub const RECORD_HEADER: usize = 24;
/// The offset of the CRC in the header; it covers everything but itself.
pub(crate) const CRC_AT: usize = 20;

/// A record's header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecordHeader {
    /// Bytes of the whole record.
    pub total_bytes: u32,
    /// The transaction.
    pub xid: u32,
    /// The start of the record before.
    pub previous: Lsn,
    /// The upper half is the resource manager's.
    pub info: u8,
    /// The resource manager.
    pub manager: u8,
    /// CRC-32C.
    pub crc: u32,
}

impl RecordHeader {
    pub(crate) fn from_bytes(bytes: &[u8; RECORD_HEADER]) -> Self {
        let [t0, t1, t2, t3, x0, x1, x2, x3, p0, p1, p2, p3, p4, p5, p6, p7, ..] = *bytes;
        let [.., info, manager, _, _, c0, c1, c2, c3] = *bytes;
        Self {
            total_bytes: u32::from_le_bytes([t0, t1, t2, t3]),
            xid: u32::from_le_bytes([x0, x1, x2, x3]),
            previous: Lsn(u64::from_le_bytes([p0, p1, p2, p3, p4, p5, p6, p7])),
            info,
            manager,
            crc: u32::from_le_bytes([c0, c1, c2, c3]),
        }
    }
}

/// A whole record.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// Its start.
    pub at: Lsn,
    /// The start of the next one, apart from a page header.
    pub end: Lsn,
    /// Its header.
    pub header: RecordHeader,
    /// All of it.
    pub bytes: &'a [u8],
    /// The version that wrote it.
    pub facts: &'static WalFacts,
}

/// A full-page image.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Image {
    /// The start of the page's hole.
    pub hole_offset: u16,
    /// Bytes of the hole, zeros that are left out.
    pub hole_bytes: u16,
    /// Replay puts it into the page; else it is there for a consistency check.
    pub applies: bool,
    /// How it is compressed.
    pub compression: Option<Compression>,
    /// Its place in the record.
    pub range: Range<usize>,
}

/// A block that a record refers to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockReference {
    /// Its number in the record.
    pub id: u8,
    /// The relation.
    pub relation: RelFileLocator,
    /// The fork.
    pub fork: ForkNumber,
    /// The number of the block in the fork.
    pub block: BlockNumber,
    /// Replay initializes the page.
    pub will_init: bool,
    /// Its image.
    pub image: Option<Image>,
    /// The range of its data in the record; empty without data.
    pub data: Range<usize>,
}

/// A record's parts. Kept from record to record, so that memory is taken once.
#[derive(Clone, Debug, Default)]
pub struct Parts {
    /// The blocks, by their numbers.
    pub blocks: Vec<BlockReference>,
    /// The range of the resource manager's own data.
    pub main_data: Range<usize>,
    /// The replication origin, where there is one.
    pub origin: Option<u16>,
    /// The transaction that this one is part of, where the record tells.
    pub toplevel_xid: Option<u32>,
    image_bytes: u64,
}

impl Parts {
    /// Bytes of all images, as they are stored.
    pub fn image_bytes(&self) -> u64 {
        self.image_bytes
    }
}

const FORK: u8 = 0x0F;
const HAS_IMAGE: u8 = 0x10;
const HAS_DATA: u8 = 0x20;
const WILL_INIT: u8 = 0x40;
const SAME_RELATION: u8 = 0x80;

const ID_MAIN_DATA_SHORT: u8 = 255;
const ID_MAIN_DATA_LONG: u8 = 254;
const ID_ORIGIN: u8 = 253;
const ID_TOPLEVEL_XID: u8 = 252;
/// The highest number of a block (`XLR_MAX_BLOCK_ID`).
const MAX_BLOCK_ID: u8 = 32;

const IMAGE_HAS_HOLE: u8 = 0x01;

impl Record<'_> {
    /// Takes the record apart. `parts` is overwritten; after an error it holds nothing of use.
    pub fn parts(&self, parts: &mut Parts) -> Result<(), WalError> {
        let taken = self.take_apart(parts);
        taken.map_err(|label| WalError::Inconsistent { at: self.at, what: label })
    }

    fn take_apart(&self, parts: &mut Parts) -> Result<(), &'static str> {
        parts.blocks.clear();
        (parts.origin, parts.toplevel_xid, parts.image_bytes) = (None, None, 0);
        let mut reader = Reader { rest: self.bytes.get(RECORD_HEADER..).ok_or(TOO_SHORT)? };
        // Lengths of what stands behind the headers.
        let mut behind = 0_usize;
        let mut main_bytes = 0_usize;
        let mut before = None;
        while reader.rest.len() > behind {
            match reader.u8()? {
                ID_MAIN_DATA_SHORT => {
                    main_bytes = usize::from(reader.u8()?);
                    behind += main_bytes;
                    break;
                }
                ID_MAIN_DATA_LONG => {
                    main_bytes = reader.u32()? as usize;
                    behind += main_bytes;
                    break;
                }
                ID_ORIGIN => parts.origin = Some(reader.u16()?),
                ID_TOPLEVEL_XID => parts.toplevel_xid = Some(reader.u32()?),
                id @ 0..=MAX_BLOCK_ID => {
                    let block = self.block(id, before, &mut reader)?;
                    before = Some((id, block.relation));
                    let image_bytes = block.image.as_ref().map_or(0, |image| image.range.len());
                    behind += block.data.len() + image_bytes;
                    parts.image_bytes += image_bytes as u64;
                    parts.blocks.push(block);
                }
                _ => return Err("a part of an unknown kind"),
            }
        }
        if reader.rest.len() != behind {
            return Err("its parts' lengths do not add up");
        }
        place(parts, self.bytes.len() - behind, main_bytes);
        Ok(())
    }

    /// A block's header behind its number. Ranges are as long as they will be and begin at 0.
    fn block(
        &self,
        id: u8,
        before: Option<(u8, RelFileLocator)>,
        reader: &mut Reader<'_>,
    ) -> Result<BlockReference, &'static str> {
        if before.is_some_and(|(before, _)| before >= id) {
            return Err("block numbers are out of order");
        }
        let [flags, length @ ..]: [u8; 3] = reader.bytes()?;
        let data = 0..usize::from(u16::from_le_bytes(length));
        if (flags & HAS_DATA != 0) == data.is_empty() {
            return Err("a block's data and its flag disagree");
        }
        let image = if flags & HAS_IMAGE == 0 { None } else { Some(self.image(reader)?) };
        let relation = if flags & SAME_RELATION == 0 {
            RelFileLocator {
                tablespace: reader.u32()?,
                database: reader.u32()?,
                rel_number: reader.u32()?,
            }
        } else {
            let (_, before) =
                before.ok_or("the relation of a block before, but the block has none")?;
            before
        };
        Ok(BlockReference {
            id,
            relation,
            fork: ForkNumber(flags & FORK),
            block: reader.u32()?,
            will_init: flags & WILL_INIT != 0,
            image,
            data,
        })
    }

    fn image(&self, reader: &mut Reader<'_>) -> Result<Image, &'static str> {
        let bytes = reader.u16()?;
        let hole_offset = reader.u16()?;
        let info = reader.u8()?;
        let compression = self.facts.image_compression(info);
        let has_hole = info & IMAGE_HAS_HOLE != 0;
        let page = u16::try_from(PAGE_BYTES).unwrap_or(u16::MAX);
        let hole_bytes = match (compression, has_hole) {
            (Some(_), true) => reader.u16()?,
            (Some(_), false) => 0,
            (None, _) => page.checked_sub(bytes).ok_or("an image is longer than a page")?,
        };
        let hole_fits = if has_hole {
            hole_offset != 0 && hole_bytes != 0 && bytes != page
        } else {
            hole_offset == 0 && hole_bytes == 0
        };
        if !hole_fits || u32::from(hole_offset) + u32::from(hole_bytes) > u32::from(page) {
            return Err("an image's hole does not fit it");
        }
        if compression.is_some() && bytes >= page {
            return Err("an image is longer compressed than before");
        }
        Ok(Image {
            hole_offset,
            hole_bytes,
            applies: info & self.facts.image_applies != 0,
            compression,
            range: 0..usize::from(bytes),
        })
    }
}

/// Behind the headers stand each block's image and data, and at last the main data.
fn place(parts: &mut Parts, mut at: usize, main_bytes: usize) {
    let mut put = |range: &mut Range<usize>| {
        *range = at..at + range.len();
        at = range.end;
    };
    for block in &mut parts.blocks {
        if let Some(image) = &mut block.image {
            put(&mut image.range);
        }
        put(&mut block.data);
    }
    parts.main_data = 0..main_bytes;
    put(&mut parts.main_data);
}

/// Reads one number after the other.
struct Reader<'a> {
    rest: &'a [u8],
}

const TOO_SHORT: &str = "it is too short for its headers";

impl Reader<'_> {
    #[inline]
    fn bytes<const N: usize>(&mut self) -> Result<[u8; N], &'static str> {
        let (bytes, rest) = self.rest.split_first_chunk().ok_or(TOO_SHORT)?;
        self.rest = rest;
        Ok(*bytes)
    }

    fn u8(&mut self) -> Result<u8, &'static str> {
        Ok(u8::from_le_bytes(self.bytes()?))
    }

    fn u16(&mut self) -> Result<u16, &'static str> {
        Ok(u16::from_le_bytes(self.bytes()?))
    }

    fn u32(&mut self) -> Result<u32, &'static str> {
        Ok(u32::from_le_bytes(self.bytes()?))
    }
}
