//! Tars of base backups, without a server: what is in them is found, and any bytes end.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::fs;
use std::io::Write;
use std::ops::ControlFlow;
use std::path::Path;

use pgtoll_verify::{Defect, LayoutDefect, TarBackup, VerifiedTars, VerifySettings, verify_tars};
use proptest::prelude::*;

/// A valid empty page at this block.
fn page(block: u32) -> Vec<u8> {
    let mut page = vec![0; 8192];
    for (at, value) in [(12, 24_u16), (14, 8192), (16, 8192)] {
        page[at..at + 2].copy_from_slice(&value.to_le_bytes());
    }
    let checksum = pgtoll_checksum::page_checksum(&page, block);
    page[8..10].copy_from_slice(&checksum.to_le_bytes());
    page
}

fn pages(blocks: std::ops::Range<u32>) -> Vec<u8> {
    blocks.flat_map(page).collect()
}

fn incremental(blocks: &[u32], first: u32) -> Vec<u8> {
    let words = [0xd3ae_1f0d, u32::try_from(blocks.len()).unwrap(), 131_072];
    let mut file: Vec<u8> =
        words.iter().chain(blocks).flat_map(|item| item.to_le_bytes()).collect();
    if !blocks.is_empty() {
        file.resize(file.len().next_multiple_of(8192), 0);
    }
    file.extend(blocks.iter().flat_map(|block| page(first + block)));
    file
}

fn tar_of(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut builder = tar::Builder::new(Vec::new());
    for (name, bytes) in files {
        let mut header = tar::Header::new_ustar();
        header.set_size(bytes.len() as u64);
        header.set_mode(0o600);
        builder.append_data(&mut header, name, bytes.as_slice()).unwrap();
    }
    builder.into_inner().unwrap()
}

fn verified(path: &Path, jobs: usize) -> VerifiedTars {
    let backup = TarBackup::at(path).unwrap().unwrap();
    let jobs = jobs.try_into().unwrap();
    let settings = VerifySettings { jobs, rate: None, only_below: Vec::new(), rows: true };
    verify_tars(&backup, &settings, &|_| true, &mut |_| ControlFlow::Continue(())).unwrap()
}

#[test]
fn pages_are_found_at_their_blocks() {
    let place = tempfile::tempdir().unwrap();
    let mut many = pages(0..200);
    many[150 * 8192 + 5000] ^= 4;
    let mut some = incremental(&[3, 70, 131_071], 131_072);
    let at = some.len() - 1;
    some[at] ^= 1;
    let files = [
        ("base/5/16384", many),
        ("base/5/16385.1", pages(131_072..131_074)),
        ("base/5/INCREMENTAL.16386.1", some),
        ("base/5/INCREMENTAL.16387", incremental(&[], 0)),
        ("base/5/16388", pages(0..2)[..8292].to_vec()),
        ("base/5/t3_16389", vec![1; 8192]),
        ("base/5/readme", b"x".to_vec()),
        ("pg_xact/0000", vec![1; 8192]),
    ];
    let tar = tar_of(&files);
    fs::write(place.path().join("base.tar"), &tar).unwrap();
    let space = tar_of(&[("PG_15_202209061/5/16501", pages(1..3))]);
    fs::write(place.path().join("16500.tar"), space).unwrap();
    for jobs in [1, 3] {
        let VerifiedTars { verified, control, start, .. } = verified(place.path(), jobs);
        assert!(control.is_none() && start.is_none());
        assert!(verified.unlisted.is_empty(), "{:?}", verified.unlisted);
        let found: Vec<_> = verified
            .findings
            .iter()
            .map(|finding| {
                let is_invalid = matches!(finding.defect, Defect::Invalid { .. });
                (
                    finding.fork.relation.tablespace,
                    finding.fork.relation.rel_number,
                    finding.block,
                    is_invalid,
                )
            })
            .collect();
        let expected = [
            (1663, 16384, 150, true),
            (1663, 16386, 262_143, true),
            (1663, 16388, 1, false),
            (16500, 16501, 0, true),
            (16500, 16501, 1, true),
        ];
        assert_eq!(found, expected);
        assert_eq!(
            verified.findings[2].defect,
            Defect::Layout(LayoutDefect::EndsInBlock { bytes: 100 })
        );
        assert_eq!((verified.files, verified.incremental, verified.temporary), (6, 2, 1));
        assert_eq!(verified.pages.blocks, 200 + 2 + 3 + 1 + 2);
        assert_eq!(verified.foreign.len(), 1);
    }
}

#[test]
fn who_interrupts_gets_what_was_found() {
    let place = tempfile::tempdir().unwrap();
    let path = place.path().join("base.tar");
    fs::write(&path, tar_of(&[("base/5/1", pages(0..2000))])).unwrap();
    let backup = TarBackup::at(&path).unwrap().unwrap();
    let settings = VerifySettings {
        jobs: 1.try_into().unwrap(),
        rate: Some(1 << 20),
        only_below: Vec::new(),
        rows: true,
    };
    let found = verify_tars(&backup, &settings, &|_| true, &mut |_| ControlFlow::Break(()));
    let found = found.unwrap().verified;
    assert!(found.is_interrupted && found.unlisted.is_empty() && found.pages.blocks < 2000);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Any bytes under any of the names, and real tars with some bytes changed, end somehow.
    #[test]
    fn any_tar_is_read_to_some_end(
        noise in prop::collection::vec(any::<u8>(), 0..2000),
        changes in prop::collection::vec((0_usize..30_000, any::<u8>()), 0..8),
        end in 0_usize..40_000,
        ending in prop::sample::select(vec!["", ".gz", ".lz4", ".zst"]),
    ) {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join(format!("base.tar{ending}"));
        fs::write(&path, &noise).unwrap();
        verified(&path, 2);
        let files = [("base/5/INCREMENTAL.16384", incremental(&[1, 5], 0)), ("global/1", pages(0..1))];
        let mut tar = tar_of(&files);
        for (at, byte) in changes {
            if let Some(tar) = tar.get_mut(at) {
                *tar = byte;
            }
        }
        let mut packed = pack(ending, &tar);
        packed.truncate(end);
        fs::write(&path, &packed).unwrap();
        let found = verified(&path, 2).verified;
        prop_assert!(found.pages.blocks <= 3);
    }
}

fn pack(ending: &str, bytes: &[u8]) -> Vec<u8> {
    match ending {
        ".gz" => {
            let mut encoder =
                flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ".lz4" => {
            let mut encoder = lz4_flex::frame::FrameEncoder::new(Vec::new());
            encoder.write_all(bytes).unwrap();
            encoder.finish().unwrap()
        }
        ".zst" => zstd::encode_all(bytes, 1).unwrap(),
        _ => bytes.to_vec(),
    }
}
