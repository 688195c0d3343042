//! Every kernel that this processor can run comes to what the definition says.

#![expect(clippy::unwrap_used, reason = "a test's helpers may panic like the test")]

use std::collections::BTreeSet;

use pgtoll_checksum::{InstructionSet, Kernel, page_checksum};
use proptest::prelude::*;

const PAGE_SIZES: [usize; 6] = [1024, 2048, 4096, 8192, 16384, 32768];
/// More than twice as many as any kernel does at once, with every rest.
const MOST_PAGES: usize = 13;

fn available() -> impl Iterator<Item = &'static Kernel> {
    Kernel::all().iter().filter(|kernel| kernel.is_available())
}

fn computed(kernel: &Kernel, pages: &[u8], page_bytes: usize, first_block: u32) -> Vec<u16> {
    let mut checksums = vec![0; pages.len() / page_bytes];
    kernel.checksums(pages, page_bytes, first_block, &mut checksums);
    checksums
}

fn defined(pages: &[u8], page_bytes: usize, first_block: u32) -> Vec<u16> {
    computed(Kernel::by_name("portable").unwrap(), pages, page_bytes, first_block)
}

/// Bytes without a pattern, the same for a seed.
fn noise(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()[3]
    };
    (0..length).map(|_| next()).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    /// Of any pages, however many, wherever they lie in memory and in a fork.
    #[test]
    fn all_kernels_agree(
        size in 0..PAGE_SIZES.len(),
        count in 0..=MOST_PAGES,
        offset in 0..128_usize,
        first_block in prop_oneof![any::<u32>(), u32::MAX - 8..=u32::MAX, 0..8_u32],
        seed: u64,
    ) {
        let page_bytes = PAGE_SIZES[size];
        let bytes = noise(offset + count * page_bytes, seed);
        let pages = &bytes[offset..];
        let defined = defined(pages, page_bytes, first_block);
        for kernel in available() {
            let computed = computed(kernel, pages, page_bytes, first_block);
            prop_assert_eq!(&computed, &defined, "{}", kernel.name());
        }
    }

    /// Of pages that are mostly one byte, as new and zeroed ones.
    #[test]
    fn all_kernels_agree_on_dull_pages(
        fill: u8,
        changes in prop::collection::vec((0..5 * 8192_usize, any::<u8>()), 0..8),
        first_block: u32,
    ) {
        let mut pages = vec![fill; 5 * 8192];
        for (at, byte) in changes {
            pages[at] = byte;
        }
        let defined = defined(&pages, 8192, first_block);
        for kernel in available() {
            let computed = computed(kernel, &pages, 8192, first_block);
            prop_assert_eq!(&computed, &defined, "{}", kernel.name());
        }
    }

    #[test]
    fn the_checksum_itself_does_not_count(stored: u16, seed: u64, block: u32) {
        let mut pages = noise(9 * 8192, seed);
        let all: Vec<_> = available().map(|available| computed(available, &pages, 8192, block)).collect();
        for page in pages.chunks_exact_mut(8192) {
            page[8..10].copy_from_slice(&stored.to_le_bytes());
        }
        for (kernel, before) in available().zip(all) {
            prop_assert_eq!(computed(kernel, &pages, 8192, block), before, "{}", kernel.name());
        }
    }
}

#[test]
fn every_count_of_pages_of_every_size_at_every_address() {
    for page_bytes in PAGE_SIZES {
        let bytes = noise(MOST_PAGES * page_bytes + 64, 7);
        for count in 0..=MOST_PAGES {
            for offset in [0, 1, 2, 4, 8, 15, 31, 63] {
                let pages = &bytes[offset..][..count * page_bytes];
                let defined = defined(pages, page_bytes, 5);
                for kernel in available() {
                    let label = format!("{}: {count} of {page_bytes} at {offset}", kernel.name());
                    assert_eq!(computed(kernel, pages, page_bytes, 5), defined, "{label}");
                }
            }
        }
    }
}

