//! Kernels by name, and the best one.

use std::sync::OnceLock;

use crate::is_page;
use crate::kernels::{self, Checksums};

/// A set of instructions that a kernel needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum InstructionSet {
    /// Nothing of its own: runs everywhere.
    Portable,
    /// x86-64, every processor.
    Sse2,
    /// x86-64.
    Sse41,
    /// x86-64.
    Avx2,
    /// x86-64, its foundation (AVX-512F).
    Avx512,
    /// aarch64, every processor.
    Neon,
}

/// One way to compute checksums. All come to the same ones.
///
/// ```
/// use pgtoll_checksum::Kernel;
///
/// let pages = [1_u8; 3 * 8192];
/// let mut checksums = [0; 3];
/// Kernel::best().checksums(&pages, 8192, 100, &mut checksums);
/// assert_eq!(checksums[2], pgtoll_checksum::page_checksum(&pages[2 * 8192..], 102));
/// ```
#[derive(Debug)]
pub struct Kernel {
    name: &'static str,
    instruction_set: InstructionSet,
    pages_at_once: usize,
    is_servers: bool,
    checksums: Checksums,
}

impl InstructionSet {
    /// All there are.
    pub const ALL: [Self; 6] =
        [Self::Portable, Self::Sse2, Self::Sse41, Self::Avx2, Self::Avx512, Self::Neon];

    /// As kernels are named after it.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Portable => "portable",
            Self::Sse2 => "sse2",
            Self::Sse41 => "sse4.1",
            Self::Avx2 => "avx2",
            Self::Avx512 => "avx512",
            Self::Neon => "neon",
        }
    }

    /// Whether the processor that this runs on has it, and the operating system keeps its
    /// registers.
    pub fn is_available(self) -> bool {
        match self {
            Self::Portable => true,
            #[cfg(target_arch = "x86_64")]
            Self::Sse2 => std::arch::is_x86_feature_detected!("sse2"),
            #[cfg(target_arch = "x86_64")]
            Self::Sse41 => std::arch::is_x86_feature_detected!("sse4.1"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2 => std::arch::is_x86_feature_detected!("avx2"),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512 => std::arch::is_x86_feature_detected!("avx512f"),
            #[cfg(target_arch = "aarch64")]
            Self::Neon => true,
            #[expect(clippy::allow_attributes, reason = "it is reached or not by architecture")]
            #[allow(unreachable_patterns, reason = "another architecture's")]
            _ => false,
        }
    }
}

impl Kernel {
    /// Every kernel of this architecture, also those that this processor cannot run. The fastest
    /// come first, those of servers after all others, the definition in between.
    pub fn all() -> &'static [Self] {
        &KERNELS
    }

    /// The fastest that this processor can run; found once.
    pub fn best() -> &'static Self {
        static BEST: OnceLock<&Kernel> = OnceLock::new();
        BEST.get_or_init(|| Self::best_without(&[]))
    }

    /// The fastest that this processor can run without these. The definition is always left.
    pub fn best_without(switched_off: &[InstructionSet]) -> &'static Self {
        let is_left = |other_one: &&Self| {
            other_one.is_available()
                && !other_one.is_servers
                && !switched_off.contains(&other_one.instruction_set)
        };
        KERNELS.iter().find(is_left).unwrap_or(&DEFINITION)
    }

    /// The kernel of this name, whether or not this processor can run it.
    pub fn by_name(name: &str) -> Option<&'static Self> {
        KERNELS.iter().find(|kernel| kernel.name == name)
    }

    /// For example `avx2`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Returns the instructions that it needs.
    pub fn instruction_set(&self) -> InstructionSet {
        self.instruction_set
    }

    /// How many pages it sums side by side. What is left is summed page by page.
    pub fn pages_at_once(&self) -> usize {
        self.pages_at_once
    }

    /// Whether servers compute so, and it is here to say how long that takes them; never the best.
    pub fn is_servers(&self) -> bool {
        self.is_servers
    }

    /// Whether this processor has what it needs. Where it has not, the definition is computed.
    pub fn is_available(&self) -> bool {
        self.instruction_set.is_available()
    }

    /// The checksums of pages that follow each other in a fork, of which the first one is block
    /// `first_block`. Their own fields count as zero. The pages are only read; they may begin at
    /// any address.
    ///
    /// # Panics
    ///
    /// If `page_bytes` is no page's length (see [`is_page`]), `pages` is not that many pages as
    /// `checksums` has room for.
    pub fn checksums(
        &self,
        pages: &[u8],
        page_bytes: usize,
        first_block: u32,
        checksums: &mut [u16],
    ) {
        assert!(is_page(page_bytes), "{page_bytes} bytes are no page");
        let count = checksums.len();
        assert!(
            pages.len().is_multiple_of(page_bytes) && pages.len() / page_bytes == count,
            "{} bytes are not {count} pages of {page_bytes}",
            pages.len()
        );
        (self.checksums)(pages, page_bytes, first_block, checksums);
    }
}

const DEFINITION: Kernel = Kernel {
    name: "portable",
    instruction_set: InstructionSet::Portable,
    pages_at_once: 1,
    is_servers: false,
    checksums: kernels::portable,
};

#[cfg(target_arch = "x86_64")]
static KERNELS: [Kernel; 8] = [
    ours(InstructionSet::Avx512, 4, kernels::avx512),
    // As fast as memory where four pages at once are not, see the bench.
    Kernel { name: "avx512-one-page", ..ours(InstructionSet::Avx512, 1, kernels::avx512_one_page) },
    ours(InstructionSet::Avx2, 3, kernels::avx2),
    ours(InstructionSet::Sse41, 1, kernels::sse41),
    ours(InstructionSet::Sse2, 1, kernels::words::<1>),
    DEFINITION,
    servers("server-avx2", InstructionSet::Avx2, kernels::server_avx2),
    servers("server-sse2", InstructionSet::Sse2, kernels::server_sse2),
];
#[cfg(target_arch = "aarch64")]
static KERNELS: [Kernel; 3] = [
    ours(InstructionSet::Neon, 2, kernels::words::<2>),
    DEFINITION,
    servers("server-neon", InstructionSet::Neon, kernels::words::<1>),
];
#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
static KERNELS: [Kernel; 1] = [DEFINITION];

const fn ours(
    instruction_set: InstructionSet,
    pages_at_once: usize,
    checksums: Checksums,
) -> Kernel {
    let name = instruction_set.name();
    Kernel { name, instruction_set, pages_at_once, is_servers: false, checksums }
}

const fn servers(
    name: &'static str,
    instruction_set: InstructionSet,
    checksums: Checksums,
) -> Kernel {
    Kernel { name, instruction_set, pages_at_once: 1, is_servers: true, checksums }
}
