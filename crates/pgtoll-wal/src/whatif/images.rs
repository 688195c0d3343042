//! Images, and how long they would be compressed.

use std::fmt;

use pgtoll_format::wal::rmgr::{RM_HEAP_ID, RM_HEAP2_ID, XLOG_FPI_FOR_HINT};
use pgtoll_format::wal::{BlockReference, Compression, Image, Parts, Record, RecordType};
use pgtoll_format::{ForkNumber, PAGE_BYTES, RelationFork, pglz};
use pgtoll_model::{ImageCompression, ImageLengths, Settings};
use rustc_hash::FxHashMap;

use crate::whatif::data::{self, Data, ImagePage, PageRows};

/// The images that are compressed to find out.
#[derive(Clone, Debug, Default)]
pub struct Compressing {
    /// By which compressions.
    pub with: Vec<Compression>,
    /// All of them; else those of one block in 16, and for each segment the first few of each fork.
    pub exact: bool,
}

impl Compressing {
    /// By the compressions that are asked for.
    pub fn for_settings(settings: &[Settings], exact: bool) -> Self {
        let is_asked = |kind: &Compression| {
            settings.iter().any(|setting| setting.compression == ImageCompression::Set(Some(*kind)))
        };
        Self { with: Compression::ALL.into_iter().filter(is_asked).collect(), exact }
    }

    /// One image in this many is compressed; 1: all are.
    pub(crate) fn one_in(&self) -> u32 {
        if self.exact { 1 } else { SAMPLED }
    }
}

/// Unpacks and packs images.
pub(crate) struct Images {
    compressing: Compressing,
    /// Images of each fork that were compressed.
    compressed: FxHashMap<RelationFork, u32>,
    zstd: Option<zstd::bulk::Compressor<'static>>,
    unpack_zstd: Option<zstd::bulk::Decompressor<'static>>,
    lz4: Vec<u8>,
    page: Box<[u8; PAGE_BYTES]>,
}

impl fmt::Debug for Images {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Images").field("compressing", &self.compressing).finish_non_exhaustive()
    }
}

/// One block in this many is compressed.
const SAMPLED: u32 = 16;
/// This many images of each fork in a segment are, whatever their block.
const FIRST: u32 = 2;
/// Bytes of an image's header, and of the length of a hole.
const HEADER: usize = 5;
const HOLE: usize = 2;

impl Images {
    pub(crate) fn new(compressing: Compressing) -> Self {
        Self {
            compressing,
            compressed: FxHashMap::default(),
            zstd: None,
            unpack_zstd: None,
            lz4: Vec::new(),
            page: Box::new([0; PAGE_BYTES]),
        }
    }

    /// How long the image of this block would be by each compression, with its header; and the data
    /// that it stands for, if that is `asked`; and the rows on the page, of tables.
    pub(crate) fn cost(
        &mut self,
        record: &Record<'_>,
        parts: &Parts,
        block: &BlockReference,
        requested: bool,
    ) -> (ImageLengths, Data, Option<PageRows>) {
        let Some(image) = &block.image else {
            return ([0; ImageCompression::COUNT], Data::Unknown, None);
        };
        let stored = record.bytes.get(image.range.clone()).unwrap_or_default();
        let hole = usize::from(image.hole_bytes);
        let raw = PAGE_BYTES - hole;
        let mut lengths = [0; ImageCompression::COUNT];
        let extra = if image.compression.is_some() && hole > 0 { HOLE } else { 0 };
        lengths[ImageCompression::AsStored.index()] = length(stored.len() + HEADER + extra);
        lengths[ImageCompression::OFF.index()] = length(raw + HEADER);
        let kind = RecordType::from_header(&record.header);
        let tells = requested && data::can_tell(kind, block);
        let compresses = self.is_sampled(block);
        let is_packed = image.compression.is_some();
        let prunes = block.id == 0 && record.prunes(parts);
        let unpacks = compresses || (tells || prunes) && is_packed;
        if unpacks && !self.unpack(image, stored, raw) {
            return (lengths, Data::Unknown, None);
        }
        if compresses {
            self.compress(raw, hole, &mut lengths);
        }
        let is_read = unpacks || !is_packed;
        let bytes = if is_packed { &self.page[..raw] } else { stored };
        let page = ImagePage { bytes, hole_offset: image.hole_offset.into(), hole_bytes: hole };
        let has_rows = is_read
            && block.fork == ForkNumber::MAIN
            && (kind == XLOG_FPI_FOR_HINT || matches!(kind.manager, RM_HEAP_ID | RM_HEAP2_ID));
        let rows = if has_rows { data::page_rows(&page) } else { None };
        let data = if tells { data::left_out(record, parts, kind, &page) } else { Data::Unknown };
        (lengths, data, rows)
    }

    fn is_sampled(&mut self, block: &BlockReference) -> bool {
        if self.compressing.with.is_empty() {
            return false;
        }
        let fork = RelationFork { relation: block.relation, number: block.fork };
        let compressed = self.compressed.entry(fork).or_default();
        let mixed =
            (block.block ^ block.relation.rel_number.rotate_left(16)).wrapping_mul(0x9E37_79B1);
        let is = self.compressing.exact || *compressed < FIRST || mixed >> 16 < (1 << 16) / SAMPLED;
        *compressed += u32::from(is);
        is
    }

    /// Puts the image's bytes, as they were before they were compressed, to the page's begin.
    fn unpack(&mut self, image: &Image, stored: &[u8], raw: usize) -> bool {
        let page = &mut self.page[..raw];
        match image.compression {
            None => {
                page.copy_from_slice(&stored[..raw.min(stored.len())]);
                true
            }
            Some(Compression::Pglz) => {
                pglz::decompress(stored, raw).map(|bytes| page.copy_from_slice(&bytes)).is_some()
            }
            Some(Compression::Lz4) => {
                lz4_flex::block::decompress_into(stored, page).is_ok_and(|made| made == raw)
            }
            Some(Compression::Zstd) => {
                if self.unpack_zstd.is_none() {
                    self.unpack_zstd = zstd::bulk::Decompressor::new().ok();
                }
                self.unpack_zstd.as_mut().is_some_and(|zstd| {
                    zstd.decompress_to_buffer(stored, page).is_ok_and(|made| made == raw)
                })
            }
        }
    }

    fn compress(&mut self, raw: usize, hole: usize, lengths: &mut ImageLengths) {
        let extra = if hole > 0 { HOLE } else { 0 };
        for with in self.compressing.with.clone() {
            let page = &self.page[..raw];
            let made = match with {
                Compression::Pglz => pglz::compress(page).map(|made| made.len()),
                Compression::Lz4 => {
                    self.lz4.resize(lz4_flex::block::get_maximum_output_size(raw), 0);
                    lz4_flex::block::compress_into(page, &mut self.lz4).ok()
                }
                Compression::Zstd => {
                    if self.zstd.is_none() {
                        self.zstd = zstd::bulk::Compressor::new(ZSTD_LEVEL).ok();
                    }
                    let made = self.zstd.as_mut().and_then(|zstd| zstd.compress(page).ok());
                    made.map(|made| made.len())
                }
            };
            // As the server does: what saves nothing is not taken.
            let taken = made.filter(|made| made + extra < raw);
            lengths[ImageCompression::Set(Some(with)).index()] =
                length(taken.map_or(raw, |made| made + extra) + HEADER);
        }
    }
}

/// `ZSTD_CLEVEL_DEFAULT`.
const ZSTD_LEVEL: i32 = 3;

fn length(bytes: usize) -> u16 {
    u16::try_from(bytes).unwrap_or(u16::MAX)
}
