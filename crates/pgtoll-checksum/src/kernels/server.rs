//! The kernels that servers run, as fast as they run them: to say what checksums cost a server, a
//! faster kernel would be of no use.
//! would be of no use.
//!
//! Both do a page at a time, and add a word before they multiply, as `checksum_impl.h` has it.

/// A page at a time, with the functions that stand beside it: `load`, `step`, `xor` and `fold`.
macro_rules! page_by_page {
    ($feature:literal, $vector:ty, $zero:expr) => {
        const VECTORS: usize = ROW_BYTES / size_of::<$vector>();

        #[target_feature(enable = $feature)]
        pub(in crate::kernels) fn all(
            pages: &[u8],
            page_bytes: usize,
            first_block: u32,
            out: &mut [u16],
        ) {
            let page = |page: [&[Row]; 1]| [sum(page[0])];
            in_groups(pages, page_bytes, first_block, out, page, page);
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn sum(page: &[Row]) -> u32 {
            let mut sums = load_row(&BASE_ROW);
            let Some((first, rows)) = page.split_first() else { return 0 };
            let first = load_row(first);
            let mask = load_row(&FIRST_ROW_MASK);
            for at in 0..VECTORS {
                sums[at] = step(xor(sums[at], and(first[at], mask[at])));
            }
            for row in rows {
                let row = load_row(row);
                for at in 0..VECTORS {
                    sums[at] = step(xor(sums[at], row[at]));
                }
            }
            let mut all = $zero;
            for at in 0..VECTORS {
                all = xor(all, step(step(sums[at])));
            }
            fold(all)
        }

        #[target_feature(enable = $feature)]
        #[inline]
        fn load_row(row: &Row) -> [$vector; VECTORS] {
            let (parts, _) = row.as_chunks();
            let mut vectors = [$zero; VECTORS];
            for at in 0..VECTORS {
                vectors[at] = load(&parts[at]);
            }
            vectors
        }
    };
}

/// Servers from 19 on, where the processor has AVX2.
pub(super) mod avx2 {
    use std::arch::x86_64::{
        __m256i, _mm256_and_si256 as and, _mm256_mullo_epi32, _mm256_set1_epi32,
        _mm256_setzero_si256, _mm256_srli_epi32, _mm256_xor_si256 as xor,
    };

    use super::super::x86::avx2::{fold, load};
    use super::super::{BASE_ROW, FIRST_ROW_MASK, ROW_BYTES, Row, in_groups};
    use crate::definition::PRIME;

    page_by_page!("avx2", __m256i, _mm256_setzero_si256());

    #[target_feature(enable = "avx2")]
    #[inline]
    fn step(mixed: __m256i) -> __m256i {
        let product = _mm256_mullo_epi32(mixed, _mm256_set1_epi32(PRIME.cast_signed()));
        xor(product, _mm256_srli_epi32::<17>(mixed))
    }
}

/// Servers up to 18, and later ones where the processor has no AVX2: every x86-64 processor can do
/// it, and none of these has a multiplication of words. GCC multiplies by shifts and sums then.
///
/// LLVM knows that these are a multiplication and would do another one, which is faster. Assembly
/// is what it leaves alone.
pub(crate) mod sse2 {
    use std::arch::asm;
    use std::arch::x86_64::{
        __m128i, _mm_and_si128 as and, _mm_setzero_si128, _mm_srli_epi32, _mm_xor_si128 as xor,
    };

    use super::super::x86::sse::{fold, load};
    use super::super::{BASE_ROW, FIRST_ROW_MASK, ROW_BYTES, Row, in_groups};

    /// Pages of `page_bytes` bytes from block `first_block` on.
    #[expect(
        unsafe_code,
        reason = "instructions that all processors have cannot be listed separately"
    )]
    pub(crate) fn checksums(pages: &[u8], page_bytes: usize, first_block: u32, out: &mut [u16]) {
        // SAFETY: every x86-64 processor has SSE2.
        unsafe { all(pages, page_bytes, first_block, out) }
    }

    page_by_page!("sse2", __m128i, _mm_setzero_si128());

    #[target_feature(enable = "sse2")]
    #[inline]
    fn step(mixed: __m128i) -> __m128i {
        xor(multiply(mixed), _mm_srli_epi32::<17>(mixed))
    }

    /// 16777619 = ((((2¹⁵ + 1) · 4 − 1) · 8 + 1) · 4 + 1) · 4 − 1.
    #[expect(unsafe_code, reason = "these instructions cannot be limited safely")]
    #[target_feature(enable = "sse2")]
    #[inline]
    fn multiply(by: __m128i) -> __m128i {
        let product: __m128i;
        // SAFETY: arithmetic on two registers, of which one is written and told. The instructions
        // are of SSE2, which this function is made for.
        unsafe {
            asm!(
                "movdqa {product}, {by}",
                "pslld {product}, 15",
                "paddd {product}, {by}",
                "pslld {product}, 2",
                "psubd {product}, {by}",
                "pslld {product}, 3",
                "paddd {product}, {by}",
                "pslld {product}, 2",
                "paddd {product}, {by}",
                "pslld {product}, 2",
                "psubd {product}, {by}",
                by = in(xmm_reg) by,
                product = out(xmm_reg) product,
                options(pure, nomem, nostack, preserves_flags),
            );
        }
        product
    }
}
