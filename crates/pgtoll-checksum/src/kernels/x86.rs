//! Pages side by side in the registers of x86-64.

/// Runs a kernel with the functions of its instruction set that stand beside it: `load`,
/// `splat`, `multiply`, `shift`, `xor3`, `and` and `fold`.
macro_rules! side_by_side {
    ($feature:literal, $vector:ty) => {
        /// Registers of a row.
        const VECTORS: usize = ROW_BYTES / size_of::<$vector>();

        /// `N` pages at a time.
        #[target_feature(enable = $feature)]
        pub(in crate::kernels) fn checksums<const N: usize>(
            pages: &[u8],
            page_bytes: usize,
            first_block: u32,
            out: &mut [u16],
        ) {
            // Closures have the instructions of the function that they are in.
            let groups = |pages: [&[Row]; N]| sums(pages);
            let rest = |page: [&[Row]; 1]| sums(page);
            in_groups(pages, page_bytes, first_block, out, groups, rest);
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn sums<const N: usize>(pages: [&[Row]; N]) -> [u32; N] {
            // Loops and no closures: a closure would have these instructions, the functions of the
            // standard library that call it have not, and so the one is not put into the other.
            let rows = pages[0].len();
            let mut equally_long = pages;
            for page in 0..N {
                equally_long[page] = &pages[page][..rows];
            }
            let pages = equally_long;
            let zero = splat(0);
            let base = load_row(&BASE_ROW);
            let mask = load_row(&FIRST_ROW_MASK);
            let mut states = [[zero; VECTORS]; N];
            for page in 0..N {
                let first = load_row(&pages[page][0]);
                for at in 0..VECTORS {
                    states[page][at] = xor3(base[at], and(first[at], mask[at]), zero);
                }
            }
            for row in 1..rows {
                for page in 0..N {
                    let next = load_row(&pages[page][row]);
                    for at in 0..VECTORS {
                        states[page][at] = step(states[page][at], next[at]);
                    }
                }
            }
            let mut sums = [0; N];
            for page in 0..N {
                let mut all = zero;
                for at in 0..VECTORS {
                    let state = step(step(states[page][at], zero), zero);
                    all = xor3(all, step(state, zero), zero);
                }
                sums[page] = fold(all);
            }
            sums
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn step(state: $vector, next: $vector) -> $vector {
            xor3(multiply(state), shift(state), next)
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn load_row(row: &Row) -> [$vector; VECTORS] {
            let (parts, _) = row.as_chunks();
            let mut vectors = [splat(0); VECTORS];
            for at in 0..VECTORS {
                vectors[at] = load(&parts[at]);
            }
            vectors
        }
    };
}

/// Sixteen words in a register, thirty-two registers, and three operands exclusive-ored at once.
pub(super) mod avx512 {
    use std::arch::x86_64::{
        __m512i, _mm256_xor_si256, _mm512_and_si512, _mm512_castsi512_si256,
        _mm512_extracti64x4_epi64, _mm512_mullo_epi32, _mm512_set1_epi32, _mm512_setr_epi64,
        _mm512_srli_epi32, _mm512_ternarylogic_epi32,
    };

    use super::super::{BASE_ROW, FIRST_ROW_MASK, ROW_BYTES, Row, in_groups};
    use super::{PRIME, avx2, two_words};

    side_by_side!("avx512f", __m512i);

    #[target_feature(enable = "avx512f")]
    #[inline]
    #[rustfmt::skip]
    fn load(from: &[u8; 64]) -> __m512i {
        _mm512_setr_epi64(
            two_words(from, 0), two_words(from, 1), two_words(from, 2), two_words(from, 3),
            two_words(from, 4), two_words(from, 5), two_words(from, 6), two_words(from, 7),
        )
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn splat(word: i32) -> __m512i {
        _mm512_set1_epi32(word)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn multiply(state: __m512i) -> __m512i {
        _mm512_mullo_epi32(state, splat(PRIME))
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn shift(state: __m512i) -> __m512i {
        _mm512_srli_epi32::<17>(state)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn xor3(a: __m512i, b: __m512i, c: __m512i) -> __m512i {
        // The truth table of a ^ b ^ c.
        _mm512_ternarylogic_epi32::<0x96>(a, b, c)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn and(a: __m512i, b: __m512i) -> __m512i {
        _mm512_and_si512(a, b)
    }

    #[target_feature(enable = "avx512f")]
    #[inline]
    fn fold(all: __m512i) -> u32 {
        let upper = _mm512_extracti64x4_epi64::<1>(all);
        avx2::fold(_mm256_xor_si256(_mm512_castsi512_si256(all), upper))
    }
}

/// Eight words in a register.
pub(super) mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm_xor_si128, _mm256_and_si256, _mm256_castsi256_si128, _mm256_extracti128_si256,
        _mm256_mullo_epi32, _mm256_set1_epi32, _mm256_setr_epi64x, _mm256_srli_epi32,
        _mm256_xor_si256,
    };

    use super::super::{BASE_ROW, FIRST_ROW_MASK, ROW_BYTES, Row, in_groups};
    use super::{PRIME, sse, two_words};

    side_by_side!("avx2", __m256i);

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(in crate::kernels) fn load(from: &[u8; 32]) -> __m256i {
        _mm256_setr_epi64x(
            two_words(from, 0),
            two_words(from, 1),
            two_words(from, 2),
            two_words(from, 3),
        )
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn splat(word: i32) -> __m256i {
        _mm256_set1_epi32(word)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn multiply(state: __m256i) -> __m256i {
        _mm256_mullo_epi32(state, splat(PRIME))
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn shift(state: __m256i) -> __m256i {
        _mm256_srli_epi32::<17>(state)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn xor3(a: __m256i, b: __m256i, c: __m256i) -> __m256i {
        _mm256_xor_si256(_mm256_xor_si256(a, b), c)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    fn and(a: __m256i, b: __m256i) -> __m256i {
        _mm256_and_si256(a, b)
    }

    #[target_feature(enable = "avx2")]
    #[inline]
    pub(in crate::kernels) fn fold(all: __m256i) -> u32 {
        let upper = _mm256_extracti128_si256::<1>(all);
        sse::fold(_mm_xor_si128(_mm256_castsi256_si128(all), upper))
    }
}

/// Four words in a register; one page fills half of the registers.
pub(super) mod sse41 {
    use std::arch::x86_64::{__m128i, _mm_mullo_epi32};

    use super::super::{BASE_ROW, FIRST_ROW_MASK, ROW_BYTES, Row, in_groups};
    use super::PRIME;
    use super::sse::{and, fold, load, shift, splat, xor3};

    side_by_side!("sse4.1", __m128i);

    #[target_feature(enable = "sse4.1")]
    #[inline]
    fn multiply(state: __m128i) -> __m128i {
        _mm_mullo_epi32(state, splat(PRIME))
    }
}

/// Operations on registers of four words that all multiplications share.
pub(super) mod sse {
    use std::arch::x86_64::{
        __m128i, _mm_and_si128, _mm_cvtsi128_si32, _mm_set1_epi32, _mm_setr_epi32,
        _mm_shuffle_epi32, _mm_srli_epi32, _mm_xor_si128,
    };

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(in crate::kernels) fn load(from: &[u8; 16]) -> __m128i {
        let (words, _) = from.as_chunks();
        let [a, b, c, d] = [0, 1, 2, 3].map(|at| i32::from_le_bytes(words[at]));
        _mm_setr_epi32(a, b, c, d)
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn splat(word: i32) -> __m128i {
        _mm_set1_epi32(word)
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn shift(state: __m128i) -> __m128i {
        _mm_srli_epi32::<17>(state)
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn xor3(a: __m128i, b: __m128i, c: __m128i) -> __m128i {
        _mm_xor_si128(_mm_xor_si128(a, b), c)
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(super) fn and(a: __m128i, b: __m128i) -> __m128i {
        _mm_and_si128(a, b)
    }

    #[target_feature(enable = "sse2")]
    #[inline]
    pub(in crate::kernels) fn fold(all: __m128i) -> u32 {
        // The upper two_words onto the lower one, then its upper word onto the lower one.
        let all = _mm_xor_si128(all, _mm_shuffle_epi32::<0b0100_1110>(all));
        let all = _mm_xor_si128(all, _mm_shuffle_epi32::<0b1011_0001>(all));
        _mm_cvtsi128_si32(all).cast_unsigned()
    }
}

/// As the instructions take it.
const PRIME: i32 = crate::definition::PRIME.cast_signed();

/// Two words. Registers are put together from them, which becomes one instruction.
#[expect(clippy::inline_always, reason = "it is part of one instruction")]
#[inline(always)]
fn two_words<const BYTES: usize>(from: &[u8; BYTES], at: usize) -> i64 {
    let (halves, _) = from.as_chunks();
    i64::from_le_bytes(halves[at])
}