/// Each set alone and all of them together: what is left works, and needs none of them.
#[test]
fn instruction_sets_can_be_switched_off() {
    let sets = InstructionSet::ALL;
    let has: Vec<_> = sets.iter().filter(|set| set.is_available()).map(|set| set.name()).collect();
    println!("this processor has {}", has.join(", "));
    let pages = noise(MOST_PAGES * 8192, 3);
    let defined = defined(&pages, 8192, 9);
    let mut chosen = BTreeSet::new();
    for choice in 0..1_u32 << sets.len() {
        let is_off = |at: &usize| choice >> at & 1 == 1;
        let off: Vec<_> = (0..sets.len()).filter(is_off).map(|at| sets[at]).collect();
        let kernel = Kernel::best_without(&off);
        assert!(kernel.is_available() && !kernel.is_servers());
        let is_definition = kernel.instruction_set() == InstructionSet::Portable;
        assert!(is_definition || !off.contains(&kernel.instruction_set()), "{off:?}: {kernel:?}");
        assert_eq!(computed(kernel, &pages, 8192, 9), defined, "{off:?}");
        chosen.insert(kernel.instruction_set().name());
    }
    assert_eq!(chosen, has.into_iter().collect(), "each is the best of some choice");
    assert_eq!(Kernel::best_without(&[]).name(), Kernel::best().name());
}

#[test]
fn kernels_have_names() {
    let names: BTreeSet<_> = Kernel::all().iter().map(Kernel::name).collect();
    assert_eq!(names.len(), Kernel::all().len());
    for kernel in Kernel::all() {
        assert_eq!(Kernel::by_name(kernel.name()).unwrap().name(), kernel.name());
    }
    assert!(Kernel::by_name("mmx").is_none());
    #[cfg(target_arch = "x86_64")]
    for name in ["avx512", "avx2", "sse4.1", "sse2", "portable", "server-sse2", "server-avx2"] {
        assert!(names.contains(name), "{name}");
    }
}

/// What `page_checksum()` of pageinspect says, of PostgreSQL 15.18.
#[test]
fn known_checksums() {
    let check = |pattern: &[u8], block, expected: u16| {
        let page: Vec<u8> = pattern.iter().copied().cycle().take(8192).collect();
        assert_eq!(page_checksum(&page, block), expected, "{pattern:x?} at {block}");
        for kernel in available() {
            assert_eq!(computed(kernel, &page, 8192, block), [expected], "{}", kernel.name());
        }
    };
    check(&[0x01], 0, 1175);
    check(&[0x01], 50, 1225);
    check(&[0x01], 100, 1139);
    check(&[0x01], u32::MAX - 1, 64361);
    check(&[0x04], 0, 28338);
    check(&[0x04], 50, 28352);
    check(&[0x04], 100, 28438);
    check(&[0x04], u32::MAX - 1, 37200);
    check(&[0xFF], 0, 3612);
    check(&[0xFF], 50, 3598);
    check(&[0xFF], 100, 3648);
    check(&[0xFF], u32::MAX - 1, 61924);
    check(&[0xAB, 0xCD], 0, 34755);
    check(&[0xAB, 0xCD], 50, 34741);
    check(&[0xAB, 0xCD], 100, 34655);
    check(&[0xAB, 0xCD], u32::MAX - 1, 30783);
    check(&[0xE6, 0xD6], 0, 49267);
    check(&[0xE6, 0xD6], 50, 49285);
    check(&[0xE6, 0xD6], 100, 49231);
    check(&[0xE6, 0xD6], u32::MAX - 1, 16269);
    check(&[0x4A, 0x5E], 0, 38159);
    check(&[0x4A, 0x5E], 50, 38145);
    check(&[0x4A, 0x5E], 100, 38187);
    check(&[0x4A, 0x5E], u32::MAX - 1, 27377);
}

#[test]
#[should_panic(expected = "1000 bytes are no page")]
fn a_length_that_no_page_has_is_refused() {
    Kernel::best().checksums(&[0; 1000], 1000, 0, &mut [0]);
}

#[test]
#[should_panic(expected = "8193 bytes are not 1 pages of 8192")]
fn a_part_of_a_page_is_refused() {
    Kernel::best().checksums(&[0; 8193], 8192, 0, &mut [0]);
}

#[test]
#[should_panic(expected = "16384 bytes are not 1 pages of 8192")]
fn pages_without_room_for_their_checksum_are_refused() {
    Kernel::best().checksums(&[0; 16384], 8192, 0, &mut [0]);
}
